// dx = scale * y * (dy - sum of dy * y), one block a row, float32 sums.
//
// Idea: the plainest kernel there is. Wins: never by design; it fits every length of row and type and is the fallback.
// Facts of the problem (-D): DTYPE.
#include "block.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
reference(const elem* __restrict__ y, const elem* __restrict__ grad, elem* __restrict__ dx, int rows, int n, float scale) {
  const u64 first = (u64)blockIdx.x * n;
  float sum = 0.f;
  for (int i = threadIdx.x; i < n; i += THREADS) sum += widen(y[first + i]) * widen(grad[first + i]);
  const float delta = sum_of_block(sum);
  for (int i = threadIdx.x; i < n; i += THREADS) dx[first + i] = narrow(scale * widen(y[first + i]) * (widen(grad[first + i]) - delta));
}
