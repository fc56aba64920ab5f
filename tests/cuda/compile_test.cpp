// Every standard program compiles for Hopper in several configurations, without a GPU, and spills next to nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "coda/error.hpp"
#include "coda/text.hpp"
#include "cuda/cache.hpp"
#include "cuda/compile_report.hpp"
#include "cuda/emit.hpp"
#include "cuda/module.hpp"
#include "cuda/nvrtc.hpp"
#include "plan/plan.hpp"
#include "support/reduction_programs.hpp"

namespace coda::cuda {
namespace {

bool have_nvrtc() {
  try {
    nvrtc_version();
    return true;
  } catch (const Error&) {
    return false;
  }
}

class Compile : public ::testing::TestWithParam<std::string> {};

TEST_P(Compile, makes_every_configuration_with_at_most_64_bytes_of_spills) {
  if (!have_nvrtc()) GTEST_SKIP() << "no NVRTC here";
  for (const CompileRow& r : compile_report(load_program(GetParam()))) {
    fmt::print("{:28} {:40} {:.2f} s, {} registers, {} + {} bytes of spills, {} bytes of shared memory, {} bytes of code\n", r.program, r.config, r.seconds,
               r.usage.registers, r.usage.spill_store_bytes, r.usage.spill_load_bytes, r.shared_bytes, r.code_bytes);
    EXPECT_LE(r.usage.spill_store_bytes, 64) << r.config;
    EXPECT_LE(r.usage.spill_load_bytes, 64) << r.config;
    EXPECT_FALSE(r.usage.serialised) << r.config << ": the compiler serialises its products";
    EXPECT_EQ(r.usage.static_shared_bytes, 0) << r.config;
    EXPECT_LE(r.shared_bytes, max_shared_bytes) << r.config;
  }
}

INSTANTIATE_TEST_SUITE_P(StandardPrograms, Compile, ::testing::ValuesIn(standard_programs()), [](const auto& info) { return info.param; });

TEST(Reductions, of_every_kind_compile) {
  if (!have_nvrtc()) GTEST_SKIP() << "no NVRTC here";
  for (const Program& p : test::reduction_programs()) {
    const auto rows = compile_report(p, "sm_90a", 1);
    EXPECT_FALSE(rows.empty()) << p.name;
    for (const CompileRow& r : rows) EXPECT_LE(r.usage.spill_store_bytes, 512) << p.name << " as " << r.config;
  }
}

TEST(CompileReport, refuses_other_architectures) {
  EXPECT_THROW(compile_report(load_program("linear"), "sm_80"), Error);
}

TEST(Code, comes_from_the_cache_the_second_time_and_is_named_by_everything_it_depends_on) {
  if (!have_nvrtc()) GTEST_SKIP() << "no NVRTC here";
  const auto directory = std::filesystem::path(::testing::TempDir()) / fmt::format("coda-code-test-{}", getpid());
  DiskCache cache(directory.string());
  const Program p = load_program("linear");
  const Problem problem{.m = 512, .n = 512, .k = 512};
  const auto plans = candidates(demand_of(p), problem);
  const Emitted kernel = emit(p, plans.at(0).config);
  const Compiled cold = code_of(kernel, cache), warm = code_of(kernel, cache);
  EXPECT_GT(cold.seconds, 0);
  EXPECT_EQ(warm.seconds, 0) << "it was compiled again";
  EXPECT_EQ(warm.code, cold.code);
  EXPECT_EQ(warm.usage, cold.usage);
  EXPECT_NE(code_key(kernel), code_key(emit(p, plans.at(1).config)));
  EXPECT_NE(code_key(kernel), code_key(emit(load_program("linear_bias"), plans.at(0).config)));
  EXPECT_NE(code_key(kernel), code_key(kernel, {.defines = {"X=1"}}));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace coda::cuda
