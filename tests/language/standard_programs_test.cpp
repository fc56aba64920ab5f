// Every standard program parses, checks and round-trips, with every setting of its flags.
#include <gtest/gtest.h>

#include "coda/text.hpp"

namespace coda {
namespace {

void expect_round_trip(const Program& p) {
  const std::string text = print(p);
  const Program again = parse(text, {}, p.name);
  EXPECT_TRUE(again == p) << text << "\nbecame\n" << print(again);
  EXPECT_EQ(print(again), text);
  EXPECT_EQ(again.structural_hash(), p.structural_hash());
}

TEST(StandardPrograms, AreSortedAndThere) {
  const auto names = standard_programs();
  EXPECT_GE(names.size(), 20u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_NE(std::find(names.begin(), names.end(), "norm_swiglu"), names.end());
}

TEST(StandardPrograms, RoundTripThroughText) {
  for (const std::string& name : standard_programs()) {
    SCOPED_TRACE(name);
    const Program p = load_program(name);
    EXPECT_EQ(p.name, name);
    EXPECT_FALSE(p.doc.empty()) << "a standard program says its formula in its head comment";
    expect_round_trip(p);
  }
}

TEST(StandardPrograms, CheckWithEveryFlagSetAloneAndAllTogether) {
  for (const std::string& name : standard_programs()) {
    const Program plain = load_program(name);
    ParamValues all;
    for (const Param& param : plain.params) {
      if (param.value != 0) continue;  // an extent, not a flag
      all[param.name] = 1;
      for (std::int64_t value : {1, 2}) {
        SCOPED_TRACE(name + " with " + param.name + " = " + std::to_string(value));
        expect_round_trip(load_program(name, {{param.name, value}}));
      }
    }
    if (all.empty()) continue;
    SCOPED_TRACE(name + " with every flag");
    expect_round_trip(load_program(name, all));
  }
}

TEST(StandardPrograms, LoseAnyOutputAndStillCheck) {
  for (const std::string& name : standard_programs()) {
    const Program p = load_program(name);
    if (p.outputs.size() == 1) continue;
    for (const Output& o : p.outputs) {
      SCOPED_TRACE(name + " without " + o.name);
      const Program less = p.without(o.name);
      EXPECT_EQ(less.outputs.size(), p.outputs.size() - 1);
      expect_round_trip(less);
    }
  }
}

TEST(StandardPrograms, TakeOtherElementTypes) {
  for (const std::string& name : standard_programs())
    for (DType t : {DType::f32, DType::f16}) {
      SCOPED_TRACE(name);
      Program p = load_program(name);
      bool accumulates_bf16 = false;
      for (const Output& o : p.outputs) accumulates_bf16 |= o.accumulate && o.dtype == DType::bf16;
      if (accumulates_bf16 && t == DType::f16) {
        EXPECT_THROW(p.with_dtype(t), Error);
        continue;
      }
      const Program q = p.with_dtype(t);
      EXPECT_EQ(q.a_dtype, t);
      EXPECT_NE(q.structural_hash(), p.structural_hash());
      expect_round_trip(q);
    }
}

TEST(LoadProgram, NamesWhatIsMissing) {
  try {
    load_program("norm_swigly");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::io);
    EXPECT_STREQ(e.what(), "'norm_swigly' is neither a file nor a standard program; did you mean 'norm_swiglu'?");
  }
  EXPECT_THROW(load_program("no/such/file.coda"), Error);
  EXPECT_THROW(load_program("/"), Error);
}

TEST(LoadProgram, RefusesParamsThatTheProgramDoesNotHave) {
  try {
    load_program("norm_rope", {{"heads", 3}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::value);
    EXPECT_NE(std::string(e.what()).find("'heads'"), std::string::npos);
  }
}

}  // namespace
}  // namespace coda
