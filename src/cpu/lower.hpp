// From a checked program to steps over strips.
#pragma once
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "cpu/steps.hpp"

namespace coda::cpu {

/// Memory that a lowering or a tile's strips lie in.
struct Arena {
  const Kernels* kernels = nullptr;
  Slots slots;
  const Program* program = nullptr;
  std::vector<std::int32_t> scalars;               ///< 4-byte words
  std::vector<std::vector<std::int32_t>> rows;     ///< each M words
  std::vector<std::vector<std::int32_t>> columns;  ///< of a lowering that evaluates columns at once
  std::vector<Tensor> given;                       ///< matrices that stand for nodes: operands after the program's
  const Tensor& operand(int i) const {
    const auto at = static_cast<std::size_t>(i), own = program->operands.size();
    return at < own ? slots[2 + at] : given[at - own];
  }
};

/// A value that a lowering made.
struct Made {
  Place place;
  Level level = Level::scalar;
  Lay lay = Lay::one;
  ValueKind kind = ValueKind::real;
};

/// Where a value of this type varies.
Level level_of(const Type& t);

/// Lowers nodes on demand. Scalars and rows are evaluated as they are lowered; columns are recorded as steps, or
/// evaluated as well when the lowering is of the whole matrix (finish expressions); elements are recorded.
class Lowering {
 public:
  Lowering(const Program& p, Slots slots, const Extents& e, const Grid& grid, bool at_once);

  /// The value of a node.
  Made value(ValueId v);
  /// The same as a real.
  Made real(ValueId v);
  /// From here on the value of `v` is read from a matrix instead of computed.
  void give(ValueId v, const Tensor& matrix);
  /// Records that target `index` (Step::index of the store) takes a tile-stage value, at `width`.
  void store(int index, ValueId v, Width width);
  /// Records a reduction of a tile-stage value, and returns its number; softmax statistics of one value share theirs.
  int reduce(ValueId reduction);
  /// Gives a reduction node its value ([] or [M] or [W] words), in a lowering of finish expressions.
  void complete(ValueId reduction, std::vector<std::int32_t> words);
  /// A finished output's words: [], [M] or [W].
  const std::int32_t* finished(int output, std::int64_t& count);

  /// Puts temporaries into as few strips as their lifetimes allow; after the last store().
  void allocate();

  Arena arena;
  std::vector<Step> column_steps, element_steps;
  std::vector<Lay> column_lays;     ///< of each column place
  std::vector<Lay> temporary_lays;  ///< of each temporary; after allocate(), of each strip they share
  std::vector<Reduction> reductions;
  bool uses_product = false;

 private:
  Made lower(ValueId v);
  Made emit(Step s, Level level, Lay lay, ValueKind kind);
  Made as_real(const Made& m);
  int operand_number(ValueId v) const;
  Made operand(int index, Lay lay, std::int64_t shift, const Type& type);
  Made segment(const Node& n);
  Made split(const Node& n);
  Made join(const Node& n);
  Made elementwise(const Node& n);
  Made lookup(const Node& n);
  Made constant(std::int32_t word, ValueKind kind);
  bool in_pieces(const Place& p) const;
  Made whole(const Made& m);
  Made filled(const Made& m, Lay lay, Level level);
  int repeats(const Made& m, Level user) const;
  /// The words of a scalar, row or column that was evaluated at once.
  const std::int32_t* words(const Made& m, std::int64_t& count) const;
  void store_value(int index, const Made& m, Lay lay, std::int64_t shift);

  const Program& p_;
  Extents e_;
  const Grid& grid_;
  bool at_once_;
  std::map<ValueId, int> given_;  ///< operand numbers
  std::vector<std::unique_ptr<Made>> made_;
  std::map<ValueId, Made> reals_;
  std::map<std::tuple<int, int, std::int64_t>, Made> operands_;
  std::map<std::pair<ValueId, int>, int> reduction_numbers_;
};

/// Where a place lies in a tile. `temporaries`, `columns` and `acc` are the tile's own memory.
struct Frame {
  const Arena* arena = nullptr;
  const Tile* tile = nullptr;
  char* const* columns = nullptr;
  char* const* temporaries = nullptr;
  Pointer acc;                  ///< rows of the first run of columns
  std::int64_t acc_second = 0;  ///< bytes from there to the second run's
};
Pointer resolve(const Place& p, const Frame& f);

/// Runs a value step (neither reduce nor store) at a row: pointers already moved there.
void execute(const Step& s, const Arena& arena, const Tile& tile, std::int64_t row, std::int64_t count, char* d,
             const char* x, const char* y, const char* z);

}  // namespace coda::cpu
