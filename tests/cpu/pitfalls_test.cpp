// Faults that fused kernels have had: ragged tiles, statistics at the ends of the range, picks at every boundary,
// accumulation, empty extents, layouts that must be refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "arguments.hpp"
#include "coda/compare.hpp"
#include "coda/text.hpp"

namespace {

using namespace coda;
using test::Guarded;

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// A program whose acc is chosen element by element: K = 1, A is ones, so that acc[m, n] = B[n].
struct Case {
  Program p;
  Inputs inputs;
  Case(std::string_view text, std::int64_t m, std::int64_t n, const std::function<float(std::int64_t)>& column)
      : p(parse(text)), inputs(make_inputs(p, {.extents = {m, n, 1}, .symbols = {}, .seed = 1})) {
    for (std::int64_t i = 0; i < m; ++i) store(inputs.slots[0], i, 1);
    for (std::int64_t j = 0; j < n; ++j) store(inputs.slots[1], j, column(j));
  }
  const Tensor& operator[](std::string_view name) const {
    return inputs.slots[static_cast<std::size_t>(*p.slot(name))];
  }
  void run() const { cpu::run(p, inputs.slots); }
};

constexpr std::string_view statistics = R"(program statistics
  gemm A: f32[M, K], B: f32[N, K]
  z = acc
  m, s = softmax_stats(z, over n)
  finish largest: f32[M] = max(z, over n)
  finish m: f32[M] = m
  finish s: f32[M] = s
)";

TEST(Statistics, of_negative_logits_ignore_the_columns_past_a_ragged_edge) {
  for (const std::int64_t n : {1, 7, 1040, 1160, 1290}) {
    const Case c(statistics, 3, n, [](std::int64_t j) { return -50 - static_cast<float>(j % 9); });
    c.run();
    double want = 0;
    for (std::int64_t j = 0; j < n; ++j) want += std::exp(-static_cast<double>(j % 9));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(load(c["largest"], i), -50) << n;
      EXPECT_EQ(load(c["m"], i), -50) << n;
      EXPECT_NEAR(load(c["s"], i), want, 1e-5 * want) << n;
    }
  }
}

TEST(Statistics, of_logits_of_1300_do_not_overflow) {
  const Case c(statistics, 2, 1500, [](std::int64_t j) {
    return j == 1400 ? 1300.0f : j % 2 == 0 ? -1300.0f : 1299.0f;
  });
  c.run();
  EXPECT_EQ(load(c["m"], 0), 1300);
  EXPECT_NEAR(load(c["s"], 0), 1 + 750 * std::exp(-1.0), 1e-3);
}

TEST(Statistics, of_rows_without_a_finite_logit_and_with_NaN) {
  const Case none(statistics, 2, 1030, [](std::int64_t) { return -inf; });
  none.run();
  EXPECT_EQ(load(none["m"], 1), -inf);
  EXPECT_EQ(load(none["s"], 1), 0);
  const Case one(statistics, 2, 1030, [](std::int64_t j) { return j == 900 ? 3.0f : -inf; });
  one.run();
  EXPECT_EQ(load(one["m"], 0), 3);
  EXPECT_EQ(load(one["s"], 0), 1);
  const Case bad(statistics, 2, 1030, [](std::int64_t j) { return j == 600 ? nan : 1.0f; });
  bad.run();
  for (const char* name : {"largest", "m", "s"}) EXPECT_TRUE(std::isnan(load(bad[name], 0))) << name;
}

TEST(Statistics, over_m_agree_with_those_over_n_of_the_transpose) {
  const Program p = parse(R"(program columns
  gemm A: f32[M, K], B: f32[N, K]
  m, s = softmax_stats(acc, over m)
  finish m: f32[N] = m
  finish s: f32[N] = s
  finish t: f32[N] = sum(acc, over m)
)");
  const Inputs in = make_inputs(p, {.extents = {416, 90, 4}, .symbols = {}, .seed = 5});
  const Expected e = expect(p, in.slots);
  cpu::run(p, in.slots);
  for (const OutputError& error : compare(p, e, test::outputs_of(p, in.slots)))
    EXPECT_TRUE(error.ok) << describe(error);
}

