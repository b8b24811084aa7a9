// y = norm(dropout(x + before) + residual) * weight + bias, blocks that walk the rows, float32 sums of the float32 sum.
//
// Idea: a block has its next row under way while it draws, sums and writes this one, so that the arithmetic of dropout
// hides behind memory. Wins: dropout in front of many rows. Limits: rows that registers hold, a block a row; VEC divides
// N; buffers lie on 16 bytes. Facts of the problem (-D): DTYPE, LAYER, RESIDUAL, WEIGHT, BIAS, BEFORE, DROPOUT, SUM (1: it
// is written), N (elements of a row). Of the setting: WARPS (of a block), VEC (elements of a load), STREAM (1: stores
// that need not stay in a cache), RESIDENT (blocks a multiprocessor holds).
#include "philox.cuh"
#include "rows.cuh"

constexpr int LANES = 32 * WARPS, PIECES = N / VEC, PER = (PIECES + LANES - 1) / LANES;
constexpr bool WHOLE = PIECES % LANES == 0;
static_assert(N % VEC == 0 && WARPS > 1, "vectors lie on their own size; a block a row");

extern "C" __global__ void __launch_bounds__(LANES, RESIDENT)
walk(const elem* __restrict__ x, const elem* __restrict__ residual, const elem* __restrict__ weight, const elem* __restrict__ bias, elem* __restrict__ y,
     elem* __restrict__ sum, const elem* __restrict__ before, const u64* __restrict__ seed, int count, int, float eps, u32 below, float grown) {
  __shared__ float room[2][2][WARPS];
  const u64 drawn[2] = {DROPOUT ? seed[0] : 0, DROPOUT ? seed[1] : 0};
  Piece a[PER], b[PER];
  auto ask = [&](u64 first) {
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + threadIdx.x) * VEC;
      if (!WHOLE && at >= N) continue;
      a[j] = get(x + first + at);
      if (RESIDUAL) b[j] = get(residual + first + at);
    }
  };
  ask((u64)blockIdx.x * N);
  int turn = 0;
  for (int row = blockIdx.x; row < count; row += gridDim.x, turn ^= 1) {
    const u64 first = (u64)row * N;
    float s[PER][VEC], mean = 0.f, total = 0.f, squares = 0.f;
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + threadIdx.x) * VEC;
      const bool has = WHOLE || at < N;
      Piece more;
      if (BEFORE && has) more = get(before + at);
#pragma unroll
      for (int e = 0; e < VEC; e++) s[j][e] = has ? widen(a[j].one[e]) + (BEFORE ? widen(more.one[e]) : 0.f) : 0.f;
      if (DROPOUT) dropped<VEC % 2 == 0>(s[j], first + at, drawn, below, grown);
      if (RESIDUAL && has) {
#pragma unroll
        for (int e = 0; e < VEC; e++) s[j][e] += widen(b[j].one[e]);
      }
#pragma unroll
      for (int e = 0; e < VEC; e++) total += s[j][e];
    }
    if (row + gridDim.x < count) ask(first + (u64)gridDim.x * N);
    if (LAYER) mean = sum_of_row(total, room[turn][0]) / N;
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + threadIdx.x) * VEC;
      if (!WHOLE && at >= N) continue;
#pragma unroll
      for (int e = 0; e < VEC; e++) squares = fmaf(s[j][e] - mean, s[j][e] - mean, squares);
      if (SUM) put(sum + first + at, s[j]);
    }
    const float inverse = 1.f / sqrtf(sum_of_row(squares, room[turn][1]) / N + eps);
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + threadIdx.x) * VEC;
      if (!WHOLE && at >= N) continue;
      Piece w, c;
      if (WEIGHT) w = get(weight + at);
      if (BIAS) c = get(bias + at);
#pragma unroll
      for (int e = 0; e < VEC; e++) {
        s[j][e] = (s[j][e] - mean) * inverse;
        if (WEIGHT) s[j][e] *= widen(w.one[e]);
        if (BIAS) s[j][e] += widen(c.one[e]);
      }
      put(y + first + at, s[j]);
    }
  }
}
