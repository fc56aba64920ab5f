// Arguments against declarations: names to slots, extents, element types, strides; messages say the way out.
#include <gtest/gtest.h>

#include "coda/engine.hpp"
#include "coda/text.hpp"

namespace coda {
namespace {

Tensor tensor(DType t, std::initializer_list<std::int64_t> shape) {
  static std::int64_t somewhere = 0;  // never read: only shapes are looked at
  return Tensor::contiguous(&somewhere, t, std::span<const std::int64_t>(shape.begin(), shape.size()));
}

using Named = std::map<std::string, Tensor, std::less<>>;

struct Call {
  Program program;
  Named named;

  std::string fault(ErrorKind kind) const {
    try {
      check_arguments(program, bind(program, named));
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), kind) << e.what();
      return e.what();
    }
    return "no error";
  }
};

Call rope(std::int64_t m = 32, std::int64_t n = 256, std::int64_t k = 64) {
  const Program p = parse(R"(program rope
  gemm A: bf16[M, K], B: bf16[N, K]
  in rstd: f32[M]
  in position: i64[M]
  in cos: f32[P, 64]
  in sin: f32[P, 64]
  in gain: f32[]
  in residual: bf16[M, N/2]
  z = acc * rstd * gain
  a, b = split(z, heads(128))
  i, _ = split(col, heads(128))
  y = a * lookup(cos, position, i % 64) - b * lookup(sin, position, i % 64)
  out half: bf16[M, N/2] = y + residual
  out zt: f32[N, M] += z
  finish s: f32[N] = sum(z, over m)
)");
  return {p,
          {{"A", tensor(DType::bf16, {m, k})},
           {"B", tensor(DType::bf16, {n, k})},
           {"rstd", tensor(DType::f32, {m})},
           {"position", tensor(DType::i64, {m})},
           {"cos", tensor(DType::f32, {4096, 64})},
           {"sin", tensor(DType::f32, {4096, 64})},
           {"gain", tensor(DType::f32, {})},
           {"residual", tensor(DType::bf16, {m, n / 2})},
           {"half", tensor(DType::bf16, {m, n / 2})},
           {"zt", tensor(DType::f32, {n, m})},
           {"s", tensor(DType::f32, {n})}}};
}

TEST(Arguments, GiveTheExtents) {
  const Call c = rope();
  const Extents e = check_arguments(c.program, coda::bind(c.program, c.named));
  EXPECT_EQ(e.m, 32);
  EXPECT_EQ(e.n, 256);
  EXPECT_EQ(e.k, 64);
}

TEST(Arguments, MayHaveZeroExtents) {
  for (auto [m, n, k] : {std::tuple{0, 256, 64}, {32, 0, 64}, {32, 256, 0}, {0, 0, 0}}) {
    Call c = rope(m, n, k);
    for (auto& [name, t] : c.named)
      if (t.numel() == 0) t.data = nullptr;
    const Extents e = check_arguments(c.program, coda::bind(c.program, c.named));
    EXPECT_EQ(e.m, m);
    EXPECT_EQ(e.n, n);
    EXPECT_EQ(e.k, k);
  }
}

TEST(Arguments, MayLeaveOutputsOut) {
  Call c = rope();
  c.named.erase("zt");
  c.named.erase("s");
  EXPECT_EQ(c.fault(ErrorKind::shape), "no error");
}

TEST(Arguments, MayBeStridedBroadcastOrTransposed) {
  Call c = rope();
  c.named["A"].stride = {1, 32};
  c.named["rstd"].stride = {0};
  c.named["residual"].stride = {1024, 2};
  c.named["zt"].stride = {1, 256};
  EXPECT_EQ(c.fault(ErrorKind::layout), "no error");
}

TEST(Arguments, AreRefusedByName) {
  Call c = rope();
  c.named["rsdt"] = c.named["rstd"];
  EXPECT_EQ(
      c.fault(ErrorKind::type),
      "in program rope: no argument is called 'rsdt'; did you mean 'rstd'?; the arguments are A, B, rstd, position, "
      "cos, sin, gain, residual, half, zt, s");
  c = rope();
  c.named.erase("rstd");
  EXPECT_EQ(c.fault(ErrorKind::shape),
            "in program rope: 'rstd' isn't given: expected f32[M]; only outputs may be left out");
  c = rope();
  std::vector<Tensor> slots = coda::bind(c.program, c.named);
  slots[2] = Tensor{};
  EXPECT_THROW(check_arguments(c.program, slots), Error);
  slots.pop_back();
  EXPECT_THROW(check_arguments(c.program, slots), Error);
}

TEST(Arguments, AreRefusedByElementType) {
  Call c = rope();
  c.named["rstd"].dtype = DType::bf16;
  EXPECT_EQ(
      c.fault(ErrorKind::dtype),
      "in program rope: operand 'rstd', declared f32[M]: expected the element type f32, found bf16[32]; convert the "
      "tensor, or declare bf16 in the program");
  c = rope();
  c.named["position"].dtype = DType::i32;
  c.fault(ErrorKind::dtype);
}

