// C = A·B of 8-bit numbers, one thread an element: the plainest kernel there is.
//
// Idea: each thread runs along k, one sum for each 128 elements, times their factor. Wins: never by design. Limits:
// none. Facts of the problem (-D): INT, DTYPE, SCALE (quant.cuh).
#include "quant.cuh"

extern "C" __global__ void __launch_bounds__(256)
reference(const u8* __restrict__ A, const u8* __restrict__ B, out_t* __restrict__ C, const float* __restrict__ scale_a,
          const float* __restrict__ scale_b, int M, int N, int K, int pitch) {
  const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
  if (at >= (u64)M * N) return;
  const int row = (int)(at / N), col = (int)(at % N);
  const Factors factors = {scale_a, scale_b, M, pitch};
  A += (u64)row * K, B += (u64)col * K;
  sum_t sum = 0;
  for (int k0 = 0; k0 < K; k0 += 128) {
    sum_t part = 0;
    for (int k = k0; k < min(k0 + 128, K); k++) {
#if INT
      part += (int)(signed char)A[k] * (int)(signed char)B[k];
#else
      part = fmaf(value(A[k]), value(B[k]), part);
#endif
    }
    sum += SCALE ? part * factors.of_a(row, k0 / 128) * factors.of_b(col, k0 / 128) : part;
  }
  C[at] = narrowed(sum);
}
