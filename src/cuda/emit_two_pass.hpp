// The way of any program that no tile can hold: the plain product into an f32 workspace, then its epilogue over whole rows
// in a kernel of its own. Slower, since the product goes through memory, and general: it knows no tiles, so that pairs and
// segments may be of any size. Kernels that run so are named two_pass_..., and `why_two_pass` says the reason.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coda/program.hpp"
#include "coda/tensor.hpp"
#include "cuda/emit.hpp"
#include "plan/plan.hpp"

namespace coda {

/// A part of the second pass's workspace: for each `of`, `floats` for each of N * twice_width / 2 / divisor columns
/// (twice_width 1, 2, 4: half, full and twice the width; 0: for one).
struct Scratch {
  enum class Of : std::uint8_t { matrix, row, block };
  std::string name;
  int floats = 1, twice_width = 0, divisor = 1;
  Of of = Of::block;
  std::int64_t count(std::int64_t m, std::int64_t n, std::int64_t blocks) const;
};

struct TwoPass {
  Emitted product;               ///< of product_alone(p): slots A, B and the workspace
  Emitted epilogue;              ///< no maps, no shared memory but its own; as many blocks as blocks() says
  std::vector<Scratch> scratch;  ///< where Field::partials points: one after the other
  bool completes = false;        ///< it has outputs that only the last block can write, and counts blocks: one counter

  static int blocks(std::int64_t m, int multiprocessors);
  std::int64_t scratch_floats(std::int64_t m, std::int64_t n, int blocks) const;
};

/// "out product: f32[M, N] = acc" with A and B of `p`.
Program product_alone(const Program& p);
/// Elements between rows of the product in the workspace: whole units of 16 bytes, since TMA stores nothing less.
constexpr std::int64_t product_stride(std::int64_t n) { return (n + 3) / 4 * 4; }
/// The product in the workspace, before that has an address.
Tensor product_view(std::int64_t m, std::int64_t n, int device_index);
/// What the choice of the product's configuration depends on.
Problem product_problem(const Problem&);

/// `product` is a configuration for product_alone(p).
TwoPass emit_two_pass(const Program& p, const Config& product);
/// "two_pass_" and the product's configuration.
std::string two_pass_name(const Config& product);
inline constexpr std::string_view two_pass_prefix = "two_pass";

/// Why no tile of the fused kernel can run `p` on a problem; nothing where one can.
std::optional<std::string> why_two_pass(const Program& p, const Problem& problem);

}  // namespace coda
