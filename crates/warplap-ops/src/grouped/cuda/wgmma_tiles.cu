// y = x·w[e] on Hopper's tensor cores, one persistent grid over the tiles of all experts.
//
// Idea: as gemm's wgmma_coop: one thread of a producer warpgroup streams stages through TMA, CONS warpgroups each own
// BM/CONS rows of a tile, clusters share operands, tiles leave by TMA while the next is multiplied. Which tiles there
// are each CTA works out by itself from the ends of the groups, so that the host waits for nothing and a skewed deal
// costs no more than its tiles; a ring of stages that runs through all tiles hides where one expert ends and the next
// begins. With QUEUE a CTA takes its next tile from a queue, so that those at work lie beside each other and share what
// they read, however unlike tiles are. A tile takes what lies behind an expert's last row along (it is there, or zero)
// and does not store it; a warpgroup of which no row is the expert's multiplies nothing. One map holds the matrices of
// all experts under each other. Wins: tens of rows an expert and more. Limits: f16/bf16, 16-byte aligned, N % 8 == 0
// and K % 8 == 0; K % 64 == 0 where w is row-major, since a block of K must not reach into the next expert's matrix
// (what is there may be infinite). Where the idea comes from: gemm's own kernel; CUTLASS's grouped kernels, DeepGEMM's
// scheduler in the kernel; the queue is that of bsr's wgmma_union.
//
// Axes (-D): BM (64*CONS*{1,2}), BN (multiple of 16, <= 256), STAGES, CONS (1, 2), CM, CN (1, 2; CM*CN <= 2), GROUP
// (tile rows of a band), QUEUE (1: tiles are taken from a queue; CM*CN 1), SLOTS (64-row panels of y staged per
// warpgroup and round). Facts of the problem (-D): DTYPE (0 f16, 1 bf16), W_COL (1: matrices of w are column-major),
// EXPERTS. SHARED: bytes of the launch.
#include "group_tiles.cuh"

constexpr int NT = 128 * (CONS + 1), MI = BM / (64 * CONS), CL = CM * CN, BK = 64;
constexpr int PW = BN % 64 == 0 ? 64 : BN % 32 == 0 ? 32 : 16; // columns of one panel of y
constexpr u32 PANEL = 64 * PW * 2;
constexpr int END = -1; // in the place of a tile
using OpX = Operand<BM, BK, 0, CN>;
using OpW = Operand<BN, BK, !W_COL, CM>;
using MM = Mma<BN, 0, !W_COL>;
constexpr u32 STAGE = OpX::bytes + OpW::bytes;
static_assert(BM == MI * 64 * CONS && BN % 16 == 0 && (CL == 1 || !QUEUE), "tile");
static_assert(STAGES * STAGE + CONS * SLOTS * PANEL + 1024 == SHARED, "the host counts shared memory as the kernel does");

extern "C" __global__ void __launch_bounds__(NT, 1) __cluster_dims__(CL, 1, 1)
wgmma_tiles(const __grid_constant__ TMap tX, const __grid_constant__ TMap tW, const __grid_constant__ TMap tY,
    const int* offsets, u16* y, int rows, int n, int k, u32* queue) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  __shared__ Groups groups;
  __shared__ int tile[STAGES]; // which tile begins in a stage
  volatile int* whose = tile;
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, staged = base + STAGES * STAGE;
  const u32 fulls = smem_addr(full), empties = smem_addr(empty);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127, blocks = (k + BK - 1) / BK;
  const u32 rank = CL > 1 ? cluster_rank() : 0;
  if (threadIdx.x == 128) {
    tma_prefetch(&tX), tma_prefetch(&tW), tma_prefetch(&tY);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, CONS * (CM + CN - 1));
    mb_init_fence();
  }
  pdl_wait();
  if (threadIdx.x < 32) scan_groups<BM * CM>(groups, offsets, rows);
  if (CL > 1) cluster_sync();
  else __syncthreads();
  pdl_launch();
  const GroupTiles<BM, BN, CM, CN, GROUP> tiles(groups, n, rank);

  if (wg == 0) {
    if (CONS > 1) regs_less<Roles<CONS>::producer>();
    if (threadIdx.x == 0) {
      const Feed<OpX, OpW, ByExpert> feed = {&tX, &tW, base, fulls, tiles.rn, tiles.rm, tiles.row_ctas(), tiles.col_ctas(), {&tX, n, k}};
      int q = 0, row, col, z, next;
      u32 phase = 1;
      for (int t = tiles.first; t < tiles.count; t = next) {
        // Asked for long before it is needed.
        next = QUEUE ? (int)(gridDim.x + atomicAdd(queue, 1u)) : t + tiles.step;
        tiles.at(t, row, col, z);
        for (int b = 0; b < blocks; b++) {
          mb_wait(empties + q * 8, phase);
          if (b == 0) whose[q] = t;
          feed.load(row, col, b * BK, z, q);
          if (++q == STAGES) q = 0, phase ^= 1;
        }
      }
      // Says that nothing comes any more; the last CTA leaves the queue as the next launch must find it.
      mb_wait(empties + q * 8, phase);
      whose[q] = END, mb_arrive(fulls + q * 8);
      if (QUEUE && atomicAdd(queue + 1, 1u) == gridDim.x - 1) queue[0] = queue[1] = 0;
      if (++q == STAGES) q = 0, phase ^= 1;
      if constexpr (CL > 1) ring_ends<STAGES>(empties, q, phase);
    }
  } else {
    if (CONS > 1) regs_more<Roles<CONS>::consumer>();
    const int w = wg - 1;
    const u32 mine = staged + w * SLOTS * PANEL;
    const bool signals = tiles.shares_with(tid);
    // This warpgroup's signal that a stage is free goes to every CTA that writes into it.
    auto release = [&](int stage) {
      if (signals) tiles.release_stage(empties + stage * 8, tid);
    };
    const Finder finder(groups);
    int q = 0, row, col;
    u32 phase = 0;
    while (true) {
      mb_wait(fulls + q * 8, phase);
      const int t = whose[q];
      if (t == END) break;
      const int z = finder.expert_of(t / tiles.tn);
      tiles.within(t, row, col, z);
      const int first = row + w * MI * 64, end = groups.begins[z + 1];
      if (first < end) {
        float d[MI][BN / 2];
        multiply<OpX, OpW, MM, BK, STAGES, 1>(d, base, fulls, w * MI, 0, blocks, q, phase, release, [](int) {});
        store_rows<PW, SLOTS>(d, &tY, y, n, mine, first, col, end, 1 + w);
      } else {
        for (int b = 0; b < blocks; b++) {
          mb_wait(fulls + q * 8, phase);
          named_sync(1 + w, 128); // every warp has seen the stage
          release(q);
          if (++q == STAGES) q = 0, phase ^= 1;
        }
      }
    }
    named_sync(1 + w, 128);
    release(q);
    if (tid == 0) tma_store_wait_read();
  }
}
