// Which columns pair up in heads of HEAD columns: the first ROTARY half-split, and the rest likewise.
#pragma once
#include "ptx.cuh"

namespace coda {

/// Column of member `part` of pair p.
template <int HEAD, int ROTARY> DEV int head_column(int part, int p) {
  const int i = p % (HEAD / 2), h = 2 * (p - i);
  return i < ROTARY / 2 ? h + i + part * (ROTARY / 2) : h + ROTARY / 2 + i + part * ((HEAD - ROTARY) / 2);
}
/// The member, 0 or 1, that column n is of its pair ...
template <int HEAD, int ROTARY> DEV int head_member(int n) {
  const int i = n % HEAD;
  return i < ROTARY ? i >= ROTARY / 2 : i >= ROTARY + (HEAD - ROTARY) / 2;
}
/// ... and the pair.
template <int HEAD, int ROTARY> DEV int head_pair(int n) {
  const int i = n % HEAD, h = (n - i) / 2, part = head_member<HEAD, ROTARY>(n);
  return i < ROTARY ? h + i - part * (ROTARY / 2) : h + i - ROTARY / 2 - part * ((HEAD - ROTARY) / 2);
}

}  // namespace coda
