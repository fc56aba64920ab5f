// The standard programs, which the build puts inside the library, and programs from files.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "coda/text.hpp"
#include "diagnostics.hpp"
#include "embedded.hpp"
#include "internal.hpp"

namespace coda {
namespace {

constexpr std::string_view extension = ".coda";

std::string_view stem(std::string_view file) {
  return file.ends_with(extension) ? file.substr(0, file.size() - extension.size()) : file;
}

std::string read_text(const std::string& path) {
  const auto fail = [&](std::string_view what, std::string_view why) {
    throw Error(ErrorKind::io, fmt::format("{}: can't {} it: {}", path, what, why));
  };
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail("read", "it is a directory; expected a program text");
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (!file) fail("open", std::strerror(errno));
  std::string text(language::max_text + 1, '\0');  // a byte more than parse() takes, so that it refuses what is longer
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get())) fail("read", std::strerror(errno));
  return text;
}

}  // namespace

Program load_program(std::string_view path_or_name, const ParamValues& params) {
  const std::string path(path_or_name);
  std::error_code ignored;
  const bool exists = std::filesystem::exists(path, ignored);
  if (!exists && path.find_first_of("/.") == std::string::npos) {
    for (const embedded::File& f : embedded::programs())
      if (stem(f.name) == path_or_name) return parse(f.text, params, f.name);
    std::vector<std::string_view> names;
    for (const embedded::File& f : embedded::programs()) names.push_back(stem(f.name));
    throw Error(ErrorKind::io, fmt::format("'{}' is neither a file nor a standard program{}", path,
                                           language::did_you_mean(path_or_name, names)));
  }
  return parse(read_text(path), params, path_or_name);
}

std::vector<std::string> standard_programs() {
  std::vector<std::string> names;
  for (const embedded::File& f : embedded::programs()) names.emplace_back(stem(f.name));
  return names;
}

}  // namespace coda
