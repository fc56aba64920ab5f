// The operators' formulas, one value or one row at a time, in fp64 and in their textbook form: what the programs are
// compared with, forward directly and backward by finite differences.
#pragma once
#include <cmath>

#include "harness.hpp"

namespace coda::test {

inline Vector row_of(const Matrix& m, std::int64_t i) {
  const auto start = m.values.begin() + static_cast<std::ptrdiff_t>(i * m.columns);
  return Vector(start, start + static_cast<std::ptrdiff_t>(m.columns));
}

inline double rms_scale(const Vector& x, double eps) {
  double ssq = 0;
  for (const double v : x) ssq += v * v;
  return 1 / std::sqrt(ssq / static_cast<double>(x.size()) + eps);
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double silu(double x) { return x / (1 + std::exp(-x)); }
inline double gelu(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
inline double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
inline double relu(double x) { return x > 0 ? x : 0; }
inline double clamped(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/// (clamp(u, -L, L) + 1) min(g, L) sigmoid(alpha min(g, L))
inline double swiglu_a(double g, double u, double alpha, double limit) {
  const double gate = std::fmin(g, limit);
  return (clamped(u, -limit, limit) + 1) * gate * sigmoid(alpha * gate);
}
/// min(silu(g), L) clamp(u, -L, L)
inline double swiglu_b(double g, double u, double limit) {
  return std::fmin(silu(g), limit) * clamped(u, -limit, limit);
}

/// What linear_cross_entropy can be asked for.
struct CrossEntropy {
  double cap = 0;  ///< 0: no softcap
  double smooth = 0;
  bool megatron = false;  ///< eps V / (V - 1)
  double z_weight = 0;
};

/// One row's loss from its raw logits, by the definitions: -Σ q log p with smoothed targets q, plus the z-loss.
inline double cross_entropy(Vector z, std::size_t target, const CrossEntropy& options) {
  const double v = static_cast<double>(z.size());
  if (options.cap != 0)
    for (double& x : z) x = options.cap * std::tanh(x / options.cap);
  double sum = 0;
  for (const double x : z) sum += std::exp(x);
  const double lse = std::log(sum);
  // Megatron spreads eps over the other classes: q = 1 - eps on the target and eps / (V - 1) elsewhere.
  const double off = options.megatron ? options.smooth / (v - 1) : options.smooth / v;
  const double on = options.megatron ? 1 - options.smooth : 1 - options.smooth + options.smooth / v;
  double loss = options.z_weight * lse * lse;
  for (std::size_t j = 0; j < z.size(); ++j) loss -= (j == target ? on : off) * (z[j] - lse);
  return loss;
}

}  // namespace coda::test
