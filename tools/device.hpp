// Where a subcommand runs its programs: --device cpu or cuda.
#pragma once
#include <span>
#include <string>

#include "coda/engine.hpp"
#include "coda/program.hpp"

namespace coda::cli {

/// "cpu", "cuda" or "cuda:1". Throws UsageError on anything else.
Device device_named(const std::string& name);
std::string name_of(Device device);

/// Runs `p` on host tensors, on `device`: for CUDA the arguments are copied there and the outputs back. `threads` is
/// for the CPU engine; 0 is all processors. Throws Error(unsupported) where the device can't be had.
void execute(const Program& p, Slots slots, Device device, int threads = 0);

}  // namespace coda::cli
