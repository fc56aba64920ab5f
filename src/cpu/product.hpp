// The library product: C = A * B^T in f32 by oneDNN, on strided panels of any element types.
#pragma once
#include <cstdint>
#include <memory>

#include "coda/tensor.hpp"

namespace coda::cpu {

/// Rows of A or B: element (r, k) is data[r * row_stride + k * k_stride], strides in elements.
struct Panel {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0, k = 0;
  std::int64_t row_stride = 0, k_stride = 0;

  static Panel of(const Tensor& matrix);
  Panel slice_rows(std::int64_t begin, std::int64_t count) const;
  Panel slice_k(std::int64_t begin, std::int64_t count) const;
};

/// Computes products with the threads that OpenMP gives the calling thread (one inside a parallel region whose
/// threads called omp_set_num_threads(1)). Keeps primitives and scratch memory between calls: one per thread.
class Product {
 public:
  Product();
  ~Product();
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  /// c[i * ldc + j] = sum_k a[i, k] * b[j, k], accumulated in f32. K = 0 gives zeros. bf16 by bf16 runs as it is where
  /// the processor multiplies bf16; every other pair of types is converted to f32, exactly, in blocks of K.
  void operator()(const Panel& a, const Panel& b, float* c, std::int64_t ldc);

  /// The calling thread's own.
  static Product& of_this_thread();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Whether bf16 products run on bf16 instructions here.
bool multiplies_bf16();

}  // namespace coda::cpu
