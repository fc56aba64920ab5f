// AdamW, clipping and schedule: see optimizer.hpp.
#include "model/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "ops/parallel.hpp"
#include "ops/vectorise.hpp"

namespace coda::model {
namespace {

constexpr std::int64_t chunk = 1 << 14;

struct Factors {
  float scale, decay, beta1, rest1, beta2, rest2, rate, correction2, eps;
};

CODA_VECTORISE
void update(const Factors f, std::int64_t n, float* __restrict p, const float* __restrict g, float* __restrict m,
            float* __restrict v) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float gradient = g[i] * f.scale;
    m[i] = f.beta1 * m[i] + f.rest1 * gradient;
    v[i] = f.beta2 * v[i] + f.rest2 * gradient * gradient;
    p[i] = p[i] * f.decay - f.rate * m[i] / (__builtin_sqrtf(v[i]) * f.correction2 + f.eps);
  }
}

CODA_VECTORISE
double sum_of_squares(const float* x, std::int64_t n) {
  double lane[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int l = 0; l < 8; ++l) lane[l] += static_cast<double>(x[i + l]) * x[i + l];
  }
  for (; i < n; ++i) lane[0] += static_cast<double>(x[i]) * x[i];
  double sum = 0;
  for (const double s : lane) sum += s;
  return sum;
}

}  // namespace

void adamw_step(const AdamW& o, double learning_rate, std::int64_t step, double gradient_scale,
                std::span<float> parameters, std::span<const float> gradients, std::span<float> first_moment,
                std::span<float> second_moment) {
  const double correction1 = 1 - std::pow(o.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(o.beta2, static_cast<double>(step));
  const Factors f{static_cast<float>(gradient_scale),
                  static_cast<float>(1 - learning_rate * o.weight_decay),
                  static_cast<float>(o.beta1),
                  static_cast<float>(1 - o.beta1),
                  static_cast<float>(o.beta2),
                  static_cast<float>(1 - o.beta2),
                  static_cast<float>(learning_rate / correction1),
                  static_cast<float>(1 / std::sqrt(correction2)),
                  static_cast<float>(o.eps)};
  const auto n = static_cast<std::int64_t>(parameters.size());
  ops::parallel_for((n + chunk - 1) / chunk, [&](std::int64_t c) {
    const std::int64_t first = c * chunk;
    update(f, std::min(chunk, n - first), parameters.data() + first, gradients.data() + first,
           first_moment.data() + first, second_moment.data() + first);
  });
}

double global_norm(std::span<const float> gradients) {
  const auto n = static_cast<std::int64_t>(gradients.size());
  std::vector<double> sums(static_cast<std::size_t>((n + chunk - 1) / chunk));
  ops::parallel_for(static_cast<std::int64_t>(sums.size()), [&](std::int64_t c) {
    sums[static_cast<std::size_t>(c)] = sum_of_squares(gradients.data() + c * chunk, std::min(chunk, n - c * chunk));
  });
  double sum = 0;
  for (const double s : sums) sum += s;
  return std::sqrt(sum);
}

double clip_scale(double norm, double max_norm) { return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0; }

double CosineSchedule::at(double progress, double first) const {
  if (progress < warmup) return peak * std::min(1.0, (progress + first) / warmup);
  const double t = std::clamp((progress - warmup) / std::max(1 - warmup, 1e-9), 0.0, 1.0);
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * t));
}

}  // namespace coda::model
