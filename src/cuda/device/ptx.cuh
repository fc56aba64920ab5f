// One inline function per PTX instruction used. Shared-memory addresses are u32 offsets in the shared window.
// No include: NVRTC and nvcc compile it alike.
#pragma once
#define DEV __device__ __forceinline__

namespace coda {

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

/// A CUtensorMap, which NVRTC doesn't know.
struct alignas(64) TensorMap { u64 opaque[16]; };

/// Where the block's dynamic shared memory starts.
DEV u32 shared_base() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return (u32)__cvta_generic_to_shared(memory);
}
DEV u32 cluster_rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
DEV void cluster_sync() { asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory"); }
DEV void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEV void grid_dependency_launch() { asm volatile("griddepcontrol.launch_dependents;"); }

// ---- mbarriers
DEV void mbar_init(u32 bar, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count)); }
DEV void mbar_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEV void mbar_expect(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
DEV void mbar_arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
/// On the same barrier of another block of the cluster. Without .release.cluster: that form becomes a fence of the
/// whole GPU before every arrive and cost 15-50 % of the product's time (H200, NVCC 13.0).
DEV void mbar_arrive_at(u32 bar, u32 block) {
  asm volatile("{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [r];}"
               ::"r"(bar), "r"(block) : "memory");
}
DEV void mbar_wait(u32 bar, u32 parity) {
  asm volatile("{.reg .pred p;\nW: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra D;\nbra W;\nD:\n}"
               ::"r"(bar), "r"(parity) : "memory");
}

// ---- bulk tensor copies (TMA); x counts elements of the map's inner dimension
DEV void tma_prefetch_map(const TensorMap* m) { asm volatile("prefetch.tensormap [%0];" ::"l"(m) : "memory"); }
DEV void tma_load(const TensorMap* m, u32 bar, u32 dst, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
               ::"r"(dst), "l"(m), "r"(bar), "r"(x), "r"(y) : "memory");
}
DEV void tma_load_multicast(const TensorMap* m, u32 bar, u32 dst, int x, int y, u16 mask) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%3, %4}], [%2], %5;"
               ::"r"(dst), "l"(m), "r"(bar), "r"(x), "r"(y), "h"(mask) : "memory");
}
DEV void tma_store(const TensorMap* m, u32 src, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
               ::"l"(m), "r"(src), "r"(x), "r"(y) : "memory");
}
DEV void tma_reduce_add(const TensorMap* m, u32 src, int x, int y) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];"
               ::"l"(m), "r"(src), "r"(x), "r"(y) : "memory");
}
DEV void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> DEV void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
DEV void bulk_wait_all() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
DEV void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- warpgroup matrix multiply
DEV void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> DEV void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
template <int R> DEV void setmaxnreg_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R)); }
template <int R> DEV void setmaxnreg_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R)); }

// ---- named barriers
DEV void bar_sync(u32 id, u32 n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
DEV void bar_arrive(u32 id, u32 n) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory"); }

// ---- shared memory
DEV void stmatrix(u32 a, u32 r0, u32 r1, u32 r2, u32 r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};"
               ::"r"(a), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}
DEV void stmatrix_transposed(u32 a, u32 r0, u32 r1, u32 r2, u32 r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};"
               ::"r"(a), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}
DEV void ldmatrix(u32 a, u32& r0, u32& r1, u32& r2, u32& r3) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(a) : "memory");
}
DEV void shared_store(u32 a, u8 v) { asm volatile("st.shared.u8 [%0], %1;" ::"r"(a), "r"((u32)v) : "memory"); }
DEV void shared_store(u32 a, u16 v) { asm volatile("st.shared.u16 [%0], %1;" ::"r"(a), "h"(v) : "memory"); }
DEV void shared_store(u32 a, u32 v) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(a), "r"(v) : "memory"); }
DEV void shared_store(u32 a, uint2 v) { asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(a), "r"(v.x), "r"(v.y) : "memory"); }
DEV void shared_store(u32 a, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(a), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
DEV void shared_load(u32 a, u8& v) { u32 r; asm volatile("ld.shared.u8 %0, [%1];" : "=r"(r) : "r"(a) : "memory"); v = (u8)r; }
DEV void shared_load(u32 a, u16& v) { asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(a) : "memory"); }
DEV void shared_load(u32 a, u32& v) { asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(a) : "memory"); }
DEV void shared_load(u32 a, uint2& v) { asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(a) : "memory"); }
DEV void shared_load(u32 a, uint4& v) {
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(a) : "memory");
}
DEV float shared_float(u32 a) { u32 v; shared_load(a, v); return __uint_as_float(v); }

