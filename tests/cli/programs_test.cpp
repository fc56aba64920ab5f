// coda programs, check, print, explain, and what all subcommands share.
#include <gtest/gtest.h>

#include "coda/text.hpp"
#include "command.hpp"

namespace coda::test {
namespace {

TEST(Command, HelpOfEveryCommandHasExamples) {
  const Said all = coda_command("--help");
  EXPECT_EQ(all.code, 0);
  for (const char* name : {"programs", "check", "print", "run", "explain", "verify", "bench", "train", "emit", "compile"}) {
    EXPECT_NE(all.out.find(name), std::string::npos) << name;
    const Said help = coda_command(std::string(name) + " --help");
    EXPECT_EQ(help.code, 0) << name;
    EXPECT_NE(help.out.find("Examples:\n  coda " + std::string(name)), std::string::npos) << help.out;
  }
}

TEST(Command, SaysItsVersion) {
  const Said said = coda_command("--version");
  EXPECT_EQ(said.code, 0);
  EXPECT_EQ(said.out.rfind("coda ", 0), 0u) << said.out;
}

TEST(Command, WrongUseIsExitCode2) {
  expect_usage_error(coda_command(""), "subcommand");
  expect_usage_error(coda_command("frobnicate"), "'frobnicate'");
  expect_usage_error(coda_command("check"), "FILE");
  expect_usage_error(coda_command("print linear --no-such-option"), "--no-such-option");
  expect_usage_error(coda_command("explain linear --extents M=1,N=two,K=3"), "'two'");
  expect_usage_error(coda_command("explain linear --extents M=1,N=2,M=3"), "twice");
  expect_usage_error(coda_command("print norm_rope --param D"), "NAME=VALUE");
  expect_usage_error(coda_command("print norm_rope --param D=1.5"), "whole number");
  expect_usage_error(coda_command("print linear --dtype f64"), "f64");
  expect_usage_error(coda_command("verify"), "--all");
  expect_usage_error(coda_command("verify linear --all"), "--all");
  expect_usage_error(coda_command("verify linear --device tpu"), "tpu");
  expect_usage_error(coda_command("verify linear --extents M=1,N=2"), "K is missing");
}

TEST(Command, AFullDiskBehindStandardOutputIsAnError) {
  const Said said = coda_command("programs >/dev/full");
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.err.find("coda: error: "), std::string::npos);
}

TEST(Programs, ListsEveryStandardProgram) {
  const Said said = coda_command("programs");
  EXPECT_EQ(said.code, 0);
  for (const std::string& name : standard_programs()) EXPECT_NE(said.out.find("\n" + name), std::string::npos) << name;
}

TEST(Programs, JsonNamesArgumentsAndParams) {
  const auto all = json_of(coda_command("programs --json"));
  ASSERT_EQ(all.size(), standard_programs().size());
  for (const auto& p : all) {
    if (p["name"] != "norm_rope") continue;
    EXPECT_EQ(p["params"]["D"], 128);
    EXPECT_EQ(p["arguments"][0]["name"], "A");
    EXPECT_EQ(p["arguments"][2]["name"], "rstd");
    EXPECT_EQ(p["arguments"][2]["shape"], "[M]");
    EXPECT_EQ(p["arguments"].back()["role"], "out");
  }
}

TEST(Check, PassesEveryGoodFileAndFailsWhereOneIsBad) {
  const Directory d;
  const std::string good = d.write("good.coda", print(load_program("linear")));
  const std::string bad =
      d.write("bad.coda", "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  out y: bf16[M, N] = acd\n");
  EXPECT_EQ(coda_command("check " + good + " linear").code, 0);
  const Said both = coda_command("check " + bad + " " + good);
  EXPECT_EQ(both.code, 1);
  EXPECT_NE(both.out.find("good.coda"), std::string::npos) << "the good one is still checked";
  EXPECT_NE(both.err.find(bad + ":3:"), std::string::npos) << both.err;
  const Said as_json = coda_command("check --json " + bad + " " + good);
  EXPECT_EQ(as_json.code, 1);
  const auto json = json_of(as_json);
  EXPECT_EQ(json[0]["ok"], false);
  EXPECT_EQ(json[0]["error"]["line"], 3);
  EXPECT_EQ(json[1]["ok"], true);
}

TEST(Check, RefusesWhatIsNotLocalAndSaysWhere) {
  const Directory d;
  const std::string file = d.write("softmax.coda",
                                   "program softmax\n  gemm A: bf16[M, K], B: bf16[N, K]\n"
                                   "  m, s = softmax_stats(acc, over n)\n  out p: bf16[M, N] = exp(acc - m) / s\n");
  expect_failure(coda_command("check " + file), "softmax.coda:4:");
}

TEST(Check, RefusesWhatIsNoProgramFile) {
  const Directory d;
  expect_failure(coda_command("check " + d.file("absent.coda")), "absent.coda");
  expect_failure(coda_command("check /"), "directory");
  expect_failure(coda_command("check no_such_program"), "no_such_program");
  expect_failure(coda_command("check " + d.write("empty.coda", "")), "empty.coda:1:1");
  expect_failure(coda_command("check " + d.write("bytes.coda", std::string("\0\xff\x80program", 10))), "bytes.coda");
}

TEST(Print, IsCanonicalAndReadsBackTheSame) {
  const Said said = coda_command("print norm_rope --param D=64 --param R=32");
  EXPECT_EQ(said.code, 0);
  EXPECT_EQ(parse(said.out), load_program("norm_rope", {{"D", 64}, {"R", 32}}));
}

TEST(Print, LeavesOutputsOutAndChangesTypes) {
  const Program p = parse(coda_command("print linear_cross_entropy --without logits --dtype f32").out);
  EXPECT_FALSE(p.slot("logits"));
  EXPECT_EQ(p.a_dtype, DType::f32);
  EXPECT_EQ(json_of(coda_command("print linear --json"))["text"], print(load_program("linear")));
}

TEST(Print, RefusesUnknownParamsAndOutputs) {
  expect_failure(coda_command("print linear --param D=64"), "'D'");
  expect_failure(coda_command("print linear --without z"), "z");
}

TEST(Explain, CountsByHand) {
  // linear on 2 x 3 x 4 in bf16: A 16 B, B 24 B, y 12 B, 48 FLOP; nothing to fuse.
  const auto j = json_of(coda_command("explain linear --extents M=2,N=3,K=4 --json"));
  EXPECT_EQ(j["flops"], 48);
  EXPECT_EQ(j["fused"]["bytes"], 52);
  EXPECT_EQ(j["one_pass"]["saved"], 0);
  EXPECT_EQ(j["eager"]["saved"], 0);
}

TEST(Explain, FloorsAreAtLeastTheProductsOwn) {
  const auto j = json_of(coda_command("explain norm_swiglu --extents M=8192,N=28672,K=4096 --gpu h100 --json"));
  const double product = 2.0 * 8192 * 28672 * 4096 / 989.4e12;
  EXPECT_NEAR(j["fused"]["floor_s"].get<double>(), product, 1e-9) << "enough arithmetic to hide its bytes";
  EXPECT_GT(j["one_pass"]["floor_s"].get<double>(), product);
  EXPECT_GE(j["eager"]["floor_s"].get<double>(), j["one_pass"]["floor_s"].get<double>());
  EXPECT_EQ(coda_command("explain norm_swiglu --extents M=8192,N=28672,K=4096").code, 0);
}

TEST(Explain, SaysWhatTakesTwoPassesOnAGpuAndWhy) {
  const std::string sizes = " --extents M=4096,N=7680,K=2560";
  const auto fused = json_of(coda_command("explain norm_rope" + sizes + " --json"));
  EXPECT_TRUE(fused["two_pass"].is_null());
  const auto two = json_of(coda_command("explain norm_rope --param D=80 --param R=32" + sizes + " --json"));
  EXPECT_NE(two["two_pass"].get<std::string>().find("runs of 8"), std::string::npos) << two["two_pass"];
  EXPECT_NE(coda_command("explain norm_rope --param D=80 --param R=32" + sizes).out.find("runs in two passes"), std::string::npos);
}

TEST(Explain, RefusesSizesThatMakeNoSense) {
  expect_failure(coda_command("explain linear --extents M=0,N=2,K=3"), "M = 0");
  expect_failure(coda_command("explain linear --extents M=-5,N=2,K=3"), "M = -5");
  expect_failure(coda_command("explain linear --extents M=4294967296,N=4294967296,K=4"), "overflow");
  expect_failure(coda_command("explain linear --extents M=99999999999999999999,N=2,K=3"), "64 bits");
  expect_failure(coda_command("explain linear --extents M=2,N=3"), "K");
  expect_failure(coda_command("explain linear --extents M=2,N=3,K=4,P=5"), "P");
  expect_failure(coda_command("explain norm_swiglu --extents M=2,N=3,K=4"), "multiple of 2");
  expect_failure(coda_command("explain norm_rope --extents M=2,N=100,K=4"), "multiple of 128");
  expect_failure(coda_command("explain linear --extents M=2,N=3,K=4 --gpu abacus"), "h200");
}

}  // namespace
}  // namespace coda::test
