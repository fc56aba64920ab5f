// The linear program that a tile's epilogue becomes: steps over strips, and where each strip lies.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "cpu/kernels.hpp"
#include "cpu/tiles.hpp"

namespace coda::cpu {

/// How often a value changes: once a run, once a row, once a column, or with each element. Scalars and rows are
/// computed before the first tile, columns once a tile, elements once a row of a tile.
enum class Level : std::uint8_t { scalar, row, column, element };

/// Where a value's strip lies. A place may be a part of another's strip: `quarter` quarters from its start.
struct Place {
  enum class Kind : std::uint8_t { none, scalar, row, column, temporary, acc, operand };
  Kind kind = Kind::none;
  int index = 0;       ///< scalar, row, column, temporary or operand number
  Lay lay = Lay::one;  ///< of the strip that it is, or is a part of
  int quarter = 0;
  int quarters = 4;        ///< its size
  std::int64_t shift = 0;  ///< operand: added to the lay's columns
  bool operator==(const Place&) const = default;
};

/// One loop over a strip.
struct Step {
  enum class Kind : std::uint8_t {
    apply,    ///< d = fn(x, y, z)
    load,     ///< d = operand[index], converted
    fill,     ///< d = x, repeated
    gather,   ///< d = x, which is acc in two pieces
    iota,     ///< d = column indices
    split,    ///< d = member of x by pairing (adjacent, heads)
    join,     ///< d = x, y by pairing
    round,    ///< d = x rounded to dtype and back
    lookup,   ///< d = operand[index] at x (and y)
    segment,  ///< d = op of x over each run of `segment` elements, repeated; pick: at y, 0 where that is z
    reduce,   ///< reductions[index] takes x
    store,    ///< outputs[index] takes x
  };
  Kind kind = Kind::apply;
  Op op = Op::acc;
  Lay lay = Lay::one;  ///< of d, or of x where there is no d
  Place d, x, y, z;
  int repeat = 0;       ///< bits 0, 1, 2: x, y, z is one element
  bool pieces = false;  ///< an argument is all of acc, in a tile where that is two blocks
  Kernels::Apply fn = nullptr;
  int index = 0;
  int member = 0;
  std::int32_t segment = 0;
  Pairing pairing;
  DType dtype = DType::f32;
  std::int64_t shift = 0;  ///< load, store: added to the lay's columns
};

/// A reduction over n, m or mn of element strips.
struct Reduction {
  Op op = Op::reduce_sum;  ///< softmax_sum stands for both statistics
  Over::Kind over = Over::Kind::n;
  Lay lay = Lay::full;                  ///< of the strips it takes
  std::vector<std::int32_t> indices;    ///< pick: of each row, or (over m) of each column
  std::optional<std::int32_t> ignored;  ///< pick: the index whose result is 0
};

/// A pointer into a strip, and how far it moves from one row of the tile to the next.
struct Pointer {
  char* base = nullptr;
  std::int64_t step = 0;
  char* at(std::int64_t row) const { return base + row * step; }
};

}  // namespace coda::cpu
