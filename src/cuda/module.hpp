// Machine code of an emitted kernel: from the cache or from NVRTC, loaded once a device.
#pragma once
#include <string>

#include "cuda/cache.hpp"
#include "cuda/driver_types.hpp"
#include "cuda/emit.hpp"
#include "cuda/nvrtc.hpp"

namespace coda::cuda {

/// The name of a kernel's code in the cache: a hash of the page, its generated header, the device headers, the compiler's
/// version and options. The page follows from program and configuration, so equal keys mean equal code.
std::string code_key(const Emitted& kernel, const CompileOptions& options = {});

/// The code of `kernel`, from `cache` where it is there (`seconds` is then 0), else compiled and stored. Needs no GPU.
Compiled code_of(const Emitted& kernel, DiskCache& cache, const CompileOptions& options = {});

/// Compiles and stores nothing: for reports of compile time.
Compiled compile_fresh(const Emitted& kernel, const CompileOptions& options = {});

struct LoadedKernel {
  Function function = nullptr;
  ResourceUsage usage;
  double compile_seconds = 0;
};

/// The kernel's function on a device, loaded on the first call. Equal kernels share one module, whichever Kernel object
/// asks; threads that ask for one at once compile it once. Modules live as long as the process: graphs may hold them.
LoadedKernel load(const Emitted& kernel, int device_index);

}  // namespace coda::cuda
