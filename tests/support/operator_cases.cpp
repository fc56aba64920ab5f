// The operators' cases. Tokens are ragged; widths are multiples of 8 and of no tile, as GPUs want the rows of matrices.
#include <cmath>

#include "ops/attention.hpp"
#include "support/trial.hpp"

namespace coda::test {
namespace {

using namespace ops;

constexpr std::int64_t batch = 2, sequence = 67, T = batch * sequence;  // tokens
constexpr std::int64_t D = 200, F = 136, V = 520, chunk = 56;
constexpr std::int64_t query_heads = 3, kv_heads = 1, head = 64;
constexpr std::int64_t attention_width = query_heads * head, qkv_width = (query_heads + 2 * kv_heads) * head;
constexpr std::int64_t rotated = (query_heads + kv_heads) * head;
constexpr std::int64_t ignored = -100;

Tensor weight(Trial& t, std::string_view name, std::int64_t out, std::int64_t in) {
  return t.matrix(name, {out, in}, 1 / std::sqrt(static_cast<double>(in)));
}
Tensor norm_weight(Trial& t, std::string_view name) { return t.uniform(name, {D}, 0.5, 1.5, t.dtype()); }
Tensor rstd(Trial& t) { return t.uniform("rstd", {T}, 0.5, 2); }
Tensor row(Trial& t, std::string_view name) { return t.output(name, {T}, DType::f32); }

void linear_case(Trial& t) {
  linear(t.context(), {.x = t.matrix("x", {T, D}), .weight = weight(t, "w", F, D), .y = t.output("y", {T, F})});
}

void linear_backward_case(Trial& t) {
  linear_backward(t.context(),
                  {.dy = t.matrix("dy", {T, F}), .weight = weight(t, "w", F, D), .dx = t.output("dx", {T, D})});
}

void weight_grad_case(Trial& t) {
  weight_grad(t.context(),
              {.dy = t.matrix("dy", {T, F}), .x = t.matrix("x", {T, D}), .dweight = t.accumulated("dweight", {F, D})});
}

void residual_norm_case(Trial& t) {
  linear_residual_norm(t.context(), {.a = t.matrix("a", {T, F}),
                                     .weight = weight(t, "w", D, F),
                                     .residual = t.matrix("residual", {T, D}),
                                     .norm_weight = norm_weight(t, "g"),
                                     .eps = 1e-5f,
                                     .x = t.output("x", {T, D}),
                                     .h = t.output("h", {T, D}),
                                     .rstd = row(t, "rstd_out")});
}

NormBackward norm_backward_arguments(Trial& t) {
  return {.dz = t.matrix("dz", {T, F}),
          .weight = weight(t, "w", F, D),
          .x = t.matrix("x", {T, D}),
          .dresidual = t.matrix("dresidual", {T, D}),
          .norm_weight = norm_weight(t, "g"),
          .rstd = rstd(t),
          .zdz = t.uniform("zdz", {T}, -4, 4),
          .dx = t.output("dx", {T, D}),
          .normed = t.output("normed", {T, D}),
          .dnorm_weight = t.accumulated("dnorm_weight", {D})};
}

void norm_backward_case(Trial& t) { norm_backward(t.context(), norm_backward_arguments(t)); }

void norm_backward_alone_case(Trial& t) {
  NormBackward all = norm_backward_arguments(t);
  NormBackward some = all;
  some.dresidual = some.normed = some.dnorm_weight = {};
  some.dx = t.output("dx_alone", {T, D});
  norm_backward(t.context(), some);
  norm_backward(t.context(), all);
}

void swiglu_case(Trial& t) {
  LinearNormSwiglu all{.h = t.matrix("h", {T, D}),
                       .rstd = rstd(t),
                       .weight = weight(t, "w", 2 * F, D),
                       .z = t.output("z", {T, 2 * F}),
                       .y = t.output("y", {T, F})};
  linear_norm_swiglu(t.context(), all);
  all.z = {};
  all.y = t.output("y_alone", {T, F});
  linear_norm_swiglu(t.context(), all);
}

void swiglu_backward_case(Trial& t) {
  SwigluBackward all{.dout = t.matrix("dout", {T, D}),
                     .weight = weight(t, "w", D, F),
                     .z = t.matrix("z", {T, 2 * F}),
                     .dz = t.output("dz", {T, 2 * F}),
                     .y = t.output("y", {T, F}),
                     .zdz = row(t, "zdz")};
  swiglu_backward(t.context(), all);
  all.y = {};
  all.dz = t.output("dz_alone", {T, 2 * F});
  swiglu_backward(t.context(), all);
}

/// cos or sin of each position's angles.
Tensor angles(Trial& t, double (*f)(double)) {
  return t.reals({sequence, head / 2}, [f](std::int64_t i) {
    return f(static_cast<double>(i / (head / 2)) *
             std::pow(10000.0, -2.0 * static_cast<double>(i % (head / 2)) / head));
  });
}
Tensor cosines(Trial& t) { return angles(t, std::cos); }
Tensor sines(Trial& t) { return angles(t, std::sin); }
Tensor positions(Trial& t) {
  return t.integers({T}, [](std::int64_t m) { return m % sequence; });
}

void rope_case(Trial& t) {
  linear_norm_rope(t.context(), {.h = t.matrix("h", {T, D}),
                                 .rstd = rstd(t),
                                 .weight = weight(t, "w", qkv_width, D),
                                 .position = positions(t),
                                 .cos = cosines(t),
                                 .sin = sines(t),
                                 .head_dim = head,
                                 .rotated_columns = rotated,
                                 .qkv = t.output("qkv", {T, qkv_width})});
}

void rotary_backward_case(Trial& t) {
  rotary_backward(t.context(), {.qkv = t.matrix("qkv", {T, qkv_width}),
                                .position = positions(t),
                                .cos = cosines(t),
                                .sin = sines(t),
                                .head_dim = head,
                                .rotated_columns = rotated,
                                .dqkv = t.matrix("dqkv", {T, qkv_width}),
                                .dz = t.output("dz", {T, qkv_width}),
                                .zdz = row(t, "zdz")});
}

Tensor targets(Trial& t) {
  return t.integers({T}, [](std::int64_t m) { return m % 9 == 4 ? ignored : 37 * m % V; });
}

constexpr CrossEntropyOptions everything{
    .ignore_index = ignored, .label_smoothing = 0.1f, .z_loss = 0.01f, .softcap = 15.0f};

/// The loss and its gradients, in chunks of which the last is short; the mean's factor never leaves the device.
void cross_entropy_case(Trial& t, const CrossEntropyOptions& options, bool with_bias) {
  const Tensor x = t.matrix("x", {T, D}), w = weight(t, "w", V, D), target = targets(t);
  const Tensor bias = with_bias ? t.matrix("bias", {V}) : Tensor{};
  const Tensor loss = row(t, "loss"), zmax = row(t, "zmax"), zsum = row(t, "zsum");
  linear_cross_entropy(t.context(), {.x = x,
                                     .weight = w,
                                     .rstd = {},
                                     .bias = bias,
                                     .target = target,
                                     .options = options,
                                     .loss = loss,
                                     .zmax = zmax,
                                     .zsum = zsum,
                                     .logits = with_bias ? t.output("logits", {T, V}) : Tensor{}});
  const Tensor factor = t.output("factor", {}, DType::f32);
  mean_loss(t.context(), {.reduction = Reduction::mean,
                          .loss = loss,
                          .target = target,
                          .ignore_index = ignored,
                          .upstream = t.reals({}, [](auto) { return 1000.0; }),
                          .total = t.output("total", {}, DType::f32),
                          .factor = factor});
  Tensor scale = factor;
  scale.rank = 1;
  scale.shape[0] = T;
  scale.stride[0] = 0;
  linear_cross_entropy_backward(t.context(), {.x = x,
                                              .weight = w,
                                              .bias = bias,
                                              .target = target,
                                              .zmax = zmax,
                                              .zsum = zsum,
                                              .scale = scale,
                                              .options = options,
                                              .workspace = t.scratch({chunk, V}, t.dtype()),
                                              .dx = t.output("dx", {T, D}),
                                              .dweight = t.accumulated("dweight", {V, D}),
                                              .dbias = with_bias ? t.accumulated("dbias", {V}) : Tensor{}});
}

void norm_cross_entropy_case(Trial& t) {
  // What a norm would have made of x: h is a product, so that all runs round it alike.
  const Tensor x = t.matrix("x", {T, D}), h = t.matrix("h", {T, D}), w = weight(t, "w", V, D), target = targets(t);
  const Tensor scaled = rstd(t), loss = row(t, "loss"), zmax = row(t, "zmax"), zsum = row(t, "zsum");
  linear_cross_entropy(t.context(), {.x = h,
                                     .weight = w,
                                     .rstd = scaled,
                                     .bias = {},
                                     .target = target,
                                     .options = everything,
                                     .loss = loss,
                                     .zmax = zmax,
                                     .zsum = zsum,
                                     .logits = {}});
  norm_linear_cross_entropy_backward(t.context(), {.x = x,
                                                   .h = h,
                                                   .norm_weight = norm_weight(t, "g"),
                                                   .rstd = scaled,
                                                   .weight = w,
                                                   .target = target,
                                                   .zmax = zmax,
                                                   .zsum = zsum,
                                                   .scale = t.uniform("scale", {T}, 0.5, 2),
                                                   .options = everything,
                                                   .workspace = t.scratch({chunk, V}, t.dtype()),
                                                   .normed = t.scratch({chunk, D}, t.dtype()),
                                                   .zdz = t.scratch({chunk}, DType::f32),
                                                   .dx = t.output("dx", {T, D}),
                                                   .dweight = t.accumulated("dweight", {V, D}),
                                                   .dnorm_weight = t.accumulated("dnorm_weight", {D})});
}

void mean_loss_case(Trial& t) {
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    const bool mean = reduction == Reduction::mean;
    mean_loss(t.context(), {.reduction = reduction,
                            .loss = t.uniform("loss", {T}, 1, 8),
                            .target = targets(t),
                            .ignore_index = ignored,
                            .upstream = t.reals({}, [](auto) { return 3.0; }),
                            .total = t.output(mean ? "mean" : "sum", {}, DType::f32),
                            .factor = t.output(mean ? "mean's factor" : "sum's factor", {}, DType::f32)});
  }
}

constexpr AttentionShape attention{.batch = batch,
                                   .sequence = sequence,
                                   .query_heads = query_heads,
                                   .kv_heads = kv_heads,
                                   .head_dim = head,
                                   .scale = 0.125f};

HostTensor in_f32(const HostTensor& t) {
  HostTensor wide(DType::f32, std::span(t.view().shape.data(), static_cast<std::size_t>(t.view().rank)));
  for (std::int64_t i = 0; i < t.numel(); ++i) store(wide, i, load(t, i));
  return wide;
}

/// A Llama block, forward and backward. Attention alone is computed on the host, in f32, wherever the block runs.
void llama_block_case(Trial& t) {
  const Context& c = t.context();
  const float eps = 1e-5f;
  const Tensor norm1 = norm_weight(t, "norm1"), norm2 = norm_weight(t, "norm2"), norm3 = norm_weight(t, "norm3");
  const Tensor w_qkv = weight(t, "w_qkv", qkv_width, D), w_o = weight(t, "w_o", D, attention_width);
  const Tensor w_gate_up = weight(t, "w_gate_up", 2 * F, D), w_down = weight(t, "w_down", D, F);
  const Tensor position = positions(t), cos = cosines(t), sin = sines(t);

  // The end of the block before this one makes what enters it.
  const Tensor x0 = t.output("x0", {T, D}), h0 = t.output("h0", {T, D}), rstd0 = row(t, "rstd0");
  linear_residual_norm(c, {.a = t.matrix("y_before", {T, F}),
                           .weight = weight(t, "w_before", D, F),
                           .residual = t.matrix("x_before", {T, D}),
                           .norm_weight = norm1,
                           .eps = eps,
                           .x = x0,
                           .h = h0,
                           .rstd = rstd0});
  const Tensor qkv = t.output("qkv", {T, qkv_width});
  linear_norm_rope(c, {.h = h0,
                       .rstd = rstd0,
                       .weight = w_qkv,
                       .position = position,
                       .cos = cos,
                       .sin = sin,
                       .head_dim = head,
                       .rotated_columns = rotated,
                       .qkv = qkv});
  const HostTensor qkv_read = in_f32(t.memory().read(qkv));
  const HostTensor out(DType::f32, {T, attention_width}), lse(DType::f32, {T, query_heads});
  attention_forward(attention, qkv_read, out, lse);
  const Tensor attended = t.output("attended", {T, attention_width});
  t.memory().write(attended, out);
  const Tensor x1 = t.output("x1", {T, D}), h1 = t.output("h1", {T, D}), rstd1 = row(t, "rstd1");
  linear_residual_norm(c, {.a = attended,
                           .weight = w_o,
                           .residual = x0,
                           .norm_weight = norm2,
                           .eps = eps,
                           .x = x1,
                           .h = h1,
                           .rstd = rstd1});
  const Tensor z = t.output("z", {T, 2 * F}), y = t.output("y", {T, F});
  linear_norm_swiglu(c, {.h = h1, .rstd = rstd1, .weight = w_gate_up, .z = z, .y = y});
  linear_residual_norm(c, {.a = y,
                           .weight = w_down,
                           .residual = x1,
                           .norm_weight = norm3,
                           .eps = eps,
                           .x = t.output("x2", {T, D}),
                           .h = t.output("h2", {T, D}),
                           .rstd = row(t, "rstd2")});

  const Tensor dx2 = t.matrix("dx2", {T, D});
  const Tensor dz = t.output("dz", {T, 2 * F}), y_again = t.output("y again", {T, F}), zdz1 = row(t, "zdz1");
  swiglu_backward(c, {.dout = dx2, .weight = w_down, .z = z, .dz = dz, .y = y_again, .zdz = zdz1});
  weight_grad(c, {.dy = dx2, .x = y_again, .dweight = t.accumulated("dw_down", {D, F})});
  const Tensor dx1 = t.output("dx1", {T, D}), normed1 = t.output("normed1", {T, D});
  norm_backward(c, {.dz = dz,
                    .weight = w_gate_up,
                    .x = x1,
                    .dresidual = dx2,
                    .norm_weight = norm2,
                    .rstd = rstd1,
                    .zdz = zdz1,
                    .dx = dx1,
                    .normed = normed1,
                    .dnorm_weight = t.accumulated("dnorm2", {D})});
  weight_grad(c, {.dy = dz, .x = normed1, .dweight = t.accumulated("dw_gate_up", {2 * F, D})});

  const Tensor dattended = t.output("dattended", {T, attention_width});
  linear_backward(c, {.dy = dx1, .weight = w_o, .dx = dattended});
  weight_grad(c, {.dy = dx1, .x = attended, .dweight = t.accumulated("dw_o", {D, attention_width})});
  const HostTensor dqkv_made(DType::f32, {T, qkv_width});
  attention_backward(attention, qkv_read, in_f32(t.memory().read(attended)), lse, in_f32(t.memory().read(dattended)),
                     dqkv_made);
  const Tensor dqkv = t.output("dqkv", {T, qkv_width});
  t.memory().write(dqkv, dqkv_made);
  const Tensor dz0 = t.output("dz0", {T, qkv_width}), zdz0 = row(t, "zdz0");
  rotary_backward(c, {.qkv = qkv,
                      .position = position,
                      .cos = cos,
                      .sin = sin,
                      .head_dim = head,
                      .rotated_columns = rotated,
                      .dqkv = dqkv,
                      .dz = dz0,
                      .zdz = zdz0});
  const Tensor normed0 = t.output("normed0", {T, D});
  norm_backward(c, {.dz = dz0,
                    .weight = w_qkv,
                    .x = x0,
                    .dresidual = dx1,
                    .norm_weight = norm1,
                    .rstd = rstd0,
                    .zdz = zdz0,
                    .dx = t.output("dx0", {T, D}),
                    .normed = normed0,
                    .dnorm_weight = t.accumulated("dnorm1", {D})});
  weight_grad(c, {.dy = dz0, .x = normed0, .dweight = t.accumulated("dw_qkv", {qkv_width, D})});
}

}  // namespace

const std::vector<OperatorCase>& operator_cases() {
  static const std::vector<OperatorCase> cases{
      {"linear", linear_case},
      {"linear_backward", linear_backward_case},
      {"weight_grad", weight_grad_case},
      {"linear_residual_norm", residual_norm_case},
      {"norm_backward", norm_backward_case},
      {"norm_backward_without_what_is_optional", norm_backward_alone_case},
      {"linear_norm_swiglu", swiglu_case},
      {"swiglu_backward", swiglu_backward_case},
      {"linear_norm_rope", rope_case},
      {"rotary_backward", rotary_backward_case},
      {"mean_loss", mean_loss_case},
      {"linear_cross_entropy", [](Trial& t) { cross_entropy_case(t, {.ignore_index = ignored}, false); }},
      {"linear_cross_entropy_with_every_option", [](Trial& t) { cross_entropy_case(t, everything, true); }},
      {"norm_linear_cross_entropy", norm_cross_entropy_case},
      {"llama_block", llama_block_case},
  };
  return cases;
}

}  // namespace coda::test
