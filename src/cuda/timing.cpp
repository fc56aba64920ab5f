#include "cuda/timing.hpp"

#include <algorithm>
#include <cmath>

namespace coda::cuda {
namespace {

struct Block {
  OwnedEvent begin, end;
  int counted;
};

double elapsed(const Block& b) {
  CODA_CUDA(cuEventSynchronize, static_cast<Event>(b.end));
  float ms = 0;
  CODA_CUDA(cuEventElapsedTime, &ms, static_cast<Event>(b.begin), static_cast<Event>(b.end));
  return double(ms) / b.counted;
}

// `dropped` launches, then `counted` between two events.
Block run(int device_index, Stream stream, const Enqueue& enqueue, int dropped, int counted) {
  Block b{OwnedEvent(device_index), OwnedEvent(device_index), counted};
  for (int i = 0; i < dropped; ++i) enqueue(stream, i);
  CODA_CUDA(cuEventRecord, static_cast<Event>(b.begin), stream);
  for (int i = 0; i < counted; ++i) enqueue(stream, dropped + i);
  CODA_CUDA(cuEventRecord, static_cast<Event>(b.end), stream);
  return b;
}

}  // namespace

std::vector<std::vector<double>> time_sustained(int device_index, const std::vector<Enqueue>& candidates, const SustainedOptions& o) {
  ContextScope scope(device_index);
  OwnedStream stream(device_index);
  std::vector<int> launches;
  for (const Enqueue& c : candidates) {  // warm up, and learn how many launches fill a block
    elapsed(run(device_index, stream, c, 1, 2));
    const double ms = elapsed(run(device_index, stream, c, 1, 4));
    launches.push_back(std::max(4, static_cast<int>(std::ceil(o.block_ms / std::max(ms, 1e-3)))));
  }
  // No gap anywhere, or the card cools and whoever comes first has the higher clock. Two blocks heat it; a last one of the
  // first candidate closes the final round.
  auto block_of = [&](std::size_t i) {
    const int dropped = static_cast<int>(launches[i] * o.dropped);
    return run(device_index, stream, candidates[i], dropped, std::max(1, launches[i] - dropped));
  };
  for (int i = 0; i < 2; ++i) block_of(0);
  std::vector<std::vector<Block>> blocks(candidates.size());
  for (int round = 0; round < o.rounds; ++round)
    for (std::size_t i = 0; i < candidates.size(); ++i) blocks[i].push_back(block_of(i));
  blocks[0].push_back(block_of(0));
  if (o.while_running) {
    CODA_CUDA(cuEventSynchronize, static_cast<Event>(blocks[0].back().begin));  // the last block is under way
    o.while_running();
  }
  std::vector<std::vector<double>> times(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i)
    for (const Block& b : blocks[i]) times[i].push_back(elapsed(b));
  return times;
}

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  if (v.size() % 2) return *middle;
  return (*middle + *std::max_element(v.begin(), middle)) / 2;
}

}  // namespace coda::cuda
