// Peak rates of the GPUs that `explain` knows.
#include <fmt/format.h>

#include "coda/explain.hpp"

namespace coda {

std::span<const Gpu> gpus() {
  static constexpr Gpu table[] = {
      {"h100", 989.4e12, 1978.9e12, 494.7e12, 3.35e12, "NVIDIA H100 SXM data sheet, dense rates"},
      {"h200", 989.4e12, 1978.9e12, 494.7e12, 4.8e12, "NVIDIA H200 SXM data sheet, dense rates"},
      // What the power limit leaves of the data sheet: cuBLAS 13 at 8192 cubed, fp8 _scaled_mm, a device copy.
      {"h200-sustained", 759e12, 1270e12, 379e12, 4.27e12,
       "measured on one H200: cuBLAS bf16 8192x8192x8192, fp8 products of Llama blocks, device-to-device copy; f32 is "
       "half of bf16"},
  };
  return table;
}

const Gpu& gpu(std::string_view name) {
  std::string known;
  for (const Gpu& g : gpus()) {
    if (g.name == name) return g;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", g.name);
  }
  throw Error(ErrorKind::value, fmt::format("no figures for a GPU named '{}'; known: {}", name, known));
}

}  // namespace coda
