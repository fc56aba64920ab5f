// Softmax statistics, picks and losses at the places where fused kernels have gone wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "coda/text.hpp"
#include "problem.hpp"

namespace coda::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Arguments whose product is logits[m, n] = scale_a(m) * value_b(n), exactly representable: K = 8, one column used.
std::function<bool(const Slot&, const Tensor&)> outer(std::function<double(std::int64_t)> a, std::function<double(std::int64_t)> b,
                                                      std::function<double(std::int64_t)> target = nullptr) {
  return [=](const Slot& s, const Tensor& t) {
    if (s.role == Slot::Role::a || s.role == Slot::Role::b) {
      for (std::int64_t i = 0; i < t.numel(); ++i) store(t, i, 0);
      for (std::int64_t r = 0; r < t.shape[0]; ++r) store(t, r * t.shape[1], s.role == Slot::Role::a ? a(r) : b(r));
      return true;
    }
    if (s.name == "ignore") store(t, 0, -100);
    if (s.name == "target" && target) {
      for (std::int64_t r = 0; r < t.shape[0]; ++r) store(t, r, target(r));
      return true;
    }
    return false;
  };
}

// The column of output `name`, after a launch that was checked against fp64.
HostTensor checked(const Program& p, const Problem& problem, std::string_view name, const std::string& config = "") {
  const Kernel kernel(p, {.config = config});
  EXPECT_EQ(check_run(kernel, problem, {}), "");
  Arguments arguments(problem, {});
  kernel.launch(arguments.slots());
  return arguments.tensor(name).download();
}

const Program& loss_program() {
  static const Program p = load_program("linear_cross_entropy");
  return p;
}

TEST(Softmax, all_negative_logits_are_not_beaten_by_the_zeros_of_a_ragged_tile) {
  for (std::int64_t n : {1160, 1040, 129, 1}) {
    const Problem problem(loss_program(), 70, n, 8, 1, outer([](auto m) { return 1 + double(m % 3); }, [](auto c) { return -5.0 - double(c % 7); },
                                                              [n](auto m) { return double(m % n); }));
    const HostTensor zmax = checked(loss_program(), problem, "zmax");
    for (std::int64_t m = 0; m < 70; ++m) EXPECT_EQ(load(zmax, m), -5.0 * (1 + double(m % 3))) << "row " << m << ", N = " << n;
  }
}

TEST(Softmax, logits_of_1300_do_not_overflow) {
  const Problem problem(loss_program(), 64, 1000, 8, 1, outer([](auto m) { return m % 2 ? 1300.0 : -1300.0; }, [](auto c) { return c % 2 ? 1.0 : -1.0; },
                                                               [](auto m) { return double(m); }));
  const HostTensor loss = checked(loss_program(), problem, "loss");
  for (std::int64_t m = 0; m < 64; ++m) EXPECT_TRUE(std::isfinite(load(loss, m)) && load(loss, m) >= 0) << load(loss, m);
}

TEST(Softmax, targets_on_both_sides_of_every_tile_boundary_are_picked) {
  const std::int64_t edges[] = {0, 7, 8, 15, 16, 31, 32, 63, 64, 95, 96, 127, 128, 159, 160, 191, 192, 255, 256, 319, 320, 383, 384, 1022, 1023};
  const auto count = static_cast<std::int64_t>(std::size(edges));
  auto make = outer([](auto) { return 1.0; }, [](auto c) { return double(c % 251) / 8; }, [&](auto m) { return double(edges[m % count]); });
  const Problem problem(loss_program(), 2 * count, 1024, 8, 1, make);
  const Arguments sample(problem, {});
  for (const std::string& config : Kernel(loss_program()).configurations(sample.slots())) {
    if (config.find("_c1") == std::string::npos && config.find("_c11") == std::string::npos) continue;
    const HostTensor loss = checked(loss_program(), problem, "loss", config);
    const double reference = load(loss, 0) ;
    for (std::int64_t m = 0; m < 2 * count; ++m)
      EXPECT_NEAR(load(loss, m) + double(edges[m % count] % 251) / 8, reference, 1e-4) << "target " << edges[m % count] << " with " << config;
  }
}

