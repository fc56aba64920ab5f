// Text files that the build puts inside the library: the device headers that NVRTC compiles against, and the
// standard programs. cmake/embed.cmake writes the definitions.
#pragma once
#include <span>
#include <string_view>

namespace coda::embedded {

struct File {
  std::string_view name;  ///< the file's own name, without directories: "norm_rope.coda"
  std::string_view text;
};

/// src/cuda/device/*.cuh, sorted by name.
std::span<const File> device_headers();
/// programs/*.coda, sorted by name.
std::span<const File> programs();

}  // namespace coda::embedded
