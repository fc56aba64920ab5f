// AdamW, the global norm of the gradients, and the learning rate over a run.
#pragma once
#include <cstdint>
#include <span>

namespace coda::model {

/// Loshchilov and Hutter, "Decoupled weight decay regularization", with the arguments and the order of operations of
/// torch.optim.AdamW.
struct AdamW {
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

/// One update of `parameters` by `gradients * gradient_scale`. Reads and writes parameters and both moments; reads
/// gradients. `step` counts from 1. All spans are of one length.
///   p -= lr wd p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g²
///   p -= lr (m / (1 - b1^step)) / (sqrt(v / (1 - b2^step)) + eps)
void adamw_step(const AdamW& options, double learning_rate, std::int64_t step, double gradient_scale,
                std::span<float> parameters, std::span<const float> gradients, std::span<float> first_moment,
                std::span<float> second_moment);

/// sqrt(Σ g²), summed in fp64 in an order that doesn't depend on the number of threads.
double global_norm(std::span<const float> gradients);

/// The factor that brings gradients of norm `norm` to at most `max_norm`, as torch.nn.utils.clip_grad_norm_ has it;
/// 1 where max_norm is 0, which means no clipping.
double clip_scale(double norm, double max_norm);

/// Linear warm-up to `peak`, then half a cosine down to `floor`.
struct CosineSchedule {
  double peak = 1e-3, floor = 1e-4;
  double warmup = 0.02;  ///< the fraction of the run that warms up

  /// `progress` is the fraction of the run that is done, in [0, 1]; `first` that of one step, so that the first step
  /// already learns.
  double at(double progress, double first) const;
};

}  // namespace coda::model
