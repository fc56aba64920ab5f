// What subcommands print: tables, quantities, progress, JSON.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "cli.hpp"

namespace coda::cli {
namespace {

/// Characters, not bytes: UTF-8 continuation bytes take no column.
std::size_t columns_of(std::string_view s) {
  return static_cast<std::size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string scaled(double value, double step, std::span<const std::string_view> units) {
  std::size_t i = 0;
  while (std::abs(value) >= 0.9995 * step && i + 1 < units.size()) {
    value /= step;
    ++i;
  }
  const int decimals = i == 0 || std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, decimals, units[i]);
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

std::string Table::text(std::vector<std::size_t> left) const {
  left.push_back(0);
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blank(widths[i] - columns_of(row[i]), ' ');
      const bool is_left = std::find(left.begin(), left.end(), i) != left.end();
      line += (i == 0 ? "" : "  ") + (is_left ? row[i] + blank : blank + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string human_bytes(double bytes) {
  static constexpr std::array<std::string_view, 6> units{"B", "kB", "MB", "GB", "TB", "PB"};
  return scaled(bytes, 1000, units);
}

std::string human_flops(double flops) {
  static constexpr std::array<std::string_view, 6> units{"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
  return scaled(flops, 1000, units);
}

std::string human_seconds(double seconds) {
  static constexpr std::array<std::string_view, 4> units{"ns", "us", "ms", "s"};
  return scaled(seconds * 1e9, 1000, units);
}

Progress::Progress() : terminal_(isatty(STDERR_FILENO) != 0), last_(now()) {}
Progress::~Progress() { clear(); }

void Progress::show(const std::string& line) {
  if (terminal_) {
    fmt::print(stderr, "\r{}\x1b[K", line);
    std::fflush(stderr);
    shown_ = true;
  } else if (now() - last_ > 5) {
    fmt::print(stderr, "{}\n", line);
    last_ = now();
  }
}

void Progress::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  shown_ = false;
}

void write(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
}

void write_json(const Json& json) { write(json.dump(2, ' ', false, Json::error_handler_t::replace)); }

std::string_view name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::syntax: return "syntax";
    case ErrorKind::type: return "type";
    case ErrorKind::locality: return "locality";
    case ErrorKind::shape: return "shape";
    case ErrorKind::dtype: return "dtype";
    case ErrorKind::layout: return "layout";
    case ErrorKind::value: return "value";
    case ErrorKind::io: return "io";
    case ErrorKind::unsupported: return "unsupported";
    case ErrorKind::device: return "device";
    case ErrorKind::internal: return "internal";
  }
  return "internal";
}

Json describe_error(const Error& e) {
  return {{"kind", name_of(e.kind())},
          {"message", e.what()},
          {"file", e.where().file},
          {"line", e.where().line},
          {"column", e.where().column}};
}

}  // namespace coda::cli
