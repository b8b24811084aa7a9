// Products of 8-bit numbers: what the codes stand for, and what their factors belong to. Comes in: -DINT (1: signed
// bytes, summed in i32; 0: f8e4m3, summed in f32), -DDTYPE (the output: 0 f16, 1 bf16, 2 four bytes, f32 or i32),
// -DSCALE (0 no factors, 1 one a matrix, 2 one a row of A and a column of B, 3 one for 1x128 of A and 128x128 of B).
// Goes out: the names below.
#pragma once
#include "element.cuh"
typedef unsigned char u8;
#if INT
typedef int sum_t;
typedef int out_t;
DI out_t narrowed(sum_t x) { return x; }
#else
typedef float sum_t;
typedef elem out_t;
DI out_t narrowed(sum_t x) { return narrow(x); }
#endif

// The number of a code of f8e4m3: its exponent and mantissa lie in those of a float 120 binary places too low.
DI float value(u8 code) {
  const float size = __uint_as_float((code & 0x7fu) << 20) * 0x1p120f;
  return (code & 0x7f) == 0x7f ? __uint_as_float(0x7fc00000) : code & 0x80 ? -size : size;
}

// Where the factors lie. Those of blocks: A's of one block of k are M behind each other, B's of one block of columns
// are `pitch` apart.
struct Factors {
  const float *a, *b;
  int m, pitch;
  DI float of_a(int row, int block) const { return SCALE == 3 ? a[(u64)block * m + row] : SCALE == 2 ? a[row] : SCALE == 1 ? a[0] : 1.f; }
  DI float of_b(int column, int block) const {
    return SCALE == 3 ? b[(u64)(column / 128) * pitch + block] : SCALE == 2 ? b[column] : SCALE == 1 ? b[0] : 1.f;
  }
};
