// y = softmax(scale * x + mask) in double precision: the right answer that every other kernel is held to.
//
// Idea: one block a row, which is read again for every step. Beside y comes how far exponents reach, which its tolerance
// is made of. Facts of the problem (-D): DTYPE, MASK (1: the problem has one).
#include "block.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
right(const elem* __restrict__ x, const elem* __restrict__ mask, double* __restrict__ y, u64* __restrict__ reach, u64 n,
    u64 lines, u64 each, double scale) {
  const u64 first = (u64)blockIdx.x * n, line = blockIdx.x / each % lines * n;
  auto scaled = [&](u64 i) { return (double)widen(x[first + i]) * scale; };
  auto added = [&](u64 i) { return MASK ? (double)widen(mask[line + i]) : 0.; };
  double most = -__longlong_as_double(0x7ff0000000000000ll), sum = 0., far = 0.;
  for (u64 i = threadIdx.x; i < n; i += THREADS) most = fmax(most, scaled(i) + added(i));
  most = most_of_block(most);
  for (u64 i = threadIdx.x; i < n; i += THREADS) {
    const double weight = exp(scaled(i) + added(i) - most);
    sum += weight, y[first + i] = weight;
    if (weight > 1e-30) far = fmax(far, fabs(scaled(i)) + fabs(added(i)) + fabs(most));
  }
  sum = sum_of_block(sum);
  for (u64 i = threadIdx.x; i < n; i += THREADS) y[first + i] /= sum;
  raise(reach, far);
}
