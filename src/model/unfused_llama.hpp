// A Llama made of products and separate passes, forward and backward, written out by hand. In double it is the
// reference that gradients are checked with; in float, on the same library products as the fused model, it is what
// fusion is measured against.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/parameters.hpp"
#include "model/passes.hpp"
#include "ops/attention.hpp"

namespace coda::model {

template <class Real>
class UnfusedLlama {
 public:
  UnfusedLlama(const LlamaConfig& config, std::int64_t batch, std::int64_t sequence);

  /// The mean cross entropy of `targets` after `tokens`, batch x sequence of each. Where `gradients` is given, the
  /// gradient of that mean is added to it. Throws Error(value) on a token or target outside the vocabulary.
  double loss(const Parameters<Real>& parameters, std::span<const std::int64_t> tokens,
              std::span<const std::int64_t> targets, Parameters<Real>* gradients = nullptr);

 private:
  using Buffer = std::vector<Real>;
  struct Layer {
    Buffer x, h1, rstd1, qkv, attention, lse, x1, h2, rstd2, z, y;  // x: what enters the block
  };

  void forward_layer(const Parameters<Real>& parameters, std::int64_t l, Buffer& out);
  /// dx is the gradient of what leaves the block, and becomes that of what enters it.
  void backward_layer(const Parameters<Real>& parameters, std::int64_t l, Parameters<Real>& gradients);

  LlamaConfig config_;
  ops::AttentionShape shape_;
  RotaryTables<Real> tables_;
  std::vector<Layer> layers_;
  Buffer x_, h_, rstd_, logits_, maximum_, sum_, losses_;
  Buffer product_, dx_, dh_, dwide_, dy_, dqkv_, dattention_;
};

}  // namespace coda::model
