// norm_rope, norm_rope_adjacent and norm_qknorm_rope against rotations written out a head at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "formulas.hpp"
#include "harness.hpp"

namespace coda::test {
namespace {

// Grouped queries: 3 query heads, 1 key head, 1 value head of D columns.
constexpr std::int64_t M = 5, K = 6, query_heads = 3, heads = 5, P = 9;

struct Rope {
  std::int64_t d = 8;  ///< columns of a head
  std::int64_t r = 8;  ///< of which this many rotate
  bool adjacent = false;
  std::vector<std::int64_t> positions{0, 1, 2, 0, 8};  ///< two packed sequences, and a jump
};

double angle(std::int64_t position, std::int64_t i, std::int64_t r) {
  return static_cast<double>(position) * std::pow(100.0, -2.0 * static_cast<double>(i) / static_cast<double>(r));
}

/// cos and sin tables, [P, R/2]; returns the f32 values that the program sees.
std::pair<Matrix, Matrix> tables(Arguments& in, std::int64_t r) {
  Matrix c(P, r / 2), s(P, r / 2);
  for (std::int64_t p = 0; p < P; ++p)
    for (std::int64_t i = 0; i < r / 2; ++i) c(p, i) = std::cos(angle(p, i, r)), s(p, i) = std::sin(angle(p, i, r));
  return {in.set("cos", c), in.set("sin", s)};
}

/// Rotates columns [first, first + r) of row m by the position's angles.
void rotate(Matrix& z, std::int64_t m, std::int64_t first, const Rope& o, const std::pair<Matrix, Matrix>& table) {
  const std::int64_t p = o.positions[static_cast<std::size_t>(m)];
  for (std::int64_t i = 0; i < o.r / 2; ++i) {
    const std::int64_t ja = first + (o.adjacent ? 2 * i : i), jb = o.adjacent ? ja + 1 : ja + o.r / 2;
    const double a = z(m, ja), b = z(m, jb), c = table.first(p, i), s = table.second(p, i);
    z(m, ja) = a * c - b * s;
    z(m, jb) = b * c + a * s;
  }
}

void expect_rotated(const Rope& o, const char* name) {
  Arguments in;
  const std::int64_t n = heads * o.d, rotated = (query_heads + 1) * o.d;
  Matrix z = product(in.matrix("A", M, K), in.matrix("B", n, K));
  const Vector rstd = in.vector("rstd", M, 0.5, 2);
  const auto table = tables(in, o.r);
  in.integers("position", o.positions);
  in.integer("rotated", rotated, DType::i32);
  for (std::int64_t m = 0; m < M; ++m) {
    for (std::int64_t j = 0; j < n; ++j) z(m, j) *= rstd[static_cast<std::size_t>(m)];
    for (std::int64_t first = 0; first < rotated; first += o.d) rotate(z, m, first, o, table);
  }
  expect_outputs(standard(name, {{"D", o.d}, {"R", o.r}}), in, {{"qkv", z.values}});
}

TEST(NormRope, RotatesHalfSplitPairsOfQueryAndKeyHeads) { expect_rotated({}, "norm_rope"); }
TEST(NormRope, RotatesOnlyTheFirstColumnsOfAHead) { expect_rotated({.d = 12, .r = 4}, "norm_rope"); }
TEST(NormRope, AdjacentRotatesNeighbours) { expect_rotated({.adjacent = true}, "norm_rope_adjacent"); }
TEST(NormRope, AdjacentRotatesOnlyTheFirstColumnsOfAHead) {
  expect_rotated({.d = 12, .r = 4, .adjacent = true}, "norm_rope_adjacent");
}

TEST(NormRope, RotaryWidthFollowsTheHead) {
  EXPECT_EQ(standard("norm_rope", {{"D", 64}}), standard("norm_rope", {{"D", 64}, {"R", 64}}));
}

TEST(NormRope, ByHandAQuarterTurn) {
  // One head of 4, θ = 90 degrees for both pairs: (a, b) becomes (-b, a).
  Arguments in;
  Matrix a(1, 1), b(4, 1), c(1, 2), s(1, 2);
  a(0, 0) = 1;
  for (std::int64_t j = 0; j < 4; ++j) b(j, 0) = static_cast<double>(j + 1);
  s(0, 0) = s(0, 1) = 1;
  in.set("A", a), in.set("B", b), in.set("rstd", Vector{1}), in.set("cos", c), in.set("sin", s);
  in.integers("position", {0}), in.integer("rotated", 4, DType::i32);
  expect_close(evaluate(standard("norm_rope", {{"D", 4}}), in).at("qkv"), {-3, -4, 1, 2}, 0, "half-split");
  expect_close(evaluate(standard("norm_rope_adjacent", {{"D", 4}}), in).at("qkv"), {-2, 1, -4, 3}, 0, "adjacent");
}

TEST(NormRope, LeavesValueColumnsAndPartialTailsBitwiseAsTheProduct) {
  Arguments in;
  const std::int64_t d = 12, r = 4, n = heads * d, rotated = (query_heads + 1) * d;
  in.matrix("A", M, K), in.matrix("B", n, K), in.vector("rstd", M);
  tables(in, r);
  in.integers("position", {0, 1, 2, 0, 8}), in.integer("rotated", rotated, DType::i32);
  const Vector z = run_on_cpu(standard("norm_linear"), in).at("y");
  for (const char* name : {"norm_rope", "norm_rope_adjacent"}) {
    const Vector y = run_on_cpu(standard(name, {{"D", d}, {"R", r}}), in).at("qkv");
    for (std::int64_t i = 0; i < M * n; ++i)
      if (i % n >= rotated || i % n % d >= r) {
        EXPECT_EQ(y[static_cast<std::size_t>(i)], z[static_cast<std::size_t>(i)]) << name << " column " << i % n;
      }
  }
}

TEST(NormRope, APositionOutsideTheTableGivesNaNInRotatedColumnsOnly) {
  Arguments in;
  const std::int64_t d = 8, n = heads * d, rotated = (query_heads + 1) * d;
  in.matrix("A", M, K), in.matrix("B", n, K), in.vector("rstd", M);
  tables(in, d);
  in.integers("position", {0, P, 2, -1, 8}), in.integer("rotated", rotated, DType::i32);
  const Vector y = run_on_cpu(standard("norm_rope", {{"D", d}}), in).at("qkv");
  for (std::int64_t i = 0; i < M * n; ++i) {
    const bool lost = (i / n == 1 || i / n == 3) && i % n < rotated;
    EXPECT_EQ(std::isnan(y[static_cast<std::size_t>(i)]), lost) << "row " << i / n << " column " << i % n;
  }
}

TEST(RopeBackward, TurnsBackWhatWasTurnedAndGivesTheProductsOfRows) {
  for (const Rope& o : {Rope{}, Rope{.d = 12, .r = 4}}) {
    Arguments in;
    const std::int64_t n = heads * o.d, rotated = (query_heads + 1) * o.d;
    // The rotation is orthogonal, so its gradient undoes it: start from dz and turn it forward.
    Matrix dz(M, n), dy(M, n);
    for (std::int64_t i = 0; i < M * n; ++i) dz.values[static_cast<std::size_t>(i)] = std::sin(static_cast<double>(i));
    const auto table = tables(in, o.r);
    dy.values = dz.values;
    for (std::int64_t m = 0; m < M; ++m)
      for (std::int64_t first = 0; first < rotated; first += o.d) rotate(dy, m, first, o, table);
    const Matrix acc = product(in.matrix("A", M, K), in.matrix("B", n, K)), qkv = in.matrix("qkv", M, n);
    Matrix rest = dy;
    for (std::size_t i = 0; i < rest.values.size(); ++i) rest.values[i] -= acc.values[i];
    in.set("dqkv", rest);
    in.integers("position", o.positions), in.integer("rotated", rotated, DType::i32);
    Vector zdz(M);
    for (std::int64_t i = 0; i < M * n; ++i)
      zdz[static_cast<std::size_t>(i / n)] +=
          qkv.values[static_cast<std::size_t>(i)] * dy.values[static_cast<std::size_t>(i)];
    expect_outputs(standard("rope_backward", {{"D", o.d}, {"R", o.r}}), in, {{"dz", dz.values}, {"zdz", zdz}}, 1e-6);
  }
}

TEST(NormQkNormRope, NormalisesEachQueryAndKeyHeadThenRotates) {
  Arguments in;
  const Rope o;
  const std::int64_t n = heads * o.d, q_columns = query_heads * o.d, rotated = q_columns + o.d;
  Matrix z = product(in.matrix("A", M, K), in.matrix("B", n, K));
  const Vector rstd = in.vector("rstd", M, 0.5, 2), wq = in.vector("wq", o.d, 0.5, 1.5),
               wk = in.vector("wk", o.d, 0.5, 1.5);
  const double eps = in.scalar("eps", 1e-2);
  const auto table = tables(in, o.d);
  in.integers("position", o.positions);
  in.integer("q_columns", q_columns, DType::i32);
  in.integer("rotated", rotated, DType::i32);
  for (std::int64_t m = 0; m < M; ++m) {
    for (std::int64_t j = 0; j < n; ++j) z(m, j) *= rstd[static_cast<std::size_t>(m)];
    for (std::int64_t first = 0; first < rotated; first += o.d) {
      Vector head(static_cast<std::size_t>(o.d));
      for (std::int64_t i = 0; i < o.d; ++i) head[static_cast<std::size_t>(i)] = z(m, first + i);
      const double scale = rms_scale(head, eps);
      for (std::int64_t i = 0; i < o.d; ++i)
        z(m, first + i) *= scale * (first < q_columns ? wq : wk)[static_cast<std::size_t>(i)];
      rotate(z, m, first, o, table);
    }
  }
  expect_outputs(standard("norm_qknorm_rope", {{"D", o.d}}), in, {{"qkv", z.values}});
}

}  // namespace
}  // namespace coda::test
