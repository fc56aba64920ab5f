// The page itself. Internal to src/cuda/emit*.
#pragma once
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

Emitted write_page(const Analysis&, const Config&, const Demand&, const Shape64&);

}  // namespace coda::emission