constexpr std::string_view picking = R"(program picking
  gemm A: f32[M, K], B: f32[N, K]
  in  target: i64[M]
  in  ignore: i64[]
  finish z: f32[M] = pick(acc, target, over n, ignore)
)";

TEST(Pick, finds_its_column_at_every_boundary_and_beyond_16_bits) {
  const std::int64_t n = 40960;
  const std::int64_t targets[] = {0,   7,   8,   15,   16,   127,   128,   255,   256,
                                  511, 512, 513, 1023, 1024, 32767, 32768, 40958, 40959};
  const Case c(picking, static_cast<std::int64_t>(std::size(targets)), n,
               [](std::int64_t j) { return static_cast<float>(j); });
  for (std::size_t i = 0; i < std::size(targets); ++i) c["target"].as<std::int64_t>()[i] = targets[i];
  c.run();
  for (std::size_t i = 0; i < std::size(targets); ++i)
    EXPECT_EQ(load(c["z"], static_cast<std::int64_t>(i)), static_cast<double>(targets[i]));
}

TEST(Pick, gives_0_where_the_index_is_the_ignored_one_even_if_that_is_a_column) {
  for (const std::int64_t ignore : {std::int64_t{-100}, std::int64_t{0}, std::int64_t{63}}) {
    const Case c(picking, 3, 64, [](std::int64_t j) { return static_cast<float>(j + 1); });
    *c["ignore"].as<std::int64_t>() = ignore;
    c["target"].as<std::int64_t>()[0] = ignore;
    c["target"].as<std::int64_t>()[1] = 5;
    c["target"].as<std::int64_t>()[2] = ignore;
    c.run();
    EXPECT_EQ(load(c["z"], 0), 0) << ignore;
    EXPECT_EQ(load(c["z"], 1), 6) << ignore;
    EXPECT_EQ(load(c["z"], 2), 0) << ignore;
  }
}

TEST(Pick, refuses_an_index_out_of_range_before_anything_is_written) {
  for (const std::int64_t wrong : {std::int64_t{64}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    const Case c(picking, 3, 64, [](std::int64_t j) { return static_cast<float>(j); });
    for (int i = 0; i < 3; ++i) c["target"].as<std::int64_t>()[i] = 1;
    c["target"].as<std::int64_t>()[2] = wrong;
    try {
      c.run();
      ADD_FAILURE() << wrong << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::value);
      const std::string message = e.what();
      EXPECT_NE(message.find("target"), std::string::npos) << message;
      EXPECT_NE(message.find("row 2"), std::string::npos) << message;
    }
    EXPECT_TRUE(std::isnan(load(c["z"], 0))) << "written to before the check";
  }
}

constexpr std::string_view picking_rows = R"(program picking_rows
  gemm A: f32[M, K], B: f32[N, K]
  in  chosen: i64[N]
  in  ignore: i64[]
  a, b = split(acc, halves)
  out y: f32[M, N/2] = a - b
  finish z: f32[N] = pick(acc, chosen, over m, ignore)
)";

TEST(Pick, over_m_finds_its_row_at_every_boundary) {
  const std::int64_t rows[] = {0, 7, 8, 15, 16, 63, 64, 127, 128, 129, 255, 256, 257, 511, 512, 598, 599, -7};
  const auto count = static_cast<std::int64_t>(std::size(rows));
  const std::int64_t n = 1112;
  const Case c(picking_rows, 600, n, [](std::int64_t j) { return static_cast<float>(1 + j % 3); });
  for (std::int64_t i = 0; i < 600; ++i) store(c.inputs.slots[0], i, static_cast<double>(i));
  for (std::int64_t j = 0; j < n; ++j) c["chosen"].as<std::int64_t>()[j] = rows[j % count];
  *c["ignore"].as<std::int64_t>() = -7;
  c.run();
  for (std::int64_t j = 0; j < n; ++j) {
    const std::int64_t row = rows[j % count];
    EXPECT_EQ(load(c["z"], j), row == -7 ? 0 : static_cast<double>(row * (1 + j % 3))) << "row " << row;
  }
}

