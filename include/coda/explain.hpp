// What a program costs on given extents, before anything runs: arithmetic, bytes moved with and without fusion, and the
// least time a named GPU could take.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coda/program.hpp"

namespace coda {

/// Sizes by name: "M", "N", "K", and the free symbols of tables ("P").
using Sizes = std::map<std::string, std::int64_t, std::less<>>;

/// Peak rates of one GPU. `source` says where the figures come from.
struct Gpu {
  std::string_view name;
  double flops_16bit;  ///< dense tensor-core FLOP/s, bf16 and f16
  double flops_8bit;   ///< ... e4m3 and e5m2
  double flops_f32;    ///< ... f32 operands, as tf32
  double bandwidth;    ///< device memory, B/s
  std::string_view source;
};
std::span<const Gpu> gpus();
/// Throws Error(value) listing the known names.
const Gpu& gpu(std::string_view name);

/// One trip over memory: the product itself, or an element-wise pass or reduction after it.
struct Pass {
  std::string name;
  std::int64_t read = 0, written = 0;
  std::int64_t bytes() const { return read + written; }
};

struct Explanation {
  std::int64_t m = 0, n = 0, k = 0;
  double flops = 0;  ///< of the product: 2 M N K
  /// The program as one kernel: every argument moved once, one entry for each argument slot.
  std::vector<Pass> fused;
  /// The product, stored in A's dtype, then one pass that reads it and every operand and writes every output: the best
  /// that hand-written separate kernels do.
  std::vector<Pass> one_pass;
  /// The product, then a pass for every named matrix, reduction and output, as a framework runs it operator by
  /// operator.
  std::vector<Pass> eager;
};

/// Throws Error(value) on a missing, non-positive or overflowing size, or one that the program's pairs and segments
/// don't divide. A table's free extent that isn't given is taken to be M.
Explanation explain(const Program& p, const Sizes& sizes);

/// Sum over passes.
std::int64_t total_bytes(std::span<const Pass> passes);

/// The least seconds for `passes`, one after another: the first overlaps its bytes with the product's arithmetic at
/// peak rate, the rest move their bytes. Fused entries are one kernel: pass `one_kernel`.
double floor_seconds(const Explanation& e, std::span<const Pass> passes, bool one_kernel, DType operand,
                     const Gpu& gpu);

}  // namespace coda
