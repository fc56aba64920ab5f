// Kernel: from arguments to a launch. The first launch with given arguments prepares; later ones find what it made.
#include "coda/kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "coda/error.hpp"
#include "cuda/arguments.hpp"
#include "cuda/driver.hpp"
#include "cuda/prepared.hpp"
#include "cuda/tensor_map.hpp"
#include "cuda/tuner.hpp"

namespace coda {
namespace {

using namespace cuda;

// Prepared launches kept for one Kernel: enough for the layers of a model whose buffers are at fixed addresses.
constexpr std::size_t max_prepared = 1024;

// The program less the outputs that a caller leaves out.
struct Variant {
  std::uint32_t absent = 0;
  Program program;
  std::vector<int> positions;  // of its slots among those of the whole program
};

Variant make_variant(const Program& whole, std::uint32_t absent) {
  Variant v{absent, whole, {}};
  const auto slots = whole.slots();
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (absent >> i & 1) v.program = v.program.without(slots[i].name);
  for (const Slot& s : v.program.slots()) v.positions.push_back(*whole.slot(s.name));
  return v;
}

std::uint32_t absent_outputs(const Program& p, Slots slots) {
  const auto declared = p.slots();
  if (slots.size() != declared.size())
    throw Error(ErrorKind::shape, fmt::format("{} takes {} arguments (A, B, operands, outputs) and got {}", p.name, declared.size(), slots.size()));
  std::uint32_t mask = 0;
  int outputs = 0, absent = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (declared[i].role != Slot::Role::output) continue;
    ++outputs;
    if (is_absent(slots[i])) {
      mask |= 1u << i;
      ++absent;
    }
  }
  if (outputs == absent) throw Error(ErrorKind::value, fmt::format("no output of {} was given: nothing would be computed", p.name));
  return mask;
}

}  // namespace

struct Kernel::State {
  Program program;
  KernelOptions options;

  std::shared_mutex mutex;  // guards `prepared`
  std::unordered_map<std::uint64_t, std::shared_ptr<const Prepared>> prepared;
  mutable std::atomic<std::uint64_t> clock{0};

  std::mutex cold;  // guards what follows; choosing, emitting and compiling happen under it, once each
  std::map<std::uint32_t, Variant> variants;
  std::map<std::tuple<std::uint32_t, Major, Major, std::uint32_t>, std::vector<MapSpec>> maps;
  using ChoiceKey = std::tuple<std::uint32_t, int, std::int64_t, std::int64_t, std::int64_t, Major, Major, std::uint32_t>;
  std::map<ChoiceKey, std::shared_ptr<const Chosen>> chosen;

  // What the cold path knows of one call's arguments before a plan is chosen.
  struct Call {
    const Variant* variant = nullptr;
    std::vector<Tensor> slots;
    Extents extents;
    int device = 0;
    Problem problem;
    bool empty = false;
    std::string two_pass;  // why the product is stored before the epilogue; empty where one kernel does both
  };

  Call examine(Slots slots);
  const std::vector<MapSpec>& maps_for(std::uint32_t absent, const Program& p, const Problem& problem);
  std::shared_ptr<const Chosen> choose_for(const Call& call);
  std::shared_ptr<const Chosen> build(const Program& p, int device, const Plan& plan, bool tuned) const;
  std::shared_ptr<const Chosen> build_two_pass(const Call& call) const;
  std::shared_ptr<const Prepared> prepare(Slots slots);
  // Null where the arguments are new. The lock must be held while the result is used.
  const std::shared_ptr<const Prepared>* find(const LaunchKey& key) const;
};

