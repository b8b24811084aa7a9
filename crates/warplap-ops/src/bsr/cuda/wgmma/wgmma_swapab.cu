// C = A·B with blocks of 16 or 32 on Hopper's tensor cores: the transposed product, so that no multiplication meets a
// block that is not stored.
//
// Idea: wgmma's first operand has 64 rows, which rows of small blocks seldom fill. So 64 columns of B take that side
// and a stored block the narrow one: nothing is padded. A CTA owns ALL block rows by BN columns of C, split between two
// warpgroups by rows. It lists which rows store a block in which column (once per run of tiles of the same rows), then
// streams the columns in use: each slab of B comes once by TMA, and just the stored blocks of A by cp.async, laid out
// as the tensor cores want them. Every sum has its registers, so a warpgroup's rows are written out one after the other
// and each loops over the slabs it uses. `order` (optional) names the block rows in the order in which they are put
// together; any permutation is right. Wins: blocks of 16 and 32 unless nearly empty or, with 16, half full. Limits:
// f16/bf16, BS 16 or 32, 16-byte aligned buffers and rows (N % 8 == 0), K/BS < 65536. Where the idea comes from: the
// "swap AB" option of dense kernels, and this project's own arithmetic.
//
// Axes (-D): BN (128, 256), SC (slabs per stage), STAGES (2 or more), DEAL (small_blocks.cuh).
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16), SCALED, ADDS, BIAS, BS, B_COL, C_COL (1: column-major), WIDE (1: N % 64
// == 0 and B row-major: one copy brings a whole slab).
#include "hopper.cuh"
#include "scaled.cuh"
#include "small_blocks.cuh"

constexpr int CONS = 2, NT = 128 * (CONS + 1), PANELS = BN / 64, RW = 128 * 128 / BN / BS, ALL = CONS * RW, MT = BS / 16;
constexpr u32 PANEL = BS * 128, SLAB = PANELS * PANEL, BLOCK = BS * BS * 2; // bytes
constexpr u32 B_BYTES = SC * SLAB, STAGE = B_BYTES + SC * ALL * BLOCK; // every row has its place for a block of every slab
// Copies of A are handed on when LAG later stages are asked for. A warpgroup meets the next stage before it lets go of
// one: two more there must be.
constexpr int LAG = STAGES > 4 ? 3 : STAGES - 2, SHARE = (ALL + 2) / 3;
using MM = Mma<BS, !B_COL, 0>;
static_assert(ALL <= 32 && RW * SC <= 32 && STAGE % 1024 == 0 && LAG >= 0, "a warpgroup's uses of a stage are one word");

extern "C" __global__ void __launch_bounds__(NT, 1)
wgmma_swapab(const u16* __restrict__ values, const __grid_constant__ TMap tB, const __grid_constant__ TMap tC,
             const int* __restrict__ row_ptr,
             const int* __restrict__ col_idx, const int* __restrict__ order, int M, int N, int columns SCALE_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  __shared__ Rows rows;
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, staged = base + STAGES * STAGE;
  // by used column: which rows store a block there
  u32* const marks = reinterpret_cast<u32*>(smem + (staged - smem_addr(smem)) + CONS * 2 * SLAB);
  // by stage and warpgroup: SC bits a row
  u32* const uses = marks + (columns + SC - 1) / SC * SC;
  u16* const where = reinterpret_cast<u16*>(uses + (columns + SC - 1) / SC * CONS);                // by used column: which
  const u32 fulls = smem_addr(full), empties = smem_addr(empty);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127, lane = threadIdx.x & 31, warp = tid >> 5;
  if (threadIdx.x == 0) {
    tma_prefetch(&tB), tma_prefetch(&tC);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 4), mb_init(empties + i * 8, CONS);
    mb_init_fence();
  }
  pdl_launch();
  pdl_wait();
  const int block_rows = M / BS, groups = (block_rows + ALL - 1) / ALL, wide = (N + BN - 1) / BN;
  Runs runs(groups, wide);
  int q = 0;
  // The lists of one group of rows, made by all threads together; gives the number of stages.
  auto list = [&](int group) {
    const int n = list_columns<ALL, NT, SC>(rows, marks, where, group, block_rows, columns, row_ptr, col_idx, order),
        stages = (n + SC - 1) / SC;
#pragma unroll 1
    for (int i = threadIdx.x; i < stages * CONS; i += NT) {
      u32 word = 0;
#pragma unroll 1
      for (int j = 0; j < SC; j++) {
        const u32 m = marks[i / CONS * SC + j] >> (i % CONS * RW);
#pragma unroll
        for (int r = 0; r < RW; r++) word |= (m >> r & 1) << (r * SC + j);
      }
      uses[i] = word;
    }
    __syncthreads();
    return stages;
  };

  if (wg == 0) {
    regs_less<72>();
    u32 phase = 1;
    for (int round = 0; runs.next(round); round++) {
      const int until = runs.until, stages = list(runs.tile / wide);
      if (warp == 0) { // one thread brings the slabs of B
        if (lane == 0)
          for (int t = runs.tile; t < until; t++) {
            const int col = t % wide * BN;
            for (int s = 0; s < stages; s++) {
              int k[SC];
#pragma unroll
              for (int j = 0; j < SC; j++) k[j] = where[s * SC + j] * BS;
              const u32 bar = fulls + q * 8, to = base + q * STAGE;
              mb_wait(empties + q * 8, phase);
              mb_expect(bar, SC * SLAB);
#pragma unroll
              for (int j = 0; j < SC; j++) {
                if (WIDE) tma_load3(to + j * SLAB, &tB, bar, 0, k[j], col / 64);
                else
#pragma unroll
                  for (int p = 0; p < PANELS; p++)
                    tma_load(to + j * SLAB + p * PANEL, &tB, bar, B_COL ? k[j] : col + p * 64,
                        B_COL ? col + p * 64 : k[j]);
              }
              if (++q == STAGES) q = 0, phase ^= 1;
            }
          }
        __syncwarp();
      } else { // three warps bring the blocks of A, a row each in turn; a stage is handed on when LAG later ones are asked for
        auto hand_on = [&](int back) {
          async_fence(); // the tensor cores read by another way than these copies were written
          __syncwarp();
          if (lane == 0) mb_arrive(fulls + (q >= back ? q - back : q + STAGES - back) * 8);
        };
        int issued = 0;
        for (int t = runs.tile; t < until; t++) {
          int at[SHARE]; // the next block of each of this warp's rows
#pragma unroll
          for (int y = 0; y < SHARE; y++) at[y] = rows.start[y * 3 + warp - 1];
          for (int s = 0; s < stages; s++, issued++) {
            u32 used[CONS];
#pragma unroll
            for (int w = 0; w < CONS; w++) used[w] = uses[s * CONS + w];
            const u32 to = base + q * STAGE + B_BYTES;
            mb_wait(empties + q * 8, phase);
#pragma unroll
            for (int y = 0; y < SHARE; y++) {
              const int r = y * 3 + warp - 1;
              if (r >= ALL) continue;
              const u32 word = r < RW ? used[0] : used[1];
              for (u32 left = word >> (r % RW * SC) & ((1u << SC) - 1); left; left &= left - 1, at[y]++) {
                const u16* from = values + (u64)at[y] * (BS * BS) + lane * 8;
                const u32 slot = to + ((__ffs(left) - 1) * ALL + r) * BLOCK;
#pragma unroll
                for (int x = 0; x < MT * MT; x++) {
                  const int chunk = x * 32 + lane;
                  copy16(slot + in_block(chunk / (BS / 8), chunk % (BS / 8)), from + x * 256);
                }
              }
            }
            copies_commit();
            copies_wait<LAG>();
            if (issued >= LAG) hand_on(LAG);
            if (++q == STAGES) q = 0, phase ^= 1;
          }
        }
        copies_wait<0>();
        for (int i = min(issued, LAG); i > 0; i--) hand_on(i);
      }
    }
  } else {
    regs_more<216>();
    const int w = __shfl_sync(~0u, wg, 0) - 1;
    const u32 mine = staged + w * 2 * SLAB;
    u32 phase = 0;
    for (int round = 0; runs.next(round); round++) {
      const int until = runs.until, stages = list(runs.tile / wide);
      for (int tile = runs.tile; tile < until; tile++) {
        float d[RW][PANELS][BS / 2];
#pragma unroll
        for (int r = 0; r < RW; r++)
#pragma unroll
          for (int i = 0; i < PANELS * BS / 2; i++) d[r][i / (BS / 2)][i % (BS / 2)] = 0.f;
        // A stage is met while the one before it still runs: what it holds, and that it is there.
        u32 used = 0;
        auto meet = [&](int s) {
          used = __shfl_sync(~0u, uses[s * CONS + w], 0); // tells the compiler that it is the same in all lanes
          mb_wait(fulls + q * 8, phase);
        };
        if (stages) meet(0);
        for (int s = 0; s < stages; s++) {
          const u32 at = base + q * STAGE;
          const u64 b = B_COL ? narrow_desc<BS>(at) : mma_desc(at, PANEL), a = narrow_desc<BS>(at + B_BYTES + w * RW * BLOCK);
#pragma unroll
          for (int r = 0; r < RW; r++) {
            for (u32 left = used >> (r * SC) & ((1u << SC) - 1); left; left &= left - 1) {
              const int j = __ffs(left) - 1;
              const u64 slab = b + j * (SLAB / 16), block = a + (j * ALL + r) * (BLOCK / 16);
              mma_fence(); // without it the compiler waits after every multiplication under a condition
#pragma unroll
              for (int kk = 0; kk < MT; kk++)
#pragma unroll
                for (int p = 0; p < PANELS; p++) MM::step(d[r][p], slab + (p * PANEL + kk * (B_COL ? 32 : 2048)) / 16, block + kk * 2, 1);
            }
          }
          mma_commit();
          const u32 done = empties + q * 8;
          const bool idle = used == 0;
          if (++q == STAGES) q = 0, phase ^= 1;
          if (s + 1 < stages) meet(s + 1);
          mma_wait<0>();
          if (idle) named_sync(1 + w, 128); // nothing else holds the warps together: none may fall a whole round behind
          if (tid == 0) mb_arrive(done);
        }
#pragma unroll
        for (int r = 0; r < RW; r++)
#pragma unroll
          for (int p = 0; p < PANELS; p++) mma_done(d[r][p]);
#pragma unroll
        for (int r = 0; r < RW; r++) {
          const u32 to = mine + (r & 1) * SLAB;
          if (SCALED) { // a lane's rows of the swapped sums are columns of C
            const int row = rows.row[w * RW + r], left = tile % wide * BN + warp * 16 + (lane >> 2);
#pragma unroll
            for (int p = 0; p < PANELS; p++)
#pragma unroll
              for (int i = 0; i < BS / 2; i++) {
                const int line = i / 4 * 8 + (lane & 3) * 2 + i % 2, c = left + p * 64 + i % 4 / 2 * 8;
                const u64 y = (u64)row * BS + line, at = BIAS ? y : C_COL ? (u64)c * M + y : y * N + c;
                if (!ADDS || (row >= 0 && c < N)) d[r][p][i] = scaled_one(d[r][p][i], add, at, alpha, beta);
              }
          }
          if (tid == 0) tma_store_wait_read<1>();
          named_sync(1 + w, 128);
#pragma unroll
          for (int p = 0; p < PANELS; p++) {
            if (C_COL) stage_panel<BS>(to + p * PANEL, d[r][p], warp, lane);
#pragma unroll
            for (int j = 0; !C_COL && j < BS / 8; j++) {
              const float* v = &d[r][p][j * 4];
              const int line = j * 8 + (lane & 7), chunk = warp * 2 + (lane >> 3 & 1);
              stmatrix2_trans(to + p * PANEL + line * 128 + ((chunk ^ (line & 7)) << 4), pack(v[0], v[1]), pack(v[2], v[3]));
            }
          }
          async_fence();
          named_sync(1 + w, 128);
          if (tid == 0) {
            const int row = rows.row[w * RW + r], col = tile % wide * BN;
            if (row >= 0)
#pragma unroll
              for (int p = 0; p < PANELS; p++)
                tma_store_passing(&tC, to + p * PANEL, C_COL ? row * BS : col + p * 64,
                    C_COL ? col + p * 64 : row * BS);
            tma_store_commit();
          }
        }
      }
    }
    if (tid == 0) tma_store_wait_read();
  }
}
