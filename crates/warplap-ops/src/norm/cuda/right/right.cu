// y = norm(x + residual) * weight + bias in double precision: the right answer that every other kernel is held to.
//
// Idea: one block a row, which is read again for every step. Beside y and the sum come the largest magnitudes that
// tolerances are made of: of an element before the mean is taken away and of the norm, both in the norm's unit, of a
// weight and of a bias.
// Facts of the problem (-D): DTYPE, LAYER (1: the mean is taken away), RESIDUAL, WEIGHT, BIAS (1: the problem has it).
#include "element.cuh"
#define THREADS 256

// Numbers that are not negative are ordered as their bits are.
DI void raise(u64* place, double x) {
  for (int step = 16; step; step /= 2) x = fmax(x, __shfl_xor_sync(~0u, x, step));
  if (threadIdx.x % 32 == 0) atomicMax(place, (u64)__double_as_longlong(x));
}

// The sum over all threads of a block, in one order.
DI double sum_of_block(double v) {
  __shared__ double room[THREADS];
  __syncthreads();
  room[threadIdx.x] = v;
  for (int half = THREADS / 2; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) room[threadIdx.x] += room[threadIdx.x + half];
  }
  __syncthreads();
  return room[0];
}

DI double added(const elem* x, const elem* residual, u64 at) {
  return (double)widen(x[at]) + (RESIDUAL ? (double)widen(residual[at]) : 0.);
}

extern "C" __global__ void __launch_bounds__(THREADS)
right(const elem* __restrict__ x, const elem* __restrict__ residual, const elem* __restrict__ weight,
      const elem* __restrict__ bias, double* __restrict__ y, double* __restrict__ sum, u64* __restrict__ magnitudes,
      u64 n, double eps) {
  const u64 first = (u64)blockIdx.x * n;
  double mean = 0., total = 0., squares = 0.;
  if (LAYER) {
    for (u64 i = threadIdx.x; i < n; i += THREADS) total += added(x, residual, first + i);
    mean = sum_of_block(total) / n;
  }
  for (u64 i = threadIdx.x; i < n; i += THREADS) {
    const double s = added(x, residual, first + i);
    if (RESIDUAL) sum[first + i] = s;
    squares = fma(s - mean, s - mean, squares);
  }
  const double inverse = 1. / sqrt(sum_of_block(squares) / n + eps);
  double before = 0., after = 0., weights = 0., biases = 0.;
  for (u64 i = threadIdx.x; i < n; i += THREADS) {
    const double s = added(x, residual, first + i), normed = (s - mean) * inverse;
    const double w = WEIGHT ? (double)widen(weight[i]) : 1., b = BIAS ? (double)widen(bias[i]) : 0.;
    y[first + i] = fma(normed, w, b);
    before = fmax(before, fabs(s) * inverse), after = fmax(after, fabs(normed));
    weights = fmax(weights, fabs(w)), biases = fmax(biases, fabs(b));
  }
  raise(magnitudes, before), raise(magnitudes + 1, after);
  // Every row has the same ones.
  if (blockIdx.x == 0) raise(magnitudes + 2, weights), raise(magnitudes + 3, biases);
}
