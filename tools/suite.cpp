#include "suite.hpp"

#include <numeric>

#include <fmt/format.h>

namespace coda::cli {
namespace {

/// Options worth a run of their own beside the defaults, by param name.
const std::map<std::string_view, std::vector<ParamValues>>& variants() {
  static const std::map<std::string_view, std::vector<ParamValues>> table{
      {"approximate", {{{"approximate", 1}}}},
      {"zero_centred", {{{"zero_centred", 1}}}},
      {"with_norm", {{{"with_norm", 1}}}},
      {"with_bias", {{{"with_bias", 1}}}},
      {"with_softcap", {{{"with_softcap", 1}}}},
      {"smoothing", {{{"smoothing", 1}}, {{"smoothing", 2}}}},
      {"with_z_loss", {{{"with_z_loss", 1}}}},
      {"D", {{{"D", 64}}}},
      {"R", {{{"D", 64}, {"R", 32}}}},
      {"with_residual", {{{"with_residual", 0}}}},
      {"mean", {{{"mean", 0}}}},
  };
  return table;
}

std::string label_of(const std::string& name, const ParamValues& params) {
  std::string label = name;
  for (const auto& [key, value] : params) label += fmt::format(" {}={}", key, value);
  return label;
}

/// Adds a standard program, unless it has no form in the types of --dtype: nothing accumulates in f16, for one.
void add_standard(std::vector<Case>& cases, const std::string& name, const ParamValues& params,
                  const ProgramOptions& options) {
  const Program p = load_program(name, params);
  try {
    cases.push_back({label_of(name, params), options.with_dtype(p)});
  } catch (const Error& e) {
    fmt::print(stderr, "coda: left out: {}\n", e.what());
  }
}

void refuse_program_options(const ProgramOptions& options) {
  if (!options.params.empty() || !options.without.empty())
    throw UsageError("--param and --without are for one FILE, not for --all");
}

}  // namespace

Case case_of(const ProgramOptions& options) {
  std::string label = options.file;
  for (const std::string& param : options.params) label += " " + param;
  for (const std::string& output : options.without) label += " without " + output;
  return {std::move(label), options.load()};
}

std::vector<Case> standard_programs_alone(const ProgramOptions& options) {
  refuse_program_options(options);
  std::vector<Case> cases;
  for (const std::string& name : standard_programs()) add_standard(cases, name, {}, options);
  return cases;
}

std::vector<Case> standard_cases(const ProgramOptions& options) {
  refuse_program_options(options);
  std::vector<Case> cases;
  for (const std::string& name : standard_programs()) {
    add_standard(cases, name, {}, options);
    for (const Param& param : load_program(name).params)
      if (const auto found = variants().find(param.name); found != variants().end())
        for (const ParamValues& values : found->second) add_standard(cases, name, values, options);
  }
  return cases;
}

std::int64_t column_multiple(const Program& p) {
  std::int64_t multiple = 1;
  for (const Node& v : p.nodes) {
    if (v.op == Op::split && p.node(v.args[0]).type.width != Width::twice)
      multiple = std::lcm(multiple, v.pairing.kind == Pairing::Kind::heads ? v.pairing.head : 2);
    if (v.over.kind == Over::Kind::segment) multiple = std::lcm(multiple, v.over.segment);
  }
  return multiple;
}

std::vector<Sizes> default_extents(const Program& p, Device device) {
  const auto sizes = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    const std::int64_t multiple = column_multiple(p);
    return Sizes{{"M", m}, {"N", (n + multiple - 1) / multiple * multiple}, {"K", k}};
  };
  if (device.type == DeviceType::cuda) return {sizes(1000, 1040, 736), sizes(129, 272, 72), sizes(512, 1024, 512)};
  return {sizes(97, 131, 67), sizes(300, 1029, 40), sizes(256, 512, 192)};
}

std::vector<Sizes> extents_of(const std::vector<std::string>& texts) {
  std::vector<Sizes> all;
  for (const std::string& text : texts) {
    all.push_back(sizes(text));
    for (const char* name : {"M", "N", "K"})
      if (!all.back().contains(name)) throw UsageError(fmt::format("--extents {}: {} is missing", text, name));
  }
  return all;
}

std::map<std::string, std::int64_t, std::less<>> symbols_of(const Sizes& sizes) {
  std::map<std::string, std::int64_t, std::less<>> symbols(sizes.begin(), sizes.end());
  for (const char* name : {"M", "N", "K"}) symbols.erase(name);
  return symbols;
}

}  // namespace coda::cli
