// What a program costs on this machine's CPU, beside its product alone and beside the product with separate passes.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "coda/engine.hpp"

namespace coda::bench {

enum class Clock : std::uint8_t {
  wall,       ///< elapsed time: what users wait for, on a machine that does nothing else
  processor,  ///< time of all threads of this process: comparable on a machine that others use, with one thread
};

struct Options {
  Extents extents{2048, 2048, 2048};
  std::map<std::string, std::int64_t, std::less<>> symbols;  ///< table extents; see make_inputs()
  int repeats = 7;
  int threads = 0;  ///< 0: all
  bool separate = true;
  Clock clock = Clock::wall;
  std::uint64_t seed = 1;
};

/// Medians over `repeats` interleaved rounds. Ratios are medians of the rounds' own ratios, so that a machine that
/// slows down for a while doesn't tilt them.
struct Result {
  std::string program;
  DType dtype = DType::f32;  ///< of A
  Extents extents;
  int threads = 1;
  Clock clock = Clock::wall;
  double product_s = 0;   ///< the same oneDNN product as one call, f32 output
  double fused_s = 0;     ///< cpu::run()
  double separate_s = 0;  ///< the product, then one vectorised pass for each named tensor, reduction and output
  double fused_ratio = 0, separate_ratio = 0;  ///< to the product
  int passes = 0;                              ///< separate passes over memory
};

Result run(const Program& p, const Options& options = {});

/// One line of the CSV schema of bench/results, and its header. `commit` as the caller knows it.
std::string csv_header();
std::string csv_row(const Result& r, const std::string& commit);

}  // namespace coda::bench
