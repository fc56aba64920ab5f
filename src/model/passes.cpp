// The passes of passes.hpp: rows are shared between threads in chunks, inner loops are vector loops.
#include "model/passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "coda/error.hpp"
#include "ops/parallel.hpp"
#include "ops/vector_math.hpp"
#include "ops/vectorise.hpp"

namespace coda::model {
namespace {

[[gnu::always_inline]] inline float exponential(float x) { return ops::fast_exp(x); }
inline double exponential(double x) { return std::exp(x); }

template <class Real>
[[gnu::always_inline]] inline Real sigmoid(Real x) {
  const Real e = exponential(x < 0 ? x : -x);  // never overflows
  return (x < 0 ? e : Real{1}) / (1 + e);
}

/// body(first row, count) over chunks of rows.
void over_rows(std::int64_t rows, const std::function<void(std::int64_t, std::int64_t)>& body) {
  constexpr std::int64_t chunk = 32;
  ops::parallel_for((rows + chunk - 1) / chunk,
                    [&](std::int64_t c) { body(c * chunk, std::min(chunk, rows - c * chunk)); });
}

constexpr int lanes = 16;

/// Σ f(i) for i < n in 16 lanes of fixed order, which the compiler turns into vectors.
template <class Real, class F>
[[gnu::always_inline]] inline Real sum_of(std::int64_t n, F f) {
  Real lane[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (int l = 0; l < lanes; ++l) lane[l] += f(i + l);
  }
  for (; i < n; ++i) lane[0] += f(i);
  Real sum = 0;
  for (const Real x : lane) sum += x;
  return sum;
}

template <class Real>
CODA_VECTORISE void add_range(std::int64_t n, const Real* a, const Real* b, Real* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

template <class Real>
CODA_VECTORISE void norm_row(std::int64_t n, const Real* x, const Real* w, Real eps, Real* h, Real* rstd,
                             bool delayed) {
  const Real mean = sum_of<Real>(n, [&](std::int64_t i) { return x[i] * x[i]; }) / static_cast<Real>(n);
  *rstd = 1 / std::sqrt(mean + eps);
  const Real r = delayed ? 1 : *rstd;
  for (std::int64_t i = 0; i < n; ++i) h[i] = x[i] * r * w[i];
}

template <class Real>
CODA_VECTORISE void norm_backward_row(std::int64_t n, const Real* dh, const Real* x, const Real* w, Real r,
                                      const Real* dresidual, Real* dx) {
  const Real c = r * sum_of<Real>(n, [&](std::int64_t i) { return x[i] * w[i] * dh[i]; }) / static_cast<Real>(n);
  if (dresidual != nullptr) {
    for (std::int64_t i = 0; i < n; ++i) dx[i] = dresidual[i] + r * (dh[i] * w[i] - x[i] * r * c);
  } else {
    for (std::int64_t i = 0; i < n; ++i) dx[i] = r * (dh[i] * w[i] - x[i] * r * c);
  }
}

template <class Real>
CODA_VECTORISE void norm_weight_columns(std::int64_t rows, std::int64_t width, std::int64_t count, const Real* dh,
                                        const Real* x, const Real* rstd, Real* dw) {
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t i = 0; i < count; ++i) dw[i] += dh[m * width + i] * x[m * width + i] * rstd[m];
  }
}

template <class Real>
CODA_VECTORISE void rotate_head(std::int64_t half, const Real* cos, const Real* sin, Real sign, Real* x) {
  for (std::int64_t i = 0; i < half; ++i) {
    const Real a = x[i], b = x[i + half], s = sin[i] * sign;
    x[i] = a * cos[i] - b * s;
    x[i + half] = a * s + b * cos[i];
  }
}

template <class Real>
CODA_VECTORISE void swiglu_row(std::int64_t n, const Real* g, const Real* u, Real* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = g[i] * sigmoid(g[i]) * u[i];
}

template <class Real>
CODA_VECTORISE void swiglu_backward_row(std::int64_t n, const Real* dy, const Real* g, const Real* u, Real* dg,
                                        Real* du) {
  for (std::int64_t i = 0; i < n; ++i) {
    const Real s = sigmoid(g[i]), act = g[i] * s, d = dy[i];
    dg[i] = d * u[i] * (s + act * (1 - s));
    du[i] = d * act;
  }
}

template <class Real>
CODA_VECTORISE void softmax_statistics(std::int64_t n, const Real* z, Real* maximum, Real* sum) {
  Real m = z[0];
  for (std::int64_t i = 1; i < n; ++i) m = z[i] > m ? z[i] : m;
  *sum = sum_of<Real>(n, [&](std::int64_t i) { return exponential(z[i] - m); });
  *maximum = m;
}

template <class Real>
CODA_VECTORISE void softmax_row(std::int64_t n, const Real* z, Real m, Real factor, Real* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = exponential(z[i] - m) * factor;
}

}  // namespace

template <class Real>
void add(std::int64_t n, const Real* a, const Real* b, Real* out) {
  constexpr std::int64_t chunk = 1 << 14;
  ops::parallel_for((n + chunk - 1) / chunk, [&](std::int64_t c) {
    add_range(std::min(chunk, n - c * chunk), a + c * chunk, b + c * chunk, out + c * chunk);
  });
}

template <class Real>
void rms_norm(std::int64_t rows, std::int64_t width, const Real* x, const Real* w, double eps, Real* h, Real* rstd) {
  over_rows(rows, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t m = first; m < first + count; ++m) {
      norm_row(width, x + m * width, w, static_cast<Real>(eps), h + m * width, rstd + m, false);
    }
  });
}

