// C = A·B of 8-bit numbers for few rows of A (decode): the weights B take the 64-row side of the tensor-core product,
// the rows of A its narrow side.
//
// Idea: as the dense wgmma_swapab. BW columns of B against BT rows of A, K cut between the SPLIT CTAs of a cluster; all
// but the first send their sums into the first one's shared memory, which adds them in the order of K. Signed bytes and
// fast sums run through a CTA's share of K; others of f8e4m3 are added up in f32 every 128 elements, where a block's
// factors are applied. Wins: M from 1 to 128, where reading B is all the work. Limits: Hopper; K a multiple of 16; with
// factors of blocks BW divides 128.
//
// Axes (-D): BW (64*CONS), BT (8, 16, 32, 64, 128), STAGES, CONS (1, 2), SPLIT (1, 2, 4, 8), CTAS (per SM: 1..4). Facts
// of the problem (-D): INT, DTYPE, SCALE (quant.cuh), THROUGH (1: sums run through), STAGED (1: factors of blocks come
// with their stage). SHARED: bytes of the launch.
#include "quant_hopper.cuh"

constexpr int NT = 128 * CONS + 32;
constexpr u32 PART = BW * BT * 4; // bytes of one CTA's sums
using OpW = Operand<BW, 64, 0, 1>;
using OpT = Operand<BT, 64, 0, 1>;
using Brought = Staged<BT, 1, 128>;
constexpr u32 STAGE = OpW::bytes + OpT::bytes, FACTORS = STAGED ? Brought::bytes : 0;
// Registers for two blocks' sums beside the tile's.
constexpr bool TWICE = !THROUGH && BT <= 64 && (SCALE != 3 || STAGED);
constexpr int TELLERS = TWICE && STAGED ? 4 : 1; // warps of a warpgroup that say that a stage was read, as in wgmma.cu
static_assert(BW == 64 * CONS, "tile");
static_assert(STAGES * (STAGE + FACTORS) + (SPLIT - 1) * PART + 1024 == SHARED, "the host counts shared memory as the kernel does");

DI float bits(sum_t x) {
#if INT
  return __int_as_float(x);
#else
  return x;
#endif
}
DI sum_t number(float x) {
#if INT
  return __float_as_int(x);
#else
  return x;
#endif
}

