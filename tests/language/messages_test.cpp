// Each fault of a program text is reported in exactly the words of messages.txt.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "coda/text.hpp"

namespace coda {
namespace {

Error fault_of(std::string_view text) {
  try {
    parse(text, {}, "p.coda");
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "no error in\n" << text;
  return Error(ErrorKind::internal, "");
}

std::string_view spell(ErrorKind kind) {
  return kind == ErrorKind::syntax     ? "syntax"
         : kind == ErrorKind::type     ? "type"
         : kind == ErrorKind::locality ? "locality"
                                       : "?";
}

TEST(Messages, AreThoseOfTheGoldenFile) {
  std::ifstream file(CODA_SOURCE_DIR "/tests/language/messages.txt");
  ASSERT_TRUE(file.is_open());
  const std::string end(40, '=');
  std::string line, text, kind, message;
  bool in_message = false;
  int cases = -1;  // what stands before the first line of equals signs is the file's own heading
  while (std::getline(file, line)) {
    if (line == end) {
      if (++cases > 0) {
        const Error e = fault_of(text);
        EXPECT_EQ(std::string(e.what()) + "\n", message) << text;
        EXPECT_EQ(spell(e.kind()), kind) << text;
        EXPECT_EQ(e.where().file, "p.coda");
        EXPECT_GT(e.where().line, 0);
        EXPECT_GT(e.where().column, 0);
      }
      text = message = "";
      in_message = false;
    } else if (line.starts_with("=> ")) {
      kind = line.substr(3);
      in_message = true;
    } else {
      (in_message ? message : text) += line + "\n";
    }
  }
  EXPECT_GE(cases, 100);
}

TEST(Messages, ShowTheLineAndACaret) {
  EXPECT_STREQ(fault_of("program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n\tout y: bf16[M, N] = acc × rstd\n").what(),
               "p.coda:3:26: in program p: expected a name, a number or an operator, found '×'\n"
               "  |  out y: bf16[M, N] = acc × rstd\n"
               "  |                          ^");
}

TEST(Messages, ShowThePartOfALongLineThatMatters) {
  const std::string text =
      "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  out y: bf16[M, N] = " + std::string(300, ' ') + "rstd * acc\n";
  EXPECT_EQ(std::string(fault_of(text).what()),
            "p.coda:3:323: in program p: expected a name that is defined above, found 'rstd'\n  | " +
                std::string(80, ' ') + "rstd * acc\n  | " + std::string(80, ' ') + "^");
}

TEST(Messages, NameControlBytesByTheirNumber) {
  const std::string text = std::string("program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  z = acc ") + '\0' + " 2\n";
  EXPECT_STREQ(fault_of(text).what(),
               "p.coda:3:11: in program p: expected a name, a number or an operator, found the byte 0x00\n"
               "  |   z = acc   2\n"
               "  |           ^");
}

}  // namespace
}  // namespace coda
