// Stands in for the device header of this name where a page is compiled for the emulated device: CUDA's words in C++, and the
// instructions as calls of its engine.
#pragma once
#include <cmath>
#include <cstring>

#include "coda/convert.hpp"
#include "engine.hpp"
#include "page.hpp"

#define DEV inline
#define __global__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float4 { float x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline unsigned __float_as_uint(float f) { return std::bit_cast<unsigned>(f); }
inline float __uint_as_float(unsigned u) { return std::bit_cast<float>(u); }
inline float __int_as_float(int i) { return std::bit_cast<float>(i); }
inline float __fdividef(float a, float b) { return std::fabs(b) > 0x1p126f && !std::isinf(b) && !std::isnan(a) && !std::isinf(a) ? 0.f * a : a / b; }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldcg(const T* p) { return *p; }
template <class T> void __stcg(T* p, T v) { *p = v; }
inline void __nanosleep(unsigned) { emulated::give_way(); }
inline void __trap() { emulated::fault("__trap()"); }

static emulated::Dim3 &threadIdx = emulated::thread_index, &blockIdx = emulated::block_index, &gridDim = emulated::grid_size;

inline void __syncthreads() { emulated::block_sync(); }
inline void __syncwarp() { emulated::warp_sync(); }
template <class T> T __shfl_sync(unsigned, T v, int lane) { return std::bit_cast<T>(emulated::from_lane(std::bit_cast<unsigned>(v), lane)); }
template <class T> T __shfl_xor_sync(unsigned m, T v, int mask) { return __shfl_sync(m, v, (threadIdx.x % 32) ^ mask); }
inline unsigned __ballot_sync(unsigned, unsigned v) { return emulated::ballot(v != 0); }

