// Running programs on the host: the CPU engine, and the two evaluators that tests and `coda verify` compare with.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coda/program.hpp"
#include "coda/tensor.hpp"

namespace coda {

/// Arguments in slot order: Program::slots(). An output slot whose data is null and whose rank is 0 is not computed.
using Slots = std::span<const Tensor>;

/// Puts named tensors into slot order. Throws Error(type) on an unknown name and Error(shape) on a missing operand.
std::vector<Tensor> bind(const Program& p, const std::map<std::string, Tensor, std::less<>>& named);

/// What M, N, K and the free symbols are for these tensors. Throws Error(shape | dtype) naming the operand, what
/// was declared and what was found: every engine calls this first.
struct Extents {
  std::int64_t m = 0, n = 0, k = 0;
};
Extents check_arguments(const Program& p, Slots slots);

namespace cpu {

struct Options {
  int threads = 0;  ///< 0: all processors this process may use. Results don't depend on it.
};

/// Runs `p` on host tensors. Inputs are never written; the tensors given as outputs are written whole (or added to,
/// for `+=`). Throws Error(shape | dtype | layout) before anything is written, and so it does Error(value) for an
/// index of a pick over n or m that is out of range and isn't the ignored one.
void run(const Program& p, Slots slots, const Options& options = {});

}  // namespace cpu

namespace reference {

/// fp64 evaluation of the formula, plainly, whole matrices at a time: the reference of every test. Returns one f64
/// tensor per output of `p`, in order, of that output's shape; stored values are not rounded. `+=` outputs read
/// their slot's present value.
std::vector<HostTensor> evaluate(const Program& p, Slots slots);

/// The unfused path in the program's own dtypes: f32 arithmetic; the product and every named value with rows and
/// columns that some arithmetic made is rounded to A's dtype (bf16 where that is fp8), as a framework stores it; row,
/// column, segment and scalar values stay f32; each output is rounded to its dtype. Returns one tensor per output, of
/// its dtype.
std::vector<HostTensor> unfused(const Program& p, Slots slots);

}  // namespace reference
}  // namespace coda
