// Text data: the split, the batches, and what is refused.
#include "io/text_data.hpp"

#include <gtest/gtest.h>

#include <set>

#include "coda/error.hpp"
#include "io/temporary_directory.hpp"

namespace coda::io {
namespace {

using test::TemporaryDirectory;
using test::write_file;

std::string counting(std::size_t n) {
  std::string s(n, '\0');
  for (std::size_t i = 0; i < n; ++i) s[i] = static_cast<char>(i);
  return s;
}

TEST(TextData, TheEndOfTheTextIsHeldOut) {
  TemporaryDirectory dir;
  write_file(dir / "t", counting(200));
  const TextData data(dir / "t", 0.25, 16);
  ASSERT_EQ(data.train().size(), 150u);
  ASSERT_EQ(data.validation().size(), 50u);
  EXPECT_EQ(data.train()[149], 149);
  EXPECT_EQ(data.validation()[0], 150);
}

TEST(TextData, TargetsAreTheNextBytesAndBatchesFollowFromSeedAndStep) {
  TemporaryDirectory dir;
  write_file(dir / "t", counting(250));
  const TextData data(dir / "t", 0.2, 8);
  std::set<std::int64_t> starts;
  for (std::uint64_t step = 0; step < 500; ++step) {
    const Batch b = random_batch(data.train(), 3, 8, 42, step);
    ASSERT_EQ(b.tokens.size(), 24u);
    for (std::size_t i = 0; i < 24; ++i) {
      EXPECT_EQ(b.targets[i], b.tokens[i] + 1);
      EXPECT_LT(b.targets[i], 200) << "a validation byte was trained on";
    }
    starts.insert({b.tokens[0], b.tokens[8], b.tokens[16]});
    EXPECT_EQ(random_batch(data.train(), 3, 8, 42, step).tokens, b.tokens);
  }
  EXPECT_EQ(starts.size(), 192u) << "every place but none past the last is reached";
  EXPECT_NE(random_batch(data.train(), 3, 8, 43, 0).tokens, random_batch(data.train(), 3, 8, 42, 0).tokens);
}

TEST(TextData, ConsecutiveBatchesCoverTheTextOnceAndEnd) {
  TemporaryDirectory dir;
  write_file(dir / "t", counting(100));
  const TextData data(dir / "t", 0.5, 8);
  const Batch first = consecutive_batch(data.validation(), 4, 8, 0);
  const Batch second = consecutive_batch(data.validation(), 4, 8, 4);
  EXPECT_EQ(first.tokens.front(), 50);
  EXPECT_EQ(first.tokens.size(), 32u);
  EXPECT_EQ(second.tokens.front(), 82);
  EXPECT_EQ(second.tokens.size(), 16u);
  EXPECT_EQ(consecutive_batch(data.validation(), 4, 8, 6).tokens.size(), 0u);
}

TEST(TextData, UnusableTextsAreRefusedWithTheReason) {
  TemporaryDirectory dir;
  const auto refusal = [&](const std::string& path, double fraction) -> std::string {
    try {
      const TextData data(path, fraction, 16);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  write_file(dir / "empty", "");
  write_file(dir / "short", counting(100));
  EXPECT_NE(refusal(dir / "absent", 0.1).find("No such file"), std::string::npos);
  EXPECT_NE(refusal(dir / ".", 0.1).find("Is a directory"), std::string::npos);
  EXPECT_NE(refusal(dir / "empty", 0.1).find("is empty"), std::string::npos);
  EXPECT_NE(refusal(dir / "short", 0.1).find("too short"), std::string::npos);
  EXPECT_NE(refusal(dir / "short", 1.0).find("between 0 and 1"), std::string::npos);
  EXPECT_EQ(refusal(dir / "short", 0.2), "");
}

}  // namespace
}  // namespace coda::io
