// C = A·B on Hopper's tensor cores, two (or one, or three) warpgroups cooperating on one output tile.
//
// Idea: a persistent grid, one CTA per SM. One thread of a producer warpgroup streams stages of A and B through TMA;
// the CONS consumer warpgroups each own BM/CONS rows of the tile and run wgmma from shared memory. Clusters share
// operands: CM CTAs above each other share B, CN CTAs beside each other share A; each brings one part and multicasts
// it. The tile leaves through shared memory and TMA stores, which drain while the next tile is multiplied. Tiles are
// visited in bands of GROUP tile rows so that a wave touches a nearly square patch of C and the operands stay in L2. With
// ONCE a CTA has one tile and leaves; the tile is then staged where the stages were. A pair takes BN/2 columns of either
// B, and as many columns of C come of it (pair.cuh).
// Wins: at least one wave of tiles and K in the hundreds or more; the largest products. Limits: f16/bf16, 16-byte
// aligned bases and leading dimensions; C row-major, N % 8 == 0 (TMA stores whole 16 bytes). A row-major B is loaded in
// panels of 64 columns: with BN % 64 != 0 the rest of the last panel is brought in vain. Edges: TMA fills loads outside
// the matrix with zeros and clips stores, so M, N and K >= 1 are free. Where the idea comes from: CUTLASS's
// "warp-specialized persistent cooperative" schedule; the pranjalssh/fast.cu study for release-early and multicast with
// two consumers; the group order is Triton's tutorial matmul order.
//
// Axes (-D): BM (64*CONS*{1,2}), BN (multiple of 16, <= 256; BM*BN/CONS <= 20480, with CONS=3 BN <= 192), BK (64, 128),
// STAGES, CONS (1..3), CM, CN (1, 2; CM*CN <= 4), GROUP (>= 1), LAG (0, 1: release a stage at once or one step later),
// SLOTS (64-row panels of C staged per warpgroup and round), ONCE (1: a pair whose tile has an odd number of 8 columns).
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16), A_COL, B_COL (1: column-major), BATCH (1: L products, maps of three
// dimensions), SCALE, BIAS, ACT, JOIN and PAIR (epilogue.cuh), SQUARES
// (rms.cuh). SHARED: bytes of the launch.
#include "hopper.cuh"
#include "epilogue.cuh"
#include "pair.cuh"
#include "rms.cuh"
#ifndef ONCE
#define ONCE 0
#endif

constexpr int NT = 128 * (CONS + 1), MI = BM / (64 * CONS), CL = CM * CN;
constexpr int OUT = PAIR ? BN / 2 : BN; // columns of C
constexpr int PW = ONCE ? OUT : OUT % 64 == 0 ? 64 : OUT % 32 == 0 ? 32 : 16; // columns of one C panel
constexpr u32 CPANEL = 64 * PW * 2;
using OpA = Operand<BM, BK, A_COL, CN>;
using OpB = Weights<BN, BK, !B_COL, CM>;
using MM = Mma<BN, A_COL, !B_COL>;
constexpr u32 STAGE = OpA::bytes + OpB::bytes;
static_assert(BM == MI * 64 * CONS && BN % 16 == 0 && BK % 64 == 0 && (PAIR || !ONCE), "tile");
static_assert(!ONCE || (SLOTS == MI && CONS * SLOTS * CPANEL <= STAGES * STAGE), "the tile of C takes no more than the stages");
static_assert(STAGES * STAGE + (ONCE ? 0 : CONS * SLOTS * CPANEL) + 1024 == SHARED, "the host counts shared memory as the kernel does");

extern "C" __global__ void __launch_bounds__(NT, 1) __cluster_dims__(CL, 1, 1)
wgmma_coop(const __grid_constant__ TMap tA, const __grid_constant__ TMap tB, const __grid_constant__ TMap tC, int M,
    int N, int K, int L EPILOGUE_PARAMETERS PAIR_MAP) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, staged = ONCE ? base : base + STAGES * STAGE;
  const u32 fulls = smem_addr(full), empties = smem_addr(empty);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127;
  const u32 rank = CL > 1 ? cluster_rank() : 0;
  const Tiles<BM, OUT, CM, CN, GROUP> tiles(M, N, L, rank);
  const int blocks = (K + BK - 1) / BK;
  const Supply<OpA, OpB> feed = {&tA, &tB, base, fulls, tiles.rn, tiles.rm, tiles.row_ctas(), tiles.col_ctas() PAIR_FEED};
  int row, col, z, ahead = 0; // stages of the first tile already asked for
  if (threadIdx.x == 0) {
    tma_prefetch(&tA), tma_prefetch(&tB), tma_prefetch(&tC);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, CONS * FREERS * (CM + CN - 1));
    mb_init_fence();
    if (CL == 1) { // alone, the first loads need not wait for the CTA to meet
      pdl_wait();
      tiles.at(tiles.first, row, col, z);
      for (; ahead < min(STAGES, blocks); ahead++) feed.load(row, col, ahead * BK, z, ahead);
    }
  }
  if (CL > 1) cluster_meet();
  else __syncthreads();
  pdl_launch();
  pdl_wait();

  if (wg == 0) {
    if (CONS > 1) regs_less<Roles<CONS>::producer>();
    if (threadIdx.x == 0) feed.walk<BK, STAGES>(tiles, blocks, ahead, empties);
  } else {
    if (CONS > 1) regs_more<Roles<CONS>::consumer>();
    const int w = wg - 1;
    const u32 mine = staged + w * SLOTS * CPANEL;
    // This warpgroup's signal that a stage is free goes to every CTA that writes into it.
    const int one = SQUARES ? tid & 31 : tid;
    const bool signals = tiles.shares_with(one);
    auto release = [&](int stage) {
      if (signals) tiles.release_stage(empties + stage * 8, one);
    };
    int q = 0;
    u32 phase = 0;
    for (int t = tiles.first; t < tiles.count; t += tiles.step) {
      float d[MI][BN / 2];
      RowSquares<BK> squares[MI];
      auto issued = [&](int) {
#pragma unroll
        for (int i = 0; i < MI; i++) squares[i].add(base + q * STAGE + (w * MI + i) * 64 * 128, OpA::panel);
      };
      multiply<OpA, OpB, MM, BK, STAGES, LAG>(d, base, fulls, w * MI, 0, blocks, q, phase, release, issued);
      tiles.at(t, row, col, z);
#pragma unroll
      for (int i = 0; i < MI; i++) {
#if SQUARES
        squares[i].scale(d[i], under_root, K);
#else
        scale_fragments(d[i], scale, (u64)M * z, row + (w * MI + i) * 64 + (tid >> 5) * 16, M);
#endif
      }
      if constexpr (PAIR) {
        if constexpr (ONCE) {
          named_sync(1 + CONS, CONS * 128); // every consumer is done with the stages
          store_odd_tile<PW>(d, &tC, mine, row + w * MI * 64, col, z, 1 + w);
        } else {
          float done[MI][BN / 4];
#pragma unroll
          for (int i = 0; i < MI; i++) pair_fragments(done[i], d[i]);
          store_tile<PW, SLOTS>(done, &tC, mine, row + w * MI * 64, col, z, 1 + w);
        }
      } else {
#pragma unroll
        for (int i = 0; i < MI; i++) {
          finish_fragments(d[i], bias, col, N);
          join_fragments<true>(d[i], joined + (u64)M * z * ldj, ldj, row + (w * MI + i) * 64 + (tid >> 5) * 16, col, M, N);
        }
        store_tile<PW, SLOTS>(d, &tC, mine, row + w * MI * 64, col, z, 1 + w);
      }
    }
    if (tid == 0) tma_store_wait_read();
  }
}
