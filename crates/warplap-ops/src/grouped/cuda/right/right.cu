// y = x·w[e] in double precision: the right answer that every other kernel is held to. Rows of nobody are no numbers.
//
// Idea: tiles of 64x64 of one expert's product through shared memory, sixteen deep, 4x4 sums a thread, all in double
// precision. Beside y comes the largest product of the squares of the norms of a row of x and of a column of its
// matrix: from it comes how far a kernel may be off. The grid has as many tiles of rows as there may be at the most.
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16, 2 f32), W_COL (1: matrices are column-major), EXPERTS.
#include "block.cuh"
#include "groups.cuh"
#define T 64
#define D 16

extern "C" __global__ void __launch_bounds__(THREADS)
right(const elem* __restrict__ x, const elem* __restrict__ w, const int* __restrict__ offsets, double* __restrict__ y,
    u64* __restrict__ largest, u64 rows, u64 n, u64 k) {
  __shared__ Groups groups;
  __shared__ double a[D][T + 1], b[D][T + 1];
  if (threadIdx.x < 32) scan_groups<T>(groups, offsets, (int)rows);
  __syncthreads();
  const u64 across = (n + T - 1) / T, column0 = blockIdx.x % across * T;
  const int tile = (int)(blockIdx.x / across), all = groups.firsts[EXPERTS], tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  if (tile >= all) {
    const u64 row0 = groups.begins[EXPERTS] + (u64)(tile - all) * T;
    for (u64 row = row0 + ty; row < row0 + T && row < rows; row += 16)
      for (u64 column = column0 + tx; column < column0 + T && column < n; column += 16)
        y[row * n + column] = __longlong_as_double(0x7ff8000000000000ll);
    return;
  }
  const int expert = expert_of(groups, tile);
  const u64 row0 = groups.begins[expert] + (u64)(tile - groups.firsts[expert]) * T, end = groups.begins[expert + 1];
  w += expert * n * k;
  double sum[4][4] = {}, left[4] = {}, below[4] = {};
  for (u64 k0 = 0; k0 < k; k0 += D) {
#pragma unroll
    for (int i = 0; i < T * D / THREADS; i++) {
      // Neighbouring threads read neighbouring addresses in either order.
      const int e = threadIdx.x + THREADS * i, ar = e / D, ad = e % D, bc = W_COL ? e / D : e % T, bd = W_COL ? e % D : e / T;
      const u64 row = row0 + ar, column = column0 + bc, q = k0 + bd;
      a[ad][ar] = row < end && k0 + ad < k ? widen(x[row * k + k0 + ad]) : 0.;
      b[bd][bc] = q < k && column < n ? widen(w[W_COL ? column * k + q : q * n + column]) : 0.;
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < D; d++) {
      double u[4], v[4];
#pragma unroll
      for (int i = 0; i < 4; i++) u[i] = a[d][ty + 16 * i], v[i] = b[d][tx + 16 * i];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        left[i] = fma(u[i], u[i], left[i]), below[i] = fma(v[i], v[i], below[i]);
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = fma(u[i], v[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
  double most = 0.;
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const u64 row = row0 + ty + 16 * i, column = column0 + tx + 16 * j;
      most = fmax(most, left[i] * below[j]);
      if (row < end && column < n) y[row * n + column] = sum[i][j];
    }
  raise(largest, most);
}
