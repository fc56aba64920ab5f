// coda run and coda verify: good tensors, bad ones, and disks that fill up.
#include <gtest/gtest.h>

#include <cmath>

#include "coda/safetensors.hpp"
#include "command.hpp"

namespace coda::test {
namespace {

/// Named tensors from numbers.
class Tensors {
 public:
  Tensors& add(const std::string& name, std::vector<std::int64_t> shape, std::vector<double> values,
               DType t = DType::f32) {
    HostTensor tensor(t, shape);
    for (std::size_t i = 0; i < values.size(); ++i) store(tensor, static_cast<std::int64_t>(i), values[i]);
    names_.push_back(name);
    tensors_.push_back(std::move(tensor));
    return *this;
  }
  std::string write(const std::string& path) const {
    std::vector<NamedTensor> named;
    for (std::size_t i = 0; i < names_.size(); ++i) named.push_back({names_[i], tensors_[i].view()});
    write_safetensors(path, named);
    return path;
  }

 private:
  std::vector<std::string> names_;
  std::vector<HostTensor> tensors_;
};

/// residual_norm on one row: x = 3·1 + 0 = 3 and 4·1 + 0 = 4; rstd = 1/sqrt(12.5).
Tensors one_row() {
  Tensors t;
  t.add("A", {1, 1}, {1}).add("B", {2, 1}, {3, 4}).add("residual", {1, 2}, {0, 0}).add("w", {2}, {1, 2});
  return t;
}

TEST(Run, ComputesWhatTheFormulaSays) {
  const Directory d;
  const std::string in = one_row().write(d.file("in.safetensors")), out = d.file("out.safetensors");
  const Said said = coda_command("run residual_norm --dtype f32 --set eps=0 --json --in " + in + " --out " + out);
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(json_of(said)["outputs"]["x"]["type"], "f32[1, 2]");
  const SafetensorsFile file(out);
  EXPECT_EQ(file.metadata().at("program"), "residual_norm");
  EXPECT_EQ(load(file.read("x"), 1), 4);
  EXPECT_EQ(load(file.read("h"), 1), 8);
  EXPECT_NEAR(load(file.read("rstd"), 0), 1 / std::sqrt(12.5), 1e-7);
  EXPECT_EQ(d.names(), (std::vector<std::string>{"in.safetensors", "out.safetensors"})) << "no temporary file stays";
}

TEST(Run, StoresEveryTypeAndTakesScalarsFromTheFile) {
  const Directory d;
  const std::string in = Tensors()
                             .add("A", {1, 2}, {1, 2}, DType::bf16)
                             .add("B", {3, 2}, {1, 0, 0, 1, 1, 1}, DType::bf16)
                             .add("scale", {1}, {2})
                             .write(d.file("in.safetensors"));
  const std::string out = d.file("out.safetensors");
  const Said said = coda_command("run linear_quantise --in " + in + " --out " + out);
  ASSERT_EQ(said.code, 0) << said.err;
  const SafetensorsFile file(out);
  EXPECT_EQ(file.find("q")->dtype_name, "F8_E4M3");
  EXPECT_EQ(file.find("qt")->shape, (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(load(file.read("q"), 2), 6);
  EXPECT_EQ(load(file.read("amax"), 0), 3);
}

TEST(Run, AccumulatesOntoTheFilesTensorOrZero) {
  const Directory d;
  const std::string out = d.file("out.safetensors");
  Tensors tensors;
  tensors.add("A", {1, 1}, {2}, DType::bf16).add("B", {1, 1}, {3}, DType::bf16);
  ASSERT_EQ(coda_command("run weight_grad --in " + tensors.write(d.file("a")) + " --out " + out).code, 0);
  EXPECT_EQ(load(SafetensorsFile(out).read("dw"), 0), 6);
  tensors.add("dw", {1, 1}, {10});
  ASSERT_EQ(coda_command("run weight_grad --in " + tensors.write(d.file("b")) + " --out " + out).code, 0);
  EXPECT_EQ(load(SafetensorsFile(out).read("dw"), 0), 16);
}

TEST(Run, LeavesOutputsOut) {
  const Directory d;
  const std::string in = one_row().write(d.file("in")), out = d.file("out");
  ASSERT_EQ(coda_command("run residual_norm --dtype f32 --without rstd --without h --in " + in + " --out " + out).code,
            0);
  EXPECT_EQ(SafetensorsFile(out).entries().size(), 1u);
}

/// Runs residual_norm on `in`; it must fail with `part` and leave no file behind.
void expect_run_fails(const Directory& d, const std::string& in, const std::string& part,
                      const std::string& options = "--set eps=0") {
  const std::size_t before = d.names().size();
  expect_failure(coda_command("run residual_norm --dtype f32 " + options + " --in " + in + " --out " + d.file("never")),
                 part);
  EXPECT_EQ(d.names().size(), before) << "something was written";
}

TEST(Run, RefusesFilesItCantRead) {
  const Directory d;
  const std::string in = one_row().write(d.file("in")), whole = read_bytes(in);
  expect_run_fails(d, d.file("absent"), "absent");
  expect_run_fails(d, "/", "/");
  expect_run_fails(d, d.write("empty", ""), "empty");
  expect_run_fails(d, d.write("text", "this is no safetensors file at all"), "text");
  expect_run_fails(d, d.write("header", whole.substr(0, 20)), "header");
  expect_run_fails(d, d.write("data", whole.substr(0, whole.size() - 1)), "data");
  expect_run_fails(d, d.write("long", whole + "x"), "long");
}

TEST(Run, RefusesTensorsThatDontFit) {
  const Directory d;
  expect_run_fails(d, one_row().add("eps", {}, {0}, DType::bf16).write(d.file("a")), "eps", "");
  expect_run_fails(d, one_row().write(d.file("b")), "'eps'", "");
  expect_run_fails(d, Tensors().add("A", {1, 1}, {1}).write(d.file("c")), "'B'");
  expect_run_fails(d,
                   Tensors()
                       .add("A", {1}, {1})
                       .add("B", {2, 1}, {3, 4})
                       .add("residual", {1, 2}, {0, 0})
                       .add("w", {2}, {1, 1})
                       .write(d.file("e")),
                   "'A'");
  expect_run_fails(d,
                   Tensors()
                       .add("A", {1, 1}, {1})
                       .add("B", {2, 1}, {3, 4})
                       .add("residual", {1, 3}, {0, 0, 0})
                       .add("w", {2}, {1, 1})
                       .write(d.file("f")),
                   "'residual'");
  const std::string in = one_row().write(d.file("g"));
  expect_failure(coda_command("run residual_norm --set eps=0 --in " + in + " --out " + d.file("never")), "--dtype");
  expect_run_fails(d, in, "'w'", "--set eps=0 --set w=1");
  expect_run_fails(d, in, "nonesuch", "--set eps=0 --set nonesuch=1");
  expect_usage_error(
      coda_command("run residual_norm --dtype f32 --set eps=tiny --in " + in + " --out " + d.file("never")), "tiny");
}

TEST(Run, RefusesNaNUnlessItIsAllowed) {
  const Directory d;
  const std::string in = Tensors()
                             .add("A", {1, 1}, {1})
                             .add("B", {2, 1}, {3, NAN})
                             .add("residual", {1, 2}, {0, 0})
                             .add("w", {2}, {1, 1})
                             .write(d.file("in"));
  expect_run_fails(d, in, "'B' has a NaN, at [1, 0]");
  EXPECT_EQ(
      coda_command("run residual_norm --dtype f32 --set eps=0 --allow-nan --in " + in + " --out " + d.file("out")).code,
      0);
}

TEST(Run, RefusesATargetThatIsNoClass) {
  const Directory d;
  Tensors t;
  t.add("A", {2, 1}, {1, 1}).add("B", {3, 1}, {1, 2, 3}).add("target", {2}, {0, 3}, DType::i64);
  expect_failure(coda_command("run linear_cross_entropy --dtype f32 --set ignore=-100 --in " + t.write(d.file("in")) +
                              " --out " + d.file("never")),
                 "target");
  EXPECT_EQ(d.names().size(), 1u);
}

TEST(Run, AFileThatCantBeWrittenLeavesThePreviousOne) {
  const Directory d;
  Tensors t;
  t.add("A", {200, 1}, std::vector<double>(200, 1)).add("B", {200, 1}, std::vector<double>(200, 1));
  const std::string in = t.write(d.file("in")), out = d.write("out", "what was there before");
  const std::string run = "run linear --dtype f32 --in " + in + " --out ";
  // 160 kB of results against a limit of 8 blocks of 512 or 1024 bytes stands for a full disk.
  expect_failure(coda_command(run + out, "ulimit -f 8;"), "out");
  EXPECT_EQ(read_bytes(out), "what was there before");
  expect_failure(coda_command(run + d.file("no/such/place")), "no/such/place");
  EXPECT_EQ(d.names(), (std::vector<std::string>{"in", "out"})) << "no temporary file stays";
}

TEST(Run, SaysPlainlyThatADeviceCantBeHad) {
  const Directory d;
  const std::string in = one_row().write(d.file("in"));
  const Said said =
      coda_command("run residual_norm --dtype f32 --set eps=0 --device cuda --in " + in + " --out " + d.file("out"),
                   "CUDA_VISIBLE_DEVICES=-1;export CUDA_VISIBLE_DEVICES;");
  expect_failure(said, "");
  EXPECT_EQ(d.names().size(), 1u);
}

TEST(Verify, PassesAStandardProgramAndSaysSoInJson) {
  const auto json = json_of(coda_command("verify norm_swiglu --extents M=9,N=14,K=5 --extents M=64,N=32,K=16 --json"));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["ok"], true);
  EXPECT_EQ(json[0]["extents"]["M"], 9);
  EXPECT_EQ(json[0]["outputs"][1]["name"], "y");
  EXPECT_GT(json[0]["outputs"][1]["unfused_rms"].get<double>(), 0);
}

TEST(Verify, RefusesSizesThatMakeNoSense) {
  expect_failure(coda_command("verify linear --extents M=0,N=2,K=3"), "M = 0");
  expect_failure(coda_command("verify norm_swiglu --extents M=2,N=3,K=4"), "N");
  expect_failure(coda_command("verify linear --extents M=4611686018427387904,N=2,K=4"), "");
}

}  // namespace
}  // namespace coda::test
