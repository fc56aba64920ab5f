// Programs that no tile of the GPU's fused kernel can hold, which run in two passes.
#pragma once
#include <string>
#include <vector>

#include "coda/program.hpp"

namespace coda::test {

struct UntiledProgram {
  std::string name;
  Program program;
  std::string reason;  ///< a part of what why_two_pass() says of it
};
std::vector<UntiledProgram> untiled_programs();

}  // namespace coda::test
