// Launching: refusals before anything runs, graphs, streams, workspaces, absent outputs, the tuner, the warm path's cost.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "coda/error.hpp"
#include "coda/text.hpp"
#include "capture.hpp"
#include "cuda/driver.hpp"
#include "problem.hpp"

namespace coda::test {
namespace {

template <class F> std::string refusal(F f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

bool says(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* p : parts)
    if (text.find(p) == std::string::npos) {
      ADD_FAILURE() << "'" << p << "' is missing in: " << text;
      return false;
    }
  return true;
}

TEST(Refusal, of_an_operand_the_copy_engine_cannot_read_names_it_and_the_alignment) {
  const Program p = load_program("linear");
  const Problem problem(p, 64, 64, 64);
  const Kernel kernel(p);
  const auto launch = [&](const Layouts& l) { return refusal([&] { kernel.launch(Arguments(problem, l).slots()); }, ErrorKind::layout); };
  says(launch({.a = {.offset = 1}}), {"'A'", "multiple of 16 bytes", "base address"});
  says(launch({.a = {.padding = 1}}), {"'A'", "leading stride of 65"});
  says(launch({.b = {.padding = 4}}), {"'B'", "leading stride of 68"});
  says(launch({.b = {.step = 2}}), {"'B'", "stride"});
  says(launch({.a = {.transposed = true, .padding = 3}}), {"'A'", "leading stride of 67"});
  says(launch({.output = {.broadcast = true}}), {"'y'", "share memory"});
}

TEST(Refusal, of_f32_operands_with_K_slow_names_the_operand) {
  const Program p = load_program("linear").with_dtype(DType::f32);
  const Problem problem(p, 64, 64, 64);
  says(refusal([&] { Kernel(p).launch(Arguments(problem, {.b = {.transposed = true}}).slots()); }, ErrorKind::layout), {"'B'", "N as its fast dimension"});
}

TEST(Refusal, of_wrong_arguments_comes_before_anything_is_written) {
  const Program p = load_program("residual_norm");
  const Problem problem(p, 64, 64, 64);
  Arguments arguments(problem, {});
  auto slots = arguments.slots();
  const Kernel kernel(p);
  auto with = [&](std::string_view name, auto change, ErrorKind kind) {
    auto s = slots;
    change(s[static_cast<std::size_t>(*p.slot(name))]);
    says(refusal([&] { kernel.launch(s); }, kind), {std::string(name).c_str()});
  };
  with("residual", [](Tensor& t) { t.dtype = DType::f16; }, ErrorKind::dtype);
  with("residual", [](Tensor& t) { t.shape[1] = 63; }, ErrorKind::shape);
  with("residual", [](Tensor& t) { t.device = {DeviceType::cpu, 0}; }, ErrorKind::layout);
  with("residual", [](Tensor& t) { t.data = nullptr; }, ErrorKind::value);
  slots.pop_back();
  says(refusal([&] { kernel.launch(slots); }, ErrorKind::shape), {"arguments"});
  EXPECT_EQ(arguments.faults(), "");
}

TEST(Refusal, of_an_unknown_configuration_lists_those_there_are) {
  const Program p = load_program("linear");
  const Problem problem(p, 64, 64, 64);
  const Arguments arguments(problem, {});
  says(refusal([&] { Kernel(p, {.config = "co13x7"}).launch(arguments.slots()); }, ErrorKind::unsupported), {"co13x7", "those that do", "co128x256"});
}

TEST(Launch, leaves_out_outputs_that_are_not_given) {
  const Program p = load_program("linear_cross_entropy");
  const Problem problem(p, 100, 300, 64);
  Arguments with(problem, {}), without(problem, {});
  const Kernel kernel(p);
  kernel.launch(with.slots());
  auto slots = without.slots();
  slots[static_cast<std::size_t>(*p.slot("logits"))] = Tensor{};
  kernel.launch(slots);
  EXPECT_TRUE(same_bits(with.tensor("loss").download(), without.tensor("loss").download()));
  EXPECT_EQ(without.tensor("logits").changed(true), "");
}

TEST(Launch, reads_scalars_from_the_host_or_the_device) {
  const Program p = load_program("linear_alpha");
  const Problem problem(p, 100, 136, 64);
  Arguments device(problem, {}), host(problem, {});
  const Kernel kernel(p);
  kernel.launch(device.slots());
  auto slots = host.slots();
  const auto alpha = static_cast<std::size_t>(*p.slot("alpha"));
  slots[alpha] = problem.host()[alpha].view();
  kernel.launch(slots);
  EXPECT_TRUE(same_bits(device.outputs()[0], host.outputs()[0]));
  store(slots[alpha], 0, 0.0);  // the same launch again, with another value
  kernel.launch(slots);
  EXPECT_EQ(load(host.outputs()[0], 5), 0.0);
}

TEST(Graph, replays_an_accumulating_program_exactly_so_many_times) {
  const Program p = load_program("weight_grad");
  const Problem problem(p, 200, 264, 96);
  Arguments arguments(problem, {}), once(problem, {});
  const Kernel kernel(p);
  kernel.launch(once.slots());
  kernel.prepare(arguments.slots());
  Capture graph([&](cuda::Stream s) { kernel.launch(arguments.slots(), s); });
  EXPECT_TRUE(same_bits(arguments.outputs()[0], Arguments(problem, {}).outputs()[0])) << "capturing runs nothing";
  for (int i = 0; i < 5; ++i) graph.replay();
  synchronize();
  const HostTensor many = std::move(arguments.outputs()[0]), one = std::move(once.outputs()[0]);
  const Tensor& start = problem.host()[2];
  for (std::int64_t i = 0; i < many.numel(); ++i) {
    const double step = load(one, i) - load(start, i);
    ASSERT_NEAR(load(many, i), load(start, i) + 5 * step, 2e-5 * (1 + std::abs(load(many, i)) + std::abs(step) * 5)) << i;
  }
  EXPECT_EQ(arguments.faults(), "");
}

TEST(Graph, captures_a_kernel_with_statistics_even_when_it_is_new) {
  const Program p = load_program("norm_backward");
  const Problem problem(p, 333, 392, 64, 17);
  Arguments arguments(problem, {}), plain(problem, {});
  const Kernel kernel(p);
  Capture graph([&](cuda::Stream s) { kernel.launch(arguments.slots(), s); });
  Kernel(p).launch(plain.slots());
  const auto expected = plain.outputs();
  for (int i = 0; i < 3; ++i) {
    arguments.reset();
    graph.replay();
    synchronize();
    const auto got = arguments.outputs();
    for (std::size_t o = 0; o < got.size(); ++o) EXPECT_TRUE(same_bits(got[o], expected[o])) << p.outputs[o].name << ", replay " << i;
  }
}

TEST(Streams, at_once_and_back_to_back_launches_give_the_same_bits) {
  const Program p = load_program("residual_norm");
  const Problem problem(p, 500, 1000, 136);
  Arguments first(problem, {}), second(problem, {}), alone(problem, {});
  const Kernel kernel(p);
  kernel.launch(alone.slots());
  const auto expected = alone.outputs();
  cuda::OwnedStream s1(0), s2(0);
  for (int i = 0; i < 50; ++i) {
    kernel.launch(first.slots(), static_cast<cuda::Stream>(s1));
    kernel.launch(second.slots(), static_cast<cuda::Stream>(s2));
  }
  synchronize();
  for (Arguments* a : {&first, &second}) {
    const auto got = a->outputs();
    for (std::size_t o = 0; o < got.size(); ++o) EXPECT_TRUE(same_bits(got[o], expected[o])) << p.outputs[o].name;
    EXPECT_EQ(a->faults(), "");
  }
}

TEST(Streams, from_many_threads_with_one_kernel_give_the_same_bits) {
  const Program p = load_program("norm_backward");
  const Problem problem(p, 260, 520, 72);
  const Kernel kernel(p);
  Arguments alone(problem, {});
  for (int i = 0; i < 20; ++i) kernel.launch(alone.slots());  // dw accumulates
  const auto expected = alone.outputs();
  std::vector<std::thread> pool;
  std::vector<std::string> faults(8);
  for (std::size_t t = 0; t < faults.size(); ++t)
    pool.emplace_back([&, t] {
      try {
        Arguments mine(problem, {});
        cuda::OwnedStream stream(0);
        for (int i = 0; i < 20; ++i) kernel.launch(mine.slots(), static_cast<cuda::Stream>(stream));
        const auto got = mine.outputs();
        for (std::size_t o = 0; o < got.size(); ++o)
          if (!same_bits(got[o], expected[o])) faults[t] += p.outputs[o].name + " differs; ";
      } catch (const std::exception& e) {
        faults[t] = e.what();
      }
    });
  for (auto& t : pool) t.join();
  for (const auto& f : faults) EXPECT_EQ(f, "");
}

TEST(Workspace, of_the_caller_is_used_and_a_short_one_refused) {
  const Program p = load_program("norm_backward");
  const Problem problem(p, 300, 520, 72);
  Arguments mine(problem, {}), theirs(problem, {});
  const Kernel kernel(p);
  const std::size_t bytes = kernel.workspace_bytes(mine.slots());
  ASSERT_GT(bytes, 0u);
  cuda::DeviceBuffer memory(0, bytes);
  const std::vector<std::uint8_t> zeros(bytes);
  upload(memory.address(), zeros.data(), bytes);
  for (int i = 0; i < 3; ++i) kernel.launch(mine.slots(), nullptr, {memory.data(), bytes});
  for (int i = 0; i < 3; ++i) kernel.launch(theirs.slots());
  const auto a = mine.outputs(), b = theirs.outputs();
  for (std::size_t o = 0; o < a.size(); ++o) EXPECT_TRUE(same_bits(a[o], b[o])) << p.outputs[o].name;
  says(refusal([&] { kernel.launch(mine.slots(), nullptr, {memory.data(), bytes - 1}); }, ErrorKind::value), {"workspace"});
}

TEST(Tuner, never_touches_the_callers_data_and_is_remembered) {
  const Program p = load_program("weight_grad");
  const Problem problem(p, 520, 264, 2048);
  Arguments arguments(problem, {}), plain(problem, {});
  const Kernel tuned(p, {.tune = true});
  tuned.prepare(arguments.slots());
  EXPECT_TRUE(same_bits(arguments.outputs()[0], problem.host()[2])) << "preparing wrote to the output";
  EXPECT_TRUE(tuned.report(arguments.slots()).tuned);
  tuned.launch(arguments.slots());
  EXPECT_EQ(problem.judge(arguments.outputs()) + arguments.faults(), "") << "the final value is applied exactly once";
  EXPECT_TRUE(Kernel(p).report(plain.slots()).tuned) << "a later kernel finds the choice on disk";
}

TEST(Kernel, of_no_rows_launches_nothing_and_of_no_depth_gives_the_epilogue_of_zero) {
  const Program p = load_program("linear_bias");
  for (auto [m, n, k] : {std::tuple(0, 64, 32), std::tuple(64, 0, 32)}) {
    const Problem problem(p, m, n, k);
    Arguments arguments(problem, {});
    Kernel(p).launch(arguments.slots());
    EXPECT_EQ(arguments.faults(), "");
  }
  const Problem problem(p, 70, 130, 0);
  EXPECT_EQ(check_run(Kernel(p), problem, {}), "");
}

TEST(Kernel, of_no_rows_or_columns_stores_what_reductions_of_nothing_yield) {
  struct Empty { const char* program; std::int64_t m, n; };
  for (const Empty e : {Empty{"norm_backward", 0, 136}, Empty{"residual_norm", 33, 0}, Empty{"linear_quantise", 0, 40}, Empty{"linear_quantise", 0, 0}, Empty{"loss_mean", 0, 1},
                        Empty{"rope_backward", 20, 0}}) {
    const Program p = load_program(e.program);
    const Problem problem(p, e.m, e.n, 24);
    EXPECT_EQ(check_run(Kernel(p), problem, {}), "");
    EXPECT_EQ(check_run(Kernel(p), problem, {.output = {.step = 3}, .name = "outputs of every third element"}), "");
  }
}

TEST(Kernel, warm_launches_cost_the_host_five_microseconds_at_most) {
  const Program p = load_program("norm_swiglu");
  const Problem problem(p, 64, 256, 64);
  Arguments arguments(problem, {});
  const Kernel kernel(p);
  const auto slots = arguments.slots();
  cuda::OwnedStream stream(0);
  kernel.launch(slots, static_cast<cuda::Stream>(stream));
  std::vector<double> times;
  for (int round = 0; round < 30; ++round) {
    synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 100; ++i) kernel.launch(slots, static_cast<cuda::Stream>(stream));
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / 100);
  }
  std::nth_element(times.begin(), times.begin() + 15, times.end());
  RecordProperty("microseconds", fmt::format("{:.2f}", times[15]));
  fmt::print("a warm launch costs the host {:.2f} us\n", times[15]);
  EXPECT_LE(times[15], 5.0);
}

