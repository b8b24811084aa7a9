// The blocks of G*B^T that a pattern names, on tensor cores through mma.sync, float32 sums.
//
// Idea: a CTA owns one block (or a 64 x 64 part of a larger one) and passes over n in steps of 64, STAGES of them on
// their way by cp.async. Of 64 x 64 each of the four warps has a quarter; of smaller tiles each has the whole for its
// 16 of the 64, and the four sums are added in the end. Column-major factors are turned by ldmatrix. Wins: half types.
// Limits: BS 16, 32, 64 or 128; row-major factors need n % 8 == 0; 16-byte aligned buffers. Where the idea comes from:
// the usual mma.sync product; every block reads its two strips by itself, so L2 sees nnz * 2 * BS * n elements.
//
// Axes (-D): STAGES (2..6). Facts of the problem (-D): DTYPE (0 f16, 1 bf16), BS, G_COL, B_COL (1: column-major).
#include "ampere.cuh"

constexpr int TILE = BS < 64 ? BS : 64, PARTS = BS / TILE, DEEP = 64, NT = 128;
constexpr bool QUARTERS = TILE == 64;
constexpr int MI = QUARTERS ? 2 : TILE / 16, NI = QUARTERS ? 4 : TILE / 8, STEPS = QUARTERS ? 4 : 1;
template <int col_> struct Side {
  static constexpr int lines = col_ ? DEEP : TILE, line = col_ ? TILE : DEEP, pitch = line * 2 + 16, bytes = lines * pitch;
  using Copy = Bring<lines, line, pitch, 16, NT, !col_, DEEP>;
};
using SG = Side<G_COL>;
using SB = Side<B_COL>;
constexpr int STAGE = SG::bytes + SB::bytes;

extern "C" __global__ void __launch_bounds__(NT)
mma_blocks(const int* __restrict__ row_ptr, const int* __restrict__ col_idx, const elem* __restrict__ G,
           const elem* __restrict__ B, elem* __restrict__ out,
           int m, int k, int n, int rows) {
  extern __shared__ __align__(16) unsigned char smem[];
  overlap_begin();
  const int block = blockIdx.x / (PARTS * PARTS), part = blockIdx.x % (PARTS * PARTS), y = part / PARTS * TILE, x = part % PARTS * TILE;
  if (block >= __ldg(row_ptr + rows)) return; // an empty pattern
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  // The block's row: the first that ends behind it, by 32 guesses at a time.
  int row = 0;
  for (int left = rows; left > 0;) {
    const int step = (left + 31) / 32, guess = row + lane * step + step - 1;
    const bool before = lane * step + step - 1 < left && __ldg(row_ptr + guess + 1) <= block;
    const int passed = __popc(__ballot_sync(~0u, before)) * step, rest = left - passed;
    row += passed, left = rest >= step ? step - 1 : max(rest, 0);
  }
  const int top = row * BS + y, side = __ldg(col_idx + block) * BS + x;
  typename SG::Copy from_g(G, G_COL ? m : n, G_COL ? n : m, G_COL ? m : n, G_COL ? 0 : top, G_COL ? top : 0, threadIdx.x);
  typename SB::Copy from_b(B, B_COL ? k : n, B_COL ? n : k, B_COL ? k : n, B_COL ? 0 : side, B_COL ? side : 0, threadIdx.x);
  const u32 base = shared_addr(smem);
  auto fetch = [&](int q) {
    from_g.fetch(base + q * STAGE), from_g.advance();
    from_b.fetch(base + q * STAGE + SG::bytes), from_b.advance();
  };
  float acc[MI][NI][4];
#pragma unroll
  for (int i = 0; i < MI; i++)
#pragma unroll
    for (int j = 0; j < NI; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[i][j][e] = 0.f;
  const int chunks = (n + DEEP - 1) / DEEP;
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < chunks) fetch(s);
    copy_commit();
  }
  const int wm = QUARTERS ? warp / 2 * 32 : 0, wn = QUARTERS ? warp % 2 * 32 : 0;
  int q = 0;
  for (int chunk = 0; chunk < chunks; chunk++) {
    copy_wait<STAGES - 2>();
    __syncthreads();
    if (chunk + STAGES - 1 < chunks) fetch(q == 0 ? STAGES - 1 : q - 1);
    copy_commit();
    const u32 g = base + q * STAGE, b = g + SG::bytes;
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      const int kk = (QUARTERS ? s : warp) * 16;
      u32 left[MI][4], right[NI / 2][4];
#pragma unroll
      for (int i = 0; i < MI; i++) {
        const int r = wm + i * 16;
        if (G_COL) ldmatrix4_trans(left[i], g + (kk + (lane >> 4) * 8 + (lane & 7)) * SG::pitch + (r + (lane >> 3 & 1) * 8) * 2);
        else ldmatrix4(left[i], g + (r + (lane & 15)) * SG::pitch + (kk + (lane >> 4) * 8) * 2);
      }
#pragma unroll
      for (int j = 0; j < NI / 2; j++) {
        const int c = wn + j * 16;
        if (B_COL) ldmatrix4_trans(right[j], b + (kk + (lane >> 3 & 1) * 8 + (lane & 7)) * SB::pitch + (c + (lane >> 4) * 8) * 2);
        else ldmatrix4(right[j], b + (c + (lane >> 4) * 8 + (lane & 7)) * SB::pitch + (kk + (lane >> 3 & 1) * 8) * 2);
      }
#pragma unroll
      for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NI; j++) mma_step(acc[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
    }
    if (++q == STAGES) q = 0;
  }
  elem* to = out + (u64)block * (BS * BS) + y * BS + x;
  if (QUARTERS) {
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
      for (int j = 0; j < NI; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int r = wm + i * 16 + h * 8 + (lane >> 2), c = wn + j * 8 + (lane & 3) * 2;
          *reinterpret_cast<u32*>(to + r * BS + c) = (u32)narrow(acc[i][j][h * 2]) | (u32)narrow(acc[i][j][h * 2 + 1]) << 16;
        }
    return;
  }
  copy_wait<0>();
  __syncthreads(); // nobody reads the stages any more
  float* const sums = reinterpret_cast<float*>(smem);
#pragma unroll
  for (int i = 0; i < MI; i++)
#pragma unroll
    for (int j = 0; j < NI; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        sums[warp * (TILE * TILE) + (i * 16 + e / 2 * 8 + (lane >> 2)) * TILE + j * 8 + (lane & 3) * 2 + e % 2] = acc[i][j][e];
  __syncthreads();
  for (int at = threadIdx.x; at < TILE * TILE; at += NT) {
    float sum = 0.f;
#pragma unroll
    for (int w = 0; w < 4; w++) sum += sums[w * (TILE * TILE) + at];
    to[at] = narrow(sum); // a smaller tile is the whole block
  }
}
