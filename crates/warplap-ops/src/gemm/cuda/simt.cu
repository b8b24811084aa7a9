// C = A·B in strict f32 on the plain lanes: a block a tile, TM x TN sums a thread.
//
// Idea: stages of A and B lie in shared memory with K outside and rows (columns) contiguous, so that a thread reads its
// rows and columns as 16-byte vectors. What lies so in memory is copied in vectors as wide as the alignment allows;
// what does not is turned on the way by 4-byte copies, whose lines are padded so that a warp's copies meet no bank
// twice. A warp covers 16 rows and 32 columns of each quarter of the tile. Wins: strict f32, where the tensor cores
// have nothing to offer. Limits: f32; sizes below 2^31. Any layout, shape and alignment. Where the idea comes from: the
// classical register-tiled product (MAGMA, CUTLASS's SIMT kernels).
//
// Axes (-D): BM, BN, BK (128x128x8, 64x64x16 and their like), TM, TN (sums of a thread: 8x8, 4x8), STAGES (2..4), GROUP
// (tile rows of a band). Facts of the problem (-D): DTYPE (2), A_COL, B_COL (1: column-major), VEC_A, VEC_B (bytes of
// one copy, 4 where it is turned), VEC_C (1: four columns of C may be stored at once), BIAS and ACT (epilogue.cuh).
// SHARED: bytes of the launch.
#include "ampere.cuh"
#include "epilogue.cuh"

constexpr int NT = BM * BN / (TM * TN), WX = BN / TN / 8, MH = TM / 4, NH = TN / 4; // warps side by side; vectors of a thread
constexpr int A_PITCH = (BM + 4) * 4, B_PITCH = (BN + 4) * 4;                       // bytes
constexpr u32 A_BYTES = BK * A_PITCH, STAGE = A_BYTES + BK * B_PITCH;
static_assert(STAGES * STAGE == SHARED, "the host counts shared memory as the kernel does");
static_assert(NT % 32 == 0 && WX >= 1 && TM % 4 == 0 && TN % 4 == 0, "tile");

// Brings rows_ x BK with K contiguous in memory, turned: lanes follow K.
template <int rows_, int pitch_> struct Turn {
  static constexpr int jump = NT / BK, times = rows_ / jump;
  static_assert(rows_ % jump == 0, "threads take whole lines");
  const float* from;
  u64 ld;
  int row, at, to, rows, deep;
  DI Turn(const float* src, u64 ld_, int rows__, int deep_, int row0) : ld(ld_), rows(rows__), deep(deep_) {
    row = row0 + threadIdx.x / BK, at = threadIdx.x % BK, to = at * pitch_ + threadIdx.x / BK * 4;
    from = src + (u64)row * ld + at;
  }
  DI void fetch(u32 dst) {
#pragma unroll
    for (int j = 0; j < times; j++)
      copy_async<4>(dst + to + j * jump * 4, from + (u64)(j * jump) * ld, row + j * jump < rows && at < deep ? 4 : 0);
    at += BK, from += BK;
  }
};
// Brings BK lines of line_ contiguous elements as they are.
template <int line_, int pitch_, int vec_> struct Plain {
  Bring<BK, line_, pitch_, vec_, NT, false, BK> bring;
  DI Plain(const float* src, u64 ld, int width, int deep, int at0) : bring(src, ld, deep, width, 0, at0, threadIdx.x) {}
  DI void fetch(u32 dst) { bring.fetch(dst), bring.advance(); }
};
template <bool c_, class X, class Y> struct Pick { using T = X; };
template <class X, class Y> struct Pick<false, X, Y> { using T = Y; };

extern "C" __global__ void __launch_bounds__(NT)
simt(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K, u64 lda,
    u64 ldb, u64 ldc EPILOGUE_PARAMETERS) {
  extern __shared__ __align__(16) unsigned char smem[];
  const u32 base = shared_addr(smem);
  const int blocks = (K + BK - 1) / BK, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int row, col, z;
  banded_tile(blockIdx.x, (M + BM - 1) / BM, (N + BN - 1) / BN, GROUP, row, col, z);
  row *= BM, col *= BN;
  A += (A_COL ? K : M) * lda * z, B += (B_COL ? N : K) * ldb * z, C += M * ldc * z;
  typename Pick<A_COL, Plain<BM, A_PITCH, VEC_A>, Turn<BM, A_PITCH>>::T a(A, lda, M, K, row);
  typename Pick<!B_COL, Plain<BN, B_PITCH, VEC_B>, Turn<BN, B_PITCH>>::T b(B, ldb, N, K, col);
  auto fetch = [&](int q) { a.fetch(base + q * STAGE), b.fetch(base + q * STAGE + A_BYTES); };
  overlap_begin();
#pragma unroll
  for (int q = 0; q < STAGES - 1; q++) {
    if (q < blocks) fetch(q);
    copy_commit();
  }
  // This thread's first row and column of each quarter.
  const int y = (warp / WX * 4 + lane / 8) * 4, x = (warp % WX * 8 + lane % 8) * 4;
  float sum[TM][TN] = {};
  int q = 0, into = STAGES - 1;
  for (int k = 0; k < blocks; k++) {
    copy_wait<STAGES - 2>();
    __syncthreads(); // the stage is there, and everybody is done with the one that is filled next
    if (k + STAGES - 1 < blocks) fetch(into);
    copy_commit();
    const unsigned char* ta = smem + q * STAGE + y * 4;
    const unsigned char* tb = smem + q * STAGE + A_BYTES + x * 4;
#pragma unroll
    for (int kk = 0; kk < BK; kk++) {
      float fa[TM], fb[TN];
#pragma unroll
      for (int h = 0; h < MH; h++) {
        const float4 v = *reinterpret_cast<const float4*>(ta + kk * A_PITCH + h * (BM / MH) * 4);
        fa[h * 4] = v.x, fa[h * 4 + 1] = v.y, fa[h * 4 + 2] = v.z, fa[h * 4 + 3] = v.w;
      }
#pragma unroll
      for (int h = 0; h < NH; h++) {
        const float4 v = *reinterpret_cast<const float4*>(tb + kk * B_PITCH + h * (BN / NH) * 4);
        fb[h * 4] = v.x, fb[h * 4 + 1] = v.y, fb[h * 4 + 2] = v.z, fb[h * 4 + 3] = v.w;
      }
#pragma unroll
      for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) sum[i][j] = fmaf(fa[i], fb[j], sum[i][j]);
    }
    if (++q == STAGES) q = 0;
    if (++into == STAGES) into = 0;
  }
#pragma unroll
  for (int i = 0; i < TM; i++) {
    const int r = row + i / 4 * (BM / MH) + y + i % 4;
    if (r >= M) continue;
    float* line = C + (u64)r * ldc;
    const float factor = factor_of(scale, (u64)M * z + r);
#pragma unroll
    for (int h = 0; h < NH; h++) {
      const int c = col + h * (BN / NH) + x;
      float o[4];
#pragma unroll
      for (int j = 0; j < 4; j++)
        o[j] = join_at(finished(sum[i][h * 4 + j], bias, c + j, N, factor), joined + ((u64)M * z + r) * ldj, c + j, N);
      if (VEC_C && c + 4 <= N) *reinterpret_cast<float4*>(line + c) = make_float4(o[0], o[1], o[2], o[3]);
      else
#pragma unroll
        for (int j = 0; j < 4; j++)
          if (c + j < N) line[c + j] = o[j];
    }
  }
}
