// C = A·B of 8-bit numbers on Hopper's tensor cores, warpgroups cooperating on one output tile or taking turns.
//
// Idea: as the dense wgmma_coop (a persistent grid, a TMA producer, cluster multicast, tiles in bands, TMA stores that
// drain under the next tile), with steps of 32 bytes along k. Signed bytes and fast sums stay in the tensor cores'
// registers through all of K; with PING each of two warpgroups then owns a whole tile and every second one of the CTA,
// and writes it out while the other multiplies. Other sums of f8e4m3 leave the tensor cores after every 128 elements
// and are added up in f32, PN columns at a time: while one warpgroup adds, another multiplies, and where registers
// suffice the next block of its own is multiplied too. A block's factors are applied there, and come with its stage
// where lines of them begin on 16 bytes; those of matrices, rows and columns when the tile is done. Wins: at least one
// wave of tiles. Limits: Hopper; K a multiple of 16; lines of C on 16 bytes; with factors of blocks PN divides 128.
// Edges: TMA fills what is outside with zeros and clips stores. Where the idea comes from: CUTLASS's cooperative and
// ping-pong schedules and its accumulation in two levels; DeepGEMM for factors of blocks.
//
// Axes (-D): BM (64*{1,2} of a warpgroup's own, times CONS where they cooperate), BN (multiple of 32, <= 256), PN
// (divides BN; BN where sums run through), STAGES, CONS (1..3; 2 with PING), PING (0, 1), CM, CN (1, 2), GROUP (>= 1),
// SLOTS (panels of C staged per warpgroup and round; 0: sums of four bytes are stored from registers). Facts of the
// problem (-D): INT, DTYPE, SCALE (quant.cuh), THROUGH (1: sums run through all of K), STAGED (1: factors of blocks
// come with their stage). SHARED: bytes of the launch.
#include "quant_hopper.cuh"

constexpr int NT = 128 * (CONS + 1), OWN = PING ? 1 : CONS, MI = BM / (64 * OWN), CL = CM * CN, PARTS = BN / PN;
constexpr int PW = sizeof(out_t) == 4 ? 32 : BN % 64 == 0 ? 64 : 32; // columns of one C panel
constexpr u32 CPANEL = 64 * PW * sizeof(out_t);
using OpA = Operand<BM, 64, 0, CN>;
using OpB = Operand<BN, 64, 0, CM>;
using Brought = Staged<BM, PARTS, PN>;
// Registers for two blocks' sums beside the tile's.
constexpr bool TWICE = !THROUGH && MI == 1 && PARTS == 1 && BN <= 128 && CONS < 3 && (SCALE != 3 || STAGED);
// Warps of a warpgroup that say that a stage was read: its products are the warpgroup's as a whole, but with two blocks'
// sums at once a stage's factors are read after them, by each warp in its own time.
constexpr int TELLERS = TWICE && STAGED ? 4 : 1;
constexpr u32 STAGE = OpA::bytes + OpB::bytes, FACTORS = STAGED ? Brought::bytes : 0;
static_assert(BM == MI * 64 * OWN && BN % 32 == 0 && BN % PN == 0 && (THROUGH || !PING) && (SCALE == 3 || !STAGED), "tile");
static_assert(STAGES * (STAGE + FACTORS) + CONS * SLOTS * CPANEL + 1024 == SHARED, "the host counts shared memory as the kernel does");

