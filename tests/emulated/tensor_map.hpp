// What the emulated driver writes into a CUtensorMap.
#pragma once
#include <cstdint>

namespace emulated {

struct TensorMap {
  std::uint64_t base, inner, outer, stride;  // elements, and bytes from row to row
  std::uint32_t box_inner, box_outer, size, swizzle, type, magic;
};
constexpr std::uint32_t map_magic = 0xC0DA;

/// Where a byte of a box stands: 16-byte units change places as their row says.
inline std::uint32_t swizzled(std::uint32_t address, std::uint32_t bytes) {
  const std::uint32_t units = bytes / 16;  // 8, 4, 2, or 0: as it is
  return units < 2 ? address : address ^ ((address >> 7 & (units - 1)) << 4);
}

}  // namespace emulated
