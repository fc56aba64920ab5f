// The fused Llama: see llama.hpp. Gradients of activations are written, those of parameters added to.
#include "model/llama.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "coda/error.hpp"
#include "model/passes.hpp"
#include "ops/embedding.hpp"

namespace coda::model {
namespace {

/// Rows of dlogits that exist at once in the backward pass of the LM head.
constexpr std::int64_t head_chunk = 1024;

Tensor view(float* data, std::int64_t rows, std::int64_t columns) {
  const std::int64_t shape[] = {rows, columns};
  return Tensor::contiguous(data, DType::f32, shape);
}

Tensor view(float* data, std::int64_t n) { return Tensor::contiguous(data, DType::f32, std::span(&n, 1)); }

}  // namespace

Llama::Llama(const LlamaConfig& c, std::int64_t batch, std::int64_t sequence, ops::Context context)
    : config_(c),
      context_(std::move(context)),
      shape_{batch,      sequence,   c.query_heads,
             c.kv_heads, c.head_dim, static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_dim)))} {
  check(c);
  const std::int64_t M = shape_.tokens(), D = c.width;
  const auto rows = [&](std::int64_t width) { return HostTensor(DType::f32, {M, width}); };
  const auto row = [&] { return HostTensor(DType::f32, {M}); };
  for (std::int64_t l = 0; l < c.layers; ++l) {
    layers_.push_back({.qkv = rows(c.qkv_width()),
                       .attention = rows(c.attention_width()),
                       .lse = rows(c.query_heads),
                       .x1 = rows(D),
                       .rstd1 = row(),
                       .z = rows(2 * c.feed_forward),
                       .x2 = rows(D),
                       .rstd2 = row()});
  }
  position_ = HostTensor(DType::i64, {M});
  for (std::int64_t m = 0; m < M; ++m) position_.as<std::int64_t>()[m] = m % sequence;
  const RotaryTables<float> tables(sequence, c.head_dim, c.rope_theta);
  cos_ = HostTensor(DType::f32, {sequence, c.head_dim / 2});
  sin_ = HostTensor(DType::f32, {sequence, c.head_dim / 2});
  std::copy(tables.cos.begin(), tables.cos.end(), cos_.as<float>());
  std::copy(tables.sin.begin(), tables.sin.end(), sin_.as<float>());
  x0_ = rows(D);
  rstd0_ = row();
  h_ = rows(D);
  y_ = rows(c.feed_forward);
  loss_ = row();
  zmax_ = row();
  zsum_ = row();
  dx_ = rows(D);
  dx1_ = rows(D);
  dz_ = rows(2 * c.feed_forward);
  dqkv_ = rows(c.qkv_width());
  drotated_ = rows(c.qkv_width());
  dattention_ = rows(c.attention_width());
  normed_ = rows(D);
  zdz_ = row();
  dlogits_ = HostTensor(DType::f32, {std::min(M, head_chunk), c.vocabulary});
}

Llama::Weights Llama::weights(const Parameters<float>& parameters, std::int64_t l) const {
  const LayerPointers<float> p = parameters.layer(l);
  const std::int64_t D = config_.width, F = config_.feed_forward;
  return {.norm1 = view(p.norm1, D),
          .qkv = view(p.qkv, config_.qkv_width(), D),
          .o = view(p.o, D, config_.attention_width()),
          .norm2 = view(p.norm2, D),
          .gate_up = view(p.gate_up, 2 * F, D),
          .down = view(p.down, D, F)};
}

double Llama::loss(const Parameters<float>& parameters, std::span<const std::int64_t> tokens,
                   std::span<const std::int64_t> targets, Parameters<float>* gradients) {
  const std::int64_t M = shape_.tokens(), D = config_.width, V = config_.vocabulary, last = config_.layers - 1;
  forward(parameters, tokens);
  const Tensor target = Tensor::contiguous(const_cast<std::int64_t*>(targets.data()), DType::i64, std::span(&M, 1));
  const ops::CrossEntropyOptions options{.ignore_index = -1 - (std::int64_t{1} << 40)};  // no target is ignored
  const Tensor head = view(parameters.lm_head(), V, D);
  ops::linear_cross_entropy(context_, {.x = h_,
                                       .weight = head,
                                       .rstd = layer(last).rstd2,
                                       .bias = {},
                                       .target = target,
                                       .options = options,
                                       .loss = loss_,
                                       .zmax = zmax_,
                                       .zsum = zsum_,
                                       .logits = {}});
  const double mean = ops::reduce_loss(ops::Reduction::mean, loss_, target, options.ignore_index);
  if (gradients == nullptr) return mean;

  float share = static_cast<float>(1 / static_cast<double>(M));
  Tensor scale = view(&share, M);
  scale.stride[0] = 0;
  ops::norm_linear_cross_entropy_backward(context_, {.x = layer(last).x2,
                                                     .h = h_,
                                                     .norm_weight = view(parameters.norm(), D),
                                                     .rstd = layer(last).rstd2,
                                                     .weight = head,
                                                     .target = target,
                                                     .zmax = zmax_,
                                                     .zsum = zsum_,
                                                     .scale = scale,
                                                     .options = options,
                                                     .workspace = dlogits_,
                                                     .normed = normed_,
                                                     .zdz = zdz_,
                                                     .dx = dx_,
                                                     .dweight = view(gradients->lm_head(), V, D),
                                                     .dnorm_weight = view(gradients->norm(), D)});
  for (std::int64_t l = last; l >= 0; --l) backward_layer(parameters, l, *gradients);
  ops::embedding_backward(M, D, tokens.data(), dx_.as<float>(), gradients->embedding());
  return mean;
}

