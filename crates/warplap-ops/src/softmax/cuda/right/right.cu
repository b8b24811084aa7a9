// y = softmax(scale * x + mask) in double precision: the right answer that every other kernel is held to.
//
// Idea: one block a row, which is read again for every step. Beside y comes how far exponents reach, which its tolerance
// is made of. Facts of the problem (-D): DTYPE, MASK (1: the problem has one).
#include "element.cuh"
#define THREADS 256

// Numbers that are not negative are ordered as their bits are.
DI void raise(u64* place, double x) {
  for (int step = 16; step; step /= 2) x = fmax(x, __shfl_xor_sync(~0u, x, step));
  if (threadIdx.x % 32 == 0) atomicMax(place, (u64)__double_as_longlong(x));
}

template <class Join> DI double of_block(double v, Join join) {
  __shared__ double room[THREADS];
  __syncthreads();
  room[threadIdx.x] = v;
  for (int half = THREADS / 2; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) room[threadIdx.x] = join(room[threadIdx.x], room[threadIdx.x + half]);
  }
  __syncthreads();
  return room[0];
}

extern "C" __global__ void __launch_bounds__(THREADS)
right(const elem* __restrict__ x, const elem* __restrict__ mask, double* __restrict__ y, u64* __restrict__ reach, u64 n,
    u64 lines, u64 each, double scale) {
  const u64 first = (u64)blockIdx.x * n, line = blockIdx.x / each % lines * n;
  auto scaled = [&](u64 i) { return (double)widen(x[first + i]) * scale; };
  auto added = [&](u64 i) { return MASK ? (double)widen(mask[line + i]) : 0.; };
  double most = -__longlong_as_double(0x7ff0000000000000ll), sum = 0., far = 0.;
  for (u64 i = threadIdx.x; i < n; i += THREADS) most = fmax(most, scaled(i) + added(i));
  most = of_block(most, [](double a, double b) { return fmax(a, b); });
  for (u64 i = threadIdx.x; i < n; i += THREADS) {
    const double weight = exp(scaled(i) + added(i) - most);
    sum += weight, y[first + i] = weight;
    if (weight > 1e-30) far = fmax(far, fabs(scaled(i)) + fabs(added(i)) + fabs(most));
  }
  sum = of_block(sum, [](double a, double b) { return a + b; });
  for (u64 i = threadIdx.x; i < n; i += THREADS) y[first + i] /= sum;
  raise(reach, far);
}