TEST(Pick, over_m_refuses_a_row_out_of_range_before_anything_is_written) {
  const Case c(picking_rows, 5, 64, [](std::int64_t j) { return static_cast<float>(j); });
  for (int j = 0; j < 64; ++j) c["chosen"].as<std::int64_t>()[j] = j == 9 ? 5 : 4;
  *c["ignore"].as<std::int64_t>() = -100;
  try {
    c.run();
    ADD_FAILURE() << "5 was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::value);
    EXPECT_STREQ(e.what(), "program picking_rows: chosen is 5 in column 9, but pick takes an index from 0 to 4, or -100 "
                           "for a column to ignore; correct the data");
  }
  for (const char* name : {"y", "z"}) EXPECT_TRUE(std::isnan(load(c[name], 0))) << "written to before the check";
}

TEST(Pick, over_segments_gives_all_of_a_segment_one_of_its_elements) {
  const Case c(R"(program heads
  gemm A: f32[M, K], B: f32[N, K]
  in  place: i32[M]
  in  fixed: i64[]
  out each: f32[M, N] = pick(acc, place, over segment(24))
  out all: f32[M, N] = pick(acc, fixed, over segment(24))
  out later: f32[M, N] = pick(acc, (col // 24 + row) % 24, over segment(12), 5)
)",
               40, 720, [](std::int64_t j) { return static_cast<float>(j + 1); });
  for (std::int64_t i = 0; i < 40; ++i) c["place"].as<std::int32_t>()[i] = static_cast<std::int32_t>(i - 5);
  *c["fixed"].as<std::int64_t>() = 23;
  c.run();
  for (std::int64_t i = 0; i < 40; ++i) {
    for (std::int64_t j = 0; j < 720; ++j) {
      const std::int64_t at = i * 720 + j, place = i - 5, later = (j / 24 + i) % 24;
      const double each = load(c["each"], at), moved = load(c["later"], at);
      if (place >= 0 && place < 24)
        EXPECT_EQ(each, static_cast<double>(j / 24 * 24 + place + 1));
      else
        EXPECT_TRUE(std::isnan(each)) << "place " << place;
      EXPECT_EQ(load(c["all"], at), static_cast<double>(j / 24 * 24 + 24));
      if (later < 12)
        EXPECT_EQ(moved, later == 5 ? 0 : static_cast<double>(j / 12 * 12 + later + 1));
      else
        EXPECT_TRUE(std::isnan(moved)) << later;
    }
  }
}

TEST(Statistics, over_segments_are_each_segments_own) {
  const Case c(R"(program segments
  gemm A: f32[M, K], B: f32[N, K]
  m, s = softmax_stats(acc, over segment(16))
  out m: f32[M, N] = m
  out s: f32[M, N] = s
  out p: f32[M, N] = exp(acc - m) / s
)",
               3, 16 * 70, [](std::int64_t j) {
                 const std::int64_t segment = j / 16;
                 return segment == 0 ? -inf : segment == 1 && j == 20 ? nan : segment % 2 == 0 ? 1300.0f : -50.0f;
               });
  c.run();
  for (std::int64_t j = 0; j < 16 * 70; ++j) {
    const std::int64_t segment = j / 16;
    if (segment == 1) {
      for (const char* name : {"m", "s", "p"}) EXPECT_TRUE(std::isnan(load(c[name], j))) << name;
      continue;
    }
    EXPECT_EQ(load(c["m"], j), segment == 0 ? -inf : segment % 2 == 0 ? 1300.0 : -50.0);
    EXPECT_EQ(load(c["s"], j), segment == 0 ? 0 : 16);
    if (segment > 1) {
      EXPECT_EQ(load(c["p"], j), 1.0 / 16);
    }
  }
}

TEST(Accumulate, adds_to_what_is_there_once_a_run_in_f32_and_bf16) {
  for (const char* name : {"weight_grad", "weight_grad_bf16"}) {
    const Program p = load_program(name);
    const Inputs in = make_inputs(p, {.extents = {70, 150, 33}, .symbols = {}, .seed = 2});
    for (int round = 0; round < 4; ++round) {
      const Expected e = expect(p, in.slots);
      cpu::run(p, in.slots);
      for (const OutputError& error : compare(p, e, test::outputs_of(p, in.slots)))
        EXPECT_TRUE(error.ok) << describe(error);
    }
  }
}

