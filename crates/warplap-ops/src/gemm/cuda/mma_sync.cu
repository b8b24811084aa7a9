// C = A·B on the tensor cores every chip from sm_80 on has: cp.async, ldmatrix, mma.sync. Any layout, any shape, any alignment.
//
// Idea: one block a tile. Stages of A and B are brought by asynchronous copies as wide as the alignment allows (16, 8 or 4 bytes, zeros past the
// edges; two bytes go through registers), in the order they lie in memory, with padded lines so that ldmatrix meets no bank twice; the
// transposing form of ldmatrix turns what is turned. Blocks take tiles in bands for the sake of L2.
// Wins: where Hopper's copy engine cannot go (odd leading dimensions, unaligned buffers), other chips, tf32, small products.
// Limits: f16, bf16, and f32 multiplied as tf32; sums in f32. Sizes below 2^31.
// Where the idea comes from: CUTLASS's Ampere kernels and their multistage pipeline.
//
// Axes (-D): BM, BN (64, 128, 256), BK (32, 64; tf32 16, 32), WARPS (4, 8), STAGES (2..5), GROUP (tile rows of a band).
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16, 2 tf32), A_COL, B_COL (1: column-major), VEC_A, VEC_B (bytes of one copy),
// VEC_C (1: two columns of C may be stored at once), BIAS and ACT (epilogue.cuh). SHARED: bytes of the launch.
#include "ampere.cuh"
#include "epilogue.cuh"

constexpr int NT = WARPS * 32, SIZE = sizeof(elem), KS = DTYPE == 2 ? 8 : 16; // elements of K in one step
constexpr int WM = WARPS == 8 && BM > BN ? 4 : 2, WN = WARPS / WM, TM = BM / WM, TN = BN / WN, MI = TM / 16, NI = TN / 8;
// Lines of a tile end in padding: 16 bytes keep ldmatrix free of conflicts, 32 the plain loads of turned tf32.
constexpr int A_LINE = A_COL ? BM : BK, A_LINES = A_COL ? BK : BM, A_PITCH = A_LINE * SIZE + (DTYPE == 2 && A_COL ? 32 : 16);
constexpr int B_LINE = B_COL ? BK : BN, B_LINES = B_COL ? BN : BK, B_PITCH = B_LINE * SIZE + (DTYPE == 2 && !B_COL ? 32 : 16);
constexpr u32 A_BYTES = A_LINES * A_PITCH, STAGE = A_BYTES + B_LINES * B_PITCH;
static_assert(STAGES * STAGE == SHARED, "the host counts shared memory as the kernel does");
static_assert(TM % 16 == 0 && TN % 16 == 0 && BK % KS == 0, "tile");

// The fragment of 16 rows of A from `m` on, k step kk.
DI void load_a(u32 (&r)[4], u32 tile, int m, int kk, int lane) {
  if (A_COL && DTYPE == 2) {
    const u32 a = tile + (kk * 8 + (lane & 3)) * A_PITCH + (m + (lane >> 2)) * 4;
    r[0] = shared_load(a), r[1] = shared_load(a + 32), r[2] = shared_load(a + 4 * A_PITCH), r[3] = shared_load(a + 4 * A_PITCH + 32);
  } else if (A_COL) ldmatrix4_trans(r, tile + (kk * 16 + (lane & 7) + (lane >> 4) * 8) * A_PITCH + (m + (lane & 8)) * 2);
  else ldmatrix4(r, tile + (m + (lane & 15)) * A_PITCH + kk * 32 + (lane >> 4) * 16);
  if (DTYPE == 2)
    for (int i = 0; i < 4; i++) r[i] = to_tf32(r[i]);
}
// The fragments of 16 columns of B from `n` on: two registers for each eight.
DI void load_b(u32 (&r)[4], u32 tile, int n, int kk, int lane) {
  if (!B_COL && DTYPE == 2) {
    const u32 b = tile + (kk * 8 + (lane & 3)) * B_PITCH + (n + (lane >> 2)) * 4;
    r[0] = shared_load(b), r[1] = shared_load(b + 4 * B_PITCH), r[2] = shared_load(b + 32), r[3] = shared_load(b + 4 * B_PITCH + 32);
  } else if (!B_COL) ldmatrix4_trans(r, tile + (kk * 16 + (lane & 15)) * B_PITCH + (n + (lane >> 4) * 8) * 2);
  else ldmatrix4(r, tile + (n + (lane & 7) + (lane >> 4) * 8) * B_PITCH + kk * 32 + (lane & 8) * 2);
  if (DTYPE == 2)
    for (int i = 0; i < 4; i++) r[i] = to_tf32(r[i]);
}
DI void store2(elem* p, float x, float y, bool both) {
#if VEC_C && DTYPE == 2
  if (both) *reinterpret_cast<float2*>(p) = make_float2(x, y);
  else *p = x;
#elif VEC_C
  if (both) *reinterpret_cast<u32*>(p) = (u32)narrow(x) | (u32)narrow(y) << 16;
  else *p = narrow(x);
#else
  p[0] = narrow(x);
  if (both) p[1] = narrow(y);
#endif
}

