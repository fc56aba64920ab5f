// The training loop: see include/coda/train.hpp.
#include "coda/train.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>

#include "coda/error.hpp"
#include "io/atomic_file.hpp"
#include "io/text_data.hpp"
#include "model/checkpoint.hpp"
#include "model/generate.hpp"
#include "model/llama.hpp"
#include "model/optimizer.hpp"
#include "model/pretrained.hpp"
#include "model/savings.hpp"

namespace coda {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void check(const TrainOptions& o) {
  const auto refuse = [](const std::string& what) { throw Error(ErrorKind::value, "train: " + what); };
  const auto positive = [&](const char* name, std::int64_t n) {
    if (n < 1) refuse(fmt::format("{} is {}, expected 1 or more", name, n));
  };
  const auto not_negative = [&](const char* name, double x) {
    if (!(x >= 0) || !std::isfinite(x)) refuse(fmt::format("{} is {}, expected a number that isn't negative", name, x));
  };
  positive("batch", o.batch);
  positive("sequence", o.sequence);
  if (o.batch > (1 << 24) || o.sequence > (1 << 24) || o.batch * o.sequence > (1 << 24)) {
    refuse(fmt::format("a step of {} sequences of {} tokens is too large, at most 2^24 tokens are supported", o.batch,
                       o.sequence));
  }
  if (o.steps < 0 || !(o.seconds >= 0) || !std::isfinite(o.seconds) || (o.steps > 0) == (o.seconds > 0)) {
    refuse(fmt::format("steps is {} and seconds is {}, expected one of them to be positive and the other 0", o.steps,
                       o.seconds));
  }
  not_negative("learning rate", o.learning_rate);
  not_negative("weight decay", o.weight_decay);
  not_negative("clip", o.clip);
  not_negative("temperature", o.temperature);
  for (const auto& [name, x] : {std::pair("warmup", o.warmup), {"beta1", o.beta1}, {"beta2", o.beta2}}) {
    if (!(x >= 0 && x < 1)) refuse(fmt::format("{} is {}, expected a number from 0 to less than 1", name, x));
  }
  for (const auto& [name, n] : {std::pair("validate_every", o.validate_every),
                                {"save_every", o.save_every},
                                {"sample_bytes", o.sample_bytes},
                                {"compare_steps", o.compare_steps}}) {
    if (n < 0) refuse(fmt::format("{} is {}, expected 0 or more", name, n));
  }
  positive("validation_batches", o.validation_batches);
  if (!o.resume.empty() && !o.init.empty()) refuse("both resume and init are given, expected one of them at most");
  if (o.save_every > 0 && o.save.empty()) refuse("save_every needs the name of a checkpoint to save");
}

/// The CSV of a run: one line a step, each written out at once.
class LossLog {
 public:
  LossLog(const std::string& path, bool append) : path_(path) {
    if (path.empty()) return;
    std::error_code ignored;
    const bool header =
        !append || !std::filesystem::exists(path, ignored) || std::filesystem::file_size(path, ignored) == 0;
    file_.open(path, append ? std::ios::app : std::ios::trunc);
    if (header) file_ << "step,seconds,loss,validation_loss,learning_rate,gradient_norm,tokens_per_second\n";
    flush();
  }

  void write(const TrainProgress& p) {
    if (path_.empty()) return;
    file_ << fmt::format("{},{:.3f},{:.6f},{},{:.6g},{:.6g},{:.1f}\n", p.step, p.seconds, p.loss,
                         p.validation_loss ? fmt::format("{:.6f}", *p.validation_loss) : "", p.learning_rate,
                         p.gradient_norm, p.tokens_per_second);
    flush();
  }

 private:
  void flush() {
    if (!file_.flush()) throw Error(ErrorKind::io, fmt::format("cannot write the loss log {}", path_));
  }

