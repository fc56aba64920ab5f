// Timing programs on the GPU against cuBLASLt's plain product and against the unfused sequence (that product and one
// separate pass: for the speed table written by hand, for any other program our own kernel over the stored product). Two regimes stand side by side, because the card is power-limited and they rank kernels differently:
//   equal      launches of all sides shuffled together, an event around each: everyone gets the same clock; cycles count
//   sustained  blocks of 90 ms and more that take turns, their first 40 % dropped: energy counts
// Data are random, operand sets rotate, outputs are poisoned and compared before anything is timed.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coda/engine.hpp"
#include "coda/text.hpp"
#include "cuda/timing.hpp"
#include "plan/config.hpp"

namespace coda::cuda {

/// One program on one shape.
struct BenchCase {
  std::string group;    ///< plain, fused, small, own
  std::string model;    ///< 1b, 8b, 70b, or the odd extent
  std::string product;  ///< qkv, o, gate_up, down, lm_head
  std::string form;     ///< forward, dgrad, wgrad
  std::string program;
  ParamValues params = {};
  std::int64_t m = 0, n = 0, k = 0;
  Major a_major = Major::k, b_major = Major::k;
  std::shared_ptr<const Program> own = nullptr;  ///< what to time; null: the standard program `program`
  std::map<std::string, std::int64_t, std::less<>> symbols = {};  ///< its tables' extents
  std::string name() const;  ///< "fused/8b/gate_up/forward/norm_swiglu"
};

/// A program of one's own, under `label`, on these extents.
BenchCase own_case(const std::string& label, const Program& program, Extents extents, std::map<std::string, std::int64_t, std::less<>> symbols);

/// The shapes of the project's speed table: Llama 1B, 8B and 70B blocks at 8192 tokens, the LM head, small and odd ones.
std::vector<BenchCase> bench_cases();

struct BenchOptions {
  std::string filter;          ///< only cases whose name() contains one of these, separated by commas
  std::string config;          ///< a configuration's name instead of the choice
  int configurations = 1;      ///< time so many, in the cost model's order
  std::string tiles;           ///< ... but only those whose name contains one of these, separated by commas
  bool pipelines = false;      ///< ... and count each one's other chunks and buffer depths among them, but no splits of K
  int passes = 1;              ///< go through them so many times: the first one measured reads high
  bool tune = false;
  bool unfused = true;
  bool overlap_launches = true;
  int device = 0;
  int sets = 3;                ///< operand sets that rotate
  int repeats = 20;            ///< of each side, shuffled
  SustainedOptions sustained;
};

/// One line of the CSV.
struct BenchRow {
  BenchCase what;
  std::string config;
  int group = 0, raster = 0;
  double equal_ms = 0, equal_cublas_ms = 0, equal_unfused_ms = 0;
  double sustained_ms = 0, sustained_cublas_ms = 0, sustained_unfused_ms = 0;
  double equal_ratio = 0, sustained_ratio = 0, sustained_low = 0, sustained_high = 0;  ///< to cuBLAS's plain product
  double tflops = 0;           ///< sustained
  unsigned clock_mhz = 0;
  double watts = 0;
  std::string limits;
  double difference = 0;       ///< worst relative difference of an output from the unfused sequence's
  std::string different;       ///< ... of which output, where it is more than roundings explain
  double compile_s = 0, launch_us = 0;
  std::string fault;           ///< why the case was not timed
};

/// Runs every one of `cases` that passes the filter and hands each row over as it is made. A case that fails becomes a row with a
/// fault; what makes all fail (no GPU, no cuBLASLt) is thrown.
void bench(const std::vector<BenchCase>& cases, const BenchOptions& options, const std::function<void(const BenchRow&)>& row);

/// The CSV's first line and a row's line; `commit` and `date` are the caller's to know.
std::string csv_header();
std::string csv_line(const BenchRow& row, const std::string& date, const std::string& commit, const BenchOptions& options);

}  // namespace coda::cuda
