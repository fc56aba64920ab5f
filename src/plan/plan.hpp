// A plan: how a program runs on given extents and one device. Which configurations are worth a thought, what the cost
// model says of each, and the choice.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/config.hpp"

namespace coda {

class Program;

/// What a choice depends on, beside the program's Demand.
struct Problem {
  std::int64_t m = 0, n = 0, k = 0;
  Major a_major = Major::k, b_major = Major::k;
  std::uint32_t direct = 0;   ///< argument slots that TMA can't take
  int multiprocessors = 132;
  double tile_bytes = 2;      ///< bytes the epilogue moves for each element of the product (tile_traffic)
  double tile_cycles = 0;     ///< cycles of one multiprocessor that it computes for each (tile_work)
  bool operator==(const Problem&) const = default;
};

struct Plan {
  Config config;
  int group = 8;    ///< tiles walk in bands of so many cluster tiles ...
  int raster = 0;   ///< ... along M (0) or N (1)
  bool operator==(const Plan&) const = default;
};

/// Bytes that a program's epilogue reads and writes for each element of the product: outputs and matrix operands. An
/// accumulating output counts twice.
double tile_traffic(const Program& p);

/// Cycles of one multiprocessor that a program's epilogue computes for each element of the product, at full rate.
double tile_work(const Program& p);

/// A program on these extents and layouts: what every choice for it starts from.
Problem problem_of(const Program& p, std::int64_t m, std::int64_t n, std::int64_t k, Major a_major = Major::k, Major b_major = Major::k);

/// Estimated multiprocessor cycles of a launch, weighted for the power that data movement costs (see choice.cpp). A plan
/// is compared with another by it; it is no prediction of a time.
double estimate(const Plan& plan, const Demand& demand, const Problem& problem);

/// The legal plans worth timing, cheapest first by estimate(). Empty only where no configuration is legal.
std::vector<Plan> candidates(const Demand& demand, const Problem& problem);

/// Plans with the same tile, schedule and cluster as `plan`, and every legal chunk, staging and prefetch depth. The first
/// is the one that candidates() has; the others are what a sweep tries.
std::vector<Plan> pipelines(const Plan& plan, const Demand& demand);

/// The first of candidates(). Throws Error(unsupported) with each configuration's reason where none is legal.
Plan choose(const Demand& demand, const Problem& problem);

/// The configuration of that name (Config::name()) among the candidates and their pipelines, or nothing.
std::optional<Plan> find_plan(const std::string& name, const Demand& demand, const Problem& problem);

/// The walk that a configuration gets: bands of 2048 rows.
Plan with_walk(const Config& config);

}  // namespace coda
