// coda bench --device cuda: the project's speed table, or a program of one's own, on this machine's GPU beside
// cuBLASLt.
#include <algorithm>
#include <cmath>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "bench.hpp"
#include "cuda/bench/bench.hpp"
#include "suite.hpp"

namespace coda::cli {
namespace {

/// Does `text` hold one of the parts of `filter`, which commas separate? All do where there is none.
bool has_part(const std::string& text, const std::string& filter) {
  if (filter.empty()) return true;
  for (std::size_t at = 0; at <= filter.size();) {
    const std::size_t end = std::min(filter.find(',', at), filter.size());
    if (end > at && text.find(filter.substr(at, end - at)) != std::string::npos) return true;
    at = end + 1;
  }
  return false;
}

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
               {"equal_ms", r.equal_ms},
               {"equal_cublas_ms", r.equal_cublas_ms},
               {"equal_unfused_ms", r.equal_unfused_ms},
               {"difference", r.difference},
               {"compile_s", r.compile_s},
               {"launch_us", r.launch_us}});
  return json;
}

/// Those of the speed table, or the program on the extents that were given.
std::vector<cuda::BenchCase> cases_of(const BenchCommand& o) {
  std::vector<cuda::BenchCase> cases;
  const bool as_it_is = o.params.empty() && o.without.empty() && o.dtype.empty() && o.extents.empty();
  if (as_it_is) {
    for (const cuda::BenchCase& c : cuda::bench_cases())
      if ((o.all || c.program == o.file) && has_part(c.name(), o.filter)) cases.push_back(c);
    if (!cases.empty()) return cases;
    if (o.all || !o.filter.empty())
      throw Error(ErrorKind::value, fmt::format("no case of the speed table matches '{}'", o.filter));
  } else if (!o.filter.empty()) {
    throw UsageError("--filter chooses among the cases of the speed table; leave it out, or the extents and types");
  }
  for (const Case& c : o.all ? standard_programs_alone(o) : std::vector<Case>{case_of(o)})
    for (const Sizes& sizes :
         extents_of(o.extents.empty() ? std::vector<std::string>{"M=4096,N=4096,K=4096"} : o.extents))
      cases.push_back(
          cuda::own_case(c.label, c.program, {sizes.at("M"), sizes.at("N"), sizes.at("K")}, symbols_of(sizes)));
  return cases;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(now));
}

}  // namespace

int bench_on_gpu(const BenchCommand& o, int device) {
  cuda::BenchOptions options;
  options.tune = o.tune;
  options.unfused = o.separate;
  options.repeats = o.repeats;
  options.device = device;
  const std::vector<cuda::BenchCase> cases = cases_of(o);

  Csv csv(o.csv, cuda::csv_header());
  Table table(
      {"case", "config", "time", "/ cuBLAS", "equal clock", "unfused", "TFLOP/s", "MHz", "W", "launch", "note"});
  Json json = Json::array();
  double logs = 0;
  int timed = 0, faults = 0;
  Progress progress;
  cuda::bench(cases, options, [&](const cuda::BenchRow& r) {
    progress.show(fmt::format("timed {}", r.what.name()));
    json.push_back(to_json(r));
    csv.line(cuda::csv_line(r, today(), o.commit, options));
    if (!r.fault.empty()) {
      ++faults;
      table.row({r.what.name(), r.config, "-", "-", "-", "-", "-", "-", "-", "-", r.fault});
      return;
    }
    ++timed, logs += std::log(r.sustained_ratio);
    const bool unfused = r.sustained_unfused_ms > 0;
    std::string note = r.limits;
    if (!unfused && o.separate) note += "; no unfused sequence";
    if (!r.different.empty())
      note += fmt::format("; '{}' differs by {:.2g} from the unfused: see coda verify", r.different, r.difference);
    table.row({r.what.name(), r.config, human_seconds(1e-3 * r.sustained_ms), fmt::format("{:.3f}", r.sustained_ratio),
               fmt::format("{:.3f}", r.equal_ratio),
               unfused ? fmt::format("{:.3f}", r.sustained_unfused_ms / r.sustained_cublas_ms) : "-",
               fmt::format("{:.0f}", r.tflops), std::to_string(r.clock_mhz), fmt::format("{:.0f}", r.watts),
               fmt::format("{:.1f} us", r.launch_us), note});
  });
  progress.clear();
  if (o.json) {
    write_json(json);
  } else {
    write(table.text({1, 10}));
    if (timed > 0)
      write(
          fmt::format("\nTimes are sustained ones, at the clock the card settles at under the limits named; ratios are "
                      "to cuBLASLt's plain "
                      "product.\nEqual clock: launches of all sides shuffled. Unfused: that product and one separate "
                      "pass. Geometric mean "
                      "of {} sustained ratios: {:.3f}.",
                      timed, std::exp(logs / timed)));
  }
  if (faults > 0) fmt::print(stderr, "coda: error: {} cases were not timed\n", faults);
  return faults == 0 ? 0 : 1;
}

}  // namespace coda::cli
