// The strip loops for AVX-512 (F, BW, DQ, VL).
#include "cpu/kernels.hpp"

#ifdef CODA_HAVE_AVX512
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <climits>
#include <cstddef>
#include <cstdint>

#define CODA_VECTOR_BYTES 64

namespace coda::cpu {
namespace {
#include "cpu/kernels.inl"
}  // namespace

const Kernels& avx512_kernels() {
  static const Kernels table = make_table("avx512");
  return table;
}

}  // namespace coda::cpu
#endif