  std::string path_;
  std::ofstream file_;
};

/// Everything a run owns between its steps.
class Run {
 public:
  Run(const TrainOptions& options, const LlamaConfig& config)
      : o_(options),
        text_(options.data, options.validation_fraction, options.sequence),
        identity_{options.seed, options.batch, options.sequence},
        state_(options.resume.empty() ? model::TrainState(config)
                                      : model::load_checkpoint(options.resume, config, identity_)),
        gradients_(config),
        model_(config, options.batch, options.sequence) {
    if (!o_.init.empty()) {
      state_.parameters = model::load_weights(o_.init, config);
    } else if (o_.resume.empty()) {
      model::initialise(state_.parameters, o_.seed);
    }
    if (o_.steps > 0 && state_.step >= o_.steps) {
      throw Error(ErrorKind::value,
                  fmt::format("train: the checkpoint {} is after step {}, and the run ends after step "
                              "{}; give more steps",
                              o_.resume, state_.step, o_.steps));
    }
    // A place that can't be written is better known now than after the run.
    if (!o_.save.empty()) io::AtomicFile probe(o_.save);
  }

  TrainResult operator()(const TrainCallback& callback) {
    LossLog log(o_.log, !o_.resume.empty());
    TrainResult result;
    result.model = state_.parameters.config();
    for (const LlamaParameter& p : state_.parameters.entries()) result.parameters += p.numel();
    result.first_step = state_.step + 1;
    result.first_validation_loss = validation_loss();
    result.validation_loss = result.first_validation_loss;

    std::deque<double> recent;
    start_ = Clock::now();
    for (bool last = false; !last && !result.stopped;) {
      TrainProgress p = step(result.first_step);
      if (p.step == result.first_step) result.first_loss = p.loss;
      recent.push_back(p.loss);
      if (recent.size() > 10) recent.pop_front();
      last = o_.steps > 0 ? p.step >= o_.steps : p.seconds >= o_.seconds;
      if (last || (o_.validate_every > 0 && p.step % o_.validate_every == 0)) {
        p.validation_loss = result.validation_loss = validation_loss();
      }
      log.write(p);
      if (o_.save_every > 0 && p.step % o_.save_every == 0 && !last) save();
      if (callback && !callback(p)) result.stopped = true;
      result.seconds = p.seconds;
      result.tokens_per_second = p.tokens_per_second;
    }
    if (!o_.save.empty()) save();
    result.last_step = state_.step;
    for (const double loss : recent) result.last_loss += loss / static_cast<double>(recent.size());
    if (o_.sample_bytes > 0) {
      // Two lines of context are enough for a sample, and every byte of it takes a forward pass.
      const std::int64_t context = std::min<std::int64_t>(o_.sequence, 128);
      model::Llama one(result.model, 1, context);
      result.sample =
          model::generate(one, state_.parameters, o_.prompt, o_.sample_bytes, context, o_.temperature, o_.seed);
    }
    if (o_.compare_steps > 0) {
      result.savings =
          model::measure_savings(state_.parameters, text_.train(), o_.batch, o_.sequence, o_.seed, o_.compare_steps);
    }
    return result;
  }