TEST(Softmax, a_vocabulary_of_128256_picks_beyond_16_bits) {
  const std::int64_t n = 128256;
  const std::int64_t targets[] = {0, 32767, 32768, 40959, 65535, 65536, 128255};
  const Problem problem(loss_program(), 7, n, 8, 1, outer([](auto) { return 1.0; }, [](auto c) { return double(c % 509) / 16; }, [&](auto m) { return double(targets[m]); }));
  checked(loss_program(), problem, "loss");
}

TEST(Softmax, ignored_rows_have_loss_zero_and_nothing_else_is_ignored) {
  const Problem problem(loss_program(), 90, 260, 8, 1, outer([](auto) { return 1.0; }, [](auto c) { return double(c % 5); },
                                                              [](auto m) { return m % 3 == 0 ? -100.0 : double(m); }));
  const HostTensor loss = checked(loss_program(), problem, "loss");
  for (std::int64_t m = 0; m < 90; ++m) {
    if (m % 3 == 0) {
      EXPECT_EQ(load(loss, m), 0);
    } else {
      EXPECT_GT(load(loss, m), 0);
    }
  }
}

TEST(Softmax, minus_infinity_and_nan_go_where_the_formula_sends_them) {
  // Column 5 of every row is -inf; rows of scale 0 hold NaN there (0 times inf).
  const Problem problem(loss_program(), 40, 200, 8, 1, outer([](auto m) { return m % 4 == 0 ? 0.0 : 1.0; }, [](auto c) { return c == 5 ? -infinity : 1.0; },
                                                              [](auto m) { return m % 8 == 1 ? 5.0 : 6.0; }));
  const HostTensor loss = checked(loss_program(), problem, "loss");
  EXPECT_TRUE(std::isnan(load(loss, 0)));
  EXPECT_EQ(load(loss, 1), infinity);
  EXPECT_NEAR(load(loss, 2), std::log(199.0), 1e-5);
}

TEST(Softmax, a_target_out_of_range_gives_nan) {
  const Problem problem(loss_program(), 10, 100, 8, 1, outer([](auto) { return 1.0; }, [](auto c) { return double(c % 5); },
                                                              [](auto m) { return m == 4 ? 100.0 : m == 5 ? -1.0 : 3.0; }));
  Arguments arguments(problem, {});
  Kernel(loss_program()).launch(arguments.slots());
  const HostTensor loss = arguments.tensor("loss").download();
  for (std::int64_t m = 0; m < 10; ++m) EXPECT_EQ(std::isnan(load(loss, m)), m == 4 || m == 5) << m;
}

TEST(Softmax, of_32_bit_targets_is_the_same) {
  Program narrow = loss_program();
  for (Operand& o : narrow.operands)
    if (o.name == "target" || o.name == "ignore") o.dtype = DType::i32;
  check(narrow);
  const auto make = outer([](auto m) { return double(m % 5); }, [](auto c) { return double(c % 13) / 4; }, [](auto m) { return double(m * 3); });
  const HostTensor wide_loss = checked(loss_program(), Problem(loss_program(), 60, 200, 8, 1, make), "loss");
  const HostTensor narrow_loss = checked(narrow, Problem(narrow, 60, 200, 8, 1, make), "loss");
  EXPECT_TRUE(same_bits(wide_loss, narrow_loss));
}

TEST(Reductions, of_columns_with_ragged_rows_take_no_part_of_what_is_outside) {
  const Program p = load_program("norm_backward");
  for (std::int64_t m : {416, 440, 456, 65, 1}) EXPECT_EQ(check_run(Kernel(p), Problem(p, m, 264, 64, 2), {}), "") << m;
}

TEST(Statistics, come_from_the_unrounded_accumulator) {
  // acc is nearly -residual: what is left is far below bf16's step of either, and rstd must see it.
  const Program p = load_program("residual_norm");
  const Problem problem(p, 64, 256, 64, 3, [](const Slot& s, const Tensor& t) {
    const bool a = s.role == Slot::Role::a, b = s.role == Slot::Role::b;
    if (!a && !b && s.name != "residual") return false;
    for (std::int64_t i = 0; i < t.numel(); ++i) store(t, i, a ? 1.0 + double(i % 3) / 128 : b ? double(i % 5) / 4 : -32.0);
    return true;
  });
  EXPECT_EQ(check_run(Kernel(p), problem, {}), "");
}

}  // namespace
}  // namespace coda::test
