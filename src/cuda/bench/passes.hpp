// The separate passes over memory that a fused program spares: what a careful person would write after a library product.
// They are part of the comparison, so they are written well: 16-byte accesses, one read of each input, one write of each
// output, statistics in f32. Also random data and differences, on the GPU.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "coda/dtype.hpp"
#include "cuda/driver.hpp"

namespace coda::cuda {

class Passes {
 public:
  /// Compiles them (once a process and device).
  explicit Passes(int device_index);

  /// Enqueues pass `name` (a kernel of passes.cpp) on `blocks` blocks of 256 threads.
  void enqueue(const std::string& name, unsigned blocks, Stream stream, std::vector<void*> arguments) const;

  /// Normal random values times `scale` plus `shift`, as bf16 or f32.
  void fill_bf16(void* to, std::int64_t count, float scale, std::uint32_t seed, Stream stream) const;
  void fill_f32(void* to, std::int64_t count, float scale, float shift, std::uint32_t seed, Stream stream) const;
  /// Relative Frobenius difference of two arrays of f32, bf16 or f16 (waits).
  double difference(DType dtype, const void* a, const void* b, std::int64_t count) const;

 private:
  int device_;
  Module module_ = nullptr;
};

}  // namespace coda::cuda
