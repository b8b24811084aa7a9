// Gradients of a norm, blocks that walk the rows, float32 sums.
//
// Idea: the plainest kernel there is: a row is read again for every step, and sums over rows lie in memory, a row of
// them for each block. Wins: never by design; it fits every length of row and type and is the fallback. Facts of the
// problem (-D): DTYPE, LAYER (1: the mean was taken away), WEIGHT, BIAS, TOTAL, DROPOUT (1: the problem has it).
#include "block.cuh"
#include "philox.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
reference(const elem* __restrict__ s, const elem* __restrict__ grad, const elem* __restrict__ weight,
          const elem* __restrict__ total, const u64* __restrict__ seed,
          elem* __restrict__ ds, elem* __restrict__ dx, elem* __restrict__ dweight, elem* __restrict__ dbias,
          float* __restrict__ parts, int count, int n, float eps,
          u32 below, float grown) {
  const u64 drawn[2] = {DROPOUT ? seed[0] : 0, DROPOUT ? seed[1] : 0};
  float* mine = parts + (u64)blockIdx.x * 2 * n;
  for (int i = threadIdx.x; i < 2 * n; i += THREADS) mine[i] = 0.f;
  for (int row = blockIdx.x; row < count; row += gridDim.x) {
    const u64 first = (u64)row * n;
    auto g_at = [&](int i) { return widen(grad[first + i]) * (WEIGHT ? widen(weight[i]) : 1.f); };
    float mean = 0.f, squares = 0.f, along = 0.f, level = 0.f;
    if (LAYER) {
      for (int i = threadIdx.x; i < n; i += THREADS) mean += widen(s[first + i]);
      mean = sum_of_block(mean) / n;
    }
    for (int i = threadIdx.x; i < n; i += THREADS) {
      const float v = widen(s[first + i]) - mean;
      squares = fmaf(v, v, squares);
    }
    const float inverse = 1.f / sqrtf(sum_of_block(squares) / n + eps);
    for (int i = threadIdx.x; i < n; i += THREADS) along = fmaf(widen(s[first + i]) - mean, g_at(i), along);
    along = sum_of_block(along) * inverse / n;
    if (LAYER) {
      for (int i = threadIdx.x; i < n; i += THREADS) level += g_at(i);
      level = sum_of_block(level) / n;
    }
    for (int i = threadIdx.x; i < n; i += THREADS) {
      const float h = (widen(s[first + i]) - mean) * inverse, dy = widen(grad[first + i]);
      float v[1] = {inverse * (g_at(i) - level - h * along) + (TOTAL ? widen(total[first + i]) : 0.f)};
      ds[first + i] = narrow(v[0]);
      if (DROPOUT) dropped<false>(v, first + i, drawn, below, grown), dx[first + i] = narrow(v[0]);
      // A thread has the same columns in every row.
      mine[i] = fmaf(h, dy, mine[i]), mine[n + i] += dy;
    }
  }
}
