// The operators of a Transformer block against their formulas in fp64, in every dtype, inputs unchanged.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "coda/error.hpp"
#include "coda/ops.hpp"
#include "ops/embedding.hpp"

namespace coda::ops {
namespace {

constexpr std::int64_t M = 21, D = 24, F = 20, N = 32;

/// A matrix or vector of what the dtype holds exactly, and the same in fp64.
struct Data {
  HostTensor tensor;
  std::string before;

  Data(DType dtype, std::initializer_list<std::int64_t> shape, unsigned seed, bool positive = false)
      : tensor(dtype, shape) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      const double x = normal(random);
      store(tensor, i, positive ? 0.5 + std::abs(x) : x);
    }
    before = bytes();
  }
  std::string bytes() const {
    const auto* p = static_cast<const char*>(tensor.view().data);
    return {p, p + static_cast<std::size_t>(tensor.numel()) * size_of(tensor.view().dtype)};
  }
  double operator()(std::int64_t i, std::int64_t j) const { return load(tensor, i * tensor.view().shape[1] + j); }
  double operator()(std::int64_t i) const { return load(tensor, i); }
  operator const Tensor&() const { return tensor; }
};

HostTensor poisoned(DType dtype, std::initializer_list<std::int64_t> shape) {
  HostTensor t(dtype, shape);
  std::memset(t.view().data, 0xff, static_cast<std::size_t>(t.numel()) * size_of(dtype));
  return t;
}

class Block : public testing::TestWithParam<DType> {
 protected:
  const DType dtype_ = GetParam();

  /// Every element within one rounding of the dtype and f32's accumulation of the expected one.
  static void expect(const Tensor& found, const std::function<double(std::int64_t, std::int64_t)>& expected,
                     const char* what) {
    const double rounding = found.dtype == DType::bf16 ? 0x1p-8 : found.dtype == DType::f16 ? 0x1p-11 : 2e-6;
    const std::int64_t columns = found.rank == 2 ? found.shape[1] : 1;
    for (std::int64_t i = 0; i < found.shape[0]; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        const double e = expected(i, j);
        ASSERT_NEAR(load(found, i * columns + j), e, 1.01 * rounding * std::abs(e) + 4e-5)
            << what << " " << i << " " << j;
      }
    }
  }
  static double product(const Data& a, const Data& b, std::int64_t i, std::int64_t j) {  // a·bᵀ
    double sum = 0;
    for (std::int64_t k = 0; k < a.tensor.view().shape[1]; ++k) sum += a(i, k) * b(j, k);
    return sum;
  }
  static double product_nn(const Data& a, const Data& b, std::int64_t i, std::int64_t j) {  // a·b
    double sum = 0;
    for (std::int64_t k = 0; k < a.tensor.view().shape[1]; ++k) sum += a(i, k) * b(k, j);
    return sum;
  }
};

double silu(double x) { return x / (1 + std::exp(-x)); }

TEST_P(Block, LinearAndItsGradients) {
  const Data x(dtype_, {M, D}, 1), w(dtype_, {N, D}, 2), dy(dtype_, {M, N}, 3);
  const HostTensor y = poisoned(dtype_, {M, N}), dx = poisoned(dtype_, {M, D});
  HostTensor dw(DType::f32, {N, D});
  std::fill_n(dw.as<float>(), dw.numel(), 2.0f);
  linear({}, {.x = x, .weight = w, .y = y});
  linear_backward({}, {.dy = dy, .weight = w, .dx = dx});
  weight_grad({}, {.dy = dy, .x = x, .dweight = dw});
  expect(
      y, [&](auto i, auto j) { return product(x, w, i, j); }, "y");
  expect(
      dx, [&](auto i, auto j) { return product_nn(dy, w, i, j); }, "dx");
  expect(
      dw,
      [&](auto n, auto k) {
        double sum = 2;
        for (std::int64_t m = 0; m < M; ++m) sum += dy(m, n) * x(m, k);
        return sum;
      },
      "dw");
  for (const Data* d : {&x, &w, &dy}) EXPECT_EQ(d->bytes(), d->before);
}