Kernel::State::Call Kernel::State::examine(Slots slots) {
  const std::uint32_t absent = absent_outputs(program, slots);
  auto it = variants.find(absent);
  if (it == variants.end()) it = variants.emplace(absent, make_variant(program, absent)).first;
  Call c;
  c.variant = &it->second;
  const Program& p = c.variant->program;
  for (int i : c.variant->positions) c.slots.push_back(slots[static_cast<std::size_t>(i)]);
  c.extents = check_arguments(p, c.slots);
  c.device = device_of(p, c.slots);
  check_strides(p, c.slots);
  for (auto [extent, name] : {std::pair(c.extents.m, "M"), std::pair(c.extents.n, "N"), std::pair(c.extents.k, "K")})
    if (extent > std::numeric_limits<std::int32_t>::max() - 1024)
      throw Error(ErrorKind::shape, fmt::format("{} = {} of {} is too large for the GPU engine, which takes extents below 2^31 - 1024", name, extent, p.name));
  const auto declared = p.slots();
  c.empty = true;
  for (std::size_t i = 0; i < declared.size(); ++i)
    if (declared[i].role == Slot::Role::output && c.slots[i].numel() > 0) c.empty = false;
  if (c.empty) return c;
  const DeviceInfo& device = device_info(c.device);
  require_hopper(device);
  c.problem = problem_of(p, c.extents.m, c.extents.n, c.extents.k);
  c.problem.multiprocessors = device.multiprocessors;
  const bool product = c.extents.m > 0 && c.extents.n > 0;
  if (product && c.extents.k > 0) {
    c.problem.a_major = major_of(p, c.slots, 0);
    c.problem.b_major = major_of(p, c.slots, 1);
    for (const auto& [slot, major] : {std::pair(0, c.problem.a_major), std::pair(1, c.problem.b_major)})
      if (major == Major::mn && size_of(declared[static_cast<std::size_t>(slot)].dtype) != 2)
        throw Error(ErrorKind::layout, fmt::format("operand '{}' of {} ({}) is stored with {} as its fast dimension, and tensor cores take {} operands with K as theirs: "
                                                   "pass a copy stored so", declared[static_cast<std::size_t>(slot)].name, p.name,
                                                   describe(c.slots[static_cast<std::size_t>(slot)]), slot == 0 ? 'M' : 'N', name_of(declared[static_cast<std::size_t>(slot)].dtype)));
  }
  c.problem.direct = direct_tables(p, c.slots);
  if (options.config.starts_with(two_pass_prefix)) c.two_pass = "it was asked for";
  else if (!product) c.two_pass = "the product is empty, and no tile would finish the outputs that aren't";
  else c.two_pass = why_two_pass(p, c.problem).value_or("");
  if (!c.two_pass.empty()) return c;
  // The maps of any legal kernel say which slots move by TMA; those that can't go the direct way.
  for (const MapSpec& m : maps_for(absent, p, c.problem)) {
    if (m.slot <= 1) {
      if (const auto why = c.extents.k > 0 ? why_not_tma(c.slots[static_cast<std::size_t>(m.slot)], m) : std::nullopt)
        throw Error(ErrorKind::layout, fmt::format("operand '{}' of {} ({}) can't be read by the GPU's copy engine: {}", declared[static_cast<std::size_t>(m.slot)].name,
                                                   p.name, describe(c.slots[static_cast<std::size_t>(m.slot)]), *why));
    } else if (const Tensor& t = c.slots[static_cast<std::size_t>(m.slot)];
               why_not_tma(t, m) || (declared[static_cast<std::size_t>(m.slot)].role == Slot::Role::output && writes_past_rows(t, m))) {
      c.problem.direct |= 1u << m.slot;
    }
  }
  c.two_pass = why_two_pass(p, c.problem).value_or("");
  return c;
}

const std::vector<MapSpec>& Kernel::State::maps_for(std::uint32_t absent, const Program& p, const Problem& problem) {
  const auto key = std::tuple(absent, problem.a_major, problem.b_major, problem.direct);
  auto it = maps.find(key);
  if (it == maps.end()) it = maps.emplace(key, emit(p, choose(demand_of(p, problem.direct), problem).config).maps).first;
  return it->second;
}