template <class Real>
void delayed_norm(std::int64_t rows, std::int64_t width, const Real* x, const Real* w, double eps, Real* h,
                  Real* rstd) {
  over_rows(rows, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t m = first; m < first + count; ++m) {
      norm_row(width, x + m * width, w, static_cast<Real>(eps), h + m * width, rstd + m, true);
    }
  });
}

template <class Real>
void rms_norm_backward(std::int64_t rows, std::int64_t width, const Real* dh, const Real* x, const Real* w,
                       const Real* rstd, const Real* dresidual, Real* dx, Real* dw) {
  over_rows(rows, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t m = first; m < first + count; ++m) {
      norm_backward_row(width, dh + m * width, x + m * width, w, rstd[m],
                        dresidual == nullptr ? nullptr : dresidual + m * width, dx + m * width);
    }
  });
  constexpr std::int64_t columns = 64;
  ops::parallel_for((width + columns - 1) / columns, [&](std::int64_t c) {
    const std::int64_t first = c * columns;
    norm_weight_columns(rows, width, std::min(columns, width - first), dh + first, x + first, rstd, dw + first);
  });
}

template <class Real>
RotaryTables<Real>::RotaryTables(std::int64_t positions, std::int64_t head_dim, double theta) {
  const std::int64_t half = head_dim / 2;
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      cos.push_back(static_cast<Real>(std::cos(angle)));
      sin.push_back(static_cast<Real>(std::sin(angle)));
    }
  }
}

template <class Real>
void rotate(std::int64_t rows, std::int64_t sequence, std::int64_t row_width, std::int64_t heads, std::int64_t head_dim,
            const RotaryTables<Real>& tables, Real sign, Real* x) {
  const std::int64_t half = head_dim / 2;
  over_rows(rows, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t m = first; m < first + count; ++m) {
      const Real* const cos = tables.cos.data() + m % sequence * half;
      const Real* const sin = tables.sin.data() + m % sequence * half;
      for (std::int64_t h = 0; h < heads; ++h) rotate_head(half, cos, sin, sign, x + m * row_width + h * head_dim);
    }
  });
}

template <class Real>
void swiglu(std::int64_t rows, std::int64_t F, const Real* z, Real* y) {
  over_rows(rows, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t m = first; m < first + count; ++m) {
      swiglu_row(F, z + m * 2 * F, z + m * 2 * F + F, y + m * F);
    }
  });
}

template <class Real>
void swiglu_backward(std::int64_t rows, std::int64_t F, const Real* dy, const Real* z, Real* dz) {
  over_rows(rows, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t m = first; m < first + count; ++m) {
      const Real* const g = z + m * 2 * F;
      swiglu_backward_row(F, dy + m * F, g, g + F, dz + m * 2 * F, dz + m * 2 * F + F);
    }
  });
}

template <class Real>
void cross_entropy(std::int64_t rows, std::int64_t vocabulary, const Real* logits, const std::int64_t* targets,
                   Real* maximum, Real* sum, Real* loss) {
  for (std::int64_t m = 0; m < rows; ++m) {
    if (targets[m] < 0 || targets[m] >= vocabulary) {
      throw Error(ErrorKind::value, fmt::format("cross entropy: target {} is {}, expected a number from 0 to {}", m,
                                                targets[m], vocabulary - 1));
    }
  }
  over_rows(rows, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t m = first; m < first + count; ++m) {
      const Real* const z = logits + m * vocabulary;
      softmax_statistics(vocabulary, z, maximum + m, sum + m);
      loss[m] = std::log(sum[m]) - (z[targets[m]] - maximum[m]);
    }
  });
}

template <class Real>
void cross_entropy_backward(std::int64_t rows, std::int64_t vocabulary, const Real* logits, const std::int64_t* targets,
                            const Real* maximum, const Real* sum, double scale, Real* dlogits) {
  over_rows(rows, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t m = first; m < first + count; ++m) {
      Real* const dz = dlogits + m * vocabulary;
      softmax_row(vocabulary, logits + m * vocabulary, maximum[m], static_cast<Real>(scale) / sum[m], dz);
      dz[targets[m]] -= static_cast<Real>(scale);
    }
  });
}

#define CODA_INSTANTIATE(Real)                                                                                    \
  template void add(std::int64_t, const Real*, const Real*, Real*);                                               \
  template void rms_norm(std::int64_t, std::int64_t, const Real*, const Real*, double, Real*, Real*);             \
  template void delayed_norm(std::int64_t, std::int64_t, const Real*, const Real*, double, Real*, Real*);         \
  template void rms_norm_backward(std::int64_t, std::int64_t, const Real*, const Real*, const Real*, const Real*, \
                                  const Real*, Real*, Real*);                                                     \
  template struct RotaryTables<Real>;                                                                             \
  template void rotate(std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,                      \
                       const RotaryTables<Real>&, Real, Real*);                                                   \
  template void swiglu(std::int64_t, std::int64_t, const Real*, Real*);                                           \
  template void swiglu_backward(std::int64_t, std::int64_t, const Real*, const Real*, Real*);                     \
  template void cross_entropy(std::int64_t, std::int64_t, const Real*, const std::int64_t*, Real*, Real*, Real*); \
  template void cross_entropy_backward(std::int64_t, std::int64_t, const Real*, const std::int64_t*, const Real*, \
                                       const Real*, double, Real*);
CODA_INSTANTIATE(float)
CODA_INSTANTIATE(double)
#undef CODA_INSTANTIATE

}  // namespace coda::model
