// Strided runs of any dtype to and from strips.
#pragma once
#include <cstdint>

#include "coda/tensor.hpp"
#include "cpu/kernels.hpp"

namespace coda::cpu {

/// d[i] = element at src + i * stride elements, as a strip holds it (f32, or i32).
void load_run(const Kernels& k, DType t, const void* src, std::int64_t stride, std::int64_t n, void* d);
/// The reverse, rounded once; with `add`, the old value is added in f32 first. `scratch` holds n words. `stream`:
/// past the caches where the processor can.
void store_run(const Kernels& k, DType t, void* dst, std::int64_t stride, std::int64_t n, const float* x, bool add,
               float* scratch, bool stream = false);

inline char* advance(void* p, std::int64_t elements, DType t) {
  return static_cast<char*>(p) + elements * static_cast<std::int64_t>(size_of(t));
}

}  // namespace coda::cpu
