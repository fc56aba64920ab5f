// The two evaluators that results are compared with: fp64, and the unfused path in the program's own dtypes.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "coda/convert.hpp"
#include "coda/engine.hpp"
#include "cpu/product.hpp"
#include "cpu/stored.hpp"
#include "cpu/whole.hpp"

namespace coda::reference {
namespace {

std::vector<double> as_doubles(const Tensor& matrix) {
  std::vector<double> out(static_cast<std::size_t>(matrix.shape[0] * matrix.shape[1]));
  std::size_t at = 0;
  for (std::int64_t i = 0; i < matrix.shape[0]; ++i) {
    for (std::int64_t k = 0; k < matrix.shape[1]; ++k) out[at++] = matrix_element(matrix, i, k);
  }
  return out;
}

/// Four running sums hide the adder's latency; in fp64 their order is of no account.
double dot(const double* a, const double* b, std::int64_t k) {
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  std::int64_t i = 0;
  for (; i + 4 <= k; i += 4) {
    s0 += a[i] * b[i];
    s1 += a[i + 1] * b[i + 1];
    s2 += a[i + 2] * b[i + 2];
    s3 += a[i + 3] * b[i + 3];
  }
  for (; i < k; ++i) s0 += a[i] * b[i];
  return (s0 + s1) + (s2 + s3);
}

void product_f64(const Tensor& a, const Tensor& b, double* c) {
  const std::vector<double> rows = as_doubles(a), columns = as_doubles(b);
  const std::int64_t m = a.shape[0], n = b.shape[0], k = a.shape[1];
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) c[i * n + j] = dot(rows.data() + i * k, columns.data() + j * k, k);
  }
}

/// Pairwise, as libraries sum: naive summation would make the unfused path's error, and so the rule, too lenient.
template <class R>
R pairwise_sum(const R* x, std::int64_t n) {
  if (n <= 32) {
    R s = 0;
    for (std::int64_t i = 0; i < n; ++i) s += x[i];
    return s;
  }
  return pairwise_sum(x, n / 2) + pairwise_sum(x + n / 2, n - n / 2);
}

/// Lays a value out as its output's shape says, adding what is already there for `+=`, and stores it as `dtype`.
template <class R>
HostTensor lay_out(const Output& o, const Value<R>& v, const Extents& e, const Tensor& slot, DType dtype) {
  std::vector<std::int64_t> shape;
  for (const Extent& x : o.shape.extents) {
    shape.push_back(x.kind == Extent::Kind::m         ? e.m
                    : x.kind == Extent::Kind::n       ? e.n
                    : x.kind == Extent::Kind::half_n  ? e.n / 2
                    : x.kind == Extent::Kind::twice_n ? 2 * e.n
                                                      : x.number);
  }
  HostTensor out(dtype, shape);
  const std::int64_t inner = shape.empty() ? 1 : shape.back();
  for (std::int64_t at = 0; at < out.numel(); ++at) {
    std::int64_t i = 0, j = 0;
    switch (o.shape.layout) {
      case Layout::row: i = at; break;
      case Layout::column: j = at; break;
      case Layout::matrix:
        i = at / inner;
        j = at % inner;
        if (o.shape.transposed) std::swap(i, j);
        break;
      default: break;
    }
    R x = v.number(i, j);
    if (o.accumulate && slot.data != nullptr) x = static_cast<R>(load(slot, at)) + x;
    store(out, at, static_cast<double>(x));
  }
  return out;
}

template <class R>
std::vector<HostTensor> collect(const Program& p, Slots slots, const Policy<R>& policy, bool own_dtypes) {
  const Extents e = check_arguments(p, slots);
  const std::vector<Value<R>> values = evaluate_whole(p, slots, policy);
  std::vector<HostTensor> out;
  for (std::size_t i = 0; i < p.outputs.size(); ++i) {
    const Output& o = p.outputs[i];
    out.push_back(lay_out(o, values[i], e, slots[2 + p.operands.size() + i], own_dtypes ? o.dtype : DType::f64));
  }
  return out;
}

}  // namespace

std::vector<HostTensor> evaluate(const Program& p, Slots slots) {
  Policy<double> policy;
  policy.product = product_f64;
  policy.sum = pairwise_sum<double>;
  policy.round_stored = [](double x) { return x; };
  policy.stored.resize(p.nodes.size());
  return collect(p, slots, policy, false);
}

std::vector<HostTensor> unfused(const Program& p, Slots slots) {
  Policy<float> policy;
  policy.product = [](const Tensor& a, const Tensor& b, float* c) {
    cpu::Product::of_this_thread()(cpu::Panel::of(a), cpu::Panel::of(b), c, b.shape[0]);
  };
  policy.sum = pairwise_sum<float>;
  // A product of fp8 operands is stored in bf16.
  const DType dtype = size_of(p.a_dtype) == 1 ? DType::bf16 : p.a_dtype;
  policy.round_stored = [dtype](float x) { return round_to(x, dtype); };
  policy.stored = cpu::stored_values(p);
  return collect(p, slots, policy, true);
}

}  // namespace coda::reference
