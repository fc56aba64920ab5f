// Transformer operators: plain functions over tensor views, forward beside backward. Each runs one standard program
// (see programs/), or a few, where its tensors lie, host memory or a GPU; matrices may be f32, bf16 or f16, all of one call alike, with any strides that
// the engine takes.
//
// Rows are tokens (M), D is the model's width. Weights are as Hugging Face stores them, [out, in]. `h` is x⊙w, the
// un-normalised operand whose product is scaled by rstd afterwards: RMSNorm(x)·Wᵀ = rstd⊙(h·Wᵀ). d<name> is the
// gradient of <name>. Outputs are written whole; those marked += are added to. A Tensor left default-constructed is
// "not wanted" where the comment says optional. Errors are those of the engine: kind, operand, expected, found.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "coda/engine.hpp"
#include "coda/program.hpp"
#include "coda/tensor.hpp"

namespace coda::ops {

/// What an operator needs beside its tensors.
struct Context {
  void* stream = nullptr;  ///< the CUDA stream, where the tensors lie on a GPU
  /// Called with each program before it runs, for accounting.
  std::function<void(const Program&, Slots)> observe;
};

// ---------------------------------------------------------------- products

/// y = x·Wᵀ.
struct Linear {
  Tensor x;       ///< [M, K]
  Tensor weight;  ///< [N, K]
  Tensor y;       ///< out [M, N]
};
void linear(const Context& context, const Linear& t);

/// dx = dy·W: the gradient of linear's input.
struct LinearBackward {
  Tensor dy;      ///< [M, N]
  Tensor weight;  ///< [N, K]
  Tensor dx;      ///< out [M, K]
};
void linear_backward(const Context& context, const LinearBackward& t);

/// dW += dyᵀ·x: the gradient of a weight, accumulated in f32.
struct WeightGrad {
  Tensor dy;       ///< [M, N]
  Tensor x;        ///< [M, K]
  Tensor dweight;  ///< += f32[N, K]
};
void weight_grad(const Context& context, const WeightGrad& t);

// ---------------------------------------------------------------- residual and norm

/// x = a·Wᵀ + residual;  h = x⊙norm_weight;  rstd = rsqrt(mean x² + eps).
struct LinearResidualNorm {
  Tensor a;            ///< [M, K]
  Tensor weight;       ///< [D, K]
  Tensor residual;     ///< [M, D]
  Tensor norm_weight;  ///< [D]
  float eps = 0;
  Tensor x;     ///< out [M, D]
  Tensor h;     ///< out [M, D]
  Tensor rstd;  ///< out f32[M]
};
void linear_residual_norm(const Context& context, const LinearResidualNorm& t);

/// Backward of z = rstd⊙(h·Wᵀ), h = x⊙norm_weight, with x̂ = x·rstd:
///   dh = dz·W;  dx = dresidual + rstd⊙(dh⊙norm_weight - x̂·zdz/D);  dnorm_weight += Σ_m dh⊙x̂
/// zdz = Σ_n z·dz comes from the operator that produced dz. x̂⊙norm_weight is the operand of W's gradient.
struct NormBackward {
  Tensor dz;            ///< [M, N]
  Tensor weight;        ///< [N, D]
  Tensor x;             ///< [M, D]
  Tensor dresidual;     ///< [M, D]; strides may be 0; optional: 0
  Tensor norm_weight;   ///< [D]
  Tensor rstd;          ///< f32[M]
  Tensor zdz;           ///< f32[M]
  Tensor dx;            ///< out [M, D]
  Tensor normed;        ///< out [M, D]: x̂⊙norm_weight; optional
  Tensor dnorm_weight;  ///< += f32[D]; optional
};
void norm_backward(const Context& context, const NormBackward& t);

// ---------------------------------------------------------------- SwiGLU

/// z = [g | u] = rstd⊙(h·Wᵀ), W = [gate; up];  y = silu(g)⊙u.
struct LinearNormSwiglu {
  Tensor h;       ///< [M, D]
  Tensor rstd;    ///< f32[M]
  Tensor weight;  ///< [2F, D]
  Tensor z;       ///< out [M, 2F]; optional (the backward pass needs it)
  Tensor y;       ///< out [M, F]
};
void linear_norm_swiglu(const Context& context, const LinearNormSwiglu& t);

/// dy = dout·W, for out = y·Wᵀ;  dz = [dy⊙u⊙silu'(g) | dy⊙silu(g)];  y again;  zdz = Σ z·dz.
struct SwigluBackward {
  Tensor dout;    ///< [M, D]
  Tensor weight;  ///< [D, F]: the down projection
  Tensor z;       ///< [M, 2F]
  Tensor dz;      ///< out [M, 2F]
  Tensor y;       ///< out [M, F]; optional
  Tensor zdz;     ///< out f32[M]
};
void swiglu_backward(const Context& context, const SwigluBackward& t);

// ---------------------------------------------------------------- q, k, v

/// [q | k | v] = rstd⊙(h·Wᵀ), W = [q; k; v], with q and k rotated by position, half-split.
struct LinearNormRope {
  Tensor h;         ///< [M, D]
  Tensor rstd;      ///< f32[M]
  Tensor weight;    ///< [(query + 2 kv heads) head_dim, D]
  Tensor position;  ///< i64[M]
  Tensor cos, sin;  ///< f32[positions, head_dim / 2]
  std::int64_t head_dim = 0;
  std::int64_t rotated_columns = 0;  ///< (query + kv heads) head_dim
  Tensor qkv;                        ///< out [M, (query + 2 kv heads) head_dim]
};
void linear_norm_rope(const Context& context, const LinearNormRope& t);

/// dz = dqkv rotated back, and zdz = Σ qkv·dqkv (equal before and after: a rotation is orthogonal). One pass, without a
/// product. A row whose position is outside the tables gets NaN.
struct RotaryBackward {
  Tensor qkv;       ///< [M, W], as linear_norm_rope returned it
  Tensor position;  ///< i64[M]
  Tensor cos, sin;  ///< f32[positions, head_dim / 2]
  std::int64_t head_dim = 0;
  std::int64_t rotated_columns = 0;
  Tensor dqkv;                       ///< [M, W]
  Tensor dz;                         ///< out [M, W]; not dqkv's memory
  Tensor zdz;                        ///< out f32[M]
};
void rotary_backward(const Context& context, const RotaryBackward& t);

// ---------------------------------------------------------------- LM head and cross entropy

/// Options of the loss; forward and backward must be given the same.
struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;
  float label_smoothing = 0;  ///< PyTorch's formula; 0: none
  float z_loss = 0;           ///< adds z_loss·lse²
  float softcap = 0;          ///< z = softcap·tanh(z/softcap); 0: none
};

