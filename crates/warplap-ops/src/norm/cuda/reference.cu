// y = norm(x + residual) * weight + bias, one block a row, float32 sums of the float32 sum.
//
// Idea: the plainest kernel there is: x + residual is read again for every step. Wins: never by design; it fits every
// length of row and type and is the fallback. Facts of the problem (-D): DTYPE, LAYER (1: the mean is taken away),
// RESIDUAL, WEIGHT, BIAS (1: the problem has it).
#include "element.cuh"
#define THREADS 256

// The sum over all threads of a block, in one order.
DI float sum_of_block(float v) {
  __shared__ float room[THREADS];
  __syncthreads();
  room[threadIdx.x] = v;
  for (int half = THREADS / 2; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) room[threadIdx.x] += room[threadIdx.x + half];
  }
  __syncthreads();
  return room[0];
}

extern "C" __global__ void __launch_bounds__(THREADS)
reference(const elem* __restrict__ x, const elem* __restrict__ residual, const elem* __restrict__ weight, const elem* __restrict__ bias,
          elem* __restrict__ y, elem* __restrict__ sum, int count, int n, float eps) {
  const u64 first = (u64)blockIdx.x * n;
  float mean = 0.f, total = 0.f;
  if (LAYER) {
    for (int i = threadIdx.x; i < n; i += THREADS) total += widen(x[first + i]) + (RESIDUAL ? widen(residual[first + i]) : 0.f);
    mean = sum_of_block(total) / n;
  }
  float squares = 0.f;
  for (int i = threadIdx.x; i < n; i += THREADS) {
    const float s = widen(x[first + i]) + (RESIDUAL ? widen(residual[first + i]) : 0.f);
    if (RESIDUAL) sum[first + i] = narrow(s);
    squares += (s - mean) * (s - mean);
  }
  const float inverse = 1.f / sqrtf(sum_of_block(squares) / n + eps);
  for (int i = threadIdx.x; i < n; i += THREADS) {
    const float s = widen(x[first + i]) + (RESIDUAL ? widen(residual[first + i]) : 0.f);
    y[first + i] = narrow((s - mean) * inverse * (WEIGHT ? widen(weight[i]) : 1.f) + (BIAS ? widen(bias[i]) : 0.f));
  }
}
