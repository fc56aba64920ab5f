// The strip loops for AVX2 with FMA.
#include "cpu/kernels.hpp"

#ifdef CODA_HAVE_AVX2
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <climits>
#include <cstddef>
#include <cstdint>

#define CODA_VECTOR_BYTES 32

namespace coda::cpu {
namespace {
#include "cpu/kernels.inl"
}  // namespace

const Kernels& avx2_kernels() {
  static const Kernels table = make_table("avx2");
  return table;
}

}  // namespace coda::cpu
#endif
