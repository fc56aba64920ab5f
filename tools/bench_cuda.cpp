// coda bench --device cuda: the project's speed table, on this machine's GPU, beside cuBLASLt.
#include <cmath>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "bench.hpp"
#include "cuda/bench/bench.hpp"

namespace coda::cli {
namespace {

Json to_json(const cuda::BenchRow& r) {
  Json json{{"case", r.what.name()}, {"program", r.what.program}, {"M", r.what.m}, {"N", r.what.n},
            {"K", r.what.k},         {"config", r.config}};
  if (!r.fault.empty()) {
    json["fault"] = r.fault;
    return json;
  }
  json.update({{"equal_ratio", r.equal_ratio},
               {"sustained_ratio", r.sustained_ratio},
               {"sustained_low", r.sustained_low},
               {"sustained_high", r.sustained_high},
               {"sustained_ms", r.sustained_ms},
               {"sustained_cublas_ms", r.sustained_cublas_ms},
               {"sustained_unfused_ms", r.sustained_unfused_ms},
               {"tflops", r.tflops},
               {"clock_mhz", r.clock_mhz},
               {"watts", r.watts},
               {"limits", r.limits},
               {"difference", r.difference},
               {"compile_s", r.compile_s},
               {"launch_us", r.launch_us}});
  return json;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(now));
}

}  // namespace

int bench_on_gpu(const BenchCommand& o, int device) {
  if (!o.params.empty() || !o.without.empty() || !o.dtype.empty() || !o.extents.empty())
    throw UsageError("bench --device cuda runs the cases of the speed table; choose among them with --filter");
  cuda::BenchOptions options;
  options.filter = o.all ? o.filter : "/" + o.file;
  options.tune = o.tune;
  options.unfused = o.separate;
  options.repeats = o.repeats;
  options.device = device;

  Csv csv(o.csv, cuda::csv_header());
  Table table({"case", "config", "equal clock", "sustained", "TFLOP/s", "MHz", "W", "launch", "note"});
  Json json = Json::array();
  double logs = 0;
  int timed = 0, faults = 0;
  Progress progress;
  cuda::bench(options, [&](const cuda::BenchRow& r) {
    progress.show(fmt::format("timed {}", r.what.name()));
    json.push_back(to_json(r));
    csv.line(cuda::csv_line(r, today(), o.commit, options));
    if (!r.fault.empty()) {
      ++faults;
      table.row({r.what.name(), r.config, "-", "-", "-", "-", "-", "-", r.fault});
      return;
    }
    ++timed, logs += std::log(r.sustained_ratio);
    table.row({r.what.name(), r.config, fmt::format("{:.3f}", r.equal_ratio), fmt::format("{:.3f}", r.sustained_ratio),
               fmt::format("{:.0f}", r.tflops), std::to_string(r.clock_mhz), fmt::format("{:.0f}", r.watts),
               fmt::format("{:.1f} us", r.launch_us), r.limits});
  });
  progress.clear();
  if (timed + faults == 0)
    throw Error(ErrorKind::value, fmt::format("no case of the speed table matches '{}'", options.filter));
  if (o.json) {
    write_json(json);
  } else {
    write(table.text({1, 8}));
    if (timed > 0)
      write(fmt::format("\nTimes are ratios to cuBLASLt's plain product; geometric mean of {} sustained ratios: {:.3f}",
                        timed, std::exp(logs / timed)));
  }
  if (faults > 0) fmt::print(stderr, "coda: error: {} cases were not timed\n", faults);
  return faults == 0 ? 0 : 1;
}

}  // namespace coda::cli
