// Attention as its formula reads, in any real type, one thread, whole rows of scores: what the blocked routine of
// attention.hpp is checked against, and the attention of the fp64 model. Tensors are row-major; see there for layouts.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/attention.hpp"

namespace coda::ops {

/// p[j] for the query in row `token` (counted in its sequence), head h.
template <class Real>
std::vector<Real> attention_row(const AttentionShape& s, const Real* qkv, std::int64_t sequence, std::int64_t token,
                                std::int64_t h) {
  const std::int64_t D = s.head_dim, group = s.query_heads / s.kv_heads;
  const Real* first = qkv + sequence * s.sequence * s.width();
  const Real* q = first + token * s.width() + h * D;
  std::vector<Real> p;
  Real maximum = -INFINITY, sum = 0;
  for (std::int64_t j = 0; j <= token; ++j) {
    const Real* k = first + j * s.width() + (s.query_heads + h / group) * D;
    Real score = 0;
    for (std::int64_t d = 0; d < D; ++d) score += q[d] * k[d];
    p.push_back(score * static_cast<Real>(s.scale));
    maximum = std::max(maximum, p.back());
  }
  for (Real& x : p) sum += x = std::exp(x - maximum);
  for (Real& x : p) x /= sum;
  return p;
}

template <class Real>
void attention_forward_plain(const AttentionShape& s, const Real* qkv, Real* out) {
  const std::int64_t D = s.head_dim, group = s.query_heads / s.kv_heads;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t i = 0; i < s.sequence; ++i) {
      for (std::int64_t h = 0; h < s.query_heads; ++h) {
        const std::vector<Real> p = attention_row(s, qkv, b, i, h);
        Real* o = out + ((b * s.sequence + i) * s.query_heads + h) * D;
        std::fill_n(o, D, Real{0});
        for (std::int64_t j = 0; j <= i; ++j) {
          const Real* v = qkv + (b * s.sequence + j) * s.width() + (s.query_heads + s.kv_heads + h / group) * D;
          for (std::int64_t d = 0; d < D; ++d) o[d] += p[static_cast<std::size_t>(j)] * v[d];
        }
      }
    }
  }
}

/// Writes dqkv.
template <class Real>
void attention_backward_plain(const AttentionShape& s, const Real* qkv, const Real* dout, Real* dqkv) {
  const std::int64_t D = s.head_dim, group = s.query_heads / s.kv_heads;
  std::fill_n(dqkv, s.tokens() * s.width(), Real{0});
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t i = 0; i < s.sequence; ++i) {
      for (std::int64_t h = 0; h < s.query_heads; ++h) {
        const std::vector<Real> p = attention_row(s, qkv, b, i, h);
        const Real* g = dout + ((b * s.sequence + i) * s.query_heads + h) * D;
        const std::int64_t q = (b * s.sequence + i) * s.width() + h * D;
        std::vector<Real> dp(p.size());
        Real mean = 0;
        for (std::size_t j = 0; j < p.size(); ++j) {
          const std::int64_t row = (b * s.sequence + static_cast<std::int64_t>(j)) * s.width();
          const std::int64_t v = row + (s.query_heads + s.kv_heads + h / group) * D;
          for (std::int64_t d = 0; d < D; ++d) {
            dp[j] += g[d] * qkv[v + d];
            dqkv[v + d] += p[j] * g[d];
          }
          mean += p[j] * dp[j];
        }
        for (std::size_t j = 0; j < p.size(); ++j) {
          const std::int64_t k =
              (b * s.sequence + static_cast<std::int64_t>(j)) * s.width() + (s.query_heads + h / group) * D;
          const Real ds = p[j] * (dp[j] - mean) * static_cast<Real>(s.scale);
          for (std::int64_t d = 0; d < D; ++d) {
            dqkv[q + d] += ds * qkv[k + d];
            dqkv[k + d] += ds * qkv[q + d];
          }
        }
      }
    }
  }
}

}  // namespace coda::ops
