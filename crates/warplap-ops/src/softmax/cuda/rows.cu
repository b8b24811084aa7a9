// y = softmax(scale * x + mask), a warp or a block a row, the row in registers, float32 sums.
//
// Idea: every thread brings its part of a row by vector loads, takes one exponential an element against its own largest
// score, and a single reduction joins largest and sum; what a thread's own largest was off is one factor for all it
// holds. Rows that registers cannot hold (KEEP 0) are read twice. Wins: everything. Limits: VEC divides N, so that
// vectors lie on their own size; buffers lie on 16 bytes. Facts of the problem (-D): DTYPE, MASK (1: the problem has
// one), N (elements of a row). Of the setting: WARPS (of a row), VEC (elements of a load), STREAM (1: stores that need
// not stay in a cache), TOGETHER (rows of a block; 1 where WARPS is more), KEEP.
#include "soft.cuh"

constexpr int LANES = 32 * WARPS, PIECES = N / VEC, PER = (PIECES + LANES - 1) / LANES;
constexpr bool WHOLE = PIECES % LANES == 0;
static_assert(N % VEC == 0 && (WARPS == 1 || TOGETHER == 1), "vectors lie on their own size; one row a block, or one warp a row");

DI void bring(float (&s)[VEC], const elem* x, const elem* mask, float scale) {
  const Piece a = get(x);
  Piece b;
  if (MASK) b = get(mask);
#pragma unroll
  for (int e = 0; e < VEC; e++) s[e] = MASK ? fmaf(widen(a.one[e]), scale, widen(b.one[e])) : widen(a.one[e]) * scale;
}

extern "C" __global__ void __launch_bounds__(LANES * TOGETHER)
rows(const elem* __restrict__ x, const elem* __restrict__ mask, elem* __restrict__ y, int count, int, int lines, int each, float scale) {
  __shared__ Soft room[WARPS];
  const int lane = threadIdx.x % LANES;
  const u32 row = blockIdx.x * TOGETHER + threadIdx.x / LANES;
  if (row >= count) return; // whole warps, and only where a row is one
  x += (u64)row * N, y += (u64)row * N;
  if (MASK) mask += (u64)(row / each % lines) * N;
#if KEEP
  float s[PER][VEC];
#pragma unroll
  for (int j = 0; j < PER; j++) {
    const int at = (j * LANES + lane) * VEC;
#pragma unroll
    for (int e = 0; e < VEC; e++) s[j][e] = -INFINITE;
    if (WHOLE || at < N) bring(s[j], x + at, mask + at, scale);
  }
  Soft mine = none();
#pragma unroll
  for (int j = 0; j < PER; j++) mine.most = largest(s[j], mine.most);
#pragma unroll
  for (int j = 0; j < PER; j++) {
#pragma unroll
    for (int e = 0; e < VEC; e++) s[j][e] = weight(s[j][e] - mine.most);
    mine.sum += sum_of(s[j]);
  }
  const Soft all = over_row(mine, room);
  const float k = weight(mine.most - all.most) / all.sum;
#pragma unroll
  for (int j = 0; j < PER; j++) {
    const int at = (j * LANES + lane) * VEC;
#pragma unroll
    for (int e = 0; e < VEC; e++) s[j][e] *= k;
    if (WHOLE || at < N) put(y + at, s[j]);
  }
#else
  Soft mine = none();
  float s[UNROLL][VEC];
  for (int from = lane * VEC; from < N; from += UNROLL * LANES * VEC) {
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int at = from + u * LANES * VEC;
#pragma unroll
      for (int e = 0; e < VEC; e++) s[u][e] = -INFINITE;
      if (at < N) bring(s[u], x + at, mask + at, scale);
    }
    more(mine, s);
  }
  const Soft all = over_row(mine, room);
  const float k = 1.f / all.sum;
#pragma unroll 4
  for (int at = lane * VEC; at < N; at += LANES * VEC) {
    bring(s[0], x + at, mask + at, scale);
#pragma unroll
    for (int e = 0; e < VEC; e++) s[0][e] = weight(s[0][e] - all.most) * k;
    put(y + at, s[0]);
  }
#endif
}
