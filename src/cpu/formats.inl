// bf16, f16 and fp8 on vectors: the same roundings as coda/convert.hpp, a vector at a time.
typedef std::uint16_t RawU16 __attribute__((vector_size(CODA_VECTOR_BYTES / 2)));
typedef std::uint8_t RawU8 __attribute__((vector_size(CODA_VECTOR_BYTES / 4)));

template <int exponent_bits, int mantissa_bits, int largest, int infinity, int nan, int overflow>
struct Format {
  static constexpr int sign_bit = 1 << (exponent_bits + mantissa_bits);
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr int drop = 23 - mantissa_bits;

  static VecI encode(VecF x) {
    const VecI magnitude = bits(x) & 0x7FFFFFFF;
    const VecI sign = shift_left(shift_right(bits(x), 31), exponent_bits + mantissa_bits);
    const VecI shifted = magnitude - ((127 - bias) << 23);
    VecI rounded = shift_right(shifted + ((1 << (drop - 1)) - 1) + (shift_right(shifted, drop) & 1), drop);
    if constexpr (exponent_bits < 8) {
      // A subnormal result: adding 2^(its unit's exponent + 23) lets the adder round it into the low bits.
      const VecI magic = ((127 - bias) + drop + 1) << 23;
      const VecI subnormal = bits(from_bits(magnitude) + from_bits(magic)) - magic;
      rounded = select(magnitude < ((127 - bias + 1) << 23), subnormal, rounded);
    }
    rounded = select(rounded > largest, VecI(overflow), rounded);
    return sign | select(magnitude > 0x7F800000, VecI(nan), rounded);
  }

  static VecF decode(VecI code) {
    const VecI magnitude = code & (sign_bit - 1);
    const VecI sign = shift_left(shift_right(code & sign_bit, exponent_bits + mantissa_bits), 31);
    VecF value = from_bits(shift_left(magnitude, drop));
    if constexpr (exponent_bits < 8) value = value * from_bits(VecI((127 - bias + 127) << 23));
    const VecI special = select(magnitude == infinity, VecI(0x7F800000), VecI(0x7FC00000));
    return from_bits(sign | select(magnitude > largest, special, bits(value)));
  }
};
using BF16 = Format<8, 7, 0x7F7F, 0x7F80, 0x7FC0, 0x7F80>;
using F16 = Format<5, 10, 0x7BFF, 0x7C00, 0x7E00, 0x7C00>;
using E4M3 = Format<4, 3, 0x7E, -1, 0x7F, 0x7E>;
using E5M2 = Format<5, 2, 0x7B, 0x7C, 0x7F, 0x7B>;

template <class F, class RawSmall>
void load_small(void* d, const void* x, int64_t n) {
  constexpr int64_t size = static_cast<int64_t>(sizeof(RawSmall)) / lanes;
  const auto* from = static_cast<const char*>(x);
  auto* to = static_cast<float*>(d);
  for (int64_t i = 0; i < n; i += lanes) {
    RawSmall code{};
    const bool whole = n - i >= lanes;
    if (whole) __builtin_memcpy(&code, from + i * size, sizeof code);
    else __builtin_memcpy(&code, from + i * size, static_cast<std::size_t>((n - i) * size));
    const VecF value = F::decode(VecI(__builtin_convertvector(code, RawI)));
    if (whole) store(to + i, value);
    else store_part(to + i, value, n - i);
  }
}

/// Writes a vector past the caches; `p` is aligned to it.
template <class Raw>
inline void stream_vector(void* p, Raw v) {
#if defined(__AVX512F__)
  if constexpr (sizeof v == 64) return _mm512_stream_si512(static_cast<__m512i*>(p), __builtin_bit_cast(__m512i, v));
#endif
#if defined(__AVX__)
  if constexpr (sizeof v == 32) return _mm256_stream_si256(static_cast<__m256i*>(p), __builtin_bit_cast(__m256i, v));
#endif
#if defined(__SSE2__)
  if constexpr (sizeof v == 16) return _mm_stream_si128(static_cast<__m128i*>(p), __builtin_bit_cast(__m128i, v));
#endif
  __builtin_memcpy(p, &v, sizeof v);
}

void end_stream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

inline bool aligned(const void* p, std::size_t to) { return reinterpret_cast<std::uintptr_t>(p) % to == 0; }

template <class F, class RawSmall, bool past_caches = false>
void store_small(void* d, const float* x, int64_t n) {
  constexpr int64_t size = static_cast<int64_t>(sizeof(RawSmall)) / lanes;
  auto* to = static_cast<char*>(d);
  for (int64_t i = 0; i < n; i += lanes) {
    const bool whole = n - i >= lanes;
    const VecF value = whole ? load<VecF>(x + i) : load_part<VecF>(x + i, n - i);
    const RawSmall code = __builtin_convertvector(F::encode(value).v, RawSmall);
    if (!whole) __builtin_memcpy(to + i * size, &code, static_cast<std::size_t>((n - i) * size));
    else if (past_caches && aligned(to + i * size, sizeof code)) stream_vector(to + i * size, code);
    else __builtin_memcpy(to + i * size, &code, sizeof code);
  }
}

template <class F>
void round_small(float* d, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += lanes) {
    if (n - i >= lanes) store(d + i, F::decode(F::encode(load<VecF>(x + i))));
    else store_part(d + i, F::decode(F::encode(load_part<VecF>(x + i, n - i))), n - i);
  }
}

void copy_words(void* d, const void* x, int64_t n) {
  if (d != x) __builtin_memmove(d, x, static_cast<std::size_t>(n) * 4);
}
void store_f32(void* d, const float* x, int64_t n) { copy_words(d, x, n); }
void stream_f32(void* d, const float* x, int64_t n) {
  if (!aligned(d, sizeof(RawF))) return copy_words(d, x, n);
  auto* to = static_cast<float*>(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) stream_vector(to + i, load<VecF>(x + i).v);
  copy_words(to + i, x + i, n - i);
}
void round_f32(float* d, const float* x, int64_t n) { copy_words(d, x, n); }

void load_i64(void* d, const void* x, int64_t n) {
  auto* to = static_cast<int32_t*>(d);
  const auto* from = static_cast<const int64_t*>(x);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t v = from[i];
    to[i] = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : static_cast<int32_t>(v);
  }
}
