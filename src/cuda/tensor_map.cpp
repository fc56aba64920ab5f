#include "cuda/tensor_map.hpp"

#include <fmt/format.h>

#include "coda/error.hpp"
#include "cuda/driver.hpp"

namespace coda::cuda {
namespace {

// The two dimensions of a map: inner (stride 1) and outer. A vector is one row; so is a tensor of rank 1.
struct View {
  std::uint64_t base = 0;
  std::int64_t inner = 1, outer = 1, outer_stride = 0;  // elements
  std::int64_t inner_stride = 1;
};

View view_of(const Tensor& t, const MapSpec& spec) {
  View v;
  v.base = reinterpret_cast<std::uint64_t>(t.data);
  if (t.rank == 0) return v;
  const auto inner = static_cast<std::size_t>(spec.vector || t.rank == 1 ? 0 : spec.inner);
  v.inner = t.shape[inner];
  v.inner_stride = t.stride[inner];
  if (!spec.vector && t.rank == 2) {
    v.outer = t.shape[1 - inner];
    v.outer_stride = t.stride[1 - inner];
  }
  if (spec.half >= 0) {
    std::int64_t& halved = spec.outer_half ? v.outer : v.inner;
    halved /= 2;
    v.base += static_cast<std::uint64_t>(spec.half * halved * (spec.outer_half ? v.outer_stride : 1)) * size_of(t.dtype);
  }
  return v;
}

TensorMapType type_of(const MapSpec& spec) {
  switch (spec.dtype) {
    case DType::bf16: return TensorMapType::bf16;
    case DType::f16: return TensorMapType::f16;
    case DType::f32: return spec.tf32 ? TensorMapType::tf32 : TensorMapType::f32;
    default: break;
  }
  if (size_of(spec.dtype) == 1) return TensorMapType::u8;
  throw Error(ErrorKind::internal, fmt::format("no tensor map type for {}", name_of(spec.dtype)));
}

}  // namespace

std::optional<std::string> why_not_tma(const Tensor& t, const MapSpec& spec) {
  const View v = view_of(t, spec);
  const auto size = static_cast<std::int64_t>(size_of(t.dtype));
  if (v.inner == 0 || v.outer == 0) return std::nullopt;
  if (v.inner > 1 && v.inner_stride != 1)
    return t.rank == 1 ? fmt::format("its stride is {}, not 1", v.inner_stride)
                       : fmt::format("its dimension {} has stride {}, not 1", spec.inner, v.inner_stride);
  if (v.base % 16 != 0)
    return spec.half == 1 ? fmt::format("half of its {} columns is not a multiple of 16 bytes, or its base address isn't", 2 * v.inner)
                          : fmt::format("its base address {:#x} is not a multiple of 16 bytes", v.base);
  if (v.outer > 1 && v.outer_stride * size % 16 != 0)
    return fmt::format("its leading stride of {} elements is not a multiple of 16 bytes", v.outer_stride);
  if (v.outer > 1 && v.outer_stride < v.inner) return fmt::format("its rows overlap (leading stride {}, {} columns)", v.outer_stride, v.inner);
  if (v.outer > 1 && v.outer_stride * size >= std::int64_t{1} << 40) return fmt::format("its leading stride of {} elements is 2^40 bytes or more", v.outer_stride);
  return std::nullopt;
}

bool writes_past_rows(const Tensor& t, const MapSpec& spec) {
  return view_of(t, spec).inner * static_cast<std::int64_t>(size_of(t.dtype)) % 16 != 0;
}

TensorMap encode(const Tensor& t, const MapSpec& spec, std::string_view name) {
  TensorMap map{};
  const View v = view_of(t, spec);
  if (v.inner == 0 || v.outer == 0) return map;
  const std::uint64_t size = size_of(spec.dtype);
  const std::uint64_t extents[2] = {static_cast<std::uint64_t>(v.inner), static_cast<std::uint64_t>(v.outer)};
  // One row's stride moves nothing, but has to be legal.
  const std::uint64_t stride = v.outer > 1 ? static_cast<std::uint64_t>(v.outer_stride) * size : (extents[0] * size + 15) / 16 * 16;
  const std::uint32_t box[2] = {static_cast<std::uint32_t>(spec.box_inner), static_cast<std::uint32_t>(spec.box_outer)}, steps[2] = {1, 1};
  const auto swizzle = spec.swizzle == 128 ? TensorMapSwizzle::b128 : spec.swizzle == 64 ? TensorMapSwizzle::b64
                     : spec.swizzle == 32  ? TensorMapSwizzle::b32 : TensorMapSwizzle::none;
  const Result r = driver().cuTensorMapEncodeTiled(&map, type_of(spec), 2, reinterpret_cast<void*>(v.base), extents, &stride, box, steps,
                                                   0 /* no interleave */, swizzle, TensorMapPromotion::b128, 0 /* zero fill */);
  if (r != success)
    fail(r, fmt::format("cuTensorMapEncodeTiled for '{}' ({}, {} x {} elements, leading stride {} bytes, box {} x {}, swizzle {})", name,
                        describe(t), extents[0], extents[1], stride, box[0], box[1], spec.swizzle).c_str());
  return map;
}

}  // namespace coda::cuda
