// The strip loops, for the instruction set and vector width of the including file.
#include "cpu/vector.inl"
#include "cpu/vmath.inl"
#include "cpu/formats.inl"

// ---------------------------------------------------------------- element-wise ops

inline VecF sigmoid(VecF x);

#define CODA_OP(name, arity, rule, formula)                                                              \
  struct Op_##name {                                                                                     \
    template <class X, class Y, class Z>                                                                 \
    auto operator()([[maybe_unused]] X x, [[maybe_unused]] Y y, [[maybe_unused]] Z z) const {            \
      return formula;                                                                                    \
    }                                                                                                    \
  };
#include "coda/ops.def"
#undef CODA_OP

inline VecF sigmoid(VecF x) { return Op_sigmoid()(x, x, x); }

/// The loop for one choice of repeated arguments.
template <class F, int arity, int repeat, class X, class Y, class Z>
void strip(void* d, const void* x, const void* y, const void* z, int64_t n) {
  auto* to = static_cast<char*>(d);
  const auto* px = static_cast<const char*>(x);
  const auto* py = static_cast<const char*>(y);
  const auto* pz = static_cast<const char*>(z);
  X vx{};
  Y vy{};
  Z vz{};
  if constexpr ((repeat & 1) != 0) vx = splat<X>(px);
  if constexpr ((repeat & 2) != 0) vy = splat<Y>(py);
  if constexpr ((repeat & 4) != 0) vz = splat<Z>(pz);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    if constexpr ((repeat & 1) == 0) vx = load<X>(px + 4 * i);
    if constexpr (arity > 1 && (repeat & 2) == 0) vy = load<Y>(py + 4 * i);
    if constexpr (arity > 2 && (repeat & 4) == 0) vz = load<Z>(pz + 4 * i);
    store(to + 4 * i, F()(vx, vy, vz));
  }
  if (i < n) {
    if constexpr ((repeat & 1) == 0) vx = load_part<X>(px + 4 * i, n - i);
    if constexpr (arity > 1 && (repeat & 2) == 0) vy = load_part<Y>(py + 4 * i, n - i);
    if constexpr (arity > 2 && (repeat & 4) == 0) vz = load_part<Z>(pz + 4 * i, n - i);
    store_part(to + 4 * i, F()(vx, vy, vz), n - i);
  }
}

template <class F, int arity, class X, class Y = X, class Z = Y>
void apply(void* d, const void* x, const void* y, const void* z, int repeat, int64_t n) {
  if constexpr (arity == 1) {
    if (repeat & 1) strip<F, 1, 1, X, Y, Z>(d, x, y, z, n);
    else strip<F, 1, 0, X, Y, Z>(d, x, y, z, n);
  } else if constexpr (arity == 2) {
    switch (repeat & 3) {
      case 0: strip<F, 2, 0, X, Y, Z>(d, x, y, z, n); break;
      case 1: strip<F, 2, 1, X, Y, Z>(d, x, y, z, n); break;
      case 2: strip<F, 2, 2, X, Y, Z>(d, x, y, z, n); break;
      default: strip<F, 2, 3, X, Y, Z>(d, x, y, z, n); break;
    }
  } else {
    switch (repeat & 7) {
      case 0: strip<F, 3, 0, X, Y, Z>(d, x, y, z, n); break;
      case 1: strip<F, 3, 1, X, Y, Z>(d, x, y, z, n); break;
      case 2: strip<F, 3, 2, X, Y, Z>(d, x, y, z, n); break;
      case 3: strip<F, 3, 3, X, Y, Z>(d, x, y, z, n); break;
      case 4: strip<F, 3, 4, X, Y, Z>(d, x, y, z, n); break;
      case 5: strip<F, 3, 5, X, Y, Z>(d, x, y, z, n); break;
      case 6: strip<F, 3, 6, X, Y, Z>(d, x, y, z, n); break;
      default: strip<F, 3, 7, X, Y, Z>(d, x, y, z, n); break;
    }
  }
}

struct ToReal {
  VecF operator()(VecI x, VecI, VecI) const { return RawF(__builtin_convertvector(x.v, RawF)); }
};

// ---------------------------------------------------------------- reductions