std::shared_ptr<const Chosen> Kernel::State::build(const Program& p, int device, const Plan& plan, bool tuned) const {
  auto out = std::make_shared<Chosen>();
  out->plan = plan;
  out->emitted = emit(p, plan.config);
  out->loaded = load(out->emitted, device);
  out->tuned = tuned;
  return out;
}

std::shared_ptr<const Chosen> Kernel::State::build_two_pass(const Call& c) const {
  const Program& p = c.variant->program;
  const Program product = product_alone(p);
  const Demand demand = demand_of(product);
  const Problem problem = product_problem(c.problem);
  Plan plan;
  const bool empty = c.extents.m == 0 || c.extents.n == 0;  // then nothing multiplies, whatever the configuration
  bool tuned = false;
  if (empty || options.config.empty() || options.config == two_pass_prefix) {
    if (const auto stored = stored_choice(product, demand, problem, c.device)) {
      plan = *stored;
      tuned = true;
    } else if (options.tune && !empty) {
      const Tensor slots[] = {c.slots[0], c.slots[1], product_view(c.extents.m, c.extents.n, c.device)};
      plan = tune(product, demand, problem, slots, c.extents, c.device, [&](const Plan& one) { return build(product, c.device, one, true); })->plan;
      tuned = true;
    } else {
      plan = choose(demand, problem);
    }
  } else {
    std::optional<Plan> found;
    if (options.config.starts_with(two_pass_prefix)) found = find_plan(options.config.substr(two_pass_prefix.size() + 1), demand, problem);
    if (!found) {
      std::string names;
      for (const Plan& legal : candidates(demand, problem)) names += "\n  " + two_pass_name(legal.config);
      throw Error(ErrorKind::unsupported, fmt::format("configuration '{}' doesn't run {} with these arguments, which take two passes ({}); those that do:{}",
                                                      options.config, p.name, c.two_pass, names));
    }
    plan = *found;
  }
  auto out = std::make_shared<Chosen>();
  out->plan = plan;
  out->two_pass = emit_two_pass(p, plan.config);
  out->emitted = out->two_pass->product;
  if (!empty) out->loaded = load(out->emitted, c.device);
  out->second = load(out->two_pass->epilogue, c.device);
  out->tuned = tuned;
  out->reason = c.two_pass;
  return out;
}

std::shared_ptr<const Chosen> Kernel::State::choose_for(const Call& c) {
  const Problem& q = c.problem;
  const ChoiceKey key(c.variant->absent, c.device, q.m, q.n, q.k, q.a_major, q.b_major, q.direct);
  if (auto it = chosen.find(key); it != chosen.end()) return it->second;
  if (!c.two_pass.empty()) return chosen.emplace(key, build_two_pass(c)).first->second;
  const Program& p = c.variant->program;
  const Demand demand = demand_of(p, q.direct);
  std::shared_ptr<const Chosen> made;
  if (!options.config.empty()) {
    const auto plan = find_plan(options.config, demand, q);
    if (!plan) {
      std::string names;
      for (const Plan& legal : candidates(demand, q)) names += "\n  " + legal.config.name();
      throw Error(ErrorKind::unsupported, fmt::format("configuration '{}' doesn't run {} with these arguments; those that do:{}", options.config, p.name, names));
    }
    made = build(p, c.device, *plan, false);
  } else if (auto stored = stored_choice(p, demand, q, c.device)) {
    made = build(p, c.device, *stored, true);
  } else if (options.tune) {
    const auto build_one = [&](const Plan& plan) { return build(p, c.device, plan, true); };
    made = tune(p, demand, q, c.slots, c.extents, c.device, build_one);
  } else {
    made = build(p, c.device, choose(demand, q), false);
  }
  return chosen.emplace(key, std::move(made)).first->second;
}