/// Loss of each row for logits z = [rstd⊙](x·Wᵀ) [+ bias], and the statistics that the backward pass needs. No logits
/// are stored unless wanted. A target that is neither ignored nor in [0, V) is Error(value) on the CPU, a loss and a
/// gradient of NaN in its row on a GPU.
struct LinearCrossEntropy {
  Tensor x;       ///< [M, D]: h, where rstd is given
  Tensor weight;  ///< [V, D]
  Tensor rstd;    ///< f32[M]; optional: the final norm, delayed
  Tensor bias;    ///< [V]; optional
  Tensor target;  ///< i64[M]
  CrossEntropyOptions options;
  Tensor loss;    ///< out f32[M]; 0 in an ignored row
  Tensor zmax;    ///< out f32[M]
  Tensor zsum;    ///< out f32[M]
  Tensor logits;  ///< out [M, V]; optional
};
void linear_cross_entropy(const Context& context, const LinearCrossEntropy& t);

enum class Reduction : std::uint8_t { none, sum, mean };

/// The sum, or the mean over rows that aren't ignored (NaN when there are none), of f32[M] losses; in fp64. Host
/// tensors.
double reduce_loss(Reduction reduction, const Tensor& loss, const Tensor& target, std::int64_t ignore_index);

/// The factor of each row's gradient, written to `scale` f32[M]: the upstream gradient (a scalar for sum and mean, one
/// a row for none), over the number of rows that aren't ignored for mean; 0 where all are ignored. Host tensors.
void loss_scale(Reduction reduction, const Tensor& upstream, const Tensor& target, std::int64_t ignore_index,
                const Tensor& scale);

/// The two above on any device, without waiting for it: total = Σ loss, divided for a mean; factor = upstream, divided
/// for a mean, 0 where all rows are ignored. As the scale of every row the factor is a vector of stride 0.
struct MeanLoss {
  Reduction reduction = Reduction::mean;  ///< mean or sum
  Tensor loss;                            ///< f32[M]
  Tensor target;                          ///< i64[M]
  std::int64_t ignore_index = -100;
  Tensor upstream;  ///< f32[]
  Tensor total;     ///< out f32[]; optional
  Tensor factor;    ///< out f32[]; optional
};
void mean_loss(const Context& context, const MeanLoss& t);

/// dx = dz·W and dW += dzᵀ·x for dz = (softmax(z) - onehot)⊙scale, a chunk of rows at a time: `workspace` holds the
/// chunk's dz, so logits never exist whole.
struct LinearCrossEntropyBackward {
  Tensor x;           ///< [M, D]
  Tensor weight;      ///< [V, D]
  Tensor bias;        ///< [V]; optional
  Tensor target;      ///< i64[M]
  Tensor zmax, zsum;  ///< f32[M], of the forward pass
  Tensor scale;       ///< f32[M]; stride may be 0
  CrossEntropyOptions options;
  Tensor workspace;  ///< scratch [rows of a chunk, V]
  Tensor dx;         ///< out [M, D]; optional
  Tensor dweight;    ///< += f32[V, D]; optional
  Tensor dbias;      ///< += f32[V]; optional
};
void linear_cross_entropy_backward(const Context& context, const LinearCrossEntropyBackward& t);

/// The same behind a delayed norm: x is what the norm read, h = x⊙norm_weight what linear_cross_entropy was given.
struct NormLinearCrossEntropyBackward {
  Tensor x;            ///< [M, D]
  Tensor h;            ///< [M, D]
  Tensor norm_weight;  ///< [D]
  Tensor rstd;         ///< f32[M]
  Tensor weight;       ///< [V, D]
  Tensor target;       ///< i64[M]
  Tensor zmax, zsum;   ///< f32[M]
  Tensor scale;        ///< f32[M]; stride may be 0
  CrossEntropyOptions options;
  Tensor workspace;     ///< scratch [rows of a chunk, V]
  Tensor normed;        ///< scratch [rows of a chunk, D]
  Tensor zdz;           ///< scratch f32[rows of a chunk]
  Tensor dx;            ///< out [M, D]
  Tensor dweight;       ///< += f32[V, D]
  Tensor dnorm_weight;  ///< += f32[D]
};
void norm_linear_cross_entropy_backward(const Context& context, const NormLinearCrossEntropyBackward& t);

}  // namespace coda::ops
