// parse(print(p)) == p and print(parse(t)) == t, on random programs.
#include <gtest/gtest.h>

#include "coda/text.hpp"
#include "support/random_program.hpp"

namespace coda {
namespace {

void expect_round_trip(const Program& p) {
  const std::string text = print(p);
  Program again;
  ASSERT_NO_THROW(again = parse(text)) << text;
  ASSERT_TRUE(again == p) << text << "\nbecame\n" << print(again);
  ASSERT_EQ(print(again), text);
  ASSERT_EQ(again.structural_hash(), p.structural_hash());
  ASSERT_EQ(again.doc, p.doc);
  for (std::size_t i = 0; i < p.nodes.size(); ++i) ASSERT_EQ(again.nodes[i].type, p.nodes[i].type);
}

TEST(RandomPrograms, RoundTripWhenTame) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_NO_FATAL_FAILURE(expect_round_trip(test::random_program(seed)));
  }
}

TEST(RandomPrograms, RoundTripWhenWild) {
  test::RandomProgramOptions o;
  o.tame = false;
  o.fp8 = true;
  o.max_depth = 6;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_NO_FATAL_FAILURE(expect_round_trip(test::random_program(seed, o)));
  }
}

TEST(RandomPrograms, AreTheSameForTheSameSeed) {
  EXPECT_TRUE(test::random_program(7) == test::random_program(7));
  EXPECT_FALSE(test::random_program(7) == test::random_program(8));
}

TEST(RandomPrograms, StayCheckedWithoutAnyOutput) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const Program p = test::random_program(seed);
    if (p.outputs.size() == 1) continue;
    for (const Output& o : p.outputs) ASSERT_NO_FATAL_FAILURE(expect_round_trip(p.without(o.name)));
  }
}

TEST(RandomPrograms, UseTheWholeVocabulary) {
  std::vector<int> seen(256, 0);
  for (std::uint64_t seed = 0; seed < 500; ++seed)
    for (const Node& n : test::random_program(seed).nodes) ++seen[static_cast<std::size_t>(n.op)];
  for (int op = 0; op <= static_cast<int>(Op::softplus); ++op)
    EXPECT_GT(seen[static_cast<std::size_t>(op)], 0) << name_of(static_cast<Op>(op));
}

}  // namespace
}  // namespace coda