const std::shared_ptr<const Prepared>* Kernel::State::find(const LaunchKey& key) const {
  auto it = prepared.find(key.hash());
  if (it == prepared.end() || !std::ranges::equal(it->second->key, key.words())) return nullptr;
  it->second->last_used.store(clock.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
  return &it->second;
}

std::shared_ptr<const Prepared> Kernel::State::prepare(Slots slots) {
  const LaunchKey key(slots);
  std::shared_ptr<Prepared> made;
  {
    std::lock_guard lock(cold);
    {
      std::shared_lock hot(mutex);
      if (const auto* found = find(key)) return *found;
    }
    const Call c = examine(slots);
    made = c.empty ? std::make_shared<Prepared>()
                   : std::make_shared<Prepared>(choose_for(c), c.variant->program, c.slots, c.variant->positions, c.extents, c.device, c.problem.multiprocessors);
  }
  made->key.assign(key.words().begin(), key.words().end());
  made->last_used = clock.fetch_add(1, std::memory_order_relaxed);
  std::unique_lock lock(mutex);
  if (prepared.size() >= max_prepared) {  // drop the half that was not used for longest
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ages;
    for (const auto& [hash, p] : prepared) ages.emplace_back(p->last_used.load(std::memory_order_relaxed), hash);
    std::nth_element(ages.begin(), ages.begin() + static_cast<std::ptrdiff_t>(ages.size() / 2), ages.end());
    for (std::size_t i = 0; i < ages.size() / 2; ++i) prepared.erase(ages[i].second);
  }
  prepared[key.hash()] = made;
  return made;
}

Kernel::Kernel(Program program, KernelOptions options) : state_(std::make_shared<State>()) {
  state_->program = std::move(program);
  state_->options = std::move(options);
}

void Kernel::launch(Slots slots, CudaStream stream, Workspace workspace) const {
  State& s = *state_;
  const auto on = static_cast<Stream>(stream);
  {
    const LaunchKey key(slots);
    std::shared_lock lock(s.mutex);
    if (const auto* found = s.find(key)) return (*found)->enqueue(slots, on, workspace, s.options.overlap_launches);
  }
  s.prepare(slots)->enqueue(slots, on, workspace, s.options.overlap_launches);
}

void Kernel::prepare(Slots slots) const { state_->prepare(slots); }

std::size_t Kernel::workspace_bytes(Slots slots) const { return state_->prepare(slots)->workspace_bytes(); }

KernelReport Kernel::report(Slots slots) const {
  const auto p = state_->prepare(slots);
  KernelReport r;
  if (const Chosen* c = p->chosen())
    r = {.config = c->name(),
         .two_pass = c->reason,
         .group = c->plan.group,
         .raster = c->plan.raster,
         .registers = c->loaded.usage.registers,
         .spill_bytes = c->loaded.usage.spill_store_bytes + c->second.usage.spill_store_bytes,
         .shared_bytes = c->emitted.shared_bytes,
         .grid = p->grid(),
         .threads = c->emitted.threads,
         .compile_seconds = c->loaded.compile_seconds + c->second.compile_seconds,
         .tuned = c->tuned};
  return r;
}

std::vector<std::string> Kernel::configurations(Slots slots, bool with_pipelines) const {
  std::lock_guard lock(state_->cold);
  const auto c = state_->examine(slots);
  std::vector<std::string> names;
  if (c.empty) return names;
  const bool two = !c.two_pass.empty();
  const Demand demand = two ? demand_of(product_alone(c.variant->program)) : demand_of(c.variant->program, c.problem.direct);
  const Problem problem = two ? product_problem(c.problem) : c.problem;
  for (const Plan& p : candidates(demand, problem)) {
    names.push_back(two ? two_pass_name(p.config) : p.config.name());
    if (!with_pipelines) continue;
    for (const Plan& other : pipelines(p, demand))
      if (other.config != p.config) names.push_back(two ? two_pass_name(other.config) : other.config.name());
  }
  return names;
}

const Program& Kernel::program() const { return state_->program; }

bool cuda_available() noexcept { return available(); }

}  // namespace coda
