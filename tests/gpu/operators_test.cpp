// Every operator on CUDA tensors, forward and backward, and a whole Llama block (attention on the host between): the
// cases that tests/ops runs on the host, in guarded device memory.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "capture.hpp"
#include "guarded.hpp"
#include "support/trial.hpp"

namespace coda::test {
namespace {

class DeviceMemory : public Memory {
 public:
  Tensor place(const Tensor& contents, Use use) override {
    if (next_ == placed_.size()) placed_.push_back({std::make_unique<Guarded>(contents, Placement{}, use == Use::output), use});
    return placed_[next_++].tensor->view();
  }
  HostTensor read(const Tensor& placed) override { return find(placed).download(); }
  void write(const Tensor& placed, const Tensor& contents) override {
    synchronize();  // what was enqueued before may still read or write it
    find(placed).assign(contents);
  }
  std::string faults() override {
    std::string all;
    for (const Placed& p : placed_) all += p.tensor->changed(p.use == Use::input);
    return all;
  }
  void* stream() override { return static_cast<cuda::Stream>(stream_); }

  /// All contents are put back, and the next calls of place() return the tensors there are, in order.
  void rewind() {
    synchronize();
    for (const Placed& p : placed_) p.tensor->reset();
    next_ = 0;
  }

 private:
  struct Placed {
    std::unique_ptr<Guarded> tensor;
    Use use;
  };
  Guarded& find(const Tensor& view) {
    for (const Placed& p : placed_)
      if (p.tensor->view().data == view.data) return *p.tensor;
    throw std::logic_error("a tensor that wasn't placed");
  }
  std::vector<Placed> placed_;
  std::size_t next_ = 0;
  cuda::OwnedStream stream_{0};
};

class Operators : public ::testing::TestWithParam<std::size_t> {
 protected:
  const OperatorCase& case_ = operator_cases()[GetParam()];
};

TEST_P(Operators, keep_the_rule_on_cuda_tensors) {
  for (const DType dtype : {DType::bf16, DType::f16})
    EXPECT_EQ(judge(case_, dtype, [] { return std::make_unique<DeviceMemory>(); }), "") << name_of(dtype);
}

TEST_P(Operators, only_enqueue_on_the_stream_they_are_given) {
  if (case_.name == "llama_block") GTEST_SKIP() << "it waits for its attention on the host";
  // Capture fails where anything waits, or goes to another stream.
  DeviceMemory memory;
  Trial direct(memory, DType::bf16, {.stream = memory.stream(), .observe = nullptr});
  case_.body(direct);
  const auto expected = direct.results();
  memory.rewind();
  Capture graph([&](cuda::Stream s) {
    Trial captured(memory, DType::bf16, {.stream = s, .observe = nullptr});
    case_.body(captured);
  });
  graph.replay();
  synchronize();
  const auto found = direct.results();
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(same_bits(found[i].values, expected[i].values)) << found[i].name;
  EXPECT_EQ(memory.faults(), "");
}

INSTANTIATE_TEST_SUITE_P(Gpu, Operators, ::testing::Range(std::size_t{0}, operator_cases().size()),
                         [](const auto& i) { return operator_cases()[i.param].name; });

}  // namespace
}  // namespace coda::test
