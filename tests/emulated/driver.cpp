// A CUDA driver whose one kind of device is the emulated one: the functions that src/cuda/driver.cpp binds. Device memory is
// host memory, every stream does what it is given at once, and a module is a shared library.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/driver_types.hpp"
#include "device.hpp"
#include "page.hpp"
#include "tensor_map.hpp"

namespace coda::cuda {

struct CUmod_st {
  void* library = nullptr;
};
struct CUfunc_st {
  emulated::Launch launch;
  std::vector<std::uint64_t> argument_bytes;
};
struct CUgraph_st {
  std::vector<std::function<Result()>> work;
};
struct CUgraphExec_st {
  std::vector<std::function<Result()>> work;
};
struct CUstream_st {
  std::unique_ptr<CUgraph_st> capture;
};
struct CUevent_st {
  std::chrono::steady_clock::time_point at;
};
struct CUctx_st {};

}  // namespace coda::cuda

using namespace coda::cuda;
using std::size_t;

namespace {

constexpr Result invalid_value = 1, out_of_memory = 2, not_found = 500, launch_failed = 719, invalid_image = 200;
std::mutex mutex;  // one thing at a time
CUctx_st context;
thread_local std::vector<Context> current;

Result do_or_record(Stream s, std::function<Result()> work) {
  const std::lock_guard lock(mutex);
  if (s && s->capture) {
    s->capture->work.push_back(std::move(work));
    return success;
  }
  return work();
}

Result replay(const std::vector<std::function<Result()>>& work) {
  const std::lock_guard lock(mutex);
  for (const auto& w : work)
    if (const Result r = w()) return r;
  return success;
}

int multiprocessors() {
  const char* wanted = std::getenv("CODA_EMULATED_MULTIPROCESSORS");
  return wanted ? std::atoi(wanted) : 6;
}

}  // namespace

extern "C" {

Result cuInit(unsigned) { return success; }
Result cuDriverGetVersion(int* v) { return *v = 13000, success; }
Result cuGetErrorName(Result r, const char** s) {
  *s = r == launch_failed ? "CUDA_ERROR_LAUNCH_FAILED" : r == invalid_value ? "CUDA_ERROR_INVALID_VALUE" : "an error of the emulated driver";
  return success;
}
Result cuGetErrorString(Result, const char** s) { return *s = "see what was printed", success; }
Result cuDeviceGetCount(int* n) { return *n = 1, success; }
Result cuDeviceGet(DeviceOrdinal* d, int i) { return *d = i, i == 0 ? success : invalid_value; }
Result cuDeviceGetName(char* name, int n, DeviceOrdinal) { return std::snprintf(name, static_cast<size_t>(n), "an emulated Hopper"), success; }
Result cuDeviceGetAttribute(int* v, DeviceAttribute a, DeviceOrdinal) {
  switch (a) {
    case DeviceAttribute::multiprocessor_count: *v = multiprocessors(); break;
    case DeviceAttribute::l2_cache_size: *v = 50 << 20; break;
    case DeviceAttribute::compute_capability_major: *v = 9; break;
    case DeviceAttribute::compute_capability_minor: *v = 0; break;
    case DeviceAttribute::max_shared_memory_per_block_optin: *v = 227 << 10; break;
  }
  return success;
}
Result cuDevicePrimaryCtxRetain(Context* c, DeviceOrdinal) { return *c = &context, success; }
Result cuCtxGetCurrent(Context* c) { return *c = current.empty() ? nullptr : current.back(), success; }
Result cuCtxPushCurrent_v2(Context c) { return current.push_back(c), success; }
Result cuCtxPopCurrent_v2(Context* c) {
  if (current.empty()) return invalid_value;
  *c = current.back();
  return current.pop_back(), success;
}
Result cuCtxSynchronize() { return success; }

Result cuModuleLoadData(Module* m, const void* image) {
  emulated::PageHeader header;
  std::memcpy(&header, image, sizeof header);
  if (header.magic != emulated::page_magic) return invalid_image;
  const int file = memfd_create("coda-page", 0);
  const auto* at = static_cast<const char*>(image) + sizeof header;
  if (file < 0 || write(file, at, header.bytes) != static_cast<ssize_t>(header.bytes)) return out_of_memory;
  void* library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);  // the file stays open: dlopen knows it by its path
  if (!library) return std::fprintf(stderr, "emulated driver: %s\n", dlerror()), invalid_image;
  *m = new CUmod_st{library};
  return success;
}
Result cuModuleUnload(Module m) { return delete m, success; }
Result cuModuleGetFunction(Function* f, Module m, const char* name) {
  auto* made = new CUfunc_st;
  const auto* page = static_cast<const emulated::Page*>(dlsym(m->library, "emulated_page"));
  if (!page || std::strcmp(page->entry, name) != 0) return not_found;
  made->launch.entry = page->call;
  made->launch.cluster = page->cluster;
  made->launch.one_block_at_a_time = page->one_block_at_a_time;
  made->argument_bytes.assign(page->argument_bytes, page->argument_bytes + page->arguments);
  *f = made;
  return success;
}
Result cuFuncGetAttribute(int* v, FunctionAttribute, Function) { return *v = 0, success; }
Result cuFuncSetAttribute(Function, FunctionAttribute, int bytes) { return bytes <= 227 << 10 ? success : invalid_value; }

