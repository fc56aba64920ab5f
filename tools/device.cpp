#include "device.hpp"

#include <fmt/format.h>

#include "cli.hpp"

namespace coda::cli {

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
  if (device.type == DeviceType::cuda)
    throw Error(ErrorKind::unsupported, "this build has no CUDA engine; run with --device cpu");
  cpu::run(p, slots, {.threads = threads});
}

}  // namespace coda::cli
