// y = x·w[e], one thread an element, float32 sums.
//
// Idea: the plainest kernel there is: a block has 256 columns of one row, and looks for the first expert that ends
// behind it. Wins: never by design; it fits everything and is the fallback. An end that goes back or leads past the
// rows is taken as the nearest that does not. Facts of the problem (-D): DTYPE (0 f16, 1 bf16, 2 f32), W_COL (1:
// matrices of w are column-major), EXPERTS.
#include "block.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
reference(const elem* __restrict__ x, const elem* __restrict__ w, const int* __restrict__ offsets, elem* __restrict__ y,
    int rows, int n, int k) {
  __shared__ int expert;
  const int across = (n + THREADS - 1) / THREADS, row = blockIdx.x / across, column = blockIdx.x % across * THREADS + threadIdx.x;
  if (threadIdx.x == 0) expert = EXPERTS;
  __syncthreads();
  for (int e = threadIdx.x; e < EXPERTS; e += THREADS)
    if (offsets[e] > row) atomicMin(&expert, e);
  __syncthreads();
  if (expert == EXPERTS || column >= n) return;
  x += (u64)row * k, w += (u64)expert * n * k + (W_COL ? (u64)column * k : column);
  float sum = 0.f;
  for (int q = 0; q < k; q++) sum = fmaf(widen(x[q]), widen(w[W_COL ? (u64)q : (u64)q * n]), sum);
  y[(u64)row * n + column] = narrow(sum);
}
