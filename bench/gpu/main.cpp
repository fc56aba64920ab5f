// bench_gpu: times the shapes of the speed table on this machine's GPU and prints a CSV, one line as each is done.
// A summary of the ratios goes to stderr.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>

#include "coda/error.hpp"
#include "cuda/bench/bench.hpp"

namespace {

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

struct Mean {
  double logs = 0, worst = 0;
  int count = 0;
  void add(double ratio) {
    logs += std::log(ratio);
    worst = std::max(worst, ratio);
    ++count;
  }
};

}  // namespace

int main(int argc, char** argv) {
  coda::cuda::BenchOptions o;
  std::string commit = "unknown";
  bool list = false, no_unfused = false, no_overlap = false;
  CLI::App app{"Times fused programs on a Hopper GPU against cuBLASLt and the unfused sequence; CSV on stdout"};
  app.add_option("--filter", o.filter, "only cases whose name contains one of these, separated by commas: plain/8b,residual_norm");
  app.add_option("--config", o.config, "this configuration instead of the chosen one");
  app.add_option("--configurations", o.configurations, "time so many configurations of each case, likeliest first");
  app.add_option("--tiles", o.tiles, "of the configurations only those whose name contains one of these: co128x256_c21,pp128x128");
  app.add_flag("--pipelines", o.pipelines, "count every chunk and buffer depth of a tile among the configurations");
  app.add_option("--passes", o.passes, "go through a case's configurations so many times: the first one measured in a process reads high");
  app.add_flag("--tune", o.tune, "tune each case first");
  app.add_flag("--no-unfused", no_unfused, "leave the unfused sequence out");
  app.add_flag("--no-overlap", no_overlap, "launch without programmatic dependent launch");
  app.add_option("--device", o.device, "CUDA device");
  app.add_option("--sets", o.sets, "operand sets that rotate");
  app.add_option("--repeats", o.repeats, "launches of each side, shuffled");
  app.add_option("--rounds", o.sustained.rounds, "sustained blocks of each side");
  app.add_option("--block-ms", o.sustained.block_ms, "length of a sustained block");
  app.add_option("--commit", commit, "what to write in the CSV's commit column");
  app.add_flag("--list", list, "list the cases and stop");
  CLI11_PARSE(app, argc, argv);
  o.unfused = !no_unfused;
  o.overlap_launches = !no_overlap;
  if (list) {
    for (const auto& c : coda::cuda::bench_cases()) fmt::print("{}  {} x {} x {}\n", c.name(), c.m, c.n, c.k);
    return 0;
  }
  std::map<std::string, std::pair<Mean, Mean>> summary;  // group/program: equal, sustained
  bool failed = false;
  try {
    fmt::print("{}\n", coda::cuda::csv_header());
    coda::cuda::bench(coda::cuda::bench_cases(), o, [&](const coda::cuda::BenchRow& r) {
      fmt::print("{}\n", coda::cuda::csv_line(r, today(), commit, o));
      std::fflush(stdout);
      if (!r.fault.empty()) {
        failed = true;
        fmt::print(stderr, "{:48} {}\n", r.what.name(), r.fault);
        return;
      }
      fmt::print(stderr, "{:48} {:34} equal {:.3f}  sustained {:.3f} [{:.3f} {:.3f}]  {:.0f} TFLOP/s  unfused {:.3f} {:.3f}  {} MHz  {:.1f} us\n", r.what.name(), r.config,
                 r.equal_ratio, r.sustained_ratio, r.sustained_low, r.sustained_high, r.tflops, r.equal_unfused_ms / r.equal_cublas_ms,
                 r.sustained_unfused_ms / r.sustained_cublas_ms, r.clock_mhz, r.launch_us);
      auto& [equal, sustained] = summary[r.what.group + "/" + r.what.program];
      equal.add(r.equal_ratio);
      sustained.add(r.sustained_ratio);
    });
  } catch (const coda::Error& e) {
    fmt::print(stderr, "bench_gpu: error: {}\n", e.what());
    return 1;
  }
  for (const auto& [name, means] : summary)
    fmt::print(stderr, "{:32} {:3} rows: equal {:.3f} (worst {:.3f}), sustained {:.3f} (worst {:.3f}) of cuBLAS's plain product\n", name, means.first.count,
               std::exp(means.first.logs / means.first.count), means.first.worst, std::exp(means.second.logs / means.second.count), means.second.worst);
  return failed ? 1 : 0;
}
