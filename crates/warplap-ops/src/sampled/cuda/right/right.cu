// The blocks of G*B' that a pattern names, in double precision: the right answer that every other kernel is held to.
//
// Idea: one thread an element finds the row of its block, and adds up the squares of what it multiplies beside the
// products. The largest product of the two sums of squares goes out too: from it comes how far a kernel may be off.
// Facts of the problem (-D): DTYPE, BS, G_COL, B_COL (1: column-major).
#include "element.cuh"

extern "C" __global__ void __launch_bounds__(256)
right(const int* __restrict__ row_ptr, const int* __restrict__ col_idx, const elem* __restrict__ G,
      const elem* __restrict__ B, double* __restrict__ out, u64* __restrict__ largest, u64 m, u64 k, u64 n, u64 rows,
      u64 nnz) {
  const u64 at = (u64)blockIdx.x * 256 + threadIdx.x, block = at / (BS * BS), inside = at % (BS * BS);
  double sum = 0., left = 0., below = 0.;
  if (block < nnz) {
    u64 low = 0, high = rows; // the first row that ends behind the block
    while (low < high) {
      const u64 middle = (low + high) / 2;
      if ((u64)row_ptr[middle + 1] <= block) low = middle + 1;
      else high = middle;
    }
    const u64 i = low * BS + inside / BS, j = (u64)col_idx[block] * BS + inside % BS;
    for (u64 q = 0; q < n; q++) {
      const double x = widen(G[G_COL ? q * m + i : i * n + q]), y = widen(B[B_COL ? q * k + j : j * n + q]);
      sum = fma(x, y, sum), left = fma(x, x, left), below = fma(y, y, below);
    }
    out[at] = sum;
  }
  // Numbers that are not negative are ordered as their bits are.
  u64 most = (u64)__double_as_longlong(left * below);
  for (int o = 16; o; o >>= 1) {
    const u64 other = __shfl_xor_sync(~0u, most, o);
    if (other > most) most = other;
  }
  if (threadIdx.x % 32 == 0) atomicMax(largest, most);
}
