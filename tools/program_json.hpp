// A program's interface as JSON: what a caller must know to use it.
#pragma once
#include "cli.hpp"

namespace coda::cli {

/// {"name", "doc", "params": {}, "arguments": [{"name", "role", "dtype", "shape"}], "hash"}
Json to_json(const Program& p);

/// "[M, N/2]" as declared; "[M, K]" and "[N, K]" for A and B.
std::string shape_text(const Slot& slot);

}  // namespace coda::cli
