// The backward programs against finite differences of the forward formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "formulas.hpp"
#include "harness.hpp"

namespace coda::test {
namespace {

constexpr std::int64_t M = 5, F = 7, K = 4;

/// Gives an accumulating output something to start from.
void add_start(Arguments& in, const std::string& name, Vector& expected) {
  const Vector start = in.vector(name, static_cast<std::int64_t>(expected.size()));
  for (std::size_t i = 0; i < start.size(); ++i) expected[i] += start[i];
}

using Gate = std::function<double(double g, double u)>;

/// The backward program of a gated activation: dz, y and zdz from dy = A·Bᵀ and the saved z = [g | u].
void expect_gated_backward(const Program& p, Arguments& in, const Gate& activation, double tolerance = 1e-9) {
  const Matrix dy = product(in.matrix("A", M, K), in.matrix("B", F, K));
  const Matrix z = in.matrix("z", M, 2 * F, -4, 4);
  Matrix dz(M, 2 * F), y(M, F);
  Vector zdz(M);
  for (std::int64_t i = 0; i < M; ++i)
    for (std::int64_t j = 0; j < F; ++j) {
      const Vector d =
          gradient([&](const Vector& gu) { return dy(i, j) * activation(gu[0], gu[1]); }, {z(i, j), z(i, j + F)});
      dz(i, j) = d[0], dz(i, j + F) = d[1];
      y(i, j) = activation(z(i, j), z(i, j + F));
      zdz[static_cast<std::size_t>(i)] += z(i, j) * d[0] + z(i, j + F) * d[1];
    }
  expect_outputs(p, in, {{"dz", dz.values}, {"y", y.values}, {"zdz", zdz}}, tolerance);
}

TEST(SwigluBackward, IsTheGradient) {
  Arguments in;
  expect_gated_backward(standard("swiglu_backward"), in, [](double g, double u) { return silu(g) * u; });
}

// The constants of gelu's derivative are rounded to f32, hence 1e-6.
TEST(GegluBackward, IsTheGradientOfBothForms) {
  Arguments in;
  expect_gated_backward(
      standard("geglu_backward"), in, [](double g, double u) { return gelu(g) * u; }, 1e-6);
  expect_gated_backward(
      standard("geglu_backward", {{"approximate", 1}}), in, [](double g, double u) { return gelu_tanh(g) * u; }, 1e-6);
}

TEST(RegluBackward, IsTheGradient) {
  Arguments in;
  expect_gated_backward(standard("reglu_backward"), in, [](double g, double u) { return relu(g) * u; });
}

TEST(SwigluClampedBackward, IsTheGradientOfBothForms) {
  Arguments in;
  const double alpha = in.scalar("alpha", 1.702), limit = in.scalar("limit", 1.5);
  expect_gated_backward(standard("swiglu_clamped_a_backward"), in,
                        [&](double g, double u) { return swiglu_a(g, u, alpha, limit); });
  expect_gated_backward(standard("swiglu_clamped_b_backward"), in,
                        [&](double g, double u) { return swiglu_b(g, u, limit); });
}

/// dy = 1 everywhere, z = [gates | 2 2 2 ...].
Arguments with_gates(const Vector& gates, double up = 2) {
  Arguments in;
  const auto f = static_cast<std::int64_t>(gates.size());
  Matrix a(1, 1), b(f, 1), z(1, 2 * f);
  a(0, 0) = 1;
  for (std::int64_t j = 0; j < f; ++j) b(j, 0) = 1, z(0, j) = gates[static_cast<std::size_t>(j)], z(0, j + f) = up;
  in.set("A", a), in.set("B", b), in.set("z", z);
  return in;
}

TEST(SwigluClampedBackward, AtTheLimitTheGradientPassesAndBeyondItIsZero) {
  // As torch.clamp has it. With alpha = 0 form a is y = (u' + 1)·g'/2.
  const float beyond = std::nextafter(7.0f, 8.0f);
  Arguments in = with_gates({7, beyond}, 7);
  in.scalar("alpha", 0), in.scalar("limit", 7);
  expect_close(evaluate(standard("swiglu_clamped_a_backward"), in).at("dz"), {4, 0, 3.5, 3.5}, 1e-12, "u at the limit");
  Arguments beyond_in = with_gates({7, 7}, beyond);
  beyond_in.scalar("alpha", 0), beyond_in.scalar("limit", 7);
  expect_close(evaluate(standard("swiglu_clamped_a_backward"), beyond_in).at("dz"), {4, 4, 0, 0}, 1e-12, "u beyond it");
}

TEST(GatedBackward, HasItsLimitsAtInfinityAndPassesNaNOn) {
  const double inf = INFINITY;
  for (const char* name : {"swiglu_backward", "geglu_backward", "reglu_backward"}) {
    const Results r = run_on_cpu(standard(name), with_gates({-inf, -100, 100, inf, NAN}));
    const Vector dz = r.at("dz");
    // relu's derivative is 0 or 1 even at NaN, as in PyTorch; y and du carry the NaN on.
    const double at_nan = std::string(name) == "reglu_backward" ? 2 : NAN;
    expect_close(Vector(dz.begin(), dz.begin() + 5), {0, 0, 2, 2, at_nan}, 1e-6, std::string(name) + " dg");
    expect_close(Vector(dz.begin() + 5, dz.end()), {0, 0, 100, inf, NAN}, 1e-6, std::string(name) + " du");
    expect_close(r.at("y"), {0, 0, 200, inf, NAN}, 1e-6, std::string(name) + " y");
  }
}

TEST(GeluBackward, IsTheGradientOfBothForms) {
  for (const int approximate : {0, 1}) {
    Arguments in;
    const auto activation = [&](double x) { return approximate ? gelu_tanh(x) : gelu(x); };
    const Matrix dy = product(in.matrix("A", M, K), in.matrix("B", F, K));
    const Matrix z = in.matrix("z", M, F, -9, 9);
    const Vector colsum = in.vector("colsum", F), bias = in.vector("bias", F);
    Matrix dz(M, F), y(M, F);
    Vector zdz(M), centred(M), cdz(M), dbias(F);
    for (std::int64_t i = 0; i < M; ++i)
      for (std::int64_t j = 0; j < F; ++j) {
        const auto r = static_cast<std::size_t>(i), c = static_cast<std::size_t>(j);
        const double d = gradient([&](const Vector& x) { return dy(i, j) * activation(x[0]); }, {z(i, j)})[0];
        dz(i, j) = d, y(i, j) = activation(z(i, j));
        zdz[r] += z(i, j) * d, centred[r] += (z(i, j) - bias[c]) * d, cdz[r] += colsum[c] * d, dbias[c] += d;
      }
    add_start(in, "dbias", dbias);
    const ParamValues params{{"approximate", approximate}};
    expect_outputs(standard("gelu_backward", params), in, {{"dz", dz.values}, {"y", y.values}, {"zdz", zdz}}, 1e-6);
    expect_outputs(standard("layernorm_gelu_backward", params), in,
                   {{"dz", dz.values}, {"y", y.values}, {"zdz", centred}, {"cdz", cdz}, {"dbias", dbias}}, 1e-6);
  }
}

/// A norm and the product after it, with random dz, and the gradients of Σ dz⊙z by x and by the vectors.
struct NormCase {
  static constexpr std::int64_t D = 6, N = 9;
  Arguments in;
  Matrix x, dresidual, dz, weight;  ///< weight [N, D]: z = norm(x)·weightᵀ

