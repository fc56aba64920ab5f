// The unfused Llama: see unfused_llama.hpp. The names are those of the formulas; d<name> is the gradient of <name>.
#include "model/unfused_llama.hpp"

#include <cmath>
#include <type_traits>

#include "model/product.hpp"
#include "ops/attention_plain.hpp"
#include "ops/embedding.hpp"

namespace coda::model {
namespace {

Tensor matrix(const std::vector<float>& buffer, std::int64_t rows) {
  const std::int64_t shape[] = {rows, static_cast<std::int64_t>(buffer.size()) / rows};
  return Tensor::contiguous(const_cast<float*>(buffer.data()), DType::f32, shape);
}

void attend(const ops::AttentionShape& s, const std::vector<float>& qkv, std::vector<float>& out,
            std::vector<float>& lse) {
  ops::attention_forward(s, matrix(qkv, s.tokens()), matrix(out, s.tokens()), matrix(lse, s.tokens()));
}

void attend(const ops::AttentionShape& s, const std::vector<double>& qkv, std::vector<double>& out,
            std::vector<double>&) {
  ops::attention_forward_plain(s, qkv.data(), out.data());
}

void attend_backward(const ops::AttentionShape& s, const std::vector<float>& qkv, const std::vector<float>& out,
                     const std::vector<float>& lse, const std::vector<float>& dout, std::vector<float>& dqkv) {
  ops::attention_backward(s, matrix(qkv, s.tokens()), matrix(out, s.tokens()), matrix(lse, s.tokens()),
                          matrix(dout, s.tokens()), matrix(dqkv, s.tokens()));
}

void attend_backward(const ops::AttentionShape& s, const std::vector<double>& qkv, const std::vector<double>&,
                     const std::vector<double>&, const std::vector<double>& dout, std::vector<double>& dqkv) {
  ops::attention_backward_plain(s, qkv.data(), dout.data(), dqkv.data());
}

}  // namespace

template <class Real>
UnfusedLlama<Real>::UnfusedLlama(const LlamaConfig& c, std::int64_t batch, std::int64_t sequence)
    : config_(c),
      shape_{batch,      sequence,   c.query_heads,
             c.kv_heads, c.head_dim, static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_dim)))},
      tables_(sequence, c.head_dim, c.rope_theta) {
  check(c);
  const auto rows = [&](std::int64_t width) { return Buffer(static_cast<std::size_t>(shape_.tokens() * width)); };
  for (std::int64_t l = 0; l < c.layers; ++l) {
    layers_.push_back({rows(c.width), rows(c.width), rows(1), rows(c.qkv_width()), rows(c.attention_width()),
                       rows(c.query_heads), rows(c.width), rows(c.width), rows(1), rows(2 * c.feed_forward),
                       rows(c.feed_forward)});
  }
  x_ = rows(c.width);
  h_ = rows(c.width);
  rstd_ = rows(1);
  logits_ = rows(c.vocabulary);
  maximum_ = rows(1);
  sum_ = rows(1);
  losses_ = rows(1);
  product_ = rows(c.width);
  dx_ = rows(c.width);
  dh_ = rows(c.width);
  dwide_ = rows(2 * c.feed_forward);
  dy_ = rows(c.feed_forward);
  dqkv_ = rows(c.qkv_width());
  dattention_ = rows(c.attention_width());
}

template <class Real>
double UnfusedLlama<Real>::loss(const Parameters<Real>& parameters, std::span<const std::int64_t> tokens,
                                std::span<const std::int64_t> targets, Parameters<Real>* gradients) {
  const std::int64_t M = shape_.tokens(), D = config_.width, V = config_.vocabulary;
  ops::embedding(M, D, V, tokens.data(), parameters.embedding(), layers_.front().x.data());
  for (std::int64_t l = 0; l < config_.layers; ++l) {
    forward_layer(parameters, l, l + 1 < config_.layers ? layers_[static_cast<std::size_t>(l + 1)].x : x_);
  }
  rms_norm(M, D, x_.data(), parameters.norm(), config_.norm_eps, h_.data(), rstd_.data());
  product_nt(M, V, D, h_.data(), parameters.lm_head(), logits_.data());
  cross_entropy(M, V, logits_.data(), targets.data(), maximum_.data(), sum_.data(), losses_.data());
  double sum = 0;
  for (const Real loss : losses_) sum += static_cast<double>(loss);
  const double mean = sum / static_cast<double>(M);
  if (gradients == nullptr) return mean;

  cross_entropy_backward(M, V, logits_.data(), targets.data(), maximum_.data(), sum_.data(), 1 / static_cast<double>(M),
                         logits_.data());
  product_tn_add(V, D, M, logits_.data(), h_.data(), gradients->lm_head());
  product_nn(M, D, V, logits_.data(), parameters.lm_head(), dh_.data());
  rms_norm_backward<Real>(M, D, dh_.data(), x_.data(), parameters.norm(), rstd_.data(), nullptr, dx_.data(),
                          gradients->norm());
  for (std::int64_t l = config_.layers - 1; l >= 0; --l) backward_layer(parameters, l, *gradients);
  ops::embedding_backward(M, D, tokens.data(), dx_.data(), gradients->embedding());
  return mean;
}

