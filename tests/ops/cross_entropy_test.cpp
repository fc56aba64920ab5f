// The LM head and its loss: every option against the formula in fp64, gradients against its finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "coda/error.hpp"
#include "coda/ops.hpp"

namespace coda::ops {
namespace {

constexpr std::int64_t M = 13, D = 10, V = 37;
constexpr std::int64_t ignored = -100;

struct Options {
  std::string name;
  CrossEntropyOptions options;
  bool bias = false, norm = false;
};

/// A problem in fp64, whose numbers f32 holds exactly.
struct Problem {
  std::vector<double> x = std::vector<double>(M * D), weight = std::vector<double>(V * D),
                      bias = std::vector<double>(V);
  std::vector<double> rstd = std::vector<double>(M), scale = std::vector<double>(M);
  std::vector<std::int64_t> target = std::vector<std::int64_t>(M);

  Problem() {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (auto* v : {&x, &weight, &bias, &scale}) {
      for (double& e : *v) e = normal(random);
    }
    for (double& e : rstd) e = 0.5f + std::abs(normal(random));
    for (std::size_t m = 0; m < target.size(); ++m) target[m] = static_cast<std::int64_t>((7 * m) % V);
    target[1] = 0;
    target[2] = V - 1;
    target[4] = target[9] = ignored;
  }

  double row_loss(const Options& o, std::int64_t m) const {
    if (target[static_cast<std::size_t>(m)] == ignored) return 0;
    std::vector<double> z(V);
    double maximum = -INFINITY, sum = 0, mean = 0;
    for (std::int64_t v = 0; v < V; ++v) {
      double& e = z[static_cast<std::size_t>(v)];
      for (std::int64_t d = 0; d < D; ++d)
        e += x[static_cast<std::size_t>(m * D + d)] * weight[static_cast<std::size_t>(v * D + d)];
      if (o.norm) e *= rstd[static_cast<std::size_t>(m)];
      if (o.bias) e += bias[static_cast<std::size_t>(v)];
      const double cap = static_cast<double>(o.options.softcap);
      if (cap != 0) e = cap * std::tanh(e / cap);
      maximum = std::max(maximum, e);
    }
    for (const double e : z) sum += std::exp(e - maximum);
    for (const double e : z) mean += e / V;
    const double lse = std::log(sum) + maximum, smooth = static_cast<double>(o.options.label_smoothing);
    return (1 - smooth) * (lse - z[static_cast<std::size_t>(target[static_cast<std::size_t>(m)])]) +
           smooth * (lse - mean) + static_cast<double>(o.options.z_loss) * lse * lse;
  }

