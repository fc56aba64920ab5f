#include "cuda/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>

#include "cuda/cache.hpp"
#include "cuda/driver.hpp"
#include "cuda/hash.hpp"
#include "cuda/timing.hpp"

namespace coda::cuda {
namespace {

constexpr std::size_t plans_timed = 6;   // of the cost model's order; then both walks of the two fastest

std::string choice_key(const Program& p, const Problem& q, int device_index) {
  const DeviceInfo& d = device_info(device_index);
  Sha256 h;
  h.field("choice 1").field(d.name).field(fmt::format("{} {:x} {} {} {} {} {} {:x}", d.multiprocessors, p.structural_hash(), q.m, q.n, q.k,
                                                      static_cast<int>(q.a_major), static_cast<int>(q.b_major), q.direct));
  for (const embedded::File& header : embedded::device_headers()) h.field(header.text);  // another mainloop, another optimum
  return h.hex();
}

// Bytes that a view spans.
std::size_t span_of(const Tensor& t) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(t.rank); ++i) last += (t.shape[i] - 1) * t.stride[i];
  return t.numel() == 0 ? 0 : static_cast<std::size_t>(last + 1) * size_of(t.dtype);
}

}  // namespace

std::optional<Plan> stored_choice(const Program& p, const Demand& demand, const Problem& problem, int device_index) {
  const auto entry = kernel_cache().read(choice_key(p, problem, device_index), "choice");
  if (!entry) return std::nullopt;
  std::istringstream in(*entry);
  std::string name;
  int group = 0, raster = -1;
  if (!(in >> name >> group >> raster) || group < 1 || raster < 0 || raster > 1) return std::nullopt;
  auto plan = find_plan(name, demand, problem);
  if (plan) {
    plan->group = group;
    plan->raster = raster;
  }
  return plan;
}

void store_choice(const Program& p, const Problem& problem, int device_index, const Plan& plan) {
  kernel_cache().write(choice_key(p, problem, device_index), "choice", fmt::format("{} {} {}\n", plan.config.name(), plan.group, plan.raster));
}

std::shared_ptr<const Chosen> tune(const Program& p, const Demand& demand, const Problem& problem, Slots slots, Extents extents,
                                   int device_index, const std::function<std::shared_ptr<const Chosen>(const Plan&)>& build) {
  ContextScope scope(device_index);
  RelaxedCapture relaxed;
  std::vector<DeviceBuffer> scratch;
  std::vector<Tensor> arguments(slots.begin(), slots.end());
  std::vector<int> positions(slots.size());
  std::iota(positions.begin(), positions.end(), 0);
  OwnedStream stream(device_index);
  const auto declared = p.slots();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (declared[i].role != Slot::Role::output) continue;
    const std::size_t bytes = span_of(arguments[i]);
    // The scratch copy starts as far past a 256-byte boundary as the original, so that it is moved the same way.
    const std::size_t offset = reinterpret_cast<std::uint64_t>(arguments[i].data) % 256;
    scratch.emplace_back(device_index, bytes + 256);
    CODA_CUDA(cuMemsetD8Async, scratch.back().address(), static_cast<unsigned char>(0), bytes + 256, static_cast<Stream>(stream));
    arguments[i].data = static_cast<char*>(scratch.back().data()) + offset;
  }
  CODA_CUDA(cuStreamSynchronize, static_cast<Stream>(stream));

  struct Entry {
    std::shared_ptr<const Chosen> chosen;
    std::unique_ptr<Prepared> prepared;
    DeviceBuffer memory;
  };
  auto time = [&](const std::vector<Plan>& plans, std::vector<Entry>& entries) {
    std::vector<Enqueue> enqueues;
    for (const Plan& plan : plans) {
      Entry e;
      e.chosen = build(plan);
      e.prepared = std::make_unique<Prepared>(e.chosen, p, arguments, positions, extents, device_index, problem.multiprocessors);
      e.memory = DeviceBuffer(device_index, e.prepared->workspace_bytes());
      if (e.memory.bytes()) CODA_CUDA(cuMemsetD8Async, e.memory.address(), static_cast<unsigned char>(0), e.memory.bytes(), static_cast<Stream>(stream));
      entries.push_back(std::move(e));
    }
    CODA_CUDA(cuStreamSynchronize, static_cast<Stream>(stream));
    for (const Entry& e : entries)
      enqueues.push_back([&e, &arguments](Stream on, int) { e.prepared->enqueue(arguments, on, {e.memory.data(), e.memory.bytes()}, true); });
    std::vector<double> times;
    for (auto& t : time_sustained(device_index, enqueues)) times.push_back(median(t));
    return times;
  };
  auto order = [](const std::vector<double>& times) {
    std::vector<std::size_t> index(times.size());
    std::iota(index.begin(), index.end(), std::size_t{0});
    std::sort(index.begin(), index.end(), [&](std::size_t a, std::size_t b) { return times[a] < times[b]; });
    return index;
  };

  std::vector<Plan> plans = candidates(demand, problem);
  plans.resize(std::min(plans.size(), plans_timed));
  std::vector<Entry> first;
  const auto ranking = order(time(plans, first));
  std::vector<Plan> walks;
  for (std::size_t i = 0; i < std::min<std::size_t>(2, ranking.size()); ++i) {
    Plan plan = plans[ranking[i]];
    walks.push_back(plan);
    plan.raster = 1;
    plan.group = std::max(1, 2048 / (plan.config.bn * plan.config.cluster_n));
    walks.push_back(plan);
  }
  first.clear();
  std::vector<Entry> second;
  const auto times = time(walks, second);
  const std::size_t best = order(times).front();
  store_choice(p, problem, device_index, walks[best]);
  return second[best].chosen;
}

}  // namespace coda::cuda
