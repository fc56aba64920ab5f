// Arguments laid out in awkward ways, for tests that an engine must pass whatever the layout.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "coda/inputs.hpp"

namespace coda::test {

/// A view with the same elements as `t` in memory of its own, behind a guard band of poison on either side: `turned`
/// makes the first index contiguous, `pitch` leaves gaps between rows.
class Guarded {
 public:
  Guarded(const Tensor& t, bool turned, std::int64_t pitch) : size_(size_of(t.dtype)) {
    view_ = t;
    std::int64_t stride = 1;
    for (int i = 0; i < t.rank; ++i) {
      const int d = turned ? i : t.rank - 1 - i;
      view_.stride[static_cast<std::size_t>(d)] = stride;
      stride *= t.shape[static_cast<std::size_t>(d)] + pitch;
    }
    memory_.assign(static_cast<std::size_t>(stride + 2 * guard) * size_, 0xFF);
    view_.data = memory_.data() + guard * static_cast<std::int64_t>(size_);
    for (std::int64_t i = 0; i < t.numel(); ++i) std::memcpy(at(view_, i), at(t, i), size_);
    before_ = memory_;
  }

  const Tensor& view() const { return view_; }
  /// Whether no byte changed; and whether none did outside the view's elements.
  bool unchanged() const { return memory_ == before_; }
  bool guards_whole() {
    std::vector<unsigned char> expected = before_;
    for (std::int64_t i = 0; i < view_.numel(); ++i) {
      const auto offset = static_cast<std::size_t>(static_cast<unsigned char*>(at(view_, i)) - memory_.data());
      std::memcpy(expected.data() + offset, memory_.data() + offset, size_);
    }
    return expected == memory_;
  }

  static void* at(const Tensor& t, std::int64_t i) {
    std::int64_t offset = 0;
    for (int d = t.rank - 1; d >= 0; --d) {
      const auto k = static_cast<std::size_t>(d);
      offset += i % t.shape[k] * t.stride[k];
      i /= t.shape[k];
    }
    return static_cast<char*>(t.data) + offset * static_cast<std::int64_t>(size_of(t.dtype));
  }

 private:
  static constexpr std::int64_t guard = 64;
  std::size_t size_;
  Tensor view_;
  std::vector<unsigned char> memory_, before_;
};

/// Whether two views of equal shape hold the same bits.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    if (std::memcmp(Guarded::at(a, i), Guarded::at(b, i), size_of(a.dtype)) != 0) return false;
  }
  return true;
}

/// The slots of a program's outputs.
inline std::vector<Tensor> outputs_of(const Program& p, const std::vector<Tensor>& slots) {
  return {slots.end() - static_cast<std::ptrdiff_t>(p.outputs.size()), slots.end()};
}

}  // namespace coda::test
