// coda emit: the CUDA text of a program in one configuration, or the configurations it could have.
#include "cuda/emit.hpp"

#include <fmt/format.h>

#include "cli.hpp"
#include "cuda/emit_two_pass.hpp"
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
  Problem problem = problem_of(p, s.at("M"), s.at("N"), s.at("K"));
  const bool two_pass = o.config.starts_with(two_pass_prefix) || why_two_pass(p, problem);
  const Demand demand = two_pass ? demand_of(product_alone(p)) : demand_of(p);
  if (two_pass) problem = product_problem(problem);
  const auto name_of_config = [&](const Config& c) { return two_pass ? two_pass_name(c) : c.name(); };

  if (o.list) {
    Json names = Json::array();
    std::string text;
    for (const Plan& plan : candidates(demand, problem)) {
      names.push_back(name_of_config(plan.config));
      text += name_of_config(plan.config) + "\n";
    }
    if (o.json) {
      write_json({{"program", p.name}, {"configurations", names}});
    } else {
      write(text);
    }
    return 0;
  }

  Plan plan;
  const std::string config = two_pass && o.config.size() > two_pass_prefix.size() ? o.config.substr(two_pass_prefix.size() + 1) : o.config;
  if (config.empty() || config == two_pass_prefix) {
    plan = choose(demand, problem);
  } else if (const auto found = find_plan(config, demand, problem)) {
    plan = *found;
  } else {
    throw Error(ErrorKind::value,
                fmt::format("program {} has no configuration named {} on M={}, N={}, K={}; `coda emit {} --list` "
                            "names those it has",
                            p.name, o.config, problem.m, problem.n, problem.k, o.file));
  }
  std::vector<Emitted> kernels;
  if (two_pass) {
    TwoPass both = emit_two_pass(p, plan.config);
    kernels = {std::move(both.product), std::move(both.epilogue)};
  } else {
    kernels.push_back(emit(p, plan.config));
  }
  if (!o.json) {
    for (std::size_t i = 0; i < kernels.size(); ++i) write((i == 0 ? "" : "\n") + kernels[i].source);
    return 0;
  }
  Json json{{"program", p.name}, {"config", name_of_config(plan.config)}};
  const auto add = [](Json& to, const Emitted& e) {
    to["entry"] = e.entry, to["threads"] = e.threads, to["shared_bytes"] = e.shared_bytes, to["source"] = e.source, to["wgmma"] = e.wgmma;
  };
  add(json, kernels[0]);
  if (two_pass) add(json["second_pass"], kernels[1]);
  write_json(json);
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
