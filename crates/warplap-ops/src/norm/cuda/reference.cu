// y = norm(dropout(x + before) + residual) * weight + bias, one block a row, float32 sums of the float32 sum.
//
// Idea: the plainest kernel there is: what is summed is read and drawn again for every step. Wins: never by design; it
// fits every length of row and type and is the fallback. Facts of the problem (-D): DTYPE, LAYER (1: the mean is taken
// away), RESIDUAL, WEIGHT, BIAS, BEFORE, DROPOUT, SUM (1: the problem has it), QUANT (codes.cuh).
#include "block.cuh"
#include "codes.cuh"
#include "philox.cuh"
#if QUANT
typedef u8 out_t;
#else
typedef elem out_t;
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
reference(const elem* __restrict__ x, const elem* __restrict__ residual, const elem* __restrict__ weight,
          const elem* __restrict__ bias, out_t* __restrict__ y, elem* __restrict__ sum,
          const elem* __restrict__ before, const u64* __restrict__ seed, float* __restrict__ scale, int count, int n,
          float eps, u32 below, float grown) {
  const u64 first = (u64)blockIdx.x * n;
  const u64 drawn[2] = {DROPOUT ? seed[0] : 0, DROPOUT ? seed[1] : 0};
  auto sum_at = [&](int i) {
    float s[1] = {widen(x[first + i]) + (BEFORE ? widen(before[i]) : 0.f)};
    if (DROPOUT) dropped<false>(s, first + i, drawn, below, grown);
    return s[0] + (RESIDUAL ? widen(residual[first + i]) : 0.f);
  };
  float mean = 0.f, total = 0.f;
  if (LAYER) {
    for (int i = threadIdx.x; i < n; i += THREADS) total += sum_at(i);
    mean = sum_of_block(total) / n;
  }
  float squares = 0.f;
  for (int i = threadIdx.x; i < n; i += THREADS) {
    const float s = sum_at(i);
    if (SUM) sum[first + i] = narrow(s);
    squares += (s - mean) * (s - mean);
  }
  const float inverse = 1.f / sqrtf(sum_of_block(squares) / n + eps);
  auto y_at = [&](int i) { return (sum_at(i) - mean) * inverse * (WEIGHT ? widen(weight[i]) : 1.f) + (BIAS ? widen(bias[i]) : 0.f); };
#if QUANT
  float most = LEAST;
  for (int i = threadIdx.x; i < n; i += THREADS) most = larger(most, fabsf(y_at(i)));
  most = of_block(most, [](float a, float b) { return larger(a, b); });
  if (threadIdx.x == 0) scale[blockIdx.x] = most / TOP;
  for (int i = threadIdx.x; i < n; i += THREADS) y[first + i] = code(y_at(i) * (TOP / most));
#else
  for (int i = threadIdx.x; i < n; i += THREADS) y[first + i] = narrow(y_at(i));
#endif
}