extern "C" __global__ void __launch_bounds__(NT, 1) // without the 1 ptxas spills to fit one more block
mma_sync(const elem* __restrict__ A, const elem* __restrict__ B, elem* __restrict__ C, int M, int N, int K, u64 lda, u64 ldb, u64 ldc BIAS_PARAMETER) {
  extern __shared__ __align__(16) unsigned char smem[];
  const u32 base = shared_addr(smem);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, blocks = (K + BK - 1) / BK;
  int row, col, z;
  banded_tile(blockIdx.x, (M + BM - 1) / BM, (N + BN - 1) / BN, GROUP, row, col, z);
  row *= BM, col *= BN;
  A += (A_COL ? K : M) * lda * z, B += (B_COL ? N : K) * ldb * z, C += M * ldc * z;
  Bring<A_LINES, A_LINE, A_PITCH, VEC_A, NT> a(A, lda, A_COL ? 0 : row, A_COL ? row : 0);
  Bring<B_LINES, B_LINE, B_PITCH, VEC_B, NT> b(B, ldb, B_COL ? col : 0, B_COL ? 0 : col);
  auto fetch = [&](int q) {
    a.fetch(base + q * STAGE, lda, A_COL ? K : M, A_COL ? M : K);
    b.fetch(base + q * STAGE + A_BYTES, ldb, B_COL ? N : K, B_COL ? K : N);
    if (A_COL) a.down(BK, lda);
    else a.along(BK);
    if (B_COL) b.along(BK);
    else b.down(BK, ldb);
  };
  auto put = [&](int q) { a.put(base + q * STAGE), b.put(base + q * STAGE + A_BYTES); };
  overlap_begin();
#pragma unroll
  for (int q = 0; q < STAGES - 1; q++) {
    if (q < blocks) fetch(q), put(q);
    copy_commit();
  }
  const int m0 = warp / WN * TM, n0 = warp % WN * TN;
  float d[MI][NI * 4] = {};
  int q = 0, into = STAGES - 1;
  for (int k = 0; k < blocks; k++) {
    copy_wait<STAGES - 2>();
    __syncthreads(); // the stage is there, and everybody is done with the one that is filled next
    const bool more = k + STAGES - 1 < blocks;
    if (more) fetch(into);
    copy_commit();
    const u32 ta = base + q * STAGE, tb = ta + A_BYTES;
#pragma unroll
    for (int kk = 0; kk < BK / KS; kk++) {
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
    if (more) put(into);
    if (++q == STAGES) q = 0;
    if (++into == STAGES) into = 0;
  }
#pragma unroll
  for (int i = 0; i < MI; i++) {
    finish_fragments(d[i], bias, col + n0, N);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int r = row + m0 + i * 16 + h * 8 + (lane >> 2);
      if (r < M) {
        elem* line = C + (u64)r * ldc;
#pragma unroll
        for (int j = 0; j < NI; j++) {
          const int c = col + n0 + j * 8 + (lane & 3) * 2;
          if (c < N) store2(line + c, d[i][j * 4 + h * 2], d[i][j * 4 + h * 2 + 1], c + 1 < N);
        }
      }
    }
  }
}
