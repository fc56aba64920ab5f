// linear, linear_bias, linear_alpha, linear_quantise, weight_grad, weight_grad_bf16 against A·Bᵀ written out.
#include <gtest/gtest.h>

#include <cmath>

#include "harness.hpp"

namespace coda::test {
namespace {

constexpr std::int64_t M = 7, N = 10, K = 5;

TEST(Linear, IsTheProduct) {
  Arguments in;
  const Matrix y = product(in.matrix("A", M, K), in.matrix("B", N, K));
  expect_outputs(standard("linear"), in, {{"y", y.values}});
}

TEST(Linear, AddsTheBiasAlongColumns) {
  Arguments in;
  // As many rows as columns: a bias along the wrong axis would fit as well.
  Matrix y = product(in.matrix("A", N, K), in.matrix("B", N, K));
  const Vector bias = in.vector("bias", N);
  for (std::int64_t i = 0; i < N; ++i)
    for (std::int64_t j = 0; j < N; ++j) y(i, j) += bias[static_cast<std::size_t>(j)];
  expect_outputs(standard("linear_bias"), in, {{"y", y.values}});
}

TEST(Linear, ScalesByAlpha) {
  Arguments in;
  Matrix y = product(in.matrix("A", M, K), in.matrix("B", N, K));
  const double alpha = in.scalar("alpha", -2.5);
  for (double& x : y.values) x *= alpha;
  expect_outputs(standard("linear_alpha"), in, {{"y", y.values}});
}

TEST(Linear, QuantisesWithATransposedCopyAndTheAmaxOfTheUnscaledResult) {
  Arguments in;
  const Program p = standard("linear_quantise");
  // 1 x 1 products by hand: 3 · 2.25 = 6.75 and 300 · 2.25 = 675, scaled by 2.
  in.set("A", Matrix(2, 1));
  Matrix a(2, 1), b(1, 1);
  a(0, 0) = 3, a(1, 0) = -300, b(0, 0) = 2.25;
  in.set("A", a);
  in.set("B", b);
  in.scalar("scale", 2);
  const Results exact = evaluate(p, in);
  expect_close(exact.at("q"), {13.5, -1350}, 0, "q before rounding");
  const Results stored = run_on_cpu(p, in);
  // e4m3 near 13.5 has steps of 1, a tie goes to the even mantissa 14; -1350 saturates at -448.
  expect_close(stored.at("q"), {14, -448}, 0, "q");
  expect_close(stored.at("qt"), {14, -448}, 0, "qt");
  expect_close(stored.at("amax"), {675}, 0, "amax");
}

TEST(Linear, QuantisedTransposeHoldsTheSameNumbers) {
  Arguments in;
  const Program p = standard("linear_quantise");
  in.matrix("A", M, K), in.matrix("B", N, K), in.scalar("scale", 16);
  const Results stored = run_on_cpu(p, in);
  for (std::size_t i = 0; i < M; ++i)
    for (std::size_t j = 0; j < N; ++j) EXPECT_EQ(stored.at("q")[i * N + j], stored.at("qt")[j * M + i]);
}

TEST(WeightGrad, AddsTheProductToWhatIsThere) {
  Arguments in;
  Matrix dw = product(in.matrix("A", M, K), in.matrix("B", N, K));
  const Matrix before = in.matrix("dw", M, N);
  for (std::size_t i = 0; i < dw.values.size(); ++i) dw.values[i] += before.values[i];
  expect_outputs(standard("weight_grad"), in, {{"dw", dw.values}});
}

TEST(WeightGrad, Bf16RoundsTheSumOnce) {
  const Program p = load_program("weight_grad_bf16");
  HostTensor a(DType::bf16, {1, 1}), b(DType::bf16, {1, 1}), dw(DType::bf16, {1, 1});
  // 256 + 1.03125 = 257.03125 lies above the tie 257 and rounds up to 258; 1.03125 has no bf16 of its own at 256.
  store(a, 0, 1.03125), store(b, 0, 1), store(dw, 0, 256);
  const std::vector<Tensor> slots{a, b, dw};
  cpu::run(p, slots);
  EXPECT_EQ(load(dw, 0), 258);
}

}  // namespace
}  // namespace coda::test
