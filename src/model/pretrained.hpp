// Weights to start a run from: a Llama as Hugging Face stores it, without the state of a run.
#pragma once
#include <string>

#include "model/parameters.hpp"

namespace coda::model {

/// Reads the weights of a safetensors file, in f32, bf16 or f16. A file without lm_head.weight is of a model that ties
/// it to the embedding: the head starts as a copy, and learns apart from it. Throws Error(io) for a tensor that is
/// missing or that a Llama of this configuration doesn't have (a bias would change the model), Error(shape | dtype)
/// naming the tensor, Error(value) for numbers that aren't finite.
Parameters<float> load_weights(const std::string& path, const LlamaConfig& config);

}  // namespace coda::model
