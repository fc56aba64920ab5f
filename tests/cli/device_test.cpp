// coda bench, emit and compile: what they say without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "coda/kernel.hpp"
#include "coda/text.hpp"
#include "command.hpp"

namespace coda::test {
namespace {

TEST(Bench, TimesAProgramBesideItsProduct) {
  const Directory d;
  const std::string csv = d.file("bench.csv");
  const Said said = coda_command("bench norm_swiglu --extents M=64,N=96,K=32 --repeats 2 --json --csv " + csv);
  ASSERT_EQ(said.code, 0) << said.err;
  const auto json = json_of(said);
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0]["dtype"], "f32");
  EXPECT_EQ(json[0]["N"], 96);
  EXPECT_GT(json[0]["product_s"].get<double>(), 0);
  EXPECT_GT(json[0]["fused_s"].get<double>(), 0);
  const std::string text = read_bytes(csv);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << "a header and a line: " << text;
  const Said table = coda_command("bench linear --extents M=64,N=96,K=32 --repeats 1 --no-separate");
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("Geometric mean"), std::string::npos);
}

TEST(Bench, RefusesWhatItCantTime) {
  expect_usage_error(coda_command("bench"), "--all");
  expect_usage_error(coda_command("bench linear --clock sundial"), "sundial");
  expect_usage_error(coda_command("bench linear --tune"), "cuda");
  expect_failure(coda_command("bench linear --extents M=-1,N=2,K=3"), "M = -1");
  expect_failure(coda_command("bench linear --extents M=8,N=8,K=8 --repeats 1 --csv /dev/full"), "/dev/full");
}

TEST(BenchOnCuda, SaysWhatItCantDo) {
  const std::string cuda = " --device cuda";
  expect_usage_error(coda_command("bench linear --extents M=8,N=8 " + cuda), "K is missing");
  expect_usage_error(coda_command("bench linear --filter fused --extents M=8,N=8,K=8" + cuda), "--filter");
  expect_failure(coda_command("bench --all --filter no_such_case" + cuda), "no_such_case");
  expect_failure(coda_command("bench no_such_program" + cuda), "no_such_program");
  if (cuda_available()) return;
  const Directory d;
  for (const char* what : {"linear", "--all", "norm_geglu", "norm_swiglu --extents M=64,N=96,K=32 --json"})
    expect_failure(coda_command(std::string("bench ") + what + cuda), "driver");
  const std::string csv = d.file("bench.csv");
  expect_failure(coda_command("bench linear --extents M=64,N=96,K=32 --csv " + csv + cuda), "driver");
}

TEST(Emit, PrintsAPageForEveryConfigurationItLists) {
  const auto listed = json_of(coda_command("emit norm_swiglu --list --json --extents M=512,N=1024,K=256"));
  ASSERT_FALSE(listed["configurations"].empty());
  const std::string name = listed["configurations"].back();
  const Said page = coda_command("emit norm_swiglu " + name + " --extents M=512,N=1024,K=256");
  ASSERT_EQ(page.code, 0) << page.err;
  EXPECT_NE(page.out.find("__global__"), std::string::npos);
  EXPECT_EQ(json_of(coda_command("emit norm_swiglu " + name + " --extents M=512,N=1024,K=256 --json"))["config"], name);
}

TEST(Emit, RefusesAConfigurationThatDoesntExist) {
  expect_failure(coda_command("emit norm_swiglu pp1x1"), "--list");
  expect_failure(coda_command("emit no_such_program"), "no_such_program");
}

TEST(Compile, ReportsWhatTheCompilerMakesOfAKernel) {
  if (const char* nvrtc = std::getenv("CODA_NVRTC"); !nvrtc || std::string(nvrtc) == "none")
    GTEST_SKIP() << "no NVRTC on this machine (CODA_NVRTC)";
  const auto json = json_of(coda_command("compile norm_swiglu --most 1 --max-spill 64 --json"));
  ASSERT_EQ(json.size(), 1u);
  EXPECT_GT(json[0]["registers"].get<int>(), 0);
  EXPECT_GT(json[0]["seconds"].get<double>(), 0);
}

TEST(Compile, TakesAConfigurationByName) {
  if (const char* nvrtc = std::getenv("CODA_NVRTC"); !nvrtc || std::string(nvrtc) == "none")
    GTEST_SKIP() << "no NVRTC on this machine (CODA_NVRTC)";
  const auto json = json_of(coda_command("compile linear --config pp64x96_c21_s8_e32x2p2_kk --json"));
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0]["config"], "pp64x96_c21_s8_e32x2p2_kk");
  EXPECT_EQ(json[0]["serialised"], false);
  expect_failure(coda_command("compile linear --config pp1x1"), "--list");
  expect_failure(coda_command("compile linear --config pp64x96_c21_s8_e32x2p2_kk --arch sm_80"), "sm_");
  EXPECT_EQ(json_of(coda_command("compile linear --config two_pass_pp64x96_c21_s8_e32x1p2_kk --json")).size(), 2u) << "two passes";
  expect_usage_error(coda_command("compile --all --config pp64x96_c21_s8_e32x2p2_kk"), "--config");
}

TEST(Compile, RefusesAnotherArchitecture) { expect_failure(coda_command("compile linear --arch sm_80"), "sm_"); }

}  // namespace
}  // namespace coda::test
