// Boxes: chunks of a matrix in shared memory as TMA lays them out (rows of at most 128 bytes, swizzled), and how a warp
// moves its fragment of 16 rows between them and registers.
//
// A fragment follows the wgmma accumulator: in each group j of 8 columns, thread `lane` holds of rows lane/4 and
// lane/4 + 8 the two columns 2*(lane%4), +1. What it holds of one row and one group is a *pair*; its bits are moved as
// one word of 1, 2, 4, 8 or 16 bytes. Register arrays are indexed [4j + 2*(row half) + column].
#pragma once
#include "maths.cuh"

namespace coda {

template <int BYTES> struct Word;
template <> struct Word<1> { typedef u8 type; };
template <> struct Word<2> { typedef u16 type; };
template <> struct Word<4> { typedef u32 type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };

/// A box of ROWS rows and PAIRS pairs of WORD bytes. Longer rows than 128 bytes make several boxes, one after the other.
template <int WORD, int PAIRS, int ROWS> struct Box {
  typedef typename Word<WORD>::type word;
  static constexpr int ROW = WORD * PAIRS < 128 ? WORD * PAIRS : 128;      // bytes of a row of one box
  static constexpr int SWIZZLE = ROW == 128 ? 7 : ROW == 64 ? 3 : ROW == 32 ? 1 : 0;
  static constexpr int SHIFT = ROW == 128 ? 0 : ROW == 64 ? 1 : 2;
  static constexpr int BYTES = WORD * PAIRS * ROWS;
  static_assert(ROW >= 16 && (WORD * PAIRS) % ROW == 0, "TMA boxes have rows of 16, 32, 64 or 128 bytes");

  /// Address of byte `x` of row `row`.
  static DEV u32 at(u32 base, int row, int x) {
    const int y = x % ROW;
    return base + x / ROW * (ROWS * ROW) + row * ROW + ((y & ~15) ^ ((row >> SHIFT & SWIZZLE) << 4)) + (y & 15);
  }

  // 16 rows from `row` on, pairs of GROUPS column groups from `first` on, to or from w[2*j + row half]. What depends on the lane
  // is computed once: `base` is a multiple of 128, so a constant offset inside a row can be put on by exclusive or.
  template <int GROUPS> static DEV void load(u32 base, int row, int lane, int first, word (&w)[2 * GROUPS]) {
    if constexpr (WORD == 4) {
      const u32 a = at(base, row + (lane & 15), 16 * (lane >> 4));
      #pragma unroll
      for (int j = 0; j < GROUPS; j += 2) ldmatrix(move(a, first + j), w[2 * j], w[2 * j + 1], w[2 * j + 2], w[2 * j + 3]);
    } else {
      const bool odd = swaps<GROUPS>(lane);
      const u32 a = at(base, row + (lane >> 2), WORD * (lane & 3)) ^ (odd ? 64 : 0);
      #pragma unroll
      for (int i = 0; i < 2 * GROUPS; i++) shared_load(move(a + (i & 1) * 8 * ROW, first + i / 2), w[i]);
      swap<GROUPS>(odd, w);
    }
  }
  template <int GROUPS> static DEV void store(u32 base, int row, int lane, int first, word (&w)[2 * GROUPS]) {
    if constexpr (WORD == 4) {
      const u32 a = at(base, row + (lane & 15), 16 * (lane >> 4));
      #pragma unroll
      for (int j = 0; j < GROUPS; j += 2) stmatrix(move(a, first + j), w[2 * j], w[2 * j + 1], w[2 * j + 2], w[2 * j + 3]);
    } else {
      const bool odd = swaps<GROUPS>(lane);
      const u32 a = at(base, row + (lane >> 2), WORD * (lane & 3)) ^ (odd ? 64 : 0);
      swap<GROUPS>(odd, w);
      #pragma unroll
      for (int i = 0; i < 2 * GROUPS; i++) shared_store(move(a + (i & 1) * 8 * ROW, first + i / 2), w[i]);
    }
  }

 private:
  static DEV u32 move(u32 a, int group) {
    const int x = 4 * WORD * group;
    return (a + x / ROW * (ROWS * ROW)) ^ (x % ROW);
  }
  // Words of 8 bytes in rows of 128: odd rows take the groups in the order 2, 3, 0, 1, which frees them of bank conflicts.
  template <int GROUPS> static DEV bool swaps(int lane) { return WORD == 8 && GROUPS == 4 && (lane >> 2 & 1); }
  template <int GROUPS> static DEV void swap(bool odd, word (&w)[2 * GROUPS]) {
    if constexpr (WORD == 8 && GROUPS == 4) {
      #pragma unroll
      for (int i = 0; i < 4; i++) {
        const word a = w[i], b = w[i + 4];
        w[i] = odd ? b : a;
        w[i + 4] = odd ? a : b;
      }
    }
  }
};

/// A box of an output stored transposed: COLUMNS rows of 16 elements, element (n, m) of the matrix in row n.
template <class T, int COLUMNS, int N> DEV void write_transposed(u32 base, int lane, int first, const float (&v)[N]) {
  constexpr int SIZE = sizeof(typename T::bits);
  typedef Box<SIZE, 16, COLUMNS> Rows;                                      // only its addressing
  #pragma unroll
  for (int j = 0; j < N / 4; j++) {
    if constexpr (SIZE == 2) {
      if (j % 2 == 0)
        stmatrix_transposed(Rows::at(base, 8 * (first + j + (lane >> 4)) + (lane & 7), lane & 8 ? 16 : 0), pack2(T(), v[4 * j], v[4 * j + 1]),
                            pack2(T(), v[4 * j + 2], v[4 * j + 3]), pack2(T(), v[4 * j + 4], v[4 * j + 5]), pack2(T(), v[4 * j + 6], v[4 * j + 7]));
    } else {
      #pragma unroll
      for (int q = 0; q < 4; q++)
        shared_store(Rows::at(base, 8 * (first + j) + 2 * (lane & 3) + (q & 1), SIZE * ((lane >> 2) + 8 * (q >> 1))), pack1(T(), v[4 * j + q]));
    }
  }
}

// ---- values <-> boxes of chunks of COLUMNS columns; `first` is the first of the groups of 8 columns that are moved

/// One value a column: v[4j + 2*(row half) + column].
template <class T, int COLUMNS, class V, int N> DEV void read_full(u32 base, int row, int lane, int first, V (&v)[N]) {
  typedef Box<2 * sizeof(typename T::bits), COLUMNS / 2, 64> B;
  typename B::word w[N / 2];
  B::template load<N / 4>(base, row, lane, first, w);
  #pragma unroll
  for (int i = 0; i < N / 2; i++) unpack2(T(), w[i], v[2 * i], v[2 * i + 1]);
}
template <class T, int COLUMNS, int N> DEV void write_full(u32 base, int lane, int first, const float (&v)[N]) {
  typedef Box<2 * sizeof(typename T::bits), COLUMNS / 2, 16> B;
  typename B::word w[N / 2];
  #pragma unroll
  for (int i = 0; i < N / 2; i++) w[i] = pack2(T(), v[2 * i], v[2 * i + 1]);
  B::template store<N / 4>(base, 0, lane, first, w);
}

/// One value a pair of neighbouring columns: v[2j + row half].
template <class T, int COLUMNS, class V, int N> DEV void read_half(u32 base, int row, int lane, int first, V (&v)[N]) {
  typedef Box<sizeof(typename T::bits), COLUMNS / 2, 64> B;
  typename B::word w[N];
  B::template load<N / 2>(base, row, lane, first, w);
  #pragma unroll
  for (int i = 0; i < N; i++) v[i] = unpack1(T(), w[i]);
}
template <class T, int COLUMNS, int N> DEV void write_half(u32 base, int lane, int first, const float (&v)[N]) {
  typedef Box<sizeof(typename T::bits), COLUMNS / 2, 16> B;
  typename B::word w[N];
  #pragma unroll
  for (int i = 0; i < N; i++) w[i] = pack1(T(), v[i]);
  B::template store<N / 2>(base, 0, lane, first, w);
}

/// Two neighbouring values a column: v0 at column 2n, v1 at 2n + 1.
template <class T, int COLUMNS, class V, int N> DEV void read_twice(u32 base, int row, int lane, int first, V (&v0)[N], V (&v1)[N]) {
  typedef Box<4 * sizeof(typename T::bits), COLUMNS / 2, 64> B;
  typename B::word w[N / 2];
  B::template load<N / 4>(base, row, lane, first, w);
  #pragma unroll
  for (int i = 0; i < N / 2; i++) unpack4(T(), w[i], v0[2 * i], v1[2 * i], v0[2 * i + 1], v1[2 * i + 1]);
}
template <class T, int COLUMNS, int N> DEV void write_twice(u32 base, int lane, int first, const float (&v0)[N], const float (&v1)[N]) {
  typedef Box<4 * sizeof(typename T::bits), COLUMNS / 2, 16> B;
  typename B::word w[N / 2];
  #pragma unroll
  for (int i = 0; i < N / 2; i++) w[i] = pack4(T(), v0[2 * i], v1[2 * i], v0[2 * i + 1], v1[2 * i + 1]);
  B::template store<N / 4>(base, 0, lane, first, w);
}

/// A column vector's slice: v[2j + column].
template <class T, class V, int N> DEV void read_columns(u32 base, int lane, int first, V (&v)[N]) {
  #pragma unroll
  for (int j = 0; j < N / 2; j++) {
    typename Word<2 * sizeof(typename T::bits)>::type w;
    shared_load(base + sizeof(w) * (4 * (first + j) + (lane & 3)), w);
    unpack2(T(), w, v[2 * j], v[2 * j + 1]);
  }
}
/// ... of half width, one value a pair of neighbouring columns: v[j].
template <class T, class V, int N> DEV void read_half_columns(u32 base, int lane, int first, V (&v)[N]) {
  #pragma unroll
  for (int j = 0; j < N; j++) {
    typename T::bits w;
    shared_load(base + sizeof(w) * (4 * (first + j) + (lane & 3)), w);
    v[j] = unpack1(T(), w);
  }
}

}  // namespace coda
