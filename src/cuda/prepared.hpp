// A launch with everything done that can be done ahead: parameters packed, tensor maps encoded, function loaded.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "coda/kernel.hpp"
#include "cuda/arguments.hpp"
#include "cuda/driver_types.hpp"
#include "cuda/emit.hpp"
#include "cuda/module.hpp"
#include "plan/plan.hpp"

namespace coda::cuda {

/// A program's kernel for one plan on one device.
struct Chosen {
  Plan plan;
  Emitted emitted;
  LoadedKernel loaded;
  bool tuned = false;
};

class Prepared {
 public:
  /// `slots` are those of the emitted program; `positions[i]` is where slot i stands among the caller's.
  Prepared(std::shared_ptr<const Chosen> chosen, const Program& program, Slots slots, std::span<const int> positions, Extents extents,
           int device_index, int multiprocessors);
  /// A product without elements: nothing is launched. With a program, outputs of it that are not empty are computed on
  /// the host (empty_product.hpp).
  Prepared(std::shared_ptr<const Program> empty, std::span<const int> positions, int device_index)
      : empty_(std::move(empty)), positions_(positions.begin(), positions.end()), device_(device_index) {}

  /// Enqueues. `slots` are the caller's. `overlap` sets programmatic dependent launch. Allocates only where a
  /// library-owned workspace must grow.
  void enqueue(Slots slots, Stream stream, const Workspace& workspace, bool overlap) const;

  std::size_t workspace_bytes() const;
  const Chosen* chosen() const { return chosen_.get(); }
  int grid() const { return static_cast<int>(grid_); }

  std::vector<std::uint64_t> key;
  mutable std::atomic<std::uint64_t> last_used{0};

 private:
  struct HostValue {
    int position, offset;
    bool integer;
  };
  std::shared_ptr<const Program> empty_;
  std::vector<int> positions_;  // of its slots among the caller's
  std::shared_ptr<const Chosen> chosen_;
  std::vector<TensorMap> maps_;
  std::vector<unsigned char> params_;
  std::vector<HostValue> values_;
  int partials_offset_ = -1, counters_offset_ = -1;
  std::size_t partial_bytes_ = 0, counter_bytes_ = 0;
  unsigned grid_ = 0;
  int device_ = 0;
};

}  // namespace coda::cuda