TEST(Arguments, AreRefusedByExtent) {
  Call c = rope();
  c.named["rstd"] = tensor(DType::f32, {31});
  EXPECT_EQ(c.fault(ErrorKind::shape),
            "in program rope: operand 'rstd', declared f32[M]: expected 32 as extent 0, since M = 32 (from matrix 'A' "
            "bf16[32, 64]); found f32[31]");
  c = rope();
  c.named["B"] = tensor(DType::bf16, {256, 63});
  EXPECT_EQ(c.fault(ErrorKind::shape),
            "in program rope: matrix 'B', declared bf16[N, K]: expected 64 as extent 1, since K = 64 (from matrix 'A' "
            "bf16[32, 64]); found bf16[256, 63]");
  c = rope();
  c.named["sin"] = tensor(DType::f32, {4095, 64});
  EXPECT_EQ(
      c.fault(ErrorKind::shape),
      "in program rope: operand 'sin', declared f32[P, 64]: expected 4096 as extent 0, since P = 4096 (from operand "
      "'cos' f32[4096, 64]); found f32[4095, 64]");
  c = rope();
  c.named["cos"] = tensor(DType::f32, {4096, 32});
  EXPECT_EQ(c.fault(ErrorKind::shape),
            "in program rope: operand 'cos', declared f32[P, 64]: expected 64 as extent 1, found f32[4096, 32]");
  c = rope();
  c.named["gain"] = tensor(DType::f32, {1});
  EXPECT_EQ(c.fault(ErrorKind::shape),
            "in program rope: operand 'gain', declared f32[]: expected 0 extents, found f32[1]");
  c = rope();
  c.named["zt"] = tensor(DType::f32, {32, 256});
  c.fault(ErrorKind::shape);
  c = rope(256, 256);
  EXPECT_EQ(c.fault(ErrorKind::shape), "no error") << "M may equal N";
}

TEST(Arguments, MustFitThePairings) {
  EXPECT_EQ(
      rope(32, 192).fault(ErrorKind::shape),
      "in program rope: 'a' (line 10): expected N divisible by 128, found N = 192 (from matrix 'B' bf16[192, 64])");
  Call c = rope(32, 255);
  EXPECT_EQ(
      c.fault(ErrorKind::shape),
      "in program rope: operand 'residual', declared bf16[M, N/2]: expected an even N, found N = 255 (from matrix 'B' "
      "bf16[255, 64])");
}

TEST(Arguments, MustFitSegments) {
  const Program p = parse(
      "program p\n  gemm A: bf16[M, K], B: bf16[N, K]\n  in h: bf16[M, 2N]\n"
      "  out y: bf16[M, N] = sum(acc, over segment(3))\n  out z: bf16[M, 2N] = max(h, over segment(4))\n");
  const auto fault = [&](std::int64_t n) {
    Call c{p,
           {{"A", tensor(DType::bf16, {4, 4})},
            {"B", tensor(DType::bf16, {n, 4})},
            {"h", tensor(DType::bf16, {4, 2 * n})}}};
    return c.fault(ErrorKind::shape);
  };
  EXPECT_EQ(fault(6), "no error");
  EXPECT_EQ(fault(4),
            "in program p: 'sum(acc, over segment(3))' (line 4): expected N divisible by 3, found N = 4 (from "
            "matrix 'B' bf16[4, 4])");
  EXPECT_EQ(fault(3),
            "in program p: 'max(h, over segment(4))' (line 5): expected 2N divisible by 4, found N = 3 (from matrix "
            "'B' bf16[3, 4])");
}

TEST(Arguments, AreRefusedByStride) {
  Call c = rope();
  c.named["A"].stride = {64, -1};
  EXPECT_NE(c.fault(ErrorKind::layout).find("stride -1 is negative"), std::string::npos);
  c = rope();
  c.named["half"].stride = {0, 1};
  EXPECT_NE(c.fault(ErrorKind::layout).find("share memory"), std::string::npos);
  c.named["half"].stride = {64, 1};  // rows of 128
  EXPECT_NE(c.fault(ErrorKind::layout).find("share memory"), std::string::npos);
  c.named["half"].stride = {1, 32};
  EXPECT_EQ(c.fault(ErrorKind::layout), "no error");
}

TEST(Arguments, AreRefusedWhenTheirSizeOverflows) {
  constexpr std::int64_t big = std::int64_t{1} << 40;
  Call c = rope();
  c.named["A"] = tensor(DType::bf16, {32, 64});
  c.named["A"].shape = {big, big};
  EXPECT_NE(c.fault(ErrorKind::shape).find("more bytes than 63 bits count"), std::string::npos);
  c.named["A"].shape = {big, 64};
  EXPECT_NE(c.fault(ErrorKind::shape).find("expected at most 2147483647 as M"), std::string::npos);
  c.named["A"].shape = {-1, 64};
  EXPECT_NE(c.fault(ErrorKind::shape).find("extent -1 is negative"), std::string::npos);
  c = rope();
  c.named["A"].stride = {std::int64_t{1} << 62, 1};
  c.fault(ErrorKind::shape);
}

TEST(Arguments, NeedData) {
  Call c = rope();
  c.named["rstd"].data = nullptr;
  EXPECT_EQ(c.fault(ErrorKind::value), "in program rope: operand 'rstd', declared f32[M]: found no data, only f32[32]");
}

TEST(Arguments, MustBeOnOneDevice) {
  Call c = rope();
  c.named["gain"].device = {DeviceType::cuda, 0};
  EXPECT_EQ(c.fault(ErrorKind::layout), "no error") << "a scalar may be a host value or a device pointer";
  c.named["rstd"].device = {DeviceType::cuda, 1};
  EXPECT_EQ(
      c.fault(ErrorKind::layout),
      "in program rope: operand 'rstd', declared f32[M]: expected data in host memory, where A is, found CUDA device "
      "1");
}

}  // namespace
}  // namespace coda
