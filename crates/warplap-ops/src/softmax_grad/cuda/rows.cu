// dx = scale * y * (dy - sum of dy * y), a warp or a block a row, the row in registers, float32 sums.
//
// Idea: every thread brings its part of both rows by vector loads and keeps it as it came; one reduction in between.
// Rows that registers cannot hold (KEEP 0) are read twice. Wins: everything. Limits: VEC divides N, so that vectors lie
// on their own size; buffers lie on 16 bytes. Facts of the problem (-D): DTYPE, N (elements of a row). Of the setting:
// WARPS (of a row), VEC (elements of a load), STREAM (1: stores that need not stay in a cache), TOGETHER (rows of a
// block; 1 where WARPS is more), KEEP.
#include "rows.cuh"

constexpr int LANES = 32 * WARPS, PIECES = N / VEC, PER = (PIECES + LANES - 1) / LANES;
static_assert(N % VEC == 0 && (WARPS == 1 || TOGETHER == 1), "vectors lie on their own size; one row a block, or one warp a row");

DI float products(const Piece& y, const Piece& g) {
  float sum = 0.f;
#pragma unroll
  for (int e = 0; e < VEC; e++) sum = fmaf(widen(y.one[e]), widen(g.one[e]), sum);
  return sum;
}

DI void finish(elem* dx, const Piece& y, const Piece& g, float delta, float scale) {
  float v[VEC];
#pragma unroll
  for (int e = 0; e < VEC; e++) v[e] = scale * widen(y.one[e]) * (widen(g.one[e]) - delta);
  put(dx, v);
}

extern "C" __global__ void __launch_bounds__(LANES * TOGETHER)
rows(const elem* __restrict__ y, const elem* __restrict__ grad, elem* __restrict__ dx, int count, int, float scale) {
  __shared__ float room[WARPS];
  const int lane = threadIdx.x % LANES;
  const u64 row = (u64)blockIdx.x * TOGETHER + threadIdx.x / LANES;
  if (row >= count) return; // whole warps, and only where a row is one
  y += row * N, grad += row * N, dx += row * N;
  float sum = 0.f;
#if KEEP
  Piece a[PER], b[PER];
#pragma unroll
  for (int j = 0; j < PER; j++) {
    const int at = (j * LANES + lane) * VEC;
    if (at < N) a[j] = get(y + at), b[j] = get(grad + at);
  }
#pragma unroll
  for (int j = 0; j < PER; j++)
    if ((j * LANES + lane) * VEC < N) sum += products(a[j], b[j]);
  const float delta = sum_of_row(sum, room);
#pragma unroll
  for (int j = 0; j < PER; j++) {
    const int at = (j * LANES + lane) * VEC;
    if (at < N) finish(dx + at, a[j], b[j], delta, scale);
  }
#else
#pragma unroll 4
  for (int at = lane * VEC; at < N; at += LANES * VEC) sum += products(get(y + at), get(grad + at));
  const float delta = sum_of_row(sum, room);
#pragma unroll 4
  for (int at = lane * VEC; at < N; at += LANES * VEC) finish(dx + at, get(y + at), get(grad + at), delta, scale);
#endif
}
