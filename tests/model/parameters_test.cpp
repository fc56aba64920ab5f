// Names, layout and initial values of a Llama's parameters.
#include "model/parameters.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "coda/error.hpp"

namespace coda::model {
namespace {

TEST(Parameters, HaveTheNamesAndShapesOfHuggingFaceCheckpoints) {
  const std::vector<LlamaParameter> p = parameters_of(
      {.vocabulary = 10, .width = 6, .layers = 2, .query_heads = 4, .kv_heads = 2, .head_dim = 2, .feed_forward = 5});
  ASSERT_EQ(p.size(), 1u + 2 * 9 + 2);
  const auto expect = [&](std::size_t i, const char* name, std::int64_t rows, std::int64_t columns) {
    EXPECT_EQ(p[i].name, name);
    EXPECT_EQ(p[i].rows, rows) << name;
    EXPECT_EQ(p[i].columns, columns) << name;
  };
  expect(0, "model.embed_tokens.weight", 10, 6);
  expect(1, "model.layers.0.input_layernorm.weight", 6, 0);
  expect(11, "model.layers.1.self_attn.q_proj.weight", 8, 6);
  expect(12, "model.layers.1.self_attn.k_proj.weight", 4, 6);
  expect(13, "model.layers.1.self_attn.v_proj.weight", 4, 6);
  expect(14, "model.layers.1.self_attn.o_proj.weight", 6, 8);
  expect(15, "model.layers.1.post_attention_layernorm.weight", 6, 0);
  expect(16, "model.layers.1.mlp.gate_proj.weight", 5, 6);
  expect(17, "model.layers.1.mlp.up_proj.weight", 5, 6);
  expect(18, "model.layers.1.mlp.down_proj.weight", 6, 5);
  expect(19, "model.norm.weight", 6, 0);
  expect(20, "lm_head.weight", 10, 6);
  EXPECT_EQ(p[12].offset, p[11].offset + p[11].numel()) << "q, k and v are one stacked matrix";
  EXPECT_EQ(p[13].offset, p[12].offset + p[12].numel());
  EXPECT_EQ(p[17].offset, p[16].offset + p[16].numel()) << "gate and up are one stacked matrix";
}

TEST(Parameters, StartFromTheSeedAlone) {
  const LlamaConfig config{.layers = 2};
  Parameters<float> a(config), b(config), c(config);
  initialise(a, 7);
  initialise(b, 7);
  initialise(c, 8);
  EXPECT_TRUE(std::equal(a.values().begin(), a.values().end(), b.values().begin()));
  EXPECT_FALSE(std::equal(a.values().begin(), a.values().end(), c.values().begin()));
  for (const LlamaParameter& p : a.entries()) {
    double sum = 0, squares = 0;
    for (std::int64_t i = p.offset; i < p.offset + p.numel(); ++i) {
      const double x = a.values()[static_cast<std::size_t>(i)];
      sum += x;
      squares += x * x;
    }
    const auto n = static_cast<double>(p.numel());
    if (p.columns == 0) {
      EXPECT_EQ(sum, n) << p.name;
    } else {
      const bool residual = p.name.find("o_proj") != std::string::npos || p.name.find("down") != std::string::npos;
      EXPECT_NEAR(std::sqrt(squares / n), residual ? 0.01 : 0.02, 4e-4) << p.name;
      EXPECT_NEAR(sum / n, 0, 5 * 0.02 / std::sqrt(n)) << p.name;
    }
  }
}

TEST(LlamaConfig, RefusesWhatIsNoModel) {
  const LlamaConfig good;
  EXPECT_NO_THROW(check(good));
  const auto refused = [&](auto change, const char* field) {
    LlamaConfig c = good;
    change(c);
    try {
      check(c);
      ADD_FAILURE() << field << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::value);
      EXPECT_NE(std::string(e.what()).find(field), std::string::npos) << e.what();
    }
  };
  refused([](auto& c) { c.width = 0; }, "width");
  refused([](auto& c) { c.layers = -1; }, "layers");
  refused([](auto& c) { c.kv_heads = 3; }, "query_heads");
  refused([](auto& c) { c.head_dim = 5; }, "head_dim");
  refused([](auto& c) { c.rope_theta = 0; }, "rope_theta");
  refused([](auto& c) { c.norm_eps = -1; }, "norm_eps");
  refused([](auto& c) { c.feed_forward = INT64_MAX; }, "feed_forward");
  refused([](auto& c) { c.feed_forward = c.width = 1 << 24; }, "parameters");
}

}  // namespace
}  // namespace coda::model
