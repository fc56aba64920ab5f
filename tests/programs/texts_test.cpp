// What every standard program's text must be.
#include <gtest/gtest.h>

#include <algorithm>

#include "coda/program.hpp"
#include "coda/text.hpp"

namespace coda::test {
namespace {

TEST(StandardPrograms, AreAllThatTheOperatorsNeed) {
  const std::vector<std::string> names = standard_programs();
  for (const char* name : {"linear",
                           "linear_bias",
                           "linear_alpha",
                           "linear_quantise",
                           "residual_norm",
                           "norm_linear",
                           "norm_swiglu",
                           "norm_geglu",
                           "norm_reglu",
                           "norm_swiglu_clamped_a",
                           "norm_swiglu_clamped_b",
                           "norm_gelu",
                           "norm_rope",
                           "norm_rope_adjacent",
                           "norm_qknorm_rope",
                           "residual_layernorm",
                           "layernorm_linear",
                           "layernorm_gelu",
                           "linear_cross_entropy",
                           "cross_entropy_backward",
                           "loss_mean",
                           "norm_backward",
                           "rope_backward",
                           "layernorm_backward",
                           "swiglu_backward",
                           "geglu_backward",
                           "reglu_backward",
                           "swiglu_clamped_a_backward",
                           "swiglu_clamped_b_backward",
                           "gelu_backward",
                           "layernorm_gelu_backward",
                           "weight_grad",
                           "weight_grad_bf16"})
    EXPECT_TRUE(std::count(names.begin(), names.end(), name)) << name;
}

TEST(StandardPrograms, BearTheirFilesNameAndAFormula) {
  for (const std::string& name : standard_programs()) {
    const Program p = load_program(name);
    EXPECT_EQ(p.name, name);
    EXPECT_NE(p.doc.find('='), std::string::npos) << name << " has no formula in its head comment";
  }
}

TEST(StandardPrograms, RoundTripThroughTheirCanonicalText) {
  for (const std::string& name : standard_programs()) {
    const Program p = load_program(name);
    const Program again = parse(print(p));
    EXPECT_EQ(again, p) << name;
    EXPECT_EQ(again.structural_hash(), p.structural_hash()) << name;
  }
}

TEST(StandardPrograms, ComputeDifferentThings) {
  std::map<std::uint64_t, std::string> seen;
  for (const std::string& name : standard_programs()) {
    const auto [other, fresh] = seen.emplace(load_program(name).structural_hash(), name);
    EXPECT_TRUE(fresh) << name << " computes the same as " << other->second;
  }
}

TEST(StandardPrograms, TakeNoOperandForAnOptionThatIsOff) {
  const Program off = load_program("linear_cross_entropy");
  for (const char* name : {"rstd", "bias", "cap", "smooth", "z_weight"}) EXPECT_FALSE(off.slot(name)) << name;
  const Program on =
      load_program("linear_cross_entropy",
                   {{"with_norm", 1}, {"with_bias", 1}, {"with_softcap", 1}, {"smoothing", 1}, {"with_z_loss", 1}});
  for (const char* name : {"rstd", "bias", "cap", "smooth", "z_weight"}) EXPECT_TRUE(on.slot(name)) << name;
}

}  // namespace
}  // namespace coda::test
