// Program and configuration -> one page of CUDA, and everything a launcher has to know to call it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coda/dtype.hpp"
#include "plan/config.hpp"

namespace coda {

class Program;

/// One CUtensorMap parameter. Maps are the kernel's first parameters, in order, each its own `__grid_constant__`
/// parameter of 128 bytes aligned to 64; the Params struct, by value, is the last.
struct MapSpec {
  int slot = 0;                 ///< argument slot whose tensor it views
  DType dtype = DType::bf16;    ///< element type
  bool tf32 = false;            ///< use the driver's TFLOAT32 type (rounds on load) instead of FLOAT32
  int inner = 1;                ///< dimension of the tensor with stride 1; the other (if any) is the map's second
  bool vector = false;          ///< a 1-d tensor, viewed as one row of its elements
  int half = -1;                ///< 0 or 1: views only the first or second half of the columns; -1: all of them
  bool outer_half = false;      ///< ... where the columns are the outer dimension: an output stored [N, M]
  int box_inner = 0, box_outer = 0;
  int swizzle = 0;              ///< bytes: 0, 32, 64 or 128
  bool operator==(const MapSpec&) const = default;
};

/// One field of the Params struct. The launcher writes `size` bytes at `offset`.
struct Field {
  enum class Kind : std::uint8_t {
    m, n, k,          ///< i32: extents
    group, raster,    ///< i32: tiles walk in bands of `group` cluster tiles along M (raster 0) or N (raster 1)
    pointer,          ///< u64: address of slot's first element; a scalar given as a host value passes null
    value,            ///< 4 bytes: a scalar's host value, converted to f32 or, for an integer operand, saturated to i32
    extent0, extent1, ///< i32: the slot's first, second extent (of a table)
    stride0, stride1, ///< i64: element stride of the slot's first, second dimension
    split_from,       ///< i32: first cluster tile (in walk order) whose K is split in config.split parts
    partials,         ///< u64: address of workspace_bytes() bytes, 16-byte aligned, contents irrelevant
    product,          ///< u64: address of the f32 product that a second pass reads (emit_two_pass.hpp)
    counters,         ///< u64: address of counter_count() u32, zero before the first launch; the kernel leaves zeros
  };
  Kind kind;
  int slot = -1;
  int offset = 0, size = 0;
  bool operator==(const Field&) const = default;
};

struct Emitted {
  std::string source;           ///< the page
  std::string wgmma;            ///< text of the generated header "wgmma.cuh": the instruction shapes this kernel uses
  std::string entry;            ///< name of the kernel
  int threads = 0, shared_bytes = 0;
  int params_bytes = 0;
  std::vector<MapSpec> maps;
  std::vector<Field> fields;
  Config config;

  // Floats of workspace, besides the partial tiles of a split: `row_values` for each (column tile, row), `row_picks` for
  // each row, `column_values` for each (block of config.warpgroup_rows() rows, column), `column_picks` for each column,
  // `total_values` for each consumer warp of the grid.
  int row_values = 0, row_picks = 0, column_values = 0, column_picks = 0, total_values = 0;

  /// What one launch works on. `split_from` is in [0, cluster_tiles]; cluster_tiles itself where config.split is 1.
  struct Work { std::int64_t m = 0, n = 0; int grid = 0; std::int64_t split_from = 0; };
  /// Cluster tiles of the product: the unit of the persistent walk.
  std::int64_t cluster_tiles(std::int64_t m, std::int64_t n) const;
  /// Grid for a device of `multiprocessors`: whole clusters, never more than there is work. A split starts at the
  /// last partial wave, or at tile 0 where the whole product is less than a wave.
  Work work(std::int64_t m, std::int64_t n, int multiprocessors) const;
  std::int64_t workspace_bytes(const Work&) const;
  std::int64_t counter_count(const Work&) const;
};

/// What the program asks of a configuration in which the slots of `direct` bypass TMA.
Demand demand_of(const Program&, std::uint32_t direct = 0);

/// Throws Error(unsupported) where `why_illegal` has a reason.
///
/// A slot moves by TMA unless its bit in `config.direct` is set. TMA needs: stride 1 in the last dimension, a 16-byte
/// aligned base and a leading stride of a multiple of 16 bytes; where a slot is viewed in halves (see MapSpec::half)
/// half the inner extent must be a multiple of 16 bytes too. Column vectors: stride 1, aligned base. Tables: the same
/// as matrices, and an even last extent (they are read two elements at a time). Row vectors and scalars are never moved by TMA: their bits don't matter.
/// A and B have no slower path. With K = 0 their maps view any valid address as if K were 1; nothing of it is read.
/// M and N must not be 0.
/// NVRTC is handed embedded::device_headers() and Emitted::wgmma under the name "wgmma.cuh";
/// options: --gpu-architecture=sm_90a --std=c++17 -default-device --prec-div=false --prec-sqrt=false (division and square
/// root to 2 ulp and 1 ulp).
Emitted emit(const Program&, const Config&);

}  // namespace coda
