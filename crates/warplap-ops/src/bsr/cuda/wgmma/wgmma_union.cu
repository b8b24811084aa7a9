// C = A·B with block-sparse A on Hopper's tensor cores: CONS lines of 64 rows walk the union of their block columns
// together.
//
// Idea: every stored block pulls a 64 x BN slab of B out of L2, and that is the wall (not the tensor cores, not
// memory). So a CTA owns CONS lines of 64 rows (one warpgroup each), walks the union of their columns in rising order,
// brings each slab once and lets those warpgroups use it whose line stores a block there. CN CTAs side by side in a
// cluster walk the same lines over neighbouring columns of C and share the blocks of A by multicast. The walk is merged
// on the fly by the lanes of the producing warp from the matrix's own indices: nothing is prepared, nothing can be
// stale. `order` (optional) names the block rows in the order in which lines are put together, so that similar rows
// meet; any permutation is right. A persistent grid; finished tiles leave through shared memory and TMA while the next
// tile's slabs arrive. Blocks and slabs of f8e4m3 (BYTES) are as deep as a block; their sums leave the tensor cores
// after every 128 elements at the latest and are added up in f32, PN columns at a time. Wins: blocks of 64 and 128.
// Limits: f16, bf16, f8e4m3 with a column-major B and a C of bf16; BS 64 or 128; 16-byte aligned buffers and rows (N %
// 8 == 0; B column-major: K % 8 == 0 always holds). Where the idea comes from: this project's own arithmetic; the
// pipeline is that of wgmma_coop.cu, the sums are those of qgemm's wgmma.cu.
//
// Axes (-D): CONS (lines per CTA: 1, 2, 3, 4), BN (64, 128, 192, 256; CONS*BN <= 512), CN (1, 2, 4), STAGES, SLOTS
// (64-column panels of C staged per warpgroup and round), CTAS (per SM), ORDER (0: tiles of one column band after each
// other, 1: of one line group), PASSING (1: C leaves L2 early, so that B stays), DYNAMIC (1: a CTA takes its next tile
// from a queue when it is nearly ready for it, so that long tiles at the front even out, where a fixed share leaves
// some CTAs with half as much again; CN 1), PN (BYTES alone: divides BN). Facts of the problem (-D): DTYPE (of C: 0
// f16, 1 bf16), BYTES, SCALED, ADDS, B_COL, C_COL (1: column-major), BS, WIDE (1: N % 64 == 0 and B row-major: one copy
// brings a whole slab).
#if BYTES
#include "quant_hopper.cuh"
#else
#include "hopper.cuh"
#endif
#include "scaled.cuh"

constexpr int NT = 128 * (CONS + 1), SPAN = BS / 64;
constexpr u32 NONE = 0xffffffffu, LAST = 0x80000000u, END = 0x40000000u, CPANEL = 64 * 128;
#if BYTES
using OpA = Lines<64, BS, CN>;
using OpB = Lines<BN, BS, 1>;
constexpr int DEEP = 1, ALONG = BS / 2; // stages of a block; pairs of bytes along K in one
constexpr int HELD = BN == PN ? 128 / BS : 1; // blocks whose sums stay together in the tensor cores' registers
#else
using OpA = Operand<64, 64, 0, CN>;
using OpB = Operand<BN, 64, !B_COL, 1>;
using MM = Mma<BN, 0, !B_COL>;
constexpr int DEEP = SPAN, ALONG = 64;
#endif
constexpr u32 STAGE = OpB::bytes + CONS * OpA::bytes;
constexpr int PRODUCER = CONS > 2 ? 32 : 40;
// What the producer gives up is all there is to take: the sum stays what the launch allotted (96 x 640, 128 x 512, 168 x
// 384, 128 x 256).
constexpr int CONSUMER = CONS == 1 ? 216 : CONS == 4 ? 112 : CONS == 3 ? 160 : 232;
constexpr bool TRADE = CONS > 1 || CTAS > 1;
static_assert(!DYNAMIC || CN == 1, "a cluster walks the same tiles");

struct Walk {
  int groups, wide, count, first, step, lines;
  const int* order;
  DI Walk(int M, int N, const int* order_) : order(order_) {
    lines = M / 64, groups = (lines + CONS - 1) / CONS, wide = (N + BN * CN - 1) / (BN * CN);
    count = groups * wide, first = blockIdx.x / CN, step = gridDim.x / CN;
  }
  // The tile of a round. Rounds run forth and back over the clusters: with long groups first, sums come out nearly
  // even.
  DI int tile(int round) const { return round * step + (round & 1 ? step - 1 - first : first); }
  DI void place(int t, int& group, int& band) const { group = ORDER ? t / wide : t % groups, band = ORDER ? t % wide : t / groups; }
  // The line that warpgroup r of a group owns, or -1.
  DI int line(int group, int r) const {
    const int i = group * CONS + r;
    if (i >= lines) return -1;
    return order ? __ldg(order + i / SPAN) * SPAN + i % SPAN : i;
  }
};

