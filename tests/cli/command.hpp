// Runs the built `coda` as a user does and keeps what it said.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "coda/safetensors.hpp"

namespace coda::test {

struct Said {
  int code = -1;  ///< exit code; 128 + signal where one ended it
  std::string out, err;
};

/// `arguments` go through the shell; `setup` is put before the command ("ulimit -f 1;").
Said coda_command(const std::string& arguments, const std::string& setup = "");

/// stdout as JSON; fails the test where it isn't.
nlohmann::json json_of(const Said& said);

/// Exit code 1, nothing on stdout, and one message on stderr that starts with "coda: error: " and holds `part`.
void expect_failure(const Said& said, const std::string& part);
/// The same with exit code 2.
void expect_usage_error(const Said& said, const std::string& part);

/// A directory of its own, removed with its contents.
class Directory {
 public:
  Directory();
  ~Directory();
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const;
  std::vector<std::string> names() const;

 private:
  std::filesystem::path path_;
};

std::string read_bytes(const std::string& path);

}  // namespace coda::test