  NormCase()
      : x(in.matrix("x", M, D)), dresidual(in.matrix("dresidual", M, D)), dz(in.matrix("A", M, N)), weight(N, D) {
    const Matrix transposed = in.matrix("B", D, N);  // acc = dz·weight = dz·(weightᵀ)ᵀ
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t j = 0; j < D; ++j) weight(n, j) = transposed(j, n);
  }

  /// Σ_mn dz⊙(norm·weightᵀ)
  double loss(const Matrix& norm) const {
    const Matrix z = product(norm, weight);
    double sum = 0;
    for (std::size_t i = 0; i < z.values.size(); ++i) sum += z.values[i] * dz.values[i];
    return sum;
  }
};

using NormFunction = std::function<Matrix(const Matrix& x, const Vector& w)>;

void expect_norm_backward(bool zero_centred) {
  NormCase c;
  const Vector w = c.in.vector("w", NormCase::D, 0.5, 1.5);
  const double eps = 1e-2;
  Vector rstds;
  const NormFunction norm = [&](const Matrix& x, const Vector& weight) {
    Matrix y = x;
    rstds.clear();
    for (std::int64_t i = 0; i < M; ++i) {
      rstds.push_back(rms_scale(row_of(x, i), eps));
      for (std::int64_t j = 0; j < NormCase::D; ++j)
        y(i, j) *= rstds.back() * (weight[static_cast<std::size_t>(j)] + (zero_centred ? 1 : 0));
    }
    return y;
  };
  Vector dx = gradient(
      [&](const Vector& v) {
        Matrix at = c.x;
        at.values = v;
        return c.loss(norm(at, w));
      },
      c.x.values);
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += c.dresidual.values[i];
  Vector dw = gradient([&](const Vector& v) { return c.loss(norm(c.x, v)); }, w);
  add_start(c.in, "dw", dw);

  const Matrix h = norm(c.x, w), z = product(h, c.weight);
  Vector zdz(M);
  for (std::int64_t i = 0; i < M; ++i)
    for (std::int64_t n = 0; n < NormCase::N; ++n) zdz[static_cast<std::size_t>(i)] += z(i, n) * c.dz(i, n);
  c.in.set("rstd", rstds), c.in.set("zdz", zdz);
  expect_outputs(standard("norm_backward", {{"zero_centred", zero_centred}}), c.in,
                 {{"dx", dx}, {"h", h.values}, {"dw", dw}}, 1e-6);
}

TEST(NormBackward, IsTheGradient) { expect_norm_backward(false); }
TEST(NormBackward, IsTheGradientWithAZeroCentredWeight) { expect_norm_backward(true); }

TEST(NormBackward, WithoutAResidualIsTheNormsGradientAlone) {
  NormCase c;
  c.in.vector("w", NormCase::D), c.in.vector("rstd", M), c.in.vector("zdz", M);
  const Results with = evaluate(standard("norm_backward"), c.in);
  const Program alone = standard("norm_backward", {{"with_residual", 0}});
  EXPECT_FALSE(alone.slot("dresidual"));
  Vector dx = with.at("dx");
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] -= c.dresidual.values[i];
  expect_outputs(alone, c.in, {{"dx", dx}, {"h", with.at("h")}, {"dw", with.at("dw")}});
}