template <class Real>
void UnfusedLlama<Real>::forward_layer(const Parameters<Real>& parameters, std::int64_t l, Buffer& out) {
  const std::int64_t M = shape_.tokens(), D = config_.width, F = config_.feed_forward;
  const std::int64_t Q = config_.qkv_width(), A = config_.attention_width();
  const LayerPointers<Real> w = parameters.layer(l);
  Layer& s = layers_[static_cast<std::size_t>(l)];
  rms_norm(M, D, s.x.data(), w.norm1, config_.norm_eps, s.h1.data(), s.rstd1.data());
  product_nt(M, Q, D, s.h1.data(), w.qkv, s.qkv.data());
  rotate(M, shape_.sequence, Q, config_.query_heads + config_.kv_heads, config_.head_dim, tables_, Real{1},
         s.qkv.data());
  attend(shape_, s.qkv, s.attention, s.lse);
  product_nt(M, D, A, s.attention.data(), w.o, product_.data());
  add(M * D, s.x.data(), product_.data(), s.x1.data());
  rms_norm(M, D, s.x1.data(), w.norm2, config_.norm_eps, s.h2.data(), s.rstd2.data());
  product_nt(M, 2 * F, D, s.h2.data(), w.gate_up, s.z.data());
  swiglu(M, F, s.z.data(), s.y.data());
  product_nt(M, D, F, s.y.data(), w.down, product_.data());
  add(M * D, s.x1.data(), product_.data(), out.data());
}

template <class Real>
void UnfusedLlama<Real>::backward_layer(const Parameters<Real>& parameters, std::int64_t l,
                                        Parameters<Real>& gradients) {
  const std::int64_t M = shape_.tokens(), D = config_.width, F = config_.feed_forward;
  const std::int64_t Q = config_.qkv_width(), A = config_.attention_width();
  const LayerPointers<Real> w = parameters.layer(l), dw = gradients.layer(l);
  const Layer& s = layers_[static_cast<std::size_t>(l)];
  product_tn_add(D, F, M, dx_.data(), s.y.data(), dw.down);
  product_nn(M, F, D, dx_.data(), w.down, dy_.data());
  swiglu_backward(M, F, dy_.data(), s.z.data(), dwide_.data());
  product_tn_add(2 * F, D, M, dwide_.data(), s.h2.data(), dw.gate_up);
  product_nn(M, D, 2 * F, dwide_.data(), w.gate_up, dh_.data());
  rms_norm_backward(M, D, dh_.data(), s.x1.data(), w.norm2, s.rstd2.data(), dx_.data(), dx_.data(), dw.norm2);

  product_tn_add(D, A, M, dx_.data(), s.attention.data(), dw.o);
  product_nn(M, A, D, dx_.data(), w.o, dattention_.data());
  attend_backward(shape_, s.qkv, s.attention, s.lse, dattention_, dqkv_);
  rotate(M, shape_.sequence, Q, config_.query_heads + config_.kv_heads, config_.head_dim, tables_, Real{-1},
         dqkv_.data());
  product_tn_add(Q, D, M, dqkv_.data(), s.h1.data(), dw.qkv);
  product_nn(M, D, Q, dqkv_.data(), w.qkv, dh_.data());
  rms_norm_backward(M, D, dh_.data(), s.x.data(), w.norm1, s.rstd1.data(), dx_.data(), dx_.data(), dw.norm1);
}

template class UnfusedLlama<float>;
template class UnfusedLlama<double>;

}  // namespace coda::model
