// Checkpoints of training runs: see checkpoint.hpp.
#include "model/checkpoint.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "coda/error.hpp"
#include "coda/train.hpp"

namespace coda {
namespace model {
namespace {

constexpr const char* first_prefix = "optimizer.exp_avg.";
constexpr const char* second_prefix = "optimizer.exp_avg_sq.";

// The fields of a Hugging Face config.json, so that one can be made from the metadata.
nlohmann::json to_json(const LlamaConfig& c) {
  return {{"model_type", "llama"},
          {"vocab_size", c.vocabulary},
          {"hidden_size", c.width},
          {"num_hidden_layers", c.layers},
          {"num_attention_heads", c.query_heads},
          {"num_key_value_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"intermediate_size", c.feed_forward},
          {"rope_theta", c.rope_theta},
          {"rms_norm_eps", c.norm_eps},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", false}};
}

LlamaConfig config_from(const nlohmann::json& j) {
  LlamaConfig c;
  j.at("vocab_size").get_to(c.vocabulary);
  j.at("hidden_size").get_to(c.width);
  j.at("num_hidden_layers").get_to(c.layers);
  j.at("num_attention_heads").get_to(c.query_heads);
  j.at("num_key_value_heads").get_to(c.kv_heads);
  j.at("head_dim").get_to(c.head_dim);
  j.at("intermediate_size").get_to(c.feed_forward);
  j.at("rope_theta").get_to(c.rope_theta);
  j.at("rms_norm_eps").get_to(c.norm_eps);
  return c;
}

/// A JSON object that the metadata holds under `key`.
nlohmann::json metadata_of(const SafetensorsFile& file, const std::string& key) {
  const auto it = file.metadata().find(key);
  if (it == file.metadata().end()) {
    throw Error(ErrorKind::io, fmt::format("{}: the checkpoint's metadata has no '{}'; expected a file that coda train "
                                           "saved",
                                           file.path(), key));
  }
  nlohmann::json j = nlohmann::json::parse(it->second, nullptr, false);
  if (!j.is_object()) {
    throw Error(ErrorKind::io, fmt::format("{}: the checkpoint's '{}' is damaged", file.path(), key));
  }
  return j;
}

template <class Read>
auto read_metadata(const SafetensorsFile& file, const std::string& key, Read read) {
  const nlohmann::json j = metadata_of(file, key);
  try {
    return read(j);
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorKind::io, fmt::format("{}: the checkpoint's '{}' is damaged: {}", file.path(), key, e.what()));
  }
}

void read_all(const SafetensorsFile& file, const char* prefix, Parameters<float>& out) {
  for (const LlamaParameter& p : out.entries()) {
    const Tensor t = out.tensor(p);
    file.read_into(prefix + p.name, t);
    for (std::int64_t i = 0; i < p.numel(); ++i) {
      if (!std::isfinite(t.as<float>()[i])) {
        throw Error(ErrorKind::value, fmt::format("{}: element {} of '{}{}' is {}, expected finite numbers: the run "
                                                  "that saved it had diverged",
                                                  file.path(), i, prefix, p.name, t.as<float>()[i]));
      }
    }
  }
}

}  // namespace

void save_checkpoint(const std::string& path, const TrainState& state, const RunIdentity& run) {
  std::vector<NamedTensor> tensors;
  for (const LlamaParameter& p : state.parameters.entries()) {
    tensors.push_back({p.name, state.parameters.tensor(p)});
    tensors.push_back({first_prefix + p.name, state.first_moment.tensor(p)});
    tensors.push_back({second_prefix + p.name, state.second_moment.tensor(p)});
  }
  const nlohmann::json training = {
      {"step", state.step}, {"seed", run.seed}, {"batch", run.batch}, {"sequence", run.sequence}};
  write_safetensors(
      path, tensors,
      {{"format", "pt"}, {"config", to_json(state.parameters.config()).dump()}, {"training", training.dump()}});
}

TrainState load_checkpoint(const std::string& path, const LlamaConfig& config, const RunIdentity& run) {
  const SafetensorsFile file(path);
  TrainState state(config);
  RunIdentity stored;
  read_metadata(file, "training", [&](const nlohmann::json& j) {
    j.at("step").get_to(state.step);
    j.at("seed").get_to(stored.seed);
    j.at("batch").get_to(stored.batch);
    j.at("sequence").get_to(stored.sequence);
    return 0;
  });
  if (state.step < 0) throw Error(ErrorKind::io, fmt::format("{}: the checkpoint's step is {}", path, state.step));
  if (!(stored == run)) {
    throw Error(ErrorKind::value,
                fmt::format("{}: the checkpoint is of a run with seed {}, batch {}, sequence {}; found seed {}, batch "
                            "{}, sequence {}: give the same to go on with it",
                            path, stored.seed, stored.batch, stored.sequence, run.seed, run.batch, run.sequence));
  }
  read_all(file, "", state.parameters);
  read_all(file, first_prefix, state.first_moment);
  read_all(file, second_prefix, state.second_moment);
  return state;
}

}  // namespace model

LlamaConfig checkpoint_config(const std::string& path) {
  const SafetensorsFile file(path);
  const LlamaConfig config = model::read_metadata(file, "config", model::config_from);
  check(config);
  return config;
}

}  // namespace coda
