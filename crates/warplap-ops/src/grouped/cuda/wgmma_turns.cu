// y = x·w[e] on Hopper's tensor cores, two warpgroups taking turns: while one multiplies its tile, the other writes its
// own out.
//
// Idea: the grid and the ring of wgmma_tiles, in which each of two warpgroups owns a whole tile and every second one of
// the CTA, as in gemm's wgmma_pingpong: a pair of named barriers passes the turn. Tiles of 64 rows waste least behind
// an expert's last row. Wins: short K, where storing is a visible share, and many experts of some tens of rows. Limits:
// as wgmma_tiles. Where the idea comes from: CUTLASS's "warp-specialized persistent pingpong" schedule.
//
// Axes (-D): BM (64, 128), BN (multiple of 16, BM*BN <= 20480), STAGES, CM, CN (1, 2; CM*CN <= 2), GROUP, SLOTS (as
// wgmma_tiles). Facts of the problem (-D): DTYPE (0 f16, 1 bf16), W_COL (1: matrices of w are column-major), EXPERTS.
// SHARED: bytes of the launch.
#include "group_tiles.cuh"

constexpr int NT = 384, MI = BM / 64, CL = CM * CN, BK = 64;
constexpr int PW = BN % 64 == 0 ? 64 : BN % 32 == 0 ? 32 : 16; // columns of one panel of y
constexpr u32 PANEL = 64 * PW * 2;
using OpX = Operand<BM, BK, 0, CN>;
using OpW = Operand<BN, BK, !W_COL, CM>;
using MM = Mma<BN, 0, !W_COL>;
constexpr u32 STAGE = OpX::bytes + OpW::bytes;
static_assert(BM == MI * 64 && BN % 16 == 0, "tile");
static_assert(STAGES * STAGE + 2 * SLOTS * PANEL + 1024 == SHARED, "the host counts shared memory as the kernel does");

extern "C" __global__ void __launch_bounds__(NT, 1) __cluster_dims__(CL, 1, 1)
wgmma_turns(const __grid_constant__ TMap tX, const __grid_constant__ TMap tW, const __grid_constant__ TMap tY,
    const int* offsets, u16* y, int rows, int n, int k) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  __shared__ Groups groups;
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, staged = base + STAGES * STAGE;
  const u32 fulls = smem_addr(full), empties = smem_addr(empty);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127, blocks = (k + BK - 1) / BK;
  const u32 rank = CL > 1 ? cluster_rank() : 0;
  if (threadIdx.x == 128) {
    tma_prefetch(&tX), tma_prefetch(&tW), tma_prefetch(&tY);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, CM + CN - 1);
    mb_init_fence();
  }
  pdl_wait();
  if (threadIdx.x < 32) scan_groups<BM * CM>(groups, offsets, rows);
  if (CL > 1) cluster_sync();
  else __syncthreads();
  pdl_launch();
  const GroupTiles<BM, BN, CM, CN, GROUP> tiles(groups, n, rank);

  if (wg == 0) {
    regs_less<Roles<2>::producer>();
    const Feed<OpX, OpW, ByExpert> feed = {&tX, &tW, base, fulls, tiles.rn, tiles.rm, tiles.row_ctas(), tiles.col_ctas(), {&tX, n, k}};
    if (threadIdx.x == 0) feed.walk<BK, STAGES>(tiles, blocks, 0, empties);
  } else {
    regs_more<Roles<2>::consumer>();
    const int w = wg - 1;
    const u32 mine = staged + w * SLOTS * PANEL;
    const bool signals = tiles.shares_with(tid);
    // This warpgroup's signal that a stage is free goes to every CTA that writes into it.
    auto release = [&](int stage) {
      if (signals) tiles.release_stage(empties + stage * 8, tid);
    };
    const Finder finder(groups);
    int row, col;
    if (w == 1) named_arrive(3, 256); // the first turn is warpgroup 0's
    int turn = w; // tiles of this CTA that came before; each took `blocks` stages
    for (int t = tiles.first + w * tiles.step; t < tiles.count; t += 2 * tiles.step, turn += 2) {
      int q = (int)((u32)turn * (u32)blocks % STAGES);
      u32 phase = (u32)turn * (u32)blocks / STAGES & 1;
      float d[MI][BN / 2];
      named_sync(3 + w, 256);
      auto pass_turn = [&](int b) {
        if (b == blocks - 1 && t + tiles.step < tiles.count) named_arrive(4 - w, 256);
      };
      multiply<OpX, OpW, MM, BK, STAGES, 1>(d, base, fulls, 0, 0, blocks, q, phase, release, pass_turn);
      const int z = finder.expert_of(t / tiles.tn);
      tiles.within(t, row, col, z);
      store_rows<PW, SLOTS>(d, &tY, y, n, mine, row, col, groups.begins[z + 1], 1 + w);
    }
    if (tid == 0) tma_store_wait_read();
  }
}
