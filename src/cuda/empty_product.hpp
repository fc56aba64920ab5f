// Products of no rows or no columns whose program still has something to store: sums of nothing are 0, a bias gradient
// of no tokens gains nothing, an rstd of no columns is what its formula makes of 0 / 0. There is no tile for a kernel to
// compute, and no reason to be fast: the CPU engine computes it, on copies.
#pragma once
#include "coda/engine.hpp"
#include "coda/program.hpp"
#include "cuda/driver.hpp"

namespace coda::cuda {

/// Runs `p`, of M = 0 or N = 0, on CUDA tensors (scalar operands may lie on the host): in the stream's order, and waits
/// for it. Throws Error(unsupported) where the stream is being captured.
void run_empty_product(const Program& p, Slots slots, int device_index, Stream stream);

}  // namespace coda::cuda
