// One sweep over the tiles of a program.
#include "cpu/sweep.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>

#include "cpu/memory.hpp"
#include "cpu/product.hpp"

namespace coda::cpu {
namespace {

/// Outputs of at least this size are stored past the caches: the stores then don't read the lines that they fill (16
/// MiB of f32 in 1.1 instead of 3.6 ms on one core), and nothing this large would be found in L2 later.
constexpr std::int64_t streamed_bytes = 8 << 20;

std::int64_t padded(std::int64_t words) { return (words + 15) / 16 * 16; }

/// A thread's memory, kept between runs: allocating it anew would cost page faults with every call.
float* workspace_of_this_thread(std::int64_t words) {
  thread_local HostTensor memory;
  if (memory.numel() < words) memory = HostTensor(DType::f32, {words});
  return memory.as<float>();
}

/// An element-wise loop whose arguments include all of acc, where that is two blocks.
void apply_pieces(const Step& step, const Frame& f, const std::array<Pointer, 4>& p, std::int64_t row,
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
    if (step.kind == Step::Kind::gather)
      std::memcpy(at[0], at[1], static_cast<std::size_t>(half) * 4);
    else
      step.fn(at[0], at[1], at[2], at[3], step.repeat, half);
  }
}

}  // namespace

Target Target::of(const Tensor& view, bool transposed, bool add) {
  return {view, view.stride[transposed ? 1 : 0], view.stride[transposed ? 0 : 1], add,
          view.numel() * static_cast<std::int64_t>(size_of(view.dtype)) >= streamed_bytes};
}

/// What a thread knows of the tile that it is at.
struct Sweep::State {
  float* memory = nullptr;
  std::vector<char*> columns, temporaries;
  Frame frame;
  std::vector<std::array<Pointer, 4>> pointers;   ///< of each element step: d, x, y, z
  std::vector<std::vector<TableRun>> table_runs;  ///< of each element step
};

Sweep::Sweep(const Program& p, Slots slots, const Extents& e, Work work)
    : p_(p),
      slots_(slots),
      e_(e),
      work_(std::move(work)),
      grid_(p, e, work_.whole_rows),
      code_(p, slots, e, grid_, false) {
  for (const auto& [value, matrix] : work_.given) code_.give(value, matrix);
  // Stores and reductions stand where their value becomes known, so that few strips are alive at once.
  for (ValueId v = 0; v < static_cast<ValueId>(p.nodes.size()); ++v) {
    for (std::size_t i = 0; i < work_.stores.size(); ++i) {
      if (work_.stores[i].value == v) code_.store(static_cast<int>(i), v, work_.stores[i].width);
    }
    if (std::find(work_.reductions.begin(), work_.reductions.end(), v) == work_.reductions.end()) continue;
    reduction_of_[v] = code_.reduce(v);
    if (p.node(v).op == Op::pick) check_pick(v);
  }
  code_.allocate();
  for (const Reduction& r : code_.reductions) partials_.emplace_back(r, grid_, e, *code_.arena.kernels);
  lay_out_workspace();
}

/// Every index that pick is given, before anything is written.
void Sweep::check_pick(ValueId v) const {
  const Reduction& r = code_.reductions[static_cast<std::size_t>(reduction_of_.at(v))];
  const bool over_n = r.over == Over::Kind::n;
  const std::int64_t extent = over_n ? e_.n : e_.m;
  const Node& source = p_.node(p_.node(v).args[1]);
  for (std::size_t i = 0; i < r.indices.size(); ++i) {
    const std::int32_t index = r.indices[i];
    if ((index >= 0 && index < extent) || (r.ignored && index == *r.ignored)) continue;
    const std::string name =
        source.op == Op::operand ? p_.operands[static_cast<std::size_t>(source.index)].name : "the index";
    const std::string_view line = over_n ? "row" : "column";
    throw Error(ErrorKind::value,
                fmt::format("program {}: {} is {} in {} {}, but pick takes an index from 0 to {}{}; correct the data",
                            p_.name, name, index, line, i, extent - 1,
                            r.ignored ? fmt::format(", or {} for a {} to ignore", *r.ignored, line) : std::string()));
  }
}

void Sweep::lay_out_workspace() {
  const auto take = [&](std::int64_t words) {
    const std::int64_t at = workspace_;
    workspace_ += padded(words);
    return at;
  };
  acc_at_ = take(grid_.capacity(Lay::full) * grid_.largest_rows());
  for (const Lay l : code_.temporary_lays) temporaries_at_.push_back(take(grid_.capacity(l)));
  for (const Lay l : code_.column_lays) columns_at_.push_back(take(grid_.capacity(l)));
  for (const Partials& r : partials_) reductions_at_.push_back(take(r.workspace()));
  scratch_at_ = take(scratch_words() + 16 * grid_.largest_rows());
  for (const Step& s : code_.element_steps) {
    if (s.kind == Step::Kind::store && staged(s))
      staging_at_.push_back(take(grid_.capacity(s.lay) * grid_.largest_rows()));
  }
}

/// Room for the old values of a run that is added to.
std::int64_t Sweep::scratch_words() const { return padded(std::max(grid_.capacity(Lay::twice), grid_.largest_rows())); }

