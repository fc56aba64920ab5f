// norm_backward as co128x256_c21_s3_e32x1p2_kk.
// dx = dresidual + rstd⊙(dh⊙w - x̂·zdz/N), dw += Σ_m dh⊙x̂: the backward of RMSNorm into a product
// That is of residual_norm, then any norm_* program: z = rstd⊙((x⊙w)·Wᵀ). The product is acc = dh = dz·W; x̂ = x·rstd;
// zdz[m] = Σ_n z·dz comes from the program that produced dz, so no second pass over the row is needed.
// h = x̂⊙w is the weight gradient's operand. with_residual = 0: nothing but the norm reads x, and dresidual is 0.
// zero_centred = 1: the stored weight is w - 1 (Gemma).
#include "gemm.cuh"

namespace coda {

struct Config {
  static constexpr int BM = 128, BN = 256, WARPGROUPS = 2, PINGPONG = 0, CLUSTER_M = 2, CLUSTER_N = 1, STAGES = 3, SPLIT = 1;
  static constexpr int ELEMENT = 2, N1 = 256, A_MN = 0, B_MN = 0, B_BOX = 128;
  static constexpr int PARTS = 1, HEAD = 0, ROTARY = 0;
  static constexpr int CHUNK = 32, GROUP = 16, STAGING = 1, PREFETCH = 2, STAGING_SLOT = 2048, OPERAND_SLOT = 8192, SLICE_SLOT = 128, COLUMN_BYTES = 1024;
  static constexpr int OFFSET_STAGING = 147456, OFFSET_OPERANDS = 163840, OFFSET_SLICES = 196608, OFFSET_COLUMNS = 197120, OFFSET_BARRIERS = 205344;
  static constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
};

struct Params {
  int M;
  int N;
  int K;
  int group;
  int raster;
  int split_from;
  float* partials;
  u32* counters;
  const void* rstd;
  i64 rstd_stride0;
  const void* zdz;
  i64 zdz_stride0;
  void* dw;
  i64 dw_stride0;

  DEV int tiles_n() const { return (N + Config::BN - 1) / Config::BN; }
  DEV int blocks_m() const { return (M + 64 - 1) / 64; }
  // where partial results and counters stand in the workspace
  DEV float* sum0_partials() const { return partials + 0; }
  DEV i64 column_counters() const { return 0; }
};

struct Maps { const TensorMap &A, &B, &x, &dresidual, &w, &dx, &h_; };

struct Epilogue {
  static constexpr int LOADED = 8256;         // bytes of tile operands a chunk
  static constexpr bool STAGED = true, SEGMENTS = false, ROWS = false, COLUMNS = true, TOTALS = false, ZEROED = true;
  static constexpr int CHUNK = Config::CHUNK, GROUP = Config::GROUP, E = GROUP / 2;
  const Params& p;
  const int warp, lane;
  const u32 columns;                          // this warp's column results in shared memory
  struct Row {
    int m;
    float rstd;
    float row1;
  } rows[2];