extern "C" __global__ void __launch_bounds__(NT, CTAS) __cluster_dims__(CN, 1, 1)
wgmma_union(const __grid_constant__ TMap tA, const __grid_constant__ TMap tB, const __grid_constant__ TMap tC,
            const int* __restrict__ row_ptr,
            const int* __restrict__ col_idx, const int* __restrict__ order, int M, int N, u32* queue SCALE_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  __shared__ u32 records[STAGES]; // which warpgroups use a stage, and whether it is the tile's last
  __shared__ int tiles[STAGES];   // and which tile that is
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, staged = base + STAGES * STAGE;
  const u32 fulls = smem_addr(full), empties = smem_addr(empty);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127, lane = threadIdx.x & 31;
  const u32 rank = CN > 1 ? cluster_rank() : 0;
  const Walk walk(M, N, order);
  if (threadIdx.x == 0) {
    tma_prefetch(&tA), tma_prefetch(&tB), tma_prefetch(&tC);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, CONS * CN);
    mb_init_fence();
  }
  if (CN > 1) cluster_meet();
  else __syncthreads();
  pdl_launch();
  pdl_wait();
  volatile u32* record = records;
  volatile int* whose = tiles;
  int q = 0, group, band;

  if (wg == 0) {
    if (TRADE) regs_less<PRODUCER>();
    if (threadIdx.x < 32) {
      u32 phase = 1;
      // The tile to come is looked up while this one's slabs are asked for: its first column is three dependent loads
      // away.
      int line = -1, at = 0, end = 0, round = 0, known = 0;
      u32 here = NONE, next = NONE;
      struct { int tile, line, at, end, col; u32 here, next; } to_come = {};
      auto column_at = [&](int i, int end) { return i < end ? (u32)__ldg(col_idx + i) : NONE; };
      auto look = [&] {
        if (known == 0) {
          int g = 0, n = 0;
          // The first tile is one's own; after it whoever is ready takes the next.
          if (DYNAMIC && round > 0) to_come.tile = __shfl_sync(~0u, lane == 0 ? (int)(gridDim.x + atomicAdd(queue, 1u)) : 0, 0);
          else to_come.tile = walk.tile(round);
          const bool some = to_come.tile < walk.count;
          if (some) walk.place(to_come.tile, g, n);
          to_come.line = some && lane < CONS ? walk.line(g, lane) : -1, to_come.col = (n * CN + rank) * BN;
        } else if (known == 1) {
          to_come.at = to_come.line >= 0 ? __ldg(row_ptr + to_come.line / SPAN) : 0,
          to_come.end = to_come.line >= 0 ? __ldg(row_ptr + to_come.line / SPAN + 1) : 0;
        } else if (known == 2) {
          to_come.here = column_at(to_come.at, to_come.end), to_come.next = column_at(to_come.at + 1, to_come.end);
        }
        known++;
      };
      while (true) {
        while (known < 3) look();
        const int tile = to_come.tile;
        if (tile >= walk.count) break; // only the last round is not full
        line = to_come.line, at = to_come.at, end = to_come.end, here = to_come.here, next = to_come.next;
        const int col = to_come.col;
        round++, known = 0;
        u32 column = __reduce_min_sync(~0u, here);
        if (column == NONE) { // nothing but empty rows: they still have to be written
          mb_wait(empties + q * 8, phase);
          if (lane == 0) record[q] = LAST, whose[q] = tile, mb_arrive(fulls + q * 8);
          if (++q == STAGES) q = 0, phase ^= 1;
        }
        while (column != NONE) {
          const bool mine = here == column;
          const u32 users = __ballot_sync(~0u, mine);
          int tops[CONS]; // where the lines' blocks begin in the list of all blocks' rows
#pragma unroll
          for (int r = 0; r < CONS; r++) tops[r] = __shfl_sync(~0u, at * BS + line % SPAN * 64, r);
          if (mine) at++, here = next, next = column_at(at + 1, end);
          const u32 after = __reduce_min_sync(~0u, here);
#pragma unroll
          for (int h = 0; h < DEEP; h++) {
            const u32 bar = fulls + q * 8, to = base + q * STAGE;
            mb_wait(empties + q * 8, phase);
            if (lane == 0) {
              record[q] = users | (after == NONE && h == DEEP - 1 ? LAST : 0), whose[q] = tile;
              mb_expect(bar, OpB::bytes + __popc(users) * OpA::bytes);
              const int k = (column * DEEP + h) * ALONG;
              if (WIDE) tma_load3(to, &tB, bar, 0, k, col / 64);
              else OpB::load(to, &tB, bar, col, k, 0, 0);
#pragma unroll
              for (int r = 0; r < CONS; r++)
                if (users >> r & 1) OpA::load(to + OpB::bytes + r * OpA::bytes, &tA, bar, tops[r], h * ALONG, rank, (u16)((1 << CN) - 1));
            }
            __syncwarp();
            if (++q == STAGES) q = 0, phase ^= 1;
          }
          if (known < 3 && !(DYNAMIC && __any_sync(~0u, at + 6 < end))) look(); // a tile taken early is one that others cannot take
          column = after;
        }
      }
      // Says that nothing comes any more; the last CTA leaves the queue as the next launch must find it.
      mb_wait(empties + q * 8, phase);
      if (lane == 0) {
        record[q] = LAST | END, mb_arrive(fulls + q * 8);
        if (DYNAMIC && atomicAdd(queue + 1, 1u) == gridDim.x - 1) queue[0] = queue[1] = 0;
      }
      if (++q == STAGES) q = 0, phase ^= 1;
      if constexpr (CN > 1) ring_ends<STAGES>(empties, q, phase);
    }
  } else {
    if (TRADE) regs_more<CONSUMER>();
    const int w = wg - 1, warp = tid >> 5;
    const u32 mine = staged + w * SLOTS * CPANEL;
    u32 phase = 0;
    auto release = [&](int slot) {
      if (CN > 1 && tid < CN) mb_arrive_at(empties + slot * 8, tid);
      if (CN == 1 && tid == 0) mb_arrive(empties + slot * 8);
    };
    while (true) {
      float d[BN / 2];
      bool begun = false;
#if BYTES
      float part[PN / 2];
      bool held = false; // there are sums that were not added up yet
      auto add_up = [&](int p) {
#pragma unroll
        for (int j = 0; j < PN / 2; j++) d[p * (PN / 2) + j] += part[j];
      };
#pragma unroll
      for (int i = 0; i < BN / 2; i++) d[i] = 0.f;
#endif
      u32 now;
      int tile;
      do {
        mb_wait(fulls + q * 8, phase);
        now = record[q], tile = whose[q];
        if (now >> w & 1) {
          const u64 a = OpA::desc(base + q * STAGE + OpB::bytes + w * OpA::bytes, 0), b = OpB::desc(base + q * STAGE, 0);
#if BYTES
#pragma unroll
          for (int p = 0; p < BN / PN; p++) {
            mma_fence();
#pragma unroll
            for (int kk = 0; kk < BS / 32; kk++)
              Bytes<PN>::step(part, a + OpA::step(kk), b + OpB::step(kk) + p * PN * BS / 16,
                  (HELD > 1 && held) || kk > 0);
            mma_commit();
            mma_wait<0>();
            bytes_done(part);
            if (p == BN / PN - 1) release(q);
            if (HELD == 1 || held) add_up(p);
          }
          held = HELD > 1 && !held;
#else
          mma_fence();
#pragma unroll
          for (int kk = 0; kk < 4; kk++) MM::step(d, a + OpA::step(kk), b + OpB::step(kk), begun || kk > 0);
          mma_commit();
          mma_wait<0>(); // a stage held on to while the line's next block is far off would stop the walk
          release(q);
#endif
          begun = true;
        } else {
          named_sync(1 + w, 128); // every warp has read the record
          release(q);
        }
        if (++q == STAGES) q = 0, phase ^= 1;
      } while (!(now & LAST));
      if (now & END) break;
      walk.place(tile, group, band);
#if BYTES
      if (HELD > 1 && held) add_up(0);
#else
      if (!begun) {
#pragma unroll
        for (int i = 0; i < BN / 2; i++) d[i] = 0.f;
      }
#endif
      const int line = walk.line(group, w), col = (band * CN + rank) * BN;
      if (line < 0) continue;
      const long long top = line * 64 + warp * 16 + (lane >> 2);
      scale_fragments(d, add, top, top + 8, col, N, alpha, beta, M);
#pragma unroll
      for (int p0 = 0; p0 < BN / 64; p0 += SLOTS) {
        if (tid == 0) tma_store_wait_read();
        named_sync(1 + w, 128);
#pragma unroll
        for (int p = p0; p < p0 + SLOTS && p < BN / 64; p++) {
          if (C_COL) stage_turned<64, 64>(mine + (p - p0) * CPANEL, &d[p * 32], warp, lane);
          else stage_panel<64>(mine + (p - p0) * CPANEL, &d[p * 32], warp, lane);
        }
        async_fence();
        named_sync(1 + w, 128);
        if (tid == 0) {
#pragma unroll
          for (int p = p0; p < p0 + SLOTS && p < BN / 64; p++) {
              const int x = C_COL ? line * 64 : col + p * 64, y = C_COL ? col + p * 64 : line * 64;
              if (PASSING) tma_store_passing(&tC, mine + (p - p0) * CPANEL, x, y);
              else tma_store(&tC, mine + (p - p0) * CPANEL, x, y);
            }
          tma_store_commit();
        }
      }
    }
    if (tid == 0) tma_store_wait_read();
  }
}
