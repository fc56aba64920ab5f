// The C interface: statuses and messages, slots, DLPack-compatible views, runs on the CPU, C99.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "coda/coda.h"

namespace {

constexpr const char* scaled = R"(program scaled
  param S = 2
  gemm A: f32[M, K], B: f32[N, K]
  in bias: f32[N]
  out y: f32[M, N] = S * acc + bias
  out total: f32[M, N] += acc
)";

struct Program {
  explicit Program(const char* text, std::vector<coda_param> params = {}) { status = coda_program_parse(text, params.data(), static_cast<int32_t>(params.size()), &p); }
  ~Program() { coda_program_free(p); }
  coda_program* p = nullptr;
  coda_status status;
};

// A view as DLPack makes it.
struct View {
  View(std::vector<float>& data, std::vector<std::int64_t> extents) : shape(std::move(extents)) {
    t.data = data.data();
    t.device = {CODA_CPU, 0};
    t.ndim = static_cast<int32_t>(shape.size());
    t.dtype = {CODA_FLOAT, 32, 1};
    t.shape = shape.data();
  }
  std::vector<std::int64_t> shape, strides;
  coda_tensor t{};
};

TEST(CInterface, reports_a_syntax_error_with_its_place) {
  const Program p("program p\n  gemm A: bf16[M, K]\n");
  EXPECT_EQ(p.status, CODA_ERROR_SYNTAX);
  EXPECT_NE(std::string(coda_last_error()).find(":2:"), std::string::npos) << coda_last_error();
  EXPECT_EQ(p.p, nullptr);
}

TEST(CInterface, keeps_a_message_for_each_thread) {
  const Program p("nonsense");
  const std::string mine = coda_last_error();
  std::string before, after;
  std::thread([&] {
    before = coda_last_error();
    coda_program* none = nullptr;
    coda_program_load("no_such_program", nullptr, 0, &none);
    after = coda_last_error();
  }).join();
  EXPECT_EQ(before, "");
  EXPECT_NE(after.find("no_such_program"), std::string::npos);
  EXPECT_EQ(coda_last_error(), mine);
}

TEST(CInterface, refuses_null_and_wrong_indices_without_harm) {
  coda_program* out = nullptr;
  EXPECT_EQ(coda_program_parse(nullptr, nullptr, 0, &out), CODA_ERROR_VALUE);
  EXPECT_EQ(coda_program_parse(scaled, nullptr, 0, nullptr), CODA_ERROR_VALUE);
  EXPECT_EQ(coda_run(nullptr, nullptr, 0, nullptr), CODA_ERROR_VALUE);
  EXPECT_EQ(coda_kernel_create(nullptr, nullptr, nullptr), CODA_ERROR_VALUE);
  coda_program_free(nullptr);
  coda_kernel_free(nullptr);
  const Program p(scaled);
  coda_slot slot;
  EXPECT_EQ(coda_program_slot(p.p, 5, &slot), CODA_ERROR_VALUE);
  EXPECT_EQ(coda_program_slot(p.p, -1, &slot), CODA_ERROR_VALUE);
  EXPECT_EQ(coda_program_find_slot(p.p, "x"), -1);
  EXPECT_EQ(coda_standard_program_name(-1), nullptr);
}

TEST(CInterface, describes_slots_in_order) {
  const Program p(scaled);
  ASSERT_EQ(p.status, CODA_OK) << coda_last_error();
  ASSERT_EQ(coda_program_slot_count(p.p), 5);
  struct Expected { const char *name, *shape; coda_role role; int accumulate; };
  const Expected expected[] = {{"A", "[M, K]", CODA_ROLE_A, 0}, {"B", "[N, K]", CODA_ROLE_B, 0}, {"bias", "[N]", CODA_ROLE_OPERAND, 0},
                               {"y", "[M, N]", CODA_ROLE_OUTPUT, 0}, {"total", "[M, N]", CODA_ROLE_OUTPUT, 1}};
  for (int32_t i = 0; i < 5; ++i) {
    coda_slot s;
    ASSERT_EQ(coda_program_slot(p.p, i, &s), CODA_OK);
    const Expected& e = expected[i];
    EXPECT_STREQ(s.name, e.name);
    EXPECT_STREQ(s.shape, e.shape);
    EXPECT_EQ(s.role, e.role);
    EXPECT_EQ(s.accumulate, e.accumulate);
    EXPECT_EQ(s.dtype_code, CODA_FLOAT);
    EXPECT_EQ(s.dtype_bits, 32);
    EXPECT_EQ(coda_program_find_slot(p.p, e.name), i);
  }
  EXPECT_STREQ(coda_program_name(p.p), "scaled");
}

TEST(CInterface, lists_and_loads_the_standard_programs) {
  const int32_t count = coda_standard_program_count();
  EXPECT_GE(count, 12);
  for (int32_t i = 0; i < count; ++i) {
    coda_program* p = nullptr;
    EXPECT_EQ(coda_program_load(coda_standard_program_name(i), nullptr, 0, &p), CODA_OK) << coda_last_error();
    const Program again(coda_program_text(p));
    EXPECT_EQ(again.status, CODA_OK) << coda_last_error();
    coda_program_free(p);
  }
}

