// Which tensors the tensor memory accelerator (TMA) can move, and the descriptors it moves them by.
#pragma once
#include <optional>
#include <string>

#include "coda/tensor.hpp"
#include "cuda/driver_types.hpp"
#include "cuda/emit.hpp"

namespace coda::cuda {

/// A sentence's end saying why TMA can't move `t` as `spec` views it ("its base address is not a multiple of 16 bytes"),
/// or nothing where it can.
std::optional<std::string> why_not_tma(const Tensor& t, const MapSpec& spec);

/// True where a store of `t` as `spec` views it would write past the ends of its rows: TMA writes whole 16-byte units, also
/// of the last, partial one (seen on an H200 with rows of 4 bytes).
bool writes_past_rows(const Tensor& t, const MapSpec& spec);

/// The descriptor of `t` as `spec` views it; `name` is for messages. The tensor must pass why_not_tma. Zero bytes where
/// an extent is 0: such a map is never read.
TensorMap encode(const Tensor& t, const MapSpec& spec, std::string_view name);

}  // namespace coda::cuda
