// Checkpoints: parameters under their Hugging Face names, the optimiser's moments beside them, and the state of the run
// in the metadata, all in one safetensors file.
#pragma once
#include <cstdint>
#include <string>

#include "coda/safetensors.hpp"
#include "model/parameters.hpp"

namespace coda::model {

/// What training needs to go on.
struct TrainState {
  explicit TrainState(const LlamaConfig& config) : parameters(config), first_moment(config), second_moment(config) {}
  Parameters<float> parameters, first_moment, second_moment;
  std::int64_t step = 0;  ///< steps done
};

/// What must be the same when a run goes on, or its batches would be others.
struct RunIdentity {
  std::uint64_t seed = 0;
  std::int64_t batch = 0, sequence = 0;
  bool operator==(const RunIdentity&) const = default;
};

/// Replaces `path` in one step, or leaves it as it was and throws Error(io).
void save_checkpoint(const std::string& path, const TrainState& state, const RunIdentity& run);

/// Reads all of a checkpoint, or throws: Error(io) for a damaged file or one without the state of a run, Error(shape |
/// dtype) naming a tensor that isn't the configuration's, Error(value) for numbers that aren't finite or another run's
/// seed, batch or sequence.
TrainState load_checkpoint(const std::string& path, const LlamaConfig& config, const RunIdentity& run);

}  // namespace coda::model
