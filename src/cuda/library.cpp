#include "cuda/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "coda/error.hpp"

namespace coda::cuda {

Library::Library(const std::string& what, std::span<const std::string> names, const std::string& way_out) : what_(what) {
  std::string tried;
  for (const std::string& n : names) {
    handle_ = dlopen(n.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_) {
      name_ = n;
      return;
    }
    // A library that exists but can't be loaded (a missing dependency, the wrong architecture) is worth its own words.
    const char* why = dlerror();
    const std::string reason = why ? why : "";
    const bool absent = reason.find("No such file") != std::string::npos;
    tried += fmt::format("{}{}{}", tried.empty() ? "" : ", ", n, absent || reason.empty() ? "" : " (" + reason + ")");
  }
  throw Error(ErrorKind::unsupported, fmt::format("{} was not found: tried {}. {}", what, tried, way_out));
}

void* Library::optional(const char* symbol) const { return dlsym(handle_, symbol); }

void* Library::symbol(const char* symbol) const {
  if (void* p = optional(symbol)) return p;
  throw Error(ErrorKind::unsupported, fmt::format("{} ({}) has no function {}: it is older than this library needs; "
                                                  "install a version for CUDA 12.3 or newer", what_, name_, symbol));
}

}  // namespace coda::cuda
