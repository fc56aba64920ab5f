// The generated header "wgmma.cuh": wrappers of the instruction shapes that one kernel uses. Internal to src/cuda/emit*.
#pragma once
#include <string>
#include <vector>

#include "coda/dtype.hpp"

namespace coda::emission {

/// `wgmma<N, A_MN, B_MN>(d, a, b, keep)`: d = a * b + (keep ? d : 0) on 64 x N x 32 bytes of K, for each N of `columns`.
std::string wgmma_header(DType a, DType b, const std::vector<int>& columns);

}  // namespace coda::emission
