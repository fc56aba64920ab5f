// What the card was doing while it was timed, by NVML where there is one.
#pragma once
#include <string>

namespace coda::cuda {

struct CardState {
  unsigned clock_mhz = 0, memory_mhz = 0;
  double watts = 0;
  unsigned long long limits = 0;  ///< reasons that hold the clock down, a mask
  std::string driver;
};

/// A reading of the device with this PCI-order index; zeros where NVML is missing.
CardState card_state(int device_index) noexcept;

/// "power cap, thermal" and the like, or "none".
std::string describe_limits(unsigned long long mask);

}  // namespace coda::cuda
