// Reductions: what is folded (Sum, Max, Softmax), how it crosses the lanes of a warp, and how partial results cross
// blocks. Every order is fixed, so that reruns are bitwise equal.
#pragma once
#include "maths.cuh"

namespace coda {

struct Sum {
  static constexpr int FLOATS = 1;
  float v[1];
  DEV void clear() { v[0] = 0.f; }
  DEV void add(float x) { v[0] += x; }
  DEV void add(bool ok, float x) { v[0] += ok ? x : 0.f; }
  DEV void combine(const Sum& o) { v[0] += o.v[0]; }
  DEV float sum() const { return v[0]; }
};

/// NaN wins; -inf when there is nothing.
struct Max {
  static constexpr int FLOATS = 1;
  float v[1];
  DEV void clear() { v[0] = -infinity(); }
  DEV void add(bool ok, float x) { v[0] = maximum(v[0], ok ? x : -infinity()); }
  DEV void combine(const Max& o) { v[0] = maximum(v[0], o.v[0]); }
  DEV float max() const { return v[0]; }
};

/// The max, and the sum of exp(x - max). Where all is -inf the sum is taken from 0 instead: no -inf - -inf.
struct Softmax {
  static constexpr int FLOATS = 2;
  float v[2];
  DEV void clear() { v[0] = -infinity(); v[1] = 0.f; }
  DEV static float base(float m) { return m == -infinity() ? 0.f : m; }
  /// Several at once: one rescaling. What takes no part is -inf.
  ///
  /// With L = log2(e) rounded and B = m·L rounded, exp(x - m) is 2^(x·L - B) · 2^(B - m·L): a multiply-add and an exp2 an
  /// element, and the factor once. Each multiply-add rounds once, at the size of its result, and L's own error meets
  /// (x - m) only. From 2^20 on B's rounding would reach the exponent's range: the difference is taken first.
  template <int N> DEV void add(float (&x)[N]) {
    constexpr float L = 1.4426950408889634f;
    float m = v[0];
    #pragma unroll
    for (int i = 0; i < N; i++) m = maximum(m, x[i]);
    const float b = base(m), scale = exp(v[0] - b);
    float from = b;
    if (!(abs(b) < 1048576.f)) {
      #pragma unroll
      for (int i = 0; i < N; i++) x[i] -= b;
      from = 0.f;
    }
    const float B = from * L;
    float s = 0.f;
    #pragma unroll
    for (int i = 0; i < N; i++) s += exp2_fast(fma(x[i], L, -B));
    v[0] = m;
    v[1] = fma(v[1], scale, s * exp2_fast(fma(-from, L, B)));
  }
  DEV void add(float x) { float one[1] = {x}; add(one); }
  DEV void combine(const Softmax& o) {
    const float m = maximum(v[0], o.v[0]), b = base(m);
    v[1] = v[1] * exp(v[0] - b) + o.v[1] * exp(o.v[0] - b);
    v[0] = m;
  }
  DEV float max() const { return v[0]; }
  DEV float sum() const { return v[1]; }
};

/// The one value that is asked for, if this thread has it.
struct Pick {
  float v;
  bool found;
  DEV void clear() { v = 0.f; found = false; }
  DEV void add(bool it, float x) { v = it ? x : v; found = found || it; }
  /// This thread's share of a row's group: x[2j + e] stands in column 8j + e, the picked one in column `at`.
  template <int N> DEV void scan(int at, const float (&x)[N]) {
    if ((u32)at >= 4u * N || (at & 6) != 0) return;
    found = true;
    #pragma unroll
    for (int i = 0; i < N; i++) v = at == i / 2 * 8 + i % 2 ? x[i] : v;
  }
};

/// -inf for columns past the matrix, of which this thread has `left`: x[2j + e] stands in column 8j + e (NEIGHBOURS 2), or
/// x[j] in 8j (1). Behind a branch: few tiles have any.
template <int NEIGHBOURS, int N> DEV void mask(int left, float (&x)[N]) {
  if (left > 8 * ((N - 1) / NEIGHBOURS) + NEIGHBOURS - 1) return;
  #pragma unroll
  for (int i = 0; i < N; i++) x[i] = i / NEIGHBOURS * 8 + i % NEIGHBOURS < left ? x[i] : -infinity();
}

template <class R> DEV R shuffle_xor(const R& r, int mask) {
  R o;
  #pragma unroll
  for (int i = 0; i < R::FLOATS; i++) o.v[i] = __shfl_xor_sync(~0u, r.v[i], mask);
  return o;
}
/// Over the four lanes that hold a row; all four get it.
template <class R> DEV void fold_row(R& r) { r.combine(shuffle_xor(r, 1)); r.combine(shuffle_xor(r, 2)); }
template <class R> DEV void fold_warp(R& r) {
  #pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) r.combine(shuffle_xor(r, mask));
}

/// Over the eight lanes that hold a column, for this thread's COUNT columns at once: each exchange halves what a lane is
/// responsible for. Leaves in v[0] column `result` of them.
template <class R, int COUNT> DEV int fold_columns(R (&v)[COUNT], int lane) {
  int result = 0;
  #pragma unroll
  for (int mask = 16, n = COUNT / 2; mask >= 4; mask /= 2, n /= 2) {
    if (n == 0) { v[0].combine(shuffle_xor(v[0], mask)); continue; }
    const bool high = lane & mask;
    #pragma unroll
    for (int i = 0; i < n; i++) {
      R mine, theirs;
      #pragma unroll
      for (int f = 0; f < R::FLOATS; f++) { mine.v[f] = high ? v[i + n].v[f] : v[i].v[f]; theirs.v[f] = high ? v[i].v[f] : v[i + n].v[f]; }
      mine.combine(shuffle_xor(theirs, mask));
      v[i] = mine;
    }
    result += high ? n : 0;
  }
  return result;
}
/// Folds into this warp's row of column results in shared memory: R::FLOATS planes of COLUMNS floats.
/// v[] are this thread's columns from `first` on: v[2j + e] is 8j + 2*(lane % 4) + e (NEIGHBOURS 2), or v[j] 4j + lane % 4 (1).
template <class R, int COLUMNS, int NEIGHBOURS, int COUNT> DEV void fold_columns_into(u32 at, int first, bool fresh, R (&v)[COUNT], int lane) {
  static_assert(COUNT == 2 || COUNT == 4 || COUNT == 8, "column results of a group");
  const int c = fold_columns(v, lane);
  if (COUNT < 8 && lane & 4) return;                       // lanes of equal results: one writes
  if (COUNT < 4 && lane & 8) return;
  const u32 a = at + 4 * (first + (NEIGHBOURS == 2 ? 8 * (c >> 1) + 2 * (lane & 3) + (c & 1) : 4 * c + (lane & 3)));
  R r = v[0];
  if (!fresh) {
    R old;
    #pragma unroll
    for (int f = 0; f < R::FLOATS; f++) old.v[f] = shared_float(a + 4 * COLUMNS * f);
    old.combine(r);
    r = old;
  }
  #pragma unroll
  for (int f = 0; f < R::FLOATS; f++) shared_store(a + 4 * COLUMNS * f, __float_as_uint(r.v[f]));
}
/// One column of the four warps of a warpgroup, `stride` bytes apart.
template <class R, int COLUMNS> DEV R gather_warps(u32 at, int column, u32 stride) {
  R sum;
  sum.clear();
  #pragma unroll
  for (int w = 0; w < 4; w++) {
    R r;
    #pragma unroll
    for (int f = 0; f < R::FLOATS; f++) r.v[f] = shared_float(at + w * stride + 4 * (COLUMNS * f + column));
    sum.combine(r);
  }
  return sum;
}

// ---- partial results in global memory: R::FLOATS planes, `plane` floats apart
template <class R> DEV void put_partial(float* at, i64 plane, const R& r) {
  #pragma unroll
  for (int f = 0; f < R::FLOATS; f++) at[f * plane] = r.v[f];
}
/// Partials `first`, first + step, ... below `count`, `stride` floats apart, in that order.
template <class R> DEV R gather_partials(const float* at, i64 plane, i64 stride, int first, int count, int step) {
  R sum;
  sum.clear();
  for (int i = first; i < count; i += 8 * step) {
    R r[8];
    #pragma unroll
    for (int k = 0; k < 8; k++) {
      r[k].clear();
      if (i + k * step < count)
        #pragma unroll
        for (int f = 0; f < R::FLOATS; f++) r[k].v[f] = load_L2(at + f * plane + (i + k * step) * stride);
    }
    #pragma unroll
    for (int k = 0; k < 8; k++) sum.combine(r[k]);
  }
  return sum;
}
/// A pick: the picked value, or where it is; 0 for the ignored index, NaN out of range.
DEV float picked(float value, int index, int extent, bool ignored) {
  return ignored ? 0.f : (u32)index < (u32)extent ? value : not_a_number();
}
DEV float picked(const float* at, int index, int extent, bool ignored) {
  return ignored ? 0.f : (u32)index < (u32)extent ? load_L2(at) : not_a_number();
}

}  // namespace coda
