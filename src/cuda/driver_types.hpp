// The few types and constants of the CUDA driver interface that we use, declared here so that no CUDA header is needed
// to build. Names follow cuda.h without its prefixes; values are part of NVIDIA's stable binary interface.
#pragma once
#include <cstddef>
#include <cstdint>

namespace coda::cuda {

using Result = int;                 // CUresult
using DeviceOrdinal = int;          // CUdevice
using DevicePointer = std::uint64_t;  // CUdeviceptr
using Context = struct CUctx_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;
using Graph = struct CUgraph_st*;
using GraphExec = struct CUgraphExec_st*;

inline constexpr Result success = 0;
inline constexpr Result error_not_ready = 600;

enum class DeviceAttribute : int {
  multiprocessor_count = 16, l2_cache_size = 38, compute_capability_major = 75, compute_capability_minor = 76,
  max_shared_memory_per_block_optin = 97,
};

enum class FunctionAttribute : int {
  max_threads_per_block = 0, shared_size_bytes = 1, local_size_bytes = 3, num_regs = 4, max_dynamic_shared_size_bytes = 8,
};

enum class CaptureStatus : int { none = 0, active = 1, invalidated = 2 };

enum class TensorMapType : int { u8 = 0, f16 = 6, f32 = 7, bf16 = 9, tf32 = 11 };
enum class TensorMapSwizzle : int { none = 0, b32 = 1, b64 = 2, b128 = 3 };
enum class TensorMapPromotion : int { none = 0, b64 = 1, b128 = 2, b256 = 3 };

/// CUtensorMap: 128 opaque bytes; the driver wants them 64-byte aligned.
struct alignas(64) TensorMap {
  std::uint64_t words[16];
};

/// CUlaunchAttribute: an id, padding to 8 bytes, and a 64-byte union of which we use the first int.
struct LaunchAttribute {
  std::uint32_t id;
  std::uint32_t padding;
  std::uint32_t value[16];
};
inline constexpr std::uint32_t attribute_programmatic_stream_serialization = 6;

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchAttribute) == 72 && offsetof(LaunchConfig, stream) == 32 && sizeof(LaunchConfig) == 56);

}  // namespace coda::cuda
