#include "cuda/bench/nvml.hpp"

#include <memory>

#include "cuda/library.hpp"

namespace coda::cuda {
namespace {

struct Nvml {
  Library library;
  int (*nvmlInit)() = nullptr;
  int (*nvmlDeviceGetHandleByIndex)(unsigned, void**) = nullptr;
  int (*nvmlDeviceGetClockInfo)(void*, int, unsigned*) = nullptr;
  int (*nvmlDeviceGetPowerUsage)(void*, unsigned*) = nullptr;
  int (*nvmlDeviceGetCurrentClocksThrottleReasons)(void*, unsigned long long*) = nullptr;
  int (*nvmlSystemGetDriverVersion)(char*, unsigned) = nullptr;
};

const Nvml* nvml() {
  static const Nvml* table = []() -> const Nvml* {
    try {
      const std::string names[] = {"libnvidia-ml.so.1"};
      auto n = std::unique_ptr<Nvml>(new Nvml{.library = Library("NVML", names, "")});
      n->library.bind(n->nvmlInit, "nvmlInit_v2");
      n->library.bind(n->nvmlDeviceGetHandleByIndex, "nvmlDeviceGetHandleByIndex_v2");
      n->library.bind(n->nvmlDeviceGetClockInfo, "nvmlDeviceGetClockInfo");
      n->library.bind(n->nvmlDeviceGetPowerUsage, "nvmlDeviceGetPowerUsage");
      n->library.bind(n->nvmlDeviceGetCurrentClocksThrottleReasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
      n->library.bind(n->nvmlSystemGetDriverVersion, "nvmlSystemGetDriverVersion");
      return n->nvmlInit() == 0 ? n.release() : nullptr;
    } catch (...) {
      return nullptr;
    }
  }();
  return table;
}

}  // namespace

CardState card_state(int device_index) noexcept {
  CardState s;
  const Nvml* n = nvml();
  void* device = nullptr;
  if (!n || n->nvmlDeviceGetHandleByIndex(static_cast<unsigned>(device_index), &device) != 0) return s;
  unsigned milliwatts = 0;
  char version[96] = {};
  n->nvmlDeviceGetClockInfo(device, 1 /* multiprocessors */, &s.clock_mhz);
  n->nvmlDeviceGetClockInfo(device, 2 /* memory */, &s.memory_mhz);
  n->nvmlDeviceGetPowerUsage(device, &milliwatts);
  n->nvmlDeviceGetCurrentClocksThrottleReasons(device, &s.limits);
  n->nvmlSystemGetDriverVersion(version, sizeof version);
  s.watts = milliwatts / 1000.0;
  s.driver = version;
  return s;
}

std::string describe_limits(unsigned long long mask) {
  struct Reason { unsigned long long bit; const char* name; };
  constexpr Reason reasons[] = {{0x1, "idle"}, {0x2, "application clocks"}, {0x4, "power cap"}, {0x8, "hardware slowdown"}, {0x10, "sync boost"},
                                {0x20, "software thermal"}, {0x40, "hardware thermal"}, {0x80, "power brake"}, {0x100, "display clocks"}};
  std::string text;
  for (const Reason& r : reasons)
    if (mask & r.bit) text += (text.empty() ? "" : " + ") + std::string(r.name);
  return text.empty() ? "none" : text;
}

}  // namespace coda::cuda
