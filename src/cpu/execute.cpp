// Running one step over one strip.
#include <cstring>
#include <limits>

#include "cpu/lower.hpp"
#include "cpu/memory.hpp"

namespace coda::cpu {
namespace {

void copy(char* d, const char* x, std::int64_t n) { std::memcpy(d, x, static_cast<std::size_t>(n) * 4); }

void repeat_word(char* d, const char* x, std::int64_t n) {
  std::int32_t word;
  std::memcpy(&word, x, 4);
  auto* to = reinterpret_cast<std::int32_t*>(d);
  for (std::int64_t i = 0; i < n; ++i) to[i] = word;
}

/// Where the two members of a head's pairs lie: the rotary pairs first, then the rest, each half-split.
template <class F>
void over_heads(const Pairing& p, std::int64_t pairs, F&& run) {
  const std::int64_t rotary = p.rotary / 2, rest = (p.head - p.rotary) / 2, half = p.head / 2;
  for (std::int64_t h = 0; h * half < pairs; ++h) {
    for (int member = 0; member < 2; ++member) {
      run(member, h * half, h * p.head + member * rotary, rotary);
      run(member, h * half + rotary, h * p.head + p.rotary + member * rest, rest);
    }
  }
}

void split(const Step& s, const Kernels& k, std::int64_t count, char* d, const char* x) {
  if (s.pairing.kind != Pairing::Kind::heads) return k.deinterleave(d, x, s.member, count);
  over_heads(s.pairing, count, [&](int member, std::int64_t pair, std::int64_t column, std::int64_t n) {
    if (member == s.member) copy(d + 4 * pair, x + 4 * column, n);
  });
}

void join(const Step& s, const Kernels& k, std::int64_t count, char* d, const char* x, const char* y) {
  const std::int64_t pairs = count / 2;
  switch (s.pairing.kind) {
    case Pairing::Kind::halves:
      copy(d, x, pairs);
      copy(d + 4 * pairs, y, pairs);
      break;
    case Pairing::Kind::heads:
      over_heads(s.pairing, pairs, [&](int member, std::int64_t pair, std::int64_t column, std::int64_t n) {
        copy(d + 4 * column, (member == 0 ? x : y) + 4 * pair, n);
      });
      break;
    default: k.interleave(d, x, y, pairs); break;
  }
}

void lookup(const Step& s, const Arena& arena, std::int64_t count, char* d, const char* x, const char* y) {
  const Tensor& t = arena.operand(s.index);
  const auto* first = reinterpret_cast<const std::int32_t*>(x);
  const auto* second = reinterpret_cast<const std::int32_t*>(y);
  auto* to = reinterpret_cast<float*>(d);
  const bool two = t.rank == 2;
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t a = first[(s.repeat & 1) ? 0 : j];
    const std::int64_t b = two ? second[(s.repeat & 2) ? 0 : j] : 0;
    if (a < 0 || a >= t.shape[0] || (two && (b < 0 || b >= t.shape[1]))) {
      to[j] = std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    const void* at = advance(t.data, a * t.stride[0] + (two ? b * t.stride[1] : 0), t.dtype);
    if (t.dtype == DType::f32) {
      std::memcpy(to + j, at, 4);
    } else {
      arena.kernels->load[static_cast<std::size_t>(t.dtype)](to + j, at, 1);
      if (is_integer(t.dtype)) arena.kernels->to_real(to + j, to + j, nullptr, nullptr, 0, 1);
    }
  }
}

/// What one segment's elements come to.
float segment_result(Op op, const Kernels& k, const float* x, std::int32_t n) {
  if (op == Op::reduce_sum) return k.sum(x, n);
  const float largest = k.max(x, n);
  if (op != Op::softmax_sum) return largest;
  return largest == -std::numeric_limits<float>::infinity() ? 0 : k.sum_exp(x, largest, n);
}

/// The element of a segment that `index` names. An index out of range gives NaN, as a lookup's does: it may come from
/// the tile itself, so that it can't be refused before anything is written.
float picked(const float* x, std::int32_t n, std::int32_t index, const std::int32_t* ignored) {
  if (ignored != nullptr && index == *ignored) return 0;
  return index >= 0 && index < n ? x[index] : std::numeric_limits<float>::quiet_NaN();
}

void segments(const Step& s, const Kernels& k, std::int64_t count, char* d, const char* x, const char* y,
              const char* z) {
  const auto* from = reinterpret_cast<const float*>(x);
  const auto* index = reinterpret_cast<const std::int32_t*>(y);
  const auto* ignored = reinterpret_cast<const std::int32_t*>(z);
  auto* to = reinterpret_cast<float*>(d);
  for (std::int64_t j = 0; j < count; j += s.segment) {
    const float r = s.op == Op::pick ? picked(from + j, s.segment, index[(s.repeat & 2) ? 0 : j], ignored)
                                     : segment_result(s.op, k, from + j, s.segment);
    for (std::int64_t i = 0; i < s.segment; ++i) to[j + i] = r;
  }
}

void load(const Step& s, const Arena& arena, const Tile& tile, std::int64_t row, char* d) {
  const Tensor& t = arena.operand(s.index);
  const bool matrix = t.rank == 2;
  const std::int64_t stride = t.stride[matrix ? 1 : 0];
  const std::int64_t start = matrix ? (tile.m + row) * t.stride[0] : 0;
  const Columns& columns = tile.columns(s.lay);
  for (int r = 0; r < columns.ranges; ++r) {
    const Range range = columns.range[static_cast<std::size_t>(r)];
    load_run(*arena.kernels, t.dtype, advance(t.data, start + (range.begin + s.shift) * stride, t.dtype), stride,
             range.count, d);
    d += 4 * range.count;
  }
}

}  // namespace

Pointer resolve(const Place& p, const Frame& f) {
  const auto part = [&](std::int64_t count) { return 4 * (count * p.quarter / 4); };
  switch (p.kind) {
    case Place::Kind::none: return {};
    case Place::Kind::scalar:
      return {const_cast<char*>(reinterpret_cast<const char*>(&f.arena->scalars[static_cast<std::size_t>(p.index)])),
              0};
    case Place::Kind::row: {
      const auto& row = f.arena->rows[static_cast<std::size_t>(p.index)];
      return {const_cast<char*>(reinterpret_cast<const char*>(row.data() + f.tile->m)), 4};
    }
    case Place::Kind::column: {
      const auto i = static_cast<std::size_t>(p.index);
      char* base =
          f.columns ? f.columns[i] : const_cast<char*>(reinterpret_cast<const char*>(f.arena->columns[i].data()));
      return {base + part(f.tile->columns(p.lay).count), 0};
    }
    case Place::Kind::temporary: return {f.temporaries[p.index] + part(f.tile->columns(p.lay).count), 0};
    case Place::Kind::acc: {
      // A member of a pair by halves is the other block.
      const bool second = p.quarter > 0 && f.acc_second != 0;
      return {f.acc.base + (second ? f.acc_second : part(f.tile->columns(p.lay).count)), f.acc.step};
    }
    case Place::Kind::operand: {
      const Tensor& t = f.arena->operand(p.index);
      const Columns& columns = f.tile->columns(p.lay);
      const std::int64_t column = columns.range[0].begin + p.shift;
      if (t.rank == 1) return {advance(t.data, column, t.dtype) + part(columns.count), 0};
      // Only views whose rows are contiguous are used in place.
      return {advance(t.data, f.tile->m * t.stride[0] + column, t.dtype) + part(columns.count),
              t.stride[0] * static_cast<std::int64_t>(size_of(t.dtype))};
    }
  }
  return {};
}

void execute(const Step& s, const Arena& arena, const Tile& tile, std::int64_t row, std::int64_t count, char* d,
             const char* x, const char* y, const char* z) {
  const Kernels& k = *arena.kernels;
  switch (s.kind) {
    case Step::Kind::apply: return s.fn(d, x, y, z, s.repeat, count);
    case Step::Kind::load: return load(s, arena, tile, row, d);
    case Step::Kind::fill: return repeat_word(d, x, count);
    case Step::Kind::iota: {
      const Columns& columns = tile.columns(s.lay);
      auto* to = reinterpret_cast<std::int32_t*>(d);
      for (int r = 0; r < columns.ranges; ++r) {
        const Range range = columns.range[static_cast<std::size_t>(r)];
        for (std::int64_t j = 0; j < range.count; ++j) *to++ = static_cast<std::int32_t>(range.begin + j);
      }
      return;
    }
    case Step::Kind::split: return split(s, k, count, d, x);
    case Step::Kind::join: return join(s, k, count, d, x, y);
    case Step::Kind::round:
      return k.round[static_cast<std::size_t>(s.dtype)](reinterpret_cast<float*>(d), reinterpret_cast<const float*>(x),
                                                        count);
    case Step::Kind::lookup: return lookup(s, arena, count, d, x, y);
    case Step::Kind::segment: return segments(s, k, count, d, x, y, z);
    case Step::Kind::gather:
    case Step::Kind::reduce:
    case Step::Kind::store: return;
  }
}

}  // namespace coda::cpu
