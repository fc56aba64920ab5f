// Tests of operators that run on any device. A case is a function that makes tensors and calls operators on them; it is
// run on the device under test, and twice on the host with every program replaced by the evaluators of coda/engine.hpp:
// in fp64, and as the unfused path. Its outputs are then held to the rule of coda/compare.hpp.
//
// What an operator passes to its program is part of all three runs: that it is the right thing is for tests/ops to
// prove, from formulas, on the host.
#pragma once
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coda/ops.hpp"

namespace coda::test {

/// The memory of a device.
class Memory {
 public:
  enum class Use { input, output, accumulated };
  virtual ~Memory() = default;
  /// A copy of `contents`; an output's elements are poison instead.
  virtual Tensor place(const Tensor& contents, Use use) = 0;
  virtual HostTensor read(const Tensor& placed) = 0;
  virtual void write(const Tensor& placed, const Tensor& contents) = 0;
  /// Empty where no input changed and nothing was written beside outputs; else what was.
  virtual std::string faults() = 0;
  virtual void* stream() { return nullptr; }
};

class HostMemory : public Memory {
 public:
  Tensor place(const Tensor& contents, Use use) override;
  HostTensor read(const Tensor& placed) override;
  void write(const Tensor& placed, const Tensor& contents) override;
  std::string faults() override;

 private:
  struct Placed {
    HostTensor tensor, before;
    Use use;
  };
  std::vector<Placed> placed_;
};

/// One run of a case. Tensors of a name hold the same numbers in every run: bf16 has them all.
class Trial {
 public:
  using Shape = std::initializer_list<std::int64_t>;
  Trial(Memory& memory, DType dtype, ops::Context context);

  /// Normal values of this deviation, in the run's type.
  Tensor matrix(std::string_view name, Shape shape, double deviation = 1);
  /// f32, or of another type, between two bounds.
  Tensor uniform(std::string_view name, Shape shape, double low, double high);
  Tensor uniform(std::string_view name, Shape shape, double low, double high, DType dtype);
  Tensor integers(Shape shape, const std::function<std::int64_t(std::int64_t)>& value);
  Tensor reals(Shape shape, const std::function<double(std::int64_t)>& value);  ///< f32
  Tensor output(std::string_view name, Shape shape);                            ///< of the run's type
  Tensor output(std::string_view name, Shape shape, DType dtype);
  Tensor accumulated(std::string_view name, Shape shape);  ///< f32, with something to add to
  Tensor scratch(Shape shape, DType dtype);                ///< an output that isn't judged

  const ops::Context& context() const { return context_; }
  DType dtype() const { return dtype_; }
  Memory& memory() { return *memory_; }

  struct Result {
    std::string name;
    HostTensor values;
  };
  std::vector<Result> results();

 private:
  Memory* memory_;
  DType dtype_;
  ops::Context context_;
  std::vector<std::pair<std::string, Tensor>> outputs_;
};

struct OperatorCase {
  std::string name;
  std::function<void(Trial&)> body;
};

/// Every operator of coda/ops.hpp, forward and backward, on ragged sizes, and a whole Llama block.
const std::vector<OperatorCase>& operator_cases();

/// Runs the case in memory made by `make`, with matrices of `dtype` (bf16 or f16), twice. Empty where its outputs keep
/// the rule, the reruns' bits are equal, and nothing else was written.
std::string judge(const OperatorCase& c, DType dtype, const std::function<std::unique_ptr<Memory>()>& make);

}  // namespace coda::test
