// The blocks of G*B^T that a pattern names, in register tiles of 4 x 4 on plain lanes, float32 sums.
//
// Idea: a CTA owns TILE x TILE elements of one block and passes over n in steps of 16 through shared memory. Both
// orders of both factors are read along memory. Wins: float32, and what the tensor cores' copies cannot read (rows that
// do not end on 16 bytes, odd block sizes). Limits: none. Where the idea comes from: the usual register-tiled matrix
// product. Facts of the problem (-D): DTYPE, BS, TILE (64, 32, 16 or 8; divides BS), G_COL, B_COL (1: column-major).
#include "element.cuh"

constexpr int SIDE = TILE / 4, NT = SIDE * SIDE < 32 ? 32 : SIDE * SIDE, DEEP = 16, PITCH = TILE + 4, PARTS = BS / TILE;

// A tile of one factor, TILE of its rows from `first` on by DEEP from `q0` on; past n there are zeros.
template <int col_> DI void bring(float (*to)[PITCH], const elem* from, u64 first, u64 tall, int q0, int n) {
  for (int i = threadIdx.x; i < TILE * DEEP; i += NT) {
    const int r = col_ ? i % TILE : i / DEEP, q = col_ ? i / TILE : i % DEEP;
    const u64 at = col_ ? (u64)(q0 + q) * tall + first + r : (first + r) * n + q0 + q;
    to[q][r] = q0 + q < n ? widen(from[at]) : 0.f;
  }
}

extern "C" __global__ void __launch_bounds__(NT)
simt_tiles(const int* __restrict__ row_ptr, const int* __restrict__ col_idx, const elem* __restrict__ G,
           const elem* __restrict__ B, elem* __restrict__ out,
           int m, int k, int n, int rows) {
  __shared__ __align__(16) float g[DEEP][PITCH], b[DEEP][PITCH];
  const int block = blockIdx.x / (PARTS * PARTS), part = blockIdx.x % (PARTS * PARTS), y = part / PARTS * TILE, x = part % PARTS * TILE;
  if (block >= __ldg(row_ptr + rows)) return; // an empty pattern
  int low = 0, high = rows; // the first row that ends behind the block
  while (low < high) {
    const int middle = (low + high) / 2;
    if (__ldg(row_ptr + middle + 1) <= block) low = middle + 1;
    else high = middle;
  }
  const u64 top = (u64)low * BS + y, left = (u64)__ldg(col_idx + block) * BS + x;
  const int ty = threadIdx.x / SIDE * 4, tx = threadIdx.x % SIDE * 4;
  const bool mine = threadIdx.x < SIDE * SIDE;
  float acc[4][4] = {};
  for (int q0 = 0; q0 < n; q0 += DEEP) {
    bring<G_COL>(g, G, top, m, q0, n);
    bring<B_COL>(b, B, left, k, q0, n);
    __syncthreads();
    if (mine) {
#pragma unroll
      for (int q = 0; q < DEEP; q++) {
        const float4 u = *reinterpret_cast<const float4*>(&g[q][ty]), v = *reinterpret_cast<const float4*>(&b[q][tx]);
        const float gs[4] = {u.x, u.y, u.z, u.w}, bs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int j = 0; j < 4; j++) acc[i][j] = fmaf(gs[i], bs[j], acc[i][j]);
      }
    }
    __syncthreads();
  }
  if (!mine) return;
  elem* to = out + (u64)block * BS * BS + (y + ty) * BS + x + tx;
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) to[i * BS + j] = narrow(acc[i][j]);
}