  double loss(const Options& o) const {
    double sum = 0;
    for (std::int64_t m = 0; m < M; ++m) sum += scale[static_cast<std::size_t>(m)] * row_loss(o, m);
    return sum;
  }
};

HostTensor tensor(const std::vector<double>& x, std::initializer_list<std::int64_t> shape, DType dtype = DType::f32) {
  HostTensor t(dtype, shape);
  for (std::int64_t i = 0; i < t.numel(); ++i) store(t, i, x[static_cast<std::size_t>(i)]);
  return t;
}

HostTensor targets_of(const Problem& p) {
  HostTensor t(DType::i64, {M});
  std::copy(p.target.begin(), p.target.end(), t.as<std::int64_t>());
  return t;
}

HostTensor poisoned(std::initializer_list<std::int64_t> shape) {
  HostTensor t(DType::f32, shape);
  std::fill_n(t.as<float>(), t.numel(), std::numeric_limits<float>::quiet_NaN());
  return t;
}

/// Finite differences through the norm that comes before: h = x⊙w and rstd are functions of x.
void check_behind_a_norm(const Options& o) {
  Problem p;
  std::vector<double> x = p.x, norm_weight(D);
  for (std::size_t d = 0; d < norm_weight.size(); ++d) norm_weight[d] = 0.5 + 0.125 * static_cast<double>(d);
  const auto normalise = [&] {
    for (std::size_t m = 0; m < M; ++m) {
      double squares = 0;
      for (std::size_t d = 0; d < D; ++d) {
        squares += x[m * D + d] * x[m * D + d];
        p.x[m * D + d] = x[m * D + d] * norm_weight[d];
      }
      p.rstd[m] = 1 / std::sqrt(squares / D + 0.01);
    }
  };
  const auto difference = [&](double& at) {
    const double kept = at, step = 1e-4;
    at = kept + step;
    normalise();
    const double above = p.loss(o);
    at = kept - step;
    normalise();
    const double below = p.loss(o);
    at = kept;
    normalise();
    return (above - below) / (2 * step);
  };
  std::vector<double> dx, dweight, dnorm;
  for (double& e : x) dx.push_back(difference(e));
  for (double& e : p.weight) dweight.push_back(difference(e));
  for (double& e : norm_weight) dnorm.push_back(difference(e));

  const HostTensor h = tensor(p.x, {M, D}), weight = tensor(p.weight, {V, D}), rstd = tensor(p.rstd, {M});
  const HostTensor target = targets_of(p), scale = tensor(p.scale, {M});
  const HostTensor loss = poisoned({M}), zmax = poisoned({M}), zsum = poisoned({M});
  linear_cross_entropy({}, {.x = h,
                            .weight = weight,
                            .rstd = rstd,
                            .bias = {},
                            .target = target,
                            .options = o.options,
                            .loss = loss,
                            .zmax = zmax,
                            .zsum = zsum,
                            .logits = {}});
  for (const std::int64_t chunk : {M, std::int64_t{4}}) {
    const HostTensor found_dx = poisoned({M, D}), found_dweight(DType::f32, {V, D}), found_dnorm(DType::f32, {D});
    norm_linear_cross_entropy_backward({}, {.x = tensor(x, {M, D}),
                                            .h = h,
                                            .norm_weight = tensor(norm_weight, {D}),
                                            .rstd = rstd,
                                            .weight = weight,
                                            .target = target,
                                            .zmax = zmax,
                                            .zsum = zsum,
                                            .scale = scale,
                                            .options = o.options,
                                            .workspace = poisoned({chunk, V}),
                                            .normed = poisoned({chunk, D}),
                                            .zdz = poisoned({chunk}),
                                            .dx = found_dx,
                                            .dweight = found_dweight,
                                            .dnorm_weight = found_dnorm});
    for (std::int64_t i = 0; i < M * D; ++i) EXPECT_NEAR(load(found_dx, i), dx[static_cast<std::size_t>(i)], 2e-5);
    for (std::int64_t i = 0; i < V * D; ++i) {
      EXPECT_NEAR(load(found_dweight, i), dweight[static_cast<std::size_t>(i)], 2e-5);
    }
    for (std::int64_t i = 0; i < D; ++i) EXPECT_NEAR(load(found_dnorm, i), dnorm[static_cast<std::size_t>(i)], 2e-5);
  }
}

class CrossEntropyWith : public testing::TestWithParam<Options> {};

TEST_P(CrossEntropyWith, LossIsTheFormulas) {
  const Options o = GetParam();
  const Problem p;
  const HostTensor loss = poisoned({M}), zmax = poisoned({M}), zsum = poisoned({M}), logits = poisoned({M, V});
  const HostTensor rstd = tensor(p.rstd, {M}), bias = tensor(p.bias, {V});
  linear_cross_entropy({}, {.x = tensor(p.x, {M, D}),
                            .weight = tensor(p.weight, {V, D}),
                            .rstd = o.norm ? rstd.view() : Tensor{},
                            .bias = o.bias ? bias.view() : Tensor{},
                            .target = targets_of(p),
                            .options = o.options,
                            .loss = loss,
                            .zmax = zmax,
                            .zsum = zsum,
                            .logits = logits});
  for (std::int64_t m = 0; m < M; ++m) {
    const double expected = p.row_loss(o, m);
    EXPECT_NEAR(load(loss, m), expected, 2e-6 * (1 + std::abs(expected))) << "row " << m;
    if (p.target[static_cast<std::size_t>(m)] == ignored) {
      EXPECT_EQ(load(loss, m), 0);
    }
    EXPECT_FALSE(std::isnan(load(logits, m * V + V - 1)));
  }
}

TEST_P(CrossEntropyWith, GradientsAreThoseOfFiniteDifferencesForEveryChunkSize) {
  const Options o = GetParam();
  if (o.norm) return check_behind_a_norm(o);
  Problem p;
  const HostTensor x = tensor(p.x, {M, D}), weight = tensor(p.weight, {V, D}), bias = tensor(p.bias, {V});
  const HostTensor target = targets_of(p), scale = tensor(p.scale, {M});
  const HostTensor loss = poisoned({M}), zmax = poisoned({M}), zsum = poisoned({M});
  const Tensor given_bias = o.bias ? bias.view() : Tensor{};
  linear_cross_entropy({}, {.x = x,
                            .weight = weight,
                            .rstd = {},
                            .bias = given_bias,
                            .target = target,
                            .options = o.options,
                            .loss = loss,
                            .zmax = zmax,
                            .zsum = zsum,
                            .logits = {}});
  const auto difference = [&](double& at) {
    const double kept = at, step = 1e-4;
    at = kept + step;
    const double above = p.loss(o);
    at = kept - step;
    const double below = p.loss(o);
    at = kept;
    return (above - below) / (2 * step);
  };
  std::vector<double> dx, dweight, dbias;
  for (double& e : p.x) dx.push_back(difference(e));
  for (double& e : p.weight) dweight.push_back(difference(e));
  for (double& e : p.bias) dbias.push_back(difference(e));
  for (const std::int64_t chunk : {M, std::int64_t{1}, std::int64_t{5}, 2 * M}) {
    const HostTensor found_dx = poisoned({M, D}), found_dweight(DType::f32, {V, D}), found_dbias(DType::f32, {V});
    store(found_dweight, 0, 3.0);  // what is there already stays
    linear_cross_entropy_backward({}, {.x = x,
                                       .weight = weight,
                                       .bias = given_bias,
                                       .target = target,
                                       .zmax = zmax,
                                       .zsum = zsum,
                                       .scale = scale,
                                       .options = o.options,
                                       .workspace = poisoned({chunk, V}),
                                       .dx = found_dx,
                                       .dweight = found_dweight,
                                       .dbias = o.bias ? found_dbias.view() : Tensor{}});
    for (std::int64_t i = 0; i < M * D; ++i)
      EXPECT_NEAR(load(found_dx, i), dx[static_cast<std::size_t>(i)], 1e-5) << chunk;
    for (std::int64_t i = 0; i < V * D; ++i) {
      EXPECT_NEAR(load(found_dweight, i) - (i == 0 ? 3 : 0), dweight[static_cast<std::size_t>(i)], 1e-5) << chunk;
    }
    for (std::int64_t i = 0; o.bias && i < V; ++i)
      EXPECT_NEAR(load(found_dbias, i), dbias[static_cast<std::size_t>(i)], 1e-5);
    for (const std::int64_t m : {4, 9}) {
      for (std::int64_t d = 0; d < D; ++d) EXPECT_EQ(load(found_dx, m * D + d), 0) << "an ignored row";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Options, CrossEntropyWith,
    testing::Values(
        Options{"nothing", {}}, Options{"bias", {}, true}, Options{"norm", {}, false, true},
        Options{"smoothing", {.label_smoothing = 0.1f}}, Options{"z_loss", {.z_loss = 0.01f}},
        Options{"softcap", {.softcap = 3.0f}},
        Options{"all", {.label_smoothing = 0.2f, .z_loss = 0.02f, .softcap = 5.0f}, true},
        Options{"all_but_bias_and_norm", {.label_smoothing = 0.2f, .z_loss = 0.02f, .softcap = 5.0f}, false, true}),
    [](const auto& i) { return i.param.name; });

TEST(CrossEntropy, ReductionsCountOnlyWhatIsNotIgnored) {
  HostTensor loss(DType::f32, {4}), target(DType::i64, {4}), scale(DType::f32, {4});
  for (int i = 0; i < 4; ++i) loss.as<float>()[i] = static_cast<float>(i), target.as<std::int64_t>()[i] = i;
  loss.as<float>()[1] = 0;
  target.as<std::int64_t>()[1] = ignored;
  EXPECT_DOUBLE_EQ(reduce_loss(Reduction::sum, loss, target, ignored), 5);
  EXPECT_DOUBLE_EQ(reduce_loss(Reduction::mean, loss, target, ignored), 5.0 / 3);
  EXPECT_THROW(reduce_loss(Reduction::none, loss, target, ignored), Error);

  HostTensor one(DType::f32, {}), each(DType::f32, {4});
  *one.as<float>() = 6;
  for (int i = 0; i < 4; ++i) each.as<float>()[i] = static_cast<float>(10 * i);
  loss_scale(Reduction::mean, one, target, ignored, scale);
  EXPECT_EQ(load(scale, 3), 2);
  loss_scale(Reduction::sum, one, target, ignored, scale);
  EXPECT_EQ(load(scale, 3), 6);
  loss_scale(Reduction::none, each, target, ignored, scale);
  EXPECT_EQ(load(scale, 3), 30);
  EXPECT_THROW(loss_scale(Reduction::mean, each, target, ignored, scale), Error);
  EXPECT_THROW(loss_scale(Reduction::none, one, target, ignored, scale), Error);

  std::fill_n(target.as<std::int64_t>(), 4, ignored);
  EXPECT_TRUE(std::isnan(reduce_loss(Reduction::mean, loss, target, ignored))) << "as PyTorch has it";
  *one.as<float>() = std::numeric_limits<float>::quiet_NaN();
  loss_scale(Reduction::mean, one, target, ignored, scale);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(load(scale, i), 0) << "but gradients stay 0";
}

TEST(CrossEntropy, MeanLossIsTheMeanAndTheFactorOfItsGradient) {
  HostTensor loss(DType::f32, {5}), target(DType::i64, {5}), upstream(DType::f32, {}), total(DType::f32, {}),
      factor(DType::f32, {});
  for (int i = 0; i < 5; ++i) loss.as<float>()[i] = static_cast<float>(i * i), target.as<std::int64_t>()[i] = i;
  loss.as<float>()[1] = 0;
  target.as<std::int64_t>()[1] = ignored;
  *upstream.as<float>() = 6;
  MeanLoss t{.loss = loss, .target = target, .upstream = upstream, .total = total, .factor = factor};
  const auto found = [&](Reduction reduction) {
    t.reduction = reduction;
    mean_loss({}, t);
    return std::pair(load(total, 0), load(factor, 0));
  };
  EXPECT_EQ(found(Reduction::mean), std::pair(7.25, 1.5));
  EXPECT_EQ(found(Reduction::sum), std::pair(29.0, 6.0));
  EXPECT_THROW(found(Reduction::none), Error);
  t.total = {};
  store(total, 0, -1);
  EXPECT_EQ(found(Reduction::mean), std::pair(-1.0, 1.5)) << "a total that isn't wanted";
  t.total = total;
  std::fill_n(target.as<std::int64_t>(), 5, ignored);
  std::fill_n(loss.as<float>(), 5, 0.0f);
  EXPECT_TRUE(std::isnan(found(Reduction::mean).first)) << "as PyTorch has it";
  EXPECT_EQ(load(factor, 0), 0) << "but gradients stay 0";
}

TEST(CrossEntropy, WhatWorksOnTheHostRefusesTensorsOfAGpuByName) {
  Tensor there = Tensor::contiguous(reinterpret_cast<void*>(256), DType::f32, std::initializer_list<std::int64_t>{4},
                                    {DeviceType::cuda, 0});
  const HostTensor target(DType::i64, {4}), upstream(DType::f32, {}), scale(DType::f32, {4});
  const auto refusal = [](auto call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::unsupported);
      return e.what();
    }
    return "nothing was refused";
  };
  EXPECT_NE(refusal([&] { reduce_loss(Reduction::sum, there, target, ignored); }).find("reduce_loss: 'loss'"),
            std::string::npos);
  EXPECT_NE(refusal([&] { loss_scale(Reduction::sum, upstream, target, ignored, there); }).find("loss_scale: 'scale'"),
            std::string::npos);
}

TEST(CrossEntropy, ATargetOutsideTheVocabularyIsRefused) {
  Problem p;
  for (const std::int64_t bad : {V, std::int64_t{-1}, std::int64_t{1} << 32}) {
    p.target[3] = bad;
    const HostTensor loss(DType::f32, {M}), zmax(DType::f32, {M}), zsum(DType::f32, {M});
    EXPECT_THROW(linear_cross_entropy({}, {.x = tensor(p.x, {M, D}),
                                           .weight = tensor(p.weight, {V, D}),
                                           .rstd = {},
                                           .bias = {},
                                           .target = targets_of(p),
                                           .options = {},
                                           .loss = loss,
                                           .zmax = zmax,
                                           .zsum = zsum,
                                           .logits = {}}),
                 Error)
        << bad;
  }
}

TEST(CrossEntropy, MismatchedArgumentsAreRefused) {
  const Problem p;
  const HostTensor x = tensor(p.x, {M, D}), weight = tensor(p.weight, {V, D}), v(DType::f32, {M});
  const HostTensor target = targets_of(p), small(DType::f32, {M - 1}), half = tensor(p.weight, {V, D}, DType::bf16);
  const LinearCrossEntropy good{.x = x,
                                .weight = weight,
                                .rstd = {},
                                .bias = {},
                                .target = target,
                                .options = {},
                                .loss = v,
                                .zmax = v,
                                .zsum = v,
                                .logits = {}};
  const auto refused = [&](auto change) {
    LinearCrossEntropy t = good;
    change(t);
    EXPECT_THROW(linear_cross_entropy({}, t), Error);
  };
  refused([&](auto& t) { t.weight = half; });
  refused([&](auto& t) { t.loss = small; });
  refused([&](auto& t) { t.target = v; });
  refused([&](auto& t) { t.weight = t.weight.transposed(); });
  const HostTensor dx(DType::f32, {M, D}), narrow(DType::f32, {4, V - 1});
  EXPECT_THROW(linear_cross_entropy_backward({}, {.x = x,
                                                  .weight = weight,
                                                  .bias = {},
                                                  .target = target,
                                                  .zmax = v,
                                                  .zsum = v,
                                                  .scale = v,
                                                  .options = {},
                                                  .workspace = narrow,
                                                  .dx = dx,
                                                  .dweight = {},
                                                  .dbias = {}}),
               Error);
}

}  // namespace
}  // namespace coda::ops
