// The fp64 evaluator and the unfused path, against numbers made by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "coda/compare.hpp"
#include "coda/inputs.hpp"
#include "coda/text.hpp"

namespace {

using namespace coda;

TEST(Reference, every_standard_program_has_sensible_inputs_and_an_unfused_path_near_fp64) {
  for (const std::string& name : standard_programs()) {
    const Program p = load_program(name);
    const Inputs inputs = make_inputs(p, {.extents = {24, 256, 64}, .symbols = {}, .seed = 3});
    const Expected e = expect(p, inputs.slots);
    for (std::size_t i = 0; i < p.outputs.size(); ++i) {
      double squares = 0, errors = 0;
      for (std::int64_t j = 0; j < e.exact[i].numel(); ++j) {
        const double want = load(e.exact[i], j);
        ASSERT_TRUE(std::isfinite(want)) << name << " " << p.outputs[i].name << " element " << j;
        squares += want * want;
        errors += std::pow(load(e.unfused[i], j) - want, 2);
      }
      EXPECT_GT(squares, 0) << name << " " << p.outputs[i].name;
      EXPECT_LT(std::sqrt(errors / squares), p.outputs[i].dtype == DType::e4m3 ? 0.05 : 0.02)
          << name << " " << p.outputs[i].name;
    }
  }
}

TEST(Reference, compare_accepts_the_unfused_path_and_refuses_a_wrong_element) {
  const Program p = load_program("norm_swiglu");
  const Inputs inputs = make_inputs(p, {.extents = {16, 64, 32}, .symbols = {}, .seed = 1});
  Expected e = expect(p, inputs.slots);
  std::vector<Tensor> outputs{e.unfused[0], e.unfused[1]};
  for (const OutputError& error : compare(p, e, outputs)) EXPECT_TRUE(error.ok) << describe(error);
  HostTensor wrong(DType::bf16, {16, 32});
  for (std::int64_t i = 0; i < wrong.numel(); ++i) store(wrong, i, load(e.unfused[1], i));
  store(wrong, 77, load(wrong, 77) + 0.1);
  outputs[1] = wrong;
  const std::vector<OutputError> errors = compare(p, e, outputs);
  EXPECT_TRUE(errors[0].ok);
  EXPECT_FALSE(errors[1].ok);
  EXPECT_EQ(errors[1].worst, 77);
  store(wrong, 77, NAN);
  EXPECT_EQ(compare(p, e, outputs)[1].faults, 1);
}

}  // namespace
