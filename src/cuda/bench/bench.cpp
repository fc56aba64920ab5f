#include "cuda/bench/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <random>

#include "coda/error.hpp"
#include "coda/kernel.hpp"
#include "cuda/bench/cublaslt.hpp"
#include "cuda/bench/nvml.hpp"
#include "cuda/bench/operands.hpp"
#include "cuda/bench/passes.hpp"

namespace coda::cuda {
namespace {

// bf16 outputs differ by the roundings that only one side makes; column sums of many rows by a little more.
constexpr double tolerated = 2e-2;

// True where `text` contains one of the parts of `filter`, which commas separate; or where there is none.
bool matches(const std::string& text, const std::string& filter) {
  if (filter.empty()) return true;
  std::size_t at = 0;
  while (at <= filter.size()) {
    const std::size_t end = std::min(filter.find(',', at), filter.size());
    if (end > at && text.find(filter.substr(at, end - at)) != std::string::npos) return true;
    at = end + 1;
  }
  return false;
}

// The program a case times; the table's loss without its logits, since that is how it is used.
Program program_of(const BenchCase& c) {
  if (c.own) return *c.own;
  Program p = load_program(c.program, c.params);
  if (c.program == "linear_cross_entropy") p = p.without("logits");
  return p;
}

// Milliseconds of each side, all launches shuffled together.
std::vector<double> time_equal(int device, const std::vector<Enqueue>& sides, int repeats) {
  ContextScope scope(device);
  OwnedStream stream(device);
  constexpr int warm = 4;
  struct Timed { OwnedEvent begin, end; std::size_t side; int repeat; };
  std::vector<Timed> timed;
  std::mt19937 random(1);
  std::vector<std::size_t> order(sides.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (int r = 0; r < repeats + warm; ++r)
    for (std::size_t i = 0; i < sides.size(); ++i) timed.push_back({OwnedEvent(device), OwnedEvent(device), i, r});
  int launches = 0;
  for (std::size_t first = 0; first < timed.size(); first += sides.size()) {
    std::shuffle(order.begin(), order.end(), random);
    for (std::size_t i : order) {
      Timed& t = timed[first + i];
      CODA_CUDA(cuEventRecord, static_cast<Event>(t.begin), static_cast<Stream>(stream));
      sides[i](stream, launches++);
      CODA_CUDA(cuEventRecord, static_cast<Event>(t.end), static_cast<Stream>(stream));
    }
  }
  CODA_CUDA(cuStreamSynchronize, static_cast<Stream>(stream));
  std::vector<std::vector<double>> times(sides.size());
  for (const Timed& t : timed) {
    float ms = 0;
    CODA_CUDA(cuEventElapsedTime, &ms, static_cast<Event>(t.begin), static_cast<Event>(t.end));
    if (t.repeat >= warm) times[t.side].push_back(double(ms));
  }
  std::vector<double> medians;
  for (auto& t : times) medians.push_back(median(t));
  return medians;
}

// Host microseconds of a launch, on a stream that never fills, from a thread whose context is current, as a framework's is: the
// median launch, once the caches hold its path. The first four after each wait for the GPU aren't counted.
double launch_cost(const Kernel& kernel, Slots slots, int device) {
  OwnedStream stream(device);
  ContextScope scope(device);
  std::vector<double> times;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 20; ++i) {
      const auto start = std::chrono::steady_clock::now();
      kernel.launch(slots, static_cast<Stream>(stream));
      if (i >= 4) times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    }
    CODA_CUDA(cuStreamSynchronize, static_cast<Stream>(stream));
  }
  return median(times);
}

void bench_case(const BenchCase& c, const BenchOptions& o, const Passes& passes, const std::function<void(const BenchRow&)>& emit_row) {
  const Program program = program_of(c);
  std::vector<std::unique_ptr<Operands>> sets;
  for (int i = 0; i < o.sets; ++i) {
    if (c.own) sets.push_back(std::make_unique<OwnOperands>(c, program, passes, o.device, i > 0 ? static_cast<const OwnOperands*>(sets[0].get()) : nullptr));
    else sets.push_back(std::make_unique<TableOperands>(c, program, passes, o.device, 1000u * static_cast<unsigned>(i) + 1));
  }
  const CublasLt::Shape shape{c.m, c.n, c.k, c.a_major, c.b_major, program.a_dtype, program.a_dtype, false};
  const CublasLt plain(shape, o.device);
  std::unique_ptr<CublasLt> accumulating;
  if (c.program == "weight_grad" && !c.own) {
    CublasLt::Shape s = shape;
    s.output = DType::f32;
    s.accumulate = true;
    accumulating = std::make_unique<CublasLt>(s, o.device);
  }
  auto set_of = [&](int i) -> Operands& { return *sets[static_cast<std::size_t>(i) % sets.size()]; };
  const Enqueue cublas = [&](Stream s, int i) { plain.enqueue(set_of(i).a(), set_of(i).b(), set_of(i).product(), s); };
  const Enqueue unfused = [&](Stream s, int i) { set_of(i).enqueue_unfused(plain, accumulating.get(), s); };
  const bool known = sets[0]->has_unfused(), with_unfused = o.unfused && known;

  std::vector<std::string> names = {o.config};
  if (o.configurations > 1 && o.config.empty()) {
    names = Kernel(program).configurations(sets[0]->slots(), o.pipelines);
    std::erase_if(names, [&](const std::string& name) { return !matches(name, o.tiles) || (o.pipelines && (name.ends_with("_k2") || name.ends_with("_k4"))); });
    names.resize(std::min<std::size_t>(names.size(), static_cast<std::size_t>(o.configurations)));
    std::vector<std::future<void>> compiled;  // compile side by side; the kernels timed below come from the cache
    for (const std::string& name : names)
      compiled.push_back(std::async(std::launch::async, [&, name] {
        try { Kernel(program, {.config = name}).prepare(sets[0]->slots()); } catch (const Error&) {}  // timed below: reported there
      }));
  }
  const std::size_t distinct = names.size();
  for (int pass = 1; pass < o.passes; ++pass)
    for (std::size_t i = 0; i < distinct; ++i) names.push_back(names[i]);
  for (const std::string& name : names) {
    BenchRow row;
    row.what = c;
    row.config = name;
    try {
      const Kernel kernel(program, {.config = name, .tune = o.tune, .overlap_launches = o.overlap_launches});
      for (auto& s : sets) kernel.prepare(s->slots());
      const KernelReport report = kernel.report(sets[0]->slots());
      row.config = report.config;
      row.group = report.group;
      row.raster = report.raster;
      row.compile_s = report.compile_seconds;
      // Right before fast: NaN in every output, then both sides once.
      {
        ContextScope scope(o.device);
        sets[0]->poison(nullptr);
        if (known) unfused(nullptr, 0);
        else if (c.program == "linear") cublas(nullptr, 0);
        kernel.launch(sets[0]->slots(), nullptr);
        CODA_CUDA(cuCtxSynchronize);
      }
      std::string which;
      row.difference = sets[0]->difference(which);
      // A program of one's own may amplify a rounding of the product; `coda verify` is the judge of it.
      if (!(row.difference <= tolerated) && c.own) row.different = which;
      else if (!(row.difference <= tolerated)) throw Error(ErrorKind::value, fmt::format("output '{}' differs by {:.3g} from the unfused sequence's", which, row.difference));
      const Enqueue ours = [&](Stream s, int i) { kernel.launch(set_of(i).slots(), s); };
      std::vector<Enqueue> sides = {cublas, ours};
      if (with_unfused) sides.push_back(unfused);
      const auto equal = time_equal(o.device, sides, o.repeats);
      row.equal_cublas_ms = equal[0];
      row.equal_ms = equal[1];
      row.equal_ratio = equal[1] / equal[0];
      if (with_unfused) row.equal_unfused_ms = equal[2];
      CardState card;
      SustainedOptions sustained = o.sustained;
      sustained.while_running = [&] { card = card_state(o.device); };
      const auto times = time_sustained(o.device, sides, sustained);
      std::vector<double> ratios;
      for (std::size_t r = 0; r < times[1].size(); ++r) {
        const double next = r + 1 < times[0].size() ? times[0][r + 1] : times[0][r];
        ratios.push_back(times[1][r] / (0.5 * (times[0][r] + next)));
      }
      row.sustained_ratio = median(ratios);
      row.sustained_low = *std::min_element(ratios.begin(), ratios.end());
      row.sustained_high = *std::max_element(ratios.begin(), ratios.end());
      row.sustained_cublas_ms = median(times[0]);
      row.sustained_ms = median(times[1]);
      if (with_unfused) row.sustained_unfused_ms = median(times[2]);
      row.tflops = 2.0 * double(c.m) * double(c.n) * double(c.k) / row.sustained_ms / 1e9;
      row.clock_mhz = card.clock_mhz;
      row.watts = card.watts;
      row.limits = describe_limits(card.limits);
      row.launch_us = launch_cost(kernel, sets[0]->slots(), o.device);
    } catch (const Error& e) {
      row.fault = e.what();
    }
    emit_row(row);
  }
}

std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (char ch : s) out += ch == '"' ? "\"\"" : ch == '\n' ? " " : std::string(1, ch);
  return out + "\"";
}

}  // namespace

