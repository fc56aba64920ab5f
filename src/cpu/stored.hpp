// What an unfused implementation keeps in memory between its passes.
#pragma once
#include <vector>

#include "coda/program.hpp"

namespace coda::cpu {

/// Values that a framework would store as whole matrices: the product and every named real value with rows and
/// columns that some arithmetic made. What only repeats a segment's or a row's number isn't one, nor is an operand.
std::vector<bool> stored_values(const Program& p);

}  // namespace coda::cpu