namespace coda {

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct alignas(64) TensorMap { u64 opaque[16]; };
inline const emulated::TensorMap* map_of(const TensorMap* m) { return (const emulated::TensorMap*)m; }

inline u32 shared_base() { return emulated::shared_base(); }
inline u32 cluster_rank() { return emulated::cluster_rank(); }
inline void cluster_sync() { emulated::cluster_sync(); }
inline void grid_dependency_wait() {}
inline void grid_dependency_launch() {}

inline void mbar_init(u32 bar, u32 count) { emulated::mbar_init(bar, count); }
inline void mbar_init_fence() {}
inline void mbar_expect(u32 bar, u32 bytes) { emulated::mbar_expect(bar, bytes); }
inline void mbar_arrive(u32 bar) { emulated::mbar_arrive(bar); }
inline void mbar_arrive_at(u32 bar, u32 block) { emulated::mbar_arrive_at(bar, block); }
inline void mbar_wait(u32 bar, u32 parity) { emulated::mbar_wait(bar, parity); }

inline void tma_prefetch_map(const TensorMap*) {}
inline void tma_load(const TensorMap* m, u32 bar, u32 dst, int x, int y) { emulated::tma_load(map_of(m), bar, dst, x, y, 0); }
inline void tma_load_multicast(const TensorMap* m, u32 bar, u32 dst, int x, int y, u16 mask) { emulated::tma_load(map_of(m), bar, dst, x, y, mask); }
inline void tma_store(const TensorMap* m, u32 src, int x, int y) { emulated::tma_store(map_of(m), src, x, y, false); }
inline void tma_reduce_add(const TensorMap* m, u32 src, int x, int y) { emulated::tma_store(map_of(m), src, x, y, true); }
inline void bulk_commit() { emulated::bulk_commit(); }
template <int N> void bulk_wait_read() { emulated::bulk_wait(N); }
inline void bulk_wait_all() { emulated::bulk_wait(0); }
inline void fence_async() { emulated::fence_async(); }

inline void wgmma_fence() {}
inline void wgmma_commit() { emulated::wgmma_commit(); }
template <int N> void wgmma_wait() { emulated::wgmma_wait(N); }
template <int R> void setmaxnreg_inc() {}
template <int R> void setmaxnreg_dec() {}

inline void bar_sync(u32 id, u32 n) { emulated::barrier_sync(id, n); }
inline void bar_arrive(u32 id, u32 n) { emulated::barrier_arrive(id, n); }

template <class T> void shared_store(u32 a, T v) { std::memcpy(emulated::shared(a, sizeof(T), true), &v, sizeof(T)); }
template <class T> void shared_load(u32 a, T& v) { std::memcpy(&v, emulated::shared(a, sizeof(T), false), sizeof(T)); }
inline float shared_float(u32 a) { float v; shared_load(a, v); return v; }
// Lane 8m + r has the address of row r of matrix m; lane l's word of it is words 2(l % 4), +1 of row l / 4.
inline void stmatrix(u32 a, u32 r0, u32 r1, u32 r2, u32 r3) {
  const u32 r[4] = {r0, r1, r2, r3}, lane = threadIdx.x % 32;
  for (u32 m = 0; m < 4; m++) {
    const u32 row = emulated::from_lane(a, 8 * m + lane / 4);
    if (row % 16 != 0) emulated::fault("stmatrix of a row that is no multiple of 16 bytes");
    shared_store(row + 4 * (lane % 4), r[m]);
  }
}
inline void stmatrix_transposed(u32 a, u32 r0, u32 r1, u32 r2, u32 r3) {
  const u32 r[4] = {r0, r1, r2, r3}, lane = threadIdx.x % 32;
  for (u32 m = 0; m < 4; m++)
    for (u32 e = 0; e < 2; e++) {
      const u32 row = emulated::from_lane(a, 8 * m + 2 * (lane % 4) + e);
      shared_store(row + 2 * (lane / 4), (u16)(r[m] >> (16 * e)));
    }
}
inline void ldmatrix(u32 a, u32& r0, u32& r1, u32& r2, u32& r3) {
  u32* const r[4] = {&r0, &r1, &r2, &r3};
  const u32 lane = threadIdx.x % 32;
  for (u32 m = 0; m < 4; m++) {
    const u32 row = emulated::from_lane(a, 8 * m + lane / 4);
    if (row % 16 != 0) emulated::fault("ldmatrix of a row that is no multiple of 16 bytes");
    shared_load(row + 4 * (lane % 4), *r[m]);
  }
}

inline u32 arrive_global(u32* counter) { return (*counter)++; }
inline u32 load_acquire(const u32* p) { return *(const volatile u32*)p; }
inline void store_relaxed(u32* p, u32 v) { *p = v; }
inline float load_L2(const float* p) { return *(const volatile float*)p; }
inline void red_add(float* p, float v) { *p += v; }

struct f32 { typedef u32 bits; };
struct i32 { typedef u32 bits; };
struct i64_ { typedef u64 bits; };
struct bf16 { typedef u16 bits; };
struct f16 { typedef u16 bits; };
struct e4m3 { typedef u8 bits; };
struct e5m2 { typedef u8 bits; };
inline u32 pack2(bf16, float lo, float hi) { return to_bf16(lo) | (u32)to_bf16(hi) << 16; }
inline u32 pack2(f16, float lo, float hi) { return to_f16(lo) | (u32)to_f16(hi) << 16; }
inline u16 pack2(e4m3, float lo, float hi) { return (u16)(to_e4m3(lo) | to_e4m3(hi) << 8); }
inline u16 pack2(e5m2, float lo, float hi) { return (u16)(to_e5m2(lo) | to_e5m2(hi) << 8); }
inline void unpack2(bf16, u32 v, float& lo, float& hi) { lo = bf16_to_float((u16)v); hi = bf16_to_float((u16)(v >> 16)); }
inline void unpack2(f16, u32 v, float& lo, float& hi) { lo = f16_to_float((u16)v); hi = f16_to_float((u16)(v >> 16)); }
inline void unpack2(e4m3, u16 v, float& lo, float& hi) { lo = e4m3_to_float((u8)v); hi = e4m3_to_float((u8)(v >> 8)); }
inline void unpack2(e5m2, u16 v, float& lo, float& hi) { lo = e5m2_to_float((u8)v); hi = e5m2_to_float((u8)(v >> 8)); }

inline float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.f, x) : x; }
inline float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
inline float exp2_fast(float x) { return flushed(::exp2f(flushed(x))); }
inline int opaque(int x) { return x; }
inline u32 opaque(u32 x) { return x; }
inline float max_nan(float x, float y) { return x != x ? x : y != y ? y : x > y ? x : y; }
inline float min_nan(float x, float y) { return x != x ? x : y != y ? y : x < y ? x : y; }
template <class T> T load_bits(bool ok, const T* p, T otherwise) { return ok ? *p : otherwise; }

}  // namespace coda
