// The C++ builder says the same programs as the text form.
#include "coda/build.hpp"

#include <gtest/gtest.h>

#include "coda/text.hpp"

namespace coda {
namespace {

using namespace coda::epilogue;

void expect_same(const Program& p, std::string_view text) {
  EXPECT_EQ(print(p), text);
  const Program q = parse(text);
  EXPECT_TRUE(p == q) << print(q);
  EXPECT_EQ(p.structural_hash(), q.structural_hash());
}

std::string message_of(const std::function<void(Epilogue&)>& write) {
  try {
    build("bad", write);
  } catch (const Error& e) {
    EXPECT_NE(e.where().file.find("build_test.cpp"), std::string::npos) << e.what();
    EXPECT_GT(e.where().line, 0) << e.what();
    const std::string text = e.what();
    return text.substr(std::min(text.find("in program"), text.size()));
  }
  return "no error";
}

TEST(Build, SaysTheStandardNormSwiglu) {
  const Program p = build("norm_swiglu", [](Epilogue& e) {
    auto rstd = e.input("rstd", f32, {M});
    auto z = e.let("z", e.acc() * rstd);
    auto [gate, up] = e.let("gate", "up", split(z, halves));
    e.output("z", bf16, {M, N}, z);
    e.output("y", bf16, {M, N / 2}, silu(gate) * up);
  });
  expect_same(p, R"(program norm_swiglu
  gemm A: bf16[M, K], B: bf16[N, K]
  in   rstd: f32[M]
  z = acc * rstd
  gate, up = split(z, halves)
  out  z: bf16[M, N] = z
  out  y: bf16[M, N/2] = silu(gate) * up
)");
}

TEST(Build, NamesWhatIsUsedTwice) {
  const Program p = build("norm_swiglu", [](Epilogue& e) {
    auto rstd = e.input("t0", f32, {M});
    auto z = e.acc() * rstd;
    auto [gate, up] = split(z, halves);
    e.output("z", bf16, {M, N}, z);
    e.output("y", bf16, {M, N / 2}, silu(gate) * up);
  });
  expect_same(p, R"(program norm_swiglu
  gemm A: bf16[M, K], B: bf16[N, K]
  in   t0: f32[M]
  t1 = acc * t0
  out  z: bf16[M, N] = t1
  t2, t3 = split(t1, halves)
  out  y: bf16[M, N/2] = silu(t2) * t3
)");
}

TEST(Build, HasAllOfTheVocabulary) {
  const Program p = build("everything", [](Epilogue& e) {
    e.doc("Every construct once.\n\nTwo paragraphs.");
    e.gemm(e4m3, e5m2);
    auto scale = e.input("scale", f32, {});
    auto target = e.input("target", i64, {M});
    auto bias = e.input("bias", bf16, {N});
    auto half = e.input("half", f16, {M, N / 2});
    auto twice = e.input("twice", e4m3, {M, 2 * N});
    auto cosine = e.table("cosine", f32, {"P", 64});
    auto list = e.table("list", f32, {"P"});
    auto z = e.let("z", e.acc() * scale + bias);
    auto [a, b] = e.let("a", "b", split(z, heads(128, 64)));
    auto [i, unused] = e.let("i", "_", split(e.col(), heads(128, 64)));
    auto c = e.let("c", lookup(cosine, target, i % 64) * lookup(list, e.row()));
    e.output("pairs", f16, {M, N}, join(a * c - b, b * c + half, heads(128, 64)));
    auto [lo, hi] = e.let("lo", "hi", split(twice, adjacent));
    e.accumulate("sums", f32, {N, M}, where(e.col() >= 3 && !(e.row() == floordiv(e.col(), 2)), lo, -hi));
    e.output("wide", e5m2, {M, 2 * N}, join(clamp(lo, -1.5, 1.5), max(hi, 0), adjacent));
    e.output("head", bf16, {M, N}, z * rsqrt(sum(z * z, segment(128)) / 128 + 1e-6) + max(z, segment(64)));
    auto [m, s] = e.let("m", "s", softmax_stats(z, over_n));
    e.finish("loss", f32, {M}, where(target == -100, 0.0, log(s) - (pick(z, target, over_n, -100) - m)));
    e.finish("first", f32, {M}, pick(z, target, over_n));
    e.finish("each", f32, {N}, pick(z, floordiv(e.col(), 2), over_m, 7));
    auto [best, total] = e.let("best", "total", softmax_stats(z, segment(32)));
    e.output("gate", bf16, {M, N}, exp(z - best) / total + pick(z, e.row() % 32, segment(32)));
    e.finish("mean", f32, {N}, sum(round_to(z, bf16), over_m) / M);
    e.finish("amax", f32, {}, max(abs(z), over_mn) * (N / 2) + 2 * N);
  });
  expect_same(p, R"(# Every construct once.
#
# Two paragraphs.
program everything
  gemm A: e4m3[M, K], B: e5m2[N, K]
  in   scale: f32[]
  in   target: i64[M]
  in   bias: bf16[N]
  in   half: f16[M, N/2]
  in   twice: e4m3[M, 2N]
  in   cosine: f32[P, 64]
  in   list: f32[P]
  z = acc * scale + bias
  a, b = split(z, heads(128, 64))
  i, _ = split(col, heads(128, 64))
  c = lookup(cosine, target, i % 64) * lookup(list, row)
  out  pairs: f16[M, N] = join(a * c - b, b * c + half, heads(128, 64))
  lo, hi = split(twice, adjacent)
  out  sums: f32[N, M] += where(col >= 3 and not row == col // 2, lo, -hi)
  out  wide: e5m2[M, 2N] = join(clamp(lo, -1.5, 1.5), max(hi, 0), adjacent)
  out  head: bf16[M, N] = z * rsqrt(sum(z * z, over segment(128)) / 128 + 1e-06) + max(z, over segment(64))
  m, s = softmax_stats(z, over n)
  finish loss: f32[M] = where(target == -100, 0.0, log(s) - (pick(z, target, over n, -100) - m))
  finish first: f32[M] = pick(z, target, over n)
  finish each: f32[N] = pick(z, col // 2, over m, 7)
  best, total = softmax_stats(z, over segment(32))
  out  gate: bf16[M, N] = exp(z - best) / total + pick(z, row % 32, over segment(32))
  finish mean: f32[N] = sum(round_to(z, bf16), over m) / M
  finish amax: f32[] = max(abs(z), over mn) * (N / 2) + 2 * N
)");
}

TEST(Build, CutsExpressionsThatAreTooDeepForTheText) {
  const Program p = build("deep", [](Epilogue& e) {
    auto x = e.acc() + 0.5;
    for (int i = 0; i < 1000; ++i) x = -x * 0.5;
    e.output("y", f32, {M, N}, x);
  });
  EXPECT_TRUE(parse(print(p)) == p);
}

TEST(Build, SharesOneValueAsDeeplyAsItLikes) {
  const Program p = build("doubling", [](Epilogue& e) {
    auto x = e.acc() + 0.0;
    for (int i = 0; i < 1000; ++i) x = x + x;  // a tree of 2^1000 leaves, were it one
    e.output("y", f32, {M, N}, x);
  });
  EXPECT_TRUE(parse(print(p)) == p);
}

TEST(Build, PointsAtTheLineOfAFault) {
  EXPECT_EQ(message_of([](Epilogue& e) {
              auto ssq = sum(e.acc() * e.acc(), over_n);
              e.output("y", bf16, {M, N}, e.acc() * rsqrt(ssq));
            }).substr(0, 70),
            "in program bad: 'rsqrt(sum(acc * acc, over n))' isn't local: it depend");
  EXPECT_EQ(message_of([](Epilogue& e) {
              e.input("w", f32, {N});
              e.output("y", bf16, {M, N}, e.acc());
            }),
            "in program bad: the operand 'w' is never used: use it or remove it");
  EXPECT_EQ(message_of([](Epilogue& e) {
              auto w = e.input("acc", f32, {N});
              e.output("y", bf16, {M, N}, e.acc() * w);
            }),
            "in program bad: 'acc' has a meaning of its own in the language: expected another name");
  EXPECT_EQ(message_of([](Epilogue& e) {
              auto w = e.input("w", f32, {"P", 3});
              e.output("y", bf16, {M, N}, e.acc() * w);
            }),
            "in program bad: input 'w' has the extents [P, 3] of a table: expected Epilogue::table");
  EXPECT_EQ(message_of([](Epilogue& e) {
              e.output("y", bf16, {M, N}, e.acc() * 1e300);
            }),
            "in program bad: the number 1e+300: expected one in the range of f32");
}

TEST(Build, RefusesValuesOfAnotherProgram) {
  Epilogue other("other");
  const Value x = other.acc();
  EXPECT_EQ(message_of([&](Epilogue& e) {
              e.output("y", bf16, {M, N}, e.acc() + x);
            }),
            "in program bad: a value of another program: expected one of this epilogue");
}

}  // namespace
}  // namespace coda