  DEV Epilogue(const Params& p, const Maps&, int warp, int lane, u32 columns) : p(p), warp(warp), lane(lane), columns(columns) {
  }
  DEV void begin_rows(int m0) {
    #pragma unroll
    for (int h = 0; h < 2; h++) {
      Row& r = rows[h];
      r.m = m0 + warp * 16 + lane / 4 + 8 * h;
      r.rstd = load1_if(f32(), r.m < p.M, p.rstd, r.m * p.rstd_stride0);
      r.row1 = load1_if(f32(), r.m < p.M, p.zdz, r.m * p.zdz_stride0) / float(p.N);
    }
  }
  /// GROUP columns of each part, from column `local` of the part on: of this thread's two rows, a quarter of them.
  DEV void group(const float* acc, int local, bool fresh, const Place<Config>& at, u32 staged, u32 loaded, u32 slices) {
    const int first = local % CHUNK / 8;
    float x_in[E];
    read_full<bf16, CHUNK>(loaded, warp * 16, lane, first, x_in);
    float dresidual_in[E];
    read_full<bf16, CHUNK>(loaded + 4096, warp * 16, lane, first, dresidual_in);
    float w_in[E / 2];
    read_columns<bf16>(slices, lane, first, w_in);
    float out_dx[E];
    float out_h[E];
    Sum sum0[E / 2];
    for (auto& v : sum0) v.clear();
    #pragma unroll
    for (int i = 0; i < E; i++) {
      const Row& r = rows[i / 2 % 2];
      const float xhat = x_in[i] * r.rstd;
      out_dx[i] = dresidual_in[i] + (r.rstd * ((acc[i] * w_in[i / 4 * 2 + i % 2]) - (xhat * r.row1)));
      out_h[i] = xhat * w_in[i / 4 * 2 + i % 2];
      sum0[i / 4 * 2 + i % 2].add(acc[i] * xhat);
    }
    write_full<bf16, CHUNK>(staged, lane, first, out_dx);
    write_full<bf16, CHUNK>(staged + 1024, lane, first, out_h);
    fold_columns_into<Sum, 256, 2>(columns, local, fresh, sum0, lane);
  }
  /// The warpgroup's results of the columns, its four warps' in order, go to the workspace.
  DEV void put_columns(u32 all, int thread, int p0, int block, int blocks) {
    for (int c = thread; c < Tile<Config>::COLUMNS; c += 128) {
      const int q = p0 + c;
      if (q >= p.N / Config::PARTS) return;
      put_partial(p.sum0_partials() + ((i64)block * 1 + 0) * p.N + Tile<Config>::column(0, q, p.N), (i64)blocks * 1 * p.N, gather_warps<Sum, 256>(all, c, Config::COLUMN_BYTES));
    }
  }
  /// All blocks of rows of these columns have arrived.
  DEV void finish_columns(int thread, int p0, int blocks) {
    for (int c = thread; c < Tile<Config>::COLUMNS; c += 128) {
      const int q = p0 + c;
      if (q >= p.N / Config::PARTS) return;
      {
        const int n = Tile<Config>::column(0, q, p.N);
        const Sum sum0 = gather_partials<Sum>(p.sum0_partials() + 0 * p.N + n, (i64)blocks * 1 * p.N, 1 * (i64)p.N, 0, blocks, 1);
        accumulate1(f32(), p.dw, n * p.dw_stride0, sum0.sum());
      }
    }
  }
  /// A chunk's boxes of the tile operands (64 rows) and slices of the column vectors ...
  DEV static void fetch(const Params& p, const Maps& maps, u32 bar, u32 dst, u32 slices, const Place<Config>& at) {
    tma_load(&maps.x, bar, dst, at.n[0], at.m);
    tma_load(&maps.dresidual, bar, dst + 4096, at.n[0], at.m);
    tma_load(&maps.w, bar, slices, at.n[0], 0);
  }
  /// ... and of the outputs (16 rows, from row `m` on).
  DEV static void ship(const Params& p, const Maps& maps, u32 src, const Place<Config>& at, int m) {
    tma_store(&maps.dx, src, at.n[0], m);
    tma_store(&maps.h_, src + 1024, at.n[0], m);
  }
};

}  // namespace coda

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
coda_norm_backward(const __grid_constant__ coda::TensorMap A, const __grid_constant__ coda::TensorMap B,
    const __grid_constant__ coda::TensorMap x,
    const __grid_constant__ coda::TensorMap dresidual,
    const __grid_constant__ coda::TensorMap w,
    const __grid_constant__ coda::TensorMap dx,
    const __grid_constant__ coda::TensorMap h_,
    const __grid_constant__ coda::Params p) {
  coda::run<coda::Config, coda::Epilogue>(p, coda::Maps{A, B, x, dresidual, w, dx, h_});
}
