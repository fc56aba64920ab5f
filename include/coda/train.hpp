// Training a small Llama on the bytes of a text, on the host: what `coda train` runs.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coda/model.hpp"

namespace coda {

struct TrainOptions {
  std::string data;                  ///< any file; its bytes are the tokens
  double validation_fraction = 0.1;  ///< the end of the text, never trained on

  /// Absent: that of the checkpoint that is resumed or of the weights to start from, or LlamaConfig{}.
  std::optional<LlamaConfig> model;
  std::int64_t batch = 8;       ///< sequences a step
  std::int64_t sequence = 256;  ///< tokens a sequence
  /// Where the run ends: after `steps` steps in all (those before a resumed checkpoint count) or after `seconds`.
  /// Exactly one of them is positive. With `steps`, a run is a function of its options: bitwise the same again, and
  /// bitwise the same when it is interrupted and resumed.
  std::int64_t steps = 0;
  double seconds = 0;
  std::uint64_t seed = 1;

  double learning_rate = 3e-3;  ///< the peak; warmed up linearly, then half a cosine down to a tenth
  double warmup = 0.05;         ///< fraction of the run
  double beta1 = 0.9, beta2 = 0.95;
  double weight_decay = 0.1;
  double clip = 1.0;  ///< largest global norm of the gradients; 0: no clipping

  std::int64_t validate_every = 50;  ///< steps; 0: at the beginning and the end alone
  std::int64_t validation_batches = 8;
  std::string save;             ///< checkpoint written at the end; empty: none
  std::int64_t save_every = 0;  ///< ... and every so many steps
  std::string resume;           ///< checkpoint to go on from
  /// Weights to start from instead of random ones, under Hugging Face's names in one safetensors file, f32, bf16 or
  /// f16; the optimiser starts fresh. Without lm_head.weight the head starts as a copy of the embedding. Not with
  /// `resume`.
  std::string init;
  std::string log;  ///< CSV with one line a step; a resumed run appends to it

  std::string prompt = "The ";      ///< what the sample begins with
  std::int64_t sample_bytes = 400;  ///< 0: no sample
  double temperature = 0.8;
  std::int64_t compare_steps = 5;  ///< steps timed against the unfused model at the end; 0: none
};

/// After every step.
struct TrainProgress {
  std::int64_t step = 0;                  ///< counts from 1
  std::int64_t steps = 0;                 ///< of the whole run; an estimate where it ends by time
  double loss = 0;                        ///< of this step's batch, in nats a byte
  std::optional<double> validation_loss;  ///< where it was measured after this step
  double learning_rate = 0;
  double gradient_norm = 0;      ///< before clipping
  double tokens_per_second = 0;  ///< over the run so far
  double seconds = 0, seconds_left = 0;
};

/// What one program cost in a step: bytes over all its calls, fused and as a product with a separate pass.
struct ProgramTraffic {
  std::string program;
  std::int64_t calls = 0;
  std::int64_t fused_bytes = 0, separate_bytes = 0;
};

/// What fusion saved. Bytes follow from the programs (coda/explain.hpp); times and losses were measured, fused and
/// unfused step by step in turn, from the same parameters on the same batches.
struct FusionSavings {
  std::vector<ProgramTraffic> programs;
  std::int64_t fused_bytes = 0, separate_bytes = 0;
  double fused_seconds = 0, unfused_seconds = 0;  ///< median step: forward and backward
  double largest_loss_difference = 0;             ///< relative
};

struct TrainResult {
  LlamaConfig model;
  std::int64_t parameters = 0;
  std::int64_t first_step = 1, last_step = 0;
  bool stopped = false;  ///< by the callback
  double seconds = 0, tokens_per_second = 0;
  double first_loss = 0, last_loss = 0;  ///< the first step's, and the mean of the last ten steps'
  double first_validation_loss = 0, validation_loss = 0;
  std::string sample;  ///< bytes, the prompt included
  std::optional<FusionSavings> savings;
};

/// Called after every step; false ends the run there, with everything that belongs to the end.
using TrainCallback = std::function<bool(const TrainProgress&)>;

/// Trains. Throws Error before the first step when an option, the text, the checkpoint or a place to write is unfit,
/// and Error(value) when the loss stops being finite; a checkpoint saved before stays as it was.
TrainResult train(const TrainOptions& options, const TrainCallback& progress = {});

/// The savings as a table for people.
std::string format(const FusionSavings& savings);

/// The configuration that `coda train` stored in a checkpoint. Throws Error(io) where there is none.
LlamaConfig checkpoint_config(const std::string& path);

/// The configuration of weights to start from: in the file's metadata, as `coda train` stores it, or else in the
/// config.json beside it. Throws Error(io) where there is neither, Error(unsupported) where it isn't a plain Llama.
LlamaConfig pretrained_config(const std::string& path);

}  // namespace coda
