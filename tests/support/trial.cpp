#include "support/trial.hpp"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <random>

#include "coda/compare.hpp"

namespace coda::test {
namespace {

std::size_t bytes_of(const Tensor& t) { return static_cast<std::size_t>(t.numel()) * size_of(t.dtype); }

std::span<const std::int64_t> shape_of(const Tensor& t) { return {t.shape.data(), static_cast<std::size_t>(t.rank)}; }

HostTensor copy_of(const Tensor& t) {
  HostTensor copy(t.dtype, shape_of(t));
  for (std::int64_t i = 0; i < t.numel(); ++i) store(copy, i, load(t, i));
  return copy;
}

bool same_bytes(const Tensor& a, const Tensor& b) { return std::memcmp(a.data, b.data, bytes_of(a)) == 0; }

/// A context in which each program's results are replaced by an evaluator's. The replacement happens when the next
/// program is about to run, or at the end, since until then the engine may still write its own.
class Evaluated {
 public:
  using Evaluator = std::vector<HostTensor> (*)(const Program&, Slots);
  explicit Evaluated(Evaluator evaluator) : evaluator_(evaluator) {}

  ops::Context context() {
    return {.stream = nullptr, .observe = [this](const Program& p, Slots slots) {
              settle();
              results_ = evaluator_(p, slots);
              const std::size_t inputs = slots.size() - p.outputs.size();
              outputs_.assign(slots.begin() + static_cast<std::ptrdiff_t>(inputs), slots.end());
            }};
  }
  void settle() {
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      if (outputs_[o].data == nullptr) continue;
      for (std::int64_t i = 0; i < outputs_[o].numel(); ++i) store(outputs_[o], i, load(results_[o], i));
    }
    outputs_.clear();
  }

 private:
  Evaluator evaluator_;
  std::vector<Tensor> outputs_;
  std::vector<HostTensor> results_;
};

/// What settles an evaluated run before a case reads from memory itself.
class SettlingMemory : public HostMemory {
 public:
  explicit SettlingMemory(Evaluated& evaluated) : evaluated_(evaluated) {}
  HostTensor read(const Tensor& placed) override {
    evaluated_.settle();
    return HostMemory::read(placed);
  }

 private:
  Evaluated& evaluated_;
};

std::vector<Trial::Result> evaluated_results(const OperatorCase& c, DType dtype, Evaluated::Evaluator evaluator) {
  Evaluated evaluated(evaluator);
  SettlingMemory memory(evaluated);
  Trial trial(memory, dtype, evaluated.context());
  c.body(trial);
  return trial.results();
}

}  // namespace

Tensor HostMemory::place(const Tensor& contents, Use use) {
  placed_.push_back({copy_of(contents), copy_of(contents), use});
  if (use == Use::output) std::memset(placed_.back().tensor.view().data, 0xff, bytes_of(contents));
  return placed_.back().tensor;
}

HostTensor HostMemory::read(const Tensor& placed) { return copy_of(placed); }

void HostMemory::write(const Tensor& placed, const Tensor& contents) {
  for (std::int64_t i = 0; i < placed.numel(); ++i) store(placed, i, load(contents, i));
}

std::string HostMemory::faults() {
  for (const Placed& p : placed_)
    if (p.use == Use::input && !same_bytes(p.tensor, p.before)) return "an input was written to: " + describe(p.before);
  return {};
}

Trial::Trial(Memory& memory, DType dtype, ops::Context context)
    : memory_(&memory), dtype_(dtype), context_(std::move(context)) {}

namespace {

/// The name decides the numbers, by FNV-1a.
std::uint64_t seed_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

template <class Distribution>
HostTensor drawn(std::string_view name, Trial::Shape shape, DType dtype, Distribution distribution) {
  std::mt19937_64 random(seed_of(name));
  const HostTensor held(DType::bf16, shape);
  HostTensor t(dtype, shape);
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    store(held, i, distribution(random));
    store(t, i, load(held, i));
  }
  return t;
}

}  // namespace

Tensor Trial::matrix(std::string_view name, Shape shape, double deviation) {
  return memory_->place(drawn(name, shape, dtype_, std::normal_distribution<double>(0, deviation)), Memory::Use::input);
}

Tensor Trial::uniform(std::string_view name, Shape shape, double low, double high, DType dtype) {
  return memory_->place(drawn(name, shape, dtype, std::uniform_real_distribution<double>(low, high)),
                        Memory::Use::input);
}

Tensor Trial::uniform(std::string_view name, Shape shape, double low, double high) {
  return uniform(name, shape, low, high, DType::f32);
}

Tensor Trial::integers(Shape shape, const std::function<std::int64_t(std::int64_t)>& value) {
  const HostTensor t(DType::i64, shape);
  for (std::int64_t i = 0; i < t.numel(); ++i) t.as<std::int64_t>()[i] = value(i);
  return memory_->place(t, Memory::Use::input);
}

Tensor Trial::reals(Shape shape, const std::function<double(std::int64_t)>& value) {
  const HostTensor t(DType::f32, shape);
  for (std::int64_t i = 0; i < t.numel(); ++i) store(t, i, value(i));
  return memory_->place(t, Memory::Use::input);
}

Tensor Trial::output(std::string_view name, Shape shape, DType dtype) {
  const Tensor t = scratch(shape, dtype);
  outputs_.emplace_back(name, t);
  return t;
}

Tensor Trial::output(std::string_view name, Shape shape) { return output(name, shape, dtype_); }

Tensor Trial::accumulated(std::string_view name, Shape shape) {
  const Tensor t =
      memory_->place(drawn(name, shape, DType::f32, std::normal_distribution<double>(0, 1)), Memory::Use::accumulated);
  outputs_.emplace_back(name, t);
  return t;
}

Tensor Trial::scratch(Shape shape, DType dtype) {
  return memory_->place(HostTensor(dtype, shape), Memory::Use::output);
}

std::vector<Trial::Result> Trial::results() {
  std::vector<Result> all;
  for (const auto& [name, t] : outputs_) all.push_back({name, memory_->read(t)});
  return all;
}

std::string judge(const OperatorCase& c, DType dtype, const std::function<std::unique_ptr<Memory>()>& make) {
  const auto exact = evaluated_results(c, DType::f32, reference::evaluate);
  const auto unfused = evaluated_results(c, dtype, reference::unfused);
  std::string faults;
  std::vector<Trial::Result> first;
  for (int run = 0; run < 2; ++run) {
    const std::unique_ptr<Memory> memory = make();
    Trial trial(*memory, dtype, {.stream = memory->stream(), .observe = nullptr});
    c.body(trial);
    std::vector<Trial::Result> found = trial.results();
    faults += memory->faults();
    for (std::size_t i = 0; i < first.size(); ++i)
      if (!same_bytes(found[i].values, first[i].values)) faults += found[i].name + " differs between two runs; ";
    first = std::move(found);
  }
  // The rule wants a program's list of outputs, of which it reads names and types.
  Program named;
  Expected expected;
  std::vector<Tensor> found;
  for (std::size_t i = 0; i < first.size(); ++i) {
    Output o;
    o.name = first[i].name;
    o.dtype = first[i].values.view().dtype;
    named.outputs.push_back(o);
    expected.exact.push_back(copy_of(exact[i].values));
    expected.unfused.push_back(copy_of(unfused[i].values));
    found.push_back(first[i].values);
  }
  for (const OutputError& e : compare(named, expected, found))
    if (!e.ok) faults += describe(e) + "; ";
  return faults;
}

}  // namespace coda::test
