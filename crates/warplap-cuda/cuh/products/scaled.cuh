// What happens to the sums of a block-sparse product before they are stored: alpha times the sum, plus beta times an
// addend of C's shape, in float32. Comes in: -DSCALED=1 (alpha counts), -DADDS=1 (beta and the addend count too; then
// SCALED is 1), -DBIAS=1 (the addend has one element for each row of C; 2: and both factors are one). Goes out:
// SCALE_PARAMETERS, the last parameters of a kernel's entry, and functions that leave no instruction behind where
// nothing is scaled. The addend may be C itself: whoever writes an element has read it before.
#include "element.cuh"
#ifndef SCALED
#define SCALED 0
#endif
#ifndef ADDS
#define ADDS 0
#endif
#ifndef BIAS
#define BIAS 0
#endif
#ifndef C_COL
#define C_COL 0
#endif
#define SCALE_PARAMETERS , const elem* add, float alpha, float beta

// One sum; `at` is its place in the addend.
DI float scaled_one(float x, const elem* add, u64 at, float alpha, float beta) {
  if (BIAS == 2) return x + widen(add[at]);
  if (SCALED) x *= alpha;
  if (ADDS) x = fmaf(beta, widen(add[at]), x);
  return x;
}

// What all sums of a row get, and one of them with it.
DI float shared_by_row(const elem* add, u64 row, float beta) { return BIAS == 2 ? widen(add[row]) : beta * widen(add[row]); }
DI float plus_shared(float x, float shared, float alpha) { return BIAS == 2 ? x + shared : fmaf(alpha, x, shared); }

// Two sums that are neighbours in a row; `at` is the first one's place in C, an even number.
DI void scale_two(float& x, float& y, const elem* add, u64 at, float alpha, float beta) {
  if (SCALED) x *= alpha, y *= alpha;
  if (ADDS) {
#if DTYPE == 2
    const float2 v = *reinterpret_cast<const float2*>(add + at);
    x = fmaf(beta, v.x, x), y = fmaf(beta, v.y, y);
#else
    const u32 v = *reinterpret_cast<const u32*>(add + at);
    x = fmaf(beta, widen((u16)(v & 0xffff)), x), y = fmaf(beta, widen((u16)(v >> 16)), y);
#endif
  }
}

// Accumulator fragments of 8 columns each, as wgmma and mma.sync hold them: four values of a lane, two columns (lane %
// 4 * 2) in two rows (lane / 4 and 8 on). `upper` and `lower` are those rows of C, or -1 where there is none; `col` is
// the first column of the first fragment. Of a column-major C (-DC_COL=1) M is the height.
template <int r_> DI void scale_fragments(float (&d)[r_], const elem* add, long long upper, long long lower, int col,
    int N, float alpha, float beta, int M = 0) {
  if (!SCALED) return;
  if (BIAS) {
    const float high = upper < 0 ? 0.f : shared_by_row(add, upper, beta), low = lower < 0 ? 0.f : shared_by_row(add, lower, beta);
#pragma unroll
    for (int i = 0; i < r_; i++) d[i] = plus_shared(d[i], i % 4 < 2 ? high : low, alpha);
    return;
  }
  const int first = col + (threadIdx.x & 3) * 2;
#pragma unroll
  for (int q = 0; q < r_ / 4; q++) {
    const int c = first + q * 8;
    if (!ADDS) {
      scale_two(d[q * 4], d[q * 4 + 1], add, 0, alpha, beta), scale_two(d[q * 4 + 2], d[q * 4 + 3], add, 0, alpha, beta);
      continue;
    }
    if (C_COL) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const long long row = i < 2 ? upper : lower;
        if (c + i % 2 < N && row >= 0) d[q * 4 + i] = scaled_one(d[q * 4 + i], add, (u64)(c + i % 2) * M + row, alpha, beta);
      }
      continue;
    }
    if (c < N && upper >= 0) scale_two(d[q * 4], d[q * 4 + 1], add, (u64)upper * N + c, alpha, beta);
    if (c < N && lower >= 0) scale_two(d[q * 4 + 2], d[q * 4 + 3], add, (u64)lower * N + c, alpha, beta);
  }
}
