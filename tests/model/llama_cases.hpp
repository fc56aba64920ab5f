// Small models and random batches for the tests of both models.
#pragma once
#include <cmath>
#include <random>
#include <vector>

#include "model/parameters.hpp"

namespace coda::model::test {

/// Every extent odd in its own way, grouped queries, two layers.
inline LlamaConfig small_config() {
  return {.vocabulary = 19,
          .width = 24,
          .layers = 2,
          .query_heads = 4,
          .kv_heads = 2,
          .head_dim = 6,
          .feed_forward = 14,
          .rope_theta = 100,
          .norm_eps = 1e-3};
}

/// Larger weights than training starts from, and norm weights away from 1, so that every gradient counts.
inline Parameters<float> random_parameters(const LlamaConfig& config, unsigned seed) {
  Parameters<float> p(config);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (const LlamaParameter& e : p.entries()) {
    for (std::int64_t i = 0; i < e.numel(); ++i) {
      const float x = normal(random);
      p.values()[static_cast<std::size_t>(e.offset + i)] = e.columns == 0 ? 1 + 0.3f * x : 0.3f * x;
    }
  }
  return p;
}

inline std::vector<std::int64_t> random_tokens(std::int64_t n, std::int64_t vocabulary, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int64_t> out(static_cast<std::size_t>(n));
  for (auto& t : out) t = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(vocabulary));
  return out;
}

/// RMS of the difference of one parameter's values over the RMS of the expected ones.
template <class A, class B>
double relative_error(const LlamaParameter& e, const Parameters<A>& found, const Parameters<B>& expected) {
  double difference = 0, size = 0;
  for (std::int64_t i = e.offset; i < e.offset + e.numel(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double d = static_cast<double>(found.values()[at]) - static_cast<double>(expected.values()[at]);
    difference += d * d;
    size += static_cast<double>(expected.values()[at]) * static_cast<double>(expected.values()[at]);
  }
  return std::sqrt(difference / size);
}

}  // namespace coda::model::test