TEST_P(Block, LinearResidualNormAndTheNormsBackward) {
  const Data a(dtype_, {M, F}, 1), w(dtype_, {D, F}, 2), residual(dtype_, {M, D}, 3), g(dtype_, {D}, 4);
  const HostTensor x = poisoned(dtype_, {M, D}), h = poisoned(dtype_, {M, D}), rstd = poisoned(DType::f32, {M});
  linear_residual_norm(
      {}, {.a = a, .weight = w, .residual = residual, .norm_weight = g, .eps = 0.01f, .x = x, .h = h, .rstd = rstd});
  const auto sum = [&](auto i, auto j) { return product(a, w, i, j) + residual(i, j); };
  expect(x, sum, "x");
  expect(
      h, [&](auto i, auto j) { return sum(i, j) * g(j); }, "h");
  expect(
      rstd,
      [&](auto i, auto) {
        double squares = 0;
        for (std::int64_t j = 0; j < D; ++j) squares += sum(i, j) * sum(i, j);
        return 1 / std::sqrt(squares / D + static_cast<double>(0.01f));
      },
      "rstd");

  const Data dz(dtype_, {M, N}, 5), wn(dtype_, {N, D}, 6), xs(dtype_, {M, D}, 7), dres(dtype_, {M, D}, 8);
  const Data r(DType::f32, {M}, 9, true), zdz(DType::f32, {M}, 10);
  const HostTensor dx = poisoned(dtype_, {M, D}), normed = poisoned(dtype_, {M, D}), dg(DType::f32, {D});
  std::fill_n(dg.as<float>(), D, 3.0f);
  norm_backward({}, {.dz = dz,
                     .weight = wn,
                     .x = xs,
                     .dresidual = dres,
                     .norm_weight = g,
                     .rstd = r,
                     .zdz = zdz,
                     .dx = dx,
                     .normed = normed,
                     .dnorm_weight = dg});
  expect(
      dx,
      [&](auto i, auto j) {
        return dres(i, j) + r(i) * (product_nn(dz, wn, i, j) * g(j) - xs(i, j) * r(i) * zdz(i) / D);
      },
      "dx");
  expect(
      normed, [&](auto i, auto j) { return xs(i, j) * r(i) * g(j); }, "normed");
  expect(
      dg,
      [&](auto j, auto) {
        double total = 3;
        for (std::int64_t m = 0; m < M; ++m) total += product_nn(dz, wn, m, j) * xs(m, j) * r(m);
        return total;
      },
      "dnorm_weight");
}

TEST_P(Block, SwigluAndItsBackward) {
  const Data h(dtype_, {M, D}, 1), r(DType::f32, {M}, 2, true), w(dtype_, {2 * F, D}, 3);
  const HostTensor z = poisoned(dtype_, {M, 2 * F}), y = poisoned(dtype_, {M, F});
  linear_norm_swiglu({}, {.h = h, .rstd = r, .weight = w, .z = z, .y = y});
  const auto at = [&](auto i, auto j) { return product(h, w, i, j) * r(i); };
  expect(z, at, "z");
  expect(
      y, [&](auto i, auto j) { return silu(at(i, j)) * at(i, j + F); }, "y");
  const HostTensor alone = poisoned(dtype_, {M, F});
  linear_norm_swiglu({}, {.h = h, .rstd = r, .weight = w, .z = {}, .y = alone});
  EXPECT_EQ(std::memcmp(alone.view().data, y.view().data, static_cast<std::size_t>(M * F) * size_of(dtype_)), 0);

  const Data dout(dtype_, {M, D}, 4), down(dtype_, {D, F}, 5), saved(dtype_, {M, 2 * F}, 6);
  const HostTensor dz = poisoned(dtype_, {M, 2 * F}), again = poisoned(dtype_, {M, F}), zdz = poisoned(DType::f32, {M});
  swiglu_backward({}, {.dout = dout, .weight = down, .z = saved, .dz = dz, .y = again, .zdz = zdz});
  const auto gradient = [&](std::int64_t i, std::int64_t j) {
    const std::int64_t f = j % F;
    const double dy = product_nn(dout, down, i, f), g = saved(i, f), s = 1 / (1 + std::exp(-g));
    return j < F ? dy * saved(i, f + F) * s * (1 + g * (1 - s)) : dy * silu(g);
  };
  expect(dz, gradient, "dz");
  expect(
      again, [&](auto i, auto j) { return silu(saved(i, j)) * saved(i, j + F); }, "y");
  expect(
      zdz,
      [&](auto i, auto) {
        double total = 0;
        for (std::int64_t j = 0; j < 2 * F; ++j) total += saved(i, j) * gradient(i, j);
        return total;
      },
      "zdz");
}

