// The kernel every program runs in: D = epilogue(A[M,K] * B[N,K]^T), persistent and warp-specialised.
//
// One producer warpgroup (warp 0 fills the ring of A and B blocks by TMA, warps 1.. fill the rings of tile operands, one a
// consumer warpgroup) and 1 to 3 consumer warpgroups (wgmma, then the epilogue). Configuration C:
//   BM, BN          tile of one block; a k-block is 128 bytes of K
//   WARPGROUPS, PINGPONG   consumers; 0: they split BM, 1: each owns whole tiles in turn
//   CLUSTER_M, CLUSTER_N   2x1: two tiles along M share (multicast) B, 1x2: two along N share A
//   STAGES          of the A/B ring
//   N1              columns of the first wgmma; BN - N1 is the second's (0: one instruction)
//   A_MN, B_MN      the operand is stored with K as the slow dimension
//   CHUNK, GROUP    columns of an epilogue step, and of the part of it that is in registers at a time
//   STAGING, PREFETCH      output slots a warp, tile-operand slots a warpgroup
//   SPLIT           parts along K of each tile from split_from on
//   PARTS, HEAD, ROTARY, RUN   columns of a tile: see Tile
// The epilogue E is the emitted struct: it computes, and names the boxes to move; this file owns every barrier.
#pragma once
#include "box.cuh"
#include "pairs.cuh"
#include "reduce.cuh"
#include "wgmma.cuh"

