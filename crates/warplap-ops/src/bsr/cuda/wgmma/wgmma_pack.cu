// C = A·B with blocks of 16 or 32 on Hopper's tensor cores: small blocks are packed into 64-deep stages as they arrive.
//
// Idea: as wgmma_union.cu, with lines of 64 rows that hold 64/BS block rows. The CTA walks the union of its block
// columns; 64/BS columns make a stage of B, and for each line and column in use the blocks of the line's rows are
// stacked into a 64 x BS tile of A: stored blocks as they are, zeros (a copy from outside of the matrix) where a row
// stores none. A warpgroup multiplies only those columns that its line uses at all. CM CTAs above each other in a
// cluster walk their common union and share B by multicast. Four producing warps merge the rows (each for itself, all
// alike) and share out the copies, which are many and small; everything goes through TMA. Wins: blocks of 32, nearly
// empty. Limits: f16/bf16, BS 16 or 32, B row-major, 16-byte aligned buffers and rows (N % 8 == 0). Where the idea
// comes from: this project's own arithmetic.
//
// Axes (-D): CONS (lines per CTA: 2, 4), BN (128, 256; CONS*BN <= 512), CM (1, 2; CM*CONS*64/BS <= 32), STAGES, SLOTS
// (64-column panels of C staged per warpgroup and round), ORDER (0: tiles of one column band after each other, 1: of
// one line group), PASSING (1: C leaves L2 early, so that B stays). Facts of the problem (-D): DTYPE (0 f16, 1 bf16),
// SCALED, ADDS, BS, WIDE (1: N % 64 == 0: one copy brings a whole slab).
#include "hopper.cuh"
#include "scaled.cuh"
#include "small_blocks.cuh"

constexpr int NT = 128 * (CONS + 1), RPL = 64 / BS, SPS = 64 / BS, ROWS = CONS * RPL, ALL = CM * ROWS, MT = BS / 16, PANELS = BN / 64;
constexpr u32 NONE = 0xffffffffu, LAST = 0x80000000u, CPANEL = 64 * 128;
using MM = Mma<BN, 0, 1>;
constexpr u32 SLAB = BS * BN * 2; // of one column: panels of 64 columns, BS lines each
constexpr u32 BLOCK = BS * BS * 2, TILE = 64 * BS * 2; // of A: one block, a line's blocks in one column
constexpr u32 B_BYTES = SPS * SLAB, STAGE = B_BYTES + CONS * SPS * TILE;
// What the producers give up is all there is to take: the sums are what the launch allotted (96 x 640, 168 x 384).
constexpr int PRODUCER = CONS == 4 ? 64 : 72, CONSUMER = CONS == 4 ? 104 : 216;
static_assert(ALL <= 32 && ROWS % 4 == 0, "walk");

struct Walk {
  int groups, wide, count, first, step, rows;
  const int* order;
  DI Walk(int M, int N, const int* order_) : order(order_) {
    rows = M / BS, groups = (rows + ALL - 1) / ALL, wide = (N + BN - 1) / BN;
    count = groups * wide, first = blockIdx.x / CM, step = gridDim.x / CM;
  }
  // Rounds run forth and back over the clusters: with long groups first, sums come out nearly even.
  DI bool at(int round, int& group, int& band) const {
    const int t = round * step + (round & 1 ? step - 1 - first : first);
    group = ORDER ? t / wide : t % groups, band = ORDER ? t % wide : t / groups;
    return t < count;
  }
  DI int rounds() const { return (count + step - 1) / step; }
  // Block row r of a cluster's group, or -1.
  DI int row(int group, int r) const {
    const int i = group * ALL + r;
    if (i >= rows) return -1;
    return order ? __ldg(order + i) : i;
  }
};

