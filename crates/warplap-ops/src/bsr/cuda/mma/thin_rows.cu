// C = alpha*A*B + beta*C with a block-sparse A and a B of few columns, float32 sums without tensor cores.
//
// Idea: blocks are read once and little is done with each element, so all that counts is how much of them is under way
// at once. A CTA has a few rows of one block row; its warps take the blocks of that row in turns and read 16 bytes a
// lane, whole lines of a block side by side. Each lane multiplies its elements with those of every column of B, which
// stay in the nearest cache; lanes of a line, then warps, add up their sums.
// Wins: decoding, B of 1 to 16 columns. Limits: blocks of 16, 32, 64 or 128 rows and columns, 16-byte aligned buffers.
//
// Axes (-D): ROWS (of a CTA; divides BS), WARPS. Facts of the problem (-D): DTYPE, BS, BC, COLS (columns of B), B_COL,
// C_COL (1: column-major), SCALED, ADDS, BIAS.
#include "scaled.cuh"

constexpr int VEC = 16 / sizeof(elem); // elements of 16 bytes
constexpr int LINE = BC / VEC;         // lanes of a line of a block
constexpr int TALL = 32 / LINE;        // lines that a warp reads at once
constexpr int PASSES = ROWS / TALL;
static_assert(LINE <= 32 && PASSES * TALL == ROWS && BS % ROWS == 0, "a CTA's rows are whole passes of one block row");

DI void load(float (&to)[VEC], const elem* from) {
  const uint4 raw = __ldg(reinterpret_cast<const uint4*>(from));
  const elem* all = reinterpret_cast<const elem*>(&raw);
#pragma unroll
  for (int i = 0; i < VEC; i++) to[i] = widen(all[i]);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, 1)
thin_rows(const elem* __restrict__ A, const elem* __restrict__ B, elem* C, const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
          int M, int K SCALE_PARAMETERS) {
  __shared__ float sums[WARPS][ROWS * COLS];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int row = blockIdx.x / (BS / ROWS), top = blockIdx.x % (BS / ROWS) * ROWS, chunk = lane % LINE * VEC;
  float acc[PASSES][COLS] = {};
  const int end = row_ptr[row + 1];
#pragma unroll(COLS > 8 ? 1 : 2)
  for (int block = row_ptr[row] + warp; block < end; block += WARPS) {
    float a[PASSES][VEC], b[VEC];
    const elem* const from = A + ((u64)block * BS + top + lane / LINE) * BC + chunk;
#pragma unroll
    for (int p = 0; p < PASSES; p++) load(a[p], from + p * TALL * BC);
    const u64 column = (u64)col_idx[block] * BC + chunk;
#pragma unroll
    for (int j = 0; j < COLS; j++) {
      if (B_COL || COLS == 1) load(b, B + (u64)j * K + column);
      else
#pragma unroll
        for (int i = 0; i < VEC; i++) b[i] = widen(__ldg(B + (column + i) * COLS + j));
#pragma unroll
      for (int p = 0; p < PASSES; p++)
#pragma unroll
        for (int i = 0; i < VEC; i++) acc[p][j] = fmaf(a[p][i], b[i], acc[p][j]);
    }
  }
#pragma unroll
  for (int p = 0; p < PASSES; p++)
#pragma unroll
    for (int j = 0; j < COLS; j++) {
#pragma unroll
      for (int o = LINE / 2; o; o >>= 1) acc[p][j] += __shfl_xor_sync(~0u, acc[p][j], o);
      // Neighbours in C are neighbours here.
      const int r = p * TALL + lane / LINE;
      if (lane % LINE == 0) sums[warp][C_COL ? j * ROWS + r : r * COLS + j] = acc[p][j];
    }
  __syncthreads();
  for (int i = threadIdx.x; i < ROWS * COLS; i += WARPS * 32) {
    float sum = 0.f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += sums[w][i];
    const u64 r = (u64)row * BS + top + (C_COL ? i % ROWS : i / COLS), at = C_COL ? (u64)(i / ROWS) * M + r : r * COLS + i % COLS;
    C[at] = narrow(scaled_one(sum, add, BIAS ? r : at, alpha, beta));
  }
}
