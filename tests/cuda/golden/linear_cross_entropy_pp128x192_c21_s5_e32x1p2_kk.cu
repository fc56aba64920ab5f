// linear_cross_entropy as pp128x192_c21_s5_e32x1p2_kk.
// The cross entropy of logits z = A·Bᵀ: loss = log(zsum) - (z[target] - zmax), with no logits stored unless asked
// The statistics of a row are all that is kept: zmax = max_n z, zsum = Σ_n exp(z - zmax). The loss is never formed as
// lse - z[target], a difference of two large numbers. An ignored row's loss is 0. Leave the output `logits` out and none
// are stored.
//   with_norm        z = rstd⊙(A·Bᵀ): the final RMSNorm, delayed
//   with_bias        z + bias
//   with_softcap     z = cap·tanh(z/cap)                                (Gemma 2)
//   smoothing        1: loss = (1-e)·loss + e·mean_n(-log p), e = smooth (Szegedy et al., 2016; PyTorch)
//                    2: the same with e = smooth·N/(N-1)                 (Megatron)
//   with_z_loss      loss + z_weight·lse², also returned as z_loss       (PaLM)
#include "gemm.cuh"

namespace coda {

struct Config {
  static constexpr int BM = 128, BN = 192, WARPGROUPS = 2, PINGPONG = 1, CLUSTER_M = 2, CLUSTER_N = 1, STAGES = 5, SPLIT = 1;
  static constexpr int ELEMENT = 2, N1 = 192, A_MN = 0, B_MN = 0, B_BOX = 96;
  static constexpr int PARTS = 1, HEAD = 0, ROTARY = 0;
  static constexpr int CHUNK = 32, GROUP = 16, STAGING = 1, PREFETCH = 2, STAGING_SLOT = 1024, OPERAND_SLOT = 0, SLICE_SLOT = 0, COLUMN_BYTES = 0;
  static constexpr int OFFSET_STAGING = 204800, OFFSET_OPERANDS = 212992, OFFSET_SLICES = 212992, OFFSET_COLUMNS = 212992, OFFSET_BARRIERS = 212992;
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
  const void* target;
  i64 target_stride0;
  const void* ignore;
  int ignore_value;
  void* zmax;
  i64 zmax_stride0;
  void* zsum;
  i64 zsum_stride0;
  void* loss;
  i64 loss_stride0;

  DEV int tiles_n() const { return (N + Config::BN - 1) / Config::BN; }
  // where partial results and counters stand in the workspace
  DEV float* softmax0_partials() const { return partials + 0; }
  DEV float* pick1_partials() const { return partials + 2 * (i64)tiles_n() * M; }
};

struct Maps { const TensorMap &A, &B, &logits; };

struct Epilogue {
  static constexpr int LOADED = 0;         // bytes of tile operands a chunk
  static constexpr bool STAGED = true, SEGMENTS = false, ROWS = true, COLUMNS = false, TOTALS = false, ZEROED = false;
  static constexpr int CHUNK = Config::CHUNK, GROUP = Config::GROUP, E = GROUP / 2;
  const Params& p;
  const int warp, lane;
  int ignore;
  struct Row {
    int m;
    int target;
  } rows[2];
  Softmax softmax0[2];
  Pick pick1[2];

  DEV Epilogue(const Params& p, const Maps&, int warp, int lane, u32) : p(p), warp(warp), lane(lane) {
    ignore = scalar(i64_(), p.ignore, p.ignore_value);
  }
  DEV void begin_rows(int m0) {
    #pragma unroll
    for (int h = 0; h < 2; h++) {
      Row& r = rows[h];
      r.m = m0 + warp * 16 + lane / 4 + 8 * h;
      r.target = load1_if(i64_(), r.m < p.M, p.target, r.m * p.target_stride0);
      softmax0[h].clear();
      pick1[h].clear();
    }
  }
  /// GROUP columns of each part, from column `local` of the part on: of this thread's two rows, a quarter of them.
  DEV void group(const float* acc, int local, bool fresh, const Place<Config>& at, u32 staged, u32 loaded, u32 slices) {
    const int first = local % CHUNK / 8;
    float out_logits[E];
    float softmax0_in[2][E / 2];
    float pick1_in[2][E / 2];
    const int left = opaque(p.N - at.n[0] - 8 * first - 2 * (lane & 3));
    #pragma unroll
    for (int i = 0; i < E; i++) {
      out_logits[i] = acc[i];
      softmax0_in[i / 2 % 2][i / 4 * 2 + i % 2] = acc[i];
      pick1_in[i / 2 % 2][i / 4 * 2 + i % 2] = acc[i];
    }
    pick1[1].scan(rows[1].target - at.n[0] - 8 * first - 2 * (lane & 3), pick1_in[1]);
    pick1[0].scan(rows[0].target - at.n[0] - 8 * first - 2 * (lane & 3), pick1_in[0]);
    write_full<bf16, CHUNK>(staged, lane, first, out_logits);
    mask<2>(left, softmax0_in[0]);
    softmax0[0].add(softmax0_in[0]);
    mask<2>(left, softmax0_in[1]);
    softmax0[1].add(softmax0_in[1]);
  }
  /// This tile's results of the rows go to the workspace.
  DEV void put_rows(int nb) {
    #pragma unroll
    for (int h = 0; h < 2; h++) {
      fold_row(softmax0[h]);
      const int m = rows[h].m;
      if (m >= p.M || nb >= p.tiles_n()) continue;
      if (pick1[h].found) p.pick1_partials()[m] = pick1[h].v;
      if (lane % 4 != 0) continue;
      put_partial(p.softmax0_partials() + (i64)nb * p.M + m, (i64)p.tiles_n() * p.M, softmax0[h]);
    }
  }
  /// All tiles of the row have arrived: lanes `part` 0 and 1 combine every second partial result, 0 goes on.
  DEV void finish_rows(int m, int part, int tiles_n) {
    const int at = m < p.M ? m : 0;
    Softmax softmax0 = gather_partials<Softmax>(p.softmax0_partials() + at, (i64)tiles_n * p.M, p.M, part, tiles_n, 2);
    softmax0.combine(shuffle_xor(softmax0, 16));
    if (part != 0 || m >= p.M) return;
    const int t4 = load1_if(i64_(), m < p.M, p.target, m * p.target_stride0);
    store1(f32(), p.zmax, m * p.zmax_stride0, softmax0.max());
    store1(f32(), p.zsum, m * p.zsum_stride0, softmax0.sum());
    const float nll = log(softmax0.sum()) - (picked(p.pick1_partials() + m, t4, p.N, t4 == ignore) - softmax0.max());
    store1(f32(), p.loss, m * p.loss_stride0, select(t4 == ignore, 0.0f, nll));
  }
  /// A chunk's boxes of the tile operands (64 rows) and slices of the column vectors ...
  DEV static void fetch(const Params& p, const Maps& maps, u32 bar, u32 dst, u32 slices, const Place<Config>& at) {
  }
  /// ... and of the outputs (16 rows, from row `m` on).
  DEV static void ship(const Params& p, const Maps& maps, u32 src, const Place<Config>& at, int m) {
    tma_store(&maps.logits, src, at.n[0], m);
  }
};

}  // namespace coda

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
coda_linear_cross_entropy(const __grid_constant__ coda::TensorMap A, const __grid_constant__ coda::TensorMap B,
    const __grid_constant__ coda::TensorMap logits,
    const __grid_constant__ coda::Params p) {
  coda::run<coda::Config, coda::Epilogue>(p, coda::Maps{A, B, logits});
}