// Lanes are folded in halves; four vectors in flight hide the adder's latency. The order depends on n alone.
template <class Fold>
float fold_lanes(VecF v, Fold fold) {
  float part[lanes];
  __builtin_memcpy(part, &v, sizeof v);
  for (int width = lanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) part[i] = fold(part[i], part[i + width]);
  }
  return part[0];
}

/// Folds term(vector of x) over n elements from `identity`; a part vector's other lanes are identities.
template <class Term, class Fold, class FoldScalar>
float reduce(const float* x, int64_t n, VecF identity, Term term, Fold fold, FoldScalar fold_scalar) {
  VecF a = identity, b = identity, c = identity, e = identity;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = fold(a, term(load<VecF>(x + i)));
    b = fold(b, term(load<VecF>(x + i + lanes)));
    c = fold(c, term(load<VecF>(x + i + 2 * lanes)));
    e = fold(e, term(load<VecF>(x + i + 3 * lanes)));
  }
  for (; i + lanes <= n; i += lanes) a = fold(a, term(load<VecF>(x + i)));
  if (i < n) {
    VecI lane;
    for (int l = 0; l < lanes; ++l) lane.v[l] = l;
    b = fold(b, select(lane < static_cast<int32_t>(n - i), term(load_part<VecF>(x + i, n - i)), identity));
  }
  return fold_lanes(fold(fold(a, b), fold(c, e)), fold_scalar);
}

float max2(float a, float b) { return b > a || b != b ? b : a; }

float sum(const float* x, int64_t n) {
  return reduce(x, n, 0, [](VecF v) { return v; }, [](VecF a, VecF b) { return a + b; },
                [](float a, float b) { return a + b; });
}
float max(const float* x, int64_t n) {
  return reduce(x, n, -__builtin_inff(), [](VecF v) { return v; }, [](VecF a, VecF b) { return maximum(a, b); }, max2);
}
float sum_exp(const float* x, float largest, int64_t n) {
  const VecF shift = largest;
  return reduce(x, n, 0, [shift](VecF v) { return exp(v - shift); }, [](VecF a, VecF b) { return a + b; },
                [](float a, float b) { return a + b; });
}

template <class F>
void update(float* d, const float* x, int64_t n, F f) {
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(d + i, f(load<VecF>(d + i), load<VecF>(x + i)));
  if (i < n) store_part(d + i, f(load_part<VecF>(d + i, n - i), load_part<VecF>(x + i, n - i)), n - i);
}
void add_to(float* d, const float* x, int64_t n) { update(d, x, n, [](VecF a, VecF b) { return a + b; }); }
void max_to(float* d, const float* x, int64_t n) { update(d, x, n, [](VecF a, VecF b) { return maximum(a, b); }); }

void sum_to(float* d, float* lost, const float* x, int64_t n) {
  const auto step = [&](VecF s, VecF c, VecF v, VecF& s2, VecF& c2) {
    const VecF y = v - c;
    const VecF t = s + y;
    c2 = (t - s) - y;
    s2 = t;
    // An infinity or NaN must not turn into another by its compensation.
    c2 = select(abs(c2) < __builtin_inff(), c2, VecF(0));
  };
  VecF s, c;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    step(load<VecF>(d + i), load<VecF>(lost + i), load<VecF>(x + i), s, c);
    store(d + i, s);
    store(lost + i, c);
  }
  if (i < n) {
    step(load_part<VecF>(d + i, n - i), load_part<VecF>(lost + i, n - i), load_part<VecF>(x + i, n - i), s, c);
    store_part(d + i, s, n - i);
    store_part(lost + i, c, n - i);
  }
}

void softmax_to(float* m, float* s, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += lanes) {
    const bool whole = n - i >= lanes;
    const VecF old = whole ? load<VecF>(m + i) : load_part<VecF>(m + i, n - i);
    const VecF total = whole ? load<VecF>(s + i) : load_part<VecF>(s + i, n - i);
    const VecF v = whole ? load<VecF>(x + i) : load_part<VecF>(x + i, n - i);
    const VecF largest = maximum(old, v);
    // -inf - -inf would be NaN: until something is above -inf the sum stays 0.
    const VecF sum = select(largest == -__builtin_inff(), VecF(0), total * exp(old - largest) + exp(v - largest));
    if (whole) {
      store(m + i, largest);
      store(s + i, sum);
    } else {
      store_part(m + i, largest, n - i);
      store_part(s + i, sum, n - i);
    }
  }
}

