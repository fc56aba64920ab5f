// norm_rope as pp128x192_c21_s5_e32x1p2_kk.
// [q | k | v] = rstd⊙(A·Bᵀ), rotary embedding of q and k, half-split
// In a head of D columns, columns (a, b) = (i, i + R/2), i < R/2, turn by their row's angle:
//   a' = a·cosθ - b·sinθ,  b' = a·sinθ + b·cosθ
// (Su et al., RoFormer, 2021; partners as in Hugging Face models.) Columns from `rotated` on, which are v's, stay as
// they are: with grouped queries rotated = (query heads + key heads)·D. R < D rotates the first R columns of a head.
#include "gemm.cuh"

namespace coda {

struct Config {
  static constexpr int BM = 128, BN = 192, WARPGROUPS = 2, PINGPONG = 1, CLUSTER_M = 2, CLUSTER_N = 1, STAGES = 5, SPLIT = 1;
  static constexpr int ELEMENT = 2, N1 = 192, A_MN = 0, B_MN = 0, B_BOX = 32;
  static constexpr int PARTS = 2, HEAD = 128, ROTARY = 128;
  static constexpr int CHUNK = 32, GROUP = 16, STAGING = 1, PREFETCH = 2, STAGING_SLOT = 2048, OPERAND_SLOT = 0, SLICE_SLOT = 0, COLUMN_BYTES = 0;
  static constexpr int OFFSET_STAGING = 204800, OFFSET_OPERANDS = 221184, OFFSET_SLICES = 221184, OFFSET_COLUMNS = 221184, OFFSET_BARRIERS = 221184;
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
  const void* position;
  i64 position_stride0;
  const void* cos_;
  i64 cos__stride0;
  int cos__extent0;
  int cos__extent1;
  const void* sin_;
  i64 sin__stride0;
  int sin__extent0;
  int sin__extent1;
  const void* rotated;
  int rotated_value;
};

struct Maps { const TensorMap &A, &B, &qkv_0, &qkv_1; };

struct Epilogue {
  static constexpr int LOADED = 0;         // bytes of tile operands a chunk
  static constexpr bool STAGED = true, SEGMENTS = false, ROWS = false, COLUMNS = false, TOTALS = false, ZEROED = false;
  static constexpr int CHUNK = Config::CHUNK, GROUP = Config::GROUP, E = GROUP / 2;
  const Params& p;
  const int warp, lane;
  int rotated;
  struct Row {
    int m;
    float rstd;
    const void* cos_row;
    const void* sin_row;
  } rows[2];

  DEV Epilogue(const Params& p, const Maps&, int warp, int lane, u32) : p(p), warp(warp), lane(lane) {
    rotated = scalar(i32(), p.rotated, p.rotated_value);
  }
  DEV void begin_rows(int m0) {
    #pragma unroll
    for (int h = 0; h < 2; h++) {
      Row& r = rows[h];
      r.m = m0 + warp * 16 + lane / 4 + 8 * h;
      r.rstd = load1_if(f32(), r.m < p.M, p.rstd, r.m * p.rstd_stride0);
      const int t9 = load1_if(i64_(), r.m < p.M, p.position, r.m * p.position_stride0);
      r.cos_row = table_row(f32(), p.cos_, p.cos__extent0, p.cos__stride0, t9);
      r.sin_row = table_row(f32(), p.sin_, p.sin__extent0, p.sin__stride0, t9);
    }
  }
  /// GROUP columns of each part, from column `local` of the part on: of this thread's two rows, a quarter of them.
  DEV void group(const float* acc, int local, bool fresh, const Place<Config>& at, u32 staged, u32 loaded, u32 slices) {
    const int first = local % CHUNK / 8;
    float out_qkv_0[E];
    float out_qkv_1[E];
    bool column20_0[E / 2];
    bool column20_1[E / 2];
    int column7_0[E / 2];
    #pragma unroll
    for (int j = 0; j < E / 2; j++) {
      const int n_0 = at.n[0] + 8 * (first + j / 2) + 2 * (lane & 3) + j % 2;
      const int n_1 = at.n[1] + 8 * (first + j / 2) + 2 * (lane & 3) + j % 2;
      column20_0[j] = n_0 < rotated;
      column20_1[j] = n_1 < rotated;
      column7_0[j] = int(u32(n_0) % 128u);
    }
    bool wanted20 = false;
    #pragma unroll
    for (int j = 0; j < E / 2; j++) wanted20 = wanted20 || column20_0[j] || column20_1[j];
    float cos_pair[E];
    float sin_pair[E];
    #pragma unroll
    for (int i = 0; i < E; i++) {
      const Row& r = rows[i / 2 % 2];
      const float z_0 = acc[i] * r.rstd;
      const float a = z_0;
      const int i_ = column7_0[i / 4 * 2 + i % 2];
      if (i % 2 == 0) lookup2(f32(), (wanted20 ? r.cos_row : nullptr), p.cos__extent1, i_, cos_pair[i], cos_pair[i + 1]);
      const float c_ = cos_pair[i];
      const float z_1 = acc[Tile<Config>::COLUMNS / 2 + i] * r.rstd;
      const float b = z_1;
      if (i % 2 == 0) lookup2(f32(), (wanted20 ? r.sin_row : nullptr), p.sin__extent1, i_, sin_pair[i], sin_pair[i + 1]);
      const float s = sin_pair[i];
      const float y_0 = (a * c_) - (b * s);
      out_qkv_0[i] = select(column20_0[i / 4 * 2 + i % 2], y_0, z_0);
      const float y_1 = (a * s) + (b * c_);
      out_qkv_1[i] = select(column20_1[i / 4 * 2 + i % 2], y_1, z_1);
    }
    write_full<bf16, CHUNK>(staged, lane, first, out_qkv_0);
    write_full<bf16, CHUNK>(staged + 1024, lane, first, out_qkv_1);
  }
  /// A chunk's boxes of the tile operands (64 rows) and slices of the column vectors ...
  DEV static void fetch(const Params& p, const Maps& maps, u32 bar, u32 dst, u32 slices, const Place<Config>& at) {
  }
  /// ... and of the outputs (16 rows, from row `m` on).
  DEV static void ship(const Params& p, const Maps& maps, u32 src, const Place<Config>& at, int m) {
    tma_store(&maps.qkv_0, src, at.n[0], m);
    tma_store(&maps.qkv_1, src + 1024, at.n[1], m);
  }
};

}  // namespace coda

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
coda_norm_rope(const __grid_constant__ coda::TensorMap A, const __grid_constant__ coda::TensorMap B,
    const __grid_constant__ coda::TensorMap qkv_0,
    const __grid_constant__ coda::TensorMap qkv_1,
    const __grid_constant__ coda::Params p) {
  coda::run<coda::Config, coda::Epilogue>(p, coda::Maps{A, B, qkv_0, qkv_1});
}
