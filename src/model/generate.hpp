// Text from a model, byte by byte.
#pragma once
#include <cstdint>
#include <string>

#include "model/llama.hpp"

namespace coda::model {

/// `prompt` and `bytes` more, each drawn from softmax(logits / temperature); temperature 0 takes the likeliest. The
/// model sees the last `sequence` bytes. A function of its arguments. An empty prompt stands for a line's beginning.
std::string generate(Llama& model, const Parameters<float>& parameters, const std::string& prompt, std::int64_t bytes,
                     std::int64_t sequence, double temperature, std::uint64_t seed);

}  // namespace coda::model
