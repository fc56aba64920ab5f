// The programs and extents that verify, bench and compile go over.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "cli.hpp"
#include "coda/tensor.hpp"

namespace coda::cli {

/// A program with its options set, and what to call it in a table: "linear_cross_entropy smoothing=1".
struct Case {
  std::string label;
  Program program;
};

/// FILE with --param and --without.
Case case_of(const ProgramOptions& options);
/// Every standard program with default params, and once with each option on. --dtype applies; --param and --without
/// can't, and are UsageErrors.
std::vector<Case> standard_cases(const ProgramOptions& options);
/// The standard programs with default params alone.
std::vector<Case> standard_programs_alone(const ProgramOptions& options);

/// N must be a multiple of this: heads and segments must be whole, pairs complete.
std::int64_t column_multiple(const Program& p);

/// Small extents that end inside tiles, and one that doesn't. On CUDA K and N stay multiples of 8, whose rows start at
/// addresses that its copy engine takes.
std::vector<Sizes> default_extents(const Program& p, Device device);

/// Each text of a repeated --extents; M, N and K must all be there.
std::vector<Sizes> extents_of(const std::vector<std::string>& texts);

/// Sizes other than M, N and K.
std::map<std::string, std::int64_t, std::less<>> symbols_of(const Sizes& sizes);

}  // namespace coda::cli
