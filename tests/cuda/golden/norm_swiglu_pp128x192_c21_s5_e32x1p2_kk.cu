// norm_swiglu as pp128x192_c21_s5_e32x1p2_kk.
// z = [g | u] = rstd⊙(A·Bᵀ),  y = silu(g)⊙u
// B = [gate; up] (Shazeer, GLU Variants Improve Transformer, 2020).
#include "gemm.cuh"

namespace coda {

struct Config {
  static constexpr int BM = 128, BN = 192, WARPGROUPS = 2, PINGPONG = 1, CLUSTER_M = 2, CLUSTER_N = 1, STAGES = 5, SPLIT = 1;
  static constexpr int ELEMENT = 2, N1 = 192, A_MN = 0, B_MN = 0, B_BOX = 96;
  static constexpr int PARTS = 2, HEAD = 0, ROTARY = 0;
  static constexpr int CHUNK = 32, GROUP = 16, STAGING = 1, PREFETCH = 2, STAGING_SLOT = 3072, OPERAND_SLOT = 0, SLICE_SLOT = 0, COLUMN_BYTES = 0;
  static constexpr int OFFSET_STAGING = 204800, OFFSET_OPERANDS = 229376, OFFSET_SLICES = 229376, OFFSET_COLUMNS = 229376, OFFSET_BARRIERS = 229376;
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
};

struct Maps { const TensorMap &A, &B, &z_0, &z_1, &y; };

DEV float silu(float x) { return ratio(maximum(x, -1024), 1 + exp(-x)); }

struct Epilogue {
  static constexpr int LOADED = 0;         // bytes of tile operands a chunk
  static constexpr bool STAGED = true, SEGMENTS = false, ROWS = false, COLUMNS = false, TOTALS = false, ZEROED = false;
  static constexpr int CHUNK = Config::CHUNK, GROUP = Config::GROUP, E = GROUP / 2;
  const Params& p;
  const int warp, lane;
  struct Row {
    int m;
    float rstd;
  } rows[2];

  DEV Epilogue(const Params& p, const Maps&, int warp, int lane, u32) : p(p), warp(warp), lane(lane) {
  }
  DEV void begin_rows(int m0) {
    #pragma unroll
    for (int h = 0; h < 2; h++) {
      Row& r = rows[h];
      r.m = m0 + warp * 16 + lane / 4 + 8 * h;
      r.rstd = load1_if(f32(), r.m < p.M, p.rstd, r.m * p.rstd_stride0);
    }
  }
  /// GROUP columns of each part, from column `local` of the part on: of this thread's two rows, a quarter of them.
  DEV void group(const float* acc, int local, bool fresh, const Place<Config>& at, u32 staged, u32 loaded, u32 slices) {
    const int first = local % CHUNK / 8;
    float out_z_0[E];
    float out_z_1[E];
    float out_y[E];
    #pragma unroll
    for (int i = 0; i < E; i++) {
      const Row& r = rows[i / 2 % 2];
      const float z_0 = acc[i] * r.rstd;
      out_z_0[i] = z_0;
      const float z_1 = acc[Tile<Config>::COLUMNS / 2 + i] * r.rstd;
      out_z_1[i] = z_1;
      const float g = z_0;
      const float u = z_1;
      out_y[i] = silu(g) * u;
    }
    write_full<bf16, CHUNK>(staged, lane, first, out_z_0);
    write_full<bf16, CHUNK>(staged + 1024, lane, first, out_z_1);
    write_full<bf16, CHUNK>(staged + 2048, lane, first, out_y);
  }
  /// A chunk's boxes of the tile operands (64 rows) and slices of the column vectors ...
  DEV static void fetch(const Params& p, const Maps& maps, u32 bar, u32 dst, u32 slices, const Place<Config>& at) {
  }
  /// ... and of the outputs (16 rows, from row `m` on).
  DEV static void ship(const Params& p, const Maps& maps, u32 src, const Place<Config>& at, int m) {
    tma_store(&maps.z_0, src, at.p, m);
    tma_store(&maps.z_1, src + 1024, at.p, m);
    tma_store(&maps.y, src + 2048, at.p, m);
  }
};

}  // namespace coda

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
coda_norm_swiglu(const __grid_constant__ coda::TensorMap A, const __grid_constant__ coda::TensorMap B,
    const __grid_constant__ coda::TensorMap z_0,
    const __grid_constant__ coda::TensorMap z_1,
    const __grid_constant__ coda::TensorMap y,
    const __grid_constant__ coda::Params p) {
  coda::run<coda::Config, coda::Epilogue>(p, coda::Maps{A, B, z_0, z_1, y});
}
