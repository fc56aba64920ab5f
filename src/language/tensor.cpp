// Tensor views and host memory.
#include "coda/tensor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "coda/convert.hpp"
#include "coda/error.hpp"

namespace coda {
namespace {

constexpr std::size_t alignment = 64;

std::string extents(std::span<const std::int64_t> v) { return fmt::format("[{}]", fmt::join(v, ", ")); }

/// Throws unless `shape` is one a view can have and its bytes can be counted.
void check_shape(std::span<const std::int64_t> shape, DType dtype) {
  if (shape.size() > Tensor::max_rank) {
    throw Error(ErrorKind::shape, fmt::format("tensor {}{}: rank {} is above the largest rank, {}", name_of(dtype),
                                              extents(shape), shape.size(), Tensor::max_rank));
  }
  // A zero extent doesn't excuse the others: strides are products of them.
  std::int64_t bytes = static_cast<std::int64_t>(size_of(dtype));
  for (const std::int64_t extent : shape) {
    if (extent < 0) {
      throw Error(ErrorKind::shape, fmt::format("tensor {}{}: extent {} is negative; extents are 0 or more",
                                                name_of(dtype), extents(shape), extent));
    }
    if (extent > 0 && __builtin_mul_overflow(bytes, extent, &bytes)) {
      throw Error(ErrorKind::shape, fmt::format("tensor {}{}: its size in bytes doesn't fit 63 bits; check the extents",
                                                name_of(dtype), extents(shape)));
    }
  }
}

/// The address of logical element i; throws when there is none on the host.
std::byte* element(const Tensor& t, std::int64_t i) {
  if (t.device.type != DeviceType::cpu) {
    throw Error(ErrorKind::unsupported,
                fmt::format("element access to {}: the data is not in host memory; copy it first", describe(t)));
  }
  if (i < 0 || i >= t.numel()) {
    throw Error(ErrorKind::value,
                fmt::format("element {} of {}: the tensor has {} elements", i, describe(t), t.numel()));
  }
  std::int64_t offset = 0;
  for (int d = t.rank - 1; d >= 0; --d) {
    offset += i % t.shape[d] * t.stride[d];
    i /= t.shape[d];
  }
  return static_cast<std::byte*>(t.data) + offset * static_cast<std::int64_t>(size_of(t.dtype));
}

template <class T>
T read(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <class T>
void write(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

template <class Int>
Int to_integer(double value, const Tensor& t) {
  if (std::isnan(value)) {
    throw Error(ErrorKind::value, fmt::format("storing NaN into {}: an integer tensor can't hold it", describe(t)));
  }
  const double rounded = std::nearbyint(value);
  // 2^31 and 2^63 are exact doubles; the largest i64 isn't.
  const double limit = std::ldexp(1.0, std::numeric_limits<Int>::digits);
  if (rounded >= limit) return std::numeric_limits<Int>::max();
  if (rounded < -limit) return std::numeric_limits<Int>::min();
  return static_cast<Int>(rounded);
}

}  // namespace

Tensor Tensor::contiguous(void* data, DType dtype, std::span<const std::int64_t> shape, Device device) {
  check_shape(shape, dtype);
  Tensor t;
  t.data = data;
  t.dtype = dtype;
  t.device = device;
  t.rank = static_cast<int>(shape.size());
  std::int64_t stride = 1;
  for (int d = t.rank - 1; d >= 0; --d) {
    t.shape[d] = shape[d];
    t.stride[d] = stride;
    stride *= shape[d];
  }
  return t;
}

std::int64_t Tensor::numel() const {
  std::int64_t n = 1;
  for (int d = 0; d < rank; ++d) n *= shape[d];
  return n;
}

Tensor Tensor::transposed() const {
  if (rank != 2) {
    throw Error(ErrorKind::shape,
                fmt::format("transposing {}: expected a matrix, found rank {}", describe(*this), rank));
  }
  Tensor t = *this;
  std::swap(t.shape[0], t.shape[1]);
  std::swap(t.stride[0], t.stride[1]);
  return t;
}

HostTensor::HostTensor(DType dtype, std::span<const std::int64_t> shape)
    : view_(Tensor::contiguous(nullptr, dtype, shape)) {
  const auto bytes = static_cast<std::size_t>(view_.numel()) * size_of(dtype);
  if (bytes == 0) return;
  memory_.reset(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment));
  if (!memory_) throw std::bad_alloc();
  view_.data = std::memset(memory_.get(), 0, bytes);
}

void HostTensor::Free::operator()(void* p) const { std::free(p); }

double load(const Tensor& t, std::int64_t i) {
  const std::byte* p = element(t, i);
  switch (t.dtype) {
    case DType::f32: return read<float>(p);
    case DType::bf16: return bf16_to_float(read<std::uint16_t>(p));
    case DType::f16: return f16_to_float(read<std::uint16_t>(p));
    case DType::e4m3: return e4m3_to_float(read<std::uint8_t>(p));
    case DType::e5m2: return e5m2_to_float(read<std::uint8_t>(p));
    case DType::i32: return read<std::int32_t>(p);
    case DType::i64: return static_cast<double>(read<std::int64_t>(p));
    case DType::f64: return read<double>(p);
  }
  throw Error(ErrorKind::internal, fmt::format("load: no element type {}", static_cast<int>(t.dtype)));
}

void store(const Tensor& t, std::int64_t i, double value) {
  std::byte* p = element(t, i);
  switch (t.dtype) {
    case DType::f32: return write(p, static_cast<float>(value));
    case DType::bf16: return write(p, to_bf16(value));
    case DType::f16: return write(p, to_f16(value));
    case DType::e4m3: return write(p, to_e4m3(value));
    case DType::e5m2: return write(p, to_e5m2(value));
    case DType::i32: return write(p, to_integer<std::int32_t>(value, t));
    case DType::i64: return write(p, to_integer<std::int64_t>(value, t));
    case DType::f64: return write(p, value);
  }
}

std::string describe(const Tensor& t) {
  const auto rank = static_cast<std::size_t>(t.rank);
  std::string text = fmt::format("{}{}", name_of(t.dtype), extents({t.shape.data(), rank}));
  std::uint64_t expected = 1;  // it also describes tensors refused because their size overflows: it may wrap
  bool row_major = true, empty = false;
  for (int d = t.rank - 1; d >= 0; --d) {
    // The stride of an extent of 1 is never used, and a tensor without elements has no layout to speak of.
    row_major = row_major && (t.shape[d] == 1 || static_cast<std::uint64_t>(t.stride[d]) == expected);
    expected *= static_cast<std::uint64_t>(t.shape[d]);
    empty = empty || t.shape[d] == 0;
  }
  if (!row_major && !empty) text += fmt::format(" with strides {}", extents({t.stride.data(), rank}));
  if (t.device.type == DeviceType::cuda) text += fmt::format(" on cuda:{}", t.device.index);
  return text;
}

}  // namespace coda
