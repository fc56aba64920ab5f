#include "command.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace coda::test {

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Said coda_command(const std::string& arguments, const std::string& setup) {
  const Directory scratch;
  const std::string out = scratch.file("out"), err = scratch.file("err");
  const std::string line = "(" + setup + " exec '" CODA_COMMAND "' " + arguments + ") </dev/null";
  // The outer redirections come first, so that a test may send stdout elsewhere.
  const int status = std::system(("{ " + line + "; } >'" + out + "' 2>'" + err + "'").c_str());
  Said said;
  said.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  said.out = read_bytes(out);
  said.err = read_bytes(err);
  return said;
}

nlohmann::json json_of(const Said& said) {
  try {
    return nlohmann::json::parse(said.out);
  } catch (const nlohmann::json::exception& e) {
    ADD_FAILURE() << e.what() << "\nstdout: " << said.out << "\nstderr: " << said.err;
    return {};
  }
}

namespace {
void expect_refusal(const Said& said, int code, const std::string& part) {
  EXPECT_EQ(said.code, code) << said.err;
  EXPECT_EQ(said.out, "");
  EXPECT_EQ(said.err.rfind("coda: error: ", 0), 0u) << said.err;
  EXPECT_NE(said.err.find(part), std::string::npos) << "no '" << part << "' in: " << said.err;
}
}  // namespace

void expect_failure(const Said& said, const std::string& part) { expect_refusal(said, 1, part); }
void expect_usage_error(const Said& said, const std::string& part) { expect_refusal(said, 2, part); }

Directory::Directory() {
  std::string name = (std::filesystem::temp_directory_path() / "coda-cli-XXXXXX").string();
  if (!mkdtemp(name.data())) ADD_FAILURE() << "no temporary directory";
  path_ = name;
}
Directory::~Directory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Directory::write(const std::string& name, const std::string& bytes) const {
  std::ofstream(file(name), std::ios::binary) << bytes;
  return file(name);
}

std::vector<std::string> Directory::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace coda::test
