// Helper of every variant, before it.
//
// 1/sqrt(mean(x^2) + eps) of every row of A, for a product behind it that multiplies its rows with them.
//
// Idea: a block a row, squares of whole vectors in float32, summed in a fixed order. Wins: for rows that several tiles of
// the product share, beside summing squares in each of them (rms.cuh). Facts of the problem (-D): DTYPE (0 f16, 1 bf16, 2
// f32), WARPS (of a row), VEC (elements of a load).
#define STREAM 0
#include "ampere.cuh"
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(WARPS * 32)
factors(const elem* A, float* to, int K, u64 lda, int under_root) {
  __shared__ float room[32];
  overlap_begin();
  const elem* line = A + blockIdx.x * lda;
  float sum = 0.f;
  for (int k = threadIdx.x * VEC; k < K; k += WARPS * 32 * VEC) {
    if (k + VEC <= K) {
      const Piece piece = get(line + k);
#pragma unroll
      for (int e = 0; e < VEC; e++) sum = fmaf(widen(piece.one[e]), widen(piece.one[e]), sum);
    } else
      for (int e = k; e < K; e++) sum = fmaf(widen(line[e]), widen(line[e]), sum);
  }
  sum = sum_of_row(sum, room);
  if (threadIdx.x == 0) to[blockIdx.x] = rsqrtf(sum / (float)K + __int_as_float(under_root));
}
