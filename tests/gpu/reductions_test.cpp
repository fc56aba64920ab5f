// Picks and softmax statistics over n, over m and over segments, and functions that no standard program calls.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "coda/error.hpp"
#include "layouts.hpp"
#include "support/random_program.hpp"
#include "support/reduction_programs.hpp"

namespace coda::test {
namespace {

class ReductionProgram : public ::testing::TestWithParam<std::string> {
 protected:
  const Program p = reduction_program(GetParam());
  /// N / 2 holds whole segments of 32 too.
  std::int64_t columns(std::int64_t n) const { return round_up(n, std::lcm<std::int64_t>(column_divisor(p), 64)); }
};

TEST_P(ReductionProgram, is_right_at_ragged_sizes) {
  const Kernel kernel(p);
  struct Size { std::int64_t m, n, k; };
  for (const Size s : {Size{1, 1, 1}, Size{63, 64, 72}, Size{129, 257, 200}, Size{300, 520, 136}}) {
    const Problem problem(p, s.m, columns(s.n), s.k, static_cast<unsigned>(s.m));
    EXPECT_EQ(check_run(kernel, problem, plain(s.k)), "") << s.m << " x " << columns(s.n) << " x " << s.k;
  }
}

TEST_P(ReductionProgram, is_right_in_every_layout) {
  const Kernel kernel(p);
  const std::int64_t m = 201, n = columns(330), k = 88;
  const Problem problem(p, m, n, k, 7);
  for (const Layouts& l : layouts_of(m, n, k)) EXPECT_EQ(check_run(kernel, problem, l), "");
}

TEST_P(ReductionProgram, is_right_in_every_configuration) {
  const std::int64_t m = 333, n = columns(650), k = 520;
  const Problem problem(p, m, n, k, 3);
  const Arguments arguments(problem, plain(k));
  std::vector<Kernel> kernels;
  for (const std::string& name : varied(Kernel(p).configurations(arguments.slots()))) kernels.emplace_back(p, KernelOptions{.config = name});
  ASSERT_FALSE(kernels.empty());
  prepare_all(kernels, arguments.slots());
  for (const Kernel& kernel : kernels) EXPECT_EQ(check_run(kernel, problem, plain(k)), "");
}

INSTANTIATE_TEST_SUITE_P(Gpu, ReductionProgram, ::testing::ValuesIn(names_of(reduction_programs())),
                         [](const auto& info) { return info.param; });

/// acc[m, n] = (m + 1) * value(n), exactly representable; the operand "chosen" or "place" as `index` says.
Problem outer(const Program& p, std::int64_t m, std::int64_t n, const std::function<double(std::int64_t)>& value,
              const std::function<double(std::int64_t)>& index) {
  return Problem(p, m, n, 8, 1, [&](const Slot& s, const Tensor& t) {
    if (s.role == Slot::Role::operand) {
      for (std::int64_t i = 0; i < t.numel(); ++i) store(t, i, index(i));
      return true;
    }
    if (s.role == Slot::Role::output) return false;
    for (std::int64_t i = 0; i < t.numel(); ++i) store(t, i, 0);
    for (std::int64_t r = 0; r < t.shape[0]; ++r) store(t, r * t.shape[1], s.role == Slot::Role::a ? static_cast<double>(r + 1) : value(r));
    return true;
  });
}

HostTensor result(const Program& p, const Problem& problem, std::string_view name) {
  Arguments arguments(problem, {});
  Kernel(p).launch(arguments.slots());
  return arguments.tensor(name).download();
}

// Outside a ragged matrix the product of an infinity and what fills the tile is NaN, and must not get into a sum.
TEST(Sums, are_infinite_beside_the_edge_of_a_matrix_with_an_infinity) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const char* sum : {"f32[M] = sum(acc, over n)", "f32[N] = sum(acc, over m)", "f32[M] = sum(acc * x, over n)", "f32[N] = sum(acc * x, over m)"}) {
    const Program p = parse(std::string("program sums\n  gemm A: bf16[M, K], B: bf16[N, K]\n") + (std::string_view(sum).find('x') == std::string_view::npos ? "" : "  in x: bf16[M, N]\n") +
                            "  finish s: " + sum + "\n");
    const bool rows = std::string_view(sum).starts_with("f32[M]");
    const Problem problem(p, 100, 200, 8, 1, [&](const Slot& s, const Tensor& t) {
      if (s.role == Slot::Role::output) return false;
      for (std::int64_t i = 0; i < t.numel(); ++i) store(t, i, 1);
      if (s.role == (rows ? Slot::Role::a : Slot::Role::b)) store(t, 5 * 8 + 3, infinity);
      return true;
    });
    const HostTensor got = result(p, problem, "s");
    for (std::int64_t i = 0; i < (rows ? 100 : 200); ++i) EXPECT_EQ(load(got, i), i == 5 ? infinity : rows ? 1600 : 800) << sum << ", " << i;
  }
}

