// Weights without the state of a run, and the configuration that belongs to them: see pretrained.hpp.
#include "model/pretrained.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "coda/convert.hpp"
#include "coda/error.hpp"
#include "coda/safetensors.hpp"
#include "coda/train.hpp"

namespace coda {
namespace model {
namespace {

constexpr const char* embedding = "model.embed_tokens.weight";
constexpr const char* head = "lm_head.weight";

/// What a file may hold beside the weights: the moments of a run of ours, and the rotary frequencies that old
/// checkpoints store though they follow from the configuration.
bool beside_weights(const std::string& name) {
  return name.starts_with("optimizer.") || name.ends_with(".rotary_emb.inv_freq");
}

void refuse_unknown(const SafetensorsFile& file, const Parameters<float>& parameters) {
  std::set<std::string_view> known;
  for (const LlamaParameter& p : parameters.entries()) known.insert(p.name);
  for (const SafetensorsEntry& e : file.entries()) {
    if (known.contains(e.name) || beside_weights(e.name)) continue;
    throw Error(ErrorKind::io,
                fmt::format("{}: tensor '{}' [{}] has no place in a Llama of {} layers without biases; expected the "
                            "names of Hugging Face's LlamaForCausalLM",
                            file.path(), e.name, fmt::join(e.shape, ", "), parameters.config().layers));
  }
}

void read_weight(const SafetensorsFile& file, const std::string& name, const Tensor& out) {
  const SafetensorsEntry* e = file.find(name);
  if (e == nullptr) {
    throw Error(ErrorKind::io,
                fmt::format("{}: no tensor '{}' [{}] among its {}", file.path(), name,
                            fmt::join(out.shape.begin(), out.shape.begin() + out.rank, ", "), file.entries().size()));
  }
  if (e->shape != std::vector<std::int64_t>(out.shape.begin(), out.shape.begin() + out.rank)) {
    throw Error(ErrorKind::shape, fmt::format("{}: tensor '{}' has shape [{}], expected [{}]", file.path(), name,
                                              fmt::join(e->shape, ", "),
                                              fmt::join(out.shape.begin(), out.shape.begin() + out.rank, ", ")));
  }
  if (e->dtype != DType::f32 && e->dtype != DType::bf16 && e->dtype != DType::f16) {
    throw Error(ErrorKind::dtype,
                fmt::format("{}: tensor '{}' is {}, expected F32, BF16 or F16", file.path(), name, e->dtype_name));
  }
  const HostTensor stored = file.read(name);
  float* const to = out.as<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    to[i] = *e->dtype == DType::f32    ? stored.as<float>()[i]
            : *e->dtype == DType::bf16 ? bf16_to_float(stored.as<std::uint16_t>()[i])
                                       : f16_to_float(stored.as<std::uint16_t>()[i]);
    if (!std::isfinite(to[i])) {
      throw Error(ErrorKind::value,
                  fmt::format("{}: element {} of '{}' is {}, expected finite numbers", file.path(), i, name, to[i]));
    }
  }
}

/// A Hugging Face configuration, with the defaults of transformers' LlamaConfig for what it leaves out. Refuses what
/// would make it another model.
LlamaConfig config_from(const nlohmann::json& j, const std::string& where) {
  const auto refuse = [&](const char* key, const nlohmann::json& found, const std::string& expected) {
    throw Error(ErrorKind::unsupported, fmt::format("{}: {} is {}, expected {}", where, key, found.dump(), expected));
  };
  const auto only = [&](const char* key, const nlohmann::json& expected) {
    const nlohmann::json found = j.value(key, expected);
    if (found != expected) refuse(key, found, expected.dump());
  };
  only("model_type", "llama");
  only("hidden_act", "silu");
  only("attention_bias", false);
  only("mlp_bias", false);
  if (const auto scaling = j.find("rope_scaling"); scaling != j.end() && !scaling->is_null()) {
    refuse("rope_scaling", *scaling, "null");
  }
  // Newer versions of transformers keep the rotary embedding's numbers together.
  const nlohmann::json rope = j.value("rope_parameters", nlohmann::json::object());
  if (const std::string type = rope.value("rope_type", "default"); type != "default") {
    refuse("rope_parameters.rope_type", type, "\"default\"");
  }

  LlamaConfig c;
  j.at("vocab_size").get_to(c.vocabulary);
  j.at("hidden_size").get_to(c.width);
  j.at("num_hidden_layers").get_to(c.layers);
  j.at("num_attention_heads").get_to(c.query_heads);
  j.at("intermediate_size").get_to(c.feed_forward);
  const auto optional = [&](const char* key, std::int64_t otherwise) {
    const auto it = j.find(key);
    return it == j.end() || it->is_null() ? otherwise : it->get<std::int64_t>();
  };
  c.kv_heads = optional("num_key_value_heads", c.query_heads);
  c.head_dim = optional("head_dim", c.query_heads > 0 ? c.width / c.query_heads : 0);
  c.rope_theta = j.value("rope_theta", rope.value("rope_theta", 10000.0));
  c.norm_eps = j.value("rms_norm_eps", 1e-6);
  check(c);
  return c;
}

LlamaConfig parse_config(const std::string& text, const std::string& where) {
  const nlohmann::json j = nlohmann::json::parse(text, nullptr, false);
  if (!j.is_object()) throw Error(ErrorKind::io, fmt::format("{}: expected a JSON object", where));
  try {
    return config_from(j, where);
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorKind::io, fmt::format("{}: not the configuration of a Llama: {}", where, e.what()));
  }
}

}  // namespace

Parameters<float> load_weights(const std::string& path, const LlamaConfig& config) {
  const SafetensorsFile file(path);
  Parameters<float> parameters(config);
  refuse_unknown(file, parameters);
  for (const LlamaParameter& p : parameters.entries()) {
    const bool tied = p.name == head && !file.contains(head);
    read_weight(file, tied ? embedding : p.name, parameters.tensor(p));
  }
  return parameters;
}

}  // namespace model

LlamaConfig pretrained_config(const std::string& path) {
  const SafetensorsFile file(path);
  if (const auto it = file.metadata().find("config"); it != file.metadata().end()) {
    return model::parse_config(it->second, path + ": the metadata's 'config'");
  }
  const std::string beside = (std::filesystem::path(path).parent_path() / "config.json").string();
  std::ifstream in(beside, std::ios::binary);
  if (!in) {
    throw Error(ErrorKind::io, fmt::format("{}: its metadata has no 'config', and {} can't be read; give the model's "
                                           "sizes, or put its config.json there",
                                           path, beside));
  }
  std::string text(std::size_t{1} << 20, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return model::parse_config(text, beside);
}

}  // namespace coda