extern "C" __global__ void __launch_bounds__(NT, 1) __cluster_dims__(CL, 1, 1)
wgmma(const __grid_constant__ TMap tA, const __grid_constant__ TMap tB, const __grid_constant__ TMap tC, out_t* __restrict__ C,
      const float* __restrict__ scale_a, const float* __restrict__ scale_b, int M, int N, int K, int pitch) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, staged = base + STAGES * STAGE, brought = staged + CONS * SLOTS * CPANEL;
  const u32 fulls = smem_addr(full), empties = smem_addr(empty);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127;
  const u32 rank = CL > 1 ? cluster_rank() : 0;
  const Tiles<BM, BN, CM, CN, GROUP> tiles(M, N, 1, rank);
  const int blocks = (K + 127) / 128;
  const Feed<OpA, OpB> feed = {&tA, &tB, base, fulls, tiles.rn, tiles.rm, tiles.row_ctas(), tiles.col_ctas()};
  const Factors factors = {scale_a, scale_b, M, pitch};
  auto load = [&](int row, int col, int k, int q) {
    if (STAGED) Brought::load(brought + q * FACTORS, fulls + q * 8, factors, row, col, N, k);
    feed.load(row, col, k * 64, 0, q);
  };
  int row, col, z, ahead = 0; // stages of the first tile already asked for
  if (threadIdx.x == 0) {
    tma_prefetch(&tA), tma_prefetch(&tB), tma_prefetch(&tC);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, OWN * TELLERS * (CM + CN - 1));
    mb_init_fence();
    if (CL == 1) { // alone, the first loads need not wait for the CTA to meet
      pdl_wait();
      tiles.at(tiles.first, row, col, z);
      for (; ahead < min(STAGES, blocks); ahead++) load(row, col, ahead, ahead);
    }
  }
  if (CL > 1) cluster_meet();
  else __syncthreads();
  pdl_launch();
  pdl_wait();

  if (wg == 0) {
    if (CONS > 1) regs_less<Roles<CONS>::producer>();
    if (threadIdx.x == 0) {
      int q = ahead % STAGES;
      u32 phase = ahead == STAGES ? 0 : 1;
      for (int t = tiles.first; t < tiles.count; t += tiles.step, ahead = 0) {
        tiles.at(t, row, col, z);
        for (int k = ahead; k < blocks; k++) {
          mb_wait(empties + q * 8, phase);
          load(row, col, k, q);
          if (++q == STAGES) q = 0, phase ^= 1;
        }
      }
      if constexpr (CL > 1) ring_ends<STAGES>(empties, q, phase);
    }
  } else {
    if (CONS > 1) regs_more<Roles<CONS>::consumer>();
    const int w = wg - 1, part = PING ? 0 : w * MI, lane = tid & 31, in_tile = part * 64 + (tid >> 5) * 16 + lane / 4;
    const u32 mine = staged + w * SLOTS * CPANEL;
    // The signal that a stage is free goes to every CTA that writes into it.
    const int teller = TELLERS > 1 ? lane : tid;
    const bool signals = tiles.shares_with(teller);
    auto release = [&](int stage) {
      if (TELLERS > 1) __syncwarp();
      if (signals) tiles.release_stage(empties + stage * 8, teller);
    };
    if (PING && w == 1) named_arrive(3, 256); // the first turn is warpgroup 0's
    int q = 0, turn = w; // tiles of this CTA that came before; each took `blocks` stages
    u32 phase = 0;
    for (int t = tiles.first + (PING ? w * tiles.step : 0); t < tiles.count; t += (PING ? 2 : 1) * tiles.step, turn += 2) {
      sum_t d[MI][BN / 2];
      tiles.at(t, row, col, z);
      // The rows a lane holds; what is outside of C is never stored, and reads the factors of its last line.
      int rows[MI][2];
#pragma unroll
      for (int i = 0; i < MI; i++) rows[i][0] = min(row + in_tile + i * 64, M - 1), rows[i][1] = min(row + in_tile + i * 64 + 8, M - 1);
      if (PING) {
        q = (int)((u32)turn * (u32)blocks % STAGES), phase = (u32)turn * (u32)blocks / STAGES & 1;
        named_sync(3 + w, 256);
      }
      if (THROUGH) {
        auto pass_turn = [&](int k) {
          if (PING && k == blocks - 1 && t + tiles.step < tiles.count) named_arrive(4 - w, 256);
        };
        multiply_through<OpA, OpB, STAGES>(d, base, fulls, part, 0, blocks, q, phase, release, pass_turn);
      } else {
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
          for (int j = 0; j < BN / 2; j++) d[i][j] = 0;
        float of_a[MI][2], of_b[PARTS], next_a[MI][2], next_b[PARTS];
        auto fetch = [&](int k) {
#pragma unroll
          for (int i = 0; i < MI; i++) next_a[i][0] = factors.of_a(rows[i][0], k), next_a[i][1] = factors.of_a(rows[i][1], k);
#pragma unroll
          for (int p = 0; p < PARTS; p++) next_b[p] = factors.of_b(min(col + p * PN, N - 1), k);
        };
        if (SCALE == 3 && !STAGED) fetch(0);
        auto ask = [&](int k) { // a block's factors are on their way while the one before is multiplied
          if (SCALE != 3 || STAGED) return;
#pragma unroll
          for (int i = 0; i < MI; i++) of_a[i][0] = next_a[i][0], of_a[i][1] = next_a[i][1];
#pragma unroll
          for (int p = 0; p < PARTS; p++) of_b[p] = next_b[p];
          if (k + 1 < blocks) fetch(k + 1);
        };
        auto seen = [&](int k, int stage) {
          if (!STAGED) return;
          const u32 at = brought + stage * FACTORS;
#pragma unroll
          for (int i = 0; i < MI; i++)
            of_a[i][0] = Brought::of_row(at, in_tile + i * 64), of_a[i][1] = Brought::of_row(at, in_tile + i * 64 + 8);
#pragma unroll
          for (int p = 0; p < PARTS; p++) of_b[p] = Brought::of_part(at, p, k);
        };
        auto add = [&](int i, int p, const sum_t(&v)[PN / 2]) {
          const float upper = SCALE == 3 ? of_a[i][0] * of_b[p] : 1.f, lower = SCALE == 3 ? of_a[i][1] * of_b[p] : 1.f;
#pragma unroll
          for (int j = 0; j < PN / 2; j++) {
            sum_t& to = d[i][p * (PN / 2) + j];
            to = SCALE == 3 ? fmaf(v[j], j & 2 ? lower : upper, to) : to + v[j];
          }
        };
        if (TWICE) multiply_overlapped<OpA, OpB, STAGES, PN>(base, fulls, part, 0, blocks, q, phase, release, seen, add);
        else multiply_by_blocks<OpA, OpB, STAGES, MI, PARTS, PN>(base, fulls, part, 0, blocks, q, phase, release, ask, seen, add);
      }
      if (SCALE == 1 || SCALE == 2) {
#pragma unroll
        for (int i = 0; i < MI; i++) {
          const float upper = factors.of_a(rows[i][0], 0), lower = factors.of_a(rows[i][1], 0);
#pragma unroll
          for (int j = 0; j < BN / 2; j += 4) {
            const int c = min(col + j * 2 + lane % 4 * 2, N - 2);
            const float left = factors.of_b(c, 0), right = factors.of_b(c + 1, 0);
            d[i][j] *= upper * left, d[i][j + 1] *= upper * right, d[i][j + 2] *= lower * left, d[i][j + 3] *= lower * right;
          }
        }
      }
#if SLOTS == 0
      store_direct(d, C, row + part * 64, col, M, N);
#elif INT || DTYPE == 2
      store_words<SLOTS>(d, &tC, mine, row + part * 64, col, 1 + w);
#else
      store_tile<PW, SLOTS>(d, &tC, mine, row + part * 64, col, 0, 1 + w);
#endif
    }
    if (SLOTS > 0 && tid == 0) tma_store_wait_read();
  }
}
