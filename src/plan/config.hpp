// A kernel configuration: tile, cluster, schedule, stages. An aggregate of named fields with a printable name; what is
// legal for a program, and how much shared memory it takes, are functions of it and of the program's Demand.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coda/dtype.hpp"

namespace coda {

/// cooperative: the consumer warpgroups split a tile's rows. pingpong: each owns whole tiles in turn, so that one's
/// epilogue runs under the other's mainloop.
enum class Schedule : std::uint8_t { cooperative, pingpong };

/// Which dimension of A or B is contiguous in memory: K, or the matrix's own M or N.
enum class Major : std::uint8_t { k, mn };

/// What a program asks of any configuration: `demand_of` (cuda/emit.hpp) derives it.
struct Demand {
  DType operand = DType::bf16;   ///< element type of A
  int pair_run = 0;              ///< columns are paired far apart, in runs of this many neighbours; -1: by halves of N
  int chunk_run = 0;             ///< a chunk must divide this (0: anything)
  int segment = 0;               ///< each part of a tile must hold whole segments of this many columns (0: none)
  bool wide = false;             ///< a matrix of 4-byte elements passes through shared memory
  bool crowded = false;          ///< what the epilogue keeps doesn't fit beside the largest accumulators
  int column_values = 0;         ///< floats a warp keeps for each column (reductions over m)
  bool column_picks = false;     ///< it picks over m
  std::vector<int> staged;       ///< for each box an output is staged in, its bytes for each column of a chunk
  std::vector<int> loaded;       ///< ... for each box of a tile operand
  std::vector<int> vectors;      ///< ... for each slice of a column vector
};

struct Config {
  int bm = 128, bn = 256;        ///< tile
  int warpgroups = 2;            ///< consumer warpgroups: 1, 2 or 3 (cooperative), 2 (pingpong)
  Schedule schedule = Schedule::cooperative;
  int cluster_m = 1, cluster_n = 1;  ///< 2x1: two tiles along M share B; 1x2: two along N share A
  int stages = 4;                ///< ring of A and B blocks, each 128 bytes deep in K
  int chunk = 32;                ///< columns of an epilogue step (of each member, where columns are paired far apart)
  int staging = 1;               ///< output slots a warp
  int prefetch = 2;              ///< tile-operand slots a warpgroup
  Major a_major = Major::k, b_major = Major::k;
  int split = 1;                 ///< parts along K of each tile from Params::split_from on; the last part runs the epilogue
  std::uint32_t direct = 0;      ///< bit i: argument slot i by plain global accesses (TMA can't take its layout)
  int producer_registers = 24, consumer_registers = 240;  ///< 32 and 160 with three consumer warpgroups

  bool operator==(const Config&) const = default;

  int cluster() const { return cluster_m * cluster_n; }
  int threads() const { return 128 * (warpgroups + 1); }
  /// Rows of the tile that one warpgroup computes.
  int warpgroup_rows() const { return schedule == Schedule::pingpong ? bm : bm / warpgroups; }
  bool is_direct(int slot) const { return slot < 32 && (direct >> slot & 1); }
  /// "pp128x192_c21_s5_e32x1p2_kk", then "_k4" for a split in 4 and "_d" with the mask where a slot is direct.
  std::string name() const;
};

/// Most shared memory a block may have on sm_90.
constexpr int max_shared_bytes = 232448;

/// Where the parts of a block's shared memory start (bytes); `total` is what a launch asks for.
struct SharedLayout {
  int a = 0, b = 0, staging = 0, operands = 0, slices = 0, columns = 0, barriers = 0, total = 0;
  int a_stage = 0, b_stage = 0;  ///< bytes of one stage
  int staging_slot = 0;          ///< bytes of one staging slot of one warp
  int operand_slot = 0;          ///< bytes of one operand slot of one warpgroup
  int slice_slot = 0;            ///< ... and of its slices of column vectors
};
SharedLayout shared_layout(const Config&, const Demand&);

/// A sentence saying why the two don't go together, or nothing if they do.
std::optional<std::string> why_illegal(const Config&, const Demand&);

/// The configuration with as many stages as fit (8 at most) and the registers its warpgroups need, or nothing if
/// fewer than two stages fit or the pair is not legal.
std::optional<Config> fitted(Config, const Demand&);

}  // namespace coda
