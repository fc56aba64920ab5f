// q, k and v behind a delayed norm with rotary embedding, and the pass that undoes the rotation of their gradients.
#include <fmt/format.h>

#include "coda/error.hpp"
#include "ops/launch.hpp"

namespace coda::ops {
namespace {

/// The number of rotated columns as the programs take it: whole heads.
std::int32_t whole_heads(const char* name, std::int64_t head_dim, std::int64_t rotated, const Tensor& qkv) {
  if (head_dim <= 0 || head_dim % 2 != 0 || rotated < 0 || rotated % head_dim != 0 ||
      (qkv.rank == 2 && rotated > qkv.shape[1])) {
    throw Error(ErrorKind::value,
                fmt::format("{}: heads of {} and {} rotated columns of {}: expected heads of an even size, and as many "
                            "rotated columns as the query and key heads have",
                            name, head_dim, rotated, describe(qkv)));
  }
  return static_cast<std::int32_t>(rotated);
}

}  // namespace

void linear_norm_rope(const Context& context, const LinearNormRope& t) {
  const std::int32_t rotated = whole_heads("linear_norm_rope", t.head_dim, t.rotated_columns, t.qkv);
  launch(context, "norm_rope", {{"D", t.head_dim}},
         {{"A", t.h},
          {"B", t.weight},
          {"rstd", t.rstd},
          {"position", t.position},
          {"cos", t.cos},
          {"sin", t.sin},
          {"rotated", scalar(rotated)},
          {"qkv", t.qkv}});
}

void rotary_backward(const Context& context, const RotaryBackward& t) {
  const std::int32_t rotated = whole_heads("rotary_backward", t.head_dim, t.rotated_columns, t.dqkv);
  launch(context, "rope_backward", {{"D", t.head_dim}},
         {{"A", empty_factor(t.dqkv.dtype, t.dqkv.shape[0], t.dqkv.device)},
          {"B", empty_factor(t.dqkv.dtype, t.dqkv.shape[1], t.dqkv.device)},
          {"dqkv", t.dqkv},
          {"qkv", t.qkv},
          {"position", t.position},
          {"cos", t.cos},
          {"sin", t.sin},
          {"rotated", scalar(rotated)},
          {"dz", t.dz},
          {"zdz", t.zdz}});
}

}  // namespace coda::ops
