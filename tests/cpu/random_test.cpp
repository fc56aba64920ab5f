// Random programs on the CPU engine: near fp64, in any layout, the same bits from any number of threads, nothing
// written but the outputs.
#include <gtest/gtest.h>

#include <cmath>

#include "arguments.hpp"
#include "coda/compare.hpp"
#include "coda/text.hpp"
#include "support/random_program.hpp"

namespace {

using namespace coda;
using test::Guarded;

class RandomPrograms : public testing::TestWithParam<int> {};

/// Extents that the program accepts, ragged where it allows, small enough for fp64.
Extents extents_for(const Program& p, std::uint64_t seed) {
  const std::int64_t divisor = test::column_divisor(p);
  const std::int64_t most = seed % 3 == 0 ? 1100 : 200;  // several tiles of columns now and then
  return {1 + static_cast<std::int64_t>(seed * 7 % 90),
          divisor * (1 + static_cast<std::int64_t>(seed * 13 % std::max<std::int64_t>(1, most / divisor))),
          static_cast<std::int64_t>(seed * 5 % 50)};
}

TEST_P(RandomPrograms, are_as_near_fp64_as_the_unfused_path_in_any_layout) {
  for (int i = 0; i < 12; ++i) {
    const auto seed = static_cast<std::uint64_t>(1000 * GetParam() + i);
    const DType types[] = {DType::f32, DType::bf16, DType::f16};
    const Program p = test::random_program(seed, {.fp8 = seed % 4 == 0, .dtype = types[seed % 3]});
    const Extents e = extents_for(p, seed);
    SCOPED_TRACE(testing::Message() << "seed " << seed << " at " << e.m << " x " << e.n << " x " << e.k << "\n"
                                    << print(p));
    const Inputs inputs = make_inputs(p, {.extents = e, .symbols = {}, .seed = seed});
    const Expected expected = expect(p, inputs.slots);

    std::vector<Guarded> guarded;
    std::vector<Tensor> slots;
    for (std::size_t s = 0; s < inputs.slots.size(); ++s) {
      guarded.emplace_back(inputs.slots[s], (seed >> (s % 5)) % 3 == 0, seed % 2 == 0 ? 3 : 0);
    }
    for (const Guarded& g : guarded) slots.push_back(g.view());
    ASSERT_NO_THROW(cpu::run(p, slots, {.threads = 2}));
    const std::size_t outputs_at = slots.size() - p.outputs.size();
    for (std::size_t s = 0; s < slots.size(); ++s) {
      if (s < outputs_at)
        EXPECT_TRUE(guarded[s].unchanged()) << "input " << p.slots()[s].name << " was written";
      else
        EXPECT_TRUE(guarded[s].guards_whole()) << "memory around output " << p.slots()[s].name << " was written";
    }
    for (const OutputError& error : compare(p, expected, test::outputs_of(p, slots)))
      EXPECT_TRUE(error.ok) << describe(error);

    // The same call, three threads, plain outputs: the same bits.
    std::vector<Tensor> again(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(outputs_at));
    for (std::size_t s = outputs_at; s < slots.size(); ++s) again.push_back(inputs.slots[s]);
    cpu::run(p, again, {.threads = 1});
    for (std::size_t s = outputs_at; s < slots.size(); ++s) {
      EXPECT_TRUE(test::same_bits(slots[s], again[s])) << p.slots()[s].name << " depends on threads or on its layout";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPrograms, testing::Range(0, 10));

TEST(RandomPrograms, of_wild_values_agree_on_where_NaN_and_infinities_go) {
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Program p = test::random_program(seed, {.picks = false, .tame = false, .dtype = DType::f32});
    const Extents e = {7, test::column_divisor(p) * 2, 5};
    if (e.n > 500) continue;
    const Inputs inputs = make_inputs(p, {.extents = e, .symbols = {}, .seed = seed});
    const std::vector<HostTensor> unfused = reference::unfused(p, inputs.slots);
    cpu::run(p, inputs.slots);
    const std::vector<Tensor> outputs = test::outputs_of(p, inputs.slots);
    std::int64_t different = 0, elements = 0;
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      for (std::int64_t i = 0; i < outputs[o].numel(); ++i) {
        const double got = load(outputs[o], i), want = load(unfused[o], i);
        ++elements;
        // An infinity may be a large number to the other side, and a condition on real values may fall either way.
        if (std::isnan(got) != std::isnan(want)) ++different;
      }
    }
    EXPECT_LE(different, elements / 20) << "seed " << seed << "\n" << print(p);
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

}  // namespace
