// Random arguments that make sense for a program: what tests, `coda verify` and `coda bench` run on.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coda/engine.hpp"

namespace coda {

struct InputOptions {
  Extents extents;
  /// Table extents by symbol; one that isn't given is 64.
  std::map<std::string, std::int64_t, std::less<>> symbols;
  std::uint64_t seed = 1;
};

/// Host memory for every slot of a program, and views of it in slot order.
struct Inputs {
  std::vector<HostTensor> tensors;
  std::vector<Tensor> slots;
};

/// A and B scaled so that the product is about one; operands by what they are used for and, where the program can't
/// tell, by the names of the standard programs (rstd and zsum positive, cos and sin of one angle, weights about 1);
/// pick targets in range with some ignored rows; table indices in range. `+=` outputs hold data, all others are
/// filled with 0xFF bytes (NaN). The same seed gives the same bits on every machine.
Inputs make_inputs(const Program& p, const InputOptions& options);

}  // namespace coda
