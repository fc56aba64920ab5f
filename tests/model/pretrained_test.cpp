// Runs that start from weights alone: Hugging Face's names, any 16- or 32-bit float type, and what doesn't fit refused.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "coda/convert.hpp"
#include "coda/error.hpp"
#include "coda/safetensors.hpp"
#include "coda/train.hpp"
#include "io/temporary_directory.hpp"
#include "model/pretrained.hpp"

namespace coda {
namespace {

using test::TemporaryDirectory;
using test::write_file;

constexpr const char* config_json = R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 32,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 48,
  "rope_theta": 5000.0, "rms_norm_eps": 1e-05, "tie_word_embeddings": true, "rope_scaling": null})";

class Pretrained : public testing::Test {
 protected:
  Pretrained() : weights_(config_) {
    model::initialise(weights_, 7);
    write_file(dir_ / "config.json", config_json);
    std::string text;
    for (int i = 0; i < 300; ++i) text += "line " + std::to_string(i % 100) + " of the text\n";
    write_file(dir_ / "text", text);
    options_.data = dir_ / "text";
    options_.init = dir_ / "model.safetensors";
    options_.batch = 2;
    options_.sequence = 16;
    options_.steps = 2;
    options_.validation_batches = 1;
    options_.sample_bytes = options_.compare_steps = 0;
  }

  /// Writes the weights as `type`, without those that `leave_out` takes, and with `more`.
  void store(DType type, const std::function<bool(const std::string&)>& leave_out = {},
             const std::vector<NamedTensor>& more = {}) {
    std::vector<HostTensor> memory;
    std::vector<NamedTensor> tensors = more;
    memory.reserve(weights_.entries().size());
    for (const LlamaParameter& p : weights_.entries()) {
      if (leave_out && leave_out(p.name)) continue;
      const Tensor from = weights_.tensor(p);
      const HostTensor& to =
          memory.emplace_back(type, std::vector<std::int64_t>(from.shape.begin(), from.shape.begin() + from.rank));
      for (std::int64_t i = 0; i < p.numel(); ++i) {
        const float x = from.as<float>()[i];
        if (type == DType::f32) to.as<float>()[i] = x;
        if (type == DType::bf16) to.as<std::uint16_t>()[i] = to_bf16(x);
        if (type == DType::f16) to.as<std::uint16_t>()[i] = to_f16(x);
        if (type == DType::e4m3) to.as<std::uint8_t>()[i] = to_e4m3(x);
      }
      tensors.push_back({p.name, to});
    }
    write_safetensors(options_.init, tensors, {{"format", "pt"}});
  }
  void expect_refused(ErrorKind kind, const std::string& part) const {
    try {
      train(options_);
      ADD_FAILURE() << "not refused: " << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), kind) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what() << "\nexpected in it: " << part;
    }
  }

  TemporaryDirectory dir_;
  LlamaConfig config_{.width = 32,
                      .layers = 2,
                      .query_heads = 2,
                      .kv_heads = 1,
                      .head_dim = 16,
                      .feed_forward = 48,
                      .rope_theta = 5000};
  model::Parameters<float> weights_;
  TrainOptions options_;
};

TEST_F(Pretrained, WeightsOfEveryFloatTypeAreTheFilesRoundedOnce) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    store(type);
    EXPECT_EQ(pretrained_config(options_.init), config_);
    const model::Parameters<float> loaded = model::load_weights(options_.init, config_);
    for (std::size_t i = 0; i < weights_.values().size(); ++i) {
      ASSERT_EQ(loaded.values()[i], round_to(weights_.values()[i], type)) << name_of(type) << " " << i;
    }
  }
}