TEST(Picks, over_m_find_rows_on_both_sides_of_every_tile_boundary_and_give_NaN_out_of_range) {
  const Program p = parse("program rows\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in chosen: i64[N]\n"
                          "  finish z: f32[N] = pick(acc, chosen, over m, -7)\n");
  const double rows[] = {0, 7, 8, 15, 16, 63, 64, 127, 128, 129, 191, 192, 193, 254, 255, -7, -1, 256, 3e9};
  const auto count = static_cast<std::int64_t>(std::size(rows));
  const Problem problem = outer(p, 256, 520, [](auto c) { return double(1 + c % 3); }, [&](auto c) { return rows[c % count]; });
  const HostTensor z = result(p, problem, "z");
  for (std::int64_t c = 0; c < 520; ++c) {
    const double row = rows[c % count];
    if (row == -7) EXPECT_EQ(load(z, c), 0);
    else if (row < 0 || row > 255) EXPECT_TRUE(std::isnan(load(z, c))) << row;
    else EXPECT_EQ(load(z, c), (row + 1) * double(1 + c % 3)) << row;
  }
}

TEST(Picks, over_segments_give_all_of_a_segment_one_of_its_elements_and_NaN_out_of_range) {
  const Program p = parse("program places\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in place: i32[M]\n"
                          "  out z: f32[M, N] = pick(acc, place, over segment(24), 5)\n");
  const Problem problem = outer(p, 70, 480, [](auto c) { return double(c % 128); }, [](auto r) { return double(r - 3); });
  const HostTensor z = result(p, problem, "z");
  for (std::int64_t r = 0; r < 70; ++r)
    for (std::int64_t c = 0; c < 480; ++c) {
      const std::int64_t place = r - 3;
      const double got = load(z, r * 480 + c);
      if (place == 5) EXPECT_EQ(got, 0);
      else if (place < 0 || place >= 24) EXPECT_TRUE(std::isnan(got)) << place;
      else EXPECT_EQ(got, double(r + 1) * double((c / 24 * 24 + place) % 128)) << place;
    }
}

TEST(Softmax, over_segments_of_minus_infinity_is_minus_infinity_and_nothing) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Program p = parse("program local\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in bias: f32[N]\n"
                          "  m, s = softmax_stats(acc + bias, over segment(16))\n  out m: f32[M, N] = m\n  out s: f32[M, N] = s\n");
  const auto bias = [&](std::int64_t c) {
    return c / 16 == 0 ? -infinity : c == 20 ? std::numeric_limits<double>::quiet_NaN() : c / 16 % 2 == 0 ? 1300.0 : -50.0;
  };
  const Problem problem = outer(p, 70, 304, [](auto) { return 0.0; }, bias);
  const HostTensor m = result(p, problem, "m"), s = result(p, problem, "s");
  for (std::int64_t c = 0; c < 304; ++c) {
    const std::int64_t at = 69 * 304 + c;
    if (c / 16 == 1) {
      EXPECT_TRUE(std::isnan(load(m, at)) && std::isnan(load(s, at))) << c;
    } else {
      EXPECT_EQ(load(m, at), bias(c)) << c;
      EXPECT_EQ(load(s, at), c / 16 == 0 ? 0 : 16) << c;
    }
  }
}

TEST(Functions, log1p_expm1_and_softplus_keep_their_tails_and_edges) {
  const Program p = parse("program functions\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in x: f32[N]\n  out l: f32[M, N] = acc + log1p(x)\n"
                          "  out e: f32[M, N] = acc + expm1(x)\n  out s: f32[M, N] = acc + softplus(x)\n");
  const double infinity = std::numeric_limits<double>::infinity();
  const double x[] = {-1, -1.5, infinity, -infinity, std::numeric_limits<double>::quiet_NaN(), 0, 1e-7, -1e-7, -5, -17, -30, -60, 1, 50, -0.75, 3};
  const Problem problem = outer(p, 1, 16, [](auto) { return 0.0; }, [&](auto c) { return x[c % 16]; });
  const HostTensor l = result(p, problem, "l"), e = result(p, problem, "e"), s = result(p, problem, "s");
  const auto same = [](double got, double want, double relative, double at, const char* name) {
    if (std::isnan(want)) EXPECT_TRUE(std::isnan(got)) << name << " of " << at;
    else if (std::isinf(want)) EXPECT_EQ(got, want) << name << " of " << at;
    else EXPECT_NEAR(got, want, relative * std::fabs(want)) << name << " of " << at;
  };
  for (std::int64_t c = 0; c < 16; ++c) {
    const double v = static_cast<float>(x[c]);
    same(load(l, c), std::log1p(v), 5e-7, v, "log1p");
    same(load(e, c), std::expm1(v), 5e-7, v, "expm1");
    same(load(s, c), v > 0 ? v + std::log1p(std::exp(-v)) : std::log1p(std::exp(v)), 5e-7, v, "softplus");
  }
}

TEST(Segments, that_halves_cut_are_right_in_two_passes) {
  const Program p = parse("program cut\n  gemm A: bf16[M, K], B: bf16[N, K]\n  a, b = split(max(acc, over segment(16)), halves)\n"
                          "  out y: bf16[M, N/2] = a + b\n");
  const Problem problem(p, 32, 48, 16);
  const Kernel kernel(p);
  EXPECT_EQ(check_run(kernel, problem, {}), "");
  const Arguments arguments(problem, {});
  EXPECT_NE(kernel.report(arguments.slots()).two_pass.find("segments of 16, which aren't whole in N/2 = 24"), std::string::npos);
}

}  // namespace
}  // namespace coda::test
