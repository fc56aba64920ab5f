// Sustained timing: blocks of back-to-back launches, long enough for the card to settle at its power limit.
#pragma once
#include <functional>
#include <vector>

#include "cuda/driver.hpp"

namespace coda::cuda {

struct SustainedOptions {
  double block_ms = 90;    ///< length of a block
  double dropped = 0.4;    ///< its first part, in which the clock settles
  int rounds = 3;          ///< blocks of each candidate; they take turns
  std::function<void()> while_running = {};  ///< called once, while the last block runs: to read clocks
};

/// Enqueues launch number i (for rotating operand sets) on the stream.
using Enqueue = std::function<void(Stream, int)>;

/// Milliseconds a launch, of every candidate in every round: result[candidate][round].
std::vector<std::vector<double>> time_sustained(int device_index, const std::vector<Enqueue>& candidates, const SustainedOptions& options = {});

double median(std::vector<double> values);

}  // namespace coda::cuda
