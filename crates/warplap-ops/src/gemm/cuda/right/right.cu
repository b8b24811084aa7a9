// C = act(scale ∘ A·B + bias), joined with another matrix or, of a pair, multiplied with A·B2, in double precision: the
// right answer that every other kernel is held to, with the squares of the norms of A's rows, times those of their
// factors, and of B's columns (of a pair those of the longer of its two columns, and for each block the largest number of
// either product).
//
// Idea: tiles of 64x64 through shared memory, sixteen deep, 4x4 sums a thread, all in double precision; elements are
// widened when a tile is brought in, once for 64 uses. Facts of the problem (-D): DTYPE (0 f16, 1 bf16, 2 f32), A_COL,
// B_COL (1: column-major), SCALE (1: one factor, 2: one a row, or that of a norm), BIAS (1: there is one), JOIN (1: added,
// 2: multiplied with), PAIR (1: there is a second B), ACT (as epilogue.cuh counts them; that file computes them in float32,
// this one in double precision and in other forms). C lies as the output does: padding between its rows is NaN. The grid
// holds the tiles of all products of a batch.
#include "element.cuh"
#include "activated.cuh"
#define T 64
#define D 16
#define THREADS 256
#ifndef BIAS
#define BIAS 0
#endif
#ifndef JOIN
#define JOIN 0
#endif
#ifndef PAIR
#define PAIR 0
#endif
#ifndef SCALE
#define SCALE 0
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
right(const elem* __restrict__ A, const elem* __restrict__ B, double* __restrict__ C, double* __restrict__ rows,
      double* __restrict__ columns,
      const elem* __restrict__ bias, const elem* __restrict__ joined, const elem* __restrict__ B2,
      double* __restrict__ most, const float* __restrict__ scale, double under_root, int M, int N, int K, u64 lda,
      u64 ldb, u64 ldc, u64 len) {
  __shared__ double a[D][T + 1], b[D][T + 1];
#if PAIR
  __shared__ double b2[D][T + 1], halves[2][THREADS];
  double sum2[4][4] = {}, column2[4] = {}, largest[2] = {};
#endif
  const int x = threadIdx.x % 16, y = threadIdx.x / 16, tn = (N + T - 1) / T;
  const int per = (M + T - 1) / T * tn, z = blockIdx.x / per, tile = blockIdx.x - z * per, row0 = tile / tn * T, col0 = tile % tn * T;
  A += (u64)(A_COL ? K : M) * lda * z, B += (u64)(B_COL ? N : K) * ldb * z;
#if PAIR
  B2 += (u64)(B_COL ? N : K) * ldb * z;
#endif
  double sum[4][4] = {}, row[4] = {}, column[4] = {};
  for (int k0 = 0; k0 < K; k0 += D) {
#pragma unroll
    for (int i = 0; i < T * D / THREADS; i++) {
      const int e = threadIdx.x + THREADS * i;
      // Neighbouring threads read neighbouring addresses in either order.
      const int ar = A_COL ? e % T : e / D, ad = A_COL ? e / T : e % D, bc = B_COL ? e / D : e % T, bd = B_COL ? e % D : e / T;
      const bool ia = row0 + ar < M && k0 + ad < K, ib = col0 + bc < N && k0 + bd < K;
      a[ad][ar] = ia ? widen(A[A_COL ? (k0 + ad) * lda + row0 + ar : (row0 + ar) * lda + k0 + ad]) : 0.;
      b[bd][bc] = ib ? widen(B[B_COL ? (col0 + bc) * ldb + k0 + bd : (k0 + bd) * ldb + col0 + bc]) : 0.;
#if PAIR
      b2[bd][bc] = ib ? widen(B2[B_COL ? (col0 + bc) * ldb + k0 + bd : (k0 + bd) * ldb + col0 + bc]) : 0.;
#endif
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < D; d++) {
      double u[4], v[4];
#pragma unroll
      for (int i = 0; i < 4; i++) u[i] = a[d][y + 16 * i], v[i] = b[d][x + 16 * i];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = fma(u[i], v[j], sum[i][j]);
#if PAIR
      double w[4];
#pragma unroll
      for (int j = 0; j < 4; j++) w[j] = b2[d][x + 16 * j];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum2[i][j] = fma(u[i], w[j], sum2[i][j]);
      if (row0 == 0)
#pragma unroll
        for (int j = 0; j < 4; j++) column2[j] = fma(w[j], w[j], column2[j]);
#endif
      // The first column of tiles sees all rows, the first row of tiles all columns.
      if (col0 == 0 || SCALE == 2)
#pragma unroll
        for (int i = 0; i < 4; i++) row[i] = fma(u[i], u[i], row[i]);
      if (row0 == 0)
#pragma unroll
        for (int i = 0; i < 4; i++) column[i] = fma(v[i], v[i], column[i]);
    }
    __syncthreads();
  }
  const u64 first = (u64)M * ldc * z;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int r = row0 + y + 16 * i, c = col0 + x + 16 * i;
    // Factors of a norm where a number is added under its root, given ones otherwise.
    double factor = 1.;
    if (SCALE == 2 && under_root > 0.) factor = rsqrt(row[i] / K + under_root);
    else if (SCALE && r < M) factor = scale[SCALE == 2 ? (u64)M * z + r : 0];
    if (x == 0 && col0 == 0 && r < M) rows[(u64)M * z + r] = row[i] * factor * factor;
#if PAIR
    if (y == 0 && row0 == 0 && c < N) columns[(u64)N * z + c] = fmax(column[i], column2[i]);
#else
    if (y == 0 && row0 == 0 && c < N) columns[(u64)N * z + c] = column[i];
#endif
    if (r >= M) continue;
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (col0 + x + 16 * j < N) {
        const int c = col0 + x + 16 * j;
        const double done = activated(BIAS ? sum[i][j] * factor + widen(bias[c]) : sum[i][j] * factor);
#if PAIR
        const double second = sum2[i][j] * factor;
        C[first + r * ldc + c] = done * second;
        largest[0] = fmax(largest[0], fabs(done)), largest[1] = fmax(largest[1], fabs(second));
        continue;
#endif
        const double other = JOIN ? widen(joined[first + r * ldc + c]) : 0.;
        C[first + r * ldc + c] = JOIN == 2 ? done * other : done + other;
      }
    if (col0 + T >= N)
      for (u64 at = N + x; at < ldc; at += 16)
        if (first + r * ldc + at < len) C[first + r * ldc + at] = __longlong_as_double(0x7ff8000000000000ull);
  }
#if PAIR
  halves[0][threadIdx.x] = largest[0], halves[1][threadIdx.x] = largest[1];
  __syncthreads();
  if (threadIdx.x < 2) {
    double all = 0.;
    for (int i = 0; i < THREADS; i++) all = fmax(all, halves[threadIdx.x][i]);
    most[blockIdx.x * 2ull + threadIdx.x] = all;
  }
#endif
}
