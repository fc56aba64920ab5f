// Strided runs of any dtype to and from strips.
#include "cpu/memory.hpp"

#include <algorithm>
#include <cstring>

namespace coda::cpu {
namespace {

constexpr std::int64_t chunk = 256;

template <class T>
void gather(const void* src, std::int64_t stride, std::int64_t n, void* d) {
  for (std::int64_t i = 0; i < n; ++i) static_cast<T*>(d)[i] = static_cast<const T*>(src)[i * stride];
}
template <class T>
void scatter(void* dst, std::int64_t stride, std::int64_t n, const void* x) {
  for (std::int64_t i = 0; i < n; ++i) static_cast<T*>(dst)[i * stride] = static_cast<const T*>(x)[i];
}

void gather(std::size_t size, const void* src, std::int64_t stride, std::int64_t n, void* d) {
  switch (size) {
    case 1: return gather<std::uint8_t>(src, stride, n, d);
    case 2: return gather<std::uint16_t>(src, stride, n, d);
    case 4: return gather<std::uint32_t>(src, stride, n, d);
    default: return gather<std::uint64_t>(src, stride, n, d);
  }
}
void scatter(std::size_t size, void* dst, std::int64_t stride, std::int64_t n, const void* x) {
  switch (size) {
    case 1: return scatter<std::uint8_t>(dst, stride, n, x);
    case 2: return scatter<std::uint16_t>(dst, stride, n, x);
    default: return scatter<std::uint32_t>(dst, stride, n, x);
  }
}

}  // namespace

void load_run(const Kernels& k, DType t, const void* src, std::int64_t stride, std::int64_t n, void* d) {
  const auto load = k.load[static_cast<std::size_t>(t)];
  if (stride == 1) return load(d, src, n);
  alignas(64) std::uint64_t packed[chunk];
  for (std::int64_t i = 0; i < n; i += chunk) {
    const std::int64_t count = std::min(chunk, n - i);
    gather(size_of(t), static_cast<const char*>(src) + i * stride * static_cast<std::int64_t>(size_of(t)), stride,
           count, packed);
    load(static_cast<char*>(d) + 4 * i, packed, count);
  }
}

void store_run(const Kernels& k, DType t, void* dst, std::int64_t stride, std::int64_t n, const float* x, bool add,
               float* scratch, bool stream) {
  if (add) {
    load_run(k, t, dst, stride, n, scratch);
    k.add_to(scratch, x, n);
    x = scratch;
  }
  const auto store = (stream && stride == 1 ? k.stream : k.store)[static_cast<std::size_t>(t)];
  if (stride == 1) return store(dst, x, n);
  alignas(64) std::uint32_t packed[chunk];
  for (std::int64_t i = 0; i < n; i += chunk) {
    const std::int64_t count = std::min(chunk, n - i);
    store(packed, x + i, count);
    scatter(size_of(t), advance(dst, i * stride, t), stride, count, packed);
  }
}

}  // namespace coda::cpu