TEST(Empty, extents_give_the_epilogue_of_nothing) {
  const Program p = parse(R"(program empty
  gemm A: f32[M, K], B: f32[N, K]
  in  bias: f32[N]
  z = acc + bias
  m, s = softmax_stats(z, over n)
  out z: f32[M, N] = z
  finish rows: f32[M] = sum(z, over n)
  finish columns: f32[N] = sum(z, over m)
  finish all: f32[] = max(z, over mn)
  finish m: f32[M] = m
  finish s: f32[M] = s
)");
  for (const Extents& e : {Extents{5, 9, 0}, Extents{0, 9, 4}, Extents{5, 0, 4}, Extents{0, 0, 0}}) {
    const Inputs in = make_inputs(p, {.extents = e, .symbols = {}, .seed = 2});
    const std::vector<HostTensor> want = reference::evaluate(p, in.slots);
    cpu::run(p, in.slots);
    const std::vector<Tensor> got = test::outputs_of(p, in.slots);
    for (std::size_t o = 0; o < got.size(); ++o) {
      for (std::int64_t i = 0; i < got[o].numel(); ++i) {
        const double w = load(want[o], i);
        if (std::isinf(w))
          EXPECT_EQ(load(got[o], i), w) << p.outputs[o].name;
        else
          EXPECT_NEAR(load(got[o], i), w, 1e-5) << p.outputs[o].name << " at " << e.m << " x " << e.n << " x " << e.k;
      }
    }
  }
}

TEST(Operands, row_and_column_vectors_lie_along_their_own_axis_where_M_equals_N) {
  const Program p = parse(R"(program square
  gemm A: f32[M, K], B: f32[N, K]
  in  r: f32[M]
  in  c: f32[N]
  out y: f32[M, N] = r + 1000 * c
)");
  const Inputs in = make_inputs(p, {.extents = {8, 8, 0}, .symbols = {}, .seed = 2});
  for (int i = 0; i < 8; ++i) {
    store(in.slots[2], i, i);
    store(in.slots[3], i, i);
  }
  cpu::run(p, in.slots);
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) EXPECT_EQ(load(in.slots[4], 8 * i + j), i + 1000 * j);
  }
}

TEST(Operands, of_stride_zero_broadcast_and_of_any_stride_are_read) {
  const Program p = load_program("residual_norm").with_dtype(DType::f32);
  const Inputs in = make_inputs(p, {.extents = {20, 48, 16}, .symbols = {}, .seed = 2});
  std::vector<Tensor> slots = in.slots;
  const auto slot = [&](const char* name) { return static_cast<std::size_t>(*p.slot(name)); };
  slots[slot("residual")].stride = {0, 1};  // one row for all
  slots[slot("w")].stride = {0};            // one number for all
  slots[0].stride = {0, 1};
  const Expected e = expect(p, slots);
  cpu::run(p, slots);
  for (const OutputError& error : compare(p, e, test::outputs_of(p, slots))) EXPECT_TRUE(error.ok) << describe(error);
}

TEST(Outputs, that_are_not_given_are_not_computed) {
  const Program p = load_program("norm_swiglu");
  const Inputs in = make_inputs(p, {.extents = {20, 48, 16}, .symbols = {}, .seed = 2});
  cpu::run(p, in.slots);
  std::vector<Tensor> slots = in.slots;
  HostTensor y(DType::bf16, {20, 24});
  slots[static_cast<std::size_t>(*p.slot("z"))] = Tensor{};
  slots[static_cast<std::size_t>(*p.slot("y"))] = y;
  cpu::run(p, slots);
  EXPECT_TRUE(test::same_bits(y, in.slots[static_cast<std::size_t>(*p.slot("y"))]));
}

TEST(Outputs, that_share_memory_with_an_argument_are_refused) {
  const Program p = load_program("residual_norm").with_dtype(DType::f32);
  const Inputs in = make_inputs(p, {.extents = {20, 48, 16}, .symbols = {}, .seed = 2});
  std::vector<Tensor> slots = in.slots;
  slots[static_cast<std::size_t>(*p.slot("x"))] = slots[static_cast<std::size_t>(*p.slot("residual"))];
  EXPECT_THROW(cpu::run(p, slots), Error);
  // Blocks of columns of one matrix, side by side, are fine.
  HostTensor both(DType::f32, {20, 96});
  Tensor left = both, right = both;
  left.shape[1] = right.shape[1] = 48;
  right.data = both.as<float>() + 48;
  slots[static_cast<std::size_t>(*p.slot("x"))] = left;
  slots[static_cast<std::size_t>(*p.slot("h"))] = right;
  EXPECT_NO_THROW(cpu::run(p, slots));
}

