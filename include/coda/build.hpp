// Programs written in C++: the same language as the text form, with operators on values.
//
//   using namespace coda::epilogue;
//   coda::Program p = coda::build("norm_swiglu", [](coda::Epilogue& e) {
//     auto rstd = e.input("rstd", f32, {M});
//     auto z = e.let("z", e.acc() * rstd);      // let gives a name; values without one get t0, t1, ... where needed
//     auto [gate, up] = split(z, halves);
//     e.output("z", bf16, {M, N}, z);
//     e.output("y", bf16, {M, N / 2}, silu(gate) * up);
//   });
//
// Faults throw coda::Error with the file and line of the C++ that made them. A Value lives as long as its Epilogue.
#pragma once
#include <concepts>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "coda/program.hpp"

namespace coda::epilogue {

class Epilogue;

/// The C++ line that a value comes from. (std::source_location needs a newer Clang than Debian 12 has.)
struct Here {
  const char* file = "";
  int line = 0;
  static constexpr Here current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// ---------------------------------------------------------------- names of the language

inline constexpr DType f32 = DType::f32, bf16 = DType::bf16, f16 = DType::f16, e4m3 = DType::e4m3, e5m2 = DType::e5m2,
                       i32 = DType::i32, i64 = DType::i64;

inline constexpr Pairing adjacent{Pairing::Kind::adjacent, 0, 0};
inline constexpr Pairing halves{Pairing::Kind::halves, 0, 0};
constexpr Pairing heads(int d) { return {Pairing::Kind::heads, d, d}; }
constexpr Pairing heads(int d, int rotary) { return {Pairing::Kind::heads, d, rotary}; }

inline constexpr Over over_n{Over::Kind::n, 0};
inline constexpr Over over_m{Over::Kind::m, 0};
inline constexpr Over over_mn{Over::Kind::mn, 0};
constexpr Over segment(int d) { return {Over::Kind::segment, d}; }

/// An extent: M, N, N / 2, 2 * N, a number, or a free name ("P") of a table. M, N, K and what is made of them are
/// values too: ssq / N.
class Dim {
 public:
  enum class Kind { m, n, k, half_n, twice_n, symbol, number };
  constexpr Dim(std::int64_t n) : kind(Kind::number), number(n) {}
  constexpr Dim(int n) : Dim(static_cast<std::int64_t>(n)) {}
  constexpr Dim(const char* name) : kind(Kind::symbol), symbol(name) {}
  constexpr explicit Dim(Kind k) : kind(k) {}

  Kind kind;
  std::int64_t number = 0;
  const char* symbol = "";
};
inline constexpr Dim M{Dim::Kind::m}, N{Dim::Kind::n}, K{Dim::Kind::k};
/// N / 2 and 2 * N; anything else throws Error(type).
Dim operator/(Dim n, int two);
Dim operator*(int two, Dim n);

// ---------------------------------------------------------------- values

/// A value of the program under construction.
class Value {
 public:
  ValueId id() const { return id_; }

 private:
  friend class Epilogue;
  friend class Arg;
  Value(Epilogue* e, ValueId id) : epilogue_(e), id_(id) {}
  Epilogue* epilogue_;
  ValueId id_;
};

/// Both members of a split, or the maximum and the sum of softmax_stats.
struct Pair {
  Value first, second;
};

/// A table operand, read with lookup().
class Table {
 private:
  friend class Epilogue;
  friend Value lookup(const Table&, const class Arg&);
  friend Value lookup(const Table&, const class Arg&, const class Arg&);
  Table(Epilogue* e, int operand) : epilogue_(e), operand_(operand) {}
  Epilogue* epilogue_;
  int operand_;
};

/// What an op takes: a value, a number or an extent. It remembers the line it was written on.
class Arg {
 public:
  Arg(const Value& v, Here here = Here::current())
      : kind_(Kind::value), value_(v.id_), owner_(v.epilogue_), here_(here) {}
  template <std::floating_point T>
  Arg(T x, Here here = Here::current()) : kind_(Kind::real), number_(static_cast<double>(x)), here_(here) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Arg(T x, Here here = Here::current())
      : kind_(Kind::integer), number_(static_cast<double>(x)), here_(here) {}
  Arg(const Dim& d, Here here = Here::current()) : kind_(Kind::dim), dim_(d), here_(here) {}

 private:
  friend class Epilogue;
  enum class Kind { value, real, integer, dim };
  Kind kind_;
  ValueId value_ = no_value;
  Epilogue* owner_ = nullptr;
  double number_ = 0;
  Dim dim_{0};
  Here here_;
};

/// The epilogue of one product: acc[m, n] = sum over k of A[m, k] B[n, k].
class Epilogue {
 public:
  explicit Epilogue(std::string name);

  /// Element types of A and B; bf16 unless set.
  void gemm(DType a, DType b, Here here = Here::current());
  /// The head comment.
  void doc(std::string text) { program_.doc = std::move(text); }

