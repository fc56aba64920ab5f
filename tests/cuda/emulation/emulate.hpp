// Second passes of programs on the host: their pages compiled by the C++ compiler that built the tests, against the device
// headers and a ptx.cuh of coroutines, and run on host tensors. So index arithmetic and orders are tried without a GPU.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "coda/engine.hpp"
#include "cuda/emit_two_pass.hpp"

namespace coda::test {

/// Compiled pages of several programs.
class Emulation {
 public:
  /// Throws std::runtime_error with the compiler's output where it fails.
  explicit Emulation(const std::vector<Program>& programs);
  ~Emulation();
  /// Whether there is a compiler to do it with.
  static bool possible();

  /// Program `index` on host tensors: the product from the CPU engine, then the second pass by `blocks` blocks. The
  /// workspace is poisoned before; empty where it was left as it should be and nothing was written past it.
  std::string run(std::size_t index, Slots slots, int blocks, bool backwards) const;

 private:
  std::vector<Program> programs_;
  std::vector<TwoPass> pages_;
  std::string directory_;
  void* library_ = nullptr;
};

}  // namespace coda::test
