// Every operator and a whole Llama block on the host, by the cases that tests/gpu runs on a GPU.
#include <gtest/gtest.h>

#include "coda/error.hpp"
#include "coda/kernel.hpp"
#include "support/trial.hpp"

namespace coda::test {
namespace {

/// Tensors of a GPU that isn't there: an operator that touched one from the host would end the process.
class NoMansMemory : public Memory {
 public:
  Tensor place(const Tensor& contents, Use) override {
    Tensor t = contents;
    t.device = {DeviceType::cuda, 0};
    t.data = reinterpret_cast<void*>(std::uintptr_t{4096} * ++count_);
    return t;
  }
  HostTensor read(const Tensor&) override { throw Error(ErrorKind::internal, "read what no operator wrote"); }
  void write(const Tensor&, const Tensor&) override {}
  std::string faults() override { return {}; }

 private:
  std::uintptr_t count_ = 0;
};

TEST(OperatorCases, AWrongElementAnInputWrittenToAndAnUnrepeatableRunAreFound) {
  const auto make = [] { return std::make_unique<HostMemory>(); };
  const auto linear_then = [](std::function<void(Trial&, Tensor x, Tensor y)> fault) {
    return OperatorCase{"faulty", [fault](Trial& t) {
                          const Tensor x = t.matrix("x", {20, 16}), y = t.output("y", {20, 8});
                          ops::linear(t.context(), {.x = x, .weight = t.matrix("w", {8, 16}), .y = y});
                          if (!t.context().observe) fault(t, x, y);  // the run under test
                        }};
  };
  const auto found = [&](std::function<void(Trial&, Tensor, Tensor)> fault) {
    return judge(linear_then(fault), DType::bf16, make);
  };
  EXPECT_EQ(found([](Trial&, Tensor, Tensor) {}), "");
  EXPECT_NE(found([](Trial&, Tensor, Tensor y) { store(y, 7, load(y, 7) * 1.02 + 0.02); }), "");
  EXPECT_NE(found([](Trial&, Tensor x, Tensor) { store(x, 7, 3); }), "");
  EXPECT_NE(found([n = 0](Trial&, Tensor, Tensor y) mutable { store(y, 7, load(y, 7) * (1 + 0x1p-7 * n++)); }), "");
}

class Operators : public testing::TestWithParam<std::size_t> {
 protected:
  const OperatorCase& case_ = operator_cases()[GetParam()];
};

TEST_P(Operators, KeepTheRuleOnTheHost) {
  for (const DType dtype : {DType::bf16, DType::f16})
    EXPECT_EQ(judge(case_, dtype, [] { return std::make_unique<HostMemory>(); }), "") << name_of(dtype);
}

TEST_P(Operators, RefuseTensorsOfAGpuThatIsntThere) {
  if (cuda_available()) GTEST_SKIP() << "a GPU is there";
  NoMansMemory memory;
  Trial trial(memory, DType::bf16, {});
  try {
    case_.body(trial);
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unsupported) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Operators, testing::Range(std::size_t{0}, operator_cases().size()),
                         [](const auto& i) { return operator_cases()[i.param].name; });

}  // namespace
}  // namespace coda::test
