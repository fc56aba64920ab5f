// Training runs: learning, resuming bit for bit, checkpoints, and every unfit input refused with nothing half-written.
#include "coda/train.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <sstream>

#include "coda/error.hpp"
#include "coda/safetensors.hpp"
#include "io/temporary_directory.hpp"
#include "support/threads.hpp"

namespace coda {
namespace {

using test::read_file;
using test::TemporaryDirectory;
using test::write_file;

/// A run of a second or less on a text with plain regularities.
class Training : public testing::Test {
 protected:
  Training() {
    test::set_threads(1);  // products this small gain nothing from more
    std::string text;
    for (int i = 0; i < 900; ++i) text += "line " + std::to_string(i % 100) + " of the text that is read again\n";
    write_file(dir_ / "text", text);
    options_.data = dir_ / "text";
    options_.model =
        LlamaConfig{.width = 32, .layers = 2, .query_heads = 2, .kv_heads = 1, .head_dim = 16, .feed_forward = 48};
    options_.batch = 2;
    options_.sequence = 24;
    options_.steps = 6;
    options_.validation_batches = 2;
    options_.validate_every = 2;
    options_.sample_bytes = 0;
    options_.compare_steps = 0;
  }

  ~Training() override { test::set_threads(test::processors()); }

  /// The message of the Error that the run throws.
  static std::string refusal(const TrainOptions& options, ErrorKind kind) {
    try {
      train(options);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), kind) << e.what();
      return e.what();
    }
    return "";
  }
  void expect_refused(const TrainOptions& options, ErrorKind kind, const std::string& part) const {
    const std::string message = refusal(options, kind);
    EXPECT_NE(message.find(part), std::string::npos) << "message: " << message << "\nexpected in it: " << part;
  }
  /// A saved checkpoint after three of six steps.
  std::string interrupted(const std::string& name) {
    TrainOptions o = options_;
    o.save = dir_ / name;
    train(o, [](const TrainProgress& p) { return p.step < 3; });
    return o.save;
  }

  TemporaryDirectory dir_;
  TrainOptions options_;
};

TEST_F(Training, LearnsAndReports) {
  options_.steps = 60;
  options_.sample_bytes = 40;
  options_.prompt = "line ";
  options_.compare_steps = 1;
  options_.log = dir_ / "log.csv";
  std::int64_t calls = 0;
  const TrainResult r = train(options_, [&](const TrainProgress& p) {
    EXPECT_EQ(p.step, ++calls);
    EXPECT_EQ(p.steps, 60);
    EXPECT_EQ(p.validation_loss.has_value(), p.step % 2 == 0);
    EXPECT_GT(p.tokens_per_second, 0);
    return true;
  });
  EXPECT_EQ(calls, 60);
  EXPECT_EQ(r.last_step, 60);
  EXPECT_NEAR(r.first_loss, std::log(256.0), 0.2);
  EXPECT_LT(r.last_loss, 0.7 * r.first_loss);
  EXPECT_LT(r.validation_loss, 0.7 * r.first_validation_loss);
  EXPECT_EQ(r.sample.size(), 45u);
  EXPECT_EQ(r.sample.substr(0, 5), "line ");
  EXPECT_EQ(r.parameters, 2 * 256 * 32 + 2 * (2 * 32 + 64 * 32 + 32 * 32 + 3 * 48 * 32) + 32);

  ASSERT_TRUE(r.savings);
  EXPECT_GT(r.savings->fused_bytes, 0);
  EXPECT_LT(r.savings->fused_bytes, r.savings->separate_bytes);
  EXPECT_LT(r.savings->largest_loss_difference, 1e-5);
  std::int64_t products = 0;
  for (const ProgramTraffic& p : r.savings->programs) products += p.calls;
  EXPECT_EQ(products, 2 * (4 + 8) + 4) << "per layer 4 forward and 8 backward; the head 1 and 3";
  EXPECT_NE(format(*r.savings).find("norm_swiglu"), std::string::npos);

  std::istringstream log(read_file(dir_ / "log.csv"));
  std::string line;
  std::int64_t lines = 0;
  for (; std::getline(log, line); ++lines) EXPECT_EQ(std::count(line.begin(), line.end(), ','), 6) << line;
  EXPECT_EQ(lines, 61);
}

