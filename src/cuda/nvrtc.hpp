// NVRTC, opened on first use: CUDA text in, machine code and what the assembler says of it out. Needs no GPU.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "embedded.hpp"

namespace coda::cuda {

struct CompileOptions {
  std::string architecture = "sm_90a";
  std::vector<std::string> defines = {};  ///< "NAME=value"
};

/// What ptxas reports of one entry function.
struct ResourceUsage {
  int registers = 0;
  int spill_store_bytes = 0, spill_load_bytes = 0;
  int stack_bytes = 0;
  int static_shared_bytes = 0;
  bool serialised = false;  ///< the products wait for each other (C7514): several times slower
  bool operator==(const ResourceUsage&) const = default;
};

struct Compiled {
  std::string code;  ///< the cubin
  std::string log;   ///< warnings and the assembler's report
  ResourceUsage usage;
  double seconds = 0;
};

/// The version of the NVRTC that compile() uses, e.g. "13.0". Throws Error(unsupported) where none can be opened.
std::string nvrtc_version();

/// The options compile() passes, as one line: part of a cache key.
std::string option_line(const CompileOptions& options);

/// Compiles `source`, which may include `headers` by their names. Throws Error(unsupported) where NVRTC is missing, Error(device) with the compiler's log where the
/// text doesn't compile. Thread-safe: one compilation a thread.
Compiled compile(const std::string& source, std::span<const embedded::File> headers, const CompileOptions& options = {});

/// Reads the numbers out of a ptxas -v report: the largest of each over its functions.
ResourceUsage parse_usage(std::string_view log);

}  // namespace coda::cuda
