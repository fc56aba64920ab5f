// Which strip loops this processor runs.
#include "cpu/kernels.hpp"

#include <vector>

namespace coda::cpu {

const Kernels& portable_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();

std::span<const Kernels* const> available_kernels() {
  static const std::vector<const Kernels*> tables = [] {
    std::vector<const Kernels*> found{&portable_kernels()};
#ifdef CODA_HAVE_AVX2
    // F16C isn't asked for: no processor has AVX2 without it, and Clang 14 doesn't know its name here.
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back(&avx2_kernels());
#endif
#ifdef CODA_HAVE_AVX512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      found.push_back(&avx512_kernels());
    }
#endif
    return found;
  }();
  return tables;
}

const Kernels& kernels() {
  static const Kernels& best = *available_kernels().back();
  return best;
}

}  // namespace coda::cpu
