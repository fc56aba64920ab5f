// The maths vocabulary of ops.def for one f32, and the element types: conversions, single loads and stores.
#pragma once
#include "ptx.cuh"

namespace coda {

// ---- vocabulary
DEV float real(double c) { return (float)c; }
/// Two instructions, against the library's nine: within 2^-22 and |x|·2^-24 of the value, and 0 below 2^-126.
DEV float exp(float x) { return exp2_fast(x * 1.4426950408889634f); }
DEV float expm1(float x) { return ::expm1f(x); }
DEV float log(float x) { return ::logf(x); }
DEV float log1p(float x) { return ::log1pf(x); }
DEV float log1p_exp(float x) { return ::log1pf(::expf(x)); }
DEV float sqrt(float x) { return ::sqrtf(x); }
DEV float rsqrt(float x) { return ::rsqrtf(x); }
DEV float tanh(float x) { return ::tanhf(x); }
DEV float erf(float x) { return ::erff(x); }
DEV float sin(float x) { return ::sinf(x); }
DEV float cos(float x) { return ::cosf(x); }
DEV float ratio(float a, float b) { return __fdividef(a, b); }
DEV float floor(float x) { return ::floorf(x); }
DEV float abs(float x) { return ::fabsf(x); }
DEV int abs(int x) { return x < 0 ? (int)(0u - (u32)x) : x; }
template <class T> DEV T select(bool c, T a, T b) { return c ? a : b; }
DEV float maximum(float x, float y) { return max_nan(x, y); }
DEV float minimum(float x, float y) { return min_nan(x, y); }
DEV float maximum(float x, int y) { return maximum(x, (float)y); }
DEV float minimum(float x, int y) { return minimum(x, (float)y); }
DEV int maximum(int x, int y) { return x > y ? x : y; }
DEV int minimum(int x, int y) { return x < y ? x : y; }
DEV int floor_modulo(int x, int y) {
  if (y == 0 || y == -1) return 0;
  const int r = x % y;
  return r != 0 && (r ^ y) < 0 ? r + y : r;
}
DEV int floor_divide(int x, int y) {
  if (y == 0) return 0;
  if (y == -1) return (int)(0u - (u32)x);
  const int q = x / y;
  return q * y != x && (x ^ y) < 0 ? q - 1 : q;
}
DEV float infinity() { return __int_as_float(0x7f800000); }
DEV float not_a_number() { return __int_as_float(0x7fc00000); }

// ---- element types (ptx.cuh): `pack` rounds once; fp8 saturates
DEV uint2 pack2(f32, float lo, float hi) { return make_uint2(__float_as_uint(lo), __float_as_uint(hi)); }
template <class T> DEV typename T::bits pack1(T t, float v) { return (typename T::bits)pack2(t, v, 0.f); }
DEV u32 pack1(f32, float v) { return __float_as_uint(v); }

DEV void unpack2(f32, uint2 v, float& lo, float& hi) { lo = __uint_as_float(v.x); hi = __uint_as_float(v.y); }
DEV void unpack2(i32, uint2 v, int& lo, int& hi) { lo = (int)v.x; hi = (int)v.y; }
template <class T> DEV auto pack4(T t, float a, float b, float c, float d) {
  if constexpr (sizeof(typename T::bits) == 1) return (u32)pack2(t, a, b) | (u32)pack2(t, c, d) << 16;
  else if constexpr (sizeof(typename T::bits) == 2) return make_uint2(pack2(t, a, b), pack2(t, c, d));
  else return make_uint4(__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d));
}
template <class T, class W> DEV void unpack4(T t, W w, float& a, float& b, float& c, float& d) {
  if constexpr (sizeof(W) == 4) { unpack2(t, (u16)w, a, b); unpack2(t, (u16)(w >> 16), c, d); }
  else if constexpr (sizeof(W) == 8) { unpack2(t, w.x, a, b); unpack2(t, w.y, c, d); }
  else { unpack2(t, make_uint2(w.x, w.y), a, b); unpack2(t, make_uint2(w.z, w.w), c, d); }
}
template <class T> DEV float unpack1(T t, typename T::bits v) { float lo, hi; unpack2(t, v, lo, hi); return lo; }
DEV float unpack1(f32, u32 v) { return __uint_as_float(v); }
DEV int unpack1(i32, u32 v) { return (int)v; }
DEV int unpack1(i64_, u64 v) { const i64 x = (i64)v; return x > 2147483647 ? 2147483647 : x < -2147483648ll ? -2147483647 - 1 : (int)x; }

template <class T> struct Value { typedef float type; };
template <> struct Value<i32> { typedef int type; };
template <> struct Value<i64_> { typedef int type; };

template <class T> DEV float round_to(T t, float x) { return unpack1(t, pack1(t, x)); }
DEV float round_to(f32, float x) { return x; }

// ---- one element of global memory; `i` counts elements
template <class T> DEV typename Value<T>::type load1(T t, const void* p, i64 i) { return unpack1(t, __ldg((const typename T::bits*)p + i)); }
/// 0 where not `ok`.
template <class T> DEV typename Value<T>::type load1_if(T t, bool ok, const void* p, i64 i) {
  return unpack1(t, load_bits(ok, (const typename T::bits*)p + i, (typename T::bits)0));
}
template <class T> DEV void store1(T t, void* p, i64 i, float v) { ((typename T::bits*)p)[i] = pack1(t, v); }
/// `+=` of an element that no other thread touches: the old value is read past the read-only cache.
template <class T> DEV void accumulate1(T t, void* p, i64 i, float v) {
  typename T::bits* at = (typename T::bits*)p + i;
  *at = pack1(t, unpack1(t, *(volatile typename T::bits*)at) + v);
}
/// A scalar operand: in device memory, or given by value.
template <class T, class V> DEV V scalar(T t, const void* p, V value) { return p ? (V)load1(t, p, 0) : value; }

// ---- tables
/// A table's row, or null where the index is out of range.
template <class T> DEV const void* table_row(T, const void* p, int rows, i64 stride, int row) {
  return (u32)row < (u32)rows ? (const typename T::bits*)p + row * stride : (const typename T::bits*)0;
}
/// NaN out of range, and where there is no row.
template <class T> DEV float lookup(T t, const void* row, int extent, i64 stride, int i) {
  const bool ok = row && (u32)i < (u32)extent;
  return unpack1(t, load_bits(ok, (const typename T::bits*)row + i * stride, pack1(t, not_a_number())));
}
/// Two neighbours at once, i even: of a row of an even extent, aligned to two elements.
template <class T> DEV void lookup2(T t, const void* row, int extent, int i, float& lo, float& hi) {
  typedef decltype(pack2(t, 0.f, 0.f)) Pair;
  const bool ok = row && (u32)i < (u32)extent;
  unpack2(t, load_bits(ok, (const Pair*)((const typename T::bits*)row + i), pack2(t, not_a_number(), not_a_number())), lo, hi);
}

}  // namespace coda