TEST(Devices, each_run_their_own_tensors) {
  if (cuda::device_count() < 2) GTEST_SKIP() << "one device here";
  const Program p = load_program("residual_norm");
  const Problem problem(p, 200, 264, 64);
  Arguments zero(problem, {}, 0), one(problem, {}, 1);
  const Kernel kernel(p);
  kernel.launch(zero.slots());
  kernel.launch(one.slots());
  synchronize(1);
  const auto a = zero.outputs(), b = one.outputs();
  for (std::size_t o = 0; o < a.size(); ++o) EXPECT_TRUE(same_bits(a[o], b[o]));
  auto mixed = zero.slots();
  mixed[0] = one.slots()[0];
  says(refusal([&] { kernel.launch(mixed); }, ErrorKind::value), {"CUDA device"});
}

TEST(Large, offsets_past_2_to_the_31_elements_are_right) {
  // 20480 x 131072 outputs of bf16: 5 GiB. A is zero but in its first and last row, B is ones.
  const Program p = load_program("linear");
  const std::int64_t m = 20480, n = 131072, k = 8;
  cuda::DeviceBuffer a(0, static_cast<std::size_t>(m * k) * 2), b(0, static_cast<std::size_t>(n * k) * 2), c(0, static_cast<std::size_t>(m * n) * 2);
  std::vector<std::uint16_t> rows(static_cast<std::size_t>(m * k), 0), ones(static_cast<std::size_t>(n * k), 0x3f80);
  for (std::size_t i = 0; i < 8; ++i) rows[i] = 0x3f80, rows[rows.size() - 1 - i] = 0x4000;
  upload(a.address(), rows.data(), rows.size() * 2);
  upload(b.address(), ones.data(), ones.size() * 2);
  const cuda::ContextScope scope(0);
  CODA_CUDA(cuMemsetD8Async, c.address(), static_cast<unsigned char>(0xff), c.bytes(), nullptr);
  const Device gpu{DeviceType::cuda, 0};
  const Tensor slots[] = {Tensor::contiguous(a.data(), DType::bf16, std::array{m, k}, gpu), Tensor::contiguous(b.data(), DType::bf16, std::array{n, k}, gpu),
                          Tensor::contiguous(c.data(), DType::bf16, std::array{m, n}, gpu)};
  Kernel(p).launch(slots);
  std::vector<std::uint16_t> row(static_cast<std::size_t>(n));
  auto check_row = [&](std::int64_t r, std::uint16_t value) {
    download(row.data(), c.address() + static_cast<std::uint64_t>(r * n) * 2, row.size() * 2);
    for (std::size_t i = 0; i < row.size(); ++i) ASSERT_EQ(row[i], value) << "row " << r << ", column " << i;
  };
  check_row(0, 0x4100);       // 8
  check_row(1, 0);
  check_row(16384, 0);        // element 2^31
  check_row(m - 2, 0);
  check_row(m - 1, 0x4180);   // 16
}

}  // namespace
}  // namespace coda::test
