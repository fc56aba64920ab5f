// How operators run standard programs: the one place that knows engines.
#pragma once
#include <initializer_list>
#include <string_view>
#include <utility>

#include "coda/ops.hpp"
#include "coda/text.hpp"

namespace coda::ops {

/// The standard program of that name for matrices of `dtype`. Parsed once; the reference stays good.
const Program& standard(std::string_view name, DType dtype, const ParamValues& params = {});

/// Runs the standard program `name` for A's dtype on tensors given by the names of its text ("A" and "B" among them),
/// on the device where A lies. Names that this variant of the program has no slot for, and outputs whose tensor is
/// default-constructed, are left out.
void launch(const Context& context, std::string_view name, const ParamValues& params,
            std::initializer_list<std::pair<std::string_view, Tensor>> arguments);

/// Whether an optional tensor was given.
inline bool given(const Tensor& t) { return t.data != nullptr || t.rank != 0; }

/// A scalar operand that lies in host memory, whatever the device of the rest: engines read it when called.
inline Tensor scalar(const float& x) { return Tensor::contiguous(const_cast<float*>(&x), DType::f32, {}); }
inline Tensor scalar(const std::int64_t& x) {
  return Tensor::contiguous(const_cast<std::int64_t*>(&x), DType::i64, {});
}
inline Tensor scalar(const std::int32_t& x) {
  return Tensor::contiguous(const_cast<std::int32_t*>(&x), DType::i32, {});
}

/// A or B of `extent` rows and K = 0: for a program that is one pass, without a product.
Tensor empty_factor(DType dtype, std::int64_t extent, Device device);

/// Rows [first, first + count) of a matrix or vector.
Tensor rows_of(const Tensor& t, std::int64_t first, std::int64_t count);

}  // namespace coda::ops
