// Layout, names and initial values of a Llama's parameters: see parameters.hpp and include/coda/model.hpp.
#include "model/parameters.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <random>

#include "coda/error.hpp"

namespace coda {
namespace {

constexpr std::int64_t alignment = 16;  // elements: 64 bytes of f32
constexpr std::size_t per_layer = 9;    // tensors that a layer has in a checkpoint

}  // namespace

void check(const LlamaConfig& c) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorKind::value, "the model's configuration: " + what);
  };
  const std::pair<const char*, std::int64_t> extents[] = {
      {"vocabulary", c.vocabulary},    {"width", c.width},       {"layers", c.layers},
      {"query_heads", c.query_heads},  {"kv_heads", c.kv_heads}, {"head_dim", c.head_dim},
      {"feed_forward", c.feed_forward}};
  for (const auto& [name, n] : extents) {
    if (n < 1 || n > (1 << 24)) refuse(fmt::format("{} is {}, expected a number from 1 to {}", name, n, 1 << 24));
  }
  if (c.query_heads % c.kv_heads != 0) {
    refuse(fmt::format("query_heads is {}, expected a multiple of kv_heads, which is {}", c.query_heads, c.kv_heads));
  }
  if (c.head_dim % 2 != 0) refuse(fmt::format("head_dim is {}, expected an even number", c.head_dim));
  if (!(c.rope_theta > 0) || !std::isfinite(c.rope_theta)) {
    refuse(fmt::format("rope_theta is {}, expected a positive number", c.rope_theta));
  }
  if (!(c.norm_eps >= 0) || !std::isfinite(c.norm_eps)) {
    refuse(fmt::format("norm_eps is {}, expected a number that isn't negative", c.norm_eps));
  }
  const auto width = static_cast<double>(c.width);
  const double count = 2.0 * static_cast<double>(c.vocabulary) * width +
                       static_cast<double>(c.layers) * width *
                           (2.0 + 3.0 * static_cast<double>(c.feed_forward) +
                            static_cast<double>(2 * c.query_heads + 2 * c.kv_heads) * static_cast<double>(c.head_dim));
  if (count >= 0x1p40) refuse(fmt::format("it has {:.3g} parameters, at most 2^40 are supported", count));
}

std::vector<LlamaParameter> parameters_of(const LlamaConfig& c) {
  check(c);
  std::vector<LlamaParameter> out;
  std::int64_t at = 0;
  const auto add = [&](std::string name, std::int64_t rows, std::int64_t columns, bool follows = false) {
    if (!follows) at = (at + alignment - 1) / alignment * alignment;
    out.push_back({std::move(name), rows, columns, at});
    at += out.back().numel();
  };
  add("model.embed_tokens.weight", c.vocabulary, c.width);
  for (std::int64_t l = 0; l < c.layers; ++l) {
    const std::string layer = fmt::format("model.layers.{}.", l);
    add(layer + "input_layernorm.weight", c.width, 0);
    add(layer + "self_attn.q_proj.weight", c.query_heads * c.head_dim, c.width);
    add(layer + "self_attn.k_proj.weight", c.kv_heads * c.head_dim, c.width, true);
    add(layer + "self_attn.v_proj.weight", c.kv_heads * c.head_dim, c.width, true);
    add(layer + "self_attn.o_proj.weight", c.width, c.attention_width());
    add(layer + "post_attention_layernorm.weight", c.width, 0);
    add(layer + "mlp.gate_proj.weight", c.feed_forward, c.width);
    add(layer + "mlp.up_proj.weight", c.feed_forward, c.width, true);
    add(layer + "mlp.down_proj.weight", c.width, c.feed_forward);
  }
  add("model.norm.weight", c.width, 0);
  add("lm_head.weight", c.vocabulary, c.width);
  return out;
}

namespace model {

template <class Real>
Parameters<Real>::Parameters(const LlamaConfig& config)
    : config_(config),
      entries_(parameters_of(config)),
      memory_(sizeof(Real) == 4 ? DType::f32 : DType::f64, {entries_.back().offset + entries_.back().numel()}) {}

template <class Real>
Tensor Parameters<Real>::tensor(const LlamaParameter& p) const {
  const std::int64_t shape[] = {p.rows, p.columns};
  return Tensor::contiguous(memory_.as<Real>() + p.offset, memory_.view().dtype,
                            std::span(shape, p.columns == 0 ? 1 : 2));
}

template <class Real>
LayerPointers<Real> Parameters<Real>::layer(std::int64_t l) const {
  const LlamaParameter* e = entries_.data() + 1 + static_cast<std::size_t>(l) * per_layer;
  Real* const base = memory_.as<Real>();
  return {base + e[0].offset, base + e[1].offset, base + e[4].offset,
          base + e[5].offset, base + e[6].offset, base + e[8].offset};
}

template class Parameters<float>;
template class Parameters<double>;

void initialise(Parameters<float>& parameters, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
  for (const LlamaParameter& p : parameters.entries()) {
    float* const x = parameters.values().data() + p.offset;
    if (p.columns == 0) {
      std::fill_n(x, p.rows, 1.0f);
      continue;
    }
    const bool to_residual = p.name.ends_with("o_proj.weight") || p.name.ends_with("down_proj.weight");
    const double deviation =
        to_residual ? 0.02 / std::sqrt(2.0 * static_cast<double>(parameters.config().layers)) : 0.02;
    for (std::int64_t i = 0; i < p.numel(); ++i) {  // by Box and Muller's formula: libraries' normals differ
      const double radius = std::sqrt(-2 * std::log(uniform()));
      x[i] = static_cast<float>(deviation * radius * std::cos(2 * std::numbers::pi * uniform()));
    }
  }
}

}  // namespace model
}  // namespace coda
