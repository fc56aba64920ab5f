// The copy engine: boxes of matrices to and from shared memory.
#include <cstring>

#include "coda/convert.hpp"
#include "device.hpp"
#include "tensor_map.hpp"

namespace emulated {
namespace {

constexpr std::uint32_t type_f32 = 7, type_bf16 = 9, type_tf32 = 11;

TensorMap checked(const TensorMap* m, int x, u32 address) {
  if (m->magic != map_magic) fault("a copy through a tensor map that was never made");
  // Past the end nothing is read, wherever that would be.
  if (x < static_cast<std::int64_t>(m->inner) && static_cast<std::int64_t>(x) * m->size % 16 != 0) fault("a copy from between 16 bytes of memory: illegal instruction");
  if (address % 128 != 0) fault("a copy at shared memory that is no multiple of 128 bytes");
  return *m;
}

// To 11 bits of mantissa, ties away from zero.
u32 to_tf32(u32 v) { return (v & 0x7f800000) == 0x7f800000 ? v : (v + 0x1000) & 0xffffe000; }

bool inside(const TensorMap& m, std::int64_t x, std::int64_t y) {
  return x >= 0 && y >= 0 && x < static_cast<std::int64_t>(m.inner) && y < static_cast<std::int64_t>(m.outer);
}

void load(Block& b, const TensorMap& m, u32 bar, u32 to, int x, int y) {
  const u32 row = m.box_inner * m.size;
  memory_of(b, to, row * m.box_outer);
  for (u32 j = 0; j < m.box_outer; ++j)
    for (u32 i = 0; i < m.box_inner; ++i) {
      unsigned char* at = memory_of(b, swizzled(to + j * row + i * m.size, m.swizzle), m.size);
      std::memset(at, 0, m.size);
      if (!inside(m, std::int64_t{x} + i, std::int64_t{y} + j)) continue;
      std::memcpy(at, reinterpret_cast<const char*>(m.base) + (std::int64_t{y} + j) * static_cast<std::int64_t>(m.stride) + (std::int64_t{x} + i) * m.size, m.size);
      if (m.type == type_tf32) {
        u32 v;
        std::memcpy(&v, at, 4);
        v = to_tf32(v);
        std::memcpy(at, &v, 4);
      }
    }
  MBarrier& barrier = mbarrier(b, bar);
  barrier.bytes -= row * m.box_outer;
  barrier.settle();
}

void add_to(void* to, const void* from, const TensorMap& m) {
  if (m.type != type_f32) fault("a reducing store of a type that is not built");
  float old, v;
  std::memcpy(&old, to, 4);
  std::memcpy(&v, from, 4);
  v += old;
  std::memcpy(to, &v, 4);
}

void store(Block& b, const TensorMap& m, u32 from, int x, int y, bool add) {
  const u32 row = m.box_inner * m.size;
  // Units of 16 bytes are written whole, also past the end of a row.
  const std::int64_t end = static_cast<std::int64_t>((m.inner * m.size + 15) / 16 * 16 / m.size);
  for (u32 j = 0; j < m.box_outer; ++j)
    for (u32 i = 0; i < m.box_inner; ++i) {
      const std::int64_t column = std::int64_t{x} + i, line = std::int64_t{y} + j;
      if (line >= static_cast<std::int64_t>(m.outer) || column >= (add ? static_cast<std::int64_t>(m.inner) : end)) continue;
      const unsigned char* at = memory_of(b, swizzled(from + j * row + i * m.size, m.swizzle), m.size);
      void* to = reinterpret_cast<char*>(m.base) + line * static_cast<std::int64_t>(m.stride) + column * m.size;
      if (add) add_to(to, at, m);
      else std::memcpy(to, at, m.size);
    }
}

}  // namespace

void tma_load(const TensorMap* map, u32 bar, u32 to, int x, int y, u32 blocks) {
  const TensorMap m = checked(map, x, to & 0xffffff);
  Block& mine = block();
  for (u32 rank = 0; rank < mine.cluster->size(); ++rank) {
    if (blocks == 0 ? rank != mine.rank : (blocks >> rank & 1) == 0) continue;
    Block* b = (*mine.cluster)[rank];
    start([=] { load(*b, m, bar & 0xffffff, to & 0xffffff, x, y); });
  }
}

void tma_store(const TensorMap* map, u32 from, int x, int y, bool add) {
  const TensorMap m = checked(map, x, from & 0xffffff);
  Block* b = &block();
  memory_of(*b, from & 0xffffff, m.box_inner * m.box_outer * m.size);
  const u32 first = ((from & 0xffffff) - shared_start) / 16, units = m.box_inner * m.box_outer * m.size / 16;
  for (u32 u = first; u < first + units; ++u)
    if (b->dirty[u] != 0) fault("a store of shared memory that was written without a fence after it");
  thread().uncommitted.push_back(start([=] { store(*b, m, from & 0xffffff, x, y, add); }));
}

void bulk_commit() {
  Thread& t = thread();
  t.groups.push_back(std::move(t.uncommitted));
  t.uncommitted.clear();
}

void bulk_wait(u32 left) {
  Thread& t = thread();
  while (t.groups.size() > left) {
    for (const std::size_t copy : t.groups.front()) finish(copy);
    t.groups.pop_front();
  }
}

}  // namespace emulated
