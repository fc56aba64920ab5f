// A shared library opened at run time: the driver, NVRTC, NVML and cuBLASLt are all reached this way, so that this
// library builds without CUDA and loads on machines that have none of them.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace coda::cuda {

class Library {
 public:
  /// Opens the first of `names` that loads. Throws Error(unsupported): "<what> was not found: tried …; <way_out>".
  Library(const std::string& what, std::span<const std::string> names, const std::string& way_out);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// The name or path that was opened.
  const std::string& name() const { return name_; }

  /// The address of `symbol`. Throws Error(unsupported) naming the library and the symbol.
  void* symbol(const char* symbol) const;
  /// The address of `symbol`, or null.
  void* optional(const char* symbol) const;

  template <class F> void bind(F*& f, const char* symbol_name) const { f = reinterpret_cast<F*>(symbol(symbol_name)); }

 private:
  std::string what_, name_;
  void* handle_ = nullptr;  // never closed: kernels, contexts and exit handlers of the library outlive any scope of ours
};

}  // namespace coda::cuda