TEST_F(Training, AResumedRunIsBitwiseTheUninterruptedOne) {
  options_.save = dir_ / "whole";
  std::vector<double> whole, parts;
  train(options_, [&](const TrainProgress& p) { return whole.push_back(p.loss), true; });
  options_.save = dir_ / "part";
  options_.log = dir_ / "log.csv";
  const TrainResult first =
      train(options_, [&](const TrainProgress& p) { return parts.push_back(p.loss), p.step < 3; });
  EXPECT_TRUE(first.stopped);
  EXPECT_EQ(first.last_step, 3);
  options_.resume = dir_ / "part";
  options_.model.reset();  // the checkpoint knows
  const TrainResult second = train(options_, [&](const TrainProgress& p) { return parts.push_back(p.loss), true; });
  EXPECT_EQ(second.first_step, 4);
  EXPECT_EQ(whole, parts);
  EXPECT_EQ(read_file(dir_ / "whole"), read_file(dir_ / "part"));
  const std::string log = read_file(dir_ / "log.csv");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 7) << "one header, six steps";
}

TEST_F(Training, CheckpointsHoldHuggingFaceNamesAndTheConfiguration) {
  const std::string path = interrupted("x");
  const SafetensorsFile file(path);
  EXPECT_EQ(file.entries().size(), 3u * (1 + 2 * 9 + 2));
  EXPECT_EQ(file.read("model.layers.1.self_attn.k_proj.weight").view().shape[0], 16);
  EXPECT_EQ(file.read("model.layers.0.mlp.gate_proj.weight").view().shape[0], 48);
  EXPECT_TRUE(file.contains("optimizer.exp_avg_sq.lm_head.weight"));
  EXPECT_EQ(checkpoint_config(path), *options_.model);
  EXPECT_EQ(dir_.files(), 2) << "the text and the checkpoint, nothing temporary";
}

TEST_F(Training, EndsByTimeWhenAsked) {
  options_.steps = 0;
  options_.seconds = 0.2;
  const TrainResult r = train(options_);
  EXPECT_GE(r.seconds, 0.2);
  EXPECT_GE(r.last_step, 1);
}

TEST_F(Training, UnfitTextsAreRefused) {
  TrainOptions o = options_;
  o.data = dir_ / "absent";
  expect_refused(o, ErrorKind::io, "No such file");
  o.data = dir_ / ".";
  expect_refused(o, ErrorKind::io, "Is a directory");
  write_file(dir_ / "empty", "");
  o.data = dir_ / "empty";
  expect_refused(o, ErrorKind::io, "is empty");
  write_file(dir_ / "short", "a few bytes");
  o.data = dir_ / "short";
  expect_refused(o, ErrorKind::value, "too short");
}

TEST_F(Training, UnfitOptionsAreRefused) {
  const auto refused = [&](auto change, const std::string& part) {
    TrainOptions o = options_;
    change(o);
    expect_refused(o, ErrorKind::value, part);
  };
  refused([](auto& o) { o.batch = 0; }, "batch is 0");
  refused([](auto& o) { o.sequence = -3; }, "sequence is -3");
  refused([](auto& o) { o.batch = o.sequence = INT64_MAX; }, "too large");
  refused([](auto& o) { o.steps = 0; }, "one of them");
  refused([](auto& o) { o.steps = -1; }, "one of them");
  refused([](auto& o) { o.seconds = 5; }, "one of them");
  refused([](auto& o) { o.steps = 0, o.seconds = NAN; }, "one of them");
  refused([](auto& o) { o.learning_rate = -1; }, "learning rate is -1");
  refused([](auto& o) { o.learning_rate = INFINITY; }, "learning rate is inf");
  refused([](auto& o) { o.beta2 = 1; }, "beta2 is 1");
  refused([](auto& o) { o.validation_fraction = 0; }, "validation fraction");
  refused([](auto& o) { o.save_every = 2; }, "save_every");
  refused([](auto& o) { o.model->width = 0; }, "width");
  refused([](auto& o) { o.model->width = std::numeric_limits<std::int64_t>::max(); }, "width");
  refused([](auto& o) { o.model->kv_heads = 3; }, "multiple of kv_heads");
  refused([](auto& o) { o.model->vocabulary = 100; }, "vocabulary");
}

