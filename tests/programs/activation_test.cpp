// norm_gelu, layernorm_gelu, norm_swiglu, norm_geglu, norm_reglu and both clamped forms.
#include <gtest/gtest.h>

#include <cmath>

#include "formulas.hpp"
#include "harness.hpp"

namespace coda::test {
namespace {

constexpr std::int64_t M = 7, F = 9, N = 2 * F, K = 5;

struct Case {
  Arguments in;
  Matrix z{0, 0};
};

/// rstd ⊙ (A·Bᵀ), wide enough to reach the tails.
Case scaled_product(std::int64_t columns) {
  Case c;
  c.z = product(c.in.matrix("A", M, K, -3, 3), c.in.matrix("B", columns, K, -2, 2));
  const Vector rstd = c.in.vector("rstd", M, 0.2, 2);
  for (std::int64_t i = 0; i < M; ++i)
    for (std::int64_t j = 0; j < columns; ++j) c.z(i, j) *= rstd[static_cast<std::size_t>(i)];
  return c;
}

template <class F2>
Results gated(const Matrix& z, F2 activation) {
  Matrix y(M, F);
  for (std::int64_t i = 0; i < M; ++i)
    for (std::int64_t j = 0; j < F; ++j) y(i, j) = activation(z(i, j), z(i, j + F));
  return {{"z", z.values}, {"y", y.values}};
}

template <class F1>
Results plain(const Matrix& z, F1 activation) {
  Results r{{"z", z.values}, {"y", z.values}};
  for (double& v : r["y"]) v = activation(v);
  return r;
}

TEST(NormGelu, IsTheErfForm) {
  const Case c = scaled_product(N);
  expect_outputs(standard("norm_gelu"), c.in, plain(c.z, gelu));
}

TEST(NormGelu, ApproximateIsTheTanhForm) {
  const Case c = scaled_product(N);
  expect_outputs(standard("norm_gelu", {{"approximate", 1}}), c.in, plain(c.z, gelu_tanh));
}

TEST(NormSwiglu, GateIsTheFirstHalf) {
  const Case c = scaled_product(N);
  expect_outputs(standard("norm_swiglu"), c.in, gated(c.z, [](double g, double u) { return silu(g) * u; }));
}

TEST(NormSwiglu, ByHand) {
  // z = [0, ln 3 | 5, 4]: silu(0) = 0; σ(ln 3) = 3/4.
  Arguments in;
  Matrix a(1, 1), b(4, 1);
  a(0, 0) = 1, b(0, 0) = 0, b(1, 0) = std::log(3), b(2, 0) = 5, b(3, 0) = 4;
  in.set("A", a), in.set("B", b), in.set("rstd", Vector{1});
  expect_close(evaluate(standard("norm_swiglu"), in).at("y"), {0, 3 * std::log(3)}, 1e-7, "y");
}

TEST(NormGeglu, IsTheErfForm) {
  const Case c = scaled_product(N);
  expect_outputs(standard("norm_geglu"), c.in, gated(c.z, [](double g, double u) { return gelu(g) * u; }));
}

TEST(NormGeglu, ApproximateIsTheTanhForm) {
  const Case c = scaled_product(N);
  expect_outputs(standard("norm_geglu", {{"approximate", 1}}), c.in,
                 gated(c.z, [](double g, double u) { return gelu_tanh(g) * u; }));
}

TEST(NormReglu, IsTheFormula) {
  const Case c = scaled_product(N);
  expect_outputs(standard("norm_reglu"), c.in, gated(c.z, [](double g, double u) { return relu(g) * u; }));
}

TEST(NormSwigluClamped, FormAIsTheFormula) {
  Case c = scaled_product(N);
  const double alpha = c.in.scalar("alpha", 1.702), limit = c.in.scalar("limit", 1.5);
  expect_outputs(standard("norm_swiglu_clamped_a"), c.in,
                 gated(c.z, [&](double g, double u) { return swiglu_a(g, u, alpha, limit); }));
}

TEST(NormSwigluClamped, FormBIsTheFormula) {
  Case c = scaled_product(N);
  const double limit = c.in.scalar("limit", 1.5);
  expect_outputs(standard("norm_swiglu_clamped_b"), c.in,
                 gated(c.z, [&](double g, double u) { return swiglu_b(g, u, limit); }));
}

TEST(NormSwigluClamped, ByHandBeyondTheLimit) {
  // g = 100, u = -100, limit 7, alpha 0: (-7 + 1)·7·σ(0) = -21 in form a; min(100, 7)·(-7) = -49 in form b.
  Arguments in;
  Matrix a(1, 1), b(2, 1);
  a(0, 0) = 1, b(0, 0) = 100, b(1, 0) = -100;
  in.set("A", a), in.set("B", b), in.set("rstd", Vector{1}), in.scalar("alpha", 0), in.scalar("limit", 7);
  expect_close(evaluate(standard("norm_swiglu_clamped_a"), in).at("y"), {-21}, 1e-12, "form a");
  expect_close(evaluate(standard("norm_swiglu_clamped_b"), in).at("y"), {-49}, 1e-12, "form b");
}

/// Gates of -inf, -100, 100, +inf and NaN, each with u = 2.
Arguments extreme_gates() {
  Arguments in;
  Matrix a(1, 1), b(10, 1);
  const double inf = INFINITY, gates[] = {-inf, -100, 100, inf, NAN};
  for (std::int64_t j = 0; j < 5; ++j) b(j, 0) = gates[j], b(j + 5, 0) = 2;
  a(0, 0) = 1;
  in.set("A", a), in.set("B", b), in.set("rstd", Vector{1}), in.scalar("alpha", 1), in.scalar("limit", 7);
  return in;
}

TEST(Activations, HaveTheirLimitsAtInfinityAndPassNaNOn) {
  const Arguments in = extreme_gates();
  const double inf = INFINITY;
  for (const char* name : {"norm_swiglu", "norm_geglu", "norm_reglu"}) {
    expect_close(evaluate(standard(name), in).at("y"), {0, 0, 200, inf, NAN}, 1e-12, name);
    expect_close(run_on_cpu(standard(name), in).at("y"), {0, 0, 200, inf, NAN}, 1e-6, name);
  }
  const double top = 3 * 7 * sigmoid(7);
  expect_close(run_on_cpu(standard("norm_swiglu_clamped_a"), in).at("y"), {0, 0, top, top, NAN}, 1e-6, "form a");
  expect_close(run_on_cpu(standard("norm_swiglu_clamped_b"), in).at("y"), {0, 0, 14, 14, NAN}, 1e-6, "form b");
}

TEST(LayerNormGelu, IsTheDelayedNormThenTheActivation) {
  Arguments in;
  Matrix z = product(in.matrix("A", M, K), in.matrix("B", N, K));
  const Vector delta = in.vector("delta", M), rstd = in.vector("rstd", M, 0.5, 2), colsum = in.vector("colsum", N),
               bias = in.vector("bias", N);
  for (std::int64_t i = 0; i < M; ++i)
    for (std::int64_t j = 0; j < N; ++j) {
      const auto r = static_cast<std::size_t>(i), c = static_cast<std::size_t>(j);
      z(i, j) = rstd[r] * z(i, j) - rstd[r] * delta[r] * colsum[c] + bias[c];
    }
  expect_outputs(standard("layernorm_gelu"), in, plain(z, gelu));
  expect_outputs(standard("layernorm_gelu", {{"approximate", 1}}), in, plain(z, gelu_tanh));
}

}  // namespace
}  // namespace coda::test
