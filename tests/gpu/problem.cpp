#include "problem.hpp"

#include <fmt/format.h>

#include <atomic>
#include <thread>

namespace coda::test {
Problem::Problem(Program p, std::int64_t m, std::int64_t n, std::int64_t k, unsigned seed, const std::function<bool(const Slot&, const Tensor&)>& make)
    : program_(std::move(p)) {
  InputOptions options;
  options.extents = {m, n, k};
  options.seed = seed;
  inputs_ = make_inputs(program_, options);
  const auto slots = program_.slots();
  if (make)
    for (std::size_t i = 0; i < slots.size(); ++i)
      if (slots[i].role != Slot::Role::output) make(slots[i], inputs_.tensors[i]);
}

std::string Problem::judge(const std::vector<HostTensor>& outputs) const {
  if (!expected_) expected_ = expect(program_, inputs_.slots);
  std::vector<Tensor> views;
  for (const HostTensor& o : outputs) views.push_back(o.view());
  std::string faults;
  for (const OutputError& e : compare(program_, *expected_, views))
    if (!e.ok) faults += describe(e) + "; ";
  return faults;
}

Arguments::Arguments(const Problem& problem, const Layouts& l, int device) : program_(&problem.program()) {
  const auto slots = program_->slots();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Slot& s = slots[i];
    const bool output = s.role == Slot::Role::output;
    const Placement& p = s.role == Slot::Role::a ? l.a : s.role == Slot::Role::b ? l.b : output ? l.output : l.operand;
    const bool accumulates = output && program_->outputs[static_cast<std::size_t>(s.index)].accumulate;
    tensors_.push_back(std::make_unique<Guarded>(problem.host()[i], p, output && !accumulates, device));
  }
}

std::vector<Tensor> Arguments::slots() const {
  std::vector<Tensor> views;
  for (const auto& t : tensors_) views.push_back(t->view());
  return views;
}

std::vector<HostTensor> Arguments::outputs() const {
  std::vector<HostTensor> out;
  const auto slots = program_->slots();
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (slots[i].role == Slot::Role::output) out.push_back(tensors_[i]->download());
  return out;
}

void Arguments::reset() {
  for (const auto& t : tensors_) t->reset();
}

std::string Arguments::faults() const {
  std::string all;
  const auto slots = program_->slots();
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (const std::string c = tensors_[i]->changed(slots[i].role != Slot::Role::output); !c.empty()) all += fmt::format("'{}': {}; ", slots[i].name, c);
  return all;
}

std::string check_run(const Kernel& kernel, const Problem& problem, const Layouts& layouts) {
  Arguments arguments(problem, layouts);
  const auto slots = arguments.slots();
  kernel.launch(slots);
  const auto first = arguments.outputs();
  std::string faults = problem.judge(first) + arguments.faults();
  arguments.reset();
  kernel.launch(slots);
  const auto second = arguments.outputs();
  for (std::size_t i = 0; i < first.size(); ++i)
    if (!same_bits(first[i], second[i])) faults += fmt::format("output '{}' differs between two runs; ", problem.program().outputs[i].name);
  if (!faults.empty()) faults = fmt::format("{} with {} and {}: {}", problem.program().name, kernel.report(slots).config, layouts.name, faults);
  return faults;
}

void prepare_all(const std::vector<Kernel>& kernels, Slots slots) {
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    pool.emplace_back([&] {
      for (std::size_t i; (i = next++) < kernels.size();) {
        try {
          kernels[i].prepare(slots);
        } catch (...) {  // the launch will say it again, where it is checked
        }
      }
    });
  for (auto& t : pool) t.join();
}

}  // namespace coda::test
