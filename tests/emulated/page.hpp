// What a page compiled for the emulated device says of itself, and how compiler and driver pass it on.
#pragma once
#include <cstdint>

namespace emulated {

struct Page {
  const char* entry;
  void (*call)(void**);
  std::uint32_t cluster;
  bool one_block_at_a_time;
  std::uint32_t arguments;
  const std::uint64_t* argument_bytes;
};

/// In front of the shared library that stands for a cubin.
struct PageHeader {
  std::uint64_t magic, bytes;
};
constexpr std::uint64_t page_magic = 0x4547415041444F43;

inline void* aligned(void* p) { return reinterpret_cast<void*>((reinterpret_cast<std::uint64_t>(p) + 63) / 64 * 64); }

}  // namespace emulated
