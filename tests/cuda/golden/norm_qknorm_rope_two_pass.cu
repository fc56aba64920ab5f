// The epilogue of norm_qknorm_rope as a pass over its product.
// [q | k | v] = rstd⊙(A·Bᵀ), RMSNorm in each q and k head, then rotary embedding, half-split
// In a head t of D columns:
//   t̂ = t·rsqrt(mean over the head of t² + eps)⊙w,  w = wq for q, wk for k
//   a' = a·cosθ - b·sinθ,  b' = a·sinθ + b·cosθ for columns (a, b) = (i, i + D/2) of t̂
// (Henry et al., Query-Key Normalization, 2020, with RMSNorm as in Qwen 3; Su et al., RoFormer, 2021.) Columns up to
// q_columns are q's, up to `rotated` k's; v's stay as they are. Training needs t as well: add `out z: bf16[M, N] = z`.
#include "two_pass.cuh"

namespace coda {

struct Params {
  int M;
  int N;
  int K;
  const float* product;
  float* partials;
  u32* counters;
  const void* rstd;
  i64 rstd_stride0;
  const void* eps;
  float eps_value;
  const void* wq;
  i64 wq_stride0;
  int wq_extent0;
  const void* wk;
  i64 wk_stride0;
  int wk_extent0;
  const void* position;
  i64 position_stride0;
  const void* cos_;
  i64 cos__stride0;
  i64 cos__stride1;
  int cos__extent0;
  int cos__extent1;
  const void* sin_;
  i64 sin__stride0;
  i64 sin__stride1;
  int sin__extent0;
  int sin__extent1;
  const void* q_columns;
  int q_columns_value;
  const void* rotated;
  int rotated_value;
  void* qkv;
  i64 qkv_stride0;
  i64 qkv_stride1;
};

DEV void second_pass(const Params& p) {
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  grid_dependency_launch();
  grid_dependency_wait();
  float* const sum0_at = p.partials;
  float* const sum0_here = sum0_at + blockIdx.x * (i64)(p.N / 80);
  const int rotated = scalar(i32(), p.rotated, p.rotated_value);
  const float eps = scalar(f32(), p.eps, p.eps_value);
  const int q_columns = scalar(i32(), p.q_columns, p.q_columns_value);
  for (int m = blockIdx.x; m < p.M; m += gridDim.x) {
    const float* const acc = p.product + m * (i64)((p.N + 3) / 4 * 4);
    const float rstd = load1(f32(), p.rstd, m * p.rstd_stride0);
    const int position = load1(i64_(), p.position, m * p.position_stride0);
    for (int s = warp; s < p.N / 80; s += WARPS) {
      Sum sum0;
      sum0.clear();
      for (int n = s * 80 + lane; n < (s + 1) * 80; n += 32) {
        const float z = load_L2(acc + n) * rstd;
        add(sum0, z * z);
      }
      fold_warp(sum0);
      if (lane == 0) put_partial(sum0_here + s, p.N / 80, sum0);
    }
    __syncthreads();
    for (int n = thread; n < p.N; n += THREADS) {
      const bool second_n = head_member<80, 80>(n) != 0;
      const int q = head_pair<80, 80>(n);
      const int n0 = head_column<80, 80>(0, q);
      const float z_n0 = load_L2(acc + n0) * rstd;
      const float w_n0 = select(n0 < q_columns, lookup(bf16(), p.wq, p.wq_extent0, p.wq_stride0, int(u32(n0) % 80u)), lookup(bf16(), p.wk, p.wk_extent0, p.wk_stride0, int(u32(n0) % 80u)));
      const float t_n0 = (z_n0 * rsqrt((load_L2(sum0_here + n0 / 80) / 80.0f) + eps)) * w_n0;
      const float a_q = t_n0;
      const int i_q = int(u32(n0) % 80u);
      const float c_q = lookup(f32(), table_row(f32(), p.cos_, p.cos__extent0, p.cos__stride0, position), p.cos__extent1, p.cos__stride1, i_q);
      const int n1 = head_column<80, 80>(1, q);
      const float z_n1 = load_L2(acc + n1) * rstd;
      const float w_n1 = select(n1 < q_columns, lookup(bf16(), p.wq, p.wq_extent0, p.wq_stride0, int(u32(n1) % 80u)), lookup(bf16(), p.wk, p.wk_extent0, p.wk_stride0, int(u32(n1) % 80u)));
      const float t_n1 = (z_n1 * rsqrt((load_L2(sum0_here + n1 / 80) / 80.0f) + eps)) * w_n1;
      const float b_q = t_n1;
      const float s_q = lookup(f32(), table_row(f32(), p.sin_, p.sin__extent0, p.sin__stride0, position), p.sin__extent1, p.sin__stride1, i_q);
      const float y = second_n ? ((a_q * s_q) + (b_q * c_q)) : ((a_q * c_q) - (b_q * s_q));
      const float z_ = load_L2(acc + n) * rstd;
      store1(bf16(), p.qkv, m * p.qkv_stride0 + n * p.qkv_stride1, select(n < rotated, y, z_));
    }
    __syncthreads();
  }
}

}  // namespace coda

extern "C" __global__ void __launch_bounds__(coda::THREADS)
coda_norm_qknorm_rope_epilogue(const __grid_constant__ coda::Params p) {
  coda::second_pass(p);
}
