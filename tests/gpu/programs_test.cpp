// Every standard program on the GPU: ragged sizes, layouts and configurations, against fp64, with guard bands, inputs
// compared bit for bit and bitwise reruns.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

#include "coda/error.hpp"
#include "coda/text.hpp"
#include "layouts.hpp"
#include "support/random_program.hpp"

namespace coda::test {
namespace {

class StandardProgram : public ::testing::TestWithParam<std::string> {};

TEST_P(StandardProgram, is_right_at_ragged_sizes) {
  const Program p = load_program(GetParam());
  const Kernel kernel(p);
  const std::int64_t g = column_divisor(p);
  struct Size { std::int64_t m, n, k; };
  for (const Size s : {Size{1, 1, 1}, Size{3, 8, 8}, Size{63, 40, 72}, Size{64, 128, 64}, Size{127, 129, 65}, Size{129, 257, 200}, Size{300, 520, 136}, Size{257, 1001, 48}}) {
    const std::int64_t n = round_up(s.n, g);
    const Problem problem(p, s.m, n, s.k, static_cast<unsigned>(s.m));
    EXPECT_EQ(check_run(kernel, problem, plain(s.k)), "") << s.m << " x " << n << " x " << s.k;
  }
}

TEST_P(StandardProgram, is_right_in_every_layout) {
  const Program p = load_program(GetParam());
  const Kernel kernel(p);
  const std::int64_t m = 201, k = 88;
  // An N-major B of halves needs N/2 to be a multiple of 8: a size of its own.
  const std::int64_t n = round_up(330, column_divisor(p)), n16 = round_up(330, std::lcm(column_divisor(p), 16));
  const Problem problem(p, m, n, k, 7), by_columns(p, m, n16, k, 8);
  for (const Layouts& l : layouts_of(m, n, k)) {
    if (l.b.transposed) continue;
    EXPECT_EQ(check_run(kernel, problem, l), "");
  }
  for (const Layouts& l : layouts_of(m, n16, k)) EXPECT_EQ(check_run(kernel, by_columns, l), "");
}

TEST_P(StandardProgram, is_right_in_every_configuration) {
  const Program p = load_program(GetParam());
  const std::int64_t m = 333, n = round_up(650, column_divisor(p)), k = 1096;
  const Problem problem(p, m, n, k, 3);
  const Layouts l = plain(k);
  const Arguments arguments(problem, l);
  const auto slots = arguments.slots();
  std::vector<Kernel> kernels;
  for (const std::string& name : varied(Kernel(p).configurations(slots))) kernels.emplace_back(p, KernelOptions{.config = name});
  ASSERT_FALSE(kernels.empty());
  prepare_all(kernels, slots);
  for (const Kernel& kernel : kernels) EXPECT_EQ(check_run(kernel, problem, l), "");
}

TEST_P(StandardProgram, is_right_where_a_block_computes_many_tiles) {
  // 3 or more tiles of any configuration for each of 132 multiprocessors; the statistics' buffers are used again.
  const Program p = load_program(GetParam());
  const std::int64_t m = 2570, n = round_up(5200, column_divisor(p)), k = 40;
  const Problem problem(p, m, n, k, 5);
  const Layouts l = plain(k);
  const Arguments arguments(problem, l);
  const auto slots = arguments.slots();
  // One configuration of each schedule is enough here.
  std::vector<Kernel> kernels;
  std::set<std::string> kinds;
  for (const std::string& name : Kernel(p).configurations(slots))
    if (kinds.insert(name.substr(0, 2)).second) kernels.emplace_back(p, KernelOptions{.config = name});
  prepare_all(kernels, slots);
  for (const Kernel& kernel : kernels) EXPECT_EQ(check_run(kernel, problem, l), "");
}

INSTANTIATE_TEST_SUITE_P(Gpu, StandardProgram, ::testing::ValuesIn(standard_programs()),
                         [](const auto& info) { return info.param; });

TEST(Options, of_the_standard_programs_are_right) {
  struct Option { const char* program; ParamValues params; };
  const Option options[] = {
      {"norm_rope", {{"D", 64}}}, {"norm_rope", {{"D", 64}, {"R", 32}}}, {"norm_rope", {{"D", 96}, {"R", 32}}},
      {"norm_qknorm_rope", {{"D", 64}}}, {"norm_rope_adjacent", {{"D", 64}}},
      {"linear_cross_entropy", {{"with_norm", 1}, {"with_bias", 1}, {"smoothing", 1}, {"with_z_loss", 1}}},
      {"linear_cross_entropy", {{"with_softcap", 1}, {"smoothing", 2}}},
      {"cross_entropy_backward", {{"with_norm", 1}, {"with_bias", 1}, {"smoothing", 1}, {"with_z_loss", 1}, {"with_softcap", 1}}},
      {"norm_backward", {{"zero_centred", 1}}}, {"norm_geglu", {{"approximate", 1}}},
  };
  for (const Option& o : options) {
    const Program p = load_program(o.program, o.params);
    const Problem problem(p, 190, round_up(500, column_divisor(p)), 104, 11);
    EXPECT_EQ(check_run(Kernel(p), problem, plain(104)), "") << o.program;
  }
}

class RandomPrograms : public ::testing::TestWithParam<int> {};  // blocks of five, so that shards share them

TEST_P(RandomPrograms, are_right_in_random_layouts_and_configurations) {
  std::mt19937 random(2026u + static_cast<unsigned>(GetParam()));
  auto pick = [&](std::int64_t below) { return static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(below)); };
  for (int i = 5 * GetParam(); i < 5 * GetParam() + 5; ++i) {
    const Program p = random_program(static_cast<std::uint64_t>(i) + 1);
    const std::int64_t m = 1 + pick(300), n = round_up(1 + pick(400), std::lcm(column_divisor(p), i % 2 ? 16 : 1)), k = 1 + pick(200);
    const Problem problem(p, m, n, k, static_cast<unsigned>(i));
    const auto layouts = layouts_of(m, n, k);
    const Layouts& l = layouts[static_cast<std::size_t>(pick(static_cast<std::int64_t>(layouts.size())))];
    const Arguments arguments(problem, l);
    const auto names = Kernel(p).configurations(arguments.slots());
    const std::string config = names[static_cast<std::size_t>(pick(static_cast<std::int64_t>(names.size())))];
    EXPECT_EQ(check_run(Kernel(p, {.config = config}), problem, l), "") << "seed " << i + 1 << ", " << m << " x " << n << " x " << k << "\n" << print(p);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, RandomPrograms, ::testing::Range(0, 8));

TEST(Types, f16_operands_are_right) {
  for (const char* name : {"linear", "residual_norm", "norm_swiglu", "weight_grad", "norm_backward"}) {
    const Program p = load_program(name).with_dtype(DType::f16);
    const Problem problem(p, 200, round_up(264, column_divisor(p)), 96, 13);
    EXPECT_EQ(check_run(Kernel(p), problem, plain(96)), "") << name;
  }
}

TEST(Types, f32_operands_go_through_the_tensor_cores_with_11_bits) {
  const Program p = load_program("linear").with_dtype(DType::f32);
  const Problem problem(p, 200, 264, 96, 13);
  Arguments arguments(problem, {});
  Kernel(p).launch(arguments.slots());
  std::vector<Tensor> views;
  const auto outputs = arguments.outputs();
  for (const HostTensor& o : outputs) views.push_back(o.view());
  const auto errors = compare(p, expect(p, std::vector<Tensor>{problem.host()[0].view(), problem.host()[1].view(), problem.host()[2].view()}), views);
  EXPECT_LT(errors[0].rms, 6e-4 * errors[0].scale);
  EXPECT_EQ(errors[0].faults, 0);
}

}  // namespace
}  // namespace coda::test
