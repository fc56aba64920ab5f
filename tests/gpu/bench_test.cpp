// coda bench on a program of one's own: every side is timed, outputs agree, the CSV has its columns.
#include <gtest/gtest.h>

#include <algorithm>

#include "coda/error.hpp"
#include "coda/text.hpp"
#include "cuda/bench/bench.hpp"

namespace coda::test {
namespace {

TEST(Bench, of_a_program_of_ones_own_times_it_the_product_and_the_unfused_sequence) {
  const Program mine = parse(
      "program mine\n"
      "  gemm A: f16[M, K], B: f16[N, K]\n"
      "  in scale: f32[]\n"
      "  in bias: f32[N]\n"
      "  y = gelu(acc * scale + bias)\n"
      "  out y: f16[M, N] = y\n"
      "  out total: f32[M, N] += y\n"
      "  finish largest: f32[M] = max(y, over n)\n");
  std::vector<cuda::BenchCase> cases = {cuda::own_case("mine", mine, {512, 520, 256}, {})};
  for (const char* name : {"linear", "norm_swiglu", "norm_backward", "weight_grad"}) cases.push_back(cuda::own_case(name, load_program(name), {384, 512, 256}, {}));
  cuda::BenchOptions options;
  options.repeats = 3;
  options.sustained.block_ms = 2;
  options.sustained.rounds = 1;
  std::size_t rows = 0;
  try {
    cuda::bench(cases, options, [&](const cuda::BenchRow& r) {
      ++rows;
      EXPECT_EQ(r.fault, "") << r.what.name();
      EXPECT_EQ(r.different, "") << r.what.name() << " " << r.difference;
      EXPECT_GT(r.sustained_ms, 0) << r.what.name();
      EXPECT_GT(r.sustained_cublas_ms, 0) << r.what.name();
      EXPECT_EQ(r.sustained_unfused_ms > 0, r.what.program != "linear") << r.what.name();
      const std::string header = cuda::csv_header(), line = cuda::csv_line(r, "today", "commit", options);
      EXPECT_GE(std::count(line.begin(), line.end(), ','), std::count(header.begin(), header.end(), ','));
    });
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::unsupported) GTEST_SKIP() << e.what();
    throw;
  }
  EXPECT_EQ(rows, cases.size());
}

}  // namespace
}  // namespace coda::test
