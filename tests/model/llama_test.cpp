// The fused model against the unfused one: loss, every gradient, and two hundred steps of training.
#include "model/llama.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "coda/error.hpp"
#include "model/llama_cases.hpp"
#include "model/optimizer.hpp"
#include "model/unfused_llama.hpp"
#include "support/threads.hpp"

namespace coda::model {
namespace {

using test::random_parameters;
using test::random_tokens;
using test::relative_error;
using test::small_config;

const LlamaConfig medium{
    .vocabulary = 53, .width = 64, .layers = 3, .query_heads = 4, .kv_heads = 2, .head_dim = 16, .feed_forward = 96};

class FusedLlama : public testing::TestWithParam<LlamaConfig> {};

TEST_P(FusedLlama, LossAndEveryGradientAreThoseOfTheFp64Model) {
  const LlamaConfig config = GetParam();
  const std::int64_t batch = 2, sequence = 35;
  const Parameters<float> p = random_parameters(config, 1);
  const auto tokens = random_tokens(batch * sequence, config.vocabulary, 2);
  const auto targets = random_tokens(batch * sequence, config.vocabulary, 3);
  Parameters<float> fused(config), unfused(config);
  Parameters<double> exact(config);
  const double loss = Llama(config, batch, sequence).loss(p, tokens, targets, &fused);
  UnfusedLlama<float>(config, batch, sequence).loss(p, tokens, targets, &unfused);
  const double exact_loss =
      UnfusedLlama<double>(config, batch, sequence).loss(converted<double>(p), tokens, targets, &exact);
  EXPECT_NEAR(loss, exact_loss, 2e-6 * exact_loss);
  for (const LlamaParameter& e : p.entries()) {
    // As near fp64 as the unfused path is, within what two orders of summation differ by.
    EXPECT_LT(relative_error(e, fused, exact), 2e-6 + 1.5 * relative_error(e, unfused, exact)) << e.name;
    EXPECT_LT(relative_error(e, fused, unfused), 2e-5) << e.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Configurations, FusedLlama, testing::Values(small_config(), medium));

TEST(Llama, GradientsAreAddedToWhatIsThereAndParametersOnlyRead) {
  const LlamaConfig config = small_config();
  const Parameters<float> p = random_parameters(config, 1);
  const Parameters<float> before = converted<float>(p);
  const auto tokens = random_tokens(10, config.vocabulary, 2), targets = random_tokens(10, config.vocabulary, 3);
  Parameters<float> once(config), twice(config);
  Llama model(config, 2, 5);
  model.loss(p, tokens, targets, &once);
  model.loss(p, tokens, targets, &twice);
  model.loss(p, tokens, targets, &twice);
  for (std::size_t i = 0; i < once.values().size(); ++i) {
    ASSERT_NEAR(twice.values()[i], 2 * once.values()[i], 1e-6 + 1e-5 * std::abs(once.values()[i]));
  }
  EXPECT_TRUE(std::equal(p.values().begin(), p.values().end(), before.values().begin()));
}

TEST(Llama, LossAndGradientsAreBitwiseTheSameAgainAndForEveryNumberOfThreads) {
  const Parameters<float> p = random_parameters(medium, 1);
  const auto tokens = random_tokens(320, 53, 2), targets = random_tokens(320, 53, 3);
  Llama model(medium, 4, 80);
  Parameters<float> first(medium);
  const double loss = model.loss(p, tokens, targets, &first);
  for (const int threads : {1, 3, coda::test::processors()}) {
    coda::test::set_threads(threads);
    Parameters<float> again(medium);
    EXPECT_EQ(model.loss(p, tokens, targets, &again), loss) << threads;
    EXPECT_TRUE(std::equal(first.values().begin(), first.values().end(), again.values().begin())) << threads;
  }
}

TEST(Llama, TheNextLogitsAreThoseThatTheLossSees) {
  const Parameters<float> p = random_parameters(medium, 1);
  const auto tokens = random_tokens(9, 53, 2);
  const std::vector<float> logits = Llama(medium, 1, 16).next_logits(p, tokens);
  // The loss at the last place alone: the difference between the sums over nine places and over eight.
  std::vector<std::int64_t> targets = random_tokens(9, 53, 3);
  const double nine = 9 * UnfusedLlama<float>(medium, 1, 9).loss(p, tokens, targets);
  const double eight =
      8 * UnfusedLlama<float>(medium, 1, 8).loss(p, std::span(tokens).first(8), std::span(targets).first(8));
  double maximum = *std::max_element(logits.begin(), logits.end()), sum = 0;
  for (const float z : logits) sum += std::exp(z - maximum);
  EXPECT_NEAR(nine - eight, std::log(sum) + maximum - logits[static_cast<std::size_t>(targets.back())], 2e-4);
}

TEST(Llama, TokensAndTargetsOutsideTheVocabularyAreRefused) {
  const LlamaConfig config = small_config();
  const Parameters<float> p = random_parameters(config, 1);
  Llama model(config, 1, 3);
  const std::vector<std::int64_t> good{1, 2, 3}, high{1, 2, 19}, low{1, -1, 3};
  EXPECT_NO_THROW(model.loss(p, good, good));
  for (const auto& bad : {high, low}) {
    EXPECT_THROW(model.loss(p, bad, good), Error);
    EXPECT_THROW(model.loss(p, good, bad), Error);
  }
}

/// Text with something to learn: each token is a function of the one before, most of the time.
std::vector<std::int64_t> pattern(std::int64_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::int64_t> out{static_cast<std::int64_t>(random() % 53)};
  while (static_cast<std::int64_t>(out.size()) < n) {
    out.push_back(random() % 8 == 0 ? static_cast<std::int64_t>(random() % 53) : (out.back() * 7 + 3) % 53);
  }
  return out;
}

TEST(Llama, OverTwoHundredStepsTheLossesOfFusedAndUnfusedAgree) {
  const std::int64_t batch = 4, sequence = 32, steps = 200;
  // Products this small gain nothing from threads, and lose a lot where other processes keep them waiting.
  coda::test::set_threads(1);
  Llama fused(medium, batch, sequence);
  UnfusedLlama<float> unfused(medium, batch, sequence);
  Parameters<float> start(medium);
  initialise(start, 11);
  const auto losses_of = [&](auto& model) {
    Parameters<float> p = converted<float>(start), m(medium), v(medium), g(medium);
    std::vector<double> losses;
    for (std::int64_t step = 1; step <= steps; ++step) {
      const auto text = pattern(batch * sequence + 1, static_cast<std::uint32_t>(step));
      std::fill(g.values().begin(), g.values().end(), 0.0f);
      losses.push_back(model.loss(p, std::span(text).first(text.size() - 1), std::span(text).subspan(1), &g));
      adamw_step({}, CosineSchedule{}.at(static_cast<double>(step - 1) / steps, 1.0 / steps), step,
                 clip_scale(global_norm(g.values()), 1.0), p.values(), g.values(), m.values(), v.values());
    }
    return losses;
  };
  const std::vector<double> a = losses_of(fused), b = losses_of(unfused);
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4 * b[i]) << "step " << i + 1;
  EXPECT_LT(a.back(), 0.6 * a.front()) << "nothing was learnt, so agreeing proves little";
  coda::test::set_threads(coda::test::processors());
}

}  // namespace
}  // namespace coda::model
