// The fused Llama: every product outside attention is one program, forward and backward.
//
// Forward, per layer:  norm_rope, attention, residual_norm, norm_swiglu, residual_norm
// Backward, per layer: swiglu_backward, weight_grad, norm_backward, weight_grad, linear, weight_grad, attention,
//                      rope_backward, norm_backward, weight_grad
// Saved per layer: attention out and its lse, x1, x2, rstd1, rstd2, z, rotated qkv. h and y are formed again in
// backward epilogues. The logits never exist whole.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "coda/ops.hpp"
#include "model/parameters.hpp"
#include "ops/attention.hpp"

namespace coda::model {

class Llama {
 public:
  Llama(const LlamaConfig& config, std::int64_t batch, std::int64_t sequence, ops::Context context = {});

  /// The mean cross entropy of `targets` after `tokens`, batch x sequence of each. Where `gradients` is given, the
  /// gradient of that mean is added to it. Throws Error(value) on a token or target outside the vocabulary.
  double loss(const Parameters<float>& parameters, std::span<const std::int64_t> tokens,
              std::span<const std::int64_t> targets, Parameters<float>* gradients = nullptr);

  /// The logits after the last of at most `batch * sequence` tokens of one sequence.
  std::vector<float> next_logits(const Parameters<float>& parameters, std::span<const std::int64_t> tokens);

 private:
  /// x1 is what attention's half of the block returns, x2 what the block returns.
  struct Layer {
    HostTensor qkv, attention, lse, x1, rstd1, z, x2, rstd2;
  };
  /// Views of one layer's weights, or of their gradients.
  struct Weights {
    Tensor norm1, qkv, o, norm2, gate_up, down;
  };
  Weights weights(const Parameters<float>& parameters, std::int64_t layer) const;

  /// From tokens to the final norm: fills what backward needs, leaves h of the final norm in h_.
  void forward(const Parameters<float>& parameters, std::span<const std::int64_t> tokens);
  void forward_layer(const Parameters<float>& parameters, std::int64_t l);
  /// dx_ is the gradient of what leaves the block, and becomes that of what enters it.
  void backward_layer(const Parameters<float>& parameters, std::int64_t l, Parameters<float>& gradients);
  const Tensor& entering(std::int64_t l) const { return l == 0 ? x0_.view() : layer(l - 1).x2.view(); }
  const Tensor& entering_rstd(std::int64_t l) const { return l == 0 ? rstd0_.view() : layer(l - 1).rstd2.view(); }
  Layer& layer(std::int64_t l) { return layers_[static_cast<std::size_t>(l)]; }
  const Layer& layer(std::int64_t l) const { return layers_[static_cast<std::size_t>(l)]; }

  LlamaConfig config_;
  ops::Context context_;
  ops::AttentionShape shape_;
  HostTensor position_, cos_, sin_;
  std::vector<Layer> layers_;
  HostTensor x0_, rstd0_, h_, y_, loss_, zmax_, zsum_;
  HostTensor dx_, dx1_, dz_, dqkv_, drotated_, dattention_, normed_, zdz_, dlogits_;
};

}  // namespace coda::model
