// The CPU engine: a product by oneDNN for each tile, its epilogue over the tile while it is in cache, reductions put
// together, finish expressions.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>

#include "cpu/lower.hpp"
#include "cpu/memory.hpp"
#include "cpu/product.hpp"
#include "cpu/reductions.hpp"
#include "cpu/views.hpp"

namespace coda::cpu {
namespace {

std::int64_t padded(std::int64_t words) { return (words + 15) / 16 * 16; }

/// A thread's memory, kept between runs: allocating it anew would cost page faults with every call.
class Workspace {
 public:
  static float* of_this_thread(std::int64_t words) {
    thread_local HostTensor memory;
    if (memory.numel() < words) memory = HostTensor(DType::f32, {words});
    return memory.as<float>();
  }
};

/// Outputs of at least this size are stored past the caches: the stores then don't read the lines that they fill (16 MiB
/// of f32 in 1.1 instead of 3.6 ms on one core), and nothing this large would be found in L2 later.
constexpr std::int64_t streamed_bytes = 8 << 20;

/// A run of equal steps in a table's columns: what a gathered table row is copied by.
struct TableRun {
  std::int64_t at = 0, count = 0, column = -1;  ///< column -1: out of range
};

class Run {
 public:
  Run(const Program& p, Slots slots, const Extents& e)
      : p_(p), slots_(slots), e_(e), grid_(p, e), tile_code_(p, slots, e, grid_, false) {
    lower();
    for (const Reduction& r : tile_code_.reductions) partials_.emplace_back(r, grid_, e_, tile_code_.arena);
    lay_out_workspace();
  }

  void tiles(int threads) {
    std::atomic<std::int64_t> next{0};
    std::exception_ptr failure;
    std::mutex mutex;
    const int team = static_cast<int>(std::min<std::int64_t>(threads, grid_.size()));
    if (team == 0) return;
    // oneDNN runs on one thread inside each of ours. The setting is the parallel region's own and ends with it.
#pragma omp parallel num_threads(team)
    {
      omp_set_num_threads(1);
      try {
        for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < grid_.size();) tile(grid_.tile(i));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next.store(grid_.size(), std::memory_order_relaxed);
      }
    }
    if (failure) std::rethrow_exception(failure);
  }

  void finish() {
    Lowering code(p_, slots_, e_, grid_, true);
    for (const auto& [node, number] : reduction_of_) {
      code.complete(node, partials_[static_cast<std::size_t>(number)].result(p_.node(node).op == Op::softmax_sum ? 1 : 0));
    }
    for (std::size_t i = 0; i < p_.outputs.size(); ++i) {
      const Output& o = p_.outputs[i];
      if (!o.finish || !wanted(i)) continue;
      std::int64_t count = 0;
      const auto* x = reinterpret_cast<const float*>(code.finished(static_cast<int>(i), count));
      const Tensor& t = code.arena.output(static_cast<int>(i));
      std::vector<float> scratch(static_cast<std::size_t>(count));
      store_run(kernels(), t.dtype, t.data, t.rank == 0 ? 1 : t.stride[0], count, x, o.accumulate, scratch.data());
    }
  }

 private:
  bool wanted(std::size_t output) const {
    const Tensor& t = slots_[2 + p_.operands.size() + output];
    return t.data != nullptr && t.numel() > 0;
  }

  /// Marks the reductions that a finish value is made of.
  void find_reductions(ValueId v, std::vector<bool>& needed) const {
    // Arguments come before their users: one sweep down marks everything below v.
    std::vector<bool> below(p_.nodes.size());
    below[static_cast<std::size_t>(v)] = true;
    for (auto i = static_cast<std::size_t>(v) + 1; i-- > 0;) {
      if (!below[i]) continue;
      const Node& n = p_.nodes[i];
      const bool reduction = n.op >= Op::reduce_sum && n.op <= Op::pick && n.over.kind != Over::Kind::segment;
      if (reduction) {
        needed[i] = true;
        continue;
      }
      for (const ValueId a : n.args) {
        if (a != no_value) below[static_cast<std::size_t>(a)] = true;
      }
    }
  }

