// y = x·w[e] on the tensor cores every chip from sm_80 on has: cp.async, ldmatrix, mma.sync. Any layout, size,
// alignment.
//
// Idea: gemm's mma_sync over the tiles of all experts. The grid has as many tiles of rows as there may be at the most;
// a block works out from the ends of the groups which one it has, and leaves where there is none. Rows behind an
// expert's last are brought as zeros and not stored. With SWAP the matrix takes the tall side of a tile and the rows
// its narrow one: y is computed turned, and 16 rows are no waste. Wins: chips other than Hopper, sizes and addresses
// that the copy engine does not take. Limits: f16, bf16; sums in f32. Sizes below 2^30. Where the idea comes from:
// gemm's own kernel.
//
// Axes (-D): BM, BN (tall and wide side of a tile: 16 to 256), BK (32, 64), WARPS (4, 8), STAGES (2..4), SWAP (1: BM
// columns of w by BN rows of x). Facts of the problem (-D): DTYPE (0 f16, 1 bf16), W_COL (1: matrices of w are
// column-major), VEC_X, VEC_W (bytes of one copy), VEC_Y (1: two columns of y may be stored at once), EXPERTS. SHARED:
// bytes of the launch.
#include "ampere.cuh"
#include "groups.cuh"

constexpr int NT = WARPS * 32;
constexpr int A_COL = SWAP && !W_COL, B_COL = SWAP || W_COL, VEC_A = SWAP ? VEC_W : VEC_X, VEC_B = SWAP ? VEC_X : VEC_W;
constexpr int WN = BN < 32 ? 1 : WARPS == 8 && BM > BN ? 2 : WARPS / 2, WM = WARPS / WN;
constexpr int TM = BM / WM, TN = BN / WN, MI = TM / 16, NI = TN / 8;
// Lines of a tile end in padding: 16 bytes keep ldmatrix free of conflicts.
constexpr int A_LINE = A_COL ? BM : BK, A_LINES = A_COL ? BK : BM, A_PITCH = A_LINE * 2 + 16;
constexpr int B_LINE = B_COL ? BK : BN, B_LINES = B_COL ? BN : BK, B_PITCH = B_LINE * 2 + 16;
constexpr u32 A_BYTES = A_LINES * A_PITCH, STAGE = A_BYTES + B_LINES * B_PITCH;
static_assert(STAGES * STAGE == SHARED, "the host counts shared memory as the kernel does");
static_assert(TM % 16 == 0 && TN % 16 == 0 && BK % 16 == 0, "tile");

// The fragment of 16 rows of A from `m` on, k step kk.
DI void load_a(u32 (&r)[4], u32 tile, int m, int kk, int lane) {
  if (A_COL) ldmatrix4_trans(r, tile + (kk * 16 + (lane & 7) + (lane >> 4) * 8) * A_PITCH + (m + (lane & 8)) * 2);
  else ldmatrix4(r, tile + (m + (lane & 15)) * A_PITCH + kk * 32 + (lane >> 4) * 16);
}
// The fragments of 16 columns of B from `n` on: two registers for each eight.
DI void load_b(u32 (&r)[4], u32 tile, int n, int kk, int lane) {
  if (!B_COL) ldmatrix4_trans(r, tile + (kk * 16 + (lane & 15)) * B_PITCH + (n + (lane >> 4) * 8) * 2);
  else ldmatrix4(r, tile + (n + (lane & 7) + (lane >> 4) * 8) * B_PITCH + kk * 32 + (lane & 8) * 2);
}

