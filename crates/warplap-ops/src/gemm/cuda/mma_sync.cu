// C = A·B on the tensor cores every chip from sm_80 on has: cp.async, ldmatrix, mma.sync. Any layout, any shape, any
// alignment.
//
// Idea: one block a tile. Stages of A and B are brought by asynchronous copies as wide as the alignment allows (16, 8
// or 4 bytes, zeros past the edges; two bytes go through registers), in the order they lie in memory, with padded lines
// so that ldmatrix meets no bank twice; the transposing form of ldmatrix turns what is turned. Blocks take tiles in
// bands for the sake of L2. Where there are few tiles, SLICES groups of warps run through K side by side, each with a
// ring of its own; their sums are added in a fixed order. Wins: where Hopper's copy engine cannot go (odd leading
// dimensions, unaligned buffers), other chips, tf32, small products. Limits: f16, bf16, and f32 multiplied as tf32;
// sums in f32. Sizes below 2^31. Where the idea comes from: CUTLASS's Ampere kernels and their multistage pipeline.
//
// Axes (-D): BM, BN (64, 128, 256), BK (32, 64; tf32 16, 32), WARPS (4, 8: of one slice), STAGES (2..5), SLICES (1, 2,
// 4), GROUP (tile rows of a band). Facts of the problem (-D): DTYPE (0 f16, 1 bf16, 2 tf32), A_COL, B_COL (1:
// column-major), VEC_A, VEC_B (bytes of one copy), VEC_C (1: two columns of C may be stored at once), BIAS, ACT, JOIN and
// PAIR (epilogue.cuh). A tile of a pair has BN/2 columns of B and behind them the same of B2; a warp takes as many of
// either, and both numbers of an element of C meet in one thread. SHARED: bytes of the launch.
#include "ampere.cuh"
#include "epilogue.cuh"

constexpr int NT = WARPS * 32, SIZE = sizeof(elem), KS = DTYPE == 2 ? 8 : 16; // elements of K in one step
constexpr int WM = WARPS == 8 && BM > BN ? 4 : 2, WN = WARPS / WM, TM = BM / WM, TN = BN / WN, MI = TM / 16, NI = TN / 8;
// Lines of a tile end in padding: 16 bytes keep ldmatrix free of conflicts, 32 the plain loads of turned tf32.
constexpr int A_LINE = A_COL ? BM : BK, A_LINES = A_COL ? BK : BM, A_PITCH = A_LINE * SIZE + (DTYPE == 2 && A_COL ? 32 : 16);
constexpr int B_LINE = B_COL ? BK : BN, B_LINES = B_COL ? BN : BK, B_PITCH = B_LINE * SIZE + (DTYPE == 2 && !B_COL ? 32 : 16);
constexpr u32 A_BYTES = A_LINES * A_PITCH, STAGE = A_BYTES + B_LINES * B_PITCH;
constexpr int SUMS = MI * NI * 4; // of a thread
constexpr int OUT = PAIR ? BN / 2 : BN, NO = PAIR ? NI / 2 : NI; // columns of C: of a tile, and of a warp in eights
constexpr int B_HALF = B_COL ? B_LINES / 2 * B_PITCH : B_LINE / 2 * SIZE; // bytes from B's part of a tile to B2's
static_assert(SLICES * STAGES * STAGE == SHARED && (SLICES - 1) * SUMS * NT * 4 <= SHARED,
    "the host counts shared memory as the kernel does");
static_assert(TM % 16 == 0 && TN % (PAIR ? 32 : 16) == 0 && BK % KS == 0, "tile");

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

