// The unfused sequence that `coda bench` makes for any program: its epilogue over the stored product.
#include <gtest/gtest.h>

#include "coda/compare.hpp"
#include "coda/inputs.hpp"
#include "coda/text.hpp"
#include "cuda/bench/operands.hpp"

namespace coda::cuda {
namespace {

TEST(PassOverProduct, ComputesWhatTheProgramDoesForEveryStandardProgram) {
  const Extents extents{37, 256, 24};
  for (const std::string& name : standard_programs()) {
    const Program p = load_program(name).with_dtype(name == "weight_grad_bf16" ? DType::bf16 : DType::f32);
    Inputs in = make_inputs(p, {.extents = extents, .symbols = {}, .seed = 3});
    const Expected expected = expect(p, in.slots);
    // The product in A's type, which for f32 is as good as the accumulator.
    const Program linear = load_program("linear").with_dtype(p.a_dtype);
    const HostTensor product(p.a_dtype, {extents.m, extents.n});
    cpu::run(linear, std::vector<Tensor>{in.slots[0], in.slots[1], product});

    const Program pass = pass_over_product(p);
    EXPECT_EQ(pass.outputs.size(), p.outputs.size()) << name;
    std::map<std::string, Tensor, std::less<>> named;
    for (std::size_t i = 0; i < in.slots.size(); ++i) named.emplace(p.slots()[i].name, in.slots[i]);
    named["A"] = Tensor::contiguous(nullptr, p.a_dtype, std::vector<std::int64_t>{extents.m, 0});
    named["B"] = Tensor::contiguous(nullptr, p.a_dtype, std::vector<std::int64_t>{extents.n, 0});
    named[std::string(pass.slots()[2].name)] = product;
    cpu::run(pass, coda::bind(pass, named));
    for (const OutputError& e : compare(p, expected, std::span(in.slots).last(p.outputs.size()))) {
      EXPECT_EQ(e.faults, 0) << name << " " << describe(e);
      if (name == "linear_quantise") continue;  // fp8: equal to what the roundings of f32 leave open
      EXPECT_LE(e.rms, (p.a_dtype == DType::bf16 ? 1e-2 : 1e-5) * (e.scale + 1e-6)) << name << " " << describe(e);
    }
  }
}

TEST(PassOverProduct, LeavesCommentsAndNamesThatHoldTheWordAlone) {
  const Program p = parse(
      "# product = acc\n"
      "program p\n"
      "  gemm A: bf16[M, K], B: bf16[N, K]\n"
      "  in account: f32[M]\n"
      "  acc2 = acc * account\n"
      "  out y: bf16[M, N] = acc2\n");
  EXPECT_EQ(print(pass_over_product(p)),
            "# product = acc\n"
            "program p\n"
            "  gemm A: bf16[M, K], B: bf16[N, K]\n"
            "  in   product_: bf16[M, N]\n"
            "  in   account: f32[M]\n"
            "  acc2 = (acc + product_) * account\n"
            "  out  y: bf16[M, N] = acc2\n");
}

}  // namespace
}  // namespace coda::cuda
