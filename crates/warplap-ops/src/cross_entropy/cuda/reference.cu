// Cross entropy, one block a row, float32 sums.
//
// Idea: the plainest kernel there is: the row is read again for every step. Wins: never by design; it fits every length
// of row and type and is the fallback. Facts of the problem (-D): DTYPE, LABELS, GRAD, KEPT, MEAN, SMOOTH, ZLOSS
// (entropy.cuh).
#define WARPS 8
#define VEC 1
#define STREAM 0
#include "entropy.cuh"

extern "C" __global__ void __launch_bounds__(256)
reference(elem* x, const label* __restrict__ labels, float* loss, float* lse, float* total, elem* beside, u32* room, int rows, int n,
    long long ignore, float smoothing, float zloss) {
  __shared__ Soft parts[WARPS];
  __shared__ float sums[WARPS];
  const Numbers p = {rows, n, ignore, smoothing, zloss};
  const long long y = labels[blockIdx.x];
  x += (u64)blockIdx.x * n;
  elem* to = KEPT ? beside + (u64)blockIdx.x * n : x;
  Soft mine = nothing();
  float plain = 0.f;
  for (int i = threadIdx.x; i < n; i += 256) {
    Piece piece;
    piece.one[0] = x[i];
    join(mine, piece);
    if (SMOOTH) plain += widen(x[i]);
  }
  if (SMOOTH) plain = sum_of_row(plain, sums);
  mine = both_of_warp(mine);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = parts[0];
  for (int i = 1; i < WARPS; i++) mine = both(mine, parts[i]);
  if (threadIdx.x == 0) {
    const float all = natural(mine), picked = y >= 0 && y < n ? widen(x[y]) : 0.f;
    lse[blockIdx.x] = all, loss[blockIdx.x] = loss_of(p, y, all, picked, plain);
  }
  __syncthreads();
  if (GRAD) {
    const Factors f = factors_of(p, y, mine, MEAN ? __int_as_float((int)room[1]) : 1.f);
    for (int i = threadIdx.x; i < n; i += 256) {
      Piece piece;
      float v[1];
      piece.one[0] = x[i];
      slope(v, piece, mine.most, f, y - i);
      to[i] = narrow(v[0]);
    }
  }
  close(p, labels, loss, total, room);
}
