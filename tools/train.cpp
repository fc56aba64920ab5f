// coda train: a small Llama on the bytes of a text, every product outside attention a program.
#include "coda/train.hpp"

#include <algorithm>
#include <cmath>
#include <csignal>

#include <fmt/format.h>

#include "cli.hpp"

namespace coda::cli {
namespace {

/// Ctrl-C ends the run after the step, with its checkpoint, sample and table; a second one ends the process.
volatile std::sig_atomic_t interrupted = 0;
void on_interrupt(int signal) {
  interrupted = 1;
  std::signal(signal, SIG_DFL);
}

struct Options {
  TrainOptions train;
  LlamaConfig model;
  bool model_given = false;
  bool json = false;
};

std::string duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto s = static_cast<std::int64_t>(seconds + 0.5);
  return s < 60     ? fmt::format("{} s", s)
         : s < 3600 ? fmt::format("{}:{:02}", s / 60, s % 60)
                    : fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

/// Length of the UTF-8 character that `bytes` starts with, 0 where it starts with none.
std::size_t character(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xC2 && first < 0xE0 ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  if (length == 0 || length > bytes.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((bytes[i] & 0xC0) != 0x80) return 0;
  return length;
}

/// A sample's bytes as text: what isn't UTF-8, or would upset a terminal, becomes '?'.
std::string printable(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const std::size_t length = character(bytes);
    const auto first = static_cast<unsigned char>(bytes[0]);
    const bool control = (first < 32 && first != '\n' && first != '\t') || first == 127;
    text += length == 0 || control ? "?" : bytes.substr(0, length);
    bytes.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return text;
}

Json to_json(const TrainResult& r) {
  const LlamaConfig& m = r.model;
  Json json{{"parameters", r.parameters},
            {"first_step", r.first_step},
            {"last_step", r.last_step},
            {"stopped", r.stopped},
            {"seconds", r.seconds},
            {"tokens_per_second", r.tokens_per_second},
            {"first_loss", r.first_loss},
            {"last_loss", r.last_loss},
            {"first_validation_loss", r.first_validation_loss},
            {"validation_loss", r.validation_loss},
            {"sample", r.sample}};
  json["model"] = {{"vocabulary", m.vocabulary},    {"width", m.width},       {"layers", m.layers},
                   {"query_heads", m.query_heads},  {"kv_heads", m.kv_heads}, {"head_dim", m.head_dim},
                   {"feed_forward", m.feed_forward}};
  if (!r.savings) return json;
  const FusionSavings& s = *r.savings;
  Json programs = Json::array();
  for (const ProgramTraffic& t : s.programs)
    programs.push_back({{"program", t.program},
                        {"calls", t.calls},
                        {"fused_bytes", t.fused_bytes},
                        {"separate_bytes", t.separate_bytes}});
  json["savings"] = {{"programs", programs},
                     {"fused_bytes", s.fused_bytes},
                     {"separate_bytes", s.separate_bytes},
                     {"fused_seconds", s.fused_seconds},
                     {"unfused_seconds", s.unfused_seconds},
                     {"largest_loss_difference", s.largest_loss_difference}};
  return json;
}

int train_model(Options o) {
  if (o.train.steps > 0 && o.train.seconds > 0) throw UsageError("give --steps or --seconds, not both");
  if (o.train.steps == 0 && o.train.seconds == 0) o.train.steps = 200;
  if (!o.train.resume.empty() && !o.train.init.empty()) throw UsageError("give --resume or --init, not both");
  if (o.model_given || (o.train.resume.empty() && o.train.init.empty())) o.train.model = o.model;

  interrupted = 0;
  std::signal(SIGINT, on_interrupt);
  Progress progress;
  const TrainResult result = train(o.train, [&](const TrainProgress& t) {
    const std::string line = fmt::format("step {}/{}  loss {:.4f}  {:.0f} tokens/s  {} left", t.step, t.steps, t.loss,
                                         t.tokens_per_second, duration(t.seconds_left));
    if (t.validation_loss) {
      progress.clear();
      fmt::print(stderr, "{}  validation {:.4f}\n", line, *t.validation_loss);
    } else {
      progress.show(line);
    }
    return interrupted == 0;
  });
  progress.clear();
  std::signal(SIGINT, SIG_DFL);

  if (o.json) {
    write_json(to_json(result));
    return 0;
  }
  std::string text = fmt::format(
      "{} parameters, steps {} to {} in {}, {:.0f} tokens/s{}\n"
      "loss {:.4f} -> {:.4f}, validation {:.4f} -> {:.4f} (nats a byte)\n",
      result.parameters, result.first_step, result.last_step, duration(result.seconds), result.tokens_per_second,
      result.stopped ? ", interrupted" : "", result.first_loss, result.last_loss, result.first_validation_loss,
      result.validation_loss);
  if (!o.train.save.empty()) text += fmt::format("checkpoint: {}\n", o.train.save);
  if (!result.sample.empty()) text += fmt::format("\nA sample:\n{}\n", printable(result.sample));
  if (result.savings) text += fmt::format("\nWhat the fusion saved:\n{}", format(*result.savings));
  write(text);
  return 0;
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("train", "Train a small Llama on any file, every product a fused program");
  auto o = std::make_shared<Options>();
  TrainOptions& t = o->train;
  LlamaConfig& m = o->model;
  sub->add_option("--data", t.data, "Text to learn; its bytes are the tokens")->required();
  sub->add_option("--validation-fraction", t.validation_fraction, "Part of the text, at its end, kept for validation")
      ->capture_default_str();

  const std::string model = "Model";
  const std::vector<CLI::Option*> sizes{
      sub->add_option("--layers", m.layers, "Blocks"),
      sub->add_option("--width", m.width, "Width of the residual stream"),
      sub->add_option("--heads", m.query_heads, "Query heads"),
      sub->add_option("--kv-heads", m.kv_heads, "Key and value heads"),
      sub->add_option("--head-dim", m.head_dim, "Columns of a head"),
      sub->add_option("--feed-forward", m.feed_forward, "Width of the feed-forward layer")};
  for (CLI::Option* size : sizes) size->group(model)->capture_default_str();

  const std::string run = "Run";
  for (CLI::Option* option :
       {sub->add_option("--steps", t.steps, "Stop after so many steps, 200 if neither this nor --seconds is given"),
        sub->add_option("--seconds", t.seconds, "Stop after so many seconds")})
    option->group(run);
  for (CLI::Option* option : {sub->add_option("--batch", t.batch, "Sequences a step"),
                              sub->add_option("--sequence", t.sequence, "Tokens a sequence"),
                              sub->add_option("--seed", t.seed, "Of the parameters and the order of the text"),
                              sub->add_option("--learning-rate", t.learning_rate, "Peak of the cosine schedule"),
                              sub->add_option("--warmup", t.warmup, "Part of the run that warms up"),
                              sub->add_option("--weight-decay", t.weight_decay, "Of AdamW"),
                              sub->add_option("--clip", t.clip, "Largest norm of the gradients; 0: no clipping"),
                              sub->add_option("--validate-every", t.validate_every, "Steps between validations"),
                              sub->add_option("--compare-steps", t.compare_steps,
                                              "Steps timed against the unfused model at the end; 0: none")})
    option->group(run)->capture_default_str();

  const std::string files = "Files";
  for (CLI::Option* option :
       {sub->add_option("--save", t.save, "Checkpoint to write (safetensors, Hugging Face names)"),
        sub->add_option("--save-every", t.save_every, "Steps between checkpoints; 0: only at the end"),
        sub->add_option("--resume", t.resume, "Checkpoint to go on from"),
        sub->add_option("--init", t.init,
                        "Weights to start from, f32, bf16 or f16 (safetensors, Hugging Face names; sizes from its "
                        "metadata or the config.json beside it)"),
        sub->add_option("--log", t.log, "CSV with a line a step")})
    option->group(files);

  const std::string sample = "Sample";
  for (CLI::Option* option : {sub->add_option("--prompt", t.prompt, "What the sample begins with"),
                              sub->add_option("--sample-bytes", t.sample_bytes, "Length of the sample; 0: none"),
                              sub->add_option("--temperature", t.temperature, "Of the sample")})
    option->group(sample)->capture_default_str();
  sub->add_flag("--json", o->json, "Machine-readable result");
  sub->footer(
      "Ctrl-C ends the run after the step, with everything that belongs to the end.\nExamples:\n"
      "  coda train --data book.txt --seconds 120\n"
      "  coda train --data book.txt --steps 500 --save model.safetensors --log loss.csv\n"
      "  coda train --data book.txt --steps 1000 --resume model.safetensors --save model.safetensors\n"
      "  coda train --data letters.txt --steps 100 --learning-rate 3e-4 --init model.safetensors");
  sub->callback([&action, o, sizes] {
    for (const CLI::Option* size : sizes) o->model_given = o->model_given || size->count() > 0;
    action = [o] { return train_model(*o); };
  });
}

}  // namespace coda::cli