void bench(const std::vector<BenchCase>& cases, const BenchOptions& o, const std::function<void(const BenchRow&)>& row) {
  require_hopper(device_info(o.device));
  CublasLt::version();
  const Passes passes(o.device);
  for (const BenchCase& c : cases) {
    if (!matches(c.name(), o.filter)) continue;
    try {
      bench_case(c, o, passes, row);
    } catch (const Error& e) {
      BenchRow failed;
      failed.what = c;
      failed.fault = e.what();
      row(failed);
    }
  }
}

std::string csv_header() {
  return "date,commit,device,driver,cublas,group,model,product,form,program,m,n,k,a_major,b_major,config,walk_group,walk_raster,equal_ms,equal_cublas_ms,equal_unfused_ms,"
         "equal_ratio,sustained_ms,sustained_cublas_ms,sustained_unfused_ms,sustained_ratio,sustained_low,sustained_high,tflops,clock_mhz,watts,limits,difference,"
         "compile_s,launch_us,fault";
}

std::string csv_line(const BenchRow& r, const std::string& date, const std::string& commit, const BenchOptions& o) {
  const BenchCase& c = r.what;
  auto major = [](Major x) { return x == Major::k ? "k" : "mn"; };
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{:.5f},{:.5f},{:.5f},{:.4f},{:.5f},{:.5f},{:.5f},{:.4f},{:.4f},{:.4f},{:.1f},{},{:.0f},{},{:.2e},{:.3f},{:.2f},{}",
                     date, commit, quoted(device_info(o.device).name), card_state(o.device).driver, quoted(CublasLt::version()), c.group, c.model, c.product, c.form, c.program, c.m,
                     c.n, c.k, major(c.a_major), major(c.b_major), r.config, r.group, r.raster, r.equal_ms, r.equal_cublas_ms, r.equal_unfused_ms, r.equal_ratio,
                     r.sustained_ms, r.sustained_cublas_ms, r.sustained_unfused_ms, r.sustained_ratio, r.sustained_low, r.sustained_high, r.tflops, r.clock_mhz, r.watts,
                     quoted(r.limits), r.difference, r.compile_s, r.launch_us, quoted(r.fault));
}

}  // namespace coda::cuda
