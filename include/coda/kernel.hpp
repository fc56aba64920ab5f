// Running programs on an NVIDIA Hopper GPU. The CUDA driver and NVRTC are opened when the first kernel is made; until
// then, and without them, the rest of the library works.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coda/engine.hpp"
#include "coda/program.hpp"
#include "coda/tensor.hpp"

namespace coda {

/// A CUstream or cudaStream_t. Null is the legacy default stream.
using CudaStream = void*;

/// Device memory a kernel keeps tile partials and arrival counters in. Kernel::workspace_bytes() says how much.
/// It must be 256-byte aligned and zero before the first launch that uses it; a launch leaves it fit for the next one of
/// the same kernel and extents. Two launches that may run at once need two workspaces. With `data` null the library uses
/// memory of its own, one block for each device and stream, and grows it as needed, also under graph capture; so graphs
/// captured from one stream must not be replayed at once with each other, unless each launch was given a workspace.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

struct KernelOptions {
  /// Name of a configuration ("co128x256_c21_s4_…", as `coda emit` lists them), instead of the chosen one. An illegal
  /// one is Error(unsupported). "two_pass" stores the product and runs the epilogue after it, as programs do that no
  /// tile can hold; "two_pass_co128x256_…" names the product's configuration too.
  std::string config = {};
  /// Times the likeliest configurations on the first launch with new extents or layouts, and keeps the finding on disk.
  /// Outputs go to scratch memory meanwhile: the caller's data are read, never written.
  bool tune = false;
  /// Launches start while their predecessor on the stream drains (programmatic dependent launch). They wait for all of it
  /// before they read or write, so results don't change.
  bool overlap_launches = true;
};

/// What one launch would use, for reports.
struct KernelReport {
  std::string config;    ///< the configuration's name
  std::string two_pass;  ///< why the product is stored before the epilogue, in two kernels; empty where one does both
  int group = 0, raster = 0;
  int registers = 0, spill_bytes = 0, shared_bytes = 0, grid = 0, threads = 0;
  double compile_seconds = 0;  ///< 0 where the code came from the cache
  bool tuned = false;
};

/// A program ready to run on CUDA tensors. Cheap to copy (copies share everything), safe to use from many threads.
///
/// Arguments stand in slot order, Program::slots(). All tensors lie on one device, except that a scalar operand may be
/// a host tensor, whose value is read when launch() is called. An output slot whose data is null and whose rank is 0 is
/// not computed. Extents, strides and scalars are run-time values: only a new choice of configuration compiles.
///
/// A and B must have one dimension of stride 1; their base address and their other stride must be multiples of 16 bytes
/// (Error(layout) names the operand otherwise). Other tensors may have any strides; those that the copy engine can take
/// (last stride 1, base and leading stride multiples of 16 bytes) are faster. Outputs may not be broadcast (stride 0).
///
/// A program whose pairs or segments fit no tile runs in two passes, through a workspace that holds its f32 product:
/// slower, and KernelReport::two_pass says why. So does one of M = 0 or N = 0 whose outputs are not empty (sums of
/// nothing), less the product.
class Kernel {
 public:
  explicit Kernel(Program program, KernelOptions options = {});

  /// Enqueues the program on `stream`. Nothing is allocated and nothing waits once the same arguments have been seen;
  /// before that it checks them, and chooses and compiles a configuration where the extents need a new one.
  /// Throws Error(shape | dtype | layout | value) for unfit arguments, before anything is enqueued, Error(unsupported)
  /// where there is no driver, NVRTC or Hopper GPU, and Error(device) for what the driver reports.
  void launch(Slots slots, CudaStream stream = nullptr, Workspace workspace = {}) const;

  /// Does everything that a launch with these arguments would, short of the launch.
  void prepare(Slots slots) const;
  /// Bytes of Workspace for these arguments; 0 where none is needed.
  std::size_t workspace_bytes(Slots slots) const;
  /// The configuration that these arguments get, and what the compiler says of it.
  KernelReport report(Slots slots) const;
  /// Names of the configurations these arguments can run with, likeliest first: values for KernelOptions::config. With
  /// `pipelines`, each is followed by those of the same tile with other chunks and buffer depths.
  std::vector<std::string> configurations(Slots slots, bool pipelines = false) const;

  const Program& program() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Runs `p` where its tensors lie: on the CPU engine, or, on `stream`, on the GPU, with a kernel that later calls with
/// an equal program use again.
void run(const Program& p, Slots slots, CudaStream stream = nullptr);

/// True where a CUDA driver and a device are present. Never throws.
bool cuda_available() noexcept;

}  // namespace coda
