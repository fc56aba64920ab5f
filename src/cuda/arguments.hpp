// What a launch's tensors say of themselves: the key that recognises a launch seen before, and, for a new one, device,
// majors, and which slots the copy engine can't take.
#pragma once
#include <cstdint>
#include <span>

#include "coda/engine.hpp"
#include "coda/program.hpp"
#include "plan/config.hpp"

namespace coda::cuda {

inline constexpr int max_slots = 32;  // Config::direct has a bit for each

/// Everything of the tensors that a prepared launch depends on, as words. A host scalar's value is not part of it.
class LaunchKey {
 public:
  /// Throws Error(unsupported) for more than max_slots slots.
  explicit LaunchKey(Slots slots);
  std::uint64_t hash() const { return hash_; }
  std::span<const std::uint64_t> words() const { return {words_, count_}; }

 private:
  void push(std::uint64_t w) {
    words_[count_++] = w;
    hash_ = (hash_ ^ w) * 0x9e3779b97f4a7c15ull;
    hash_ ^= hash_ >> 29;
  }
  std::uint64_t hash_ = 0x243f6a8885a308d3ull;
  std::size_t count_ = 0;
  std::uint64_t words_[max_slots * (2 + 2 * Tensor::max_rank)];
};

constexpr bool is_absent(const Tensor& t) { return t.data == nullptr && t.rank == 0; }
constexpr bool is_host_scalar(const Tensor& t) { return t.device.type == DeviceType::cpu && t.rank == 0 && t.data != nullptr; }

/// The one CUDA device of these tensors. Throws Error(value) naming the slot that lies elsewhere, or that has no data.
int device_of(const Program& p, Slots slots);

/// Refuses negative strides, and outputs of which two elements share memory: Error(layout) naming the slot.
void check_strides(const Program& p, Slots slots);

/// Which dimension of A (slot 0) or B (slot 1) is contiguous. Throws Error(layout) where TMA can take neither, naming the
/// operand, its layout and the alignment that it needs.
Major major_of(const Program& p, Slots slots, int slot);

/// A mask of the tables that can't be read two elements at a time.
std::uint32_t direct_tables(const Program& p, Slots slots);

}  // namespace coda::cuda
