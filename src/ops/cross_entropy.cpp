// The LM head and its cross entropy, without logits in memory: statistics forward, chunks of dlogits backward.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "coda/error.hpp"
#include "ops/launch.hpp"

namespace coda::ops {
namespace {

ParamValues variant(const CrossEntropyOptions& o, const Tensor& rstd, const Tensor& bias) {
  ParamValues params;
  if (given(rstd)) params["with_norm"] = 1;
  if (given(bias)) params["with_bias"] = 1;
  if (o.softcap != 0) params["with_softcap"] = 1;
  if (o.label_smoothing != 0) params["smoothing"] = 1;
  if (o.z_loss != 0) params["with_z_loss"] = 1;
  return params;
}

std::int64_t chunk_rows(const Tensor& workspace, const Tensor& weight) {
  if (workspace.rank != 2 || workspace.shape[0] < 1 || workspace.shape[1] != weight.shape[0]) {
    throw Error(ErrorKind::shape, fmt::format("linear_cross_entropy_backward: workspace is {}, expected [rows of a "
                                              "chunk, {}] with one row or more",
                                              describe(workspace), weight.shape[0]));
  }
  return workspace.shape[0];
}

/// dz = (softmax(z) - onehot)⊙scale of a chunk of rows, from logits that are computed again.
struct LogitsBackward {
  Tensor x, weight, rstd, bias, target, zmax, zsum, scale;
  const CrossEntropyOptions& options;
  std::int64_t first, count;  ///< of the rows of x, rstd, target, zmax, zsum and scale
  Tensor dz, zdz, dbias;
};
void logits_backward(const Context& context, const LogitsBackward& t) {
  const auto part = [&](const Tensor& whole) { return given(whole) ? rows_of(whole, t.first, t.count) : whole; };
  launch(context, "cross_entropy_backward", variant(t.options, t.rstd, t.bias),
         {{"A", part(t.x)},
          {"B", t.weight},
          {"target", part(t.target)},
          {"ignore", scalar(t.options.ignore_index)},
          {"zmax", part(t.zmax)},
          {"zsum", part(t.zsum)},
          {"scale", part(t.scale)},
          {"rstd", part(t.rstd)},
          {"bias", t.bias},
          {"cap", scalar(t.options.softcap)},
          {"smooth", scalar(t.options.label_smoothing)},
          {"z_weight", scalar(t.options.z_loss)},
          {"dz", t.dz},
          {"zdz", t.zdz},
          {"dbias", t.dbias}});
}

/// Refuses tensors that a function of the host would have to read or write on a GPU.
void need_host(const char* function, std::initializer_list<std::pair<const char*, const Tensor*>> tensors,
               const char* way_out) {
  for (const auto& [name, t] : tensors) {
    if (t->device.type == DeviceType::cpu) continue;
    throw Error(ErrorKind::unsupported, fmt::format("{}: '{}' is {} on a GPU, expected host memory: {}", function, name,
                                                    describe(*t), way_out));
  }
}

std::int64_t target_at(const Tensor& target, std::int64_t m) {
  return static_cast<std::int64_t>(target.dtype == DType::i64 ? target.as<std::int64_t>()[m * target.stride[0]]
                                                              : target.as<std::int32_t>()[m * target.stride[0]]);
}

std::int64_t counted(const Tensor& target, std::int64_t ignore_index) {
  std::int64_t n = 0;
  for (std::int64_t m = 0; m < target.shape[0]; ++m) n += target_at(target, m) != ignore_index;
  return n;
}

}  // namespace

void linear_cross_entropy(const Context& context, const LinearCrossEntropy& t) {
  const CrossEntropyOptions& o = t.options;
  launch(context, "linear_cross_entropy", variant(o, t.rstd, t.bias),
         {{"A", t.x},
          {"B", t.weight},
          {"target", t.target},
          {"ignore", scalar(o.ignore_index)},
          {"rstd", t.rstd},
          {"bias", t.bias},
          {"cap", scalar(o.softcap)},
          {"smooth", scalar(o.label_smoothing)},
          {"z_weight", scalar(o.z_loss)},
          {"logits", t.logits},
          {"zmax", t.zmax},
          {"zsum", t.zsum},
          {"loss", t.loss}});
}

double reduce_loss(Reduction reduction, const Tensor& loss, const Tensor& target, std::int64_t ignore_index) {
  need_host("reduce_loss", {{"loss", &loss}, {"target", &target}}, "use mean_loss, which leaves the mean on the GPU");
  if (reduction == Reduction::none) {
    throw Error(ErrorKind::value, "reduce_loss: Reduction::none has no sum; use the losses as they are");
  }
  double sum = 0;
  for (std::int64_t m = 0; m < loss.shape[0]; ++m) sum += loss.as<float>()[m * loss.stride[0]];
  if (reduction == Reduction::sum) return sum;
  const std::int64_t n = counted(target, ignore_index);
  return n == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(n);
}

void loss_scale(Reduction reduction, const Tensor& upstream, const Tensor& target, std::int64_t ignore_index,
                const Tensor& scale) {
  need_host("loss_scale", {{"upstream", &upstream}, {"target", &target}, {"scale", &scale}},
            "use mean_loss, whose factor is the scale of every row");
  const bool one = reduction != Reduction::none;
  if (upstream.dtype != DType::f32 || upstream.rank != (one ? 0 : 1) ||
      (!one && upstream.shape[0] != target.shape[0])) {
    throw Error(ErrorKind::shape,
                fmt::format("loss_scale: the upstream gradient is {}, expected {}", describe(upstream),
                            one ? std::string("an f32 scalar") : fmt::format("f32[{}]", target.shape[0])));
  }
  double factor = 1;
  if (reduction == Reduction::mean) {
    const std::int64_t n = counted(target, ignore_index);
    factor = n == 0 ? 0 : 1 / static_cast<double>(n);
  }
  for (std::int64_t m = 0; m < target.shape[0]; ++m) {
    const double g = upstream.as<float>()[one ? 0 : m * upstream.stride[0]];
    scale.as<float>()[m * scale.stride[0]] = factor == 0 ? 0.0f : static_cast<float>(g * factor);
  }
}

void mean_loss(const Context& context, const MeanLoss& t) {
  if (t.reduction == Reduction::none) {
    throw Error(ErrorKind::value,
                "mean_loss: Reduction::none has no mean; the upstream gradient of each row is its "
                "scale as it is");
  }
  launch(context, "loss_mean", {{"mean", t.reduction == Reduction::mean}},
         {{"A", empty_factor(DType::bf16, t.target.shape[0], t.target.device)},
          {"B", empty_factor(DType::bf16, 1, t.target.device)},
          {"target", t.target},
          {"ignore", scalar(t.ignore_index)},
          {"loss", t.loss},
          {"upstream", t.upstream},
          {"total", t.total},
          {"factor", t.factor}});
}

void linear_cross_entropy_backward(const Context& context, const LinearCrossEntropyBackward& t) {
  const std::int64_t rows = t.x.shape[0], chunk = chunk_rows(t.workspace, t.weight);
  for (std::int64_t first = 0; first < rows; first += chunk) {
    const std::int64_t count = std::min(chunk, rows - first);
    const Tensor dz = rows_of(t.workspace, 0, count);
    logits_backward(context, {.x = t.x,
                              .weight = t.weight,
                              .rstd = {},
                              .bias = t.bias,
                              .target = t.target,
                              .zmax = t.zmax,
                              .zsum = t.zsum,
                              .scale = t.scale,
                              .options = t.options,
                              .first = first,
                              .count = count,
                              .dz = dz,
                              .zdz = {},
                              .dbias = t.dbias});
    if (given(t.dx)) linear_backward(context, {.dy = dz, .weight = t.weight, .dx = rows_of(t.dx, first, count)});
    if (given(t.dweight)) weight_grad(context, {.dy = dz, .x = rows_of(t.x, first, count), .dweight = t.dweight});
  }
}

void norm_linear_cross_entropy_backward(const Context& context, const NormLinearCrossEntropyBackward& t) {
  const std::int64_t rows = t.x.shape[0], chunk = chunk_rows(t.workspace, t.weight);
  for (std::int64_t first = 0; first < rows; first += chunk) {
    const std::int64_t count = std::min(chunk, rows - first);
    const Tensor dz = rows_of(t.workspace, 0, count), normed = rows_of(t.normed, 0, count),
                 zdz = rows_of(t.zdz, 0, count);
    logits_backward(context, {.x = t.h,
                              .weight = t.weight,
                              .rstd = t.rstd,
                              .bias = {},
                              .target = t.target,
                              .zmax = t.zmax,
                              .zsum = t.zsum,
                              .scale = t.scale,
                              .options = t.options,
                              .first = first,
                              .count = count,
                              .dz = dz,
                              .zdz = zdz,
                              .dbias = {}});
    norm_backward(context, {.dz = dz,
                            .weight = t.weight,
                            .x = rows_of(t.x, first, count),
                            .dresidual = {},  // the loss is all that reads x
                            .norm_weight = t.norm_weight,
                            .rstd = rows_of(t.rstd, first, count),
                            .zdz = zdz,
                            .dx = rows_of(t.dx, first, count),
                            .normed = normed,
                            .dnorm_weight = t.dnorm_weight});
    weight_grad(context, {.dy = dz, .x = normed, .dweight = t.dweight});
  }
}

}  // namespace coda::ops
