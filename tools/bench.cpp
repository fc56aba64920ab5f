// coda bench: programs beside the product alone and beside the product with separate passes.
#include "coda/bench.hpp"

#include <cerrno>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "bench.hpp"
#include "device.hpp"
#include "suite.hpp"

namespace coda::cli {
namespace {

Json to_json(const std::string& label, const bench::Result& r) {
  return {{"program", r.program},
          {"label", label},
          {"dtype", coda::name_of(r.dtype)},
          {"M", r.extents.m},
          {"N", r.extents.n},
          {"K", r.extents.k},
          {"threads", r.threads},
          {"clock", r.clock == bench::Clock::wall ? "wall" : "processor"},
          {"product_s", r.product_s},
          {"fused_s", r.fused_s},
          {"separate_s", r.separate_s},
          {"fused_ratio", r.fused_ratio},
          {"separate_ratio", r.separate_ratio},
          {"passes", r.passes}};
}

int bench_programs(BenchCommand o) {
  const Device device = device_named(o.device);
  if (o.all != o.file.empty()) throw UsageError("give a FILE or --all");
  if (o.repeats == 0) o.repeats = device.type == DeviceType::cuda ? 20 : 7;
  if (device.type == DeviceType::cuda) return bench_on_gpu(o, device.index);
  if (o.tune || !o.filter.empty()) throw UsageError("--tune and --filter are for --device cuda");
  if (o.dtype.empty()) o.dtype = "f32";
  if (o.extents.empty()) o.extents = {"M=2048,N=2048,K=2048"};
  const std::vector<Case> cases = o.all ? standard_programs_alone(o) : std::vector<Case>{case_of(o)};

  bench::Options options;
  options.repeats = o.repeats;
  options.threads = o.threads;
  options.separate = o.separate;
  options.clock = o.clock == "wall" ? bench::Clock::wall : bench::Clock::processor;

  Json json = Json::array();
  Table table({"program", "M", "N", "K", "product", "fused", "/ product", "separate", "/ product", "passes"});
  Csv csv(o.csv, bench::csv_header());
  double fused = 0, separate = 0;
  std::size_t count = 0, done = 0;
  Progress progress;
  for (const Case& c : cases) {
    progress.show(fmt::format("timing {} of {}: {}", ++done, cases.size(), c.label));
    for (const Sizes& sizes : extents_of(o.extents)) {
      options.extents = {sizes.at("M"), sizes.at("N"), sizes.at("K")};
      options.symbols = symbols_of(sizes);
      const bench::Result r = bench::run(c.program, options);
      fused += std::log(r.fused_ratio), separate += std::log(r.separate_ratio), ++count;
      table.row({c.label, std::to_string(r.extents.m), std::to_string(r.extents.n), std::to_string(r.extents.k),
                 human_seconds(r.product_s), human_seconds(r.fused_s), fmt::format("{:.3f}", r.fused_ratio),
                 o.separate ? human_seconds(r.separate_s) : "-",
                 o.separate ? fmt::format("{:.3f}", r.separate_ratio) : "-", std::to_string(r.passes)});
      json.push_back(to_json(c.label, r));
      csv.line(bench::csv_row(r, o.commit));
    }
  }
  progress.clear();
  if (o.json) {
    write_json(json);
    return 0;
  }
  write(table.text());
  const double n = static_cast<double>(count);
  std::string means =
      fmt::format("\nGeometric mean over {} runs: fused {:.3f} x the product", count, std::exp(fused / n));
  if (o.separate) means += fmt::format(", product and separate passes {:.3f} x", std::exp(separate / n));
  write(fmt::format("{}.\nMedians of {} interleaved rounds, {}; ratios are medians of the rounds' own.", means,
                    o.repeats, o.clock == "wall" ? "elapsed time" : "processor time of all threads"));
  return 0;
}

}  // namespace

Csv::Csv(const std::string& path, const std::string& header) : path_(path) {
  if (path.empty()) return;
  file_.reset(std::fopen(path.c_str(), "w"));
  line(header);
}

void Csv::line(const std::string& text) {
  if (path_.empty()) return;
  if (!file_ || std::fprintf(file_.get(), "%s\n", text.c_str()) < 0 || std::fflush(file_.get()) != 0)
    throw Error(ErrorKind::io, fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
}

void add_bench(CLI::App& app, Action& action) {
  CLI::App* sub = app.add_subcommand("bench", "Time programs beside their product alone and beside separate passes");
  auto o = std::make_shared<BenchCommand>();
  sub->add_option("FILE", o->file, "A .coda file or the name of a standard program");
  sub->add_flag("--all", o->all, "Every standard program");
  o->add_to(*sub, false);
  sub->add_option("--extents", o->extents, "Sizes (repeat for more); 2048 each by default, 4096 on CUDA")->allow_extra_args(false);
  sub->add_option("--device", o->device, "cpu, cuda or cuda:N")->capture_default_str();
  sub->add_option("--repeats", o->repeats, "Interleaved rounds: 7, on CUDA 20, if not given")
      ->check(CLI::Range(1, 10000));
  sub->add_option("--threads", o->threads, "Threads; 0: all processors")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  sub->add_option("--filter", o->filter, "On CUDA: only cases whose name holds one of these, separated by commas");
  sub->add_flag("--tune", o->tune, "On CUDA: time the likeliest configurations first and take the best");
  sub->add_option("--clock", o->clock, "wall, or processor: comparable on a busy machine, with --threads 1")
      ->check(CLI::IsMember({"wall", "processor"}))
      ->capture_default_str();
  sub->add_flag("!--no-separate", o->separate, "Don't time the separate passes");
  sub->add_option("--csv", o->csv, "A file to write, a line a run");
  sub->add_option("--commit", o->commit, "What to write in the CSV's column of that name");
  sub->add_flag("--json", o->json, "Machine-readable: an entry a run");
  sub->footer(
      "On the CPU the types are f32 unless --dtype says otherwise. On CUDA --all, a program that is in it, or --filter\n"
      "means cases of the speed table: Llama 1B, 8B and 70B blocks in bf16, the LM head, small and odd shapes; with\n"
      "--extents, or with a program of one's own, that program on those sizes. Beside each: cuBLASLt's plain product, and\n"
      "the unfused sequence, where there is more than the product.\n"
      "Examples:\n"
      "  coda bench --all\n"
      "  coda bench norm_swiglu --extents M=1024,N=4096,K=1024 --dtype bf16\n"
      "  coda bench --all --threads 1 --clock processor --csv bench.csv\n"
      "  coda bench --all --device cuda --filter fused/8b --csv h200.csv\n"
      "  coda bench mine.coda --device cuda --extents M=8192,N=4096,K=4096 --json");
  sub->callback([&action, o] { action = [o] { return bench_programs(*o); }; });
}

}  // namespace coda::cli
