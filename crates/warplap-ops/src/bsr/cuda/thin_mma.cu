// C = alpha*A*B + beta*C with a block-sparse A and a column-major B of few columns, through mma.sync, float32 sums.
//
// Idea: as `thin_rows`, but with more columns than plain lanes can multiply for each element that is read. A CTA has a
// few rows of one block row and all columns; its warps take 32 columns of a block at a time, in turns. Both factors go
// straight from memory into fragments: a lane reads 16 bytes along k of a row of A and of a column of B, and which k that
// is does not matter, as long as it is the same for both. The warps' sums are added in shared memory.
// Wins: decoding, B of 8 to 64 columns. Limits: blocks of 32, 64 or 128 rows and columns, f16 and bf16, B column-major,
// 16-byte aligned buffers.
//
// Axes (-D): ROWS (of a CTA, a multiple of 16 that divides BS), WARPS (a power of two). Facts of the problem (-D): DTYPE (0
// f16, 1 bf16), BS, BC, COLS (columns of B), C_COL (1: column-major), SCALED, ADDS, BIAS.
#include "ampere.cuh"
#include "scaled.cuh"

constexpr int MI = ROWS / 16, NI = (COLS + 7) / 8, CHUNKS = BC / 32, SUMS = MI * NI * 4;

DI uint4 sixteen(const elem* from) { return __ldg(reinterpret_cast<const uint4*>(from)); }

extern "C" __global__ void __launch_bounds__(WARPS * 32, 1)
thin_mma(const elem* __restrict__ A, const elem* __restrict__ B, elem* C, const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
         int M, int K SCALE_PARAMETERS) {
  extern __shared__ float sums[];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  const int row = blockIdx.x / (BS / ROWS), top = blockIdx.x % (BS / ROWS) * ROWS;
  float acc[MI][NI][4] = {};
  const int first = row_ptr[row] * CHUNKS, end = row_ptr[row + 1] * CHUNKS;
#pragma unroll(MI * NI > 16 ? 1 : 2)
  for (int unit = first + warp; unit < end; unit += WARPS) {
    const int block = unit / CHUNKS, k = unit % CHUNKS * 32 + t * 8;
    const u64 column = (u64)col_idx[block] * BC + k;
    const elem* const from = A + ((u64)block * BS + top + g) * BC + k;
    uint4 a[MI][2], b[NI];
#pragma unroll
    for (int i = 0; i < MI; i++) a[i][0] = sixteen(from + i * 16 * BC), a[i][1] = sixteen(from + (i * 16 + 8) * BC);
#pragma unroll
    for (int j = 0; j < NI; j++) b[j] = j * 8 + g < COLS ? sixteen(B + (u64)(j * 8 + g) * K + column) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < MI; i++) {
      const u32 low[4] = {a[i][0].x, a[i][1].x, a[i][0].y, a[i][1].y}, high[4] = {a[i][0].z, a[i][1].z, a[i][0].w, a[i][1].w};
#pragma unroll
      for (int j = 0; j < NI; j++) mma_step(acc[i][j], low, b[j].x, b[j].y), mma_step(acc[i][j], high, b[j].z, b[j].w);
    }
  }
  // Halves of the warps hand theirs to the others, until one has all.
  float* const all = &acc[0][0][0];
#pragma unroll
  for (int half = WARPS / 2; half; half /= 2) {
    if (warp >= half && warp < 2 * half)
#pragma unroll
      for (int i = 0; i < SUMS; i++) sums[((warp - half) * SUMS + i) * 32 + lane] = all[i];
    __syncthreads();
    if (warp < half)
#pragma unroll
      for (int i = 0; i < SUMS; i++) all[i] += sums[(warp * SUMS + i) * 32 + lane];
    __syncthreads();
  }
  if (warp == 0)
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
      for (int j = 0; j < NI; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sums[(j * 8 + t * 2 + e % 2) * ROWS + i * 16 + e / 2 * 8 + g] = acc[i][j][e];
  __syncthreads();
  for (int i = threadIdx.x; i < ROWS * COLS; i += WARPS * 32) {
    const int r = C_COL ? i % ROWS : i / COLS, c = C_COL ? i / ROWS : i % COLS;
    const u64 line = (u64)row * BS + top + r, at = C_COL ? (u64)c * M + line : line * COLS + c;
    C[at] = narrow(scaled_one(sums[c * ROWS + r], add, BIAS ? line : at, alpha, beta));
  }
}
