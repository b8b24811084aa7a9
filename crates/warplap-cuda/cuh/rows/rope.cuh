// Heads that are turned by their positions: where they lie, and which row of the table turns them.
//
// Comes in (-D): DTYPE, WIDENED (1: the table is float32), POSITIONS (bytes of a position; 0: a row's own number), H,
// HK (heads of x and of k), D (elements of a head), ROT (those that are turned), PLAIN (heads at the end that are not),
// WIDE (1: a column of the table for each element), INTERLEAVED (1: neighbours are pairs), BIAS, BACK, INPLACE. Goes
// out: angle, place, Heads.
#pragma once
#include "element.cuh"

#if WIDENED
typedef float angle;
DI float widen_angle(angle x) { return x; }
#else
typedef elem angle;
DI auto widen_angle(angle x) { return widen(x); }
#endif
#if POSITIONS == 4
typedef int place;
#else
typedef long long place;
#endif

constexpr int HALF = ROT / 2, HEADS = H + HK, TURNED = HEADS - PLAIN;
// Whether what is not turned is written too.
constexpr bool RESTS = BIAS || !INPLACE;

// The element that one is turned with.
DI constexpr int other_of(int j) { return INTERLEAVED ? j ^ 1 : j < HALF ? j + HALF : j - HALF; }

// The column of an element in the table.
DI constexpr int column_of(int j) { return WIDE ? j : INTERLEAVED ? j / 2 : j < HALF ? j : j - HALF; }

// The element whose column and sign the sine is taken of; the first of a pair takes it off.
DI constexpr int sine_of(int j) { return BACK ? other_of(j) : j; }
DI constexpr bool is_first(int j) { return j < other_of(j); }

// The row of the table that turns a row; -1 where it has none.
DI long long line_of(const place* positions, u64 row, int n) {
  if (!POSITIONS) return row % n;
  const long long at = positions[row];
  return at >= 0 && at < n ? at : -1;
}

// Where a head of a row is read and written.
struct Heads {
  const elem *x, *k;
  elem *y, *yk;
  int ld, ldk;
  DI const elem* from(u64 row, int head) const {
    return HK == 0 || head < H ? x + row * ld + head * D : k + row * ldk + (head - H) * D;
  }
  DI elem* to(u64 row, int head) const {
    if (INPLACE) return const_cast<elem*>(from(row, head));
    return HK == 0 || head < H ? y + (row * H + head) * D : yk + (row * HK + head - H) * D;
  }
};
