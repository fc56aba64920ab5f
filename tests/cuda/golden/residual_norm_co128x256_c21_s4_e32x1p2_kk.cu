// residual_norm as co128x256_c21_s4_e32x1p2_kk.
// x = A·Bᵀ + residual, and h, rstd: what the next product needs of RMSNorm(x)
//   h = x⊙w,  rstd = rsqrt(mean_n x² + eps)
//   RMSNorm(x)·Wᵀ = rstd⊙(h·Wᵀ): the scale is delayed past the product   (Zhang and Sennrich, 2019)
// The squares are those of the un-rounded x. zero_centred = 1: the stored weight is w - 1 (Gemma).
#include "gemm.cuh"

namespace coda {

struct Config {
  static constexpr int BM = 128, BN = 256, WARPGROUPS = 2, PINGPONG = 0, CLUSTER_M = 2, CLUSTER_N = 1, STAGES = 4, SPLIT = 1;
  static constexpr int ELEMENT = 2, N1 = 256, A_MN = 0, B_MN = 0, B_BOX = 128;
  static constexpr int PARTS = 1, HEAD = 0, ROTARY = 0;
  static constexpr int CHUNK = 32, GROUP = 16, STAGING = 1, PREFETCH = 2, STAGING_SLOT = 2048, OPERAND_SLOT = 4096, SLICE_SLOT = 128, COLUMN_BYTES = 0;
  static constexpr int OFFSET_STAGING = 196608, OFFSET_OPERANDS = 212992, OFFSET_SLICES = 229376, OFFSET_COLUMNS = 229888, OFFSET_BARRIERS = 229888;
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
  const void* eps;
  float eps_value;
  void* rstd;
  i64 rstd_stride0;

  DEV int tiles_n() const { return (N + Config::BN - 1) / Config::BN; }
  // where partial results and counters stand in the workspace
  DEV float* sum0_partials() const { return partials + 0; }
};

struct Maps { const TensorMap &A, &B, &residual, &w, &x, &h_; };

struct Epilogue {
  static constexpr int LOADED = 4160;         // bytes of tile operands a chunk
  static constexpr bool STAGED = true, SEGMENTS = false, ROWS = true, COLUMNS = false, TOTALS = false, ZEROED = true;
  static constexpr int CHUNK = Config::CHUNK, GROUP = Config::GROUP, E = GROUP / 2;
  const Params& p;
  const int warp, lane;
  float eps;
  struct Row {
    int m;
  } rows[2];
  Sum sum0[2];

  DEV Epilogue(const Params& p, const Maps&, int warp, int lane, u32) : p(p), warp(warp), lane(lane) {
    eps = scalar(f32(), p.eps, p.eps_value);
  }
  DEV void begin_rows(int m0) {
    #pragma unroll
    for (int h = 0; h < 2; h++) {
      Row& r = rows[h];
      r.m = m0 + warp * 16 + lane / 4 + 8 * h;
      sum0[h].clear();
    }
  }
  /// GROUP columns of each part, from column `local` of the part on: of this thread's two rows, a quarter of them.
  DEV void group(const float* acc, int local, bool fresh, const Place<Config>& at, u32 staged, u32 loaded, u32 slices) {
    const int first = local % CHUNK / 8;
    float residual_in[E];
    read_full<bf16, CHUNK>(loaded, warp * 16, lane, first, residual_in);
    float w_in[E / 2];
    read_columns<bf16>(slices, lane, first, w_in);
    float out_x[E];
    float out_h[E];
    #pragma unroll
    for (int i = 0; i < E; i++) {
      const float x = acc[i] + residual_in[i];
      out_x[i] = x;
      out_h[i] = x * w_in[i / 4 * 2 + i % 2];
      sum0[i / 2 % 2].add(x * x);
    }
    write_full<bf16, CHUNK>(staged, lane, first, out_x);
    write_full<bf16, CHUNK>(staged + 1024, lane, first, out_h);
  }
  /// This tile's results of the rows go to the workspace.
  DEV void put_rows(int nb) {
    #pragma unroll
    for (int h = 0; h < 2; h++) {
      fold_row(sum0[h]);
      const int m = rows[h].m;
      if (m >= p.M || nb >= p.tiles_n()) continue;
      if (lane % 4 != 0) continue;
      put_partial(p.sum0_partials() + (i64)nb * p.M + m, (i64)p.tiles_n() * p.M, sum0[h]);
    }
  }
  /// All tiles of the row have arrived: lanes `part` 0 and 1 combine every second partial result, 0 goes on.
  DEV void finish_rows(int m, int part, int tiles_n) {
    const int at = m < p.M ? m : 0;
    Sum sum0 = gather_partials<Sum>(p.sum0_partials() + at, (i64)tiles_n * p.M, p.M, part, tiles_n, 2);
    sum0.combine(shuffle_xor(sum0, 16));
    if (part != 0 || m >= p.M) return;
    store1(f32(), p.rstd, m * p.rstd_stride0, rsqrt((sum0.sum() / float(p.N)) + eps));
  }
  /// A chunk's boxes of the tile operands (64 rows) and slices of the column vectors ...
  DEV static void fetch(const Params& p, const Maps& maps, u32 bar, u32 dst, u32 slices, const Place<Config>& at) {
    tma_load(&maps.residual, bar, dst, at.n[0], at.m);
    tma_load(&maps.w, bar, slices, at.n[0], 0);
  }
  /// ... and of the outputs (16 rows, from row `m` on).
  DEV static void ship(const Params& p, const Maps& maps, u32 src, const Place<Config>& at, int m) {
    tma_store(&maps.x, src, at.n[0], m);
    tma_store(&maps.h_, src + 1024, at.n[0], m);
  }
};

}  // namespace coda

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
coda_residual_norm(const __grid_constant__ coda::TensorMap A, const __grid_constant__ coda::TensorMap B,
    const __grid_constant__ coda::TensorMap residual,
    const __grid_constant__ coda::TensorMap w,
    const __grid_constant__ coda::TensorMap x,
    const __grid_constant__ coda::TensorMap h_,
    const __grid_constant__ coda::Params p) {
  coda::run<coda::Config, coda::Epilogue>(p, coda::Maps{A, B, residual, w, x, h_});
}
