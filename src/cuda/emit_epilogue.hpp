// The Epilogue struct of a page: a program's mathematics, and what it moves. Internal to src/cuda/emit*.
#pragma once
#include <string>
#include <vector>

#include "cuda/emit_page.hpp"
#include "cuda/emit_values.hpp"

namespace coda::emission {

/// Where a box starts in its slot; slices of column vectors have slots of their own.
struct Placed { const Box* box; int offset; };
std::vector<Placed> place(const std::vector<Box>& boxes, int rows, int chunk);

/// "base + offset", or "base".
std::string address(const char* base, int offset);

class EpilogueWriter {
 public:
  EpilogueWriter(Page& page, const Config& c, const Shape64& s);
  /// The struct's text. Fills page.fields, page.ops and what is hoisted.
  std::string write();
  /// Methods of Params: where partial results of each reduction start.
  std::string partials_methods() const;

  int row_floats() const { return floats(Over::Kind::n, false); }
  int row_picks() const { return floats(Over::Kind::n, true); }
  int column_floats() const { return floats(Over::Kind::m, false); }
  int column_picks() const { return floats(Over::Kind::m, true); }
  int total_floats() const { return floats(Over::Kind::mn, false); }

 private:
  bool has(Over::Kind over) const;
  /// Reductions over m that pass through shared memory and the blocks of rows; the others are picks.
  bool folds_columns(const Reduction& r) const { return r.over.kind == Over::Kind::m && r.kind != Reduction::Kind::pick; }
  int floats(Over::Kind over, bool picks) const;
  /// Suffixes of a reduction's arrays of columns, one for each region of a warp's column results.
  std::vector<std::string> column_arrays(const Reduction&) const;
  int column_extent(const Reduction&) const;  ///< columns of a region
  std::string row_half() const { return a_.unit == Unit::adjacent ? "i % 2" : "i / 2 % 2"; }

  std::string group();
  std::string segments();
  std::string begin_rows();
  std::string put_rows() const;
  std::string finish_rows();
  std::string put_columns();
  std::string finish_columns();
  std::string totals();
  std::string moves() const;

  void stores(Writer& w);
  void reduce(Writer& w, const Reduction& r);
  std::vector<ValueId> terms_of(const Reduction& r) const;
  void know_results(Writer& w, const Reduction& r, int instance, const std::string& name);
  void finish(Writer& w, Width width, bool rows, int instance, const std::string& index);
  Pairing twice_output_pairing() const;
  std::string loop(const Writer& w, const Writer& columns, int indent) const;

  Page& page_;
  const Analysis& a_;
  const Program& p_;
  const Config& c_;
  const Shape64& s_;
  std::vector<Placed> stores_, loads_;
  bool zeroed_ = false;                      ///< a sum relies on zeros outside the matrix
  std::vector<std::string> arrays_, after_;  ///< of the group: declarations, and what follows its loop
};

}  // namespace coda::emission
