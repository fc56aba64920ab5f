// The unfused model: its fp64 gradients against finite differences, its f32 against its fp64.
#include "model/unfused_llama.hpp"

#include <gtest/gtest.h>

#include "coda/error.hpp"
#include "model/llama_cases.hpp"

namespace coda::model {
namespace {

using test::random_parameters;
using test::random_tokens;
using test::relative_error;
using test::small_config;

TEST(UnfusedLlama, EveryGradientInFp64IsThatOfFiniteDifferences) {
  const LlamaConfig config = small_config();
  const std::int64_t batch = 2, sequence = 5;
  Parameters<double> p = converted<double>(random_parameters(config, 1)), gradients(config);
  const auto tokens = random_tokens(batch * sequence, config.vocabulary, 2);
  const auto targets = random_tokens(batch * sequence, config.vocabulary, 3);
  UnfusedLlama<double> model(config, batch, sequence);
  model.loss(p, tokens, targets, &gradients);
  for (const LlamaParameter& e : p.entries()) {
    double largest = 0;
    for (std::int64_t i = 0; i < e.numel(); ++i) {
      const auto at = static_cast<std::size_t>(e.offset + i);
      const double kept = p.values()[at], step = 1e-5;
      p.values()[at] = kept + step;
      const double above = model.loss(p, tokens, targets);
      p.values()[at] = kept - step;
      const double below = model.loss(p, tokens, targets);
      p.values()[at] = kept;
      ASSERT_NEAR(gradients.values()[at], (above - below) / (2 * step), 3e-8) << e.name << " element " << i;
      largest = std::max(largest, std::abs(gradients.values()[at]));
    }
    EXPECT_GT(largest, 1e-4) << e.name << ": a gradient of nothing proves nothing";
  }
}

TEST(UnfusedLlama, InF32LossAndGradientsAreThoseOfFp64) {
  const LlamaConfig config{
      .vocabulary = 53, .width = 64, .layers = 3, .query_heads = 4, .kv_heads = 2, .head_dim = 16, .feed_forward = 96};
  const std::int64_t batch = 2, sequence = 70;
  const Parameters<float> p = random_parameters(config, 1);
  Parameters<float> gradients(config);
  Parameters<double> expected(config);
  const auto tokens = random_tokens(batch * sequence, config.vocabulary, 2);
  const auto targets = random_tokens(batch * sequence, config.vocabulary, 3);
  const double loss = UnfusedLlama<float>(config, batch, sequence).loss(p, tokens, targets, &gradients);
  const double expected_loss =
      UnfusedLlama<double>(config, batch, sequence).loss(converted<double>(p), tokens, targets, &expected);
  EXPECT_NEAR(loss, expected_loss, 1e-5 * expected_loss);
  for (const LlamaParameter& e : p.entries()) EXPECT_LT(relative_error(e, gradients, expected), 2e-5) << e.name;
}

TEST(UnfusedLlama, GradientsAreAddedToWhatIsThere) {
  const LlamaConfig config = small_config();
  const Parameters<double> p = converted<double>(random_parameters(config, 1));
  const auto tokens = random_tokens(10, config.vocabulary, 2), targets = random_tokens(10, config.vocabulary, 3);
  Parameters<double> once(config), twice(config);
  UnfusedLlama<double> model(config, 2, 5);
  model.loss(p, tokens, targets, &once);
  model.loss(p, tokens, targets, &twice);
  model.loss(p, tokens, targets, &twice);
  for (std::size_t i = 0; i < once.values().size(); ++i) ASSERT_NEAR(twice.values()[i], 2 * once.values()[i], 1e-14);
}

TEST(UnfusedLlama, TokensAndTargetsOutsideTheVocabularyAreRefused) {
  const LlamaConfig config = small_config();
  const Parameters<float> p = random_parameters(config, 1);
  UnfusedLlama<float> model(config, 1, 3);
  const std::vector<std::int64_t> good{1, 2, 3}, high{1, 2, 19}, low{1, -1, 3};
  EXPECT_NO_THROW(model.loss(p, good, good));
  for (const auto& bad : {high, low}) {
    EXPECT_THROW(model.loss(p, bad, good), Error);
    EXPECT_THROW(model.loss(p, good, bad), Error);
  }
}

}  // namespace
}  // namespace coda::model