std::vector<float> Llama::next_logits(const Parameters<float>& parameters, std::span<const std::int64_t> tokens) {
  const std::int64_t M = shape_.tokens(), n = static_cast<std::int64_t>(tokens.size());
  if (n < 1 || n > shape_.sequence) {
    throw Error(ErrorKind::value, fmt::format("next_logits: {} tokens, expected 1 to {}", n, shape_.sequence));
  }
  std::vector<std::int64_t> padded(static_cast<std::size_t>(M));  // causal: what follows changes nothing
  std::copy(tokens.begin(), tokens.end(), padded.begin());
  forward(parameters, padded);
  std::vector<float> logits(static_cast<std::size_t>(config_.vocabulary));
  const Tensor& rstd = layer(config_.layers - 1).rstd2;
  ops::linear(context_, {.x = view(h_.as<float>() + (n - 1) * config_.width, 1, config_.width),
                         .weight = view(parameters.lm_head(), config_.vocabulary, config_.width),
                         .y = view(logits.data(), 1, config_.vocabulary)});
  for (float& z : logits) z *= rstd.as<float>()[n - 1];
  return logits;
}

void Llama::forward(const Parameters<float>& parameters, std::span<const std::int64_t> tokens) {
  const std::int64_t M = shape_.tokens(), D = config_.width;
  ops::embedding(M, D, config_.vocabulary, tokens.data(), parameters.embedding(), x0_.as<float>());
  // The first norm has no product before it to take its statistic from.
  delayed_norm(M, D, x0_.as<float>(), parameters.layer(0).norm1, config_.norm_eps, h_.as<float>(), rstd0_.as<float>());
  for (std::int64_t l = 0; l < config_.layers; ++l) forward_layer(parameters, l);
}

void Llama::forward_layer(const Parameters<float>& parameters, std::int64_t l) {
  const Weights w = weights(parameters, l);
  const auto eps = static_cast<float>(config_.norm_eps);
  Layer& s = layer(l);
  ops::linear_norm_rope(context_, {.h = h_,
                                   .rstd = entering_rstd(l),
                                   .weight = w.qkv,
                                   .position = position_,
                                   .cos = cos_,
                                   .sin = sin_,
                                   .head_dim = config_.head_dim,
                                   .rotated_columns = (config_.query_heads + config_.kv_heads) * config_.head_dim,
                                   .qkv = s.qkv});
  ops::attention_forward(shape_, s.qkv, s.attention, s.lse);
  ops::linear_residual_norm(context_, {.a = s.attention,
                                       .weight = w.o,
                                       .residual = entering(l),
                                       .norm_weight = w.norm2,
                                       .eps = eps,
                                       .x = s.x1,
                                       .h = h_,
                                       .rstd = s.rstd1});
  ops::linear_norm_swiglu(context_, {.h = h_, .rstd = s.rstd1, .weight = w.gate_up, .z = s.z, .y = y_});
  float* const next_norm = l + 1 < config_.layers ? parameters.layer(l + 1).norm1 : parameters.norm();
  ops::linear_residual_norm(context_, {.a = y_,
                                       .weight = w.down,
                                       .residual = s.x1,
                                       .norm_weight = view(next_norm, config_.width),
                                       .eps = eps,
                                       .x = s.x2,
                                       .h = h_,
                                       .rstd = s.rstd2});
}

void Llama::backward_layer(const Parameters<float>& parameters, std::int64_t l, Parameters<float>& gradients) {
  const Weights w = weights(parameters, l), dw = weights(gradients, l);
  const Layer& s = layer(l);
  ops::swiglu_backward(context_, {.dout = dx_, .weight = w.down, .z = s.z, .dz = dz_, .y = y_, .zdz = zdz_});
  ops::weight_grad(context_, {.dy = dx_, .x = y_, .dweight = dw.down});
  ops::norm_backward(context_, {.dz = dz_,
                                .weight = w.gate_up,
                                .x = s.x1,
                                .dresidual = dx_,
                                .norm_weight = w.norm2,
                                .rstd = s.rstd1,
                                .zdz = zdz_,
                                .dx = dx1_,
                                .normed = normed_,
                                .dnorm_weight = dw.norm2});
  ops::weight_grad(context_, {.dy = dz_, .x = normed_, .dweight = dw.gate_up});

  ops::linear_backward(context_, {.dy = dx1_, .weight = w.o, .dx = dattention_});
  ops::weight_grad(context_, {.dy = dx1_, .x = s.attention, .dweight = dw.o});
  ops::attention_backward(shape_, s.qkv, s.attention, s.lse, dattention_, drotated_);
  ops::rotary_backward(context_, {.qkv = s.qkv,
                                  .position = position_,
                                  .cos = cos_,
                                  .sin = sin_,
                                  .head_dim = config_.head_dim,
                                  .rotated_columns = (config_.query_heads + config_.kv_heads) * config_.head_dim,
                                  .dqkv = drotated_,
                                  .dz = dqkv_,
                                  .zdz = zdz_});
  ops::norm_backward(context_, {.dz = dqkv_,
                                .weight = w.qkv,
                                .x = entering(l),
                                .dresidual = dx1_,
                                .norm_weight = w.norm1,
                                .rstd = entering_rstd(l),
                                .zdz = zdz_,
                                .dx = dx_,
                                .normed = normed_,
                                .dnorm_weight = dw.norm1});
  ops::weight_grad(context_, {.dy = dqkv_, .x = normed_, .dweight = dw.qkv});
}

}  // namespace coda::model