/// Stores whose columns aren't contiguous are turned round a tile at a time.
bool Sweep::staged(const Step& s) const {
  const Target& t = work_.stores[static_cast<std::size_t>(s.index)].target;
  return t.column != 1 && t.row < t.column;
}

void Sweep::run(int threads) {
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

void Sweep::collect(Results& results) const {
  for (const auto& [node, number] : reduction_of_) {
    results[node] = partials_[static_cast<std::size_t>(number)].result(p_.node(node).op == Op::softmax_sum ? 1 : 0);
  }
}

/// One product for each run of columns, each into a block of its own without gaps: oneDNN 2.6 has a faster kernel
/// for such outputs (117 against 126 ms at 2048^3 f32 on one core, in tiles of 256 x 512).
void Sweep::product(const Tile& t, State& s) const {
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

void Sweep::tile(const Tile& t) {
  thread_local State s;
  s.memory = workspace_of_this_thread(workspace_);
  const auto at = [&](std::int64_t words) { return reinterpret_cast<char*>(s.memory + words); };
  s.columns.clear();
  s.temporaries.clear();
  for (const std::int64_t w : columns_at_) s.columns.push_back(at(w));
  for (const std::int64_t w : temporaries_at_) s.temporaries.push_back(at(w));
  s.frame = {&code_.arena, &t, s.columns.data(), s.temporaries.data(), {}, 0};
  if (code_.uses_product) product(t, s);

  for (const Step& step : code_.column_steps) {
    execute(step, code_.arena, t, 0, t.columns(step.lay).count, resolve(step.d, s.frame).base,
            resolve(step.x, s.frame).base, resolve(step.y, s.frame).base, resolve(step.z, s.frame).base);
  }
  rows(t, s);
}

/// The steps over elements, a row at a time, and what follows the last row.
void Sweep::rows(const Tile& t, State& s) {
  const auto pointers = [&](const Step& step) {
    return std::array<Pointer, 4>{resolve(step.d, s.frame), resolve(step.x, s.frame), resolve(step.y, s.frame),
                                  resolve(step.z, s.frame)};
  };
  const std::vector<Step>& steps = code_.element_steps;
  s.pointers.clear();
  s.table_runs.assign(steps.size(), {});
  for (std::size_t i = 0; i < steps.size(); ++i) {
    s.pointers.push_back(pointers(steps[i]));
    if (steps[i].kind == Step::Kind::lookup) {
      s.table_runs[i] = find_table_runs(steps[i], code_.arena.operand(steps[i].index), s.pointers[i][2],
                                        t.columns(steps[i].lay).count);
    }
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
          if (step.pieces)
            apply_pieces(step, s.frame, p, row, count);
          else
            step.fn(p[0].at(row), x, p[2].at(row), p[3].at(row), step.repeat, count);
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
            std::int32_t index;
            std::memcpy(&index, x, 4);
            copy_table_runs(code_.arena.operand(step.index), s.table_runs[i], index,
                            reinterpret_cast<float*>(p[0].at(row)));
            break;
          }
          [[fallthrough]];
        default: execute(step, code_.arena, t, row, count, p[0].at(row), x, p[2].at(row), p[3].at(row));
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

namespace {

/// run(place in the strip, first column, count) for each run of a store's columns.
template <class F>
void over_ranges(const Step& s, const Tile& t, F&& run) {
  const Columns& columns = t.columns(s.lay);
  std::int64_t at = 0;
  for (int r = 0; r < columns.ranges; ++r) {
    const Range range = columns.range[static_cast<std::size_t>(r)];
    run(at, range.begin + s.shift, range.count);
    at += range.count;
  }
}

}  // namespace

void Sweep::store_row(const Step& s, const Tile& t, std::int64_t row, const float* x, float* scratch) const {
  const Target& out = work_.stores[static_cast<std::size_t>(s.index)].target;
  over_ranges(s, t, [&](std::int64_t at, std::int64_t column, std::int64_t count) {
    char* to = advance(out.view.data, (t.m + row) * out.row + column * out.column, out.view.dtype);
    store_run(kernels(), out.view.dtype, to, out.column, count, x + at, out.add, scratch, out.stream);
  });
}

/// Stores a staged tile column by column, sixteen at a time so that each line of the tile is read once.
void Sweep::store_turned(const Step& s, const Tile& t, const float* staged, float* scratch) const {
  const Target& out = work_.stores[static_cast<std::size_t>(s.index)].target;
  const std::int64_t width = t.columns(s.lay).count;
  float* turned = scratch + scratch_words();
  over_ranges(s, t, [&](std::int64_t at, std::int64_t column, std::int64_t count) {
    for (std::int64_t j = 0; j < count; j += 16) {
      const std::int64_t block = std::min<std::int64_t>(16, count - j);
      for (std::int64_t i = 0; i < t.rows; ++i) {
        for (std::int64_t b = 0; b < block; ++b) turned[b * t.rows + i] = staged[i * width + at + j + b];
      }
      for (std::int64_t b = 0; b < block; ++b) {
        char* to = advance(out.view.data, t.m * out.row + (column + j + b) * out.column, out.view.dtype);
        store_run(kernels(), out.view.dtype, to, out.row, t.rows, turned + b * t.rows, out.add, scratch, out.stream);
      }
    }
  });
}

}  // namespace coda::cpu