TEST(Gated, is_silu_of_the_first_half_times_the_second) {
  const Program p = load_program("norm_swiglu").with_dtype(DType::f32);
  const Inputs in = make_inputs(p, {.extents = {1, 8, 1}, .symbols = {}, .seed = 2});
  store(in.slots[0], 0, 1);
  store(in.slots[2], 0, 1);
  for (int j = 0; j < 8; ++j) store(in.slots[1], j, j + 1);
  cpu::run(p, in.slots);
  for (int j = 0; j < 4; ++j) {
    const double gate = j + 1, up = j + 5;
    EXPECT_NEAR(load(in.slots[static_cast<std::size_t>(*p.slot("y"))], j), gate / (1 + std::exp(-gate)) * up, 1e-5);
  }
}

TEST(Lookup, out_of_range_gives_NaN_in_its_own_elements_only) {
  const Program p = parse(R"(program gather
  gemm A: f32[M, K], B: f32[N, K]
  in  position: i64[M]
  in  t: f32[P, 32]
  out y: f32[M, N] = lookup(t, position, col % 40)
)");
  const Inputs in = make_inputs(p, {.extents = {3, 80, 0}, .symbols = {{"P", 4}}, .seed = 2});
  const std::int64_t positions[] = {3, 4, -1};
  std::memcpy(in.slots[2].data, positions, sizeof positions);
  cpu::run(p, in.slots);
  for (int j = 0; j < 80; ++j) {
    if (j % 40 < 32)
      EXPECT_EQ(load(in.slots[4], j), load(in.slots[3], 3 * 32 + j % 40));
    else
      EXPECT_TRUE(std::isnan(load(in.slots[4], j)));
    EXPECT_TRUE(std::isnan(load(in.slots[4], 80 + j)));
    EXPECT_TRUE(std::isnan(load(in.slots[4], 160 + j)));
  }
}

TEST(Rope, leaves_columns_past_the_rotated_ones_bit_for_bit_as_the_plain_product) {
  const Program p = load_program("norm_rope", {{"D", 32}, {"R", 16}});
  const Program plain = load_program("norm_linear");
  const Inputs in = make_inputs(p, {.extents = {9, 1024 + 128, 24}, .symbols = {}, .seed = 2});
  *in.slots[static_cast<std::size_t>(*p.slot("rotated"))].as<std::int32_t>() = 640;
  cpu::run(p, in.slots);
  HostTensor y(DType::bf16, {9, 1152});
  const std::vector<Tensor> slots{in.slots[0], in.slots[1], in.slots[static_cast<std::size_t>(*p.slot("rstd"))], y};
  cpu::run(plain, slots);
  const Tensor& qkv = in.slots.back();
  int rotated = 0;
  for (std::int64_t i = 0; i < 9; ++i) {
    for (std::int64_t j = 0; j < 1152; ++j) {
      const bool same = load(qkv, i * 1152 + j) == load(y, i * 1152 + j);
      if (j >= 640 || j % 32 >= 16)
        EXPECT_TRUE(same) << i << " " << j;
      else
        rotated += same ? 0 : 1;
    }
  }
  EXPECT_GT(rotated, 2000);
}

TEST(Determinism, large_programs_give_the_same_bits_for_1_2_and_5_threads_and_again) {
  for (const char* name : {"linear_cross_entropy", "norm_backward", "linear_quantise", "norm_swiglu"}) {
    const Program p = load_program(name);
    const Inputs in = make_inputs(p, {.extents = {600, 1536, 32}, .symbols = {}, .seed = 2});
    cpu::run(p, in.slots, {1});
    for (const int threads : {2, 5, 1}) {
      Inputs again = make_inputs(p, {.extents = {600, 1536, 32}, .symbols = {}, .seed = 2});
      cpu::run(p, again.slots, {threads});
      for (std::size_t s = 0; s < in.slots.size(); ++s) {
        EXPECT_TRUE(test::same_bits(in.slots[s], again.slots[s]))
            << name << " " << p.slots()[s].name << " with " << threads;
      }
    }
  }
}

}  // namespace
