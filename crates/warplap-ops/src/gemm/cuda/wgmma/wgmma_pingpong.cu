// C = A·B on Hopper's tensor cores, two warpgroups taking turns: while one multiplies its tile, the other writes its
// own out.
//
// Idea: as wgmma_coop (persistent grid, TMA producer, cluster multicast, TMA stores), but each of the two consumer
// warpgroups owns a whole BM x BN tile and every second tile of the CTA. A pair of named barriers passes the turn: a
// warpgroup may look at the stages only once the other has seen the last of its own (the parity of a stage's barrier
// cannot tell the two tiles apart), then its epilogue hides behind the other's products. Wins: short K or many small
// tiles, where the epilogue is a visible share; tiles of 64x256 and 128x128. Limits: as wgmma_coop; two tiles per CTA
// are in flight, so it wants at least two tiles per SM. Where the idea comes from: CUTLASS's "warp-specialized
// persistent pingpong" schedule.
//
// Axes (-D): BM (64, 128), BN (multiple of 16, <= 256, BM*BN <= 20480), BK (64, 128), STAGES, CM, CN (1, 2), GROUP (>=
// 1), LAG (0, 1), SLOTS. Facts of the problem (-D): DTYPE (0 f16, 1 bf16), A_COL, B_COL (1: column-major), BATCH (1: L
// products, maps of three dimensions), BIAS, ACT, JOIN and PAIR (epilogue.cuh; a pair takes BN/2 columns of either B,
// pair.cuh). SHARED: bytes of the launch.
#include "hopper.cuh"
#include "epilogue.cuh"
#include "pair.cuh"
#include "rms.cuh"

constexpr int NT = 384, MI = BM / 64, CL = CM * CN;
constexpr int OUT = PAIR ? BN / 2 : BN; // columns of C
constexpr int PW = OUT % 64 == 0 ? 64 : OUT % 32 == 0 ? 32 : 16; // columns of one C panel
constexpr u32 CPANEL = 64 * PW * 2;
using OpA = Operand<BM, BK, A_COL, CN>;
using OpB = Weights<BN, BK, !B_COL, CM>;
using MM = Mma<BN, A_COL, !B_COL>;
constexpr u32 STAGE = OpA::bytes + OpB::bytes;
static_assert(BM == MI * 64 && BN % 16 == 0 && BK % 64 == 0, "tile");
static_assert(STAGES * STAGE + 2 * SLOTS * CPANEL + 1024 == SHARED, "the host counts shared memory as the kernel does");

extern "C" __global__ void __launch_bounds__(NT, 1) __cluster_dims__(CL, 1, 1)
wgmma_pingpong(const __grid_constant__ TMap tA, const __grid_constant__ TMap tB, const __grid_constant__ TMap tC, int M,
    int N, int K, int L EPILOGUE_PARAMETERS PAIR_MAP) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, staged = base + STAGES * STAGE;
  const u32 fulls = smem_addr(full), empties = smem_addr(empty);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127;
  const u32 rank = CL > 1 ? cluster_rank() : 0;
  const Tiles<BM, OUT, CM, CN, GROUP> tiles(M, N, L, rank);
  const int blocks = (K + BK - 1) / BK;
  const Supply<OpA, OpB> feed = {&tA, &tB, base, fulls, tiles.rn, tiles.rm, tiles.row_ctas(), tiles.col_ctas() PAIR_FEED};
  int row, col, z, ahead = 0; // stages of the first tile already asked for
  if (threadIdx.x == 0) {
    tma_prefetch(&tA), tma_prefetch(&tB), tma_prefetch(&tC);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, FREERS * (CM + CN - 1));
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
    regs_less<Roles<2>::producer>();
    if (threadIdx.x == 0) feed.walk<BK, STAGES>(tiles, blocks, ahead, empties);
  } else {
    regs_more<Roles<2>::consumer>();
    const int w = wg - 1;
    const u32 mine = staged + w * SLOTS * CPANEL;
    // This warpgroup's signal that a stage is free goes to every CTA that writes into it.
    const int one = SQUARES ? tid & 31 : tid;
    const bool signals = tiles.shares_with(one);
    auto release = [&](int stage) {
      if (signals) tiles.release_stage(empties + stage * 8, one);
    };
    if (w == 1) named_arrive(3, 256); // the first turn is warpgroup 0's
    int turn = w; // tiles of this CTA that came before; each took `blocks` stages
    for (int t = tiles.first + w * tiles.step; t < tiles.count; t += 2 * tiles.step, turn += 2) {
      int q = (int)((u32)turn * (u32)blocks % STAGES);
      u32 phase = (u32)turn * (u32)blocks / STAGES & 1;
      float d[MI][BN / 2];
      named_sync(3 + w, 256);
      RowSquares<BK> squares[MI];
      auto pass_turn = [&](int k) {
        if (k == blocks - 1 && t + tiles.step < tiles.count) named_arrive(4 - w, 256);
#pragma unroll
        for (int i = 0; i < MI; i++) squares[i].add(base + q * STAGE + i * 64 * 128, OpA::panel);
      };
      multiply<OpA, OpB, MM, BK, STAGES, LAG>(d, base, fulls, 0, 0, blocks, q, phase, release, pass_turn);
      tiles.at(t, row, col, z);
#pragma unroll
      for (int i = 0; i < MI; i++) {
#if SQUARES
        squares[i].scale(d[i], under_root, K);
#else
        scale_fragments(d[i], scale, (u64)M * z, row + i * 64 + (tid >> 5) * 16, M);
#endif
      }
      if constexpr (PAIR) {
        float done[MI][BN / 4];
#pragma unroll
        for (int i = 0; i < MI; i++) pair_fragments(done[i], d[i]);
        store_tile<PW, SLOTS>(done, &tC, mine, row, col, z, 1 + w);
      } else {
#pragma unroll
        for (int i = 0; i < MI; i++) {
          finish_fragments(d[i], bias, col, N);
          join_fragments<true>(d[i], joined + (u64)M * z * ldj, ldj, row + i * 64 + (tid >> 5) * 16, col, M, N);
        }
        store_tile<PW, SLOTS>(d, &tC, mine, row, col, z, 1 + w);
      }
    }
    if (tid == 0) tma_store_wait_read();
  }
}
