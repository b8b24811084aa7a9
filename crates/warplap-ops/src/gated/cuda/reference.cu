// y = act(a), joined with b, one block a row, arithmetic in float32.
//
// Idea: the plainest kernel there is: a thread an element. Wins: never by design; it fits everything and is the
// fallback. Facts of the problem (-D): DTYPE (0 f16, 1 bf16, 2 f32), COLUMNS (of a row), ACT and JOIN (epilogue.cuh).
#include "epilogue.cuh"

extern "C" __global__ void __launch_bounds__(256)
reference(const elem* __restrict__ a, const elem* __restrict__ b, elem* __restrict__ y, int rows, u64 lda, u64 ldb) {
  const u64 row = blockIdx.x;
  for (u64 i = threadIdx.x; i < COLUMNS; i += 256) {
    const float x = activate(widen(a[row * lda + i]));
    y[row * COLUMNS + i] = narrow(JOIN ? with_other(x, widen(b[row * ldb + i])) : x);
  }
}
