// Vectors of 32-bit lanes on the compiler's vector extension: arithmetic, selection, memory. Included once by each
// kernels_*.cpp, which says how wide. Everything has internal linkage: code for one instruction set must never be
// merged with another's.
using std::int32_t;
using std::int64_t;

constexpr int lanes = CODA_VECTOR_BYTES / 4;
typedef float RawF __attribute__((vector_size(CODA_VECTOR_BYTES)));
typedef int32_t RawI __attribute__((vector_size(CODA_VECTOR_BYTES)));
typedef std::uint32_t RawU __attribute__((vector_size(CODA_VECTOR_BYTES)));

/// A mask: each lane 0 or -1.
struct VecB {
  RawI v;
  friend VecB operator&(VecB a, VecB b) { return {a.v & b.v}; }
  friend VecB operator|(VecB a, VecB b) { return {a.v | b.v}; }
  friend VecB operator!(VecB a) { return {~a.v}; }
};

struct VecI {
  RawI v;
  VecI() = default;
  VecI(RawI raw) : v(raw) {}
  VecI(int32_t x) : v(RawI{} + x) {}
  // Unsigned arithmetic, because integers wrap.
  friend VecI operator+(VecI a, VecI b) { return RawI(RawU(a.v) + RawU(b.v)); }
  friend VecI operator-(VecI a, VecI b) { return RawI(RawU(a.v) - RawU(b.v)); }
  friend VecI operator*(VecI a, VecI b) { return RawI(RawU(a.v) * RawU(b.v)); }
  friend VecI operator-(VecI a) { return RawI(RawU{} - RawU(a.v)); }
  friend VecI operator&(VecI a, VecI b) { return a.v & b.v; }
  friend VecI operator|(VecI a, VecI b) { return a.v | b.v; }
  friend VecB operator==(VecI a, VecI b) { return {a.v == b.v}; }
  friend VecB operator!=(VecI a, VecI b) { return {a.v != b.v}; }
  friend VecB operator<(VecI a, VecI b) { return {a.v < b.v}; }
  friend VecB operator<=(VecI a, VecI b) { return {a.v <= b.v}; }
  friend VecB operator>(VecI a, VecI b) { return {a.v > b.v}; }
  friend VecB operator>=(VecI a, VecI b) { return {a.v >= b.v}; }
};

struct VecF {
  RawF v;
  VecF() = default;
  VecF(RawF raw) : v(raw) {}
  VecF(float x) : v(RawF{} + x) {}
  VecF(int x) : v(RawF{} + static_cast<float>(x)) {}
  friend VecF operator+(VecF a, VecF b) { return a.v + b.v; }
  friend VecF operator-(VecF a, VecF b) { return a.v - b.v; }
  friend VecF operator*(VecF a, VecF b) { return a.v * b.v; }
  friend VecF operator/(VecF a, VecF b) { return a.v / b.v; }
  friend VecF operator-(VecF a) { return RawF(RawI(a.v) ^ static_cast<int32_t>(0x80000000U)); }
  friend VecB operator==(VecF a, VecF b) { return {a.v == b.v}; }
  friend VecB operator!=(VecF a, VecF b) { return {a.v != b.v}; }
  friend VecB operator<(VecF a, VecF b) { return {a.v < b.v}; }
  friend VecB operator<=(VecF a, VecF b) { return {a.v <= b.v}; }
  friend VecB operator>(VecF a, VecF b) { return {a.v > b.v}; }
  friend VecB operator>=(VecF a, VecF b) { return {a.v >= b.v}; }
};

inline VecI bits(VecF x) { return RawI(x.v); }
inline VecF from_bits(VecI x) { return RawF(x.v); }
inline VecI shift_left(VecI x, int n) { return RawI(RawU(x.v) << n); }
inline VecI shift_right(VecI x, int n) { return RawI(RawU(x.v) >> n); }         // logical
inline VecI shift_right_signed(VecI x, int n) { return RawI(x.v >> n); }

inline VecF select(VecB c, VecF a, VecF b) { return RawF((c.v & RawI(a.v)) | (~c.v & RawI(b.v))); }
inline VecI select(VecB c, VecI a, VecI b) { return RawI((c.v & a.v) | (~c.v & b.v)); }
inline VecB select(VecB c, VecB a, VecB b) { return {(c.v & a.v) | (~c.v & b.v)}; }

// A NaN in b is picked by b != b, one in a by both comparisons failing.
inline VecF minimum(VecF a, VecF b) { return select((b < a) | (b != b), b, a); }
inline VecF maximum(VecF a, VecF b) { return select((b > a) | (b != b), b, a); }
inline VecI minimum(VecI a, VecI b) { return select(b < a, b, a); }
inline VecI maximum(VecI a, VecI b) { return select(b > a, b, a); }
inline VecF abs(VecF x) { return from_bits(bits(x) & 0x7FFFFFFF); }
inline VecI abs(VecI x) { return select(x < 0, -x, x); }
inline VecF ratio(VecF a, VecF b) { return a / b; }
inline VecF real(double c) { return VecF(static_cast<float>(c)); }

inline VecI floor_divide(VecI a, VecI b) {
  VecI q;
  for (int i = 0; i < lanes; ++i) {
    const int32_t x = a.v[i], y = b.v[i];
    if (y == 0) q.v[i] = 0;
    else if (y == -1) q.v[i] = static_cast<int32_t>(0U - static_cast<std::uint32_t>(x));
    else q.v[i] = x / y - ((x % y != 0) && ((x < 0) != (y < 0)) ? 1 : 0);
  }
  return q;
}
inline VecI floor_modulo(VecI a, VecI b) { return select(b == 0, VecI(0), a - floor_divide(a, b) * b); }

// ---------------------------------------------------------------- memory

template <class V>
inline V load(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class V>
inline void store(void* p, V v) { __builtin_memcpy(p, &v, sizeof v); }

/// The first n < lanes elements; the other lanes are 0.
template <class V>
inline V load_part(const void* p, int64_t n) {
  RawI v{};
  __builtin_memcpy(&v, p, static_cast<std::size_t>(n) * 4);
  V out;
  __builtin_memcpy(&out, &v, sizeof v);
  return out;
}
template <class V>
inline void store_part(void* p, V v, int64_t n) { __builtin_memcpy(p, &v, static_cast<std::size_t>(n) * 4); }

template <class V>
inline V splat(const void* p) {
  int32_t x;
  __builtin_memcpy(&x, p, 4);
  const RawI v = RawI{} + x;
  V out;
  __builtin_memcpy(&out, &v, sizeof v);
  return out;
}
