// The CPU engine against the fp64 evaluator and the unfused path: every standard program, ragged sizes, both types.
#include <gtest/gtest.h>

#include <cstring>

#include "coda/compare.hpp"
#include "coda/inputs.hpp"
#include "coda/text.hpp"
#include "support/reduction_programs.hpp"

namespace {

using namespace coda;

void check_program(const Program& p, const Extents& e, std::uint64_t seed) {
  const Inputs inputs = make_inputs(p, {.extents = e, .symbols = {}, .seed = seed});
  const Expected expected = expect(p, inputs.slots);
  ASSERT_NO_THROW(cpu::run(p, inputs.slots)) << p.name;
  const std::vector<Tensor> outputs(inputs.slots.end() - static_cast<std::ptrdiff_t>(p.outputs.size()),
                                    inputs.slots.end());
  for (const OutputError& error : compare(p, expected, outputs)) {
    EXPECT_TRUE(error.ok) << p.name << " at " << e.m << " x " << e.n << " x " << e.k << ", " << name_of(p.a_dtype)
                          << ": " << describe(error);
  }
}

class Standard : public testing::TestWithParam<DType> {};

TEST_P(Standard, programs_are_as_near_fp64_as_the_unfused_path) {
  for (const std::string& name : standard_programs()) {
    if (name == "weight_grad_bf16" && GetParam() == DType::f16) continue;  // += is into f32 and bf16 alone
    const Program p = load_program(name).with_dtype(GetParam());
    check_program(p, {37, 256, 64}, 1);
    check_program(p, {270, 640, 40}, 2);
    check_program(p, {1, 128, 8}, 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Standard, testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& i) { return std::string(name_of(i.param)); });

TEST(Reductions, of_every_kind_are_as_near_fp64_as_the_unfused_path) {
  for (const Program& program : test::reduction_programs()) {
    for (const DType t : {DType::f32, DType::bf16}) {
      const Program p = program.with_dtype(t);
      check_program(p, {37, 256, 64}, 1);
      check_program(p, {270, 1152, 40}, 2);
      check_program(p, {1, 64, 8}, 3);
    }
  }
}

}  // namespace
