// Programs that no tile can hold: why, what is emitted, and that it computes what it should, by emulation on the host.
#include "cuda/emit_two_pass.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "coda/compare.hpp"
#include "coda/inputs.hpp"
#include "coda/text.hpp"
#include "cuda/compile_report.hpp"
#include "cuda/nvrtc.hpp"
#include "emulation/emulate.hpp"
#include "support/random_program.hpp"
#include "support/untiled_programs.hpp"

namespace coda::test {
namespace {

std::int64_t round_up(std::int64_t v, std::int64_t unit) { return (v + unit - 1) / unit * unit; }

std::string reason(const Program& p) { return why_two_pass(p, {.m = 512, .n = round_up(512, column_divisor(p)), .k = 512}).value_or(""); }

TEST(TwoPass, is_the_way_of_what_no_tile_can_hold_and_of_nothing_else) {
  for (const UntiledProgram& u : untiled_programs()) EXPECT_NE(reason(u.program).find(u.reason), std::string::npos) << u.name << ": " << reason(u.program);
  for (const std::string& name : standard_programs()) EXPECT_EQ(reason(load_program(name)), "") << name;
}

TEST(TwoPass, has_a_page_one_can_read) {
  const Program p = load_program("norm_qknorm_rope", {{"D", 80}});
  const TwoPass two = emit_two_pass(p, choose(demand_of(product_alone(p)), {.m = 512, .n = 512, .k = 512}).config);
  const std::string path = CODA_SOURCE_DIR "/tests/cuda/golden/norm_qknorm_rope_two_pass.cu";
  if (std::getenv("CODA_WRITE_GOLDEN") != nullptr) std::ofstream(path) << two.epilogue.source;
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(golden.str(), two.epilogue.source) << path << " differs; run with CODA_WRITE_GOLDEN=1 to write it again";
}

TEST(TwoPass, compiles_without_spills) {
  try {
    cuda::nvrtc_version();
  } catch (const Error&) {
    GTEST_SKIP() << "no NVRTC here";
  }
  for (const UntiledProgram& u : untiled_programs())
    for (const cuda::CompileRow& r : cuda::compile_report(u.program, "sm_90a", 1)) {
      EXPECT_TRUE(r.config.starts_with("two_pass")) << r.config;
      EXPECT_EQ(r.usage.spill_store_bytes, 0) << u.name << " as " << r.config;
    }
}

/// Runs a program on ragged extents by several numbers of blocks, each in both orders, and judges the outputs by fp64.
class Judge {
 public:
  explicit Judge(std::vector<Program> programs) : programs_(std::move(programs)), emulation_(programs_) {}

  void judge(std::size_t index, std::int64_t m, std::int64_t n, std::int64_t k, int blocks) const {
    const Program& p = programs_[index];
    InputOptions o;
    o.extents = {m, round_up(n, column_divisor(p)), k};
    o.seed = index + 1;
    const Inputs inputs = make_inputs(p, o);
    const Expected expected = expect(p, inputs.slots);
    std::vector<std::vector<unsigned char>> first;
    for (const bool backwards : {false, true}) {
      Inputs run = make_inputs(p, o);
      EXPECT_EQ(emulation_.run(index, run.slots, blocks, backwards), "") << print(p);
      std::vector<Tensor> outputs;
      std::vector<std::vector<unsigned char>> bytes;
      const auto declared = p.slots();
      for (std::size_t i = 0; i < declared.size(); ++i) {
        const Tensor& t = run.slots[i];
        const std::size_t size = static_cast<std::size_t>(t.numel()) * size_of(t.dtype);
        if (declared[i].role == Slot::Role::output) {
          outputs.push_back(t);
          bytes.emplace_back(t.as<unsigned char>(), t.as<unsigned char>() + size);
        } else if (size > 0) {
          EXPECT_EQ(std::memcmp(t.data, inputs.slots[i].data, size), 0) << declared[i].name << " was written";
        }
      }
      for (const OutputError& e : compare(p, expected, outputs))
        EXPECT_TRUE(e.ok) << describe(e) << "\n" << o.extents.m << " x " << o.extents.n << " x " << k << ", " << blocks << " blocks\n" << print(p);
      if (backwards) {
        EXPECT_EQ(bytes, first) << "the order of blocks and threads matters\n" << print(p);
      }
      first = std::move(bytes);
    }
  }

 private:
  std::vector<Program> programs_;
  Emulation emulation_;
};

TEST(TwoPass, computes_what_fp64_does) {
  if (!HostLibrary::possible()) GTEST_SKIP() << "no C++ compiler at " << CODA_CXX;
  std::vector<Program> programs;
  for (const UntiledProgram& u : untiled_programs()) programs.push_back(u.program);
  for (const std::string& name : standard_programs()) programs.push_back(load_program(name));
  const Judge judge(programs);
  const std::size_t untiled = untiled_programs().size();
  for (std::size_t i = 0; i < programs.size(); ++i) {
    judge.judge(i, 5, 270, 24, 3);
    if (i >= untiled) continue;
    judge.judge(i, 2, 1, 8, 528);
    judge.judge(i, 0, 40, 8, 4);
    judge.judge(i, 3, 0, 8, 4);
    judge.judge(i, 3, 40, 0, 4);
  }
}

TEST(TwoPass, computes_what_fp64_does_for_random_programs) {
  if (!HostLibrary::possible()) GTEST_SKIP() << "no C++ compiler at " << CODA_CXX;
  std::vector<Program> programs;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) programs.push_back(random_program(seed, {.fp8 = seed % 3 == 0}));
  const Judge judge(programs);
  for (std::size_t i = 0; i < programs.size(); ++i) judge.judge(i, 5, 70, 16, 2);
}

}  // namespace
}  // namespace coda::test
