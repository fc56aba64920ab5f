// cuBLASLt, opened at run time: the product that `coda bench` compares with.
#pragma once
#include <cstdint>
#include <memory>

#include "coda/dtype.hpp"
#include "cuda/driver.hpp"
#include "plan/config.hpp"

namespace coda::cuda {

/// One planned product D[M,N] = A[M,K]·B[N,K] (+ D where `accumulate`) on contiguous row-major D, with f32 arithmetic.
class CublasLt {
 public:
  struct Shape {
    std::int64_t m, n, k;
    Major a_major, b_major;   ///< mn: the operand is stored [K, M] or [K, N]
    DType input, output;
    bool accumulate;
  };
  /// Takes the library's first choice for the shape, with 32 MiB of workspace. Throws Error(unsupported) where the library
  /// is missing, Error(device) where it refuses.
  CublasLt(const Shape& shape, int device_index);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  void enqueue(const void* a, const void* b, void* d, Stream stream) const;

  /// "cuBLAS 13.0.2", by cublasLtGetVersion.
  static std::string version();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace coda::cuda
