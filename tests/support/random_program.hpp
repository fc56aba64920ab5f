// Random programs that check, for property tests: every engine must run them, every text must round-trip.
#pragma once
#include <cstdint>

#include "coda/program.hpp"

namespace coda::test {

/// What a random program may use. The defaults are all of the language, tamed so that results can be compared.
struct RandomProgramOptions {
  bool pairs = true;              ///< split, join, values of half and twice the width
  bool tables = true;             ///< lookup
  bool segments = true;           ///< reductions over segment(D)
  bool integers = true;           ///< row, col, integer operands, where on integer conditions
  bool row_reductions = true;     ///< sum and max over n
  bool column_reductions = true;  ///< sum and max over m
  bool matrix_reductions = true;  ///< sum and max over mn
  bool softmax = true;            ///< softmax_stats over n, over m (with column_reductions), over segments
  bool picks = true;              ///< pick over the same (operands "target", "chosen", "place"), some with an ignored index
  bool transposed = true;         ///< outputs stored [N, M]
  bool accumulate = true;         ///< += into f32 and bf16
  bool rounding = true;           ///< round_to
  bool fp8 = false;               ///< e4m3 and e5m2 operands and outputs
  /// Off: conditions on real values, division by anything, infinite constants, indices out of range, free table
  /// extents. On: continuous functions of moderate growth, so that rounding errors stay rounding errors.
  bool tame = true;
  int max_lets = 6;           ///< named values before the outputs
  int max_depth = 3;          ///< levels of an expression
  int max_outputs = 4;        ///< of each kind
  DType dtype = DType::bf16;  ///< of A and B, and of 16-bit operands and outputs
};

/// The same program for the same seed and options (and compiler: C++ leaves the order of arguments open).
Program random_program(std::uint64_t seed, const RandomProgramOptions& options = {});

/// The least N, a multiple of which every argument check of `p` accepts.
std::int64_t column_divisor(const Program& p);

}  // namespace coda::test
