// A launch with everything done that can be done ahead: parameters packed, tensor maps encoded, function loaded.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coda/kernel.hpp"
#include "cuda/arguments.hpp"
#include "cuda/driver_types.hpp"
#include "cuda/emit.hpp"
#include "cuda/emit_two_pass.hpp"
#include "cuda/module.hpp"
#include "plan/plan.hpp"

namespace coda::cuda {

/// A program's kernel for one plan on one device; or, in two passes, its product's and the one that follows.
struct Chosen {
  Plan plan;
  Emitted emitted;
  LoadedKernel loaded;
  bool tuned = false;
  std::optional<TwoPass> two_pass = std::nullopt;
  LoadedKernel second = {};
  std::string reason = {};  ///< why there are two

  std::string name() const { return two_pass ? two_pass_name(emitted.config) : emitted.config.name(); }
};

class Prepared {
 public:
  /// `slots` are those of the emitted program; `positions[i]` is where slot i stands among the caller's.
  Prepared(std::shared_ptr<const Chosen> chosen, const Program& program, Slots slots, std::span<const int> positions, Extents extents,
           int device_index, int multiprocessors);
  /// A launch of nothing: no output has an element.
  Prepared() = default;

  /// Enqueues. `slots` are the caller's. `overlap` sets programmatic dependent launch. Allocates only where a
  /// library-owned workspace must grow.
  void enqueue(Slots slots, Stream stream, const Workspace& workspace, bool overlap) const;

  std::size_t workspace_bytes() const;
  const Chosen* chosen() const { return chosen_.get(); }
  int grid() const { return steps_.empty() ? 0 : static_cast<int>(steps_.front().grid); }

  std::vector<std::uint64_t> key;
  mutable std::atomic<std::uint64_t> last_used{0};

 private:
  struct HostValue {
    int position, offset;
    bool integer;
  };
  // One kernel of the launch.
  struct Step {
    Function function = nullptr;
    unsigned grid = 0, threads = 0, shared_bytes = 0;
    std::vector<TensorMap> maps;
    std::vector<unsigned char> params;
    std::vector<HostValue> values;
    int partials_offset = -1, counters_offset = -1, product_offset = -1;
    std::size_t partials_at = 0, counters_at = 0;  // where its own start in the workspace
    std::optional<MapSpec> product_map;            // the last map, of the product in the workspace
  };
  Step step_of(const Emitted& e, const LoadedKernel& loaded, const std::vector<Slot>& declared, Slots slots, std::span<const int> positions, Extents x,
               const Emitted::Work& work, bool into_workspace) const;

  std::shared_ptr<const Chosen> chosen_;
  std::vector<Step> steps_;
  Tensor product_;                    // of two passes: its view, in the workspace
  std::size_t product_at_ = 0;
  std::size_t partial_bytes_ = 0, counter_bytes_ = 0;
  int device_ = 0;
};

}  // namespace coda::cuda
