// coda verify: every output of a program against the fp64 evaluation, beside the unfused path's errors.
#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "cli.hpp"
#include "coda/compare.hpp"
#include "coda/inputs.hpp"
#include "device.hpp"
#include "suite.hpp"

namespace coda::cli {
namespace {

struct Options : ProgramOptions {
  bool all = false;
  std::vector<std::string> extents;
  std::string device = "cpu";
  std::uint64_t seed = 1;
  bool json = false;
};

/// What one run of one program on one set of extents showed.
struct Finding {
  std::vector<OutputError> outputs;
  std::vector<std::string> faults;  ///< broken rules other than accuracy

  bool ok() const {
    return faults.empty() && std::all_of(outputs.begin(), outputs.end(), [](const OutputError& e) { return e.ok; });
  }
};

std::size_t bytes_of(const Tensor& t) { return static_cast<std::size_t>(t.numel()) * size_of(t.dtype); }

Finding verify(const Program& p, const Sizes& sizes, std::uint64_t seed, Device device) {
  const InputOptions options{
      .extents = {sizes.at("M"), sizes.at("N"), sizes.at("K")}, .symbols = symbols_of(sizes), .seed = seed};
  const Inputs first = make_inputs(p, options), second = make_inputs(p, options), untouched = make_inputs(p, options);
  const Expected expected = expect(p, first.slots);
  execute(p, first.slots, device);
  execute(p, second.slots, device);

  const std::size_t inputs = first.slots.size() - p.outputs.size();
  Finding finding;
  finding.outputs = compare(p, expected, std::span(first.slots).subspan(inputs));
  const std::vector<Slot> slots = p.slots();
  const auto differ = [&](std::size_t i, const Inputs& other) {
    return std::memcmp(first.slots[i].data, other.slots[i].data, bytes_of(first.slots[i])) != 0;
  };
  for (std::size_t i = 0; i < first.slots.size(); ++i) {
    if (first.slots[i].numel() == 0) continue;
    if (i < inputs && differ(i, untouched))
      finding.faults.push_back(fmt::format("input {} was written to", slots[i].name));
    if (i >= inputs && differ(i, second))
      finding.faults.push_back(fmt::format("{} isn't the same on a second run", slots[i].name));
  }
  return finding;
}

Json to_json(const Finding& f) {
  Json outputs = Json::array();
  for (const OutputError& e : f.outputs)
    outputs.push_back({{"name", e.name},
                       {"rms", e.rms},
                       {"unfused_rms", e.unfused_rms},
                       {"max", e.max},
                       {"unfused_max", e.unfused_max},
                       {"scale", e.scale},
                       {"faults", e.faults},
                       {"worst", e.worst},
                       {"ok", e.ok}});
  return {{"ok", f.ok()}, {"outputs", outputs}, {"faults", f.faults}};
}

std::string ratio(double ours, double unfused) { return unfused > 0 ? fmt::format("{:.2f}", ours / unfused) : "-"; }

int verify_programs(const Options& o) {
  const Device device = device_named(o.device);
  if (o.all != o.file.empty()) throw UsageError("give a FILE or --all");
  const std::vector<Case> cases = o.all ? standard_cases(o) : std::vector<Case>{case_of(o)};

  Json json = Json::array();
  Table table({"program", "M", "N", "K", "output", "rms error", "/ unfused", "max error", "/ unfused", "verdict"});
  std::vector<std::string> broken;
  std::size_t runs = 0;
  Progress progress;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    for (const Sizes& sizes : o.extents.empty() ? default_extents(c.program, device) : extents_of(o.extents)) {
      progress.show(fmt::format("verifying {} of {}: {}", i + 1, cases.size(), c.label));
      const Finding finding = verify(c.program, sizes, o.seed, device);
      ++runs;
      const std::string where =
          fmt::format("{} at M={}, N={}, K={}", c.label, sizes.at("M"), sizes.at("N"), sizes.at("K"));
      for (const OutputError& e : finding.outputs) {
        table.row({c.label, std::to_string(sizes.at("M")), std::to_string(sizes.at("N")), std::to_string(sizes.at("K")),
                   e.name, fmt::format("{:.2e}", e.rms), ratio(e.rms, e.unfused_rms), fmt::format("{:.2e}", e.max),
                   ratio(e.max, e.unfused_max), e.ok ? "ok" : "WRONG"});
        if (!e.ok) broken.push_back(fmt::format("{}: {}", where, describe(e)));
      }
      for (const std::string& fault : finding.faults) broken.push_back(fmt::format("{}: {}", where, fault));
      Json entry{{"program", c.program.name},
                 {"label", c.label},
                 {"extents", sizes},
                 {"device", name_of(device)},
                 {"seed", o.seed}};
      entry.update(to_json(finding));
      json.push_back(std::move(entry));
    }
  }
  progress.clear();
  if (o.json) {
    write_json(json);
  } else {
    write(table.text({4, 9}));
    write(fmt::format(
        "\n{} programs, {} runs on {}: {}. Errors are against fp64; the unfused path rounds every matrix to A's type.\n"
        "Held to: rms at most 1.1 times, largest at most twice the unfused path's; reruns bitwise equal; inputs "
        "unchanged.",
        cases.size(), runs, name_of(device), broken.empty() ? "all right" : fmt::format("{} broken", broken.size())));
  }
  for (const std::string& line : broken) fmt::print(stderr, "coda: error: {}\n", line);
  return broken.empty() ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("verify", "Compare a program's results with fp64, beside the unfused path's");
  auto o = std::make_shared<Options>();
  sub->add_option("FILE", o->file, "A .coda file or the name of a standard program");
  sub->add_flag("--all", o->all, "Every standard program, with its options");
  o->add_to(*sub, false);
  sub->add_option("--extents", o->extents,
                  "Sizes, as in M=97,N=130,K=67 (repeat for more); ragged ones are the default")
      ->allow_extra_args(false);
  sub->add_option("--device", o->device, "cpu, cuda or cuda:N")->capture_default_str();
  sub->add_option("--seed", o->seed, "Of the random inputs")->capture_default_str();
  sub->add_flag("--json", o->json, "Machine-readable: an entry a run");
  sub->footer(
      "Exit code 1 where an output breaks the rule.\nExamples:\n"
      "  coda verify --all\n"
      "  coda verify norm_swiglu --extents M=1000,N=2048,K=512\n"
      "  coda verify my_program.coda --device cuda --json");
  sub->callback([&action, o] { action = [o] { return verify_programs(*o); }; });
}

}  // namespace coda::cli