  Value acc(Here here = Here::current());
  Value row(Here here = Here::current());  ///< the row index m
  Value col(Here here = Here::current());  ///< the column index n

  /// A number as a value; operators and functions take plain numbers too.
  Value constant(const Arg& number) { return Value(this, resolve(number)); }

  Value input(std::string_view name, DType t, std::initializer_list<Dim> extents, Here here = Here::current());
  Table table(std::string_view name, DType t, std::initializer_list<Dim> extents, Here here = Here::current());

  /// Names a value, as `name = value` does in a text.
  Value let(std::string_view name, const Arg& value);
  /// Names both members; "_" leaves one without a name.
  Pair let(std::string_view first, std::string_view second, const Pair& values);

  void output(std::string_view name, DType t, std::initializer_list<Dim> extents, const Arg& value);
  /// `out name += value`, or `finish name += value` where `extents` aren't a matrix's.
  void accumulate(std::string_view name, DType t, std::initializer_list<Dim> extents, const Arg& value);
  void finish(std::string_view name, DType t, std::initializer_list<Dim> extents, const Arg& value);

  /// The checked program. Throws Error(type | locality).
  Program program() const;

  // What the free functions below are made of.
  static Value make(Op op, std::initializer_list<Arg> args, Node fields = {});
  static Pair make_pair(Op first, Op second, const Arg& x, Node fields);

 private:
  friend Value lookup(const Table&, const Arg&);
  friend Value lookup(const Table&, const Arg&, const Arg&);
  Value leaf(Op op, int index, Here here);
  ValueId resolve(const Arg& a);
  Value add(Node n);
  int declare(std::string_view name, DType t, std::initializer_list<Dim> extents, Here here);
  void store(std::string_view name, DType t, std::initializer_list<Dim> extents, const Arg& value, bool accumulate,
             bool finish);
  [[noreturn]] void refuse(Here here, std::string_view message) const;

  Program program_;
};

// ---------------------------------------------------------------- operators and functions

#define CODA_BINARY(spelling, op) \
  inline Value operator spelling(const Arg& x, const Arg& y) { return Epilogue::make(Op::op, {x, y}); }
CODA_BINARY(+, add)
CODA_BINARY(-, sub)
CODA_BINARY(*, mul)
CODA_BINARY(/, div)
CODA_BINARY(%, mod)
CODA_BINARY(==, eq)
CODA_BINARY(!=, ne)
CODA_BINARY(<, lt)
CODA_BINARY(<=, le)
CODA_BINARY(>, gt)
CODA_BINARY(>=, ge)
CODA_BINARY(&&, logical_and)
CODA_BINARY(||, logical_or)
#undef CODA_BINARY
inline Value operator-(const Arg& x) { return Epilogue::make(Op::neg, {x}); }
inline Value operator!(const Arg& x) { return Epilogue::make(Op::logical_not, {x}); }

// Every op of ops.def by its name: floordiv, where, min, max, clamp, abs, exp, ..., softplus.
#define CODA_FUNCTION_1(name) \
  inline Value name(const Arg& x) { return Epilogue::make(Op::name, {x}); }
#define CODA_FUNCTION_2(name) \
  inline Value name(const Arg& x, const Arg& y) { return Epilogue::make(Op::name, {x, y}); }
#define CODA_FUNCTION_3(name) \
  inline Value name(const Arg& x, const Arg& y, const Arg& z) { return Epilogue::make(Op::name, {x, y, z}); }
#define CODA_OP(name, arity, rule, formula) CODA_FUNCTION_##arity(name)
#include "coda/ops.def"
#undef CODA_OP
#undef CODA_FUNCTION_1
#undef CODA_FUNCTION_2
#undef CODA_FUNCTION_3

/// Two values of half the width, by what makes columns a pair.
Pair split(const Arg& x, Pairing p);
Value join(const Arg& x, const Arg& y, Pairing p);
/// `x` rounded to `t` and back.
Value round_to(const Arg& x, DType t);
Value lookup(const Table& table, const Arg& i);
Value lookup(const Table& table, const Arg& i, const Arg& j);

Value sum(const Arg& x, Over over);
Value max(const Arg& x, Over over);
/// The maximum, and the sum of exp(x - maximum).
Pair softmax_stats(const Arg& x, Over over);
/// `x` at column `index` of each row, at row `index` of each column, or at place `index` of each segment.
Value pick(const Arg& x, const Arg& index, Over over);
/// The same, but 0 where the index is `ignore`.
Value pick(const Arg& x, const Arg& index, Over over, const Arg& ignore);

}  // namespace coda::epilogue

namespace coda {

using Epilogue = epilogue::Epilogue;

/// Builds and checks a program. Throws Error(type | locality).
template <std::invocable<Epilogue&> F>
Program build(std::string name, F&& write) {
  Epilogue e(std::move(name));
  std::invoke(std::forward<F>(write), e);
  return e.program();
}

}  // namespace coda
