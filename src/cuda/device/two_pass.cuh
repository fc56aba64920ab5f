// The second pass of a program that no tile can hold: blocks take rows of the stored product in turn, threads take their
// columns. The page is the kernel; here is what it calls. Every order is fixed, so that reruns are bitwise equal.
#pragma once
#include "pairs.cuh"
#include "reduce.cuh"

namespace coda {

constexpr int THREADS = 256, WARPS = THREADS / 32;

template <class R> DEV void add(R& r, float v) { r.add(true, v); }
DEV void add(Softmax& r, float v) { r.add(v); }

template <class R> DEV R get_partial(const float* at, i64 plane) {
  R r;
  #pragma unroll
  for (int f = 0; f < R::FLOATS; f++) r.v[f] = load_L2(at + f * plane);
  return r;
}
/// A column's running result, which one thread of the block keeps in memory from row to row.
template <class R> DEV void add_to(float* at, i64 plane, bool fresh, float v) {
  R r;
  r.clear();
  if (!fresh) r = get_partial<R>(at, plane);
  add(r, v);
  put_partial(at, plane, r);
}

/// Over all threads of the block, which all call it. Thread 0 has the result.
template <class R> DEV R fold_block(R r, int warp, int lane) {
  __shared__ float of_warps[WARPS * R::FLOATS];
  fold_warp(r);
  __syncthreads();                                                         // the results before these have been read
  if (lane == 0)
    #pragma unroll
    for (int f = 0; f < R::FLOATS; f++) of_warps[warp * R::FLOATS + f] = r.v[f];
  __syncthreads();
  R all;
  all.clear();
  for (int w = 0; w < WARPS; w++) {
    R one;
    #pragma unroll
    for (int f = 0; f < R::FLOATS; f++) one.v[f] = of_warps[w * R::FLOATS + f];
    all.combine(one);
  }
  return all;
}

/// Counts this block, with all that its threads have written; true in the last one, which leaves the counter 0.
DEV bool is_last_block(u32* counter) {
  __shared__ u32 last;
  __syncthreads();
  if (threadIdx.x == 0) {
    last = arrive_global(counter) == gridDim.x - 1;
    if (last) store_relaxed(counter, 0);
  }
  __syncthreads();
  return last;
}

}  // namespace coda
