// Any bytes, however long or deep, give a program or an Error, quickly and in bounded memory.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "coda/text.hpp"
#include "support/random_program.hpp"

namespace coda {
namespace {

const std::string head = "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n";

std::string repeat(std::string_view s, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += s;
  return all;
}

/// Parses; a program must round-trip, an error must have a place.
void survive(std::string_view text) {
  try {
    const Program p = parse(text);
    const std::string canonical = print(p);
    const Program again = parse(canonical);
    ASSERT_TRUE(again == p) << canonical;
    ASSERT_EQ(print(again), canonical);
  } catch (const Error& e) {
    ASSERT_NE(e.kind(), ErrorKind::internal) << e.what();
    ASSERT_GT(e.where().line, 0) << e.what();
    ASSERT_LT(std::string_view(e.what()).size(), 4096u);
  }
}

TEST(HostileText, NestsAsDeepAsItLikes) {
  for (const std::string_view open : {"(", "-", "not ", "silu(", "where(1 < 2, ", "max(acc, ", "1 + (", "- -("})
    for (const int depth : {90, 100, 101, 400, 401, 100'000})
      ASSERT_NO_FATAL_FAILURE(
          survive(head + "  out y: bf16[M, N] = " + repeat(open, depth) + "acc" + repeat(")", depth)));
  for (const std::string_view open : {"(", "-"})
    ASSERT_NO_FATAL_FAILURE(
        survive(head + "  in t: f32[" + repeat(open, 100'000) + "1" + repeat(")", 100'000) + "]\n"));
  ASSERT_NO_FATAL_FAILURE(survive(head + repeat("(", 500'000)));
  ASSERT_NO_FATAL_FAILURE(survive(head + repeat("[\n", 250'000)));
}

TEST(HostileText, IsAsLongAsItLikes) {
  ASSERT_NO_FATAL_FAILURE(survive(head + "  out y: bf16[M, N] = acc" + repeat(" + acc", 100'000)));
  ASSERT_NO_FATAL_FAILURE(survive(head + "  " + std::string(900'000, 'x') + " = acc"));
  ASSERT_NO_FATAL_FAILURE(survive(head + "  out y: bf16[M, N] = acc * " + std::string(900'000, '9')));
  ASSERT_NO_FATAL_FAILURE(survive(head + "  out y: bf16[M, N] = acc * 1." + std::string(900'000, '0')));
  ASSERT_NO_FATAL_FAILURE(survive(head + repeat("# a comment\n", 60'000)));
  ASSERT_NO_FATAL_FAILURE(survive(head + repeat("  in x: f32[M]\n", 60'000)));
  ASSERT_NO_FATAL_FAILURE(survive(repeat("param D = 1\n", 60'000)));
  std::string many = head;
  for (int i = 0; i < 20'000; ++i) many += "  v" + std::to_string(i) + " = acc * 2\n";
  ASSERT_NO_FATAL_FAILURE(survive(many));
  std::string chain = head + "  v0 = acc * 2\n";
  for (int i = 1; i < 8'000; ++i) chain += "  v" + std::to_string(i) + " = v" + std::to_string(i - 1) + " * 2\n";
  ASSERT_NO_FATAL_FAILURE(survive(chain + "  out y: bf16[M, N] = v7999\n"));
  try {
    parse(std::string((1 << 20) + 1, ' '), {}, "big.coda");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "big.coda:1:1: a text of 1048577 bytes: expected at most 1048576");
  }
}

TEST(HostileText, MayBeAnyBytes) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string text = i % 2 ? head : "";
    for (unsigned n = random() % 200; n > 0; --n) text += static_cast<char>(random());
    ASSERT_NO_FATAL_FAILURE(survive(text));
  }
}

TEST(HostileText, MayBeAProgramWithSomethingWrong) {
  constexpr std::string_view pieces[] = {"(",   ")",    "[",   "]",     ",",      "=",      "+=",  ":",   "\n",
                                         "-",   "*",    "//",  " and ", " not ",  "acc",    "row", "N",   "2",
                                         "0.5", "1e-6", "inf", "_",     "over n", "halves", "#",   " if "};
  std::mt19937 random(2);
  std::vector<std::string> texts;
  for (const std::string& name : standard_programs()) texts.push_back(print(load_program(name)));
  for (std::uint64_t seed = 0; seed < 40; ++seed) texts.push_back(print(test::random_program(seed)));
  for (const std::string& original : texts)
    for (int i = 0; i < 40; ++i) {
      std::string text = original;
      for (unsigned n = 1 + random() % 3; n > 0 && !text.empty(); --n) {
        const std::size_t at = random() % text.size();
        switch (random() % 5) {
          case 0: text.erase(at, 1 + random() % 12); break;
          case 1: text.insert(at, pieces[random() % std::size(pieces)]); break;
          case 2: text[at] = static_cast<char>(random()); break;
          case 3: text.insert(at, original.substr(random() % original.size(), random() % 40)); break;
          default: std::swap(text[at], text[random() % text.size()]); break;
        }
      }
      ASSERT_NO_FATAL_FAILURE(survive(text)) << text;
    }
}

TEST(HostileText, ParamsMayBeAnyNumber) {
  const std::string text =
      "program p\n  param D = 8\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in t: f32[D*2, D-1]\n"
      "  a, b = split(acc, heads(D))\n  out y: bf16[M, N] = join(a, -b, heads(D)) * lookup(t, row, -D)\n";
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t d : {-most - 1, -most, std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, std::int64_t{2},
                               std::int64_t{1} << 31, (std::int64_t{1} << 31) - 2, most}) {
    try {
      EXPECT_GT(parse(text, {{"D", d}}).nodes.size(), 0u);
      EXPECT_TRUE(d == 2 || d == (std::int64_t{1} << 31) - 2) << d;
    } catch (const Error& e) {
      EXPECT_NE(e.kind(), ErrorKind::internal) << e.what();
    }
  }
}

}  // namespace
}  // namespace coda
