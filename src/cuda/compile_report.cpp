#include "cuda/compile_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "coda/error.hpp"
#include "cuda/emit.hpp"
#include "cuda/emit_two_pass.hpp"
#include "cuda/module.hpp"
#include "plan/plan.hpp"

namespace coda::cuda {

std::vector<CompileRow> compile_report(const Program& p, const std::string& architecture, std::size_t most) {
  if (architecture != "sm_90a")
    throw Error(ErrorKind::unsupported, fmt::format("kernels are made for sm_90a (Hopper), not for '{}'", architecture));
  struct Size { std::int64_t m, n, k; };
  std::vector<CompileRow> rows;
  std::set<std::string> seen;
  for (const Size s : {Size{8192, 24576, 4096}, Size{8192, 3072, 12288}, Size{512, 1536, 1536}, Size{8192, 1536, 1536}, Size{8192, 12288, 3072}}) {
    if (rows.size() >= most) break;
    const Problem problem = problem_of(p, s.m, s.n, s.k);
    if (why_two_pass(p, problem)) {
      const Problem product = product_problem(problem);
      const Config config = choose(demand_of(product_alone(p)), product).config;
      const TwoPass two = emit_two_pass(p, config);
      if (!seen.insert(config.name()).second) continue;
      for (const Emitted* kernel : {&two.product, &two.epilogue}) {
        if (kernel == &two.epilogue && rows.size() > 1) continue;  // it is the same with every product
        const Compiled c = compile_fresh(*kernel, {.architecture = architecture, .defines = {}});
        rows.push_back({p.name, kernel == &two.product ? two_pass_name(config) : std::string(two_pass_prefix) + " epilogue", c.seconds, c.usage,
                        kernel->shared_bytes, c.code.size()});
      }
      continue;
    }
    const Plan plan = choose(demand_of(p), problem);
    const Emitted kernel = emit(p, plan.config);
    if (!seen.insert(plan.config.name()).second) continue;
    const Compiled c = compile_fresh(kernel, {.architecture = architecture, .defines = {}});
    rows.push_back({p.name, plan.config.name(), c.seconds, c.usage, kernel.shared_bytes, c.code.size()});
  }
  return rows;
}

CompileRow compile_report_of(const Program& p, const std::string& config) {
  for (const Major a : {Major::k, Major::mn})
    for (const Major b : {Major::k, Major::mn}) {
      const Problem problem = problem_of(p, 8192, 24576, 4096, a, b);
      if (why_two_pass(p, problem)) continue;
      const auto plan = find_plan(config, demand_of(p), problem);
      if (!plan) continue;
      const Emitted kernel = emit(p, plan->config);
      const Compiled c = compile_fresh(kernel, {.architecture = "sm_90a", .defines = {}});
      return {p.name, config, c.seconds, c.usage, kernel.shared_bytes, c.code.size()};
    }
  throw Error(ErrorKind::value, fmt::format("program {} has no configuration named {}; `coda emit {} --list` names those it has", p.name, config, p.name));
}

}  // namespace coda::cuda
