// Table lookups with one table row for each matrix row: rows copied by runs of columns instead of element by element.
#pragma once
#include <vector>

#include "cpu/lower.hpp"

namespace coda::cpu {

/// Columns that follow each other in a strip and in the table.
struct TableRun {
  std::int64_t at = 0, count = 0, column = -1;  ///< column -1: out of range
};

/// The runs of a lookup step in a tile, whose column indices lie at `columns`; none where the lookup isn't of that
/// form or its runs are short.
std::vector<TableRun> find_table_runs(const Step& s, const Tensor& table, const Pointer& columns, std::int64_t count);

/// One row: the table's row `index` to the strip d.
void copy_table_runs(const Tensor& table, const std::vector<TableRun>& runs, std::int32_t index, float* d);

}  // namespace coda::cpu
