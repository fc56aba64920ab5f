// The tensor cores: m64nNkK of 32 bytes of K, operands in shared memory with 128-byte swizzle.
#include <cstring>

#include "coda/convert.hpp"
#include "device.hpp"
#include "tensor_map.hpp"

namespace emulated {
namespace {

float value(const unsigned char* at, Operand type) {
  std::uint16_t half;
  float f;
  switch (type) {
    case Operand::bf16: std::memcpy(&half, at, 2); return coda::bf16_to_float(half);
    case Operand::f16: std::memcpy(&half, at, 2); return coda::f16_to_float(half);
    case Operand::e4m3: return coda::e4m3_to_float(*at);
    case Operand::e5m2: return coda::e5m2_to_float(*at);
    case Operand::tf32: break;
  }
  std::memcpy(&f, at, 4);
  return f;
}

// What a descriptor's low word says, with 1024 bytes between groups of 8 rows (or of 8 k).
struct Operands {
  Block& block;
  u32 start, leading;
  bool mn;
  Operand type;
  u32 size;
  Operands(Block& b, u32 word, bool mn, Operand type)
      : block(b), start((word & 0x3fff) << 4), leading((word >> 16 & 0x3fff) << 4), mn(mn), type(type),
        size(type == Operand::tf32 ? 4 : type == Operand::bf16 || type == Operand::f16 ? 2 : 1) {}
  float at(u32 row, u32 k) const {
    const u32 address = mn ? start + row / 64 * leading + k / 8 * 1024 + k % 8 * 128 + row % 64 * size : start + row / 8 * 1024 + row % 8 * 128 + k * size;
    return value(memory_of(block, swizzled(address, 128), size), type);
  }
};

void multiply(Thread& t, const Product& p) {
  const Operands a(*t.block, p.a, p.a_mn, p.a_type), b(*t.block, p.b, p.b_mn, p.b_type);
  const u32 lane = t.index % 32, row = t.index / 32 % 4 * 16 + lane / 4, depth = 32 / a.size;
  float rows[2][32], column[32];
  for (u32 k = 0; k < depth; ++k) {
    rows[0][k] = a.at(row, k);
    rows[1][k] = a.at(row + 8, k);
  }
  for (int v = 0; v < p.n / 2; v += 4)
    for (u32 e = 0; e < 2; ++e) {
      const u32 n = static_cast<u32>(v) * 2 + 2 * (lane % 4) + e;
      for (u32 k = 0; k < depth; ++k) column[k] = b.at(n, k);
      for (int h = 0; h < 2; ++h) {
        float sum = 0;
        for (u32 k = 0; k < depth; ++k) sum += rows[h][k] * column[k];
        float& d = p.d[v + 2 * h + static_cast<int>(e)];
        d = (p.keep ? d : 0) + sum;
      }
    }
}

}  // namespace

void wgmma(float* d, u32 a, u32 b, bool keep, int n, bool a_mn, bool b_mn, Operand a_type, Operand b_type) {
  thread().products.push_back({d, a, b, keep, a_mn, b_mn, n, a_type, b_type});
}

void wgmma_commit() {
  Thread& t = thread();
  t.product_groups.push_back(std::move(t.products));
  t.products.clear();
}

void wgmma_wait(u32 left) {
  Thread& t = thread();
  while (t.product_groups.size() > left) {
    for (const Product& p : t.product_groups.front()) multiply(t, p);
    t.product_groups.pop_front();
  }
}

}  // namespace emulated
