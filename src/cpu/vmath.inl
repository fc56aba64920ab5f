// Elementary functions on vectors of f32, without branches: exp, expm1, log, log1p, sqrt, rsqrt, tanh, erf, sin, cos.
// Errors are below 2 ulp (tests/cpu/kernels_test.cpp measures them); NaN, infinities, zeros and subnormals go where the functions
// send them. The polynomials are near-minimax fits (Chebyshev, 40 digits) on the intervals named.

/// c[0] x^n + ... + c[n].
template <int n>
inline VecF polynomial(VecF x, const float (&c)[n]) {
  VecF p = c[0];
  for (int i = 1; i < n; ++i) p = p * x + c[i];
  return p;
}

inline VecF copy_sign(VecF magnitude, VecF sign) {
  return from_bits(bits(magnitude) | (bits(sign) & static_cast<int32_t>(0x80000000U)));
}

/// The nearest integer of |x| < 2^22, in the low bits of x + magic.
constexpr float round_magic = 12582912.0f;  // 1.5 * 2^23

inline VecF floor(VecF x) {
  const VecF nearest = VecF(round_magic) + x - VecF(round_magic);
  const VecF down = select(nearest > x, nearest - 1, nearest);
  return select(abs(x) < 4194304.0f, copy_sign(down, x), x);
}

/// e^x as 2^k (1 + p), |x| <= 104.
struct Power {
  VecF p;  ///< e^r - 1, right to an ulp of itself
  VecI k;
};

inline Power power_of(VecF x) {
  const VecF shifted = x * 1.44269504f + round_magic;
  const VecF n = shifted - round_magic;
  const VecF r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  static constexpr float c[] = {0.000198911801583f, 0.00139338204898f, 0.00833331075458f,
                                0.0416664633863f,   0.166666666818f,   0.500000001362f};  // (e^r - 1 - r) / r^2
  return {(r * r) * polynomial(r, c) + r, bits(shifted) - bits(VecF(round_magic))};
}
inline VecF two_to(VecI e) { return from_bits(shift_left(e + 127, 23)); }

/// e^-104 rounds to 0 and e^89 to infinity, by scaling in two steps.
inline VecF within_range_of_exp(VecF x) {
  x = select(x < -104.0f, VecF(-104.0f), x);
  return select(x > 89.0f, VecF(89.0f), x);
}

inline VecF exp(VecF x) {
  const Power y = power_of(within_range_of_exp(x));
  const VecI half = shift_right_signed(y.k, 1);
  return (y.p + 1) * two_to(half) * two_to(y.k - half);
}

inline VecF expm1(VecF x) {
  const Power y = power_of(within_range_of_exp(x));
  const VecI half = shift_right_signed(y.k, 1), rest = y.k - half;
  // 2^k p + (2^k - 1), which is p alone where k is 0.
  const VecF v = (y.p * two_to(half) + (two_to(half) - two_to(-rest))) * two_to(rest);
  return select(x == 0, x, v);  // the sign of 0
}

constexpr std::int32_t log_base = 0x3F3504F3;  // sqrt(1/2): mantissas run over [sqrt(1/2), sqrt(2))

/// n log 2 + log(1 + f), sqrt(1/2) <= 1 + f < sqrt(2); `low` is a small term besides.
inline VecF log_series(VecF n, VecF f, VecF low) {
  static constexpr float c[] = {0.0697161147145f, -0.114797338466f, 0.116854199235f, -0.124256873315f, 0.142490576457f,
                                -0.166678023195f, 0.200007157489f,  -0.24999996958f, 0.3333333118f};
  const VecF square = f * f;
  const VecF tail = square * f * polynomial(f, c) + ((n * -2.12194440e-4f + low) - square * 0.5f);
  return n * 0.693359375f + (f + tail);
}
/// What log gives outside (0, infinity).
inline VecF log_special(VecF x) {
  const VecF infinity = __builtin_inff();
  return select(x == infinity, infinity, select(x == 0, -infinity, VecF(__builtin_nanf(""))));
}

inline VecF log(VecF x) {
  const VecB subnormal = x < 0x1p-126f;
  const VecF scaled = select(subnormal, x * 0x1p23f, x);
  const VecI e = shift_right_signed(bits(scaled) - log_base, 23);
  const VecF f = from_bits(bits(scaled) - shift_left(e, 23)) - 1;
  VecF n;
  n.v = __builtin_convertvector(e.v, RawF);
  n = n - select(subnormal, VecF(23), VecF(0));
  return select((x > 0) & (x < __builtin_inff()), log_series(n, f, 0), log_special(x));
}

inline VecF log1p(VecF x) {
  const VecF u = x + 1;
  const VecI e = shift_right_signed(bits(u) - log_base, 23);
  VecF n;
  n.v = __builtin_convertvector(e.v, RawF);
  // Near 0 the series takes x itself; elsewhere what u lost of it, relative to u.
  const VecB near = e == 0;
  const VecF lost = select(x < 1, x - (u - 1), VecF(1) - (u - x)) / u;
  const VecF f = select(near, x, from_bits(bits(u) - shift_left(e, 23)) - 1);
  const VecF y = log_series(n, f, select(near, VecF(0), lost));
  return select((x > -1) & (x < __builtin_inff()), select(x == 0, x, y), log_special(u));
}

