// coda compile: what the compiler makes of programs' kernels: time, registers, spills, shared memory. Needs no GPU.
#include <algorithm>

#include <fmt/format.h>

#include "cli.hpp"
#include "cuda/compile_report.hpp"
#include "suite.hpp"

namespace coda::cli {
namespace {

struct Options : ProgramOptions {
  bool all = false;
  std::string arch = "sm_90a";
  std::string config;
  std::size_t most = 3;
  int max_spill = -1;
  bool json = false;
};

Json to_json(const std::string& label, const cuda::CompileRow& r) {
  return {{"program", r.program},
          {"label", label},
          {"config", r.config},
          {"seconds", r.seconds},
          {"registers", r.usage.registers},
          {"spill_store_bytes", r.usage.spill_store_bytes},
          {"spill_load_bytes", r.usage.spill_load_bytes},
          {"stack_bytes", r.usage.stack_bytes},
          {"serialised", r.usage.serialised},
          {"shared_bytes", r.shared_bytes + r.usage.static_shared_bytes},
          {"code_bytes", r.code_bytes}};
}

int compile_programs(const Options& o) {
  if (o.all != o.file.empty()) throw UsageError("give a FILE or --all");
  if (o.all && !o.config.empty()) throw UsageError("--config is of one FILE, not of --all");
  const std::vector<Case> cases = o.all ? standard_programs_alone(o) : std::vector<Case>{case_of(o)};
  Json json = Json::array();
  Table table({"program", "configuration", "seconds", "registers", "spilled", "shared", "code"});
  std::vector<std::string> failures;
  double slowest = 0, total = 0;
  std::size_t kernels = 0, done = 0;
  Progress progress;
  for (const Case& c : cases) {
    progress.show(fmt::format("compiling {} of {}: {}", ++done, cases.size(), c.label));
    try {
      const auto compiled = o.config.empty() ? cuda::compile_report(c.program, o.arch, o.most)
                                             : cuda::compile_report_of(c.program, o.config, o.arch);
      for (const cuda::CompileRow& r : compiled) {
        const int spilled = std::max(r.usage.spill_store_bytes, r.usage.spill_load_bytes);
        table.row({c.label, r.config, fmt::format("{:.2f}", r.seconds), std::to_string(r.usage.registers),
                   fmt::format("{} B", spilled), fmt::format("{} B", r.shared_bytes + r.usage.static_shared_bytes),
                   fmt::format("{} B", r.code_bytes)});
        json.push_back(to_json(c.label, r));
        slowest = std::max(slowest, r.seconds), total += r.seconds, ++kernels;
        if (r.usage.serialised)
          failures.push_back(fmt::format("{} in {}: the compiler serialises its products (C7514, C7517)", c.label, r.config));
        if (o.max_spill >= 0 && spilled > o.max_spill)
          failures.push_back(
              fmt::format("{} in {} spills {} bytes, more than {}", c.label, r.config, spilled, o.max_spill));
      }
    } catch (const Error& e) {
      // Without a compiler nothing will compile; anything else is this program's own fault.
      if (cases.size() == 1 || (e.kind() == ErrorKind::unsupported && kernels == 0 && done == 1)) throw;
      failures.push_back(fmt::format("{}: {}", c.label, e.what()));
      json.push_back({{"program", c.program.name}, {"label", c.label}, {"error", describe_error(e)}});
    }
  }
  progress.clear();
  if (o.json) {
    write_json(json);
  } else {
    write(table.text({1}));
    write(fmt::format("\n{} kernels for {}: {:.1f} s in all, the slowest {:.2f} s", kernels, o.arch, total, slowest));
  }
  for (const std::string& line : failures) fmt::print(stderr, "coda: error: {}\n", line);
  return failures.empty() ? 0 : 1;
}

}  // namespace

void add_compile(CLI::App& app, Action& action) {
  CLI::App* sub =
      app.add_subcommand("compile", "Compile programs' kernels and report time, registers, spills, shared memory");
  auto o = std::make_shared<Options>();
  sub->add_option("FILE", o->file, "A .coda file or the name of a standard program");
  sub->add_flag("--all", o->all, "Every standard program");
  o->add_to(*sub, false);
  sub->add_option("--arch", o->arch, "GPU architecture")->capture_default_str();
  sub->add_option("--config", o->config, "This configuration (coda emit FILE --list names them) instead of likely ones");
  sub->add_option("--most", o->most, "Configurations of a program, at most")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  sub->add_option("--max-spill", o->max_spill, "Fail where a kernel spills more bytes than this");
  sub->add_flag("--json", o->json, "Machine-readable: an entry a kernel");
  sub->footer(
      "Needs NVRTC, no GPU.\nExamples:\n"
      "  coda compile norm_swiglu\n"
      "  coda compile --all --arch sm_90a --max-spill 64 --json");
  sub->callback([&action, o] { action = [o] { return compile_programs(*o); }; });
}

}  // namespace coda::cli
