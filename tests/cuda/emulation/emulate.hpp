// Second passes of programs on the host: their pages compiled by the C++ compiler that built the tests, against the device
// headers and a ptx.cuh of coroutines, and run on host tensors. So index arithmetic and orders are tried without a GPU.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "coda/engine.hpp"
#include "cuda/emit_two_pass.hpp"

namespace coda::test {

/// A translation unit that includes device headers, compiled and opened.
class HostLibrary {
 public:
  /// Throws std::runtime_error with the compiler's output where it fails.
  explicit HostLibrary(const std::string& source);
  ~HostLibrary();
  HostLibrary(const HostLibrary&) = delete;
  HostLibrary& operator=(const HostLibrary&) = delete;
  /// Whether there is a compiler to do it with.
  static bool possible();
  void* symbol(const std::string& name) const;

 private:
  std::string directory_;
  void* library_ = nullptr;
};

/// Compiled pages of several programs.
class Emulation {
 public:
  explicit Emulation(const std::vector<Program>& programs);

  /// Program `index` on host tensors: the product from the CPU engine, then the second pass by `blocks` blocks. The
  /// workspace is poisoned before; empty where it was left as it should be and nothing was written past it.
  std::string run(std::size_t index, Slots slots, int blocks, bool backwards) const;

 private:
  std::vector<Program> programs_;
  std::vector<TwoPass> pages_;
  std::unique_ptr<HostLibrary> library_;
};

}  // namespace coda::test
