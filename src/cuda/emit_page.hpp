// The page itself. Internal to src/cuda/emit*.
#pragma once
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/emit_program.hpp"

namespace coda::emission {

/// How the tile meets the instructions and the boxes of B.
struct Shape64 {
  int first_columns = 0;  ///< of the first wgmma; the second takes the rest of BN
  int group = 16;         ///< columns in registers at a time
  int b_box = 0;          ///< rows of a box of a K-major B
  int part_columns = 0;   ///< columns of one part of the tile
  int column_bytes = 0;   ///< shared memory of a warp's column results
};
Shape64 shape_of(const Config&, const Demand&);

/// Lays out a page's Params, whose fields stand in the order in which they are added, and records them in `e`.
class ParamsWriter {
 public:
  explicit ParamsWriter(Emitted& e) : e_(e) {}
  void add(Field::Kind kind, int slot, const char* type, const std::string& name, int size);
  /// What the page reads of each slot, fields of 8 bytes before those of 4.
  void add_slots(const std::vector<Slot>& slots, const std::set<std::pair<Field::Kind, int>>& fields);
  const std::string& text() const { return text_; }

 private:
  Emitted& e_;
  std::string text_ = "struct Params {\n";
  int at_ = 0;
};

/// The program's head comment, as one of CUDA.
std::string doc_comment(const Program&);

Emitted write_page(const Analysis&, const Config&, const Demand&, const Shape64&);

}  // namespace coda::emission
