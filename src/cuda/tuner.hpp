// The tuner: times the likeliest plans for given arguments and remembers the best, on disk, beside the machine code.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "coda/engine.hpp"
#include "cuda/prepared.hpp"
#include "plan/plan.hpp"

namespace coda::cuda {

/// What an earlier tuning found for this program, problem and kind of GPU, where its configuration is still legal.
std::optional<Plan> stored_choice(const Program& p, const Demand& demand, const Problem& problem, int device_index);
void store_choice(const Program& p, const Problem& problem, int device_index, const Plan& plan);

/// Times plans in sustained mode and stores the fastest. The inputs of `slots` are read where they lie; every output goes
/// to scratch memory of the same layout, so that the caller's memory is not written, accumulating outputs included.
/// Throws Error(device) where scratch memory is short.
std::shared_ptr<const Chosen> tune(const Program& p, const Demand& demand, const Problem& problem, Slots slots, Extents extents,
                                   int device_index, const std::function<std::shared_ptr<const Chosen>(const Plan&)>& build);

}  // namespace coda::cuda
