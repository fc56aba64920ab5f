// What fusion saves in one step of training.
#pragma once
#include <cstdint>
#include <span>

#include "coda/train.hpp"
#include "io/text_data.hpp"
#include "model/parameters.hpp"

namespace coda::model {

/// Counts the bytes of one step's programs, then times `steps` forward and backward passes of the fused and of the
/// unfused model in turn, on batches of `text`. Parameters are only read.
FusionSavings measure_savings(const Parameters<float>& parameters, std::span<const std::uint8_t> text,
                              std::int64_t batch, std::int64_t sequence, std::uint64_t seed, std::int64_t steps);

}  // namespace coda::model