Result cuLaunchKernelEx(const LaunchConfig* c, Function f, void** arguments, void**) {
  auto launch = f->launch;
  launch.grid = c->grid_x;
  launch.threads = c->block_x;
  launch.shared_bytes = c->shared_bytes;
  // Arguments are taken when a launch is asked for, as graphs do.
  auto kept = std::make_shared<std::vector<std::vector<std::uint64_t>>>();
  for (std::size_t i = 0; i < f->argument_bytes.size(); ++i) {
    auto& one = kept->emplace_back((f->argument_bytes[i] + 7) / 8 + 16);  // room to align to 64 bytes
    std::memcpy(emulated::aligned(one.data()), arguments[i], f->argument_bytes[i]);
  }
  return do_or_record(c->stream, [launch, kept]() -> Result {
    std::vector<void*> pointers;
    for (auto& one : *kept) pointers.push_back(emulated::aligned(one.data()));
    const std::string wrong = emulated::run(launch, pointers.data());
    if (wrong.empty()) return success;
    std::fprintf(stderr, "emulated device: %s\n", wrong.c_str());
    return launch_failed;
  });
}

Result cuTensorMapEncodeTiled(coda::cuda::TensorMap* map, TensorMapType type, std::uint32_t rank, void* base, const std::uint64_t* extents, const std::uint64_t* strides,
                              const std::uint32_t* box, const std::uint32_t* steps, int interleave, TensorMapSwizzle swizzle, TensorMapPromotion, int) {
  const std::uint32_t size = type == TensorMapType::u8 ? 1 : type == TensorMapType::f32 || type == TensorMapType::tf32 ? 4 : 2;
  const std::uint32_t span = swizzle == TensorMapSwizzle::none ? 0 : 16U << static_cast<int>(swizzle);
  const auto address = reinterpret_cast<std::uint64_t>(base);
  if (rank != 2 || interleave != 0 || steps[0] != 1 || steps[1] != 1 || address % 16 != 0 || strides[0] % 16 != 0 || strides[0] >= std::uint64_t{1} << 40) return invalid_value;
  for (int i = 0; i < 2; ++i)
    if (extents[i] == 0 || extents[i] > std::uint64_t{1} << 32 || box[i] == 0 || box[i] > 256) return invalid_value;
  if (box[0] * size % 16 != 0 || (span != 0 && box[0] * size > span)) return invalid_value;
  const emulated::TensorMap made{address, extents[0], extents[1], strides[0], box[0], box[1], size, span, static_cast<std::uint32_t>(type), emulated::map_magic};
  static_assert(sizeof made <= sizeof *map);
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &made, sizeof made);
  return success;
}

Result cuMemAlloc_v2(DevicePointer* p, size_t bytes) {
  void* at = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  *p = reinterpret_cast<DevicePointer>(at);
  if (!at) return out_of_memory;
  std::memset(at, 0xff, (bytes + 255) / 256 * 256);
  return success;
}
Result cuMemFree_v2(DevicePointer p) { return std::free(reinterpret_cast<void*>(p)), success; }
Result cuMemGetInfo_v2(size_t* free, size_t* total) { return *free = *total = size_t{8} << 30, success; }
Result cuMemcpyAsync(DevicePointer to, DevicePointer from, size_t n, Stream s) {
  return do_or_record(s, [=] { return std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n), success; });
}
Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t n, Stream s) {
  return do_or_record(s, [=] { return std::memcpy(reinterpret_cast<void*>(to), from, n), success; });
}
Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t n, Stream s) {
  return do_or_record(s, [=] { return std::memcpy(to, reinterpret_cast<void*>(from), n), success; });
}
Result cuMemsetD8Async(DevicePointer p, unsigned char v, size_t n, Stream s) {
  return do_or_record(s, [=] { return std::memset(reinterpret_cast<void*>(p), v, n), success; });
}
Result cuMemsetD32Async(DevicePointer p, unsigned v, size_t n, Stream s) {
  return do_or_record(s, [=] {
    for (size_t i = 0; i < n; ++i) reinterpret_cast<unsigned*>(p)[i] = v;
    return success;
  });
}

Result cuStreamCreate(Stream* s, unsigned) { return *s = new CUstream_st, success; }
Result cuStreamDestroy_v2(Stream s) { return delete s, success; }
Result cuStreamSynchronize(Stream) { return success; }
Result cuStreamWaitEvent(Stream, Event, unsigned) { return success; }
Result cuStreamIsCapturing(Stream s, CaptureStatus* v) { return *v = s && s->capture ? CaptureStatus::active : CaptureStatus::none, success; }
Result cuStreamBeginCapture_v2(Stream s, int) { return s->capture = std::make_unique<CUgraph_st>(), success; }
Result cuStreamEndCapture(Stream s, Graph* g) { return *g = s->capture.release(), *g ? success : invalid_value; }
Result cuThreadExchangeStreamCaptureMode(int*) { return success; }
Result cuGraphInstantiateWithFlags(GraphExec* e, Graph g, unsigned long long) { return *e = new CUgraphExec_st{g->work}, success; }
Result cuGraphLaunch(GraphExec e, Stream) { return replay(e->work); }
Result cuGraphExecDestroy(GraphExec e) { return delete e, success; }
Result cuGraphDestroy(Graph g) { return delete g, success; }

Result cuEventCreate(Event* e, unsigned) { return *e = new CUevent_st, success; }
Result cuEventRecord(Event e, Stream) { return e->at = std::chrono::steady_clock::now(), success; }
Result cuEventQuery(Event) { return success; }
Result cuEventSynchronize(Event) { return success; }
Result cuEventElapsedTime(float* ms, Event from, Event to) { return *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count(), success; }
Result cuEventDestroy_v2(Event e) { return delete e, success; }

}  // extern "C"