TEST_F(Training, PlacesThatCannotBeWrittenAreRefusedBeforeTheFirstStep) {
  std::int64_t steps = 0;
  const auto count = [&](const TrainProgress&) { return ++steps, true; };
  TrainOptions o = options_;
  o.save = dir_ / "absent/x";
  EXPECT_THROW(train(o, count), Error);
  o.save = dir_ / ".";
  EXPECT_THROW(train(o, count), Error);
  o.save.clear();
  o.log = dir_ / "absent/log.csv";
  EXPECT_THROW(train(o, count), Error);
  EXPECT_EQ(steps, 0);
}

TEST_F(Training, DamagedOrForeignCheckpointsAreRefused) {
  const std::string good = read_file(interrupted("good"));
  TrainOptions o = options_;
  o.resume = dir_ / "absent";
  expect_refused(o, ErrorKind::io, "No such file");
  o.resume = dir_ / "bad";
  write_file(o.resume, good.substr(0, good.size() - 5));
  expect_refused(o, ErrorKind::io, "truncated");
  write_file(o.resume, good.substr(0, 100));
  expect_refused(o, ErrorKind::io, "truncated");
  write_file(o.resume, "not a checkpoint");
  expect_refused(o, ErrorKind::io, "safetensors");

  // Weights alone, without a run.
  const HostTensor t(DType::f32, {1});
  write_safetensors(o.resume, std::vector<NamedTensor>{{"t", t}});
  expect_refused(o, ErrorKind::io, "no 'training'");
  o.model.reset();
  expect_refused(o, ErrorKind::io, "no 'config'");

  o = options_;
  o.resume = dir_ / "good";
  o.model->feed_forward = 64;
  expect_refused(o, ErrorKind::shape, "mlp.gate_proj.weight' has shape [48, 32], expected [64, 32]");
  o = options_;
  o.resume = dir_ / "good";
  o.model->layers = 3;
  expect_refused(o, ErrorKind::io, "no tensor 'model.layers.2");
  o = options_;
  o.resume = dir_ / "good";
  o.seed = 2;
  expect_refused(o, ErrorKind::value, "seed 1, batch 2, sequence 24; found seed 2");
  o = options_;
  o.resume = dir_ / "good";
  o.steps = 3;
  expect_refused(o, ErrorKind::value, "give more steps");
  EXPECT_EQ(read_file(dir_ / "good"), good);
}

TEST_F(Training, NaNInACheckpointIsRefusedByName) {
  std::string bytes = read_file(interrupted("x"));
  const SafetensorsFile file(dir_ / "x");
  const SafetensorsEntry* e = file.find("model.norm.weight");
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + 8 + header + e->begin + 8, &nan, 4);
  write_file(dir_ / "x", bytes);
  options_.resume = dir_ / "x";
  expect_refused(options_, ErrorKind::value, "element 2 of 'model.norm.weight' is nan");
}

TEST_F(Training, ADivergedRunIsAnErrorAndLeavesTheCheckpointAlone) {
  const std::string before = read_file(interrupted("x"));
  options_.resume = options_.save = dir_ / "x";
  options_.learning_rate = 1e30;
  options_.clip = 0;
  expect_refused(options_, ErrorKind::value, "diverged");
  EXPECT_EQ(read_file(dir_ / "x"), before);
}

TEST_F(Training, AFullDiskLeavesThePreviousCheckpointWhole) {
  const std::string before = read_file(interrupted("x"));
  options_.resume = options_.save = dir_ / "x";
  // A limit on file sizes stands in for a full disk: write() comes short in the same way.
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = old;
  limit.rlim_cur = before.size() / 2;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string message = refusal(options_, ErrorKind::io);
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("previous file of that name is unchanged"), std::string::npos) << message;
  EXPECT_EQ(read_file(dir_ / "x"), before);
  EXPECT_EQ(dir_.files(), 2) << "nothing temporary is left";
}

}  // namespace
}  // namespace coda