TEST_F(Pretrained, ARunStartsFromThemWithAFreshOptimiserAndCanBeResumed) {
  TrainOptions scratch = options_;
  scratch.init.clear();
  scratch.model = config_;
  scratch.seed = options_.seed = 7;  // the seed of weights_: the same run
  store(DType::f32);
  std::vector<double> fresh, loaded;
  train(scratch, [&](const TrainProgress& p) { return fresh.push_back(p.loss), true; });
  options_.save = dir_ / "out";
  const TrainResult r = train(options_, [&](const TrainProgress& p) { return loaded.push_back(p.loss), true; });
  EXPECT_EQ(fresh, loaded);
  EXPECT_EQ(r.first_step, 1);
  EXPECT_EQ(r.model, config_);

  // What was saved resumes, and is itself a place to start from: its moments are left aside.
  TrainOptions on = options_;
  on.init.clear();
  on.resume = dir_ / "out";
  on.steps = 3;
  EXPECT_EQ(train(on).first_step, 3);
  options_.init = dir_ / "out";
  EXPECT_EQ(train(options_).first_step, 1);
}

TEST_F(Pretrained, AHeadThatIsTiedStartsAsTheEmbedding) {
  const HostTensor frequencies(DType::f32, {8});
  store(DType::bf16, [](const std::string& name) { return name == "lm_head.weight"; },
        {{"model.layers.0.self_attn.rotary_emb.inv_freq", frequencies}});
  const model::Parameters<float> loaded = model::load_weights(options_.init, config_);
  for (std::int64_t i = 0; i < 256 * 32; ++i) ASSERT_EQ(loaded.lm_head()[i], loaded.embedding()[i]) << i;
  EXPECT_NE(loaded.lm_head()[0], 0);
}

TEST_F(Pretrained, TensorsThatDoNotFitAreRefusedByName) {
  store(DType::f32, [](const std::string& name) { return name == "model.norm.weight"; });
  expect_refused(ErrorKind::io, "no tensor 'model.norm.weight' [32]");
  store(DType::e4m3);
  expect_refused(ErrorKind::dtype, "tensor 'model.embed_tokens.weight' is F8_E4M3, expected F32, BF16 or F16");
  const HostTensor bias(DType::f32, {32});
  store(DType::f32, {}, {{"model.layers.1.self_attn.q_proj.bias", bias}});
  expect_refused(ErrorKind::io, "'model.layers.1.self_attn.q_proj.bias' [32] has no place");
  weights_.values()[5] = std::nanf("");
  store(DType::f16);
  expect_refused(ErrorKind::value, "element 5 of 'model.embed_tokens.weight' is nan");
  weights_.values()[5] = 0;
  store(DType::f32);
  options_.model = config_;
  options_.model->feed_forward = 64;
  expect_refused(ErrorKind::shape, "mlp.gate_proj.weight' has shape [48, 32], expected [64, 32]");
  options_.model = config_;
  options_.model->layers = 1;
  expect_refused(ErrorKind::io, "model.layers.1.");
  options_.resume = options_.init;
  expect_refused(ErrorKind::value, "both resume and init");
}

TEST_F(Pretrained, ConfigurationsOfOtherModelsAreRefused) {
  store(DType::f32);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = config_json;
    text.replace(text.find(from), from.size(), to);
    write_file(dir_ / "config.json", text);
  };
  changed("\"llama\"", "\"qwen2\"");
  expect_refused(ErrorKind::unsupported, "model_type is \"qwen2\", expected \"llama\"");
  changed("\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"llama3\"}");
  expect_refused(ErrorKind::unsupported, "rope_scaling is {\"rope_type\":\"llama3\"}, expected null");
  changed("256", "32000");
  expect_refused(ErrorKind::value, "vocabulary is 32000, expected 256");
  changed("256", "\"many\"");
  expect_refused(ErrorKind::io, "not the configuration of a Llama");
  changed("\"num_key_value_heads\": 1, ", "");
  EXPECT_EQ(pretrained_config(options_.init).kv_heads, 2);
  write_file(dir_ / "config.json", "[");
  expect_refused(ErrorKind::io, "expected a JSON object");
  std::filesystem::remove(dir_ / "config.json");
  expect_refused(ErrorKind::io, "config.json can't be read; give the model's sizes");
}

}  // namespace
}  // namespace coda
