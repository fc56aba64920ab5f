#include "cuda/module.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <future>
#include <map>
#include <mutex>
#include <utility>

#include "coda/error.hpp"
#include "cuda/driver.hpp"
#include "cuda/hash.hpp"

namespace coda::cuda {
namespace {

// A cache entry: one line of numbers, then the cubin.
std::string pack(const Compiled& c) {
  const ResourceUsage& u = c.usage;
  return fmt::format("{} {} {} {} {} {:d}\n", u.registers, u.spill_store_bytes, u.spill_load_bytes, u.stack_bytes, u.static_shared_bytes, u.serialised) + c.code;
}

bool unpack(const std::string& entry, Compiled& c) {
  const std::size_t line = entry.find('\n');
  ResourceUsage& u = c.usage;
  int serialised = 0;
  if (line == std::string::npos || std::sscanf(entry.c_str(), "%d %d %d %d %d %d", &u.registers, &u.spill_store_bytes, &u.spill_load_bytes,
                                               &u.stack_bytes, &u.static_shared_bytes, &serialised) != 6)
    return false;
  u.serialised = serialised != 0;
  c.code = entry.substr(line + 1);
  return true;
}

LoadedKernel load_now(const Emitted& kernel, int device_index) {
  const Compiled c = code_of(kernel, kernel_cache());
  ContextScope scope(device_index);
  RelaxedCapture relaxed;
  Module module = nullptr;
  CODA_CUDA(cuModuleLoadData, &module, c.code.data());
  LoadedKernel k{.function = nullptr, .usage = c.usage, .compile_seconds = c.seconds};
  CODA_CUDA(cuModuleGetFunction, &k.function, module, kernel.entry.c_str());
  CODA_CUDA(cuFuncSetAttribute, k.function, FunctionAttribute::max_dynamic_shared_size_bytes, kernel.shared_bytes);
  return k;
}

}  // namespace

std::string code_key(const Emitted& kernel, const CompileOptions& options) {
  Sha256 h;
  h.field("cubin 2").field(nvrtc_version()).field(option_line(options)).field(kernel.source).field(kernel.wgmma);
  for (const embedded::File& d : embedded::device_headers()) h.field(d.name).field(d.text);
  return h.hex();
}

Compiled compile_fresh(const Emitted& kernel, const CompileOptions& options) {
  const auto device = embedded::device_headers();
  std::vector<embedded::File> headers(device.begin(), device.end());
  headers.push_back({"wgmma.cuh", kernel.wgmma});
  try {
    return compile(kernel.source, headers, options);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::device) throw;
    throw Error(ErrorKind::internal, fmt::format("the emitted kernel {} doesn't compile, which is a fault of this library: {}", kernel.config.name(), e.what()));
  }
}

Compiled code_of(const Emitted& kernel, DiskCache& cache, const CompileOptions& options) {
  const std::string key = code_key(kernel, options);
  Compiled c;
  if (auto entry = cache.read(key, "cubin"); entry && unpack(*entry, c)) return c;
  c = compile_fresh(kernel, options);
  cache.write(key, "cubin", pack(c));
  return c;
}

LoadedKernel load(const Emitted& kernel, int device_index) {
  // Never destroyed: threads may launch while static objects are torn down.
  static std::mutex& mutex = *new std::mutex;
  static auto& loaded = *new std::map<std::pair<int, std::string>, std::shared_future<LoadedKernel>>;
  const auto key = std::pair(device_index, code_key(kernel));
  std::promise<LoadedKernel> mine;
  std::shared_future<LoadedKernel> result;
  bool first = false;
  {
    std::lock_guard lock(mutex);
    auto [it, inserted] = loaded.try_emplace(key);
    if (inserted) it->second = mine.get_future().share();
    result = it->second;
    first = inserted;
  }
  if (first) {
    try {
      mine.set_value(load_now(kernel, device_index));
    } catch (...) {
      {
        std::lock_guard lock(mutex);
        loaded.erase(key);  // the next caller tries again
      }
      mine.set_exception(std::current_exception());
    }
  }
  return result.get();
}

}  // namespace coda::cuda
