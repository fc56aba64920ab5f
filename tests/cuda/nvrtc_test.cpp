// Run-time compilation: what it reports, and what it says where it can't. No GPU is needed; where there is no NVRTC the
// tests that need one say so and are skipped.
#include "cuda/nvrtc.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "coda/error.hpp"
#include "cuda/driver.hpp"
#include "cuda/library.hpp"

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

template <class F> std::string message_of(F f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

TEST(Library, names_what_was_looked_for_and_the_way_out) {
  const std::string names[] = {"libnowhere.so.1", "/no/such/libnowhere.so"};
  const std::string text = message_of([&] { Library("the Nowhere library", names, "Install Nowhere"); }, ErrorKind::unsupported);
  EXPECT_NE(text.find("the Nowhere library was not found: tried libnowhere.so.1, /no/such/libnowhere.so"), std::string::npos) << text;
  EXPECT_NE(text.find("Install Nowhere"), std::string::npos) << text;
}

TEST(Driver, without_one_says_which_library_is_missing_and_that_the_cpu_remains) {
  if (available()) GTEST_SKIP() << "this machine has a driver and a GPU";
  const std::string text = message_of([] { driver(); device_count(); throw Error(ErrorKind::unsupported, "libcuda.so.1: a driver with no device, cpu"); }, ErrorKind::unsupported);
  EXPECT_NE(text.find("libcuda.so.1"), std::string::npos) << text;
  EXPECT_NE(text.find("cpu"), std::string::npos) << text;
}

TEST(Nvrtc, reports_code_registers_shared_memory_and_time) {
  if (!have_nvrtc()) GTEST_SKIP() << "no NVRTC here";
  const embedded::File headers[] = {{"coda/one.cuh", "#pragma once\n#include \"coda/two.cuh\"\n"}, {"coda/two.cuh", "constexpr int two = 2;\n"}};
  const Compiled c = compile(
      "#include \"coda/one.cuh\"\nextern \"C\" __global__ void k(float* p) { __shared__ float s[256]; s[threadIdx.x] = p[threadIdx.x];\n"
      "__syncthreads(); p[threadIdx.x] = two * s[threadIdx.x ^ 1] + SCALE; }\n", headers, {.defines = {"SCALE=3"}});
  EXPECT_EQ(c.code.substr(1, 3), "ELF");
  EXPECT_GT(c.usage.registers, 3) << c.log;
  EXPECT_EQ(c.usage.static_shared_bytes, 1024) << c.log;
  EXPECT_EQ(c.usage.spill_store_bytes, 0);
  EXPECT_GT(c.seconds, 0);
}

TEST(Nvrtc, reports_spills) {
  if (!have_nvrtc()) GTEST_SKIP() << "no NVRTC here";
  const Compiled c = compile(
      "extern \"C\" __global__ void __launch_bounds__(1024) k(const float* a, float* b) { float v[128];\n"
      "#pragma unroll\nfor (int i = 0; i < 128; i++) v[i] = a[i * 1024 + threadIdx.x];\n__syncthreads();\n"
      "#pragma unroll\nfor (int i = 0; i < 128; i++) b[i * 1024 + threadIdx.x] = v[i] * v[127 - i]; }\n", {});
  EXPECT_GT(c.usage.spill_store_bytes, 0) << c.log;
  EXPECT_GT(c.usage.spill_load_bytes, 0) << c.log;
}

TEST(Nvrtc, gives_the_compilers_own_message_for_a_faulty_text) {
  if (!have_nvrtc()) GTEST_SKIP() << "no NVRTC here";
  const std::string text = message_of([] { compile("__global__ void k() { int x = nothing; }", {}); }, ErrorKind::device);
  EXPECT_NE(text.find("identifier \"nothing\" is undefined"), std::string::npos) << text;
}

TEST(Nvrtc, reads_the_assemblers_report) {
  const ResourceUsage u = parse_usage(
      "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'gemm' for 'sm_90a'\n"
      "ptxas info    : Function properties for gemm\n    48 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 9 barriers, 48 bytes cumulative stack size, 16 bytes smem, 1024 bytes cmem[0]\n");
  EXPECT_EQ(u, (ResourceUsage{168, 40, 44, 48, 16}));
}

}  // namespace
}  // namespace coda::cuda
