// C = alpha*A*B + beta*add with a block-sparse A in double precision: the right answer that every other kernel is held
// to.
//
// Idea: one thread an element of C walks the blocks of its row, as the reference does, and adds up the squares of what
// it multiplies beside the products. The largest product of the two sums of squares goes out too: from it comes how far
// a kernel may be off. Facts of the problem (-D): DTYPE (of C: 0 f16, 1 bf16, 2 f32), BYTES (1: A and B are f8e4m3), BS,
// BC, B_COL, C_COL (1: column-major), TURNED (1: block i is the transpose of stored block place[i]), ADDS, BIAS (1: an
// addend for each row).
#include "factor.cuh"

extern "C" __global__ void __launch_bounds__(256)
right(const int* __restrict__ row_ptr, const int* __restrict__ col_idx, const factor_t* __restrict__ A,
      const factor_t* __restrict__ B, const elem* __restrict__ add,
      const int* __restrict__ place, double* __restrict__ C, u64* __restrict__ largest, u64 m, u64 k, u64 n, double alpha, double beta) {
  const u64 at = (u64)blockIdx.x * 256 + threadIdx.x, i = C_COL ? at % m : at / n, j = C_COL ? at / m : at % n;
  double sum = 0., left = 0., below = 0.;
  if (at < m * n) {
    const int end = row_ptr[i / BS + 1];
    for (int block = row_ptr[i / BS]; block < end; block++) {
      const factor_t* a = TURNED ? A + (u64)place[block] * BS * BC + i % BS : A + ((u64)block * BS + i % BS) * BC;
      const u64 row = (u64)col_idx[block] * BC;
      for (int q = 0; q < BC; q++) {
        const double x = factor(a[TURNED ? q * BS : q]), y = factor(B[B_COL ? j * k + row + q : (row + q) * n + j]);
        sum = fma(x, y, sum), left = fma(x, x, left), below = fma(y, y, below);
      }
    }
    sum *= alpha;
    if (ADDS) sum = fma(beta, (double)widen(add[BIAS ? i : at]), sum);
    C[at] = sum;
  }
  // Numbers that are not negative are ordered as their bits are.
  u64 most = (u64)__double_as_longlong(left * below);
  for (int o = 16; o; o >>= 1) {
    const u64 other = __shfl_xor_sync(~0u, most, o);
    if (other > most) most = other;
  }
  if (threadIdx.x % 32 == 0) atomicMax(largest, most);
}