extern "C" __global__ void __launch_bounds__(NT * SLICES, 1) // without the 1 ptxas spills to fit one more block
mma_sync(const elem* __restrict__ A, const elem* __restrict__ B, elem* __restrict__ C, int M, int N, int K, u64 lda,
    u64 ldb, u64 ldc EPILOGUE_PARAMETERS PAIR_PARAMETER) {
  extern __shared__ __align__(16) unsigned char smem[];
  const int slice = SLICES > 1 ? threadIdx.x / NT : 0, tid = threadIdx.x - slice * NT, lane = tid & 31, warp = tid >> 5;
  const u32 base = shared_addr(smem) + slice * STAGES * STAGE;
  const int blocks = ((K + BK - 1) / BK + SLICES - 1 - slice) / SLICES; // of this slice: each takes every SLICES-th
  int row, col, z;
  banded_tile(blockIdx.x, (M + BM - 1) / BM, (N + OUT - 1) / OUT, GROUP, row, col, z);
  row *= BM, col *= OUT;
  A += (A_COL ? K : M) * lda * z, B += (B_COL ? N : K) * ldb * z, C += M * ldc * z;
  const int k0 = slice * BK;
  Bring<A_LINES, A_LINE, A_PITCH, VEC_A, NT, !A_COL, BK * SLICES> a(
      A, lda, A_COL ? K : M, A_COL ? M : K, A_COL ? k0 : row, A_COL ? row : k0, tid);
#if PAIR
  B2 += (B_COL ? N : K) * ldb * z;
  using Half = Bring<B_COL ? B_LINES / 2 : B_LINES, B_COL ? B_LINE : B_LINE / 2, B_PITCH, VEC_B, NT, B_COL, BK * SLICES>;
  Half b2(B2, ldb, B_COL ? N : K, B_COL ? K : N, B_COL ? col : k0, B_COL ? k0 : col, tid);
#else
  using Half = Bring<B_LINES, B_LINE, B_PITCH, VEC_B, NT, B_COL, BK * SLICES>;
#endif
  Half b(B, ldb, B_COL ? N : K, B_COL ? K : N, B_COL ? col : k0, B_COL ? k0 : col, tid);
  overlap_begin();
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    a.prime(base, STAGE, s, blocks), b.prime(base + A_BYTES, STAGE, s, blocks);
#if PAIR
    b2.prime(base + A_BYTES + B_HALF, STAGE, s, blocks);
#endif
    copy_commit();
  }
  const int m0 = warp / WN * TM, n0 = warp % WN * TN;
  float d[MI][NI * 4] = {};
  int q = 0;
  for (int k = 0; k < blocks; k++) {
    copy_wait<STAGES - 2>();
    if (SLICES > 1) asm volatile("bar.sync %0, %1;" ::"r"(slice + 1), "n"(NT) : "memory");
    else __syncthreads(); // the stage is there, and everybody is done with the one that is filled next
    a.template turn<STAGES>(base, STAGE, k, q, blocks);
    b.template turn<STAGES>(base + A_BYTES, STAGE, k, q, blocks);
#if PAIR
    b2.template turn<STAGES>(base + A_BYTES + B_HALF, STAGE, k, q, blocks);
#endif
    copy_commit();
    const u32 ta = base + q * STAGE, tb = ta + A_BYTES;
#pragma unroll
    for (int kk = 0; kk < BK / KS; kk++) {
      u32 fa[MI][4], fb[NI / 2][4];
#pragma unroll
      for (int i = 0; i < MI; i++) load_a(fa[i], ta, m0 + i * 16, kk, lane);
#pragma unroll
      for (int j = 0; j < NI / 2; j++)
        load_b(fb[j], tb, !PAIR ? n0 + j * 16 : n0 / 2 + (j < NI / 4 ? j * 16 : OUT + (j - NI / 4) * 16), kk, lane);
#pragma unroll
      for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NI; j++) mma_step(&d[i][j * 4], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    }
    if (++q == STAGES) q = 0;
  }
  if (SLICES > 1) {
    float* parts = reinterpret_cast<float*>(smem); // one slice behind the other, a thread's sums NT apart
    copy_wait<0>();
    __syncthreads();
    if (slice > 0) {
#pragma unroll
      for (int s = 0; s < SUMS; s++) parts[((slice - 1) * SUMS + s) * NT + tid] = d[s / (NI * 4)][s % (NI * 4)];
    }
    __syncthreads();
    if (slice > 0) return;
    for (int p = 0; p < SLICES - 1; p++)
#pragma unroll
      for (int s = 0; s < SUMS; s++) d[s / (NI * 4)][s % (NI * 4)] += parts[(p * SUMS + s) * NT + tid];
  }
#pragma unroll
  for (int i = 0; i < MI; i++) {
    scale_fragments(d[i], scale, (u64)M * z, row + m0 + i * 16, M);
    if (PAIR) {
#pragma unroll
      for (int e = 0; e < NO * 4; e += 2) {
        activate_two(d[i][e], d[i][e + 1]);
        d[i][e] *= d[i][(NI - NO) * 4 + e], d[i][e + 1] *= d[i][(NI - NO) * 4 + e + 1];
      }
    } else {
      finish_fragments(d[i], bias, col + n0, N);
      join_fragments<false>(d[i], joined + (u64)M * z * ldj, ldj, row + m0 + i * 16, col + n0, M, N);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int r = row + m0 + i * 16 + h * 8 + (lane >> 2);
      if (r < M) {
        elem* line = C + (u64)r * ldc;
#pragma unroll
        for (int j = 0; j < NO; j++) {
          const int c = col + (PAIR ? n0 / 2 : n0) + j * 8 + (lane & 3) * 2;
          if (c < N) store2(line + c, d[i][j * 4 + h * 2], d[i][j * 4 + h * 2 + 1], c + 1 < N);
        }
      }
    }
  }
}
