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

namespace {

struct Size { std::int64_t m, n, k; };
// Large products of several widths, wide and narrow, and a small one.
constexpr Size sizes[] = {{8192, 24576, 4096}, {8192, 3072, 12288}, {512, 1536, 1536}, {8192, 1536, 1536}, {8192, 12288, 3072}};

void require_hopper(const std::string& architecture) {
  if (architecture != "sm_90a")
    throw Error(ErrorKind::unsupported, fmt::format("kernels are made for sm_90a (Hopper), not for '{}'", architecture));
}

CompileRow row_of(const Program& p, const std::string& config, const Emitted& kernel, const std::string& architecture) {
  const Compiled c = compile_fresh(kernel, {.architecture = architecture, .defines = {}});
  return {p.name, config, c.seconds, c.usage, kernel.shared_bytes, c.code.size()};
}

/// A program that runs in two passes: its product in this configuration and, if asked, the epilogue.
void add_two_pass(std::vector<CompileRow>& rows, const Program& p, const Config& product, bool with_epilogue, const std::string& architecture) {
  const TwoPass two = emit_two_pass(p, product);
  rows.push_back(row_of(p, two_pass_name(product), two.product, architecture));
  if (with_epilogue) rows.push_back(row_of(p, std::string(two_pass_prefix) + " epilogue", two.epilogue, architecture));
}

}  // namespace

std::vector<CompileRow> compile_report(const Program& p, const std::string& architecture, std::size_t most) {
  require_hopper(architecture);
  std::vector<CompileRow> rows;
  std::set<std::string> seen;
  for (const Size s : sizes) {
    if (rows.size() >= most) break;
    const Problem problem = problem_of(p, s.m, s.n, s.k);
    const bool two_pass = why_two_pass(p, problem).has_value();
    const Config config = two_pass ? choose(demand_of(product_alone(p)), product_problem(problem)).config : choose(demand_of(p), problem).config;
    if (!seen.insert(config.name()).second) continue;
    if (two_pass) add_two_pass(rows, p, config, rows.empty(), architecture);  // the epilogue is the same with every product
    else rows.push_back(row_of(p, config.name(), emit(p, config), architecture));
  }
  return rows;
}

std::vector<CompileRow> compile_report_of(const Program& p, const std::string& config, const std::string& architecture) {
  require_hopper(architecture);
  std::vector<CompileRow> rows;
  const std::string prefix = std::string(two_pass_prefix) + "_";
  for (const Size s : sizes)
    for (const Major a : {Major::k, Major::mn})
      for (const Major b : {Major::k, Major::mn}) {
        const Problem problem = problem_of(p, s.m, s.n, s.k, a, b);
        if (config.starts_with(prefix)) {
          const auto plan = find_plan(config.substr(prefix.size()), demand_of(product_alone(p)), product_problem(problem));
          if (!plan) continue;
          add_two_pass(rows, p, plan->config, true, architecture);
          return rows;
        }
        if (why_two_pass(p, problem)) continue;
        const auto plan = find_plan(config, demand_of(p), problem);
        if (!plan) continue;
        rows.push_back(row_of(p, config, emit(p, plan->config), architecture));
        return rows;
      }
  throw Error(ErrorKind::value, fmt::format("program {} has no configuration named {}; `coda emit {} --list` names those it has", p.name, config, p.name));
}

}  // namespace coda::cuda