TEST(LayerNormBackward, IsTheGradient) {
  NormCase c;
  constexpr auto D = NormCase::D;
  const Vector gamma = c.in.vector("gamma", D, 0.5, 1.5), beta = c.in.vector("beta", D);
  const double eps = 1e-2;
  Vector means, rstds;
  const auto norm = [&](const Matrix& x, const Vector& g, const Vector& b) {
    Matrix y = x;
    means.clear(), rstds.clear();
    for (std::int64_t i = 0; i < M; ++i) {
      double mean = 0, variance = 0;
      for (const double v : row_of(x, i)) mean += v / D;
      for (const double v : row_of(x, i)) variance += (v - mean) * (v - mean) / D;
      means.push_back(mean), rstds.push_back(1 / std::sqrt(variance + eps));
      for (std::int64_t j = 0; j < D; ++j) {
        const auto k = static_cast<std::size_t>(j);
        y(i, j) = (x(i, j) - mean) * rstds.back() * g[k] + b[k];
      }
    }
    return y;
  };
  Vector dx = gradient(
      [&](const Vector& v) {
        Matrix at = c.x;
        at.values = v;
        return c.loss(norm(at, gamma, beta));
      },
      c.x.values);
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += c.dresidual.values[i];
  Vector dgamma = gradient([&](const Vector& v) { return c.loss(norm(c.x, v, beta)); }, gamma);
  Vector dbeta = gradient([&](const Vector& v) { return c.loss(norm(c.x, gamma, v)); }, beta);
  add_start(c.in, "dgamma", dgamma), add_start(c.in, "dbeta", dbeta);

  const Matrix h = norm(c.x, gamma, beta);
  const Matrix unbiased = product(norm(c.x, gamma, Vector(D, 0)), c.weight);
  Vector zdz(M), cdz(M);
  for (std::int64_t i = 0; i < M; ++i)
    for (std::int64_t n = 0; n < NormCase::N; ++n) {
      double colsum = 0;
      for (std::int64_t j = 0; j < D; ++j) colsum += c.weight(n, j) * gamma[static_cast<std::size_t>(j)];
      zdz[static_cast<std::size_t>(i)] += unbiased(i, n) * c.dz(i, n);
      cdz[static_cast<std::size_t>(i)] += colsum * c.dz(i, n);
    }
  c.in.set("mean", means), c.in.set("rstd", rstds), c.in.set("zdz", zdz), c.in.set("cdz", cdz);
  expect_outputs(standard("layernorm_backward"), c.in,
                 {{"dx", dx}, {"h", h.values}, {"dgamma", dgamma}, {"dbeta", dbeta}}, 1e-6);
}

}  // namespace
}  // namespace coda::test