  void lower() {
    // Stores and reductions stand where their value becomes known, so that few strips are alive at once.
    std::vector<bool> reductions(p_.nodes.size());
    std::vector<std::vector<int>> stores(p_.nodes.size());
    for (std::size_t i = 0; i < p_.outputs.size(); ++i) {
      if (!wanted(i)) continue;
      const Output& o = p_.outputs[i];
      if (o.finish) find_reductions(o.value, reductions);
      else stores[static_cast<std::size_t>(o.value)].push_back(static_cast<int>(i));
    }
    for (std::size_t v = 0; v < p_.nodes.size(); ++v) {
      for (const int output : stores[v]) tile_code_.store(output);
      if (!reductions[v]) continue;
      const auto id = static_cast<ValueId>(v);
      reduction_of_[id] = tile_code_.reduce(id);
      if (p_.nodes[v].op == Op::pick) check_pick(id);
    }
    tile_code_.allocate();
    for (std::size_t i = 0; i < p_.outputs.size(); ++i) {
      const Tensor& t = slots_[2 + p_.operands.size() + i];
      stream_.push_back(t.numel() * static_cast<std::int64_t>(size_of(t.dtype)) >= streamed_bytes);
    }
  }

  /// Every index that pick is given, before anything is written.
  void check_pick(ValueId v) const {
    const Reduction& r = tile_code_.reductions[static_cast<std::size_t>(reduction_of_.at(v))];
    const std::vector<std::int32_t>& index = tile_code_.arena.rows[static_cast<std::size_t>(r.index_row)];
    const Node& source = p_.node(p_.node(v).args[1]);
    for (std::size_t i = 0; i < index.size(); ++i) {
      if ((index[i] >= 0 && index[i] < e_.n) || (r.ignored && index[i] == *r.ignored)) continue;
      const std::string name =
          source.op == Op::operand ? p_.operands[static_cast<std::size_t>(source.index)].name : "the index";
      throw Error(ErrorKind::value,
                  fmt::format("program {}: {} is {} in row {}, but pick takes an index from 0 to {}{}; correct the data",
                              p_.name, name, index[i], i, e_.n - 1,
                              r.ignored ? fmt::format(", or {} for a row to ignore", *r.ignored) : std::string()));
    }
  }

  void lay_out_workspace() {
    const auto take = [&](std::int64_t words) {
      const std::int64_t at = workspace_;
      workspace_ += padded(words);
      return at;
    };
    acc_at_ = take(grid_.capacity(Lay::full) * grid_.largest_rows());
    for (const Lay l : tile_code_.temporary_lays) temporaries_at_.push_back(take(grid_.capacity(l)));
    for (const Lay l : tile_code_.column_lays) columns_at_.push_back(take(grid_.capacity(l)));
    for (const Partials& r : partials_) reductions_at_.push_back(take(r.workspace()));
    scratch_at_ = take(scratch_words() + 16 * grid_.largest_rows());
    for (const Step& s : tile_code_.element_steps) {
      if (s.kind == Step::Kind::store && staged(s)) staging_at_.push_back(take(grid_.capacity(s.lay) * grid_.largest_rows()));
    }
  }

  /// Room for the old values of a run that is added to.
  std::int64_t scratch_words() const { return padded(std::max(grid_.capacity(Lay::twice), grid_.largest_rows())); }

  /// How an output moves with a row and with a column of the matrix, in elements.
  struct Strides {
    std::int64_t row, column;
  };
  Strides strides_of(int output) const {
    const Tensor& t = tile_code_.arena.output(output);
    const bool transposed = p_.outputs[static_cast<std::size_t>(output)].shape.transposed;
    return {t.stride[transposed ? 1 : 0], t.stride[transposed ? 0 : 1]};
  }
  /// Outputs whose columns are contiguous are turned round a tile at a time.
  bool staged(const Step& s) const {
    const Strides strides = strides_of(s.index);
    return strides.column != 1 && strides.row < strides.column;
  }

  // ---------------------------------------------------------------- one tile

  struct State {
    float* memory = nullptr;
    std::vector<char*> columns, temporaries;
    Frame frame;
    std::vector<std::array<Pointer, 4>> pointers;      ///< of each element step: d, x, y, z
    std::vector<std::vector<TableRun>> table_runs;     ///< of each element step
  };

  /// One product for each run of columns, each into a block of its own without gaps: oneDNN 2.6 has a faster kernel
  /// for such outputs (117 against 126 ms at 2048^3 f32 on one core, in tiles of 256 x 512).
  void product(const Tile& t, State& s) const {
    const Panel a = Panel::of(slots_[0]).slice_rows(t.m, t.rows);
    const Panel b = Panel::of(slots_[1]);
    const Columns& full = t.columns(Lay::full);
    float* c = s.memory + acc_at_;
    s.frame.acc = {reinterpret_cast<char*>(c), full.range[0].count * 4};
    s.frame.acc_second = full.ranges == 2 ? t.rows * full.range[0].count * 4 : 0;
    for (int r = 0; r < full.ranges; ++r) {
      const Range range = full.range[static_cast<std::size_t>(r)];
      Product::of_this_thread()(a, b.slice_rows(range.begin, range.count), c, range.count);
      c += t.rows * range.count;
    }
  }

