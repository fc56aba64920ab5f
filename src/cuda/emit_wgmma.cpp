#include "cuda/emit_wgmma.hpp"

#include <fmt/format.h>

#include "coda/error.hpp"

namespace coda::emission {
namespace {

const char* type_of(DType t) {
  switch (t) {
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::e4m3: return "e4m3";
    case DType::e5m2: return "e5m2";
    case DType::f32: return "tf32";
    default: throw Error(ErrorKind::internal, fmt::format("no wgmma of {}", name_of(t)));
  }
}

}  // namespace

std::string wgmma_header(DType a, DType b, const std::vector<int>& columns) {
  const int k = 32 / static_cast<int>(size_of(a));
  const bool transposes = size_of(a) == 2;
  std::string s = "// The wgmma shapes of this kernel: d = a * b + (keep ? d : 0). a, b: the low words of descriptors, whose high words are\n"
                  "// all 128-byte swizzle and 1024 bytes between groups of 8 rows. A_MN, B_MN: that operand is stored MN-major.\n"
                  "#pragma once\n#include \"ptx.cuh\"\n\nnamespace coda {\n\n"
                  "template <int N, int A_MN, int B_MN> DEV void wgmma(float* d, u32 a, u32 b, int keep) {\n";
  for (std::size_t i = 0; i < columns.size(); i++) {
    const int n = columns[i], r = n / 2;
    std::string registers, operands;
    for (int j = 0; j < r; j++) {
      registers += fmt::format("{}%{}", j > 0 ? "," : "", j);
      operands += fmt::format("{}\"+f\"(d[{}])", j > 0 ? "," : "", j);
    }
    s += fmt::format("  {}if constexpr (N == {})\n    asm volatile(\"{{.reg .pred p; .reg .b64 a, b; setp.ne.b32 p, %{}, 0; "
                     "mov.b64 a, {{%{}, 0x40000040}}; mov.b64 b, {{%{}, 0x40000040}}; "
                     "wgmma.mma_async.sync.aligned.m64n{}k{}.f32.{}.{} {{{}}}, a, b, p, 1, 1{};}}\"\n      : {}\n      "
                     ": \"r\"(a), \"r\"(b), \"r\"(keep){});\n",
                     i > 0 ? "else " : "", n, r + 2, r, r + 1, n, k, type_of(a), type_of(b), registers,
                     transposes ? fmt::format(", %{}, %{}", r + 3, r + 4) : "", operands,
                     transposes ? ", \"n\"(A_MN), \"n\"(B_MN)" : "");
  }
  return s + "}\n\n}  // namespace coda\n";
}

}  // namespace coda::emission
