#include "cuda/empty_product.hpp"

#include <fmt/format.h>

#include <vector>

#include "coda/error.hpp"

namespace coda::cuda {
namespace {

/// Bytes from a tensor's first element to the end of its last.
std::size_t span_of(const Tensor& t) {
  if (t.numel() == 0) return 0;
  std::int64_t last = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(t.rank); ++d) last += (t.shape[d] - 1) * t.stride[d];
  return static_cast<std::size_t>(last + 1) * size_of(t.dtype);
}

}  // namespace

void run_empty_product(const Program& p, Slots slots, int device_index, Stream stream) {
  ContextScope scope(device_index);
  CaptureStatus status{};
  CODA_CUDA(cuStreamIsCapturing, stream, &status);
  if (status != CaptureStatus{})
    throw Error(ErrorKind::unsupported, fmt::format("{} has a product without elements and outputs that are not empty: they are computed on the host, which "
                                                    "can't be part of a CUDA graph; leave the call out of it", p.name));
  std::vector<std::vector<char>> memory;
  std::vector<Tensor> here(slots.begin(), slots.end());
  for (Tensor& t : here) {
    if (t.device.type == DeviceType::cpu) continue;
    std::vector<char>& bytes = memory.emplace_back(span_of(t));
    if (!bytes.empty()) CODA_CUDA(cuMemcpyDtoHAsync, bytes.data(), reinterpret_cast<DevicePointer>(t.data), bytes.size(), stream);
    t.data = bytes.data();
    t.device = {};
  }
  CODA_CUDA(cuStreamSynchronize, stream);
  cpu::run(p, here);
  const auto declared = p.slots();
  for (std::size_t i = 0; i < here.size(); ++i) {
    if (declared[i].role != Slot::Role::output || here[i].numel() == 0) continue;
    // Vectors and scalars. What lies between their elements isn't ours to write.
    const std::size_t size = size_of(here[i].dtype), step = here[i].rank == 0 ? size : static_cast<std::size_t>(here[i].stride[0]) * size;
    const auto to = reinterpret_cast<DevicePointer>(slots[i].data);
    const char* from = here[i].as<const char>();
    const auto count = static_cast<std::size_t>(here[i].numel());
    if (step == size) CODA_CUDA(cuMemcpyHtoDAsync, to, from, count * size, stream);
    else for (std::size_t e = 0; e < count; ++e) CODA_CUDA(cuMemcpyHtoDAsync, to + e * step, from + e * step, size, stream);
  }
  CODA_CUDA(cuStreamSynchronize, stream);
}

}  // namespace coda::cuda
