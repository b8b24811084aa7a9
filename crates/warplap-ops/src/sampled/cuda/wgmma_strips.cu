// The blocks of G*B^T that a pattern names, through wgmma, float32 sums.
//
// Idea: what a kernel of one block at a time is bound by is L2: each block reads its two strips by itself. Here a CTA has
// up to PARTS * 64 / BS blocks of one row, and the row's strip of G comes once for all of them. The columns' strips of B
// lie under each other as the 64 rows of the first factor, the strip of G is the second, so a sum comes out turned and is
// turned back where it is staged; a copy stores whole blocks. Wins: half types on Hopper. Limits: BS 16, 32 or 64; rows
// of row-major factors of whole 16 bytes; 16-byte aligned buffers.
//
// Axes (-D): PARTS (of 64 columns), CTAS (on a multiprocessor), STAGES. Facts of the problem (-D): DTYPE (0 f16, 1 bf16),
// BS, G_COL, B_COL (1: column-major).
#include "hopper.cuh"

constexpr int BLOCKS = PARTS * 64 / BS, NT = 160;
constexpr u32 PANEL = BS * 128, STAGE = PANEL * (1 + BLOCKS); // 64 numbers along n of BS lines, either way
using MM = Mma<BS, B_COL, G_COL>;
static_assert(BLOCKS <= 32, "a lane fetches a block's strip");

// Lines along n: 128 bytes each. Lines across n: BS elements each, eight of them a group, the next BS lines a panel on.
template <int mn_> DI u64 panel_desc(u32 a) {
  constexpr u64 mode = BS == 64 ? 1 : BS == 32 ? 2 : 3;
  if (!mn_) return mma_desc(a, 16);
  return (u64)((a & 0x3FFFF) >> 4) | ((u64)(PANEL >> 4) << 16) | ((u64)BS << 32) | (mode << 62);
}
template <int mn_> constexpr __device__ u64 panel_step(int kk) { return mn_ ? kk * BS * 2 : kk * 2; }

extern "C" __global__ void __launch_bounds__(NT, CTAS)
wgmma_strips(const __grid_constant__ TMap tG, const __grid_constant__ TMap tB, const __grid_constant__ TMap tO,
             const int* __restrict__ row_ptr, const int* __restrict__ col_idx, int n, int rows) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, fulls = smem_addr(full), empties = smem_addr(empty);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (threadIdx.x == 0) {
    tma_prefetch(&tG), tma_prefetch(&tB), tma_prefetch(&tO);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, 4);
    mb_init_fence();
  }
  __syncthreads();
  pdl_launch();
  pdl_wait();
  // First chunks of all rows come first: the last ones are seldom whole, and often nothing.
  const int row = blockIdx.x % rows, first = __ldg(row_ptr + row) + blockIdx.x / rows * BLOCKS;
  const int count = min(__ldg(row_ptr + row + 1) - first, BLOCKS);
  if (count <= 0) return;
  const int chunks = (n + 63) / 64;
  int q = 0;

  if (warp == 4) {
    const int column = lane < count ? __ldg(col_idx + first + lane) * BS : 0;
    u32 phase = 1;
    for (int k = 0; k < chunks; k++) {
      const u32 bar = fulls + q * 8, to = base + q * STAGE;
      mb_wait(empties + q * 8, phase);
      if (lane == 0) {
        mb_expect(bar, PANEL * (1 + count));
        tma_load(to, &tG, bar, G_COL ? row * BS : k * 64, G_COL ? k * 64 : row * BS);
      }
      __syncwarp();
      if (lane < count) tma_load(to + PANEL * (1 + lane), &tB, bar, B_COL ? column : k * 64, B_COL ? k * 64 : column);
      if (++q == STAGES) q = 0, phase ^= 1;
    }
    return;
  }

  float d[PARTS][BS / 2];
  u32 phase = 0;
  int before = 0;
  for (int k = 0; k < chunks; k++) {
    const u32 at = base + q * STAGE;
    mb_wait(fulls + q * 8, phase);
    mma_fence();
    const u64 g = panel_desc<G_COL>(at);
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
      const u64 b = panel_desc<B_COL>(at + PANEL * (1 + p * (64 / BS)));
#pragma unroll
      for (int kk = 0; kk < 4; kk++) MM::step(d[p], b + panel_step<B_COL>(kk), g + panel_step<G_COL>(kk), k > 0 || kk > 0);
    }
    mma_commit();
    mma_wait<1>();
    if (k > 0 && lane == 0) mb_arrive(empties + before * 8);
    before = q;
    if (++q == STAGES) q = 0, phase ^= 1;
  }
  mma_wait<0>();
#pragma unroll
  for (int p = 0; p < PARTS; p++) mma_done(d[p]);
  named_sync(1, 128); // nobody reads the stages any more
#pragma unroll
  for (int p = 0; p < PARTS; p++) stage_turned<BS, BS>(base + p * (64 * BS * 2), d[p], warp, lane);
  async_fence();
  named_sync(1, 128);
  if (threadIdx.x == 0) {
    for (int i = 0; i < count; i++) tma_store(&tO, base + i * (BS * BS * 2), 0, (first + i) * BS);
    tma_store_commit();
    tma_store_wait_read();
  }
}
