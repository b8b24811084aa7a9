// dx = scale * y * (dy - sum of dy * y) in double precision: the right answer that every other kernel is held to.
//
// Idea: one block a row, which is read twice. Beside dx come the largest magnitudes that its tolerance is made of: of an
// element of y, of its gradient, and of a row's sum of products without their signs. Facts of the problem (-D): DTYPE.
#include "block.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
right(const elem* __restrict__ y, const elem* __restrict__ grad, double* __restrict__ dx, u64* __restrict__ magnitudes,
    u64 n, double scale) {
  const u64 first = (u64)blockIdx.x * n;
  double sum = 0., all = 0., most_y = 0., most_g = 0.;
  for (u64 i = threadIdx.x; i < n; i += THREADS) {
    const double a = widen(y[first + i]), b = widen(grad[first + i]);
    all += fabs(a * b), most_y = fmax(most_y, fabs(a)), most_g = fmax(most_g, fabs(b));
  }
  raise(magnitudes, most_y), raise(magnitudes + 1, most_g);
  raise(magnitudes + 2, sum_of_block(all));
  for (u64 i = threadIdx.x; i < n; i += THREADS) sum = fma((double)widen(y[first + i]), (double)widen(grad[first + i]), sum);
  const double delta = sum_of_block(sum);
  for (u64 i = threadIdx.x; i < n; i += THREADS) dx[first + i] = scale * widen(y[first + i]) * (widen(grad[first + i]) - delta);
}
