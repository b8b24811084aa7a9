// y = softmax(scale * x + mask), one block a row, float32 sums.
//
// Idea: the plainest kernel there is: the row is read again for every step. Wins: never by design; it fits every length
// of row and type and is the fallback. Facts of the problem (-D): DTYPE, MASK (1: the problem has one).
#include "block.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
reference(const elem* __restrict__ x, const elem* __restrict__ mask, elem* __restrict__ y, int rows, int n, int lines,
    int each, float scale) {
  const u64 first = (u64)blockIdx.x * n, line = (u64)(blockIdx.x / each % lines) * n;
  auto score = [&](int i) { return widen(x[first + i]) * scale + (MASK ? widen(mask[line + i]) : 0.f); };
  float most = -__int_as_float(0x7f800000), sum = 0.f;
  for (int i = threadIdx.x; i < n; i += THREADS) most = fmaxf(most, score(i));
  most = most_of_block(most);
  for (int i = threadIdx.x; i < n; i += THREADS) sum += expf(score(i) - most);
  sum = sum_of_block(sum);
  for (int i = threadIdx.x; i < n; i += THREADS) y[first + i] = narrow(expf(score(i) - most) / sum);
}