inline VecF log1p_exp(VecF x) { return log1p(exp(x)); }

inline VecF sqrt(VecF x) {
#if CODA_VECTOR_BYTES == 64 && defined(__AVX512F__)
  return RawF(_mm512_maskz_sqrt_ps(0xFFFF, __m512(x.v)));
#elif CODA_VECTOR_BYTES == 32 && defined(__AVX__)
  return RawF(_mm256_sqrt_ps(__m256(x.v)));
#elif CODA_VECTOR_BYTES == 16 && defined(__SSE2__)
  return RawF(_mm_sqrt_ps(__m128(x.v)));
#else
  VecF y;
  for (int i = 0; i < lanes; ++i) y.v[i] = __builtin_sqrtf(x.v[i]);
  return y;
#endif
}

inline VecF rsqrt(VecF x) { return VecF(1) / sqrt(x); }

inline VecF tanh(VecF x) {
  const VecF a = abs(x), square = x * x;
  static constexpr float c[] = {0.00224600368559f, -0.00830169536064f, 0.0217557003459f,
                                -0.0539575951325f, 0.133332963528f,    -0.333333331234f};  // on |x| < 0.64
  const VecF near = x * square * polynomial(square, c) + x;
  const VecF far = VecF(1) - VecF(2) / (exp(a + a) + 1);
  return select(a < 0.62f, near, copy_sign(far, x));
}

inline VecF erf(VecF x) {
  const VecF a = abs(x), square = x * x;
  static constexpr float c[] = {8.20416967616e-5f, -0.000810291556098f, 0.00519748722663f, -0.0268579590627f,
                                0.112836694686f,   -0.376126320471f,    0.128379166465f};  // erf(x)/x - 1, |x| < 0.95
  const VecF near = x * polynomial(square, c) + x;
  // -log(erfc(t)) / t on [0.9, 3.95]; above, erf is 1.
  static constexpr float d[] = {-9.69442949963e-7f, 3.30596526103e-5f, -0.000489220114207f, 0.00426638297941f,
                                -0.0250550146697f,  0.107745104933f,   0.634225435675f,     1.12888059211f};
  const VecF t = select(a > 3.95f, VecF(3.95f), a);
  const VecF far = VecF(1) - exp(-(t * polynomial(t, d)));
  return select(a < 0.92f, near, copy_sign(far, x));
}

// Angles are reduced in double: pi/2 in three parts, of which the first two times k < 2^27 are exact.
typedef double RawD __attribute__((vector_size(CODA_VECTOR_BYTES)));
typedef float RawHalfF __attribute__((vector_size(CODA_VECTOR_BYTES / 2)));
constexpr float largest_angle = 1.5e8f;

struct Reduced {
  VecF r;          ///< in [-pi/4, pi/4]
  VecI quadrant;   ///< low two bits
};

inline Reduced reduce_angle(VecF x) {
  RawHalfF part[2], out[2];
  int32_t quadrant[lanes];
  __builtin_memcpy(part, &x, sizeof x);
  for (int h = 0; h < 2; ++h) {
    const RawD d = __builtin_convertvector(part[h], RawD);
    const RawD shifted = d * 0.63661977236758134308 + 6755399441055744.0;  // 2/pi; 1.5 * 2^52
    const RawD k = shifted - 6755399441055744.0;
    const RawD r = ((d - k * 0x1.921fb5p+0) - k * 0x1.110b46p-26) - k * 0x1.1a62633145c07p-54;
    out[h] = __builtin_convertvector(r, RawHalfF);
    int64_t low[lanes / 2];
    __builtin_memcpy(low, &shifted, sizeof shifted);
    for (int i = 0; i < lanes / 2; ++i) quadrant[h * (lanes / 2) + i] = static_cast<int32_t>(low[i] & 3);
  }
  Reduced reduced;
  __builtin_memcpy(&reduced.r, out, sizeof out);
  __builtin_memcpy(&reduced.quadrant, quadrant, sizeof quadrant);
  return reduced;
}

/// sin(x + turn * pi/2).
template <int turn>
inline VecF sine(VecF x) {
  const Reduced a = reduce_angle(x);
  const VecF square = a.r * a.r;
  static constexpr float s[] = {2.72437814095e-6f, -0.000198400388726f, 0.00833333178522f, -0.166666666636f};
  static constexpr float c[] = {-2.72958308276e-7f, 2.48005604299e-5f, -0.00138888875973f, 0.0416666666641f};
  const VecF sin_r = a.r * square * polynomial(square, s) + a.r;
  const VecF cos_r = square * square * polynomial(square, c) + (VecF(1) - square * 0.5f);
  const VecI quadrant = a.quadrant + turn;
  const VecF magnitude = select((quadrant & 1) != 0, cos_r, sin_r);
  VecF y = select((quadrant & 2) != 0, -magnitude, magnitude);
  const VecB far = abs(x) > largest_angle;
  for (int i = 0; i < lanes; ++i) {
    if (far.v[i] != 0) {  // rare: the library's double-precision function reduces any angle
      const double d = x.v[i];
      y.v[i] = static_cast<float>(turn == 0 ? __builtin_sin(d) : __builtin_cos(d));
    }
  }
  return y;
}
inline VecF sin(VecF x) { return sine<0>(x); }
inline VecF cos(VecF x) { return sine<1>(x); }
