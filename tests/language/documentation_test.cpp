// The examples of docs/language.md are what they say they are.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "coda/text.hpp"

namespace coda {
namespace {

/// The code blocks of the document, by the word after their fence.
std::multimap<std::string, std::string> code_blocks() {
  std::ifstream file(CODA_SOURCE_DIR "/docs/language.md");
  EXPECT_TRUE(file.is_open());
  std::multimap<std::string, std::string> blocks;
  std::string line, kind, text;
  bool inside = false;
  while (std::getline(file, line)) {
    if (line.starts_with("```")) {
      if (inside) blocks.emplace(kind, text);
      inside = !inside;
      kind = line.substr(3);
      text.clear();
    } else if (inside) {
      text += line + "\n";
    }
  }
  EXPECT_FALSE(inside);
  return blocks;
}

std::string_view spell(ErrorKind kind) {
  return kind == ErrorKind::syntax ? "syntax" : kind == ErrorKind::type ? "type" : "locality";
}

TEST(Documentation, ShowsProgramsThatCheckAndRoundTrip) {
  const auto blocks = code_blocks();
  EXPECT_GE(blocks.count("coda"), 4u);
  for (auto [it, end] = blocks.equal_range("coda"); it != end; ++it) {
    Program p;
    ASSERT_NO_THROW(p = parse(it->second)) << it->second;
    EXPECT_EQ(parse(print(p)), p);
    for (const Param& param : p.params) EXPECT_NO_THROW(parse(it->second, {{param.name, 64}})) << param.name;
  }
}

TEST(Documentation, ShowsFaultsAndTheirMessages) {
  const auto blocks = code_blocks();
  EXPECT_GE(blocks.count("coda-error"), 5u);
  for (auto [it, end] = blocks.equal_range("coda-error"); it != end; ++it) {
    const std::size_t mark = it->second.find("=> ");
    ASSERT_NE(mark, std::string::npos) << it->second;
    const std::string text = it->second.substr(0, mark);
    const std::string expected = it->second.substr(mark + 3, it->second.find('\n', mark) - mark - 3);
    try {
      parse(text);
      ADD_FAILURE() << "no error in\n" << text;
    } catch (const Error& e) {
      const std::string found =
          std::string(spell(e.kind())) + " " + std::string(e.what()).substr(std::string("<text>:").size());
      EXPECT_TRUE(found.starts_with(expected)) << "documented: " << expected << "\nfound:      " << found;
    }
  }
}

TEST(Documentation, NamesEveryFunction) {
  std::ifstream file(CODA_SOURCE_DIR "/docs/language.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (int op = static_cast<int>(Op::add); op <= static_cast<int>(Op::softplus); ++op)
    EXPECT_NE(text.find(name_of(static_cast<Op>(op))), std::string::npos) << name_of(static_cast<Op>(op));
}

}  // namespace
}  // namespace coda
