// Table rows copied by runs of columns.
#include "cpu/table_runs.hpp"

#include <algorithm>
#include <limits>

#include "cpu/memory.hpp"

namespace coda::cpu {

std::vector<TableRun> find_table_runs(const Step& s, const Tensor& table, const Pointer& columns, std::int64_t count) {
  std::vector<TableRun> runs;
  const bool known = s.y.kind == Place::Kind::column || (s.y.kind == Place::Kind::operand && columns.step == 0);
  if (table.rank != 2 || s.repeat != 1 || !known || table.stride[1] != 1 || is_integer(table.dtype)) return runs;
  const auto* column = reinterpret_cast<const std::int32_t*>(columns.base);
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t c = column[j] >= 0 && column[j] < table.shape[1] ? column[j] : -1;
    if (!runs.empty()) {
      TableRun& r = runs.back();
      if (r.column < 0 ? c < 0 : c == r.column + r.count) {
        ++r.count;
        continue;
      }
    }
    runs.push_back({j, 1, c});
  }
  if (static_cast<std::int64_t>(runs.size()) * 8 > count) runs.clear();
  return runs;
}

void copy_table_runs(const Tensor& table, const std::vector<TableRun>& runs, std::int32_t index, float* d) {
  const bool inside = index >= 0 && index < table.shape[0];
  const auto load = kernels().load[static_cast<std::size_t>(table.dtype)];
  for (const TableRun& r : runs) {
    if (inside && r.column >= 0)
      load(d + r.at, advance(table.data, index * table.stride[0] + r.column, table.dtype), r.count);
    else
      std::fill_n(d + r.at, r.count, std::numeric_limits<float>::quiet_NaN());
  }
}

}  // namespace coda::cpu
