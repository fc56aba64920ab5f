// Which memory the arguments share.
#include "cpu/views.hpp"

#include <fmt/format.h>

namespace coda::cpu {
namespace {

struct Bytes {
  const char* begin = nullptr;
  const char* end = nullptr;
};

Bytes bytes_of(const Tensor& t) {
  if (t.data == nullptr || t.numel() == 0) return {};
  std::int64_t last = 0;
  for (int d = 0; d < t.rank; ++d) last += (t.shape[d] - 1) * t.stride[d];
  const auto size = static_cast<std::int64_t>(size_of(t.dtype));
  const char* begin = static_cast<const char*>(t.data);
  return {begin, begin + (last + 1) * size};
}

/// Whether two row-major views are blocks of columns, side by side, of one matrix.
bool side_by_side(const Tensor& a, const Tensor& b) {
  if (a.rank != 2 || b.rank != 2 || a.stride[1] != 1 || b.stride[1] != 1) return false;
  const auto pitch = a.stride[0] * static_cast<std::int64_t>(size_of(a.dtype));
  if (pitch == 0 || pitch != b.stride[0] * static_cast<std::int64_t>(size_of(b.dtype))) return false;
  const auto width = [](const Tensor& t) { return t.shape[1] * static_cast<std::int64_t>(size_of(t.dtype)); };
  const std::int64_t distance = static_cast<const char*>(b.data) - static_cast<const char*>(a.data);
  const std::int64_t offset = (distance % pitch + pitch) % pitch;
  return offset >= width(a) && offset + width(b) <= pitch;
}

bool overlap(const Tensor& a, const Tensor& b) {
  const Bytes x = bytes_of(a), y = bytes_of(b);
  if (x.begin == nullptr || y.begin == nullptr || x.end <= y.begin || y.end <= x.begin) return false;
  return !side_by_side(a, b) && !side_by_side(b, a);
}

}  // namespace

void check_views(const Program& p, Slots slots) {
  const std::vector<Slot> names = p.slots();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].device.type != DeviceType::cpu && slots[i].data != nullptr) {
      throw Error(ErrorKind::unsupported, fmt::format("program {}: {} lies in the memory of a GPU, and the CPU engine "
                                                      "was asked to run; copy it to the host",
                                                      p.name, names[i].name));
    }
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (names[i].role != Slot::Role::output) continue;
    for (std::size_t j = 0; j < slots.size(); ++j) {
      if (j == i || (names[j].role == Slot::Role::output && j < i) || !overlap(slots[i], slots[j])) continue;
      throw Error(ErrorKind::layout,
                  fmt::format("program {}: output {} shares memory with {} {}; give it memory of its "
                              "own",
                              p.name, names[i].name, names[j].role == Slot::Role::output ? "output" : "operand",
                              names[j].name));
    }
  }
}

}  // namespace coda::cpu
