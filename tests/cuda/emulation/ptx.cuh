// Stands in for the device header of this name where a page is compiled for the host: a block's threads are coroutines
// that give way at barriers, blocks run one after another. Enough of CUDA for pages that use no tensor core, no TMA and
// no shared memory but __shared__ variables.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "coda/convert.hpp"

#define DEV inline
#define __global__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct Dim3 { unsigned x; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline unsigned __float_as_uint(float f) { return std::bit_cast<unsigned>(f); }
inline float __uint_as_float(unsigned u) { return std::bit_cast<float>(u); }
inline float __int_as_float(int i) { return std::bit_cast<float>(i); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline int min(int a, int b) { return a < b ? a : b; }
template <class T> T __ldg(const T* p) { return *p; }

static Dim3 threadIdx, blockIdx, gridDim;

namespace host {

struct Barrier {
  int arrived = 0, generation = 0;
};
struct Thread {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(64 << 10);
  bool done = false;
  int shuffles = 0;
};
static std::vector<Thread> threads;
static ucontext_t scheduler;
static Barrier block;
static std::vector<Barrier> warps;
static std::vector<float> lanes;  // of each warp, two sets in turn: a lane is at most one shuffle ahead
static void (*body)(const void*);
static const void* argument;

inline void wait(Barrier& b, int count) {
  const int generation = b.generation;
  if (++b.arrived == count) {
    b.arrived = 0;
    ++b.generation;
    return;
  }
  while (b.generation == generation) swapcontext(&threads[threadIdx.x].context, &scheduler);
}
inline void start() {
  body(argument);
  threads[threadIdx.x].done = true;
}

/// Runs `blocks` blocks of `count` threads; `backwards`: the last block first, and the threads of each.
inline void launch(void (*f)(const void*), const void* params, int blocks, int count, bool backwards) {
  body = f;
  argument = params;
  gridDim.x = static_cast<unsigned>(blocks);
  for (int b = 0; b < blocks; ++b) {
    threads = std::vector<Thread>(static_cast<std::size_t>(count));
    warps.assign(static_cast<std::size_t>(count / 32), {});
    lanes.assign(static_cast<std::size_t>(2 * count), 0);
    block = {};
    for (Thread& t : threads) {
      getcontext(&t.context);
      t.context.uc_stack.ss_sp = t.stack.data();
      t.context.uc_stack.ss_size = t.stack.size();
      t.context.uc_link = &scheduler;
      makecontext(&t.context, start, 0);
    }
    for (bool any = true; any;) {
      any = false;
      for (int i = 0; i < count; ++i) {
        Thread& t = threads[static_cast<std::size_t>(backwards ? count - 1 - i : i)];
        if (t.done) continue;
        any = true;
        threadIdx.x = static_cast<unsigned>(&t - threads.data());
        blockIdx.x = static_cast<unsigned>(backwards ? blocks - 1 - b : b);
        swapcontext(&scheduler, &t.context);
      }
    }
  }
}

}  // namespace host

inline void __syncthreads() { host::wait(host::block, static_cast<int>(host::threads.size())); }
inline float __shfl_xor_sync(unsigned, float v, int mask) {
  const std::size_t thread = threadIdx.x, warp = thread / 32;
  const std::size_t set = (warp * 2 + static_cast<std::size_t>(host::threads[thread].shuffles++ % 2)) * 32;
  host::lanes[set + thread % 32] = v;
  host::wait(host::warps[warp], 32);
  return host::lanes[set + (thread % 32 ^ static_cast<std::size_t>(mask))];
}

namespace coda {

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

inline void grid_dependency_wait() {}
inline void grid_dependency_launch() {}
inline u32 arrive_global(u32* counter) { return (*counter)++; }
inline void store_relaxed(u32* p, u32 v) { *p = v; }
inline float load_L2(const float* p) { return *p; }
float shared_float(u32);             // of tiles: no page that runs here calls it
void shared_store(u32, u32);

struct f32 { typedef u32 bits; };
struct i32 { typedef u32 bits; };
struct i64_ { typedef u64 bits; };
struct bf16 { typedef u16 bits; };
struct f16 { typedef u16 bits; };
struct e4m3 { typedef u8 bits; };
struct e5m2 { typedef u8 bits; };
inline u32 pack2(bf16, float lo, float hi) { return to_bf16(lo) | static_cast<u32>(to_bf16(hi)) << 16; }
inline u32 pack2(f16, float lo, float hi) { return to_f16(lo) | static_cast<u32>(to_f16(hi)) << 16; }
inline u16 pack2(e4m3, float lo, float hi) { return static_cast<u16>(to_e4m3(lo) | to_e4m3(hi) << 8); }
inline u16 pack2(e5m2, float lo, float hi) { return static_cast<u16>(to_e5m2(lo) | to_e5m2(hi) << 8); }
inline void unpack2(bf16, u32 v, float& lo, float& hi) { lo = bf16_to_float(static_cast<u16>(v)); hi = bf16_to_float(static_cast<u16>(v >> 16)); }
inline void unpack2(f16, u32 v, float& lo, float& hi) { lo = f16_to_float(static_cast<u16>(v)); hi = f16_to_float(static_cast<u16>(v >> 16)); }
inline void unpack2(e4m3, u16 v, float& lo, float& hi) { lo = e4m3_to_float(static_cast<u8>(v)); hi = e4m3_to_float(static_cast<u8>(v >> 8)); }
inline void unpack2(e5m2, u16 v, float& lo, float& hi) { lo = e5m2_to_float(static_cast<u8>(v)); hi = e5m2_to_float(static_cast<u8>(v >> 8)); }

inline float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
inline float exp2_fast(float x) { return ::exp2f(x); }
inline int opaque(int x) { return x; }
inline float max_nan(float x, float y) { return x != x ? x : y != y ? y : x > y ? x : y; }
inline float min_nan(float x, float y) { return x != x ? x : y != y ? y : x < y ? x : y; }
template <class T> T load_bits(bool ok, const T* p, T otherwise) { return ok ? *p : otherwise; }

}  // namespace coda
