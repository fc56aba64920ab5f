// Results beside the fp64 evaluation and the unfused path: the rule that every engine is held to (docs/numerics.md).
#pragma once
#include <span>
#include <string>
#include <vector>

#include "coda/engine.hpp"

namespace coda {

/// Errors of one output against fp64, of the result and of the unfused path. Elements whose exact value isn't finite
/// or is past the output type's range take no part in them: there the result must be the same NaN, infinity or
/// saturated value, else `faults` counts it.
struct OutputError {
  std::string name;
  double rms = 0, max = 0;                  ///< of the result
  double unfused_rms = 0, unfused_max = 0;  ///< of the unfused path, in the same types
  double scale = 0;                         ///< RMS of the exact values
  std::int64_t faults = 0;
  std::int64_t worst = -1;  ///< logical index of the first fault, else of the largest error
  bool ok = false;
};

/// What a program's outputs should be, for arguments as they are before a run (`+=` outputs hold their old values).
struct Expected {
  std::vector<HostTensor> exact;    ///< f64
  std::vector<HostTensor> unfused;  ///< in the outputs' types
};
Expected expect(const Program& p, Slots slots);

/// Compares outputs (host tensors, one per output of `p` in order; absent ones, null and of rank 0, are skipped).
/// An output is ok when it has no faults, its RMS error is at most 1.1 times and its largest error at most twice the
/// unfused path's, each with the allowances that docs/numerics.md derives: for few samples, and for f32 arithmetic
/// done in another order.
std::vector<OutputError> compare(const Program& p, const Expected& expected, std::span<const Tensor> outputs);

/// The same, in one line: "y: rms 1.2e-03 (unfused 1.7e-03), max ... : ok".
std::string describe(const OutputError& e);

}  // namespace coda
