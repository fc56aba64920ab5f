// A Llama: its configuration and what its parameters are called.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace coda {

/// A decoder of RMSNorm, grouped-query attention with half-split rotary embedding, and SwiGLU, without biases; input
/// and output embeddings are separate. The defaults are the model that `coda train` trains.
struct LlamaConfig {
  std::int64_t vocabulary = 256;  ///< bytes
  std::int64_t width = 256;
  std::int64_t layers = 4;
  std::int64_t query_heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 64;
  std::int64_t feed_forward = 704;
  double rope_theta = 10000;
  double norm_eps = 1e-5;

  std::int64_t attention_width() const { return query_heads * head_dim; }
  std::int64_t qkv_width() const { return (query_heads + 2 * kv_heads) * head_dim; }
  bool operator==(const LlamaConfig&) const = default;
};

/// Throws Error(value) naming the field: extents must be positive, query_heads a multiple of kv_heads, head_dim even,
/// and the number of parameters below 2^40.
void check(const LlamaConfig& config);

/// One tensor of a Llama, under its Hugging Face name.
struct LlamaParameter {
  std::string name;  ///< "model.layers.0.self_attn.q_proj.weight"
  std::int64_t rows = 0;
  std::int64_t columns = 0;  ///< 0: a vector of `rows`
  std::int64_t offset = 0;   ///< of its first element in the buffer of all parameters
  std::int64_t numel() const { return columns == 0 ? rows : rows * columns; }
};

/// All parameters in the order they lie in memory. q, k and v of a layer follow each other without a gap, as do gate
/// and up: the stacked matrices [q; k; v] and [gate; up] that programs take are views, and so are the separate ones
/// that checkpoints hold.
std::vector<LlamaParameter> parameters_of(const LlamaConfig& config);

}  // namespace coda
