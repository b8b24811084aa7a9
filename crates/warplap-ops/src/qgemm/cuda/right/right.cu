// C = A·B of 8-bit numbers in double precision: the right answer that every other kernel is held to, with the squares
// of the norms of A's rows and B's columns as they stand with their factors.
//
// Idea: tiles of 64x64 through shared memory, sixteen deep, 4x4 sums a thread, all in double precision. Facts of the
// problem (-D): INT, DTYPE, SCALE (quant.cuh).
#include "quant.cuh"
#define T 64
#define D 16
#define THREADS 256

DI double stands_for(u8 code, float factor) {
#if INT
  return (double)(signed char)code;
#else
  return (double)value(code) * (double)factor;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS)
right(const u8* __restrict__ A, const u8* __restrict__ B, const float* __restrict__ scale_a, const float* __restrict__ scale_b,
      double* __restrict__ C, double* __restrict__ rows, double* __restrict__ columns, u64 M, u64 N, u64 K, u64 pitch) {
  __shared__ double a[D][T + 1], b[D][T + 1];
  const Factors factors = {scale_a, scale_b, (int)M, (int)pitch};
  const u64 x = threadIdx.x % 16, y = threadIdx.x / 16, tn = (N + T - 1) / T, row0 = blockIdx.x / tn * T, col0 = blockIdx.x % tn * T;
  double sum[4][4] = {}, row[4] = {}, column[4] = {};
  for (u64 k0 = 0; k0 < K; k0 += D) {
#pragma unroll
    for (int i = 0; i < T * D / THREADS; i++) {
      const int e = threadIdx.x + THREADS * i, line = e / D, d = e % D;
      const u64 k = k0 + d, r = row0 + line, c = col0 + line;
      a[d][line] = r < M && k < K ? stands_for(A[r * K + k], factors.of_a((int)r, (int)(k / 128))) : 0.;
      b[d][line] = c < N && k < K ? stands_for(B[c * K + k], factors.of_b((int)c, (int)(k / 128))) : 0.;
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < D; d++) {
      double u[4], v[4];
#pragma unroll
      for (int i = 0; i < 4; i++) u[i] = a[d][y + 16 * i], v[i] = b[d][x + 16 * i];
#pragma unroll
      for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = fma(u[i], v[j], sum[i][j]);
        // The first column of tiles sees all rows, the first row of tiles all columns.
        if (col0 == 0) row[i] = fma(u[i], u[i], row[i]);
        if (row0 == 0) column[i] = fma(v[i], v[i], column[i]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const u64 r = row0 + y + 16 * i, c = col0 + x + 16 * i;
    if (x == 0 && col0 == 0 && r < M) rows[r] = row[i];
    if (y == 0 && row0 == 0 && c < N) columns[c] = column[i];
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (r < M && col0 + x + 16 * j < N) C[r * N + col0 + x + 16 * j] = sum[i][j];
  }
}