// ---- global memory, ordered across blocks
/// Adds 1 and returns the old value: what this thread (and those it has synchronised with) wrote is visible to whoever
/// sees the sum, and the reverse.
DEV u32 arrive_global(u32* counter) {
  u32 old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(old) : "l"(counter) : "memory");
  return old;
}
DEV u32 load_acquire(const u32* p) { u32 v; asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
DEV void store_relaxed(u32* p, u32 v) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
/// Past the L1, which doesn't see what other multiprocessors write.
DEV float load_L2(const float* p) { float v; asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory"); return v; }
DEV void red_add(float* p, float v) { asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(p), "f"(v) : "memory"); }


// ---- element types: tags that say how bits are read and written
struct f32  { typedef u32 bits; };
struct i32  { typedef u32 bits; };
struct i64_ { typedef u64 bits; };
struct bf16 { typedef u16 bits; };
struct f16  { typedef u16 bits; };
struct e4m3 { typedef u8 bits; };
struct e5m2 { typedef u8 bits; };

DEV u32 pack2(bf16, float lo, float hi) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
DEV u32 pack2(f16, float lo, float hi) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
DEV u16 pack2(e4m3, float lo, float hi) { u16 r; asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo)); return r; }
DEV u16 pack2(e5m2, float lo, float hi) { u16 r; asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo)); return r; }
DEV void unpack2(bf16, u32 v, float& lo, float& hi) { lo = __uint_as_float(v << 16); hi = __uint_as_float(v & 0xffff0000u); }
DEV void unpack2(f16, u32 v, float& lo, float& hi) {
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(lo), "=f"(hi) : "r"(v));
}
DEV void unpack2(e4m3, u16 v, float& lo, float& hi) { u32 h; asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(v)); unpack2(f16(), h, lo, hi); }
DEV void unpack2(e5m2, u16 v, float& lo, float& hi) { u32 h; asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(h) : "h"(v)); unpack2(f16(), h, lo, hi); }

DEV float fma(float x, float y, float z) { float r; asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(x), "f"(y), "f"(z)); return r; }
DEV float exp2_fast(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
/// The same value, of which the compiler knows nothing: what is computed from it is not kept from one step to the next.
DEV int opaque(int x) { asm volatile("" : "+r"(x)); return x; }
DEV float max_nan(float x, float y) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y)); return r; }
DEV float min_nan(float x, float y) { float r; asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y)); return r; }

// ---- conditional loads of what the kernel doesn't write: predicated instructions, not branches, since hundreds of them
// stand in an unrolled epilogue
DEV u64 load_bits(bool ok, const u64* p, u64 otherwise) {
  u64 v;
  asm("{.reg .pred q; .reg .b64 t; setp.ne.b32 q, %2, 0; mov.b64 t, %3; @q ld.global.nc.b64 t, [%1]; mov.b64 %0, t;}" : "=l"(v) : "l"(p), "r"((int)ok), "l"(otherwise));
  return v;
}
DEV u32 load_bits(bool ok, const u32* p, u32 otherwise) {
  u32 v;
  asm("{.reg .pred q; .reg .b32 t; setp.ne.b32 q, %2, 0; mov.b32 t, %3; @q ld.global.nc.b32 t, [%1]; mov.b32 %0, t;}" : "=r"(v) : "l"(p), "r"((int)ok), "r"(otherwise));
  return v;
}
DEV u16 load_bits(bool ok, const u16* p, u16 otherwise) {
  u16 v;
  asm("{.reg .pred q; .reg .b16 t; setp.ne.b32 q, %2, 0; mov.b16 t, %3; @q ld.global.nc.b16 t, [%1]; mov.b16 %0, t;}" : "=h"(v) : "l"(p), "r"((int)ok), "h"(otherwise));
  return v;
}
DEV u8 load_bits(bool ok, const u8* p, u8 otherwise) {
  u32 v;
  asm("{.reg .pred q; .reg .b32 t; setp.ne.b32 q, %2, 0; mov.b32 t, %3; @q ld.global.nc.u8 t, [%1]; mov.b32 %0, t;}" : "=r"(v) : "l"(p), "r"((int)ok), "r"((u32)otherwise));
  return (u8)v;
}
DEV uint2 load_bits(bool ok, const uint2* p, uint2 otherwise) {
  uint2 v;
  asm("{.reg .pred q; .reg .b32 t, u; setp.ne.b32 q, %3, 0; mov.b32 t, %4; mov.b32 u, %5; @q ld.global.nc.v2.b32 {t, u}, [%2]; mov.b32 %0, t; mov.b32 %1, u;}"
      : "=r"(v.x), "=r"(v.y) : "l"(p), "r"((int)ok), "r"(otherwise.x), "r"(otherwise.y));
  return v;
}
}  // namespace coda
