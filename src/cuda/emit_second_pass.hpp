// The page of a second pass (emit_two_pass.hpp). An output is pulled: a value is written where its column needs it, at a
// *place*: the loop's own column, a member of a pair, or the pair of a column. Internal to src/cuda/emit*.
#pragma once
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/emit_program.hpp"
#include "cuda/emit_two_pass.hpp"
#include "cuda/emit_values.hpp"

namespace coda::emission {

/// Columns at a width, and half of them, as the page says it; and the name of an index there.
const char* extent_of(Width);
const char* half_extent_of(Width);
const char* index_of(Width);

/// A column that values are evaluated in: the loop's own, a member of a pair, or the pair of a column.
struct Place {
  std::string at;           ///< its index, at its width
  Width width = Width::full;
  int from = -1;            ///< the place it was found from ...
  int member = -1;          ///< ... as this member of the pair there, or, -1, as the pair of the column there
  Pairing pairing;
  std::string second;       ///< of a pair: whether the column is its second member
};

/// Statements that stand together, and what they have worked out. Values that don't depend on the column, or on the row,
/// are worked out outside.
struct Body {
  Body* scalars = nullptr;
  Body* totals = nullptr;   ///< scalars that need reductions over the matrix
  Body* row = nullptr;
  std::vector<std::string> lines;
  std::vector<Place> places;
  std::map<std::pair<ValueId, int>, std::string> known;
};

/// Writes one page.
class SecondPassWriter {
 public:
  explicit SecondPassWriter(const Program& p);
  /// The page, its launch and its scratch.
  void write(TwoPass& out);

 private:
  void count(ValueId v);
  void find_reductions();
  void find_scratch(TwoPass& out) const;

  /// A loop over the columns at a width, or (none) what is outside of one.
  Body body(Width w, Body* scalars, Body* totals, Body* row) const;
  std::string unique(const std::string& name);
  int member(Body& b, int place, const Pairing& q, int m);
  int pair(Body& b, int place, const Pairing& q);
  std::string field(Field::Kind kind, int slot) {
    fields_.insert({kind, slot});
    return "p." + field_name(slots_, kind, slot);
  }
  std::string offset(int slot, const Shape& shape, const std::string& column);

  std::string value(Body& b, ValueId v, int place);
  std::string real(Body& b, ValueId v, int place) { return promoted(b, v, place, true); }
  std::string promoted(Body& b, ValueId v, int place, bool to_real);
  std::string declared(Body& b, ValueId v, int place, const std::string& expression);
  std::string hoisted(Body& b, ValueId v);
  std::string operand(const Node& n, const std::string& column);
  std::string lookup(Body& b, const Node& n, int place);
  std::string join(Body& b, const Node& n, int place);

  std::string segments(Body& row);
  std::string columns(Body& row, Width w);
  std::string pick(Body& row, const Reduction& r, const std::string& index, const std::string& first, const std::string& extent);
  std::string picks(Body& row);
  std::string pick_of_segment(Body& row, const Reduction& r);
  std::string results_of_row() const;
  std::string complete(Body& scalars);
  void finish(Body& b, Width w, bool rows, const std::string& index);
  void know(Body& b, const Reduction& r, int place);

  bool finishes(Width w, bool rows) const {
    return std::any_of(p_.outputs.begin(), p_.outputs.end(), [&](const Output& o) {
      const Type& t = p_.node(o.value).type;
      return o.finish && t.width == w && t.rows == rows;
    });
  }

  const Program& p_;
  std::vector<Slot> slots_;
  std::vector<std::string> names_;
  std::vector<int> uses_;
  std::vector<Reduction> reductions_;
  std::map<ValueId, int> reduction_of_;
  std::set<std::pair<Field::Kind, int>> fields_;
  std::set<Op> ops_;
  std::set<std::string> taken_;  ///< names of the page: an inner one would hide an outer one
};

}  // namespace coda::emission
