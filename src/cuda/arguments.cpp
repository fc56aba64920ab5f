#include "cuda/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "coda/error.hpp"
#include "cuda/emit.hpp"
#include "cuda/tensor_map.hpp"

namespace coda::cuda {

LaunchKey::LaunchKey(Slots slots) {
  if (slots.size() > max_slots)
    throw Error(ErrorKind::unsupported, fmt::format("the GPU engine takes programs of at most {} arguments, and this one has {}", max_slots, slots.size()));
  for (const Tensor& t : slots) {
    push(is_host_scalar(t) ? 1 : reinterpret_cast<std::uint64_t>(t.data));
    push(static_cast<std::uint64_t>(t.dtype) | static_cast<std::uint64_t>(t.device.type) << 8 | static_cast<std::uint64_t>(t.rank) << 16 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(t.device.index)) << 32);
    for (int i = 0; i < t.rank; ++i) {
      push(static_cast<std::uint64_t>(t.shape[static_cast<std::size_t>(i)]));
      push(static_cast<std::uint64_t>(t.stride[static_cast<std::size_t>(i)]));
    }
  }
}

int device_of(const Program& p, Slots slots) {
  const auto declared = p.slots();
  int device = -1;
  std::string_view first;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Tensor& t = slots[i];
    if (t.numel() == 0) continue;
    const bool output = declared[i].role == Slot::Role::output;
    if (t.data == nullptr) throw Error(ErrorKind::value, fmt::format("argument '{}' of {} ({}) has no data", declared[i].name, p.name, describe(t)));
    if (is_host_scalar(t) && !output) continue;
    if (t.device.type != DeviceType::cuda)
      throw Error(ErrorKind::value, fmt::format("argument '{}' of {} lies in host memory and others on a GPU; copy it to the GPU (only scalar "
                                                "operands may stay on the host)", declared[i].name, p.name));
    if (device < 0) {
      device = t.device.index;
      first = declared[i].name;
    } else if (t.device.index != device) {
      throw Error(ErrorKind::value, fmt::format("argument '{}' of {} lies on CUDA device {} and '{}' on {}; a launch's tensors lie on one device",
                                                declared[i].name, p.name, t.device.index, first, device));
    }
  }
  return std::max(device, 0);
}

void check_strides(const Program& p, Slots slots) {
  const auto declared = p.slots();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Tensor& t = slots[i];
    const bool output = declared[i].role == Slot::Role::output;
    for (std::size_t d = 0; d < static_cast<std::size_t>(t.rank); ++d) {
      if (t.stride[d] < 0) throw Error(ErrorKind::layout, fmt::format("argument '{}' of {} ({}) has a negative stride", declared[i].name, p.name, describe(t)));
      if (output && t.stride[d] == 0 && t.shape[d] > 1)
        throw Error(ErrorKind::layout, fmt::format("output '{}' of {} ({}) is broadcast: several of its elements share memory; give it memory of its own",
                                                   declared[i].name, p.name, describe(t)));
    }
    if (output && t.rank == 2 && t.numel() > 0) {
      const auto low = static_cast<std::size_t>(t.stride[0] < t.stride[1] ? 0 : 1);
      if (t.shape[1 - low] > 1 && t.shape[low] > 1 && t.stride[1 - low] <= (t.shape[low] - 1) * t.stride[low])
        throw Error(ErrorKind::layout, fmt::format("output '{}' of {} ({}) overlaps itself; give it memory of its own", declared[i].name, p.name, describe(t)));
    }
  }
}

Major major_of(const Program& p, Slots slots, int slot) {
  const Tensor& t = slots[static_cast<std::size_t>(slot)];
  const MapSpec by_k{.slot = slot, .dtype = t.dtype, .inner = 1}, by_rows{.slot = slot, .dtype = t.dtype, .inner = 0};
  const auto k_fault = why_not_tma(t, by_k);
  if (!k_fault) return Major::k;
  const auto rows_fault = why_not_tma(t, by_rows);
  if (!rows_fault) return Major::mn;
  // Say the reason that concerns the dimension which is contiguous.
  const bool rows_contiguous = t.stride[0] == 1 && t.stride[1] != 1;
  throw Error(ErrorKind::layout, fmt::format("operand '{}' of {} ({}) can't be read by the GPU's copy engine: {}; it needs one dimension of stride 1, and a base "
                                             "address and other stride that are multiples of 16 bytes. Pass a copy laid out so, or pad its rows",
                                             slot == 0 ? "A" : "B", p.name, describe(t), rows_contiguous ? *rows_fault : *k_fault));
}

std::uint32_t direct_tables(const Program& p, Slots slots) {
  std::uint32_t mask = 0;
  const auto declared = p.slots();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Shape* s = declared[i].shape;
    if (!s || (s->layout != Layout::table1 && s->layout != Layout::table2)) continue;
    const Tensor& t = slots[i];
    const auto last = static_cast<std::size_t>(std::max(0, t.rank - 1));
    bool fine = reinterpret_cast<std::uint64_t>(t.data) % 16 == 0 && t.stride[last] == 1 && t.shape[last] % 2 == 0;
    for (std::size_t d = 0; d < last; ++d) fine = fine && t.stride[d] * static_cast<std::int64_t>(size_of(t.dtype)) % 16 == 0;
    if (!fine) mask |= 1u << i;
  }
  return mask;
}

}  // namespace coda::cuda
