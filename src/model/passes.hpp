// The separate passes that an unfused Transformer makes over its matrices between products: each reads and writes whole
// matrices, which is what programs save. Forward beside backward; Real is float or double; everything is row-major.
#pragma once
#include <cstdint>
#include <vector>

namespace coda::model {

/// out = a + b.
template <class Real>
void add(std::int64_t n, const Real* a, const Real* b, Real* out);

/// rstd = rsqrt(mean x² + eps);  h = x rstd w.  Writes h, rstd.
template <class Real>
void rms_norm(std::int64_t rows, std::int64_t width, const Real* x, const Real* w, double eps, Real* h, Real* rstd);

/// h = x w and rstd = rsqrt(mean x² + eps): the norm with its scale left to the product's epilogue.
template <class Real>
void delayed_norm(std::int64_t rows, std::int64_t width, const Real* x, const Real* w, double eps, Real* h, Real* rstd);

/// dx = dresidual + rstd (dh w - x̂ mean(x̂ w dh));  dw += sum over rows of dh x̂. dresidual may be null, for 0, and may
/// be dx.
template <class Real>
void rms_norm_backward(std::int64_t rows, std::int64_t width, const Real* dh, const Real* x, const Real* w,
                       const Real* rstd, const Real* dresidual, Real* dx, Real* dw);

/// Tables of cos and sin of position * theta^(-2i/D), [positions, D/2], computed in fp64.
template <class Real>
struct RotaryTables {
  RotaryTables(std::int64_t positions, std::int64_t head_dim, double theta);
  std::vector<Real> cos, sin;
};

/// Rotates the first `heads` heads of each row in place, half-split, by its position: row % sequence. `sign` -1 is the
/// inverse, which is the gradient.
template <class Real>
void rotate(std::int64_t rows, std::int64_t sequence, std::int64_t row_width, std::int64_t heads, std::int64_t head_dim,
            const RotaryTables<Real>& tables, Real sign, Real* x);

/// z = [g | u] of width 2F:  y = silu(g) u.
template <class Real>
void swiglu(std::int64_t rows, std::int64_t feed_forward, const Real* z, Real* y);

/// dz = [dy u silu'(g) | dy silu(g)].
template <class Real>
void swiglu_backward(std::int64_t rows, std::int64_t feed_forward, const Real* dy, const Real* z, Real* dz);

/// loss[m] = log sum exp(z) - z[target], as log(sum) - (z[target] - max); keeps max and sum. Throws Error(value) on a
/// target outside the vocabulary.
template <class Real>
void cross_entropy(std::int64_t rows, std::int64_t vocabulary, const Real* logits, const std::int64_t* targets,
                   Real* maximum, Real* sum, Real* loss);

/// dlogits = (softmax(logits) - onehot(target)) scale. dlogits may be logits.
template <class Real>
void cross_entropy_backward(std::int64_t rows, std::int64_t vocabulary, const Real* logits, const std::int64_t* targets,
                            const Real* maximum, const Real* sum, double scale, Real* dlogits);

}  // namespace coda::model