TEST_P(Block, RopeRotatesQueriesAndKeysByPosition) {
  constexpr std::int64_t head = 8, rotated = 24, positions = 50;
  const Data h(dtype_, {M, D}, 1), r(DType::f32, {M}, 2, true), w(dtype_, {N, D}, 3);
  HostTensor position(DType::i64, {M}), cos(DType::f32, {positions, head / 2}), sin(DType::f32, {positions, head / 2});
  const auto angle = [](std::int64_t p, std::int64_t i) {
    return static_cast<double>(p) * std::pow(10.0, -static_cast<double>(i));
  };
  for (std::int64_t m = 0; m < M; ++m) position.as<std::int64_t>()[m] = (m * 11) % positions;
  for (std::int64_t i = 0; i < cos.numel(); ++i) {
    store(cos, i, std::cos(angle(i / 4, i % 4)));
    store(sin, i, std::sin(angle(i / 4, i % 4)));
  }
  const HostTensor qkv = poisoned(dtype_, {M, N});
  linear_norm_rope({}, {.h = h,
                        .rstd = r,
                        .weight = w,
                        .position = position,
                        .cos = cos,
                        .sin = sin,
                        .head_dim = head,
                        .rotated_columns = rotated,
                        .qkv = qkv});
  const auto at = [&](std::int64_t i, std::int64_t j) { return product(h, w, i, j) * r(i); };
  expect(
      qkv,
      [&](std::int64_t i, std::int64_t j) {
        if (j >= rotated) return at(i, j);
        const std::int64_t pair = j % head % (head / 2);
        const double c = std::cos(angle((i * 11) % positions, pair)), s = std::sin(angle((i * 11) % positions, pair));
        return j % head < head / 2 ? at(i, j) * c - at(i, j + head / 2) * s : at(i, j - head / 2) * s + at(i, j) * c;
      },
      "qkv");
}

TEST_P(Block, RotaryBackwardIsTheInverseRotationAndTheRowsProduct) {
  constexpr std::int64_t head = 6, rotated = 12, width = 18;
  const Data y(dtype_, {M, width}, 1), dy(dtype_, {M, width}, 2);
  HostTensor position(DType::i64, {M}), cos(DType::f32, {M, head / 2}), sin(DType::f32, {M, head / 2});
  for (std::int64_t m = 0; m < M; ++m) position.as<std::int64_t>()[m] = M - 1 - m;
  for (std::int64_t i = 0; i < cos.numel(); ++i) {
    store(cos, i, std::cos(0.1 * static_cast<double>(i)));
    store(sin, i, std::sin(0.1 * static_cast<double>(i)));
  }
  const HostTensor dz = poisoned(dtype_, {M, width}), zdz = poisoned(DType::f32, {M});
  RotaryBackward t{.qkv = y,
                   .position = position,
                   .cos = cos,
                   .sin = sin,
                   .head_dim = head,
                   .rotated_columns = rotated,
                   .dqkv = dy,
                   .dz = dz,
                   .zdz = zdz};
  rotary_backward({}, t);
  expect(
      dz,
      [&](std::int64_t m, std::int64_t j) {
        const std::int64_t at = (M - 1 - m) * 3 + j % 3;
        const double c = load(cos, at), s = load(sin, at);
        return j >= rotated   ? dy(m, j)
               : j % head < 3 ? dy(m, j) * c + dy(m, j + 3) * s
                              : dy(m, j) * c - dy(m, j - 3) * s;
      },
      "dz");
  expect(
      zdz,
      [&](std::int64_t m, auto) {
        double sum = 0;
        for (std::int64_t j = 0; j < width; ++j) sum += y(m, j) * dy(m, j);
        return sum;
      },
      "zdz");
  for (const Data* d : {&y, &dy}) EXPECT_EQ(d->bytes(), d->before);

  position.as<std::int64_t>()[3] = M;
  rotary_backward({}, t);
  EXPECT_TRUE(std::isnan(load(dz, 3 * width))) << "a position past the table";
  EXPECT_FALSE(std::isnan(load(dz, 4 * width)));
  const auto refused = [&](auto change) {
    RotaryBackward bad = t;
    change(bad);
    EXPECT_THROW(rotary_backward({}, bad), Error);
  };
  refused([](auto& b) { b.head_dim = 4; });
  refused([](auto& b) { b.rotated_columns = 13; });
  refused([](auto& b) { b.rotated_columns = width + head; });
  refused([](auto& b) { b.dqkv.dtype = DType::e4m3; });
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Block, testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& i) { return std::string(name_of(i.param)); });

TEST(Embedding, LooksUpAndAddsBackInOrder) {
  const std::vector<std::int64_t> tokens{2, 0, 2};
  const std::vector<float> table{1, 2, 3, 4, 5, 6}, dout{1, 10, 2, 20, 4, 40};
  std::vector<float> out(6), dtable(6, 100.0f);
  embedding<float>(3, 2, 3, tokens.data(), table.data(), out.data());
  EXPECT_EQ(out, (std::vector<float>{5, 6, 1, 2, 5, 6}));
  embedding_backward<float>(3, 2, tokens.data(), dout.data(), dtable.data());
  EXPECT_EQ(dtable, (std::vector<float>{102, 120, 100, 100, 105, 150}));
  const std::vector<std::int64_t> outside{0, 3, 0};
  EXPECT_THROW(embedding<float>(3, 2, 3, outside.data(), table.data(), out.data()), Error);
}

}  // namespace
}  // namespace coda::ops