  /// An element-wise loop whose arguments include all of acc, where that is two blocks.
  static void apply_pieces(const Step& step, const Frame& f, const std::array<Pointer, 4>& p, std::int64_t row,
                           std::int64_t count) {
    const Place* places[] = {&step.d, &step.x, &step.y, &step.z};
    const std::int64_t half = count / 2;
    for (int piece = 0; piece < 2; ++piece) {
      char* at[4];
      for (int i = 0; i < 4; ++i) {
        const bool repeated = i > 0 && ((step.repeat >> (i - 1)) & 1) != 0;
        const std::int64_t second = repeated ? 0 : places[i]->kind == Place::Kind::acc ? f.acc_second : 4 * half;
        at[i] = p[static_cast<std::size_t>(i)].at(row) + piece * second;
      }
      if (step.kind == Step::Kind::gather) std::memcpy(at[0], at[1], static_cast<std::size_t>(half) * 4);
      else step.fn(at[0], at[1], at[2], at[3], step.repeat, half);
    }
  }

  void tile(const Tile& t) {
    thread_local State s;
    s.memory = Workspace::of_this_thread(workspace_);
    const auto at = [&](std::int64_t words) { return reinterpret_cast<char*>(s.memory + words); };
    s.columns.clear();
    s.temporaries.clear();
    for (const std::int64_t w : columns_at_) s.columns.push_back(at(w));
    for (const std::int64_t w : temporaries_at_) s.temporaries.push_back(at(w));
    s.frame = {&tile_code_.arena, &t, s.columns.data(), s.temporaries.data(), {}, 0};
    product(t, s);

    const auto pointers = [&](const Step& step) {
      return std::array<Pointer, 4>{resolve(step.d, s.frame), resolve(step.x, s.frame), resolve(step.y, s.frame),
                                    resolve(step.z, s.frame)};
    };
    for (const Step& step : tile_code_.column_steps) {
      const auto p = pointers(step);
      execute(step, tile_code_.arena, t, 0, t.columns(step.lay).count, p[0].base, p[1].base, p[2].base, p[3].base);
    }
    const std::vector<Step>& steps = tile_code_.element_steps;
    s.pointers.clear();
    s.table_runs.assign(steps.size(), {});
    for (std::size_t i = 0; i < steps.size(); ++i) {
      s.pointers.push_back(pointers(steps[i]));
      if (steps[i].kind == Step::Kind::lookup) find_table_runs(steps[i], t, s.pointers[i], s.table_runs[i]);
    }
    for (std::size_t r = 0; r < partials_.size(); ++r) partials_[r].begin(t, s.memory + reductions_at_[r]);
    for (std::int64_t row = 0; row < t.rows; ++row) {
      std::size_t staging = 0;
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const Step& step = steps[i];
        const auto& p = s.pointers[i];
        const std::int64_t count = t.columns(step.lay).count;
        char* x = p[1].at(row);
        switch (step.kind) {
          case Step::Kind::apply:
            if (step.pieces) apply_pieces(step, s.frame, p, row, count);
            else step.fn(p[0].at(row), x, p[2].at(row), p[3].at(row), step.repeat, count);
            break;
          case Step::Kind::gather: apply_pieces(step, s.frame, p, row, count); break;
          case Step::Kind::reduce: {
            const auto r = static_cast<std::size_t>(step.index);
            partials_[r].take(t, row, reinterpret_cast<const float*>(x), s.memory + reductions_at_[r]);
            break;
          }
          case Step::Kind::store:
            if (staged(step)) {
              float* to = s.memory + staging_at_[staging++] + row * count;
              std::memcpy(to, x, static_cast<std::size_t>(count) * 4);
            } else {
              store_row(step, t, row, reinterpret_cast<const float*>(x), s.memory + scratch_at_);
            }
            break;
          case Step::Kind::lookup:
            if (!s.table_runs[i].empty()) {
              copy_table_runs(step, s.table_runs[i], x, p[0].at(row));
              break;
            }
            [[fallthrough]];
          default: execute(step, tile_code_.arena, t, row, count, p[0].at(row), x, p[2].at(row), p[3].at(row));
        }
      }
    }
    kernels().end_stream();
    for (std::size_t r = 0; r < partials_.size(); ++r) partials_[r].end(t, s.memory + reductions_at_[r]);
    std::size_t staging = 0;
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::store && staged(step)) {
        store_turned(step, t, s.memory + staging_at_[staging++], s.memory + scratch_at_);
      }
    }
  }

  template <class F>
  void over_ranges(const Step& s, const Tile& t, F&& run) const {
    const Columns& columns = t.columns(s.lay);
    std::int64_t at = 0;
    for (int r = 0; r < columns.ranges; ++r) {
      const Range range = columns.range[static_cast<std::size_t>(r)];
      run(at, range.begin + s.shift, range.count);
      at += range.count;
    }
  }

  void store_row(const Step& s, const Tile& t, std::int64_t row, const float* x, float* scratch) const {
    const Tensor& out = tile_code_.arena.output(s.index);
    const Strides strides = strides_of(s.index);
    const bool add = p_.outputs[static_cast<std::size_t>(s.index)].accumulate;
    over_ranges(s, t, [&](std::int64_t at, std::int64_t column, std::int64_t count) {
      char* to = advance(out.data, (t.m + row) * strides.row + column * strides.column, out.dtype);
      store_run(kernels(), out.dtype, to, strides.column, count, x + at, add, scratch, stream_[static_cast<std::size_t>(s.index)]);
    });
  }

  /// Stores a staged tile column by column, sixteen at a time so that each line of the tile is read once.
  void store_turned(const Step& s, const Tile& t, const float* staged, float* scratch) const {
    const Tensor& out = tile_code_.arena.output(s.index);
    const Strides strides = strides_of(s.index);
    const bool add = p_.outputs[static_cast<std::size_t>(s.index)].accumulate;
    const std::int64_t width = t.columns(s.lay).count;
    float* turned = scratch + scratch_words();
    over_ranges(s, t, [&](std::int64_t at, std::int64_t column, std::int64_t count) {
      for (std::int64_t j = 0; j < count; j += 16) {
        const std::int64_t block = std::min<std::int64_t>(16, count - j);
        for (std::int64_t i = 0; i < t.rows; ++i) {
          for (std::int64_t b = 0; b < block; ++b) turned[b * t.rows + i] = staged[i * width + at + j + b];
        }
        for (std::int64_t b = 0; b < block; ++b) {
          char* to = advance(out.data, t.m * strides.row + (column + j + b) * strides.column, out.dtype);
          store_run(kernels(), out.dtype, to, strides.row, t.rows, turned + b * t.rows, add, scratch);
        }
      }
    });
  }

  // ---------------------------------------------------------------- tables

  /// A lookup with one table row for each matrix row, at columns that the tile knows: which runs it copies.
  void find_table_runs(const Step& s, const Tile& t, const std::array<Pointer, 4>& p, std::vector<TableRun>& runs) const {
    const Tensor& table = tile_code_.arena.operand(s.index);
    const bool known = s.y.kind == Place::Kind::column || (s.y.kind == Place::Kind::operand && p[2].step == 0);
    if (table.rank != 2 || s.repeat != 1 || !known || table.stride[1] != 1 || is_integer(table.dtype)) return;
    const auto* column = reinterpret_cast<const std::int32_t*>(p[2].base);
    const std::int64_t count = t.columns(s.lay).count;
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
    if (static_cast<std::int64_t>(runs.size()) * 8 > count) runs.clear();  // short runs: element by element
  }

  void copy_table_runs(const Step& s, const std::vector<TableRun>& runs, const char* row, char* d) const {
    const Tensor& table = tile_code_.arena.operand(s.index);
    std::int32_t index;
    std::memcpy(&index, row, 4);
    const bool inside = index >= 0 && index < table.shape[0];
    const auto load = kernels().load[static_cast<std::size_t>(table.dtype)];
    auto* to = reinterpret_cast<float*>(d);
    for (const TableRun& r : runs) {
      if (inside && r.column >= 0) load(to + r.at, advance(table.data, index * table.stride[0] + r.column, table.dtype), r.count);
      else std::fill_n(to + r.at, r.count, std::numeric_limits<float>::quiet_NaN());
    }
  }

  const Program& p_;
  Slots slots_;
  Extents e_;
  Grid grid_;
  Lowering tile_code_;
  std::map<ValueId, int> reduction_of_;
  std::vector<Partials> partials_;
  std::int64_t workspace_ = 0, acc_at_ = 0, scratch_at_ = 0;
  std::vector<bool> stream_;  ///< by output: past the caches
  std::vector<std::int64_t> temporaries_at_, columns_at_, reductions_at_, staging_at_;
};

}  // namespace

void run(const Program& p, Slots slots, const Options& options) {
  const Extents e = check_arguments(p, slots);
  check_views(p, slots);
  Run run(p, slots, e);
  run.tiles(options.threads > 0 ? options.threads : omp_get_max_threads());
  run.finish();
}

}  // namespace coda::cpu
