// O = softmax(scale * Q*K' + mask) * V on the tensor cores every chip from sm_80 on has: cp.async, ldmatrix, mma.sync.
// Any length, any strides.
//
// Idea: one block a tile of BLOCK_M queries of one head, a warp 16 or 32 of its rows. Blocks of BLOCK_N keys and values
// come through a ring of STAGES by asynchronous copies as wide as the alignment allows; scores, running maximum and
// sums stay in registers, and weights go from the first product's registers straight into the second. Older sums are
// scaled down only when a row's maximum has grown much. Blocks of keys that no row of the tile sees are never brought;
// where rows differ in length, the longest tiles go first.
// Wins: other chips than Hopper, short sequences, unaligned strides. Limits: f16, bf16; head dimensions up to 256;
// lengths below 2^31.
// Where the idea comes from: FlashAttention 2 (Dao); the lazy scaling is FlashAttention 4's.
//
// Axes (-D): BLOCK_M (16*WARPS or 32*WARPS), BLOCK_N (multiple of 16), WARPS (1..8), STAGES (1: one block each of K and
// V, loads hide behind the other product; 2 and more: a ring).
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16), D, DV (elements of a key and of a value), ALIGN (bytes every row of
// Q, K, V and O lies on: 16, 8, 4, 2), LSE (1: log-sum-exp is stored), and what attention.cuh names; PACKED
// (packed.cuh: sequences begin where `begins_q` and `begins_k` say among `tq` and `tk` rows, sq and sk are the
// longest); SQUARE and LIST (squares.cuh: the mask is of squares that a block lies in). SHARED: bytes of the launch.
// Grid: ceil(sq / BLOCK_M) * heads * batch blocks of 32*WARPS; with PACKED as many times heads as there may be tiles,
// tq / BLOCK_M + batch.
#include "ampere.cuh"
#include "attention.cuh"
#include "attention_ampere.cuh"
#include "packed.cuh"
#include "squares.cuh"

constexpr int NT = WARPS * 32, MI = BLOCK_M / (WARPS * 16);
// Whole steps of the products; what is beyond D and DV is zeros.
constexpr int DP = (D + 15) / 16 * 16, VP = (DV + 15) / 16 * 16;
// An odd number of 16 bytes, so that ldmatrix meets no bank twice.
constexpr u32 K_PITCH = DP * 2 + 16, V_PITCH = VP * 2 + 16;
constexpr u32 Q_BYTES = BLOCK_M * K_PITCH, K_BYTES = BLOCK_N * K_PITCH, V_BYTES = BLOCK_N * V_PITCH;
constexpr bool KEPT = MI * DP <= 128; // queries stay in registers; larger ones are read again for every block
static_assert(BLOCK_M == MI * WARPS * 16 && MI >= 1 && MI <= 2 && BLOCK_N % 16 == 0, "tile");
static_assert(Q_BYTES + STAGES * (K_BYTES + V_BYTES) == SHARED, "the host counts shared memory as the kernel does");

// What is read is not __restrict__: that is a promise that nobody writes it for the kernel's whole life, and the
// assembler lifts such loads over the wait for the kernel before this one (seen in SASS).
extern "C" __global__ void __launch_bounds__(NT)
    flash_mma(const elem* Q, const elem* K, const elem* V,
              const void* mask, const float* slopes, elem* __restrict__ O,
              float* __restrict__ lse, int batch, int heads, int group, int sq, int sk, int lower, int upper, int band,
              float scale, float cap, u64 qb, u64 qh, u64 qr, u64 kb, u64 kh, u64 kr, u64 vb, u64 vh, u64 vr, u64 ob,
              u64 oh, u64 orow, u64 mb, u64 mh, u64 mr, const u64* seed, u32 below, const int* begins_q,
              const int* begins_k, int tq, int tk) {
  extern __shared__ __align__(16) unsigned char smem[];
  const u32 sQ = shared_addr(smem), sK = sQ + Q_BYTES, sV = sK + STAGES * K_BYTES;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  overlap_begin();
  int m, head, b, h;
  if (PACKED) {
    const int tiles = gridDim.x / heads;
    h = blockIdx.x / tiles;
    if (!tile_in<BLOCK_M>(begins_q, batch, sq, tq, blockIdx.x - h * tiles, b, m)) return;
    head = b * heads + h;
    const Stretch own = stretch_of(begins_q, b, sq, tq), met = stretch_of(begins_k, b, sk, tk);
    if (CAUSAL) m = (own.count + BLOCK_M - 1) / BLOCK_M - 1 - m; // the longest first
    const int less = PACKED == 2 ? (met.count - own.count) - (sk - sq) : 0;
    Q += own.first * qr, O += own.first * orow, K += met.first * kr, V += met.first * vr;
    lse += (u64)h * tq + own.first;
    sq = own.count, sk = met.count, lower += less, upper += less;
  } else {
    tile_of(blockIdx.x, (sq + BLOCK_M - 1) / BLOCK_M, heads * batch, band, m, head);
    b = head / heads, h = head - b * heads;
    Q += b * qb, K += b * kb, V += b * vb, O += b * ob, lse += (u64)head * sq;
  }
  const int row = m * BLOCK_M;
  Q += h * qh + row * qr, K += h / group * kh, V += h / group * vh, O += h * oh;
  const ScoreMod v = score_mod_of(sq, sk, lower, upper, scale, cap, slopes, mask, mb, mh, mr, b, h);
  const Drops drops = DROPOUT ? drops_of(seed, (u64)head, below) : Drops{};
  const Span<BLOCK_N> span(row, BLOCK_M, sq, sk, lower, upper);
  // Blocks are taken from the last to the first: the one with most edges while the pipeline fills.
#if SQUARE
  __shared__ place_t list[LIST];
  __shared__ int listed;
  if (warp == 0) {
    const u64 before = b * mb + h * mh;
    const int seen_count = list_seen(list, span.count(), [&](int i) {
      return is_seen(mask, before, mr, row, (span.end - 1 - i) * BLOCK_N);
    });
    if (lane == 0) listed = seen_count;
  }
  __syncthreads();
  const int count = listed;
  auto block_of = [&](int i) { return (span.end - 1 - list[i]) * BLOCK_N; };
#else
  const int count = span.count();
  auto block_of = [&](int i) { return (span.end - 1 - i) * BLOCK_N; };
#endif
  auto bring_k = [&](int i) {
    const int j = block_of(i);
    bring<NT, BLOCK_N, D, DP, K_PITCH>(sK + i % STAGES * K_BYTES, K + j * kr, kr, sk - j);
  };
  auto bring_v = [&](int i) {
    const int j = block_of(i);
    bring<NT, BLOCK_N, DV, VP, V_PITCH>(sV + i % STAGES * V_BYTES, V + j * vr, vr, sk - j);
  };
  bring<NT, BLOCK_M, D, DP, K_PITCH>(sQ, Q, qr, sq - row);
  if (STAGES == 1) {
    if (count > 0) bring_k(0);
    copy_commit();
    if (count > 0) bring_v(0);
    copy_commit();
  } else {
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
      if (i < count) bring_k(i), bring_v(i);
      copy_commit();
    }
  }
  const int mine = warp * MI * 16; // this warp's first row in the tile
  const int top = row + mine, r0 = top + (lane >> 2), c0 = (lane & 3) * 2;
  const u32 q_at = sQ + (mine + (lane & 15)) * K_PITCH + (lane >> 4) * 16;
  const u32 k_at = sK + ((lane & 7) + (lane >> 4) * 8) * K_PITCH + (lane & 8) * 2;
  const u32 v_at = sV + (lane & 15) * V_PITCH + (lane >> 4) * 16;
  const float k2 = v.exponent();
  float o[MI][VP / 2];
  Running run[MI];
#pragma unroll
  for (int i = 0; i < MI; i++) {
    run[i].clear();
#pragma unroll
    for (int x = 0; x < VP / 2; x++) o[i][x] = 0.f;
  }
  u32 kept[KEPT ? MI : 1][KEPT ? DP / 16 : 1][4];
  for (int i = 0; i < count; i++) {
    const int j = block_of(i), stage = i % STAGES;
    if (STAGES == 1) copy_wait<1>();
    else copy_wait<STAGES - 2>();
    __syncthreads(); // the keys are there, and everybody is done with the stage that is filled next
    if (STAGES > 1) {
      if (i + STAGES - 1 < count) bring_k(i + STAGES - 1), bring_v(i + STAGES - 1);
      copy_commit();
    }
    if (KEPT && i == 0) {
#pragma unroll
      for (int x = 0; x < MI; x++)
#pragma unroll
        for (int kk = 0; kk < DP / 16; kk++) ldmatrix4(kept[x][kk], q_at + x * 16 * K_PITCH + kk * 32);
    }
    float s[MI][BLOCK_N / 2];
    u32 held[MI][BLOCK_N / 4];
#pragma unroll
    for (int x = 0; x < MI; x++) {
      fetch_mask<BLOCK_N / 2>(held[x], v, r0 + x * 16, j + c0);
#pragma unroll
      for (int y = 0; y < BLOCK_N / 2; y++) s[x][y] = 0.f;
    }
#pragma unroll
    for (int kk = 0; kk < DP / 16; kk++) {
      u32 a[MI][4];
#pragma unroll
      for (int x = 0; x < MI; x++) {
        if (KEPT) {
#pragma unroll
          for (int y = 0; y < 4; y++) a[x][y] = kept[x][kk][y];
        } else ldmatrix4(a[x], q_at + x * 16 * K_PITCH + kk * 32);
      }
#pragma unroll
      for (int n = 0; n < BLOCK_N / 16; n++) {
        u32 f[4];
        ldmatrix4(f, k_at + stage * K_BYTES + n * 16 * K_PITCH + kk * 32);
#pragma unroll
        for (int x = 0; x < MI; x++)
          mma_step(&s[x][n * 8], a[x], f[0], f[1]), mma_step(&s[x][n * 8 + 4], a[x], f[2], f[3]);
      }
    }
    if (STAGES == 1) {
      __syncthreads(); // nobody reads these keys any more
      if (i + 1 < count) bring_k(i + 1);
      copy_commit();
    }
#pragma unroll
    for (int x = 0; x < MI; x++) {
      const int r = top + x * 16;
      const bool edge = j + BLOCK_N > sk || (CAUSAL && j + BLOCK_N - 1 > r + upper) || (WINDOW && j < r + 15 + lower);
      modify_scores(s[x], held[x], v, r0 + x * 16, j + c0, edge);
      float again[2];
      const bool grew = run[x].take(s[x], again, k2);
      if (__any_sync(~0u, grew)) {
#pragma unroll
        for (int y = 0; y < VP / 2; y++) o[x][y] *= again[y >> 1 & 1];
      }
      if (DROPOUT)
        each_kept<false, BLOCK_N / 2>(drops, r0 + x * 16, j + c0,
                                      [&](int y, bool kept) { s[x][y] = kept ? s[x][y] : 0.f; });
    }
    if (STAGES == 1) {
      copy_wait<1>();
      __syncthreads(); // the values are there
    }
#pragma unroll
    for (int kk = 0; kk < BLOCK_N / 16; kk++) {
      u32 p[MI][4];
#pragma unroll
      for (int x = 0; x < MI; x++)
#pragma unroll
        for (int y = 0; y < 4; y++) p[x][y] = pack_pair(s[x][kk * 8 + y * 2], s[x][kk * 8 + y * 2 + 1]);
#pragma unroll
      for (int n = 0; n < VP / 16; n++) {
        u32 f[4];
        ldmatrix4_trans(f, v_at + stage * V_BYTES + kk * 16 * V_PITCH + n * 32);
#pragma unroll
        for (int x = 0; x < MI; x++)
          mma_step(&o[x][n * 8], p[x], f[0], f[1]), mma_step(&o[x][n * 8 + 4], p[x], f[2], f[3]);
      }
    }
    if (STAGES == 1) {
      __syncthreads(); // nobody reads these values any more
      if (i + 1 < count) bring_v(i + 1);
      copy_commit();
    }
  }
#pragma unroll
  for (int x = 0; x < MI; x++) {
    float inverse[2], ls[2];
    run[x].finish(inverse, ls, k2);
    const float grown = DROPOUT ? grown_of(below) : 1.f;
#pragma unroll
    for (int g = 0; g < 2; g++) {
      const int r = r0 + x * 16 + g * 8;
      if (LSE && r < sq && (lane & 3) == 0) lse[r] = ls[g];
      store_row<DV, ALIGN>(O + r * orow, o[x], g, inverse[g] * grown, r < sq);
    }
  }
}
