// C = alpha*A*B + beta*C with a block-sparse A, one thread an element of C, float32 sums.
//
// Idea: the plainest kernel there is: neighbouring threads take neighbouring columns and walk the blocks of their row.
// Wins: never by design; it fits every block size, type and order of B and is the fallback.
// Facts of the problem (-D): DTYPE (of C), BYTES (1: A and B are f8e4m3), BS, BC, B_COL, C_COL (1: column-major), TURNED
// (1: block i is the transpose of stored block place[i]), SCALED, ADDS, BIAS.
#include "factor.cuh"
#include "scaled.cuh"

extern "C" __global__ void __launch_bounds__(256)
reference(const int* __restrict__ row_ptr, const int* __restrict__ col_idx, const factor_t* __restrict__ A, const factor_t* __restrict__ B,
          elem* C, u64 m, u64 k, u64 n, const int* __restrict__ place SCALE_PARAMETERS) {
  const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
  if (at >= m * n) return;
  const u64 i = C_COL ? at % m : at / n, j = C_COL ? at / m : at % n;
  const int end = row_ptr[i / BS + 1];
  float sum = 0.f;
  for (int block = row_ptr[i / BS]; block < end; block++) {
    const factor_t* a = TURNED ? A + (u64)place[block] * BS * BC + i % BS : A + ((u64)block * BS + i % BS) * BC;
    const u64 row = (u64)col_idx[block] * BC;
    for (int q = 0; q < BC; q++) sum = fmaf(factor(a[TURNED ? q * BS : q]), factor(B[B_COL ? j * k + row + q : (row + q) * n + j]), sum);
  }
  C[at] = narrow(scaled_one(sum, add, BIAS ? i : at, alpha, beta));
}
