// The blocks of G*B^T that a pattern names, one thread an element, float32 sums.
//
// Idea: the plainest kernel there is. Wins: never by design; it fits every block size, type and order and is the
// fallback. Facts of the problem (-D): DTYPE, BS, G_COL, B_COL (1: column-major).
#include "element.cuh"

extern "C" __global__ void __launch_bounds__(256)
reference(const int* __restrict__ row_ptr, const int* __restrict__ col_idx, const elem* __restrict__ G,
          const elem* __restrict__ B, elem* __restrict__ out,
          int m, int k, int n, int rows) {
  const int block = blockIdx.x;
  if (block >= row_ptr[rows]) return; // an empty pattern
  int low = 0, high = rows; // the first row that ends behind the block
  while (low < high) {
    const int middle = (low + high) / 2;
    if (row_ptr[middle + 1] <= block) low = middle + 1;
    else high = middle;
  }
  for (int at = threadIdx.x; at < BS * BS; at += 256) {
    const u64 i = (u64)low * BS + at / BS, j = (u64)col_idx[block] * BS + at % BS;
    float sum = 0.f;
    for (int q = 0; q < n; q++) sum = fmaf(widen(G[G_COL ? (u64)q * m + i : i * n + q]), widen(B[B_COL ? (u64)q * k + j : j * n + q]), sum);
    out[(u64)block * BS * BS + at] = narrow(sum);
  }
}
