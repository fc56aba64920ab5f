#include "cuda/driver.hpp"

#include <fmt/format.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "coda/error.hpp"
#include "cuda/library.hpp"

namespace coda::cuda {
namespace {

struct Opened {
  Library library;
  Driver table;
};

std::mutex open_mutex;
std::atomic<const Driver*> opened{nullptr};

void bind_all(const Library& lib, Driver& d) {
  // The second name is the one exported: cuda.h maps the plain name to a version of it.
#define CODA_BIND(name) lib.bind(d.name, #name)
#define CODA_BIND_AS(name, exported) lib.bind(d.name, exported)
  CODA_BIND(cuInit); CODA_BIND(cuDriverGetVersion); CODA_BIND(cuGetErrorName); CODA_BIND(cuGetErrorString);
  CODA_BIND(cuDeviceGetCount); CODA_BIND(cuDeviceGet); CODA_BIND(cuDeviceGetName); CODA_BIND(cuDeviceGetAttribute);
  CODA_BIND(cuDevicePrimaryCtxRetain); CODA_BIND(cuCtxGetCurrent); CODA_BIND(cuCtxSynchronize);
  CODA_BIND_AS(cuCtxPushCurrent, "cuCtxPushCurrent_v2"); CODA_BIND_AS(cuCtxPopCurrent, "cuCtxPopCurrent_v2");
  CODA_BIND(cuModuleLoadData); CODA_BIND(cuModuleUnload); CODA_BIND(cuModuleGetFunction);
  CODA_BIND(cuFuncGetAttribute); CODA_BIND(cuFuncSetAttribute); CODA_BIND(cuLaunchKernelEx); CODA_BIND(cuTensorMapEncodeTiled);
  CODA_BIND_AS(cuMemAlloc, "cuMemAlloc_v2"); CODA_BIND_AS(cuMemFree, "cuMemFree_v2"); CODA_BIND_AS(cuMemGetInfo, "cuMemGetInfo_v2");
  CODA_BIND(cuMemcpyAsync); CODA_BIND_AS(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2"); CODA_BIND_AS(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  CODA_BIND(cuMemsetD8Async); CODA_BIND(cuMemsetD32Async);
  CODA_BIND(cuStreamCreate); CODA_BIND_AS(cuStreamDestroy, "cuStreamDestroy_v2"); CODA_BIND(cuStreamSynchronize); CODA_BIND(cuStreamWaitEvent);
  CODA_BIND(cuStreamIsCapturing); CODA_BIND_AS(cuStreamBeginCapture, "cuStreamBeginCapture_v2"); CODA_BIND(cuStreamEndCapture);
  CODA_BIND(cuThreadExchangeStreamCaptureMode); CODA_BIND(cuGraphInstantiateWithFlags); CODA_BIND(cuGraphLaunch); CODA_BIND(cuGraphExecDestroy); CODA_BIND(cuGraphDestroy);
  CODA_BIND(cuEventCreate); CODA_BIND(cuEventRecord); CODA_BIND(cuEventQuery); CODA_BIND(cuEventSynchronize);
  CODA_BIND(cuEventElapsedTime); CODA_BIND_AS(cuEventDestroy, "cuEventDestroy_v2");
#undef CODA_BIND
#undef CODA_BIND_AS
}

std::string describe_error(const Driver& d, Result r, const char* call) {
  const char *name = nullptr, *text = nullptr;
  d.cuGetErrorName(r, &name);
  d.cuGetErrorString(r, &text);
  return fmt::format("{} failed: {} ({}), {}", call, name ? name : "an unknown error", r, text ? text : "no description");
}

}  // namespace

const Driver& driver() {
  if (const Driver* d = opened.load(std::memory_order_acquire)) return *d;
  std::lock_guard lock(open_mutex);
  if (const Driver* d = opened.load(std::memory_order_acquire)) return *d;
  const std::string names[] = {"libcuda.so.1"};
  std::unique_ptr<Opened> lib(new Opened{
      Library("the CUDA driver", names, "Install an NVIDIA driver for CUDA 12.3 or newer, or use the cpu device"), {}});
  bind_all(lib->library, lib->table);
  if (Result r = lib->table.cuInit(0)) throw Error(ErrorKind::device, describe_error(lib->table, r, "cuInit") + "; the cpu device still works");
  opened.store(&lib.release()->table, std::memory_order_release);
  return *opened.load(std::memory_order_relaxed);
}

bool available() noexcept {
  try {
    return device_count() > 0;
  } catch (...) {
    return false;
  }
}

void fail(Result r, const char* call) { throw Error(ErrorKind::device, describe_error(driver(), r, call)); }

void check(Result r, const char* call) {
  if (r != success) [[unlikely]] fail(r, call);
}

int device_count() {
  int n = 0;
  CODA_CUDA(cuDeviceGetCount, &n);
  return n;
}

namespace {

// Per-device state, made once; a deque keeps addresses as it grows.
struct DeviceState {
  DeviceInfo info;
  DeviceOrdinal ordinal = 0;
  std::atomic<Context> context{nullptr};
};

DeviceState& device_state(int index) {
  static std::mutex mutex;
  static auto& states = *new std::deque<DeviceState>;  // never destroyed: buffers of static objects outlive it otherwise
  static std::atomic<int> ready{0};
  if (index >= 0 && index < ready.load(std::memory_order_acquire)) return states[static_cast<std::size_t>(index)];
  std::lock_guard lock(mutex);
  if (states.empty()) {
    const int n = device_count();
    int version = 0;
    CODA_CUDA(cuDriverGetVersion, &version);
    std::deque<DeviceState> found(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) {
      DeviceState& s = found[static_cast<std::size_t>(i)];
      CODA_CUDA(cuDeviceGet, &s.ordinal, i);
      char name[256] = {};
      CODA_CUDA(cuDeviceGetName, name, 256, s.ordinal);
      auto attribute = [&](DeviceAttribute a) {
        int v = 0;
        CODA_CUDA(cuDeviceGetAttribute, &v, a, s.ordinal);
        return v;
      };
      s.info = {.index = i,
                .name = name,
                .major = attribute(DeviceAttribute::compute_capability_major),
                .minor = attribute(DeviceAttribute::compute_capability_minor),
                .multiprocessors = attribute(DeviceAttribute::multiprocessor_count),
                .l2_bytes = attribute(DeviceAttribute::l2_cache_size),
                .shared_bytes = attribute(DeviceAttribute::max_shared_memory_per_block_optin),
                .driver_version = version};
    }
    states.swap(found);
    ready.store(n, std::memory_order_release);
  }
  if (index < 0 || index >= ready.load(std::memory_order_relaxed))
    throw Error(ErrorKind::value, fmt::format("CUDA device {} does not exist: this machine has {}", index, states.size()));
  return states[static_cast<std::size_t>(index)];
}

}  // namespace

const DeviceInfo& device_info(int index) { return device_state(index).info; }

void require_hopper(const DeviceInfo& d) {
  if (d.major != 9 || d.minor != 0)
    throw Error(ErrorKind::unsupported, fmt::format("device {} is {} of compute capability {}.{}, and the kernels need 9.0 (H100, H200, "
                                                    "GH200); use such a GPU, or the cpu device", d.index, d.name, d.major, d.minor));
}

Context primary_context(int index) {
  DeviceState& s = device_state(index);
  if (Context c = s.context.load(std::memory_order_acquire)) return c;
  // Two threads may both retain it: the context is reference counted and never released by us.
  Context c = nullptr;
  CODA_CUDA(cuDevicePrimaryCtxRetain, &c, s.ordinal);
  s.context.store(c, std::memory_order_release);
  return c;
}

ContextScope::ContextScope(int device_index) {
  const Context wanted = primary_context(device_index);
  Context current = nullptr;
  CODA_CUDA(cuCtxGetCurrent, &current);
  if (current == wanted) return;
  CODA_CUDA(cuCtxPushCurrent, wanted);
  pushed_ = true;
}

ContextScope::~ContextScope() {
  Context ignored = nullptr;
  if (pushed_) driver().cuCtxPopCurrent(&ignored);
}

RelaxedCapture::RelaxedCapture() { CODA_CUDA(cuThreadExchangeStreamCaptureMode, &mode_); }

RelaxedCapture::~RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }

DeviceBuffer::DeviceBuffer(int device_index, std::size_t bytes) : bytes_(bytes), device_(device_index) {
  if (bytes == 0) return;
  ContextScope scope(device_index);
  if (Result r = driver().cuMemAlloc(&address_, bytes)) {
    std::size_t free = 0, total = 0;
    driver().cuMemGetInfo(&free, &total);
    throw Error(ErrorKind::device, fmt::format("{}: {} bytes asked of device {}, {} of {} free", describe_error(driver(), r, "cuMemAlloc"),
                                               bytes, device_index, free, total));
  }
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& o) noexcept
    : address_(std::exchange(o.address_, 0)), bytes_(std::exchange(o.bytes_, 0)), device_(o.device_) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& o) noexcept {
  std::swap(address_, o.address_);
  std::swap(bytes_, o.bytes_);
  std::swap(device_, o.device_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (!address_) return;
  try {
    ContextScope scope(device_);
    driver().cuMemFree(address_);
  } catch (...) {  // the driver is gone at process exit: its memory went with it
  }
}

OwnedStream::OwnedStream(int device_index) : device_(device_index) {
  ContextScope scope(device_);
  CODA_CUDA(cuStreamCreate, &stream_, 1u /* non-blocking */);
}

OwnedStream::~OwnedStream() {
  try {
    ContextScope scope(device_);
    driver().cuStreamDestroy(stream_);
  } catch (...) {
  }
}

OwnedEvent::OwnedEvent(int device_index) : device_(device_index) {
  ContextScope scope(device_);
  CODA_CUDA(cuEventCreate, &event_, 0u);
}

OwnedEvent::OwnedEvent(OwnedEvent&& o) noexcept : device_(o.device_), event_(std::exchange(o.event_, nullptr)) {}

OwnedEvent::~OwnedEvent() {
  if (event_) driver().cuEventDestroy(event_);
}

}  // namespace coda::cuda
