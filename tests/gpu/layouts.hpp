// Layouts and configurations that the GPU suite takes its programs through.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "problem.hpp"

namespace coda::test {

inline std::int64_t pad_to_8(std::int64_t extent) { return (8 - extent % 8) % 8; }
inline std::int64_t round_up(std::int64_t v, std::int64_t unit) { return (v + unit - 1) / unit * unit; }

inline Layouts plain(std::int64_t k) { return {{.padding = pad_to_8(k)}, {.padding = pad_to_8(k)}, {}, {}, "contiguous rows"}; }

// Rows of A and B always start at multiples of 16 bytes; nothing else has to.
inline std::vector<Layouts> layouts_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  const Placement ak{.padding = pad_to_8(k)}, am{.transposed = true, .padding = pad_to_8(m)};
  const Placement bk{.padding = pad_to_8(k)}, bn{.transposed = true, .padding = pad_to_8(n)};
  return {
      {ak, bk, {}, {}, "contiguous rows"},
      {ak, bn, {}, {}, "B by columns"},
      {am, bk, {}, {}, "A by columns"},
      {am, bn, {}, {}, "A and B by columns"},
      {ak, bk, {.padding = 16}, {.padding = 8}, "padded rows"},
      {ak, bk, {.padding = 1, .offset = 1}, {.padding = 3, .offset = 1}, "unaligned operands and outputs"},
      {ak, bk, {.transposed = true}, {.transposed = true}, "operands and outputs by columns"},
      {ak, bk, {.step = 2}, {.step = 2}, "operands and outputs of every second element"},
  };
}

// Every tile and schedule once, with clusters and splits in turn; all of them where CODA_TEST_ALL is set.
inline std::vector<std::string> varied(const std::vector<std::string>& names) {
  if (std::getenv("CODA_TEST_ALL")) return names;
  std::map<std::string, std::vector<std::string>> by_tile;
  for (const std::string& n : names) by_tile[n.substr(0, n.find('_'))].push_back(n);
  std::vector<std::string> chosen;
  for (const auto& [tile, all] : by_tile) chosen.push_back(all[chosen.size() % all.size()]);
  return chosen;
}

}  // namespace coda::test
