// Which columns a value has, and which column of a value a pair's member is.
#pragma once
#include <cstdint>

#include "coda/program.hpp"

namespace coda {

constexpr std::int64_t columns_of(Width w, std::int64_t n) {
  switch (w) {
    case Width::none: return 1;
    case Width::half: return n / 2;
    case Width::full: return n;
    case Width::twice: return 2 * n;
  }
  return 0;
}

/// The column, among `width` columns, of member 0 or 1 of pair j.
constexpr std::int64_t member_column(const Pairing& p, int member, std::int64_t j, std::int64_t width) {
  switch (p.kind) {
    case Pairing::Kind::none:
    case Pairing::Kind::adjacent: return 2 * j + member;
    case Pairing::Kind::halves: return j + member * (width / 2);
    case Pairing::Kind::heads: {
      const std::int64_t head = j / (p.head / 2), i = j % (p.head / 2);
      const std::int64_t rotary = p.rotary / 2, rest = (p.head - p.rotary) / 2;
      if (i < rotary) return head * p.head + i + member * rotary;
      return head * p.head + p.rotary + (i - rotary) + member * rest;
    }
  }
  return 0;
}

}  // namespace coda
