// One sweep over the tiles of a program: products where they are needed, values stored, reductions taken.
#pragma once
#include <map>
#include <vector>

#include "cpu/lower.hpp"
#include "cpu/reductions.hpp"
#include "cpu/table_runs.hpp"

namespace coda::cpu {

/// Where a value is stored: how the place moves with a row and with a column of the matrix, in elements.
struct Target {
  Tensor view;
  std::int64_t row = 0, column = 0;
  bool add = false;     ///< to what is there
  bool stream = false;  ///< past the caches

  static Target of(const Tensor& view, bool transposed, bool add);
};

/// What a sweep is to do.
struct Work {
  struct Store {
    ValueId value = no_value;
    Width width = Width::full;
    Target target;
  };
  std::vector<std::pair<ValueId, Tensor>> given;  ///< values that are read from matrices instead of computed
  std::vector<Store> stores;
  std::vector<ValueId> reductions;
  bool whole_rows = false;  ///< tiles of whole rows: a pass over memory rather than a product's epilogue
};

/// The results of reductions by node: [] or [M] or [W] words.
using Results = std::map<ValueId, std::vector<std::int32_t>>;

class Sweep {
 public:
  /// Lowers the work and checks what it reads: pick's indices. Writes nothing.
  Sweep(const Program& p, Slots slots, const Extents& e, Work work);
  /// Runs it; the results don't depend on the number of threads.
  void run(int threads);
  void collect(Results& results) const;

 private:
  struct State;

  void check_pick(ValueId v) const;
  void lay_out_workspace();
  std::int64_t scratch_words() const;
  bool staged(const Step& s) const;
  void tile(const Tile& t);
  void product(const Tile& t, State& s) const;
  void rows(const Tile& t, State& s);
  void store_row(const Step& s, const Tile& t, std::int64_t row, const float* x, float* scratch) const;
  void store_turned(const Step& s, const Tile& t, const float* staged, float* scratch) const;

  const Program& p_;
  Slots slots_;
  Extents e_;
  Work work_;
  Grid grid_;
  Lowering code_;
  std::map<ValueId, int> reduction_of_;
  std::vector<Partials> partials_;
  // Where things lie in a thread's workspace, in words.
  std::int64_t workspace_ = 0, acc_at_ = 0, scratch_at_ = 0;
  std::vector<std::int64_t> temporaries_at_, columns_at_, reductions_at_, staging_at_;
};

}  // namespace coda::cpu
