// A program with arguments made for it, their fp64 answer, and the judgement of a GPU's.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coda/compare.hpp"
#include "coda/engine.hpp"
#include "coda/inputs.hpp"
#include "coda/kernel.hpp"
#include "coda/program.hpp"
#include "guarded.hpp"

namespace coda::test {

/// Where the tensors of a launch lie.
struct Layouts {
  Placement a = {}, b = {}, operand = {}, output = {};
  std::string name = "rows";
};

/// Logical arguments in slot order and the two answers they are judged by.
class Problem {
 public:
  /// Random arguments (coda/inputs.hpp); `make(slot, tensor)` may write others into an input.
  Problem(Program p, std::int64_t m, std::int64_t n, std::int64_t k, unsigned seed = 1,
          const std::function<bool(const Slot&, const Tensor&)>& make = nullptr);

  const Program& program() const { return program_; }
  const std::vector<HostTensor>& host() const { return inputs_.tensors; }
  /// The outputs (in order) that fail the rule of coda/compare.hpp: empty where none does.
  std::string judge(const std::vector<HostTensor>& outputs) const;

 private:
  Program program_;
  Inputs inputs_;
  mutable std::optional<Expected> expected_;  // made when first needed
};

/// The problem's tensors on the device.
class Arguments {
 public:
  Arguments(const Problem& problem, const Layouts& layouts, int device = 0);
  std::vector<Tensor> slots() const;
  std::vector<HostTensor> outputs() const;
  void reset();
  /// Empty where inputs are as they were and nothing was written beside the outputs.
  std::string faults() const;
  Guarded& tensor(std::string_view name) { return *tensors_.at(static_cast<std::size_t>(*program_->slot(name))); }

 private:
  const Program* program_;
  std::vector<std::unique_ptr<Guarded>> tensors_;
};

/// Runs the problem with this kernel and layout and checks everything: numbers, guard bands, inputs, a bitwise rerun.
/// Empty where all is well.
std::string check_run(const Kernel& kernel, const Problem& problem, const Layouts& layouts);

/// Prepares kernels for `slots` on as many threads as the machine has.
void prepare_all(const std::vector<Kernel>& kernels, Slots slots);

}  // namespace coda::test
