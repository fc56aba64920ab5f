// What a text becomes in canonical form: parentheses, numbers, folded conditions, dropped values, layout.
#include <gtest/gtest.h>

#include "coda/text.hpp"

namespace coda {
namespace {

const std::string head = "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n";

/// The canonical spelling of an expression of one value an element.
std::string canonical(const std::string& expression) {
  const std::string text = print(parse(head + "  out y: f32[M, N] = " + expression + "\n"));
  const std::string mark = "  out  y: f32[M, N] = ";
  const std::string found = text.substr(text.find(mark) + mark.size());
  EXPECT_EQ(print(parse(text)), text);
  return found.substr(0, found.size() - 1);
}

TEST(CanonicalText, KeepsOnlyTheParenthesesItNeeds) {
  EXPECT_EQ(canonical("((acc))"), "acc");
  EXPECT_EQ(canonical("(acc * 2) + (acc / 3)"), "acc * 2 + acc / 3");
  EXPECT_EQ(canonical("acc * (2 + acc)"), "acc * (2 + acc)");
  EXPECT_EQ(canonical("(acc - 1) - 2"), "acc - 1 - 2");
  EXPECT_EQ(canonical("acc - (1 - acc)"), "acc - (1 - acc)");
  EXPECT_EQ(canonical("acc + (1 + acc)"), "acc + (1 + acc)") << "sums of floats don't associate";
  EXPECT_EQ(canonical("acc * (col // 2 % 3)"), "acc * (col // 2 % 3)");
  EXPECT_EQ(canonical("(acc * col) / (col // 2)"), "acc * col / (col // 2)");
  EXPECT_EQ(canonical("-(acc)"), "-acc");
  EXPECT_EQ(canonical("-(-(acc))"), "--acc");
  EXPECT_EQ(canonical("-(acc * 2)"), "-(acc * 2)");
  EXPECT_EQ(canonical("(-acc) * 2"), "-acc * 2");
  EXPECT_EQ(canonical("acc*-acc"), "acc * -acc");
  EXPECT_EQ(canonical("acc--acc"), "acc - -acc");
  EXPECT_EQ(canonical("where(not (col < 3), acc, 0)"), "where(not col < 3, acc, 0)");
  EXPECT_EQ(canonical("where((not (col < 3)) and (row < 3), acc, 0)"), "where(not col < 3 and row < 3, acc, 0)");
  EXPECT_EQ(canonical("where(not (col < 3 and row < 3), acc, 0)"), "where(not (col < 3 and row < 3), acc, 0)");
  EXPECT_EQ(canonical("where((col < 3 or row < 3) and row > 1, acc, 0)"),
            "where((col < 3 or row < 3) and row > 1, acc, 0)");
  EXPECT_EQ(canonical("where(col < 3 or (row < 3 and row > 1), acc, 0)"),
            "where(col < 3 or row < 3 and row > 1, acc, 0)");
  EXPECT_EQ(canonical("where(col < 3 or (row < 3 or row > 1), acc, 0)"),
            "where(col < 3 or (row < 3 or row > 1), acc, 0)");
}

TEST(CanonicalText, SpellsNumbersShortestAndExactly) {
  EXPECT_EQ(canonical("acc * 1"), "acc * 1");
  EXPECT_EQ(canonical("acc * 1.0"), "acc * 1.0");
  EXPECT_EQ(canonical("acc * 1."), "acc * 1.0");
  EXPECT_EQ(canonical("acc * .5"), "acc * 0.5");
  EXPECT_EQ(canonical("acc * 1e0"), "acc * 1.0");
  EXPECT_EQ(canonical("acc * 1E+3"), "acc * 1000.0");
  EXPECT_EQ(canonical("acc * 0.1"), "acc * 0.1");
  EXPECT_EQ(canonical("acc * 0.10000000149011612"), "acc * 0.1") << "the nearest f32 is what a real constant is";
  EXPECT_EQ(canonical("acc * 16777217.0"), "acc * 16777216.0");
  EXPECT_EQ(canonical("acc * 0.70710678118654752440"), "acc * 0.70710677");
  EXPECT_EQ(canonical("acc * 1e-45"), "acc * 1e-45");
  EXPECT_EQ(canonical("acc * 3.4028235e38"), "acc * 3.4028235e+38");
  EXPECT_EQ(canonical("acc * inf"), "acc * inf");
  EXPECT_EQ(canonical("acc * -inf"), "acc * -inf");
  EXPECT_EQ(canonical("acc * -0.0"), "acc * -0.0");
  EXPECT_EQ(canonical("acc * -0"), "acc * 0");
  EXPECT_EQ(canonical("acc - 2"), "acc - 2");
  EXPECT_EQ(canonical("acc - -2"), "acc - -2");
  EXPECT_EQ(canonical("acc * -(2)"), "acc * -(2)");
  EXPECT_EQ(canonical("acc * -2147483648"), "acc * -2147483648");
}

TEST(CanonicalText, ReplacesParamsByTheirValues) {
  const std::string text =
      "program p\n  param D = 64\n  param R = D / 2 - (3 + 5) * 2 % 7\n"
      "  gemm A: f16[M, K], B: f16[N, K]\n  in t: f32[P, R+D//3]\n"
      "  a, b = split(acc, heads(D, R))\n"
      "  out y: f16[M, N/2] = a * b * lookup(t, row, R) * -D\n";
  EXPECT_EQ(print(parse(text)),
            "program p\n  gemm A: f16[M, K], B: f16[N, K]\n  in   t: f32[P, 51]\n"
            "  a, b = split(acc, heads(64, 30))\n"
            "  out  y: f16[M, N/2] = a * b * lookup(t, row, 30) * -64\n");
  EXPECT_EQ(parse(text).params, (std::vector<Param>{{"D", 64}, {"R", 30}}));
  const Program p = parse(text, {{"D", 32}, {"R", 32}});
  EXPECT_EQ(p.params, (std::vector<Param>{{"D", 32}, {"R", 32}}));
  EXPECT_NE(print(p).find("heads(32)"), std::string::npos);
}

TEST(CanonicalText, FoldsWhereOnConditionsKnownWhenTheProgramIsRead) {
  const std::string text =
      "program p\n  param with_bias = 0\n  gemm A: bf16[M, K], B: bf16[N, K]\n"
      "  in bias: f32[N]\n  in gain: f32[]\n"
      "  z = where(with_bias != 0, acc * gain + bias, acc)\n  out y: bf16[M, N] = z * 2\n";
  EXPECT_EQ(print(parse(text)),
            "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  z = acc\n"
            "  out  y: bf16[M, N] = z * 2\n");
  EXPECT_EQ(print(parse(text, {{"with_bias", 1}})),
            "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in   bias: f32[N]\n  in   gain: f32[]\n"
            "  z = acc * gain + bias\n  out  y: bf16[M, N] = z * 2\n");
  EXPECT_EQ(canonical("where(1 == 1 and not 2.5 < 1, acc, row)"), "acc");
  EXPECT_EQ(canonical("where(7 // 2 == 3 and -7 // 2 == -4 and -7 % 2 == 1 and 1 // 0 == 0, acc, row)"), "acc");
  EXPECT_EQ(canonical("where(65536 * 65536 == 0 and 2147483647 + 1 < 0, acc, row)"), "acc") << "32 bits, wrapping";
  EXPECT_EQ(canonical("where(1 / 2 == 0.5, acc, row)"), "acc");
  EXPECT_EQ(canonical("where(max(2, 3) == 3 and exp(0) == 1 and clamp(5, 0, 4) == 4, acc, row)"), "acc");
  EXPECT_EQ(canonical("where(where(1 == 1, 2, 3) == 2, acc, row)"), "acc");
  EXPECT_EQ(canonical("where(N == 3, acc, row)"), "where(N == 3, acc, row)") << "N is known at run time only";
}

TEST(CanonicalText, DropsOutputsWhoseConditionFails) {
  const std::string text =
      "program p\n  param with_sum = 0\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in w: f32[N]\n"
      "  out y: bf16[M, N] = acc\n  finish s: f32[M] = sum(acc * w, over n) if with_sum == 1\n";
  EXPECT_EQ(print(parse(text)), head + "  out  y: bf16[M, N] = acc\n");
  EXPECT_EQ(print(parse(text, {{"with_sum", 1}})),
            head + "  in   w: f32[N]\n  out  y: bf16[M, N] = acc\n  finish s: f32[M] = sum(acc * w, over n)\n");
}

TEST(CanonicalText, DropsSecondNamesAndKeepsFirst) {
  EXPECT_EQ(print(parse(head + "  z = acc * 2\n  w = z\n  out y: bf16[M, N] = z * w\n")),
            head + "  z = acc * 2\n  out  y: bf16[M, N] = z * z\n");
}

TEST(CanonicalText, WritesAnUnusedMemberOfAPairAsUnderscore) {
  EXPECT_EQ(print(parse(head + "  a, b = split(acc, halves)\n  out y: bf16[M, N/2] = where(1 == 2, a, b)\n")),
            head + "  _, b = split(acc, halves)\n  out  y: bf16[M, N/2] = b\n");
}

TEST(CanonicalText, IgnoresBlanksCommentsAndWhereLinesBreakInParentheses) {
  EXPECT_EQ(
      print(parse("\xEF\xBB\xBF\n#  first\n#\n\n   # second \r\nprogram p # name\r\n\n"
                  "gemm A:bf16[M,K],\tB:bf16[\n  N,\n  K\n]\nout y:bf16[M,N]=max(acc, # a comment\n\n  0)# end")),
      "#  first\n#\n# second\nprogram p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  out  y: bf16[M, N] = max(acc, 0)\n");
}

TEST(CanonicalText, LetsNamesOfFunctionsBeNames) {
  const std::string text = head +
                           "  in   cos: f32[P, 64]\n  sum = acc * lookup(cos, row, col % 64)\n"
                           "  finish max: f32[M] = sum(sum, over n)\n";
  EXPECT_EQ(print(parse(text)), text);
}

TEST(CanonicalText, HoldsEveryShape) {
  const std::string text =
      "program p\n  gemm A: e4m3[M, K], B: e5m2[N, K]\n  in   a: f32[]\n  in   b: i64[M]\n"
      "  in   c: bf16[N]\n  in   d: f16[N/2]\n  in   e: e4m3[2N]\n  in   f: bf16[M, N]\n"
      "  in   g: bf16[M, N/2]\n  in   h: e5m2[M, 2N]\n  in   i: f32[P]\n  in   j: f32[8, P]\n"
      "  l, r = split(h * e, adjacent)\n"
      "  out  o1: f16[M, N] = acc * a + b * c + f\n"
      "  out  o2: f32[N, M] += l * lookup(i, b) * lookup(j, b, 3)\n"
      "  u, v = split(r, adjacent)\n"
      "  out  o3: e4m3[M, N/2] = u * d * g\n"
      "  out  o4: e5m2[N/2, M] = v\n"
      "  out  o5: bf16[2N, M] += h\n"
      "  finish o6: f32[N/2] = sum(v, over m)\n"
      "  finish o7: bf16[2N] = max(h, over m)\n"
      "  finish o8: f16[] = max(h, over mn)\n";
  EXPECT_EQ(print(parse(text)), text);
}

}  // namespace
}  // namespace coda
