// The parameters of a Llama in one buffer; gradients and optimiser moments have the same form.
#pragma once
#include <span>
#include <vector>

#include "coda/model.hpp"
#include "coda/tensor.hpp"

namespace coda::model {

/// Where one layer's tensors begin.
template <class Real>
struct LayerPointers {
  Real *norm1, *qkv, *o, *norm2, *gate_up, *down;
};

/// Real is float or double. Starts as zeros.
template <class Real>
class Parameters {
 public:
  explicit Parameters(const LlamaConfig& config);

  const LlamaConfig& config() const { return config_; }
  const std::vector<LlamaParameter>& entries() const { return entries_; }
  std::span<Real> values() { return {memory_.as<Real>(), static_cast<std::size_t>(memory_.numel())}; }
  std::span<const Real> values() const { return {memory_.as<Real>(), static_cast<std::size_t>(memory_.numel())}; }
  /// A view of one of entries().
  Tensor tensor(const LlamaParameter& p) const;

  Real* embedding() const { return memory_.as<Real>() + entries_.front().offset; }
  LayerPointers<Real> layer(std::int64_t l) const;
  Real* norm() const { return memory_.as<Real>() + entries_[entries_.size() - 2].offset; }
  Real* lm_head() const { return memory_.as<Real>() + entries_.back().offset; }

 private:
  LlamaConfig config_;
  std::vector<LlamaParameter> entries_;
  HostTensor memory_;
};

/// Norm weights 1; matrices normal with standard deviation 0.02, those that write to the residual stream divided by
/// sqrt(2 layers). A function of the seed alone.
void initialise(Parameters<float>& parameters, std::uint64_t seed);

/// The same values in another real type.
template <class To, class From>
Parameters<To> converted(const Parameters<From>& from) {
  Parameters<To> to(from.config());
  for (std::size_t i = 0; i < from.values().size(); ++i) to.values()[i] = static_cast<To>(from.values()[i]);
  return to;
}

}  // namespace coda::model
