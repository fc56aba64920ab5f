// The GPU suite's entry: without a Hopper GPU it says so and fails, so that a run which tested nothing isn't a pass.
#include <gtest/gtest.h>

#include <cstdio>

#include "coda/error.hpp"
#include "cuda/driver.hpp"
#include "cuda/nvrtc.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (::testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  try {
    if (coda::cuda::device_count() == 0) throw coda::Error(coda::ErrorKind::device, "the CUDA driver sees no device");
    const auto& d = coda::cuda::device_info(0);
    coda::cuda::require_hopper(d);
    std::printf("GPU: %s, %d multiprocessors, driver for CUDA %d.%d, NVRTC %s\n", d.name.c_str(), d.multiprocessors, d.driver_version / 1000,
                d.driver_version % 1000 / 10, coda::cuda::nvrtc_version().c_str());
  } catch (const coda::Error& e) {
    std::fprintf(stderr, "The GPU suite did not run, and nothing was tested: %s\n", e.what());
    return 1;
  }
  return RUN_ALL_TESTS();
}
