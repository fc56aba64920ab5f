// coda emit: the CUDA text of a program in one configuration, or the configurations it could have.
#include "cuda/emit.hpp"

#include <fmt/format.h>

#include "cli.hpp"
#include "plan/plan.hpp"

namespace coda::cli {
namespace {

struct Options : ProgramOptions {
  std::string config;
  std::string extents = "M=8192,N=8192,K=8192";
  bool list = false, json = false;
};

int emit_program(const Options& o) {
  const Program p = o.load();
  const Sizes s = sizes(o.extents);
  for (const char* name : {"M", "N", "K"})
    if (!s.contains(name)) throw UsageError(fmt::format("--extents {}: {} is missing", o.extents, name));
  const Demand demand = demand_of(p);
  Problem problem;
  problem.m = s.at("M"), problem.n = s.at("N"), problem.k = s.at("K");
  problem.tile_bytes = tile_traffic(p);

  if (o.list) {
    Json names = Json::array();
    std::string text;
    for (const Plan& plan : candidates(demand, problem)) {
      names.push_back(plan.config.name());
      text += plan.config.name() + "\n";
    }
    if (text.empty()) choose(demand, problem);  // throws, with the reasons
    if (o.json) {
      write_json({{"program", p.name}, {"configurations", names}});
    } else {
      write(text);
    }
    return 0;
  }

  Plan plan;
  if (o.config.empty()) {
    plan = choose(demand, problem);
  } else if (const auto found = find_plan(o.config, demand, problem)) {
    plan = *found;
  } else {
    throw Error(ErrorKind::value,
                fmt::format("program {} has no configuration named {} on M={}, N={}, K={}; `coda emit {} --list` "
                            "names those it has",
                            p.name, o.config, problem.m, problem.n, problem.k, o.file));
  }
  const Emitted emitted = emit(p, plan.config);
  if (!o.json) {
    write(emitted.source);
    return 0;
  }
  write_json({{"program", p.name},
              {"config", emitted.config.name()},
              {"entry", emitted.entry},
              {"threads", emitted.threads},
              {"shared_bytes", emitted.shared_bytes},
              {"source", emitted.source},
              {"wgmma", emitted.wgmma}});
  return 0;
}

}  // namespace

void add_emit(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("emit", "Print the CUDA text of a program's kernel");
  auto o = std::make_shared<Options>();
  o->add_to(*sub);
  sub->add_option("CONFIG", o->config, "A configuration's name; chosen for --extents if not given");
  sub->add_option("--extents", o->extents, "Sizes to choose for")->capture_default_str();
  sub->add_flag("--list", o->list, "List the configurations instead, likeliest first");
  sub->add_flag("--json", o->json, "Machine-readable");
  sub->footer(
      "Needs no GPU.\nExamples:\n"
      "  coda emit norm_swiglu\n"
      "  coda emit norm_swiglu --list --extents M=512,N=4096,K=1024");
  sub->callback([&action, o] { action = [o] { return emit_program(*o); }; });
}

}  // namespace coda::cli
