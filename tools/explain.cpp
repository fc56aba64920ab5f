// coda explain: flops, bytes with and without fusion, what fusion saves, and time floors on a named GPU.
#include <fmt/format.h>

#include "cli.hpp"
#include "cuda/emit_two_pass.hpp"

namespace coda::cli {
namespace {

struct Options : ProgramOptions {
  std::string extents;
  std::string gpu = "h200";
  bool json = false;
};

/// One way to run the program, with its cost.
struct Way {
  std::string_view name;
  std::string_view what;
  const std::vector<Pass>* passes;
  bool one_kernel;
};

Json passes_json(std::span<const Pass> passes) {
  Json all = Json::array();
  for (const Pass& pass : passes) all.push_back({{"name", pass.name}, {"read", pass.read}, {"written", pass.written}});
  return all;
}

int explain_program(const Options& o) {
  const Program p = o.load();
  const Gpu& target = gpu(o.gpu);
  const Explanation e = explain(p, sizes(o.extents));
  const Way ways[] = {
      {"fused", "one kernel", &e.fused, true},
      {"one_pass", "product, then one pass", &e.one_pass, false},
      {"eager", "product, then an operator at a time", &e.eager, false},
  };
  const auto two_pass = why_two_pass(p, problem_of(p, e.m, e.n, e.k));
  const double fused_bytes = static_cast<double>(total_bytes(e.fused));

  if (o.json) {
    Json json{{"program", p.name}, {"M", e.m}, {"N", e.n}, {"K", e.k}, {"flops", e.flops}};
    json["gpu"] = {{"name", target.name},
                   {"bandwidth", target.bandwidth},
                   {"flops_16bit", target.flops_16bit},
                   {"flops_8bit", target.flops_8bit},
                   {"flops_f32", target.flops_f32},
                   {"source", target.source}};
    for (const Way& way : ways)
      json[std::string(way.name)] = {{"bytes", total_bytes(*way.passes)},
                                     {"saved", total_bytes(*way.passes) - total_bytes(e.fused)},
                                     {"floor_s", floor_seconds(e, *way.passes, way.one_kernel, p.a_dtype, target)},
                                     {"passes", passes_json(*way.passes)}};
    json["two_pass"] = two_pass ? Json(*two_pass) : Json(nullptr);
    write_json(json);
    return 0;
  }

  std::string text =
      fmt::format("{} on M={}, N={}, K={}: {} in the product\n\n", p.name, e.m, e.n, e.k, human_flops(e.flops));
  Table arguments({"argument", "read", "written"});
  const auto cell = [](std::int64_t bytes) {
    return bytes == 0 ? std::string("-") : human_bytes(static_cast<double>(bytes));
  };
  for (const Pass& pass : e.fused) arguments.row({pass.name, cell(pass.read), cell(pass.written)});
  text += arguments.text() + "\n";

  Table costs({"run as", "passes", "bytes", "fusion saves", fmt::format("floor on {}", target.name), "x fused"});
  const double fused_floor = floor_seconds(e, e.fused, true, p.a_dtype, target);
  for (const Way& way : ways) {
    const double bytes = static_cast<double>(total_bytes(*way.passes));
    const double floor = floor_seconds(e, *way.passes, way.one_kernel, p.a_dtype, target);
    costs.row({std::string(way.what), std::to_string(way.one_kernel ? 1 : way.passes->size()), human_bytes(bytes),
               way.one_kernel ? "-" : human_bytes(bytes - fused_bytes), human_seconds(floor),
               fmt::format("{:.2f}", floor / fused_floor)});
  }
  text += costs.text();
  text += fmt::format(
      "\nA floor is the product's arithmetic at peak or its bytes, whichever takes longer, plus the bytes of "
      "the\nother passes. {}: {}.\n",
      target.name, target.source);
  if (two_pass)
    text += fmt::format(
        "\nThe GPU engine has no one kernel for it. It runs in two passes, and the f32 product, {}, goes through memory "
        "twice:\n{}.\n",
        human_bytes(4.0 * static_cast<double>(e.m) * static_cast<double>(e.n)), *two_pass);
  write(text);
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("explain", "Say what a program costs, fused and unfused, before running it");
  auto o = std::make_shared<Options>();
  o->add_to(*sub);
  sub->add_option("--extents", o->extents, "Sizes, as in M=8192,N=4096,K=4096; tables too: P=131072")->required();
  sub->add_option("--gpu", o->gpu, "Whose peak rates: h100, h200, h200-sustained")->capture_default_str();
  sub->add_flag("--json", o->json, "Machine-readable");
  sub->footer(
      "Examples:\n"
      "  coda explain norm_swiglu --extents M=8192,N=28672,K=4096\n"
      "  coda explain linear_cross_entropy --without logits --extents M=8192,N=128256,K=4096 --gpu h100");
  sub->callback([&action, o] { action = [o] { return explain_program(*o); }; });
}

}  // namespace coda::cli