extern "C" __global__ void __launch_bounds__(NT, 1)
mma_groups(const elem* x, const elem* w, const int* offsets, elem* y, int rows, int n, int k) {
  extern __shared__ __align__(16) unsigned char smem[];
  __shared__ Groups groups;
  constexpr int tall = SWAP ? BN : BM, wide = SWAP ? BM : BN; // rows of x and columns of w of a tile
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, across = (n + wide - 1) / wide;
  overlap_begin();
  if (warp == 0) scan_groups<tall>(groups, offsets, rows);
  __syncthreads();
  if ((int)blockIdx.x >= groups.firsts[EXPERTS] * across) return;
  // Tiles above each other follow each other: they share columns of the matrix.
  const int expert = expert_of(groups, (int)blockIdx.x / across), first = groups.firsts[expert], high = groups.firsts[expert + 1] - first;
  const int in = (int)blockIdx.x - first * across, row = groups.begins[expert] + in % high * tall, col = in / high * wide;
  const int end = groups.begins[expert + 1];
  w += (u64)expert * n * k;
  const u32 base = shared_addr(smem);
  const int blocks = (k + BK - 1) / BK;
  // Both as they lie: x in rows along k, matrices of w along their columns or along k.
  const elem *first_a = SWAP ? w : x, *first_b = SWAP ? x : w;
  const int a0 = SWAP ? col : row, b0 = SWAP ? row : col, a_end = SWAP ? n : end, b_end = SWAP ? end : n;
  const u64 lda = SWAP && !W_COL ? n : k, ldb = SWAP || W_COL ? k : n;
  Bring<A_LINES, A_LINE, A_PITCH, VEC_A, NT, !A_COL, BK> a(
      first_a, lda, A_COL ? k : a_end, A_COL ? a_end : k, A_COL ? 0 : a0, A_COL ? a0 : 0, tid);
  Bring<B_LINES, B_LINE, B_PITCH, VEC_B, NT, B_COL, BK> b(
      first_b, ldb, B_COL ? b_end : k, B_COL ? k : b_end, B_COL ? b0 : 0, B_COL ? 0 : b0, tid);
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    a.prime(base, STAGE, s, blocks), b.prime(base + A_BYTES, STAGE, s, blocks);
    copy_commit();
  }
  const int m0 = warp / WN * TM, n0 = warp % WN * TN;
  float d[MI][NI * 4] = {};
  int q = 0;
  for (int block = 0; block < blocks; block++) {
    copy_wait<STAGES - 2>();
    __syncthreads(); // the stage is there, and everybody is done with the one that is filled next
    a.template turn<STAGES>(base, STAGE, block, q, blocks);
    b.template turn<STAGES>(base + A_BYTES, STAGE, block, q, blocks);
    copy_commit();
    const u32 ta = base + q * STAGE, tb = ta + A_BYTES;
#pragma unroll
    for (int kk = 0; kk < BK / 16; kk++) {
      u32 fa[MI][4], fb[NI / 2][4];
#pragma unroll
      for (int i = 0; i < MI; i++) load_a(fa[i], ta, m0 + i * 16, kk, lane);
#pragma unroll
      for (int j = 0; j < NI / 2; j++) load_b(fb[j], tb, n0 + j * 16, kk, lane);
#pragma unroll
      for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NI; j++) mma_step(&d[i][j * 4], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    }
    if (++q == STAGES) q = 0;
  }
#pragma unroll
  for (int i = 0; i < MI; i++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int m = m0 + i * 16 + h * 8 + (lane >> 2);
#pragma unroll
      for (int j = 0; j < NI; j++) {
        const int c = n0 + j * 8 + (lane & 3) * 2;
        const float left = d[i][j * 4 + h * 2], right = d[i][j * 4 + h * 2 + 1];
        if (SWAP) {
          if (col + m >= n) continue;
          elem* to = y + (u64)(row + c) * n + col + m;
          if (row + c < end) *to = narrow(left);
          if (row + c + 1 < end) to[n] = narrow(right);
        } else if (row + m < end && col + c < n) {
          elem* to = y + (u64)(row + m) * n + col + c;
          if (VEC_Y) *reinterpret_cast<u32*>(to) = (u32)narrow(left) | (u32)narrow(right) << 16;
          else {
            to[0] = narrow(left);
            if (col + c + 1 < n) to[1] = narrow(right);
          }
        }
      }
    }
}
