// The element types a program can name, and what the library knows of each.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace coda {

/// Element types of operands and outputs. `f64` exists on the host only: it is what the fp64 reference
/// evaluator returns, and no program may name it.
enum class DType : std::uint8_t { f32, bf16, f16, e4m3, e5m2, i32, i64, f64 };

/// Size of one element in bytes.
constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::e4m3: case DType::e5m2: return 1;
    case DType::bf16: case DType::f16: return 2;
    case DType::f32: case DType::i32: return 4;
    case DType::i64: case DType::f64: return 8;
  }
  return 0;
}

constexpr bool is_integer(DType t) { return t == DType::i32 || t == DType::i64; }
constexpr bool is_float(DType t) { return !is_integer(t); }

/// The name a program text uses: "f32", "bf16", "f16", "e4m3", "e5m2", "i32", "i64" ("f64" in messages only).
constexpr std::string_view name_of(DType t) {
  constexpr std::string_view names[] = {"f32", "bf16", "f16", "e4m3", "e5m2", "i32", "i64", "f64"};
  return names[static_cast<int>(t)];
}

}  // namespace coda
