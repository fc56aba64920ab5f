#include "device.hpp"

#include <fmt/format.h>

#include "cli.hpp"
#include "coda/kernel.hpp"
#include "cuda/driver.hpp"

namespace coda::cli {
namespace {

/// Copies the arguments to the GPU, launches, waits, and copies the outputs back. Scalar operands stay on the host.
void execute_on_gpu(const Program& p, Slots slots, int index) {
  const std::vector<Slot> declared = p.slots();
  const cuda::ContextScope scope(index);
  std::vector<cuda::DeviceBuffer> buffers;
  std::vector<Tensor> there(slots.begin(), slots.end());
  std::vector<std::size_t> bytes(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Tensor& t = slots[i];
    const bool host_scalar = declared[i].role == Slot::Role::operand && t.rank == 0;
    bytes[i] = static_cast<std::size_t>(t.numel()) * size_of(t.dtype);
    buffers.emplace_back();
    if (host_scalar || t.data == nullptr || bytes[i] == 0) continue;
    buffers[i] = cuda::DeviceBuffer(index, bytes[i]);
    CODA_CUDA(cuMemcpyHtoDAsync, buffers[i].address(), t.data, bytes[i], nullptr);
    there[i].data = buffers[i].data();
    there[i].device = {DeviceType::cuda, index};
  }
  Kernel(p).launch(there);
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (declared[i].role == Slot::Role::output && buffers[i].address() != 0)
      CODA_CUDA(cuMemcpyDtoHAsync, slots[i].data, buffers[i].address(), bytes[i], nullptr);
  CODA_CUDA(cuStreamSynchronize, nullptr);
}

}  // namespace

Device device_named(const std::string& name) {
  if (name == "cpu") return {};
  if (name == "cuda") return {DeviceType::cuda, 0};
  if (name.starts_with("cuda:"))
    if (const std::int64_t index = integer(std::string_view(name).substr(5), "--device cuda:N");
        index >= 0 && index < 1024)
      return {DeviceType::cuda, static_cast<int>(index)};
  throw UsageError(fmt::format("--device takes cpu, cuda or cuda:N; found '{}'", name));
}

std::string name_of(Device device) {
  return device.type == DeviceType::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

void execute(const Program& p, Slots slots, Device device, int threads) {
  if (device.type == DeviceType::cuda) return execute_on_gpu(p, slots, device.index);
  cpu::run(p, slots, {.threads = threads});
}

}  // namespace coda::cli
