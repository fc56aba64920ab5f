// The choice of a plan: legal for every program, layout and size, and the kind of tile that measured best on an H200.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "coda/program.hpp"
#include "coda/text.hpp"
#include "cuda/emit.hpp"
#include "plan/plan.hpp"

namespace coda {
namespace {

std::string tile_of(const Plan& p) {
  return fmt::format("{}{}x{}", p.config.schedule == Schedule::pingpong ? "pp" : "co", p.config.bm, p.config.bn);
}

TEST(Choice, finds_a_legal_plan_for_every_standard_program_layout_and_direct_slot) {
  for (const std::string& name : standard_programs()) {
    const Program p = load_program(name);
    const auto slots = static_cast<int>(p.slots().size());
    std::uint32_t all = 0;
    for (int i = 2; i < slots; ++i) all |= 1u << i;
    for (Major a : {Major::k, Major::mn})
      for (Major b : {Major::k, Major::mn})
        for (std::uint32_t direct : {0u, all}) {
          Problem q = problem_of(p, 1000, 1024, 512, a, b);
          q.direct = direct;
          const Demand demand = demand_of(p, direct);
          const Plan plan = choose(demand, q);
          EXPECT_EQ(why_illegal(plan.config, demand), std::nullopt) << name;
          EXPECT_LE(shared_layout(plan.config, demand).total, max_shared_bytes) << name;
          EXPECT_EQ(plan.config.a_major, a);
          EXPECT_EQ(plan.config.b_major, b);
          EXPECT_EQ(plan.config.direct, direct);
        }
  }
}

TEST(Choice, offers_several_different_configurations_by_unique_names) {
  const Program p = load_program("linear");
  const auto all = candidates(demand_of(p), problem_of(p, 8192, 4096, 4096));
  EXPECT_GE(all.size(), 10u);
  std::set<std::string> names;
  for (const Plan& plan : all) names.insert(plan.config.name());
  EXPECT_EQ(names.size(), all.size());
  for (const Plan& plan : all) EXPECT_EQ(find_plan(plan.config.name(), demand_of(p), problem_of(p, 8192, 4096, 4096)), plan);
}

// Sustained measurements on an H200 (ratio to cuBLAS): wide products are fastest in pingpong 128x192 (gate/up 0.983 of
// 8B, 0.936 of 1B), narrow and deep ones in cooperative 128x256 (down 1.002; pingpong 128x128 lost 6-8 %).
TEST(Choice, agrees_with_what_measured_best_on_llama_shapes) {
  const Program p = load_program("linear");
  auto chosen = [&](std::int64_t n, std::int64_t k) { return tile_of(choose(demand_of(p), problem_of(p, 8192, n, k))); };
  auto one_of = [](const std::string& tile, std::initializer_list<const char*> good) { return std::find(good.begin(), good.end(), tile) != good.end(); };
  for (auto [n, k] : {std::pair(28672, 4096), std::pair(16384, 2048), std::pair(8192, 8192), std::pair(128256, 4096)})
    EXPECT_TRUE(one_of(chosen(n, k), {"pp128x192", "pp192x128", "co256x192", "co192x256"})) << n << " x " << k << ": " << chosen(n, k);
  for (auto [n, k] : {std::pair(4096, 14336), std::pair(2048, 8192)}) EXPECT_TRUE(one_of(chosen(n, k), {"co128x256", "co256x128"})) << n << " x " << k << ": " << chosen(n, k);
}

TEST(Choice, gives_small_products_enough_tiles) {
  const Program p = load_program("linear");
  for (auto [m, n, k] : {std::tuple(512, 4096, 4096), std::tuple(1000, 1000, 736), std::tuple(64, 4096, 4096), std::tuple(128, 128, 8192)}) {
    const Plan plan = choose(demand_of(p), problem_of(p, m, n, k));
    const auto tiles = ((m + plan.config.bm - 1) / plan.config.bm) * ((n + plan.config.bn - 1) / plan.config.bn) * plan.config.split;
    const auto most = ((m + 63) / 64) * ((n + 63) / 64);
    EXPECT_GE(tiles, std::min(most / 2, 64)) << m << " x " << n << " x " << k << ": " << plan.config.name();
  }
}

TEST(Choice, refuses_with_each_configurations_reason_where_nothing_is_legal) {
  Demand impossible = demand_of(load_program("linear"));
  impossible.segment = 4096;
  try {
    choose(impossible, problem_of(load_program("linear"), 64, 4096, 64));
    FAIL() << "a segment of 4096 columns fits in no tile";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(e.what()).find("128x256"), std::string::npos) << e.what();
  }
}

TEST(Choice, costs_more_for_more_work) {
  const Program p = load_program("linear");
  const Demand demand = demand_of(p);
  for (const Plan& plan : candidates(demand, problem_of(p, 4096, 4096, 4096))) {
    const double base = estimate(plan, demand, problem_of(p, 4096, 4096, 4096));
    EXPECT_GT(estimate(plan, demand, problem_of(p, 16384, 4096, 4096)), base);
    EXPECT_GT(estimate(plan, demand, problem_of(p, 4096, 16384, 4096)), base);
    EXPECT_GT(estimate(plan, demand, problem_of(p, 4096, 4096, 16384)), base);
  }
}

TEST(Traffic, counts_what_the_epilogue_moves_for_each_element) {
  EXPECT_EQ(tile_traffic(load_program("linear")), 2);
  EXPECT_EQ(tile_traffic(load_program("norm_swiglu")), 2 + 1);
  EXPECT_EQ(tile_traffic(load_program("residual_norm")), 2 + 2 + 2);
  EXPECT_EQ(tile_traffic(load_program("weight_grad")), 8);
}

}  // namespace
}  // namespace coda
