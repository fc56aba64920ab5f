// Sampling: see generate.hpp.
#include "model/generate.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace coda::model {

std::string generate(Llama& model, const Parameters<float>& parameters, const std::string& prompt, std::int64_t bytes,
                     std::int64_t sequence, double temperature, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text = prompt.empty() ? "\n" : prompt;
  for (std::int64_t i = 0; i < bytes; ++i) {
    const std::size_t seen = std::min(text.size(), static_cast<std::size_t>(sequence));
    std::vector<std::int64_t> tokens;
    for (const char c : text.substr(text.size() - seen)) tokens.push_back(static_cast<unsigned char>(c));
    const std::vector<float> logits = model.next_logits(parameters, tokens);
    const auto best = std::max_element(logits.begin(), logits.end());
    std::size_t chosen = static_cast<std::size_t>(best - logits.begin());
    if (temperature > 0) {
      std::vector<double> weights;
      double sum = 0;
      for (const float z : logits) {
        weights.push_back(std::exp((static_cast<double>(z) - *best) / temperature));
        sum += weights.back();
      }
      double left = static_cast<double>(random() >> 11) * 0x1p-53 * sum;
      for (chosen = 0; chosen + 1 < weights.size() && left >= weights[chosen]; ++chosen) left -= weights[chosen];
    }
    text += static_cast<char>(chosen);
  }
  return prompt.empty() ? text.substr(1) : text;
}

}  // namespace coda::model
