// What a run takes in memory beside its arguments: tiles and vectors, never a matrix.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "coda/inputs.hpp"
#include "coda/text.hpp"

namespace {

using namespace coda;

/// A line of /proc/self/status in KiB.
std::int64_t status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::stoll(line.substr(key.size() + 1));
  }
  return -1;
}

TEST(Memory, statistics_of_a_product_take_a_small_part_of_it) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer keeps freed memory";
#endif
  const Program p = load_program("linear_cross_entropy").with_dtype(DType::f32).without("logits");
  const Inputs in = make_inputs(p, {.extents = {4096, 16384, 4}, .symbols = {}, .seed = 1});  // a product of 256 MiB
  std::ofstream reset("/proc/self/clear_refs");
  if (!(reset << "5" << std::flush)) GTEST_SKIP() << "the peak can't be reset here";
  const std::int64_t before = status("VmHWM");
  cpu::run(p, in.slots, {.threads = 2});
  const std::int64_t after = status("VmHWM");
  ASSERT_GT(before, 0);
  EXPECT_LT(after - before, 24 << 10) << "KiB";
}

}  // namespace