void pick_to(float* d, const float* x, const int32_t* index, int32_t value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) d[i] = index[i] == value ? x[i] : d[i];
}

void deinterleave(void* d, const void* x, int member, int64_t n) {
  auto* to = static_cast<int32_t*>(d);
  const auto* from = static_cast<const int32_t*>(x) + member;
  for (int64_t i = 0; i < n; ++i) to[i] = from[2 * i];
}

void interleave(void* d, const void* x, const void* y, int64_t n) {
  auto* to = static_cast<int32_t*>(d);
  const auto* a = static_cast<const int32_t*>(x);
  const auto* b = static_cast<const int32_t*>(y);
  for (int64_t i = 0; i < n; ++i) {
    to[2 * i] = a[i];
    to[2 * i + 1] = b[i];
  }
}

// ---------------------------------------------------------------- the table

Kernels make_table(const char* name) {
  Kernels t;
  t.name = name;
#define CODA_REAL(op, arity) t.real[static_cast<int>(Op::op)] = apply<Op_##op, arity, VecF>;
#define CODA_INTEGER(op, arity) t.integer[static_cast<int>(Op::op)] = apply<Op_##op, arity, VecI>;
#define CODA_TABLE_real(op, arity) CODA_REAL(op, arity)
#define CODA_TABLE_arith(op, arity) CODA_REAL(op, arity) CODA_INTEGER(op, arity)
#define CODA_TABLE_integer(op, arity) CODA_INTEGER(op, arity)
#define CODA_TABLE_compare(op, arity) CODA_REAL(op, arity) CODA_INTEGER(op, arity)
#define CODA_TABLE_logic(op, arity) t.integer[static_cast<int>(Op::op)] = apply<Op_##op, arity, VecB>;
#define CODA_TABLE_where(op, arity)                                           \
  t.real[static_cast<int>(Op::op)] = apply<Op_##op, arity, VecB, VecF>;       \
  t.integer[static_cast<int>(Op::op)] = apply<Op_##op, arity, VecB, VecI>;
#define CODA_OP(name, arity, rule, formula) CODA_TABLE_##rule(name, arity)
#include "coda/ops.def"
#undef CODA_OP
  t.to_real = apply<ToReal, 1, VecI>;
  const auto at = [](DType d) { return static_cast<std::size_t>(d); };
  t.load[at(DType::f32)] = copy_words;
  t.load[at(DType::i32)] = copy_words;
  t.load[at(DType::i64)] = load_i64;
  t.load[at(DType::bf16)] = load_small<BF16, RawU16>;
  t.load[at(DType::f16)] = load_small<F16, RawU16>;
  t.load[at(DType::e4m3)] = load_small<E4M3, RawU8>;
  t.load[at(DType::e5m2)] = load_small<E5M2, RawU8>;
  t.store[at(DType::f32)] = store_f32;
  t.store[at(DType::bf16)] = store_small<BF16, RawU16>;
  t.store[at(DType::f16)] = store_small<F16, RawU16>;
  t.store[at(DType::e4m3)] = store_small<E4M3, RawU8>;
  t.store[at(DType::e5m2)] = store_small<E5M2, RawU8>;
  t.stream[at(DType::f32)] = stream_f32;
  t.stream[at(DType::bf16)] = store_small<BF16, RawU16, true>;
  t.stream[at(DType::f16)] = store_small<F16, RawU16, true>;
  t.stream[at(DType::e4m3)] = store_small<E4M3, RawU8, true>;
  t.stream[at(DType::e5m2)] = store_small<E5M2, RawU8, true>;
  t.end_stream = end_stream;
  t.round[at(DType::f32)] = round_f32;
  t.round[at(DType::bf16)] = round_small<BF16>;
  t.round[at(DType::f16)] = round_small<F16>;
  t.round[at(DType::e4m3)] = round_small<E4M3>;
  t.round[at(DType::e5m2)] = round_small<E5M2>;
  t.sum = sum;
  t.max = max;
  t.sum_exp = sum_exp;
  t.add_to = add_to;
  t.sum_to = sum_to;
  t.max_to = max_to;
  t.softmax_to = softmax_to;
  t.pick_to = pick_to;
  t.deinterleave = deinterleave;
  t.interleave = interleave;
  return t;
}
