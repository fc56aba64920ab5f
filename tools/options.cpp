// Reading of the options that several subcommands share.
#include <charconv>

#include <fmt/format.h>

#include "cli.hpp"

namespace coda::cli {

void ProgramOptions::add_to(CLI::App& sub, bool with_file) {
  if (with_file) sub.add_option("FILE", file, "A .coda file or the name of a standard program")->required();
  sub.add_option("--param", params, "Set a program's param, as in --param D=64 (repeat for more)")
      ->allow_extra_args(false);
  sub.add_option("--without", without, "Leave an output out, and what only it needs (repeat for more)")
      ->allow_extra_args(false);
  sub.add_option("--dtype", dtype, "Type of A, B and of every bf16 argument instead: f32 or f16")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
}

Program ProgramOptions::with_dtype(Program p) const {
  if (dtype == "f32") return p.with_dtype(DType::f32);
  if (dtype == "f16") return p.with_dtype(DType::f16);
  return p;
}

Program ProgramOptions::load(const std::string& path) const {
  ParamValues values;
  for (const std::string& text : params) {
    const auto [name, value] = key_value(text, "--param");
    values[name] = integer(value, "--param " + name);
  }
  Program p = load_program(path, values);
  for (const std::string& output : without) p = p.without(output);
  return with_dtype(std::move(p));
}

std::pair<std::string, std::string> key_value(std::string_view text, std::string_view option) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    throw UsageError(fmt::format("{} takes NAME=VALUE; found '{}'", option, text));
  return {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

std::int64_t integer(std::string_view text, std::string_view option) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range)
    throw Error(ErrorKind::value, fmt::format("{}: {} doesn't fit in 64 bits", option, text));
  if (error != std::errc() || end != text.data() + text.size())
    throw UsageError(fmt::format("{} takes a whole number; found '{}'", option, text));
  return value;
}

Sizes sizes(std::string_view text) {
  Sizes result;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const auto [name, value] = key_value(text.substr(0, comma), "--extents");
    const std::int64_t size = integer(value, "--extents " + name);
    if (size < 1) throw Error(ErrorKind::value, fmt::format("--extents: {} = {} must be at least 1", name, size));
    if (!result.emplace(name, size).second) throw UsageError(fmt::format("--extents names {} twice", name));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) throw UsageError("--extents ends with a comma");
  }
  return result;
}

}  // namespace coda::cli