extern "C" __global__ void __launch_bounds__(NT, CTAS) __cluster_dims__(SPLIT, 1, 1)
wgmma_few(const __grid_constant__ TMap tA, const __grid_constant__ TMap tB, out_t* __restrict__ C,
          const float* __restrict__ scale_a, const float* __restrict__ scale_b, int M, int N, int K, int pitch) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES], received;
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, inbox = base + STAGES * STAGE, brought = inbox + (SPLIT - 1) * PART;
  const u32 fulls = smem_addr(full), empties = smem_addr(empty), inbox_bar = smem_addr(&received);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127;
  const int slice = SPLIT > 1 ? cluster_rank() : 0, tile = blockIdx.x / SPLIT;
  const int tt = (M + BT - 1) / BT, row = tile % tt * BT, col = tile / tt * BW;
  const int all = (K + 127) / 128;
  int from = (int)((long long)all * slice / SPLIT), to = (int)((long long)all * (slice + 1) / SPLIT);
  const bool idle = from == to;
  if (idle) from = all, to = all + 1; // a CTA without blocks takes the one past the end, which reads as zeros
  const Feed<OpW, OpT> feed = {&tB, &tA, base, fulls, 0, 0, 0, 0};
  const Factors factors = {scale_a, scale_b, M, pitch};
  auto load = [&](int k, int q) {
    if (STAGED && k < all) Brought::load(brought + q * FACTORS, fulls + q * 8, factors, row, col, N, k);
    feed.load(col, row, k * 64, 0, q);
  };
  const int early = min(to, from + STAGES);
  if (threadIdx.x == CONS * 128) {
    tma_prefetch(&tB), tma_prefetch(&tA);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, CONS * TELLERS);
    mb_init(inbox_bar, 1);
    mb_init_fence();
    if (SPLIT > 1 && slice == 0) mb_expect(inbox_bar, (u32)(SPLIT - 1) * PART);
    pdl_wait();
    for (int k = from; k < early; k++) load(k, k - from);
  }
  if (SPLIT > 1) cluster_arrive_early(); // says: barriers are ready; met again before the first byte goes to a peer
  __syncthreads();
  pdl_launch();
  if (wg == CONS) {
    if (tid == 0) {
      int q = 0;
      u32 phase = 0;
      for (int k = early; k < to; k++) {
        mb_wait(empties + q * 8, phase);
        load(k, q);
        if (++q == STAGES) q = 0, phase ^= 1;
      }
    }
    if (SPLIT > 1) cluster_wait();
  } else {
    pdl_wait();
    const int lane = tid & 31, in_tile = wg * 64 + (tid >> 5) * 16 + lane / 4;
    sum_t d[1][BT / 2];
    int q = 0;
    u32 phase = 0;
    auto release = [&](int stage) {
      if (TELLERS > 1) __syncwarp();
      if ((TELLERS > 1 ? lane : tid) == 0) mb_arrive(empties + stage * 8);
    };
    if (THROUGH) multiply_through<OpW, OpT, STAGES>(d, base, fulls, wg, from, to, q, phase, release, [](int) {});
    else {
#pragma unroll
      for (int j = 0; j < BT / 2; j++) d[0][j] = 0;
      float of_a[BT / 4], next_a[BT / 4], of_b = 1.f, next_b = 1.f;
      auto fetch = [&](int k) {
        next_b = factors.of_b(min(col, N - 1), k);
#pragma unroll
        for (int j = 0; j < BT / 4; j++) next_a[j] = factors.of_a(min(row + j / 2 * 8 + lane % 4 * 2 + j % 2, M - 1), k);
      };
      if (SCALE == 3 && !STAGED && !idle) fetch(from);
      auto ask = [&](int k) { // a block's factors are on their way while the one before is multiplied
        if (SCALE != 3 || STAGED || idle) return;
        of_b = next_b;
#pragma unroll
        for (int j = 0; j < BT / 4; j++) of_a[j] = next_a[j];
        if (k + 1 < to) fetch(k + 1);
      };
      auto seen = [&](int k, int stage) {
        if (!STAGED || idle) return;
        const u32 at = brought + stage * FACTORS;
        of_b = Brought::of_part(at, 0, k);
#pragma unroll
        for (int j = 0; j < BT / 4; j++) of_a[j] = Brought::of_row(at, j / 2 * 8 + lane % 4 * 2 + j % 2);
      };
      auto add = [&](int, int, const sum_t(&v)[BT / 2]) {
        if (idle) return;
#pragma unroll
        for (int j = 0; j < BT / 2; j++) d[0][j] = SCALE == 3 ? fmaf(v[j], of_a[j / 4 * 2 + j % 2] * of_b, d[0][j]) : d[0][j] + v[j];
      };
      if (TWICE) multiply_overlapped<OpW, OpT, STAGES, BT>(base, fulls, wg, from, to, q, phase, release, seen, add);
      else multiply_by_blocks<OpW, OpT, STAGES, 1, 1, BT>(base, fulls, wg, from, to, q, phase, release, ask, seen, add);
    }
    if (SPLIT > 1) cluster_wait();
    const u32 mine = (wg * 128 + tid) * 16; // parts lie as the sender's threads held them
    if (SPLIT > 1 && slice > 0) {
      const u32 to_bar = peer_addr(inbox_bar, 0), to_box = peer_addr(inbox + (u32)(slice - 1) * PART + mine, 0);
#pragma unroll
      for (int j = 0; j < BT / 2; j += 4)
        peer_send4(to_box + j / 4 * (CONS * 2048), to_bar, bits(d[0][j]), bits(d[0][j + 1]), bits(d[0][j + 2]),
            bits(d[0][j + 3]));
    } else {
      if (SPLIT > 1) {
        mb_wait(inbox_bar, 0);
#pragma unroll
        for (int s = 0; s + 1 < SPLIT; s++)
#pragma unroll
          for (int j = 0; j < BT / 2; j += 4) {
            const float4 v = shared_load4(inbox + s * PART + mine + j / 4 * (CONS * 2048));
            d[0][j] += number(v.x), d[0][j + 1] += number(v.y), d[0][j + 2] += number(v.z), d[0][j + 3] += number(v.w);
          }
      }
      // A fragment's rows are columns of C here, its columns rows.
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int c = col + in_tile + half * 8;
        if (c >= N) continue;
        const float of_b = SCALE == 1 || SCALE == 2 ? factors.of_b(c, 0) : 1.f;
#pragma unroll
        for (int j = 0; j < BT / 4; j++) {
          const int r = row + j / 2 * 8 + lane % 4 * 2 + j % 2;
          sum_t v = d[0][j / 2 * 4 + half * 2 + j % 2];
          if (r >= M) continue;
          if (SCALE == 1 || SCALE == 2) v *= factors.of_a(r, 0) * of_b;
          C[(u64)r * N + c] = narrowed(v);
        }
      }
    }
  }
}
