// What the CPU engine asks of the tensors that it is given, beyond their shapes.
#pragma once
#include "coda/engine.hpp"

namespace coda::cpu {

/// Throws Error(unsupported) for data that isn't in host memory, Error(layout) for an output that shares memory with
/// an input or with another output: inputs are never written, and the order of writes isn't defined.
void check_views(const Program& p, Slots slots);

}  // namespace coda::cpu
