// The strip loops for the baseline that every processor of the architecture has.
#include "cpu/kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <climits>
#include <cstddef>
#include <cstdint>

#define CODA_VECTOR_BYTES 16

namespace coda::cpu {
namespace {
#include "cpu/kernels.inl"
}  // namespace

const Kernels& portable_kernels() {
  static const Kernels table = make_table("portable");
  return table;
}

}  // namespace coda::cpu
