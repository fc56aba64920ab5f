// Whole-matrix evaluation of a program, one node at a time, plainly: the machinery that the fp64 evaluator and the
// f32 unfused path share. R is the type that real values are held in.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "coda/engine.hpp"

namespace coda::reference {

/// One node's value: rows x columns, a side of 1 broadcasting. Reals lie in `real`, integers and booleans in
/// `integer`.
template <class R>
struct Value {
  std::int64_t rows = 1, columns = 1;
  std::vector<R> real;
  std::vector<std::int32_t> integer;

  std::size_t at(std::int64_t i, std::int64_t j) const {
    return static_cast<std::size_t>((rows == 1 ? 0 : i) * columns + (columns == 1 ? 0 : j));
  }
  R number(std::int64_t i, std::int64_t j) const {
    return integer.empty() ? real[at(i, j)] : static_cast<R>(integer[at(i, j)]);
  }
  std::int32_t whole(std::int64_t i, std::int64_t j) const { return integer[at(i, j)]; }
};

/// How the two evaluators differ.
template <class R>
struct Policy {
  /// A and B are [M, K] and [N, K]; writes row-major [M, N].
  std::function<void(const Tensor& a, const Tensor& b, R* c)> product;
  /// Sum of n numbers.
  std::function<R(const R* x, std::int64_t n)> sum;
  /// Applied to each real value of the tile stage that has rows and columns and whose node `stored` marks.
  std::function<R(R)> round_stored;
  std::vector<bool> stored;  ///< by node
};

/// Evaluates every output of `p`, in order; += is not applied.
template <class R>
std::vector<Value<R>> evaluate_whole(const Program& p, Slots slots, const Policy<R>& policy);

extern template std::vector<Value<double>> evaluate_whole(const Program&, Slots, const Policy<double>&);
extern template std::vector<Value<float>> evaluate_whole(const Program&, Slots, const Policy<float>&);

/// Element (i, j) of a matrix view, as double; and of any view by logical index, for integers without rounding.
double matrix_element(const Tensor& t, std::int64_t i, std::int64_t j);

}  // namespace coda::reference
