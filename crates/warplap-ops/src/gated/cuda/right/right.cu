// y = act(a), joined with b, in double precision: the right answer that every other kernel is held to.
//
// Idea: one block a row, a thread an element. Beside y comes the largest magnitude of b, which its tolerance is made
// of. Facts of the problem (-D): DTYPE, COLUMNS (of a row), ACT (as epilogue.cuh counts them), JOIN (1: b is added, 2:
// multiplied with).
#include "block.cuh"
#include "activated.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
right(const elem* __restrict__ a, const elem* __restrict__ b, double* __restrict__ y, u64* __restrict__ magnitudes,
      u64 lda, u64 ldb) {
  const u64 row = blockIdx.x;
  double most = 0.;
  for (u64 i = threadIdx.x; i < COLUMNS; i += THREADS) {
    const double x = activated((double)widen(a[row * lda + i])), other = JOIN ? (double)widen(b[row * ldb + i]) : 0.;
    most = fmax(most, fabs(other));
    y[row * COLUMNS + i] = JOIN == 2 ? x * other : x + other;
  }
  raise(magnitudes, most);
}
