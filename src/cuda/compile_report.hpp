// What the compiler makes of a program's kernels: for `coda compile`, and for the tests that hold spills and time down.
// Needs NVRTC, no GPU.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "coda/program.hpp"
#include "cuda/nvrtc.hpp"

namespace coda::cuda {

struct CompileRow {
  std::string program;
  std::string config;
  double seconds = 0;         ///< of a cold compilation
  ResourceUsage usage;
  int shared_bytes = 0;       ///< dynamic shared memory
  std::size_t code_bytes = 0;
};

/// Compiles `p` in the configurations that the choice makes for large products of several widths, wide and narrow, and
/// for a small one: at most `most` different ones. Throws Error(unsupported) for another architecture than sm_90a.
std::vector<CompileRow> compile_report(const Program& p, const std::string& architecture = "sm_90a", std::size_t most = 3);

/// The same of one configuration, by its name ("pp128x192_c21_s4_e32x1p2_kk"; "two_pass_..." has a row for each pass). Throws
/// Error(value) for a name that `p` hasn't on any of those products, Error(unsupported) for another architecture.
std::vector<CompileRow> compile_report_of(const Program& p, const std::string& config, const std::string& architecture = "sm_90a");

}  // namespace coda::cuda
