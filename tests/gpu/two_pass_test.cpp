// Programs and arguments that no tile can hold, on the GPU in two passes: right, repeatable, in explicit workspaces.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "coda/text.hpp"
#include "cuda/driver.hpp"
#include "problem.hpp"
#include "support/random_program.hpp"
#include "support/untiled_programs.hpp"

namespace coda::test {
namespace {

std::int64_t round_up(std::int64_t v, std::int64_t unit) { return (v + unit - 1) / unit * unit; }
Placement rows(std::int64_t k) { return {.padding = (8 - k % 8) % 8}; }
Layouts plain(std::int64_t k) { return {rows(k), rows(k), {}, {}, "contiguous rows"}; }

TEST(TwoPass, runs_what_no_tile_can_hold_and_says_why) {
  for (const UntiledProgram& u : untiled_programs()) {
    const Kernel kernel(u.program);
    struct Size { std::int64_t m, n, k; };
    for (const Size s : {Size{1, 1, 1}, Size{63, 100, 72}, Size{300, 520, 136}, Size{1500, 700, 48}, Size{5, 20, 0}}) {
      const Problem problem(u.program, s.m, round_up(s.n, column_divisor(u.program)), s.k, static_cast<unsigned>(s.m));
      EXPECT_EQ(check_run(kernel, problem, plain(s.k)), "") << u.name << " on " << s.m << " x " << s.n << " x " << s.k;
    }
    const Problem problem(u.program, 64, round_up(128, column_divisor(u.program)), 64);
    const Arguments arguments(problem, plain(64));
    const KernelReport r = kernel.report(arguments.slots());
    EXPECT_TRUE(r.config.starts_with("two_pass_")) << r.config;
    EXPECT_NE(r.two_pass.find(u.reason), std::string::npos) << r.two_pass;
    EXPECT_GT(kernel.workspace_bytes(arguments.slots()), 64u * 128 * 4);
  }
}

class TwoPassStandard : public ::testing::TestWithParam<std::string> {};

TEST_P(TwoPassStandard, is_right_in_two_passes_too) {
  const Program p = load_program(GetParam());
  const Kernel kernel(p, {.config = "two_pass"});
  const std::int64_t m = 257, n = round_up(330, column_divisor(p)), k = 88;
  const Problem problem(p, m, n, k, 5);
  for (const Layouts& l : {plain(k), Layouts{rows(k), rows(k), {.padding = 1, .offset = 1}, {.padding = 3, .offset = 1}, "unaligned operands and outputs"},
                           Layouts{rows(k), {.transposed = true, .padding = (8 - n % 8) % 8}, {.transposed = true}, {.transposed = true}, "B, operands and outputs by columns"}})
    EXPECT_EQ(check_run(kernel, problem, l), "");
}

INSTANTIATE_TEST_SUITE_P(Gpu, TwoPassStandard, ::testing::ValuesIn(standard_programs()), [](const auto& info) { return info.param; });

TEST(TwoPass, is_the_way_of_halves_of_a_column_major_B_that_start_between_16_bytes) {
  const Program p = load_program("norm_swiglu");
  const Problem problem(p, 64, 132, 64);
  const Layouts l{.a = {}, .b = {.transposed = true, .padding = 4}, .operand = {}, .output = {}, .name = "B by columns"};
  const Kernel kernel(p);
  EXPECT_EQ(check_run(kernel, problem, l), "");
  const Arguments arguments(problem, l);
  EXPECT_NE(kernel.report(arguments.slots()).two_pass.find("N/2"), std::string::npos);
}

TEST(TwoPass, finishes_reductions_of_an_empty_product) {
  const Program p = parse("program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  finish r: f32[M] = sum(acc, over n) + 1.0\n  finish c: f32[N] = max(acc, over m)\n"
                          "  finish t: f32[] = sum(acc, over mn) - 2.0\n");
  for (const auto& [m, n] : {std::pair{0, 40}, {40, 0}, {0, 0}}) {
    const Problem problem(p, m, n, 16);
    EXPECT_EQ(check_run(Kernel(p), problem, plain(16)), "") << m << " x " << n;
  }
}

TEST(TwoPass, tunes_its_product) {
  const Program p = load_program("norm_rope", {{"D", 80}, {"R", 32}});
  const Problem problem(p, 192, 480, 96);
  const Kernel kernel(p, {.tune = true});
  EXPECT_EQ(check_run(kernel, problem, plain(96)), "");
  EXPECT_TRUE(kernel.report(Arguments(problem, plain(96)).slots()).tuned);
}

TEST(TwoPass, runs_again_and_again_in_a_workspace_of_the_callers) {
  const Program p = load_program("norm_qknorm_rope", {{"D", 80}});
  const Problem problem(p, 200, 480, 64, 3);
  Arguments arguments(problem, plain(64));
  const auto slots = arguments.slots();
  const Kernel kernel(p);
  const std::size_t bytes = kernel.workspace_bytes(slots);
  cuda::DeviceBuffer memory(0, bytes);
  cuda::ContextScope scope(0);
  CODA_CUDA(cuMemsetD8Async, memory.address(), static_cast<unsigned char>(0), bytes, nullptr);
  CODA_CUDA(cuStreamSynchronize, nullptr);
  EXPECT_THROW(kernel.launch(slots, nullptr, {memory.data(), bytes - 1}), Error);
  for (int i = 0; i < 3; ++i) kernel.launch(slots, nullptr, {memory.data(), bytes});
  EXPECT_EQ(problem.judge(arguments.outputs()), "");
  EXPECT_EQ(arguments.faults(), "");
}

}  // namespace
}  // namespace coda::test
