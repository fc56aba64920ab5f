// Library-owned workspaces: one pair of buffers (partials, counters) for each device and stream.
#pragma once
#include <cstddef>

#include "cuda/driver_types.hpp"

namespace coda::cuda {

struct WorkspaceView {
  DevicePointer partials = 0, counters = 0;
};

/// Memory for a launch on `stream`; its counters are zero before their first use. Grows where it is too small, also while
/// the stream is captured. A block that was outgrown stays allocated, since a captured graph may hold its address; sizes
/// at least double, so that at most as much again is kept.
WorkspaceView library_workspace(int device_index, Stream stream, std::size_t partial_bytes, std::size_t counter_bytes);

/// Bytes of a caller's workspace: counters first, padded to 256 bytes, then partials.
std::size_t workspace_total(std::size_t partial_bytes, std::size_t counter_bytes);
WorkspaceView view_of_workspace(void* data, std::size_t counter_bytes);

}  // namespace coda::cuda
