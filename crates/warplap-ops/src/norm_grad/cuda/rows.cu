// Gradients of a norm, blocks that walk the rows, a row and sums over rows in registers, float32 sums.
//
// Idea: every thread brings its part of s and of the gradient by vector loads, keeps both as they came, and has the same
// columns in every row: its sums over rows never leave registers until the end, when each block writes a row of them.
// Wins: everything. Limits: rows that registers hold; VEC divides N, so that vectors lie on their own size; buffers lie
// on 16 bytes. Facts of the problem (-D): DTYPE, LAYER, WEIGHT, BIAS, TOTAL, DROPOUT, N (elements of a row). Of the
// setting: WARPS (of a block), VEC (elements of a load), STREAM (1: stores that need not stay in a cache), RESIDENT
// (blocks a multiprocessor holds).
#include "philox.cuh"
#include "rows.cuh"

constexpr int LANES = 32 * WARPS, PIECES = N / VEC, PER = (PIECES + LANES - 1) / LANES;
constexpr bool WHOLE = PIECES % LANES == 0;
static_assert(N % VEC == 0, "vectors lie on their own size");

extern "C" __global__ void __launch_bounds__(LANES, RESIDENT)
rows(const elem* __restrict__ s, const elem* __restrict__ grad, const elem* __restrict__ weight,
     const elem* __restrict__ total, const u64* __restrict__ seed,
     elem* __restrict__ ds, elem* __restrict__ dx, elem* __restrict__ dweight, elem* __restrict__ dbias,
     float* __restrict__ parts, int count, int, float eps,
     u32 below, float grown) {
  // Two turns: who is early writes the next row's while others read this one's.
  __shared__ float room[2][4][WARPS];
  const u64 drawn[2] = {DROPOUT ? seed[0] : 0, DROPOUT ? seed[1] : 0};
  float of_weight[PER][VEC], of_bias[PER][VEC];
#pragma unroll
  for (int j = 0; j < PER; j++) {
#pragma unroll
    for (int e = 0; e < VEC; e++) of_weight[j][e] = 0.f, of_bias[j][e] = 0.f;
  }
  int turn = 0;
  for (int row = blockIdx.x; row < count; row += gridDim.x, turn ^= 1) {
    const u64 first = (u64)row * N;
    Piece a[PER], b[PER];
    float mean = 0.f, squares = 0.f, along = 0.f, level = 0.f;
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + threadIdx.x) * VEC;
      if (WHOLE || at < N) a[j] = get(s + first + at), b[j] = get(grad + first + at);
    }
    if (LAYER) {
#pragma unroll
      for (int j = 0; j < PER; j++)
        if (WHOLE || (j * LANES + threadIdx.x) * VEC < N) {
#pragma unroll
          for (int e = 0; e < VEC; e++) mean += widen(a[j].one[e]);
        }
      mean = sum_of_row(mean, room[turn][0]) / N;
    }
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + threadIdx.x) * VEC;
      if (!WHOLE && at >= N) continue;
      Piece w;
      if (WEIGHT) w = get(weight + at);
#pragma unroll
      for (int e = 0; e < VEC; e++) {
        const float v = widen(a[j].one[e]) - mean, g = widen(b[j].one[e]) * (WEIGHT ? widen(w.one[e]) : 1.f);
        squares = fmaf(v, v, squares), along = fmaf(v, g, along), level += g;
      }
    }
    const float inverse = 1.f / sqrtf(sum_of_row(squares, room[turn][1]) / N + eps);
    along = sum_of_row(along, room[turn][2]) * inverse / N;
    level = LAYER ? sum_of_row(level, room[turn][3]) / N : 0.f;
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + threadIdx.x) * VEC;
      if (!WHOLE && at >= N) continue;
      Piece w, t;
      if (WEIGHT) w = get(weight + at);
      if (TOTAL) t = get(total + first + at);
      float v[VEC];
#pragma unroll
      for (int e = 0; e < VEC; e++) {
        const float h = (widen(a[j].one[e]) - mean) * inverse, dy = widen(b[j].one[e]);
        v[e] = inverse * ((WEIGHT ? dy * widen(w.one[e]) : dy) - level - h * along) + (TOTAL ? widen(t.one[e]) : 0.f);
        of_weight[j][e] = fmaf(h, dy, of_weight[j][e]), of_bias[j][e] += dy;
      }
      put(ds + first + at, v);
      if (DROPOUT) dropped<VEC % 2 == 0>(v, first + at, drawn, below, grown), put(dx + first + at, v);
    }
  }
  parts += (u64)blockIdx.x * 2 * N;
#pragma unroll
  for (int j = 0; j < PER; j++) {
    const int at = (j * LANES + threadIdx.x) * VEC;
    if (!WHOLE && at >= N) continue;
#pragma unroll
    for (int e = 0; e < VEC; e++) {
      if (WEIGHT) parts[at + e] = of_weight[j][e];
      if (BIAS) parts[N + at + e] = of_bias[j][e];
    }
  }
}
