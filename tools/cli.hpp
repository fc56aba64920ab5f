// What the subcommands of `coda` share: registration, exit codes, reading of options, tables.
//
// A subcommand is one file with one function add_<name>, which declares its options and, when the user chose it, sets
// the action to run. Exit codes: 0 success, 1 failure (a message on stderr), 2 wrong use of the command line.
#pragma once
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "coda/explain.hpp"
#include "coda/program.hpp"
#include "coda/text.hpp"

namespace coda::cli {

using Json = nlohmann::ordered_json;

/// What a subcommand does once its options are read; returns the exit code.
using Action = std::function<int()>;

void add_programs(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_print(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_train(CLI::App& app, Action& action);
void add_emit(CLI::App& app, Action& action);
void add_compile(CLI::App& app, Action& action);

/// Options that don't fit together or don't parse: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// FILE, --param, --without, --dtype: one program from the command line.
struct ProgramOptions {
  std::string file;
  std::vector<std::string> params;
  std::vector<std::string> without;
  std::string dtype;

  /// Declares the options; `with_file` also the positional FILE.
  void add_to(CLI::App& sub, bool with_file = true);
  Program load() const { return load(file); }
  Program load(const std::string& path) const;
  /// `p` in the types of --dtype.
  Program with_dtype(Program p) const;
};

/// "eps=1e-6" to its two sides. Throws UsageError without a '=' or with nothing before it.
std::pair<std::string, std::string> key_value(std::string_view text, std::string_view option);
/// A whole 64-bit integer, or UsageError.
std::int64_t integer(std::string_view text, std::string_view option);
/// "M=8192,N=4096,K=4096" to sizes. Throws UsageError where it doesn't parse, Error(value) on a size below 1.
Sizes sizes(std::string_view text);

/// Rows of text in aligned columns: the first left-aligned, numbers right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// The table's text; columns named in `left` (by index) are left-aligned besides the first.
  std::string text(std::vector<std::size_t> left = {}) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// "1.92 GB", "4.00 MB".
std::string human_bytes(double bytes);
/// "1.93 TFLOP".
std::string human_flops(double flops);
/// "12.3 ms", "4.10 us".
std::string human_seconds(double seconds);

/// One line of progress on stderr, rewritten in place on a terminal; elsewhere a line every few seconds.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(const std::string& line);
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
  double last_ = 0;
};

/// Writes text or pretty JSON, with a newline, to stdout.
void write(std::string_view text);
void write_json(const Json& json);

/// A file and a line for messages and JSON ("" and 0 where unknown).
Json describe_error(const Error& e);
std::string_view name_of(ErrorKind kind);

}  // namespace coda::cli
