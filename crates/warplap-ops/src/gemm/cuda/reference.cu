// C = A·B, one thread an element, 16x16 tiles through shared memory, float32 sums. Any layout, any shape, any leading
// dimension.
//
// Idea: the plainest kernel that is still readable work for a GPU. Wins: never by design; it fits everything and is the
// fallback. Facts of the problem (-D): DTYPE (0 f16, 1 bf16, 2 f32), A_COL, B_COL (1: column-major), SCALE,
// BIAS, ACT, JOIN and PAIR (epilogue.cuh). The grid holds the tiles of all products of a batch, which lie right behind each other.
#include "epilogue.cuh"
#define T 16

extern "C" __global__ void __launch_bounds__(T * T)
reference(const elem* __restrict__ A, const elem* __restrict__ B, elem* __restrict__ C, int M, int N, int K, u64 lda,
    u64 ldb, u64 ldc EPILOGUE_PARAMETERS PAIR_PARAMETER) {
  __shared__ float a[T][T + 1], b[T][T + 1];
  const int x = threadIdx.x % T, y = threadIdx.x / T, tn = (N + T - 1) / T;
  const int per = (M + T - 1) / T * tn, z = blockIdx.x / per, tile = blockIdx.x - z * per, row0 = tile / tn * T, col0 = tile % tn * T;
  A += (A_COL ? K : M) * lda * z, B += (B_COL ? N : K) * ldb * z, C += M * ldc * z;
#if PAIR
  __shared__ float b2[T][T + 1];
  B2 += (B_COL ? N : K) * ldb * z;
  float other = 0.f;
#endif
  float sum = 0.f;
  for (int k0 = 0; k0 < K; k0 += T) {
    // Neighbouring threads read neighbouring addresses in either order.
    const int ar = row0 + (A_COL ? x : y), ak = k0 + (A_COL ? y : x), bk = k0 + (B_COL ? x : y), bc = col0 + (B_COL ? y : x);
    const float va = ar < M && ak < K ? widen(A[A_COL ? ak * lda + ar : ar * lda + ak]) : 0.f;
    const float vb = bk < K && bc < N ? widen(B[B_COL ? bc * ldb + bk : bk * ldb + bc]) : 0.f;
    a[A_COL ? x : y][A_COL ? y : x] = va;
    b[B_COL ? x : y][B_COL ? y : x] = vb;
#if PAIR
    b2[B_COL ? x : y][B_COL ? y : x] = bk < K && bc < N ? widen(B2[B_COL ? bc * ldb + bk : bk * ldb + bc]) : 0.f;
#endif
    __syncthreads();
#pragma unroll
    for (int i = 0; i < T; i++) sum = fmaf(a[y][i], b[i][x], sum);
#if PAIR
#pragma unroll
    for (int i = 0; i < T; i++) other = fmaf(a[y][i], b2[i][x], other);
#endif
    __syncthreads();
  }
#if PAIR
  if (row0 + y < M && col0 + x < N) {
    const float factor = factor_of(scale, (u64)M * z + row0 + y);
    C[(row0 + y) * ldc + col0 + x] = narrow(activate(sum * factor) * (other * factor));
  }
#else
  if (row0 + y < M && col0 + x < N)
    C[(row0 + y) * ldc + col0 + x] = narrow(
        join_at(finished(sum, bias, col0 + x, N, factor_of(scale, (u64)M * z + row0 + y)),
            joined + ((u64)M * z + row0 + y) * ldj, col0 + x, N));
#endif
}
