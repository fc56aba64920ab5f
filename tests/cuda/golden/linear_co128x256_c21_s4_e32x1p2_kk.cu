// linear as co128x256_c21_s4_e32x1p2_kk.
// y = A·Bᵀ
#include "gemm.cuh"

namespace coda {

struct Config {
  static constexpr int BM = 128, BN = 256, WARPGROUPS = 2, PINGPONG = 0, CLUSTER_M = 2, CLUSTER_N = 1, STAGES = 4, SPLIT = 1;
  static constexpr int ELEMENT = 2, N1 = 256, A_MN = 0, B_MN = 0, B_BOX = 128;
  static constexpr int PARTS = 1, HEAD = 0, ROTARY = 0;
  static constexpr int CHUNK = 32, GROUP = 16, STAGING = 1, PREFETCH = 2, STAGING_SLOT = 1024, OPERAND_SLOT = 0, SLICE_SLOT = 0, COLUMN_BYTES = 0;
  static constexpr int OFFSET_STAGING = 196608, OFFSET_OPERANDS = 204800, OFFSET_SLICES = 204800, OFFSET_COLUMNS = 204800, OFFSET_BARRIERS = 204800;
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
};

struct Maps { const TensorMap &A, &B, &y; };

struct Epilogue {
  static constexpr int LOADED = 0;         // bytes of tile operands a chunk
  static constexpr bool STAGED = true, SEGMENTS = false, ROWS = false, COLUMNS = false, TOTALS = false, ZEROED = false;
  static constexpr int CHUNK = Config::CHUNK, GROUP = Config::GROUP, E = GROUP / 2;
  const Params& p;
  const int warp, lane;
  struct Row {
    int m;
  } rows[2];

  DEV Epilogue(const Params& p, const Maps&, int warp, int lane, u32) : p(p), warp(warp), lane(lane) {
  }
  DEV void begin_rows(int m0) {
    #pragma unroll
    for (int h = 0; h < 2; h++) {
      Row& r = rows[h];
      r.m = m0 + warp * 16 + lane / 4 + 8 * h;
    }
  }
  /// GROUP columns of each part, from column `local` of the part on: of this thread's two rows, a quarter of them.
  DEV void group(const float* acc, int local, bool fresh, const Place<Config>& at, u32 staged, u32 loaded, u32 slices) {
    const int first = local % CHUNK / 8;
    float out_y[E];
    #pragma unroll
    for (int i = 0; i < E; i++) {
      out_y[i] = acc[i];
    }
    write_full<bf16, CHUNK>(staged, lane, first, out_y);
  }
  /// A chunk's boxes of the tile operands (64 rows) and slices of the column vectors ...
  DEV static void fetch(const Params& p, const Maps& maps, u32 bar, u32 dst, u32 slices, const Place<Config>& at) {
  }
  /// ... and of the outputs (16 rows, from row `m` on).
  DEV static void ship(const Params& p, const Maps& maps, u32 src, const Place<Config>& at, int m) {
    tma_store(&maps.y, src, at.n[0], m);
  }
};

}  // namespace coda

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
coda_linear(const __grid_constant__ coda::TensorMap A, const __grid_constant__ coda::TensorMap B,
    const __grid_constant__ coda::TensorMap y,
    const __grid_constant__ coda::Params p) {
  coda::run<coda::Config, coda::Epilogue>(p, coda::Maps{A, B, y});
}
