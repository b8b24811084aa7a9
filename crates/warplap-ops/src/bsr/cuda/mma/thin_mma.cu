// C = alpha*A*B + beta*C with a block-sparse A and a B of few columns, through mma.sync, float32 sums.
//
// Idea: as `thin_rows`, but with more columns than plain lanes can multiply for each element that is read. A CTA has a
// few rows of one block row and up to 64 columns; its warps take KC columns of a block at a time, in turns. Both factors go
// straight from memory into fragments. A lane reads a quarter of the k of a row of A; which k that is does not matter, as
// long as it is the same for both factors. Of a column-major B it reads as many of a column. Of a row-major one it reads
// NI neighbours of each of those rows: which columns a fragment holds does not matter either, so they are one of each
// fragment, and two rows are woven into pairs. The warps' sums are added in shared memory.
// Wins: decoding, B of 8 to 256 columns. Limits: blocks of 16, 32, 64 or 128 rows and columns, f16 and bf16, 16-byte
// aligned buffers.
//
// Axes (-D): ROWS (of a CTA, a multiple of 16 that divides BS), WARPS (a power of two). Facts of the problem (-D): DTYPE (0
// f16, 1 bf16), BS, BC, ALL (columns of B), COLS (of a CTA), B_COL, C_COL (1: column-major), NI (fragments of 8 columns; a
// power of two for a row-major B), SCALED, ADDS, BIAS.
#include "ampere.cuh"
#include "scaled.cuh"

constexpr int KC = BC < 32 ? 16 : 32, EACH = KC / 4, WORDS = EACH / 2; // columns of a block in a turn, a lane's share
constexpr int MI = ROWS / 16, CHUNKS = BC / KC, SUMS = MI * NI * 4, PITCH = ROWS + 1, TILES = (ALL + COLS - 1) / COLS;
static_assert(NI * 8 >= COLS && (B_COL || (NI & (NI - 1)) == 0), "fragments hold all columns");

// `bytes_` bytes from memory as words of 32 bits.
template <int bytes_> DI void load(u32* to, const elem* from) {
  if (bytes_ == 16) *reinterpret_cast<uint4*>(to) = __ldg(reinterpret_cast<const uint4*>(from));
  else if (bytes_ == 8) *reinterpret_cast<uint2*>(to) = __ldg(reinterpret_cast<const uint2*>(from));
  else if (bytes_ == 4) *to = __ldg(reinterpret_cast<const u32*>(from));
  else *to = __ldg(from);
}

// A lane's columns of one row of B.
struct __align__(16) Line {
  u32 words[NI > 1 ? NI / 2 : 1];
  DI void fetch(const elem* row, int first) {
#pragma unroll
    for (int p = 0; p < (NI + 1) / 2; p++) words[p] = 0;
    if (ALL % NI == 0) {
      if (first < ALL) load<NI * 2>(words, row + first);
      return;
    }
#pragma unroll
    for (int j = 0; j < NI; j++)
      if (first + j < ALL) words[j / 2] |= (u32)__ldg(row + first + j) << (j % 2 * 16);
  }
};

// Of a chunk of B what a lane multiplies: WORDS pairs along k for each fragment.
DI void fetch(u32 (&b)[NI][WORDS], const elem* B, u64 k, int K, int col, int g) {
  if (B_COL) {
#pragma unroll
    for (int j = 0; j < NI; j++) {
      const int c = col + j * 8 + g;
#pragma unroll
      for (int w = 0; w < WORDS; w++) b[j][w] = 0;
      if (c < ALL) load<EACH * 2>(b[j], B + (u64)c * K + k);
    }
    return;
  }
  Line lines[EACH];
#pragma unroll
  for (int i = 0; i < EACH; i++) lines[i].fetch(B + (k + i) * ALL, col + g * NI);
#pragma unroll
  for (int w = 0; w < WORDS; w++)
#pragma unroll
    for (int j = 0; j < NI; j++) b[j][w] = __byte_perm(lines[2 * w].words[j / 2], lines[2 * w + 1].words[j / 2], j % 2 ? 0x7632 : 0x5410);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, 1)
thin_mma(const elem* __restrict__ A, const elem* __restrict__ B, elem* C, const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
         int M, int K SCALE_PARAMETERS) {
  extern __shared__ float sums[];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  const int place = blockIdx.x / TILES, row = place / (BS / ROWS), top = place % (BS / ROWS) * ROWS, col = blockIdx.x % TILES * COLS;
  float acc[MI][NI][4] = {};
  const int first = row_ptr[row] * CHUNKS, end = row_ptr[row + 1] * CHUNKS;
#pragma unroll(MI * NI > 16 ? 1 : MI * NI > 4 ? 2 : 4)
  for (int unit = first + warp; unit < end; unit += WARPS) {
    const int block = unit / CHUNKS, k = unit % CHUNKS * KC + t * EACH;
    const elem* const from = A + ((u64)block * BS + top + g) * BC + k;
    __align__(16) u32 a[MI][2][WORDS], b[NI][WORDS];
#pragma unroll
    for (int i = 0; i < MI; i++) load<EACH * 2>(a[i][0], from + i * 16 * BC), load<EACH * 2>(a[i][1], from + (i * 16 + 8) * BC);
    fetch(b, B, (u64)col_idx[block] * BC + k, K, col, g);
#pragma unroll
    for (int w = 0; w < WORDS; w += 2)
#pragma unroll
      for (int i = 0; i < MI; i++) {
        const u32 left[4] = {a[i][0][w], a[i][1][w], a[i][0][w + 1], a[i][1][w + 1]};
#pragma unroll
        for (int j = 0; j < NI; j++) mma_step(acc[i][j], left, b[j][w], b[j][w + 1]);
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
        for (int e = 0; e < 4; e++) {
          const int slot = t * 2 + e % 2, c = B_COL ? j * 8 + slot : slot * NI + j;
          sums[c * PITCH + i * 16 + e / 2 * 8 + g] = acc[i][j][e];
        }
  __syncthreads();
  for (int i = threadIdx.x; i < ROWS * COLS; i += WARPS * 32) {
    const int r = C_COL ? i % ROWS : i / COLS, c = C_COL ? i / ROWS : i % COLS;
    const u64 line = (u64)row * BS + top + r, at = C_COL ? (u64)(col + c) * M + line : line * ALL + col + c;
    if (col + c < ALL) C[at] = narrow(scaled_one(sums[c * PITCH + r], add, BIAS ? line : at, alpha, beta));
  }
}
