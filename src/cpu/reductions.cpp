// Partial results of tiles, and their combination.
#include "cpu/reductions.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/columns.hpp"

namespace coda::cpu {
namespace {

constexpr float lowest = -std::numeric_limits<float>::infinity();

double maximum(double a, double b) { return b > a || b != b ? b : a; }

std::int64_t columns_of_lay(Lay l, std::int64_t n) {
  switch (l) {
    case Lay::half:
    case Lay::half_split: return n / 2;
    case Lay::twice:
    case Lay::twice_split: return 2 * n;
    default: return n;
  }
}

/// run(place in the strip, columns) for each run of a strip's columns.
template <class F>
void over_ranges(const Columns& columns, F&& run) {
  std::int64_t at = 0;
  for (int i = 0; i < columns.ranges; ++i) {
    const Range& range = columns.range[static_cast<std::size_t>(i)];
    run(at, range);
    at += range.count;
  }
}

}  // namespace

Partials::Partials(const Reduction& r, const Grid& grid, const Extents& e, const Kernels& kernels)
    : r_(r),
      k_(kernels),
      e_(e),
      width_(columns_of_lay(r.lay, e.n)),
      capacity_(grid.capacity(r.lay)),
      grid_columns_(grid.columns()) {
  switch (r.over) {
    case Over::Kind::n:
      parts_ = r.op == Op::pick ? 1 : grid.columns();
      first_.resize(static_cast<std::size_t>(parts_ * e.m));
      if (softmax()) second_.resize(first_.size());
      break;
    case Over::Kind::m:
      parts_ = r.op == Op::pick ? 1 : grid.rows();
      first_.resize(static_cast<std::size_t>(parts_ * width_));
      if (r.op == Op::reduce_sum || softmax()) second_.resize(first_.size());
      break;
    default:
      parts_ = grid.size();
      totals_.resize(static_cast<std::size_t>(parts_));
      break;
  }
}

std::int64_t Partials::workspace() const { return r_.over == Over::Kind::m ? 2 * capacity_ : 2; }

void Partials::begin(const Tile& t, float* own) const {
  if (r_.over == Over::Kind::m) {
    const std::int64_t n = t.columns(r_.lay).count;
    std::fill_n(own, n, r_.op == Op::reduce_max || softmax() ? lowest : 0.0f);
    std::fill_n(own + capacity_, n, 0.0f);
  } else if (r_.over == Over::Kind::mn) {
    const double start = r_.op == Op::reduce_sum ? 0 : -std::numeric_limits<double>::infinity();
    std::memcpy(own, &start, sizeof start);
  }
}

void Partials::take(const Tile& t, std::int64_t row, const float* x, float* own) {
  const Columns& columns = t.columns(r_.lay);
  const std::int64_t n = columns.count;
  switch (r_.over) {
    case Over::Kind::n: {
      if (r_.op == Op::pick) {
        const std::int64_t target = r_.indices[static_cast<std::size_t>(t.m + row)];
        if (r_.ignored && target == *r_.ignored) return;
        over_ranges(columns, [&](std::int64_t at, const Range& range) {
          if (target >= range.begin && target < range.begin + range.count) {
            first_[static_cast<std::size_t>(t.m + row)] = x[at + target - range.begin];
          }
        });
        return;
      }
      const std::size_t slot = row_slot(t, row);
      first_[slot] = r_.op == Op::reduce_sum ? k_.sum(x, n) : k_.max(x, n);
      if (softmax()) second_[slot] = first_[slot] == lowest ? 0 : k_.sum_exp(x, first_[slot], n);
      return;
    }
    case Over::Kind::m:
      if (r_.op == Op::reduce_sum)
        k_.sum_to(own, own + capacity_, x, n);
      else if (r_.op == Op::reduce_max)
        k_.max_to(own, x, n);
      else if (softmax())
        k_.softmax_to(own, own + capacity_, x, n);
      else
        over_ranges(columns, [&](std::int64_t at, const Range& range) {
          k_.pick_to(own + at, x + at, r_.indices.data() + range.begin, static_cast<std::int32_t>(t.m + row),
                     range.count);
        });
      return;
    default: {
      double total;
      std::memcpy(&total, own, sizeof total);
      total = r_.op == Op::reduce_sum ? total + k_.sum(x, n) : maximum(total, k_.max(x, n));
      std::memcpy(own, &total, sizeof total);
      return;
    }
  }
}

void Partials::end(const Tile& t, const float* own) {
  if (r_.over == Over::Kind::m) {
    over_ranges(t.columns(r_.lay), [&](std::int64_t at, const Range& range) {
      if (r_.op == Op::pick) return keep_picks(t, range, own + at);
      const auto to = static_cast<std::size_t>(t.row_index * width_ + range.begin);
      std::copy_n(own + at, range.count, first_.data() + to);
      if (!second_.empty()) std::copy_n(own + capacity_ + at, range.count, second_.data() + to);
    });
  } else if (r_.over == Over::Kind::mn) {
    std::memcpy(&totals_[static_cast<std::size_t>(t.row_index * grid_columns_ + t.column_index)], own, sizeof(double));
  }
}

/// Columns whose picked row lies in the tile; no other tile writes these.
void Partials::keep_picks(const Tile& t, const Range& columns, const float* own) {
  for (std::int64_t j = 0; j < columns.count; ++j) {
    const auto column = static_cast<std::size_t>(columns.begin + j);
    const std::int64_t row = r_.indices[column] - t.m;
    if (row >= 0 && row < t.rows && r_.indices[column] != r_.ignored) first_[column] = own[j];
  }
}

std::vector<std::int32_t> Partials::result(int member) const {
  const std::int64_t elements = r_.over == Over::Kind::n ? e_.m : r_.over == Over::Kind::m ? width_ : 1;
  std::vector<std::int32_t> words(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) {
    const auto part = [&](const std::vector<float>& v, std::int64_t p) -> double {
      return v[static_cast<std::size_t>(p * elements + i)];
    };
    double value = r_.op == Op::reduce_sum ? 0 : -std::numeric_limits<double>::infinity();
    if (r_.op == Op::pick) {
      value = part(first_, 0);
    } else if (r_.over == Over::Kind::mn) {
      for (const double t : totals_) value = r_.op == Op::reduce_sum ? value + t : maximum(value, t);
    } else if (r_.op == Op::reduce_sum) {
      for (std::int64_t p = 0; p < parts_; ++p) {
        value += part(first_, p);
        if (!second_.empty()) value -= part(second_, p);
      }
    } else {
      for (std::int64_t p = 0; p < parts_; ++p) value = maximum(value, part(first_, p));
      if (softmax() && member == 1) {
        const double largest = value;
        value = 0;
        for (std::int64_t p = 0; p < parts_; ++p) {
          // A part with nothing above -inf adds nothing; without the test it would add exp(-inf - -inf).
          if (part(first_, p) != -std::numeric_limits<double>::infinity()) {
            value += part(second_, p) * std::exp(part(first_, p) - largest);
          }
        }
      }
    }
    words[static_cast<std::size_t>(i)] = std::bit_cast<std::int32_t>(static_cast<float>(value));
  }
  return words;
}

}  // namespace coda::cpu