 private:
  /// One update, from the batch that belongs to the step.
  TrainProgress step(std::int64_t first_step) {
    const double before = seconds_since(start_);
    const std::int64_t done = state_.step - first_step + 1;  // of this run
    TrainProgress p;
    p.step = state_.step + 1;
    // Where time ends the run, a step's share of it is what steps took so far; at the first that isn't known.
    const double share = o_.steps > 0 ? 1 / static_cast<double>(o_.steps)
                         : done > 0   ? before / static_cast<double>(done) / o_.seconds
                                      : 0.01;
    const double progress = o_.steps > 0 ? static_cast<double>(state_.step) * share : before / o_.seconds;

    const io::Batch batch =
        io::random_batch(text_.train(), o_.batch, o_.sequence, o_.seed, static_cast<std::uint64_t>(state_.step));
    std::fill(gradients_.values().begin(), gradients_.values().end(), 0.0f);
    p.loss = model_.loss(state_.parameters, batch.tokens, batch.targets, &gradients_);
    p.gradient_norm = model::global_norm(gradients_.values());
    if (!std::isfinite(p.loss) || !std::isfinite(p.gradient_norm)) {
      throw Error(
          ErrorKind::value,
          fmt::format("train: at step {} the loss is {} and the gradients' norm {}: the run diverged; a smaller "
                      "learning rate than {} may help. No checkpoint was written since.",
                      p.step, p.loss, p.gradient_norm, o_.learning_rate));
    }
    p.learning_rate = model::CosineSchedule{o_.learning_rate, 0.1 * o_.learning_rate, o_.warmup}.at(progress, share);
    update(p.learning_rate, model::clip_scale(p.gradient_norm, o_.clip), p.step);
    state_.step = p.step;

    p.seconds = seconds_since(start_);
    const double each = p.seconds / static_cast<double>(done + 1);
    p.tokens_per_second = static_cast<double>(o_.batch * o_.sequence) / each;
    if (o_.steps > 0) {
      p.steps = o_.steps;
      p.seconds_left = each * static_cast<double>(o_.steps - p.step);
    } else {
      p.seconds_left = std::max(0.0, o_.seconds - p.seconds);
      p.steps = p.step + static_cast<std::int64_t>(std::ceil(p.seconds_left / each));
    }
    return p;
  }

  /// Weight decay is for matrices; the norms' vectors go without.
  void update(double learning_rate, double scale, std::int64_t step) {
    const auto part = [](auto& all, const LlamaParameter& e) {
      return all.values().subspan(static_cast<std::size_t>(e.offset), static_cast<std::size_t>(e.numel()));
    };
    for (const LlamaParameter& e : state_.parameters.entries()) {
      const model::AdamW options{
          .beta1 = o_.beta1, .beta2 = o_.beta2, .weight_decay = e.columns == 0 ? 0 : o_.weight_decay};
      model::adamw_step(options, learning_rate, step, scale, part(state_.parameters, e), part(gradients_, e),
                        part(state_.first_moment, e), part(state_.second_moment, e));
    }
  }

  /// The mean over the first sequences of the held-out text, whole batches alone.
  double validation_loss() {
    double sum = 0;
    std::int64_t batches = 0;
    for (; batches < o_.validation_batches; ++batches) {
      io::Batch b = io::consecutive_batch(text_.validation(), o_.batch, o_.sequence, batches * o_.batch);
      const auto whole = static_cast<std::size_t>(o_.batch * o_.sequence);
      if (batches > 0 && b.tokens.size() < whole) break;
      for (std::size_t i = 0; b.tokens.size() < whole; ++i) {  // a short text: its sequences again
        b.tokens.push_back(b.tokens[i]);
        b.targets.push_back(b.targets[i]);
      }
      sum += model_.loss(state_.parameters, b.tokens, b.targets);
    }
    return sum / static_cast<double>(batches);
  }

  void save() { model::save_checkpoint(o_.save, state_, identity_); }

  const TrainOptions& o_;
  io::TextData text_;
  model::RunIdentity identity_;
  model::TrainState state_;
  model::Parameters<float> gradients_;
  model::Llama model_;
  Clock::time_point start_;
};

}  // namespace

TrainResult train(const TrainOptions& options, const TrainCallback& progress) {
  check(options);
  LlamaConfig config = options.model.value_or(LlamaConfig{});
  if (!options.model && !options.resume.empty()) config = checkpoint_config(options.resume);
  if (!options.model && !options.init.empty()) config = pretrained_config(options.init);
  if (config.vocabulary != io::TextData::vocabulary) {
    throw Error(ErrorKind::value, fmt::format("train: the model's vocabulary is {}, expected {}: tokens are bytes",
                                              config.vocabulary, io::TextData::vocabulary));
  }
  return Run(options, config)(progress);
}

}  // namespace coda
