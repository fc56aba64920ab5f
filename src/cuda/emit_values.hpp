// Values of a program as CUDA expressions. Internal to src/cuda/emit*.
#pragma once
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/emit_ops.hpp"
#include "cuda/emit_program.hpp"

namespace coda::emission {

/// A value that is computed once a kernel (scalars) or once a row, and kept in a member of the page's Epilogue.
struct Hoisted {
  ValueId value = no_value;
  int table = -1;      ///< >= 0: not the value itself but the row of this operand (a table) that it points to
  std::string member;
  bool operator==(const Hoisted& o) const { return value == o.value && table == o.table; }
};

/// The name in Params of what a page reads of a slot.
std::string field_name(const std::vector<Slot>&, Field::Kind, int slot);

/// What the parts of one page share.
struct Page {
  explicit Page(const Analysis& a) : analysis(a) {}
  const Analysis& analysis;
  std::vector<Hoisted> scalars, rows;
  std::set<Op> ops;                             ///< ops that the page has to define as functions
  std::set<std::pair<Field::Kind, int>> fields; ///< of Params, by kind and slot
  std::set<std::string> members;                ///< names taken in Epilogue and its Row

  /// "p.rstd", "p.rstd_stride0": registers the field.
  std::string field(Field::Kind kind, int slot);
  std::string scalar(ValueId v);                ///< the member that holds it
  std::string row(ValueId v, int table = -1);
  std::string definitions() const { return definitions_of(ops); }
};

/// Writes the statements of one scope. What surrounds it: nothing (scalar), a row (in begin_rows: `r` is being filled; in
/// finish_rows: `m`), one unit of a tile (element), the columns of a group alone (columns), or a column (in
/// finish_columns: `n`, `q`).
class Writer {
 public:
  enum class Level : std::uint8_t { scalar, row, element, columns, column };

  Writer(Page& page, Level level, std::string row_index = "r.m");

  /// What depends on the column alone goes to this writer, of level columns, and is read from arrays.
  void hoist_columns_to(Writer* columns) {
    columns_ = columns;
    guards_ = guards_of(a_);
  }
  /// Declarations of arrays that must stand before the loop.
  const std::vector<std::string>& arrays() const { return arrays_; }

  /// The value's instance, as an expression. Writes the statements it needs.
  std::string value(ValueId v, int instance = 0);
  /// ... as a real number.
  std::string real(ValueId v, int instance = 0);
  /// ... as the expression that defines it, even where it would be given a name.
  std::string definition(ValueId v, int instance = 0);
  void line(std::string s) { lines_.push_back(std::move(s)); }
  /// `v` is known here by this expression.
  void know(ValueId v, int instance, std::string expression) { memo_[{v, instance}] = std::move(expression); }
  const std::vector<std::string>& lines() const { return lines_; }

  /// Names of a unit's column (member k), its pair, whether it lies in the matrix, its row's half and its column's place
  /// in register arrays of columns. Using one puts it into the prologue.
  std::string column(int member);
  std::string pair();
  std::string inside();
  /// Of an element: the matrix's columns (or pairs) from this thread's first on.
  std::string columns_left();
  /// Declarations of those used.
  std::vector<std::string> prologue() const;
  /// Declares `left`, which `ok` is told by; or nothing.
  std::string remaining() const;

  /// Column in the tensor of an instance at half or twice width.
  std::string half_column() { return pair(); }
  std::string twice_column(const Pairing& q, int instance);
  /// Reference to an instance in a register array of elements, or of columns.
  std::string element(const std::string& array, Width w, int instance) const;
  std::string column_element(const std::string& array, Width w, int instance) const;
  /// Address arithmetic of an instance of a tensor that goes direct.
  std::string offset(int slot, const Shape& shape, int instance, const Pairing& twice);

  bool force_direct = false;  ///< tile operands from global memory, whatever their slot: the ring is read once, later

 private:
  std::string leaf_operand(const Node& n, ValueId v, int instance);
  std::string lookup(const Node& n, ValueId v, int instance);
  std::string wanted(ValueId condition);
  std::string elementwise(const Node& n, int instance);
  std::string promoted(ValueId v, int instance, bool to_real);
  std::string hoist_column(ValueId v, int instance);
  std::string declare(ValueId v, int instance, const std::string& expression);
  std::string unique(std::string name);

  Page& page_;
  const Analysis& a_;
  Level level_;
  std::string row_index_;
  std::map<std::pair<ValueId, int>, std::string> memo_;
  Writer* columns_ = nullptr;
  ValueId defining_ = no_value;
  std::vector<std::string> arrays_;
  std::map<std::pair<ValueId, int>, std::string> hoisted_;
  std::map<ValueId, std::string> wanted_;  // names by condition
  std::vector<ValueId> guards_;            // see guards_of; filled where columns are hoisted
  std::vector<std::string> lines_;
  std::set<std::string> taken_;
  bool uses_column_[2] = {false, false}, uses_pair_ = false, uses_inside_ = false, uses_left_ = false;
};

/// "sum0[(local + 8 * (i / 4)) / 64][i / 2 % 2]": the result of the segment that a unit's member is in, and how many there
/// are in a tile.
std::string segment_element(const Analysis&, const Reduction&, int instance);
int segment_count(const Analysis&, const Reduction&, int part_columns);

}  // namespace coda::emission