namespace coda {

/// The tile's columns. PARTS 1: neighbours. PARTS 2: a tile holds BN/2 pairs; its first BN/2 columns are their first
/// members and the others their partners, by halves of N (HEAD 0) or inside heads of HEAD columns whose first ROTARY
/// pair among themselves and the rest likewise. RUN neighbours of a part are neighbours in the matrix.
template <class C> struct Tile {
  static constexpr int COLUMNS = C::BN / C::PARTS;                         // of one part
  static DEV int column(int part, int p, int N) {                          // of pair (or, unpaired, column) p
    if constexpr (C::PARTS == 1) return p;
    else if constexpr (C::HEAD == 0) return p + part * (N / 2);
    else return head_column<C::HEAD, C::ROTARY>(part, p);
  }
};

/// Where a step of the epilogue stands.
template <class C> struct Place {
  int m;                // first row of the warpgroup's 64
  int p;                // first pair, or column
  int n[C::PARTS];      // first column of each part
  DEV Place(int m, int p, int N) : m(m), p(p) {
    #pragma unroll
    for (int k = 0; k < C::PARTS; k++) n[k] = Tile<C>::column(k, p, N);
  }
};

/// The order of tiles: bands of `group` cluster tiles along M (raster 0) or N (raster 1), so that a wave's operands stay in
/// the L2. From tile split_from on, each tile is SPLIT consecutive units of work.
template <class C> struct Walk {
  int tm, tn, tiles, count, group, raster, split_from;
  template <class P> DEV Walk(const P& p) : group(p.group), raster(p.raster), split_from(p.split_from) {
    tm = (p.M + C::BM * C::CLUSTER_M - 1) / (C::BM * C::CLUSTER_M);
    tn = (p.N + C::BN * C::CLUSTER_N - 1) / (C::BN * C::CLUSTER_N);
    tiles = tm * tn;
    if constexpr (C::SPLIT == 1) split_from = tiles;
    count = split_from + (tiles - split_from) * C::SPLIT;
  }
  DEV void at(int tile, int& m, int& n) const {
    const int outer = raster ? tm : tn, inner = raster ? tn : tm;
    const int band = tile / (group * outer), first = band * group, r = tile - band * group * outer;
    const int width = min(inner - first, group), i = first + r % width, along = r / width;
    const int q = band & 1 ? outer - 1 - along : along;                    // back and forth: the next band starts with what the last ended with
    m = raster ? q : i;
    n = raster ? i : q;
  }
};
/// One unit of work: a tile of this block, and the k-blocks of it to add up.
template <class C> struct Unit {
  int tile, part, mb, nb, k0, k1;
  DEV Unit(const Walk<C>& walk, int u, int k_blocks, u32 rank) {
    tile = u;
    part = C::SPLIT - 1;
    k0 = 0;
    k1 = k_blocks;
    if constexpr (C::SPLIT > 1)
      if (u >= walk.split_from) {
        const int v = u - walk.split_from;
        tile = walk.split_from + v / C::SPLIT;
        part = v % C::SPLIT;
        k0 = (int)((i64)k_blocks * part / C::SPLIT);
        k1 = (int)((i64)k_blocks * (part + 1) / C::SPLIT);
      }
    // Nothing to add (K = 0, or a split finer than K): one block past the end, which TMA fills with zeros. A branch around
    // the products instead would make the compiler serialise them (C7517).
    if (k0 == k1) { k0 = k_blocks + 1; k1 = k0 + 1; }
    walk.at(tile, mb, nb);
    mb = mb * C::CLUSTER_M + (C::CLUSTER_M > 1 ? rank : 0);
    nb = nb * C::CLUSTER_N + (C::CLUSTER_N > 1 ? rank : 0);
  }
  DEV bool last() const { return part == C::SPLIT - 1; }                   // the one that runs the epilogue
  DEV bool shared(const Walk<C>& walk) const { return C::SPLIT > 1 && tile >= walk.split_from; }
};

template <class C> struct Geometry {
  static constexpr int CLUSTER = C::CLUSTER_M * C::CLUSTER_N;
  static constexpr int ROWS = C::PINGPONG ? C::BM : C::BM / C::WARPGROUPS, BLOCKS = ROWS / 64;   // of a warpgroup
  static constexpr int REGISTERS = C::BN / 2, N2 = C::BN - C::N1;
  static constexpr int A_BYTES = C::BM * 128, B_BYTES = C::BN * 128;
  static constexpr int K_ELEMENTS = 128 / C::ELEMENT;
  static constexpr int STEPS = Tile<C>::COLUMNS / C::CHUNK;
  // boxes of the A and B loads; the emitter's maps mirror them
  static constexpr int A_BOX = C::A_MN ? K_ELEMENTS / C::CLUSTER_N : C::BM / C::CLUSTER_N;
  static constexpr int B_BOX = C::B_MN ? K_ELEMENTS / C::CLUSTER_M : C::B_BOX;
  static constexpr int B_BOXES = C::B_MN ? C::BN / 64 : C::BN / C::B_BOX;
};

/// The A/B producer's warp: one thread keeps the ring full.
template <class C, class E, class P>
DEV void produce(const P& p, const TensorMap* ta, const TensorMap* tb, u32 sA, u32 sB, u32 full, u32 empty, u32 rank) {
  typedef Geometry<C> G;
  const Walk<C> walk(p);
  const int k_blocks = (p.K + G::K_ELEMENTS - 1) / G::K_ELEMENTS;
  constexpr bool SHARE_A = C::CLUSTER_N > 1, SHARE_B = C::CLUSTER_M > 1;
  auto load = [&](const TensorMap* map, u32 bar, u32 dst, int x, int y, bool shared) {
    if (shared) tma_load_multicast(map, bar, dst, x, y, 3); else tma_load(map, bar, dst, x, y);
  };
  u32 stage = 0, phase = 1;
  tma_prefetch_map(ta);
  tma_prefetch_map(tb);
  for (int u = blockIdx.x / G::CLUSTER; u < walk.count; u += gridDim.x / G::CLUSTER) {
    const Unit<C> unit(walk, u, k_blocks, rank);
    const int m0 = unit.mb * C::BM, p0 = unit.nb * Tile<C>::COLUMNS;
    int b_rows[C::B_MN ? C::BN / 64 : G::B_BOXES];                         // first column of each box of B
    #pragma unroll
    for (int i = 0; i < (int)(sizeof(b_rows) / 4); i++) {
      const int local = i * (C::B_MN ? 64 : C::B_BOX), part = local / Tile<C>::COLUMNS;
      b_rows[i] = Tile<C>::column(part, p0 + local - part * Tile<C>::COLUMNS, p.N);
    }
    // Tile after tile K runs up and down: what a tile reads last is in the L2 when the next of its band starts with it.
    const int k_step = u / (gridDim.x / G::CLUSTER) & 1 ? -G::K_ELEMENTS : G::K_ELEMENTS;
    int k = (k_step > 0 ? unit.k0 : unit.k1 - 1) * G::K_ELEMENTS;
    #pragma unroll 1
    for (int left = unit.k1 - unit.k0; left > 0; left--, k += k_step) {
      mbar_wait(empty + 8 * stage, phase);
      const u32 bar = full + 8 * stage, a = sA + stage * G::A_BYTES, b = sB + stage * G::B_BYTES;
      mbar_expect(bar, G::A_BYTES + G::B_BYTES);
      const int a_part = SHARE_A ? rank * G::A_BOX : 0, b_part = SHARE_B && C::B_MN ? rank * G::B_BOX : 0;
      if constexpr (C::A_MN) {
        #pragma unroll
        for (int i = 0; i < C::BM / 64; i++) load(ta, bar, a + i * 8192 + a_part * 128, m0 + i * 64, k + a_part, SHARE_A);
      } else {
        load(ta, bar, a + a_part * 128, k, m0 + a_part, SHARE_A);
      }
      if constexpr (C::B_MN) {
        #pragma unroll
        for (int i = 0; i < C::BN / 64; i++) load(tb, bar, b + i * 8192 + b_part * 128, b_rows[i], k + b_part, SHARE_B);
      } else {
        #pragma unroll
        for (int i = 0; i < G::B_BOXES; i++)
          if (!SHARE_B || rank == i / (G::B_BOXES / 2)) load(tb, bar, b + i * C::B_BOX * 128, k, b_rows[i], SHARE_B);
      }
      if (++stage == C::STAGES) { stage = 0; phase ^= 1; }
    }
  }
}

/// A tile-operand producer: keeps the ring of consumer warpgroup w full, in the order of its steps.
template <class C, class E, class P, class Maps>
DEV void produce_operands(const P& p, const Maps& maps, int w, u32 ring, u32 slices, u32 full, u32 empty, u32 rank) {
  typedef Geometry<C> G;
  const Walk<C> walk(p);
  const int step = gridDim.x / G::CLUSTER;
  u32 slot = 0, phase = 1;
  for (int u = blockIdx.x / G::CLUSTER + (C::PINGPONG ? w * step : 0); u < walk.count; u += C::PINGPONG ? 2 * step : step) {
    const Unit<C> unit(walk, u, 0, rank);
    if (!unit.last()) continue;
    const int m0 = unit.mb * C::BM + (C::PINGPONG ? 0 : w * G::ROWS), p0 = unit.nb * Tile<C>::COLUMNS;
    #pragma unroll 1
    for (int i = 0; i < G::BLOCKS * G::STEPS; i++) {
      mbar_wait(empty + 8 * slot, phase);
      mbar_expect(full + 8 * slot, E::LOADED);
      E::fetch(p, maps, full + 8 * slot, ring + slot * C::OPERAND_SLOT, slices + slot * C::SLICE_SLOT, Place<C>(m0 + i / G::STEPS * 64, p0 + i % G::STEPS * C::CHUNK, p.N));
      if (++slot == C::PREFETCH) { slot = 0; phase ^= 1; }
    }
  }
}

/// A split tile: all but the last part leave their sums in the workspace; the last adds them to its own, in order of k.
template <class C, class P, int BLOCKS, int REGISTERS>
DEV bool exchange_split(const P& p, const Walk<C>& walk, const Unit<C>& unit, u32 rank, int warp_of_tile, int lane, float (&acc)[BLOCKS][REGISTERS]) {
  constexpr int WARPS = C::BM / 16 / BLOCKS, FLOATS = BLOCKS * REGISTERS * 32;
  const i64 id = (i64)(unit.tile - walk.split_from) * Geometry<C>::CLUSTER + rank;
  float* at = p.partials + p.split_partials() + (id * (C::SPLIT - 1) * WARPS + warp_of_tile) * FLOATS + lane * 4;
  u32* counter = p.counters + p.split_counters() + id * WARPS + warp_of_tile;
  if (!unit.last()) {
    at += (i64)unit.part * WARPS * FLOATS;
    #pragma unroll
    for (int i = 0; i < BLOCKS * REGISTERS / 4; i++) {
      const float* v = &acc[i / (REGISTERS / 4)][i % (REGISTERS / 4) * 4];
      __stcg((float4*)(at + i * 128), make_float4(v[0], v[1], v[2], v[3]));
    }
    __syncwarp();
    if (lane == 0) arrive_global(counter);
    return false;
  }
  if (lane == 0) {
    while (load_acquire(counter) != C::SPLIT - 1) __nanosleep(64);
    store_relaxed(counter, 0);
  }
  __syncwarp();
  #pragma unroll
  for (int i = 0; i < BLOCKS * REGISTERS / 4; i++) {
    float* v = &acc[i / (REGISTERS / 4)][i % (REGISTERS / 4) * 4];
    float4 s = __ldcg((const float4*)(at + i * 128));
    #pragma unroll
    for (int k = 1; k < C::SPLIT - 1; k++) {
      const float4 t = __ldcg((const float4*)(at + (i64)k * WARPS * FLOATS + i * 128));
      s.x += t.x; s.y += t.y; s.z += t.z; s.w += t.w;
    }
    v[0] += s.x; v[1] += s.y; v[2] += s.z; v[3] += s.w;
  }
  return true;
}

/// A ragged tile's accumulators outside the matrix become 0, which they are anyway unless A or B holds an infinity.
template <class C, int REGISTERS, class P> DEV void zero_outside(const P& p, float (&acc)[REGISTERS], int m, int p0, int lane) {
  const int row = p.M - m - lane / 4, column = p.N / C::PARTS - p0 - 2 * (lane & 3);
  #pragma unroll
  for (int v = 0; v < REGISTERS; v++) {
    const int l = v % (REGISTERS / C::PARTS);
    if (8 * (l / 2 % 2) >= row || l / 4 * 8 + l % 2 >= column) acc[v] = 0.f;
  }
}

/// A consumer warpgroup.
template <class C, class E, class P, class Maps>
DEV void consume(const P& p, const Maps& maps, int w, int warp, int lane, u32 smem, u32 full, u32 empty, u32 operands_full, u32 operands_empty, u32 rank) {
  typedef Geometry<C> G;
  constexpr u32 ORDER = 1, COLUMNS = 3;                                    // named barriers: 1, 2 and 3.. a warpgroup
  const Walk<C> walk(p);
  const int k_blocks = (p.K + G::K_ELEMENTS - 1) / G::K_ELEMENTS, step = gridDim.x / G::CLUSTER;

  // Low words of wgmma descriptors: the address, and the leading offset (MN-major: 8192 bytes) from bit 16 on, in 16-byte units. In
  // a cluster the shared-window address carries the block's rank above bit 23: masked, or it lands in the leading offset and
  // MN-major operands read NaN. Opaque: the compiler would look the block's rank up again for every k-block.
  const u32 a_lo = opaque((((smem + (C::PINGPONG ? 0 : w * G::ROWS * 128)) & 0x3ffff) >> 4) + ((C::A_MN ? 8192 / 16 : 1) << 16));
  const u32 b_lo = opaque((((smem + C::STAGES * G::A_BYTES) & 0x3ffff) >> 4) + ((C::B_MN ? 8192 / 16 : 1) << 16));
  constexpr int A_STEP = C::A_MN ? 128 : 2, B_STEP = C::B_MN ? 128 : 2;    // a quarter of a k-block, in 16-byte units
  constexpr int SECOND = (C::B_MN ? C::N1 / 64 * 8192 : C::N1 * 128) / 16;

  const u32 staging = smem + C::OFFSET_STAGING + (w * 4 + warp) * C::STAGING * C::STAGING_SLOT;
  const u32 operands = smem + C::OFFSET_OPERANDS + w * C::PREFETCH * C::OPERAND_SLOT;
  const u32 slice_ring = smem + C::OFFSET_SLICES + w * C::PREFETCH * C::SLICE_SLOT;
  const u32 columns = smem + C::OFFSET_COLUMNS + w * 4 * C::COLUMN_BYTES;  // four warps' column results, then a flag
  const u32 last_flag = smem + C::OFFSET_COLUMNS + C::WARPGROUPS * 4 * C::COLUMN_BYTES + 4 * w;
  u32 slot = 0, operand_slot = 0, operand_phase = 0;
  u32 blocks_seen = 0;                                                     // k-blocks of the ring used so far
  const int first = blockIdx.x / G::CLUSTER;
  E e(p, maps, warp, lane, columns + warp * C::COLUMN_BYTES);
  if (C::PINGPONG && w == 1) bar_arrive(ORDER + 0, 256);
  if (C::PINGPONG && w == 1 && first < walk.count) { const Unit<C> before(walk, first, k_blocks, rank); blocks_seen = before.k1 - before.k0; }

  for (int u = first + (C::PINGPONG ? w * step : 0); u < walk.count; u += C::PINGPONG ? 2 * step : step) {
    const Unit<C> unit(walk, u, k_blocks, rank);
    const int m0 = unit.mb * C::BM + (C::PINGPONG ? 0 : w * G::ROWS), p0 = unit.nb * Tile<C>::COLUMNS;
    float acc[G::BLOCKS][G::REGISTERS];
    if constexpr (G::BLOCKS == 1) e.begin_rows(m0);                        // loads in flight under the mainloop

    // -------- mainloop
    const int blocks = unit.k1 - unit.k0;
    u32 stage = blocks_seen % C::STAGES, phase = (blocks_seen / C::STAGES) & 1, previous = 0;
    if (C::PINGPONG) bar_sync(ORDER + w, 256);
    auto multiply = [&](int keep) {
      mbar_wait(full + 8 * stage, phase);
      wgmma_fence();
      const u32 a = a_lo + stage * (G::A_BYTES / 16), b = b_lo + stage * (G::B_BYTES / 16);
      #pragma unroll
      for (int k = 0; k < 4; k++) {
        #pragma unroll
        for (int i = 0; i < G::BLOCKS; i++) {
          const u32 da = a + k * A_STEP + i * (8192 / 16), db = b + k * B_STEP;
          wgmma<C::N1, C::A_MN, C::B_MN>(acc[i], da, db, k > 0 ? 1 : keep);
          if constexpr (G::N2 > 0) wgmma<G::N2, C::A_MN, C::B_MN>(acc[i] + C::N1 / 2, da, db + SECOND, k > 0 ? 1 : keep);
        }
      }
      wgmma_commit();
    };
    auto release = [&](u32 s) {
      if constexpr (G::CLUSTER == 1) { if (lane == 0) mbar_arrive(empty + 8 * s); }
      else if (lane < G::CLUSTER) mbar_arrive_at(empty + 8 * s, lane);
    };
    auto advance = [&] { previous = stage; if (++stage == C::STAGES) { stage = 0; phase ^= 1; } };
    multiply(0);
    advance();
    #pragma unroll 1
    for (int kb = 1; kb < blocks; kb++) {
      multiply(1);
      wgmma_wait<1>();
      release(previous);
      advance();
    }
    if (C::PINGPONG) bar_arrive(ORDER + (w ^ 1), 256);
    wgmma_wait<0>();
    release(previous);
    blocks_seen += blocks;
    if (C::PINGPONG) {
      if (C::SPLIT == 1) blocks_seen += blocks;
      else if (u + step < walk.count) { const Unit<C> other(walk, u + step, k_blocks, rank); blocks_seen += other.k1 - other.k0; }
    }
    if constexpr (C::SPLIT > 1)
      if (unit.shared(walk) && !exchange_split<C>(p, walk, unit, rank, (C::PINGPONG ? 0 : w * 4) + warp, lane, acc)) continue;

    // -------- epilogue: 64 rows of the warpgroup, 16 of them this warp's, chunk by chunk. The next 64 rows' accumulators
    // move to where the first's were, so that the code stands there once: half as much to compile and to fetch. (Moving
    // within 64 rows, to have a chunk's code once, made the compiler serialise the products: C7514.)
    #pragma unroll 1
    for (int i = 0; i < G::BLOCKS; i++) {
      const int m = m0 + i * 64;
      if constexpr (G::BLOCKS > 1) e.begin_rows(m);
      if constexpr (E::ZEROED)
        if (m + 64 > p.M || p0 + Tile<C>::COLUMNS > p.N / C::PARTS) zero_outside<C>(p, acc[0], m + warp * 16, p0, lane);
      if constexpr (E::SEGMENTS) e.segments(acc[0], m, p0);
      #pragma unroll
      for (int s = 0; s < G::STEPS; s++) {
        // opaque: or the compiler computes what all chunks need of their columns before the first, and spills it
        const Place<C> at(m, opaque(p0) + s * C::CHUNK, p.N);
        const u32 staged = staging + slot * C::STAGING_SLOT, loaded = operands + operand_slot * C::OPERAND_SLOT, slices = slice_ring + operand_slot * C::SLICE_SLOT;
        if constexpr (E::STAGED) { if (lane == 0) bulk_wait_read<C::STAGING - 1>(); __syncwarp(); }
        if constexpr (E::LOADED > 0) mbar_wait(operands_full + 8 * operand_slot, operand_phase);
        #pragma unroll
        for (int local = s * C::CHUNK; local < (s + 1) * C::CHUNK; local += C::GROUP) e.group(acc[0] + local / 2, local, i == 0, at, staged, loaded, slices);
        if constexpr (E::STAGED || E::LOADED > 0) { fence_async(); __syncwarp(); }
        if constexpr (E::LOADED > 0) {
          // Only now: an arrive straight after the reads lets the refill overtake them (seen as errors of 1e-2).
          if (lane == 0) mbar_arrive(operands_empty + 8 * operand_slot);
          if (++operand_slot == C::PREFETCH) { operand_slot = 0; operand_phase ^= 1; }
        }
        if constexpr (E::STAGED) {
          if (lane == 0) { E::ship(p, maps, staged, at, m + warp * 16); bulk_commit(); }
          if (++slot == C::STAGING) slot = 0;
        }
      }
      if constexpr (E::ROWS) e.put_rows(unit.nb);
      #pragma unroll
      for (int b = 1; b < G::BLOCKS; b++)
        #pragma unroll
        for (int v = 0; v < G::REGISTERS; v++) acc[b - 1][v] = acc[b][v];
    }
    if constexpr (E::ROWS) {
      // The last tile of a row to arrive combines the partial results of all tiles and leaves the counter at 0.
      if (unit.nb * C::BN < p.N) {
        const int tiles_n = (p.N + C::BN - 1) / C::BN;
        __syncwarp();
        u32 last = 0;
        u32* counter = p.counters + (m0 + lane * 64 + warp * 16) / 16;
        if (lane < G::BLOCKS && m0 + lane * 64 + warp * 16 < p.M) {
          last = arrive_global(counter) == tiles_n - 1;
          if (last) store_relaxed(counter, 0);
        }
        last = __ballot_sync(~0u, last);
        __syncwarp();
        #pragma unroll 1
        for (int i = 0; i < G::BLOCKS; i++)
          if (last >> i & 1) e.finish_rows(m0 + i * 64 + warp * 16 + (lane & 15), lane >> 4, tiles_n);
      }
    }
    if constexpr (E::COLUMNS) {
      // Per warpgroup: its rows' column results go to the workspace; the last to arrive of a column tile completes it.
      if (unit.nb * C::BN < p.N && m0 < p.M) {
        const int thread = warp * 32 + lane, blocks_m = (p.M + G::ROWS - 1) / G::ROWS;
        bar_sync(COLUMNS + w, 128);
        e.put_columns(columns, thread, p0, m0 / G::ROWS, blocks_m);
        bar_sync(COLUMNS + w, 128);
        if (thread == 0) {
          u32* counter = p.counters + p.column_counters() + unit.nb;
          const u32 last = arrive_global(counter) == blocks_m - 1;
          if (last) store_relaxed(counter, 0);
          shared_store(last_flag, last);
        }
        bar_sync(COLUMNS + w, 128);
        u32 last;
        shared_load(last_flag, last);
        if (last) e.finish_columns(thread, p0, blocks_m);
      }
    }
  }
  if constexpr (E::TOTALS) {
    // One partial a consumer warp for the whole grid; the last warp combines them.
    const int warps = gridDim.x * C::WARPGROUPS * 4, id = (blockIdx.x * C::WARPGROUPS + w) * 4 + warp;
    e.put_totals(id, warps);
    __syncwarp();
    u32 last = 0;
    u32* counter = p.counters + p.total_counter();
    if (lane == 0) {
      last = arrive_global(counter) == warps - 1;
      if (last) store_relaxed(counter, 0);
    }
    if (__shfl_sync(~0u, last, 0)) { __syncwarp(); e.finish_totals(warps); }
  }
  if (E::STAGED && lane == 0) bulk_wait_all();
}

template <class C, class E, class P, class Maps> DEV void run(const P& p, const Maps& maps) {
  typedef Geometry<C> G;
  const u32 smem = shared_base();
  const u32 full = smem + C::OFFSET_BARRIERS, empty = full + 8 * C::STAGES;
  const u32 operands_full = empty + 8 * C::STAGES, operands_empty = operands_full + 8 * C::WARPGROUPS * C::PREFETCH;
  const int group = __shfl_sync(~0u, threadIdx.x >> 7, 0), warp = __shfl_sync(~0u, (threadIdx.x >> 5) & 3, 0), lane = threadIdx.x & 31;
  const u32 rank = G::CLUSTER > 1 ? cluster_rank() : 0;

  grid_dependency_launch();
  if (threadIdx.x == 0) {
    if (smem & 1023) __trap();
    for (int i = 0; i < C::STAGES; i++) { mbar_init(full + 8 * i, 1); mbar_init(empty + 8 * i, (C::PINGPONG ? 4 : 4 * C::WARPGROUPS) * G::CLUSTER); }
    if constexpr (E::LOADED > 0)
      for (int i = 0; i < C::WARPGROUPS * C::PREFETCH; i++) { mbar_init(operands_full + 8 * i, 1); mbar_init(operands_empty + 8 * i, 4); }
    mbar_init_fence();
  }
  if constexpr (G::CLUSTER > 1) cluster_sync(); else __syncthreads();
  grid_dependency_wait();                                                  // of a predecessor this was launched ahead of

  if (group == 0) {
    if constexpr (C::WARPGROUPS > 1) setmaxnreg_dec<C::PRODUCER_REGISTERS>();  // two warpgroups have 255 each as they are
    if (warp == 0) {
      if (lane == 0) produce<C, E>(p, &maps.A, &maps.B, smem, smem + C::STAGES * G::A_BYTES, full, empty, rank);
    } else if (E::LOADED > 0 && warp <= C::WARPGROUPS) {
      const int w = warp - 1;
      if constexpr (E::LOADED > 0)
        if (lane == 0) produce_operands<C, E>(p, maps, w, smem + C::OFFSET_OPERANDS + w * C::PREFETCH * C::OPERAND_SLOT,
                                              smem + C::OFFSET_SLICES + w * C::PREFETCH * C::SLICE_SLOT,
                                              operands_full + 8 * w * C::PREFETCH, operands_empty + 8 * w * C::PREFETCH, rank);
    }
  } else {
    if constexpr (C::WARPGROUPS > 1) setmaxnreg_inc<C::CONSUMER_REGISTERS>();
    const int w = group - 1;
    consume<C, E>(p, maps, w, warp, lane, smem, full, empty, operands_full + 8 * w * C::PREFETCH, operands_empty + 8 * w * C::PREFETCH, rank);
  }
  if constexpr (G::CLUSTER > 1) cluster_sync();                            // a peer may still write here or signal these barriers
}

}  // namespace coda
