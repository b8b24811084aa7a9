// y = x·w[e] for few rows an expert: its matrix takes the 64-row side of the tensor cores, its rows their narrow side.
//
// Idea: reading the matrices is all the work. A persistent grid, CTAS on a multiprocessor, works out from the ends of
// the groups which matrices are read at all, and streams BW of their columns at a time through a ring of stages that
// never runs dry between tiles: one thread asks for the next tile's while the last one's sums are turned by stmatrix
// and stored. Experts of more than BT rows read their matrix again for each BT, out of L2: such tiles follow each
// other. Where there are few tiles the SPLIT CTAs of a cluster cut K: all but the first send their sums into the first
// one's shared memory, and wait until it has read them before they send the next ones. Wins: 1 to 64 rows an expert.
// Limits: as wgmma_tiles; SPLIT blocks of K or more. Where the idea comes from: gemm's wgmma_swapab, made persistent.
//
// Axes (-D): BW (64*CONS), BT (8, or a multiple of 16, <= 128), BK (64, 128), STAGES, CONS (1, 2), SPLIT (1, 2, 4),
// CTAS (per SM). Facts of the problem (-D): DTYPE (0 f16, 1 bf16), W_COL (1: matrices of w are column-major), EXPERTS.
// SHARED: bytes of the launch.
#include "group_tiles.cuh"

constexpr int NT = 128 * CONS + 32;
constexpr u32 PITCH = BW * 2 + 16, PART = BW * BT * 4; // bytes: a row of the turned tile, one CTA's sums
constexpr u32 TURNED = (BT * PITCH + 1023) / 1024 * 1024;
using OpW = Operand<BW, BK, !W_COL, 1>;
using OpX = Operand<BT, BK, 0, 1>;
using MM = Mma<BT, !W_COL, 0>;
constexpr u32 STAGE = (OpW::bytes + OpX::bytes + 1023) / 1024 * 1024;
static_assert(BW == 64 * CONS && OpW::bytes % 1024 == 0 && OpX::bytes % 1024 == 0, "tile");
static_assert(STAGES * STAGE + TURNED + (SPLIT - 1) * PART + 1024 == SHARED, "the host counts shared memory as the kernel does");

extern "C" __global__ void __launch_bounds__(NT, CTAS) __cluster_dims__(SPLIT, 1, 1)
wgmma_thin(const __grid_constant__ TMap tX, const __grid_constant__ TMap tW, const int* offsets, u16* y, int rows, int n, int k) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES], received, read;
  __shared__ Groups groups;
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, turned = base + STAGES * STAGE, inbox = turned + TURNED;
  const u32 fulls = smem_addr(full), empties = smem_addr(empty), inbox_bar = smem_addr(&received), read_bar = smem_addr(&read);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127, lane = threadIdx.x & 31, slice = SPLIT > 1 ? (int)cluster_rank() : 0;
  const int all = (k + BK - 1) / BK, from = all * slice / SPLIT, to = all * (slice + 1) / SPLIT;
  if (threadIdx.x == CONS * 128) {
    tma_prefetch(&tX), tma_prefetch(&tW);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, CONS);
    mb_init(inbox_bar, 1), mb_init(read_bar, 1);
    mb_init_fence();
    if (SPLIT > 1 && slice == 0) mb_expect(inbox_bar, (SPLIT - 1) * PART);
  }
  pdl_wait();
  if (threadIdx.x < 32) scan_groups<BT>(groups, offsets, rows);
  if (SPLIT > 1) cluster_sync();
  else __syncthreads();
  pdl_launch();
  // Rows of a tile are BT rows of an expert, its columns BW columns of the matrix.
  const GroupTiles<BT, BW, 1, 1, 1024> tiles(groups, n, 0);
  const int begin = blockIdx.x / SPLIT, step = gridDim.x / SPLIT; // the CTAs of a cluster have the same tiles
  int row, col, z, q = 0;

  if (wg == CONS) {
    if (lane == 0) {
      const Feed<OpW, OpX, ByExpert> feed = {&tW, &tX, base, fulls, 0, 0, 0, 0, {&tX, n, k}};
      u32 phase = 1;
      for (int t = begin; t < tiles.count; t += step) {
        tiles.at(t, row, col, z);
        for (int b = from; b < to; b++) {
          mb_wait(empties + q * 8, phase);
          feed.load(col, row, b * BK, z, q);
          if (++q == STAGES) q = 0, phase ^= 1;
        }
      }
    }
    return;
  }
  auto release = [&](int stage) {
    if (tid == 0) mb_arrive(empties + stage * 8);
  };
  const Finder finder(groups);
  const u32 mine = (wg * 128 + tid) * 16; // parts lie as the sender's threads held them
  u32 phase = 0, came = 0, gone = 1;
  for (int t = begin; t < tiles.count; t += step) {
    z = finder.expert_of(t / tiles.tn);
    tiles.within(t, row, col, z);
    float d[1][BT / 2];
    multiply<OpW, OpX, MM, BK, STAGES, 1>(d, base, fulls, wg, from, to, q, phase, release, [](int) {});
    if (SPLIT > 1 && slice > 0) {
      mb_wait(read_bar, gone);
      gone ^= 1;
      const u32 to_bar = peer_addr(inbox_bar, 0), to_box = peer_addr(inbox + (u32)(slice + SPLIT - 1) % SPLIT * PART + mine, 0);
#pragma unroll
      for (int j = 0; j < BT / 2; j += 4)
        peer_send4(to_box + j / 4 * (CONS * 2048), to_bar, d[0][j], d[0][j + 1], d[0][j + 2], d[0][j + 3]);
      continue;
    }
    if (SPLIT > 1) {
      mb_wait(inbox_bar, came);
      came ^= 1;
#pragma unroll
      for (int s = 0; s + 1 < SPLIT; s++)
#pragma unroll
        for (int j = 0; j < BT / 2; j += 4) {
          const float4 v = shared_load4(inbox + s * PART + mine + j / 4 * (CONS * 2048));
          d[0][j] += v.x, d[0][j + 1] += v.y, d[0][j + 2] += v.z, d[0][j + 3] += v.w;
        }
    }
    named_sync(1, CONS * 128); // the last turned tile was stored, and what was sent is in registers
    if (SPLIT > 1 && threadIdx.x < SPLIT) {
      if (threadIdx.x == 0) mb_expect(inbox_bar, (SPLIT - 1) * PART);
      __syncwarp((1 << SPLIT) - 1);
      if (threadIdx.x > 0) mb_arrive_at(read_bar, threadIdx.x);
    }
#pragma unroll
    for (int j = 0; j < BT / 8; j++)
      stmatrix2_trans(turned + (j * 8 + (lane & 7)) * PITCH + (wg * 64 + (tid >> 5) * 16 + (lane & 8)) * 2,
          pack(d[0][j * 4], d[0][j * 4 + 1]), pack(d[0][j * 4 + 2], d[0][j * 4 + 3]));
    named_sync(1, CONS * 128);
    const int end = groups.begins[z + 1];
    for (int v = wg * 128 + tid; v < BT * (BW / 8); v += CONS * 128) {
      const int r = row + v / (BW / 8), c = col + v % (BW / 8) * 8;
      if (r < end && c < n)
        *reinterpret_cast<uint4*>(y + (u64)r * n + c) = shared_load8(turned + v / (BW / 8) * PITCH + v % (BW / 8) * 16);
    }
  }
  // The one that was sent to says so when it has read the last; nobody waits who sent nothing.
  if constexpr (SPLIT > 1) ring_ends<1>(read_bar, 0, gone);
}
