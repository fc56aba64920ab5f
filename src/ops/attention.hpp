// Causal grouped-query attention, forward and backward, on the host in f32. It stands outside what programs fuse.
//
//   forward    reads qkv; writes out, lse
//   backward   reads qkv, out, lse, dout; writes dqkv
//
// qkv is [batch * sequence, (query_heads + 2 kv_heads) * head_dim]: all query heads, then the key heads, then the value
// heads, already rotated; query head h attends to kv head h / (query_heads / kv_heads). In each sequence
//   out[i] = sum over j <= i of p[i, j] v[j],  p = softmax(scale q k^T),  lse[i] = log sum over j of exp(scale q.k)
// dp = dout v^T, ds = p (dp - dout.out) scale, dq = ds k, dk = ds^T q, dv = p^T dout.
#pragma once
#include <cstdint>

#include "coda/tensor.hpp"

namespace coda::ops {

struct AttentionShape {
  std::int64_t batch = 0, sequence = 0;
  std::int64_t query_heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;

  std::int64_t tokens() const { return batch * sequence; }
  std::int64_t width() const { return (query_heads + 2 * kv_heads) * head_dim; }
};

/// out is f32[tokens, query_heads * head_dim], lse f32[tokens, query_heads]. Rows may be any distance apart, columns
/// lie side by side. Throws Error(shape | dtype | layout).
void attention_forward(const AttentionShape& shape, const Tensor& qkv, const Tensor& out, const Tensor& lse);

/// dout has the shape of out, dqkv that of qkv. Results don't depend on the number of threads.
void attention_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                        const Tensor& dout, const Tensor& dqkv);

}  // namespace coda::ops
