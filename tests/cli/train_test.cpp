// coda train: a very small model on a very small text, its checkpoint, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>

#include "coda/safetensors.hpp"
#include "command.hpp"

namespace coda::test {
namespace {

std::string prose() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "It is a truth universally acknowledged, number " + std::to_string(i) + ".\n";
  return text;
}

const std::string small =
    " --layers 1 --width 32 --heads 2 --kv-heads 1 --head-dim 16 --feed-forward 48 --batch 2 --sequence 32 "
    "--sample-bytes 20"
    " --compare-steps 1 ";

TEST(Train, ShowsAFallingLossAndWritesItsLogAndCheckpoint) {
  const Directory d;
  const std::string data = d.write("text", prose()), save = d.file("model"), log = d.file("log.csv");
  const Said said = coda_command("train --data " + data + small + "--steps 12 --json --save " + save + " --log " + log);
  ASSERT_EQ(said.code, 0) << said.err;
  const auto json = json_of(said);
  EXPECT_EQ(json["last_step"], 12);
  EXPECT_LT(json["last_loss"].get<double>(), json["first_loss"].get<double>());
  EXPECT_GT(json["savings"]["separate_bytes"].get<double>(), json["savings"]["fused_bytes"].get<double>());
  EXPECT_TRUE(SafetensorsFile(save).contains("model.layers.0.self_attn.q_proj.weight"));
  const std::string csv = read_bytes(log);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 13) << "a header and a line a step";

  const Said more =
      coda_command("train --data " + data +
                   " --batch 2 --sequence 32 --sample-bytes 0 --compare-steps 0 --steps 14 --json --resume " + save);
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(json_of(more)["first_step"], 13);
}

TEST(Train, StartsFromWeights) {
  const Directory d;
  const std::string data = "train --steps 2 --json --data " + d.write("text", prose()), save = d.file("model");
  ASSERT_EQ(coda_command(data + small + "--save " + save).code, 0);
  const Said said = coda_command(data + " --batch 2 --sequence 32 --sample-bytes 0 --compare-steps 0 --init " + save);
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(json_of(said)["first_step"], 1);
  EXPECT_EQ(json_of(said)["model"]["width"], 32) << "the file knows its sizes";
  expect_failure(coda_command(data + " --init " + d.file("absent")), "absent");
  expect_usage_error(coda_command(data + " --init " + save + " --resume " + save), "not both");
}

TEST(Train, RefusesUnfitData) {
  const Directory d;
  expect_failure(coda_command("train --steps 1 --data " + d.file("absent")), "absent");
  expect_failure(coda_command("train --steps 1 --data " + d.write("empty", "")), "empty");
  expect_failure(coda_command("train --steps 1 --data " + d.write("short", "abc")), "short");
  expect_failure(coda_command("train --steps 1 --data /"), "/");
}

TEST(Train, RefusesUnfitSizes) {
  const Directory d;
  const std::string data = "train --steps 1 --data " + d.write("text", prose());
  for (const char* size : {"--layers 0", "--width -1", "--heads 3 --kv-heads 2", "--head-dim 15", "--batch 0",
                           "--sequence -4", "--width 4611686018427387904"})
    expect_failure(coda_command(data + " " + size), "");
  expect_usage_error(coda_command(data + " --seconds 3"), "not both");
  expect_usage_error(coda_command(data + " --layers many"), "many");
}

TEST(Train, RefusesADamagedOrForeignCheckpoint) {
  const Directory d;
  const std::string data = "train --steps 2 --data " + d.write("text", prose()), save = d.file("model");
  ASSERT_EQ(coda_command(data + small + "--save " + save).code, 0);
  const std::string whole = read_bytes(save);
  const std::string resume = data + small + "--resume ";
  expect_failure(coda_command(resume + d.file("absent")), "absent");
  expect_failure(coda_command(resume + d.write("cut", whole.substr(0, whole.size() / 2))), "cut");
  expect_failure(coda_command(data + " --width 64 --resume " + save), "");
}

TEST(Train, AFullDiskLeavesThePreviousCheckpoint) {
  const Directory d;
  const std::string save = d.write("model", "the previous one"), data = d.write("text", prose());
  const Said said = coda_command("train --steps 1 --data " + data + small + "--save " + save, "ulimit -f 8;");
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.err.find("coda: error: "), std::string::npos) << said.err;
  EXPECT_EQ(read_bytes(save), "the previous one");
  EXPECT_EQ(d.names(), (std::vector<std::string>{"model", "text"})) << "no temporary file stays";
}

}  // namespace
}  // namespace coda::test