TEST(CInterface, runs_on_host_tensors_with_strides_params_and_outputs_left_out) {
  const Program p(scaled, {{"S", 3}});
  ASSERT_EQ(p.status, CODA_OK) << coda_last_error();
  // A is the transpose of a [K, M] array: strides (1, M).
  std::vector<float> a = {1, 4, 2, 5, 3, 6}, b = {1, 0, 1, 0, 1, 1}, bias = {10, 20}, y(4, -1), total(4, 100);
  View va(a, {2, 3}), vb(b, {2, 3}), vbias(bias, {2}), vy(y, {2, 2}), vtotal(total, {2, 2});
  va.strides = {1, 2};
  va.t.strides = va.strides.data();
  const coda_tensor* all[] = {&va.t, &vb.t, &vbias.t, &vy.t, &vtotal.t};
  ASSERT_EQ(coda_run(p.p, all, 5, nullptr), CODA_OK) << coda_last_error();
  EXPECT_EQ(y, (std::vector<float>{3 * 4 + 10, 3 * 5 + 20, 3 * 10 + 10, 3 * 11 + 20}));
  EXPECT_EQ(total, (std::vector<float>{104, 105, 110, 111}));
  const coda_tensor* some[] = {&va.t, &vb.t, &vbias.t, nullptr, &vtotal.t};
  ASSERT_EQ(coda_run(p.p, some, 5, nullptr), CODA_OK) << coda_last_error();
  EXPECT_EQ(total[0], 108);
  coda_program* reduced = nullptr;
  ASSERT_EQ(coda_program_without(p.p, "total", &reduced), CODA_OK);
  EXPECT_EQ(coda_run(reduced, all, 4, nullptr), CODA_OK) << coda_last_error();
  coda_program_free(reduced);
}

TEST(CInterface, says_which_argument_does_not_fit) {
  const Program p(scaled);
  std::vector<float> a(6), b(6), bias(2), y(4), total(4);
  View va(a, {2, 3}), vb(b, {2, 3}), vbias(bias, {2}), vy(y, {2, 2}), vtotal(total, {2, 2});
  const coda_tensor* all[] = {&va.t, &vb.t, &vbias.t, &vy.t, &vtotal.t};
  auto expect = [&](coda_status status, const char* word) {
    EXPECT_EQ(coda_run(p.p, all, 5, nullptr), status);
    EXPECT_NE(std::string(coda_last_error()).find(word), std::string::npos) << coda_last_error();
  };
  vbias.shape[0] = 3;
  expect(CODA_ERROR_SHAPE, "bias");
  vbias.shape[0] = 2;
  vbias.t.dtype.bits = 16;
  expect(CODA_ERROR_DTYPE, "bias");
  vbias.t.dtype = {CODA_FLOAT, 32, 4};
  expect(CODA_ERROR_DTYPE, "lanes");
  vbias.t.dtype.lanes = 1;
  vbias.t.device.type = 8;
  expect(CODA_ERROR_UNSUPPORTED, "device");
  vbias.t.device.type = CODA_CPU;
  all[2] = nullptr;
  expect(CODA_ERROR_VALUE, "bias");
  all[2] = &vbias.t;
  EXPECT_EQ(coda_run(p.p, all, 4, nullptr), CODA_ERROR_SHAPE);
}

TEST(CInterface, a_kernel_without_a_gpu_says_what_is_missing) {
  if (coda_cuda_available()) GTEST_SKIP() << "there is a GPU here";
  const Program p(scaled);
  coda_kernel* kernel = nullptr;
  ASSERT_EQ(coda_kernel_create(p.p, nullptr, &kernel), CODA_OK) << coda_last_error();
  std::vector<float> data(16);
  View va(data, {2, 3}), vb(data, {2, 3}), vbias(data, {2}), vy(data, {2, 2}), vtotal(data, {2, 2});
  const coda_tensor* all[] = {&va.t, &vb.t, &vbias.t, &vy.t, &vtotal.t};
  for (View* v : {&va, &vb, &vbias, &vy, &vtotal}) v->t.device.type = CODA_CUDA;
  EXPECT_EQ(coda_kernel_launch(kernel, all, 5, nullptr, nullptr, 0), CODA_ERROR_UNSUPPORTED);
  EXPECT_NE(std::string(coda_last_error()).find("libcuda.so.1"), std::string::npos) << coda_last_error();
  coda_kernel_free(kernel);
}

TEST(CInterface, compiles_as_c99_and_its_example_runs) {
  if (std::system("cc --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no C compiler here";
  const std::string build = std::string(CODA_COMMAND).substr(0, std::string(CODA_COMMAND).rfind('/'));
  const std::string program = ::testing::TempDir() + "coda_c_example";
  // A library under a sanitizer asks for its run time in the program.
  const std::string sanitize = *CODA_SANITIZE ? "-fsanitize=" CODA_SANITIZE : "";
  const std::string compile = fmt::format("cc -std=c99 -Wall -Wextra -pedantic -Werror {3} -I{0}/include {0}/examples/c/run.c -L{1} -lcoda -Wl,-rpath,{1} -o {2}",
                                          CODA_SOURCE_DIR, build, program, sanitize);
  ASSERT_EQ(std::system(compile.c_str()), 0) << compile;
  EXPECT_EQ(std::system((program + " > " + program + ".out").c_str()), 0);
}

}  // namespace
