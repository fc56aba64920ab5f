// residual_norm, norm_linear, residual_layernorm, layernorm_linear against the norms written out un-delayed.
#include <gtest/gtest.h>

#include <cmath>

#include "formulas.hpp"
#include "harness.hpp"

namespace coda::test {
namespace {

constexpr std::int64_t M = 6, N = 11, K = 5;

Matrix plus(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

Results residual_norm_formula(const Matrix& x, const Vector& w, double eps) {
  Matrix h = x;
  Vector rstd(static_cast<std::size_t>(x.rows));
  for (std::int64_t i = 0; i < x.rows; ++i) {
    double ssq = 0;
    for (std::int64_t j = 0; j < x.columns; ++j) {
      ssq += x(i, j) * x(i, j);
      h(i, j) *= w[static_cast<std::size_t>(j)];
    }
    rstd[static_cast<std::size_t>(i)] = 1 / std::sqrt(ssq / static_cast<double>(x.columns) + eps);
  }
  return {{"x", x.values}, {"h", h.values}, {"rstd", rstd}};
}

TEST(ResidualNorm, ReturnsTheSumTheWeightedSumAndTheScale) {
  Arguments in;
  const Matrix x = plus(product(in.matrix("A", M, K), in.matrix("B", N, K)), in.matrix("residual", M, N));
  const Vector w = in.vector("w", N, 0.5, 1.5);
  expect_outputs(standard("residual_norm"), in, residual_norm_formula(x, w, in.scalar("eps", 1e-3)));
}

TEST(ResidualNorm, ZeroCentredWeightIsOnePlusTheStoredOne) {
  Arguments in;
  const Matrix x = plus(product(in.matrix("A", M, K), in.matrix("B", N, K)), in.matrix("residual", M, N));
  Vector w = in.vector("w", N, -0.5, 0.5);
  for (double& v : w) v += 1;
  expect_outputs(standard("residual_norm", {{"zero_centred", 1}}), in,
                 residual_norm_formula(x, w, in.scalar("eps", 1e-3)));
}

TEST(ResidualNorm, SquaresWhatWasNotRounded) {
  // acc = -1 + 2^-16, which bf16 would round to -1, and residual = 1 leave 2^-16.
  const Program p = load_program("residual_norm");
  HostTensor a(DType::bf16, {1, 2}), b(DType::bf16, {1, 2}), residual(DType::bf16, {1, 1}), w(DType::bf16, {1}),
      eps(DType::f32, std::initializer_list<std::int64_t>{}), x(DType::bf16, {1, 1}), h(DType::bf16, {1, 1}),
      rstd(DType::f32, {1});
  store(a, 0, -1), store(a, 1, 0x1p-10), store(b, 0, 1), store(b, 1, 0x1p-6);
  store(residual, 0, 1), store(w, 0, 1), store(eps, 0, 0);
  const std::vector<Tensor> slots{a, b, residual, w, eps, x, h, rstd};
  cpu::run(p, slots);
  EXPECT_EQ(load(x, 0), 0x1p-16);
  EXPECT_NEAR(load(rstd, 0), 0x1p16, 0x1p16 * 1e-6);
}

TEST(ResidualNorm, RowsOfAnySizeAndOfZerosKeepTheirOwnScale) {
  Arguments in;
  const std::vector<double> sizes{1e4, 1e-4, 0, 1};
  Matrix residual(4, N);
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < N; ++j) residual(i, j) = sizes[static_cast<std::size_t>(i)] * (j % 2 == 0 ? 1 : -1);
  in.set("A", Matrix(4, 1)), in.set("B", Matrix(N, 1)), in.set("residual", residual), in.set("w", Vector(N, 1));
  in.scalar("eps", 0x1p-20);
  const auto rstd = [](double size) { return 1 / std::sqrt(size * size + 0x1p-20); };
  expect_close(run_on_cpu(standard("residual_norm"), in).at("rstd"),
               {rstd(1e4), rstd(static_cast<float>(1e-4)), 1024, rstd(1)}, 1e-7, "rstd");
  in.scalar("eps", 0);
  EXPECT_EQ(run_on_cpu(standard("residual_norm"), in).at("rstd")[2], INFINITY);
}

TEST(NormLinear, MatchesTheNormAppliedBeforeTheProduct) {
  // The whole claim of the delayed scale: RMSNorm(x)·Wᵀ from residual_norm and norm_linear in turn.
  Arguments first;
  const Matrix x = plus(product(first.matrix("A", M, K), first.matrix("B", N, K)), first.matrix("residual", M, N));
  const Vector w = first.vector("w", N, 0.5, 1.5);
  const double eps = first.scalar("eps", 1e-3);
  const Results produced = evaluate(standard("residual_norm"), first);

  Arguments second(2);
  Matrix h(M, N);
  h.values = produced.at("h");
  second.set("A", h);
  const Matrix weight = second.matrix("B", 4, N);
  second.set("rstd", produced.at("rstd"));

  Matrix normed = x;
  for (std::int64_t i = 0; i < M; ++i) {
    const double rstd = rms_scale(row_of(x, i), eps);
    for (std::int64_t j = 0; j < N; ++j) normed(i, j) *= rstd * w[static_cast<std::size_t>(j)];
  }
  // h and rstd passed through f32 between the programs.
  expect_outputs(standard("norm_linear"), second, {{"y", product(normed, weight).values}}, 1e-6);
}

struct LayerNorm {
  Matrix y;
  Vector mean, rstd;
};

LayerNorm layer_norm(const Matrix& x, const Vector& gamma, const Vector& beta, double eps) {
  LayerNorm r{x, {}, {}};
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const Vector row = row_of(x, i);
    double mean = 0, variance = 0;
    for (const double v : row) mean += v / static_cast<double>(x.columns);
    for (const double v : row) variance += (v - mean) * (v - mean) / static_cast<double>(x.columns);
    const double rstd = 1 / std::sqrt(variance + eps);
    for (std::int64_t j = 0; j < x.columns; ++j) {
      const auto c = static_cast<std::size_t>(j);
      r.y(i, j) = (x(i, j) - mean) * rstd * gamma[c] + beta[c];
    }
    r.mean.push_back(mean);
    r.rstd.push_back(rstd);
  }
  return r;
}

/// residual_layernorm, then layernorm_linear, on rows whose mean is about `mean` and whose shift is `shift`.
void expect_layer_norm(double mean, double shift, double cpu_tolerance) {
  Arguments first;
  const Matrix a = first.matrix("A", M, K), b = first.matrix("B", N, K);
  const Matrix x = plus(product(a, b), first.matrix("residual", M, N, mean - 1, mean + 1));
  const Vector gamma = first.vector("gamma", N, 0.5, 1.5);
  const Vector shifts = first.set("shift", Vector(M, shift));
  const double eps = first.scalar("eps", 1e-5);
  Arguments second(2);
  const Matrix weight = second.matrix("B", 4, N);
  Vector beta(N);
  for (std::size_t j = 0; j < beta.size(); ++j) beta[j] = 0.1 * static_cast<double>(j);
  const LayerNorm want = layer_norm(x, gamma, beta, eps);

  Matrix h(M, N);
  Vector delta;
  for (std::int64_t i = 0; i < M; ++i) {
    for (std::int64_t j = 0; j < N; ++j) h(i, j) = (x(i, j) - shifts[0]) * gamma[static_cast<std::size_t>(j)];
    delta.push_back(want.mean[static_cast<std::size_t>(i)] - shifts[0]);
  }
  const Program producer = standard("residual_layernorm");
  const Results exact = evaluate(producer, first);
  expect_close(exact.at("x"), x.values, 1e-11, "x");
  expect_close(exact.at("h"), h.values, 1e-11, "h");
  expect_close(exact.at("mean"), want.mean, 1e-11, "mean");
  expect_close(exact.at("delta"), delta, 1e-9, "delta");
  expect_close(exact.at("rstd"), want.rstd, 1e-9, "rstd");

  const Results produced = run_on_cpu(producer, first);
  expect_close(produced.at("rstd"), want.rstd, cpu_tolerance, "rstd on the CPU engine");
  h.values = produced.at("h");
  second.set("A", h);
  second.set("delta", produced.at("delta"));
  second.set("rstd", produced.at("rstd"));
  Vector colsum, bias;
  for (std::int64_t n = 0; n < weight.rows; ++n) {
    double sum = 0, shift_of_beta = 0;
    for (std::int64_t j = 0; j < N; ++j) {
      sum += weight(n, j) * gamma[static_cast<std::size_t>(j)];
      shift_of_beta += weight(n, j) * beta[static_cast<std::size_t>(j)];
    }
    colsum.push_back(sum);
    bias.push_back(shift_of_beta);
  }
  second.set("colsum", colsum);
  second.set("bias", bias);
  expect_close(run_on_cpu(standard("layernorm_linear"), second).at("y"), product(want.y, weight).values, cpu_tolerance,
               "LayerNorm(x)·Wᵀ");
}

TEST(LayerNormForms, MatchTheNormAppliedBeforeTheProduct) { expect_layer_norm(0, 0, 1e-5); }

TEST(LayerNormForms, SurviveALargeMeanWithAShiftNearIt) {
  // Rows of mean 4096 and unit spread: x itself is good to 2.4e-4 in f32, and nothing more may be lost. With shift 0
  // the variance would be the difference of two numbers near 1.7e7.
  expect_layer_norm(4096, 4095.5, 2e-3);
}

}  // namespace
}  // namespace coda::test
