// Timing a program beside its product alone and beside separate passes.
#include "coda/bench.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <vector>

#include "coda/inputs.hpp"
#include "cpu/outputs.hpp"
#include "cpu/product.hpp"
#include "cpu/stored.hpp"

namespace coda::bench {
namespace {

double seconds(Clock clock) {
  if (clock == Clock::wall) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  const std::size_t n = x.size();
  return n == 0 ? 0 : n % 2 == 1 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/// The unfused sequence over memory that is allocated once: the whole product, one pass for each value that a
/// framework stores, for each reduction (both softmax statistics in one) and for each output that isn't one of those
/// values already. A pass is as good as our loops are: vectorised, threaded, expressions between two stored values
/// evaluated in cache.
class Separate {
 public:
  Separate(const Program& p, Slots slots, const Extents& e, int threads)
      : p_(p), slots_(slots), e_(e), threads_(threads) {
    const std::vector<bool> stored = cpu::stored_values(p);
    std::vector<bool> taken(p.outputs.size());
    std::vector<std::pair<ValueId, Tensor>> given;
    for (std::size_t v = 0; v < p.nodes.size(); ++v) {
      if (!stored[v]) continue;
      const Node& n = p.nodes[v];
      const Tensor matrix = home(static_cast<ValueId>(v), taken);
      if (n.op == Op::acc) {
        product_ = matrix;
      } else {
        cpu::Work work;
        work.given = given;
        work.stores.push_back({static_cast<ValueId>(v), n.type.width, cpu::Target::of(matrix, false, false)});
        passes_.push_back(std::move(work));
      }
      given.emplace_back(static_cast<ValueId>(v), matrix);
    }
    std::vector<ValueId> statistics;
    for (const ValueId v : cpu::needed_reductions(p, slots)) {
      const Node& n = p.node(v);
      const bool softmax = n.op == Op::softmax_max || n.op == Op::softmax_sum;
      cpu::Work work;
      work.given = given;
      work.reductions.push_back(v);
      const auto pair = std::find_if(passes_.begin(), passes_.end(), [&](const cpu::Work& other) {
        return softmax && !other.reductions.empty() && p.node(other.reductions[0]).args[0] == n.args[0] &&
               p.node(other.reductions[0]).over == n.over && p.node(other.reductions[0]).op >= Op::softmax_max;
      });
      if (pair != passes_.end())
        pair->reductions.push_back(v);
      else
        passes_.push_back(std::move(work));
    }
    for (std::size_t i = 0; i < p.outputs.size(); ++i) {
      const Output& o = p.outputs[i];
      if (o.finish || taken[i]) continue;
      cpu::Work work;
      work.given = given;
      work.stores.push_back({o.value, o.shape.width,
                             cpu::Target::of(slots[2 + p.operands.size() + i], o.shape.transposed, o.accumulate)});
      passes_.push_back(std::move(work));
    }
    for (cpu::Work& w : passes_) w.whole_rows = true;
  }

  void run() const {
    if (product_.data != nullptr) {
      cpu::Product::of_this_thread()(cpu::Panel::of(slots_[0]), cpu::Panel::of(slots_[1]), product_.as<float>(), e_.n);
    }
    cpu::Results results;
    for (const cpu::Work& w : passes_) {
      cpu::Sweep sweep(p_, slots_, e_, w);
      sweep.run(threads_);
      sweep.collect(results);
    }
    cpu::finish_outputs(p_, slots_, e_, std::move(results));
  }

  int passes() const { return static_cast<int>(passes_.size()); }

 private:
  /// Memory for a stored value: that of the first output which it is, as it is; else a matrix of its own. f32, which
  /// favours this side for 16-bit programs only in that nothing is rounded.
  Tensor home(ValueId v, std::vector<bool>& taken) {
    for (std::size_t i = 0; i < p_.outputs.size(); ++i) {
      const Output& o = p_.outputs[i];
      const Tensor& t = slots_[2 + p_.operands.size() + i];
      if (o.value != v || o.finish || o.accumulate || o.shape.transposed || o.dtype != DType::f32 || t.stride[1] != 1)
        continue;
      if (p_.node(v).op == Op::acc && t.stride[0] != e_.n) continue;
      taken[i] = true;
      return t;
    }
    const Width w = p_.node(v).type.width;
    const std::int64_t columns = w == Width::half ? e_.n / 2 : w == Width::twice ? 2 * e_.n : e_.n;
    matrices_.emplace_back(DType::f32, std::initializer_list<std::int64_t>{e_.m, columns});
    return matrices_.back();
  }

  const Program& p_;
  Slots slots_;
  Extents e_;
  int threads_;
  Tensor product_;
  std::vector<HostTensor> matrices_;
  std::vector<cpu::Work> passes_;
};

/// Limits oneDNN's and our threads while it lives.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~ThreadLimit() { omp_set_num_threads(before_); }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int before_;
};

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace

Result run(const Program& p, const Options& options) {
  Result r;
  r.program = p.name;
  r.dtype = p.a_dtype;
  r.extents = options.extents;
  r.clock = options.clock;
  r.threads = options.threads > 0 ? options.threads : omp_get_max_threads();
  const ThreadLimit limit(r.threads);
  const Inputs inputs = make_inputs(p, {options.extents, options.symbols, options.seed});
  HostTensor product(DType::f32, {options.extents.m, options.extents.n});
  const Separate separate(p, inputs.slots, options.extents, r.threads);
  r.passes = separate.passes();
  const std::vector<std::function<void()>> contestants = {
      [&] {
        cpu::Product::of_this_thread()(cpu::Panel::of(inputs.slots[0]), cpu::Panel::of(inputs.slots[1]),
                                       product.as<float>(), options.extents.n);
      },
      [&] { cpu::run(p, inputs.slots, {r.threads}); },
      [&] { separate.run(); },
  };
  const std::size_t count = options.separate ? 3 : 2;
  std::vector<double> times[3], ratios[3];
  for (int round = -1; round < options.repeats; ++round) {  // the first warms up and isn't counted
    double took[3]{};
    for (std::size_t c = 0; c < count; ++c) {
      const double start = seconds(options.clock);
      contestants[c]();
      took[c] = seconds(options.clock) - start;
    }
    if (round < 0) continue;
    for (std::size_t c = 0; c < count; ++c) {
      times[c].push_back(took[c]);
      ratios[c].push_back(took[c] / took[0]);
    }
  }
  r.product_s = median(times[0]);
  r.fused_s = median(times[1]);
  r.separate_s = median(times[2]);
  r.fused_ratio = median(ratios[1]);
  r.separate_ratio = median(ratios[2]);
  return r;
}

std::string csv_header() {
  return "date,commit,machine,threads,clock,program,dtype,m,n,k,product_ms,fused_ms,separate_ms,fused_ratio,"
         "separate_ratio,passes";
}

std::string csv_row(const Result& r, const std::string& commit) {
  const auto now = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%d},{},{},{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.4f},{:.4f},{}", now, commit,
                     processor_name(), r.threads, r.clock == Clock::wall ? "wall" : "processor", r.program,
                     name_of(r.dtype), r.extents.m, r.extents.n, r.extents.k, 1e3 * r.product_s, 1e3 * r.fused_s,
                     1e3 * r.separate_s, r.fused_ratio, r.separate_ratio, r.passes);
}

}  // namespace coda::bench