extern "C" __global__ void __launch_bounds__(NT, 1) __cluster_dims__(CM, 1, 1)
wgmma_pack(const __grid_constant__ TMap tA, const __grid_constant__ TMap tB, const __grid_constant__ TMap tC,
           const int* __restrict__ row_ptr,
           const int* __restrict__ col_idx, const int* __restrict__ order, int M, int N, int blocks_end SCALE_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  __shared__ u32 records[STAGES]; // which line uses which column of a stage, and whether it is the tile's last
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, staged = base + STAGES * STAGE;
  const u32 fulls = smem_addr(full), empties = smem_addr(empty);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127, lane = threadIdx.x & 31, warp = tid >> 5;
  const u32 rank = CM > 1 ? cluster_rank() : 0;
  const Walk walk(M, N, order);
  if (threadIdx.x == 0) {
    tma_prefetch(&tA), tma_prefetch(&tB), tma_prefetch(&tC);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 4), mb_init(empties + i * 8, CONS * CM);
    mb_init_fence();
  }
  if (CM > 1) cluster_meet();
  else __syncthreads();
  pdl_launch();
  pdl_wait();
  volatile u32* record = records;
  int q = 0, group, band;

  if (wg == 0) {
    regs_less<PRODUCER>();
    u32 phase = 1;
    // The tile to come is looked up while this one is asked for: its first column is three dependent loads away.
    int next_round = 0, known = 0;
    struct { int row, at, end, col; u32 here, next; } to_come = {};
    auto look = [&] {
      if (known == 0) {
        int g = 0, n = 0;
        const bool some = next_round < walk.rounds() && walk.at(next_round, g, n);
        to_come.row = some && lane < ALL ? walk.row(g, lane) : -1, to_come.col = n * BN;
      } else if (known == 1) {
        to_come.at = to_come.row >= 0 ? __ldg(row_ptr + to_come.row) : 0,
        to_come.end = to_come.row >= 0 ? __ldg(row_ptr + to_come.row + 1) : 0;
      } else if (known == 2) {
        to_come.here = to_come.at < to_come.end ? (u32)__ldg(col_idx + to_come.at) : NONE;
        to_come.next = to_come.at + 1 < to_come.end ? (u32)__ldg(col_idx + to_come.at + 1) : NONE;
      }
      known++;
    };
    for (int round = 0; round < walk.rounds(); round++) {
      while (known < 3) look();
      int at = to_come.at;
      const int end = to_come.end, col = to_come.col;
      u32 here = to_come.here, next = to_come.next;
      next_round = round + 1, known = 0;
      if (!walk.at(round, group, band)) continue;
      u32 column = __reduce_min_sync(~0u, here);
      do { // a tile of empty rows still has one stage, with nothing in it
        u32 columns[SPS], users[SPS];
        int blocks[SPS], have = 0;
        u32 uses = 0; // of this CTA's lines
#pragma unroll
        for (int j = 0; j < SPS; j++) {
          const bool mine = column != NONE && here == column;
          columns[j] = column, users[j] = __ballot_sync(~0u, mine), blocks[j] = at;
          if (mine) at++, here = next, next = at + 1 < end ? (u32)__ldg(col_idx + at + 1) : NONE;
          have += column != NONE;
#pragma unroll
          for (int w = 0; w < CONS; w++)
            if (users[j] >> (rank * ROWS + w * RPL) & ((1u << RPL) - 1)) uses |= 1u << (w * SPS + j);
          column = __reduce_min_sync(~0u, here);
        }
        const u32 bar = fulls + q * 8, to = base + q * STAGE;
        mb_wait(empties + q * 8, phase);
        if (warp == 0) {
          if (lane == 0) {
            record[q] = uses | (column == NONE ? LAST : 0);
            mb_expect(bar, have * SLAB + __popc(uses) * TILE);
          }
          __syncwarp();
          if (lane == 0) {
#pragma unroll
            for (int j = 0; j < SPS; j++) {
              if (j >= have || (CM > 1 && j % CM != rank)) continue;
              const u32 slab = to + j * SLAB;
              const int k = columns[j] * BS;
              if (WIDE && CM == 1) tma_load3(slab, &tB, bar, 0, k, col / 64);
              if (WIDE && CM > 1) tma_load3_multicast(slab, &tB, bar, 0, k, col / 64, (u16)((1 << CM) - 1));
#pragma unroll
              for (int p = 0; p < PANELS; p++) {
                if (!WIDE && CM == 1) tma_load(slab + p * (BS * 128), &tB, bar, col + p * 64, k);
                if (!WIDE && CM > 1) tma_load_multicast(slab + p * (BS * 128), &tB, bar, col + p * 64, k, (u16)((1 << CM) - 1));
              }
            }
          }
          __syncwarp();
        }
#pragma unroll
        for (int y = 0; y < ROWS / 4; y++) {
          const int r = warp * (ROWS / 4) + y, line = r / RPL;
          const u32 tile = to + B_BYTES + line * SPS * TILE + r % RPL * BLOCK;
#pragma unroll
          for (int j = 0; j < SPS; j++) {
            const int block = __shfl_sync(~0u, blocks[j], rank * ROWS + r);
            const bool there = users[j] >> (rank * ROWS + r) & 1;
            if (lane == 0 && (uses >> (line * SPS + j) & 1)) tma_load(tile + j * TILE, &tA, bar, 0, there ? block * BS : blocks_end);
          }
        }
        // Every producing warp arrives, also one without a copy in this stage: else the ring could lap it.
        if (warp > 0 && lane == 0) mb_arrive(bar);
        __syncwarp();
        if (++q == STAGES) q = 0, phase ^= 1;
        look();
      } while (column != NONE);
    }
    if constexpr (CM > 1) ring_ends<STAGES>(empties, q, phase);
  } else {
    regs_more<CONSUMER>();
    const int w = wg - 1;
    const u32 mine = staged + w * SLOTS * CPANEL;
    u32 phase = 0;
    auto release = [&](int slot) {
      if (CM > 1 && tid < CM) mb_arrive_at(empties + slot * 8, tid);
      if (CM == 1 && tid == 0) mb_arrive(empties + slot * 8);
    };
    for (int round = 0; round < walk.rounds(); round++) {
      if (!walk.at(round, group, band)) continue;
      float d[BN / 2];
      bool begun = false;
      u32 now;
      do {
        mb_wait(fulls + q * 8, phase);
        now = record[q];
        const u32 used = now >> (w * SPS) & ((1u << SPS) - 1);
        if (used) {
          const u64 a = narrow_desc<BS>(base + q * STAGE + B_BYTES + w * SPS * TILE), b = mma_desc(base + q * STAGE, BS * 128);
          // A loop over the columns in use, each with its own fence: under a condition the compiler would wait after
          // every multiplication.
          for (u32 left = used; left; left &= left - 1) {
            const int j = __ffs(left) - 1;
            mma_fence();
#pragma unroll
            for (int kk = 0; kk < MT; kk++)
              MM::step(d, a + (j * TILE + kk * 32) / 16, b + (j * SLAB + kk * 2048) / 16,
                  begun || left != used || kk > 0);
            mma_commit();
          }
          mma_wait<0>();
          begun = true;
        } else named_sync(1 + w, 128); // every warp has read the record
        release(q);
        if (++q == STAGES) q = 0, phase ^= 1;
      } while (!(now & LAST));
      if (!begun) {
#pragma unroll
        for (int i = 0; i < BN / 2; i++) d[i] = 0.f;
      }
      const int col = band * BN;
      if (SCALED) {
        auto place = [&](int r) { // the row of C that row r of the line is
          const int row = walk.row(group, rank * ROWS + w * RPL + r / BS);
          return row < 0 ? -1ll : (long long)row * BS + r % BS;
        };
        const int r = warp * 16 + (lane >> 2);
        scale_fragments(d, add, place(r), place(r + 8), col, N, alpha, beta);
      }
#pragma unroll
      for (int p0 = 0; p0 < PANELS; p0 += SLOTS) {
        if (tid == 0) tma_store_wait_read();
        named_sync(1 + w, 128);
#pragma unroll
        for (int p = p0; p < p0 + SLOTS && p < PANELS; p++) {
          stage_panel<64>(mine + (p - p0) * CPANEL, &d[p * 32], warp, lane);
        }
        async_fence();
        named_sync(1 + w, 128);
        if (tid == 0) {
          for (int x = 0; x < RPL; x++) {
            const int row = walk.row(group, rank * ROWS + w * RPL + x);
            if (row < 0) continue;
#pragma unroll
            for (int p = p0; p < p0 + SLOTS && p < PANELS; p++) {
              if (PASSING) tma_store_passing(&tC, mine + (p - p0) * CPANEL + x * (BS * 128), col + p * 64, row * BS);
              else tma_store(&tC, mine + (p - p0) * CPANEL + x * (BS * 128), col + p * 64, row * BS);
            }
          }
          tma_store_commit();
        }
      }
    }
    if (tid == 0) tma_store_wait_read();
  }
}
