// C = A·B with small blocks on Hopper's tensor cores: a dense kernel whose warps take A into registers, straight from
// the stored blocks, zeros where there is none.
//
// Idea: wgmma takes its first operand from registers, 16 rows a warp: just a row of blocks of 16. So no tile of A with
// zeros in it is put together in shared memory: four warps bring the stored blocks by cp.async (those of one row that a
// stage uses lie beside each other in memory), a warp reads its own rows' blocks by ldmatrix, and zeros cost nothing.
// Two warpgroups (or one) own BM rows by BN columns of C, in parts of 64 rows. The CTA lists the block columns that any
// of its rows uses (once per run of tiles of the same rows) and streams those slabs of B alone, each once, by TMA. A
// part that stores nothing in a column skips it. Half full it is a dense product that skips one step in sixteen (blocks
// of 16) and reads half of A. `order` (optional) names the block rows in the order in which they are put together; any
// permutation is right. Wins: see docs/results/bsr.md. Limits: f16/bf16, blocks of BS (16, 32, 64) rows by BC (16, 32,
// 64) columns, 16-byte aligned buffers and rows (N % 8 == 0), K/BC < 65536. Where the idea comes from: this project's
// own arithmetic; the pipeline is that of wgmma_coop.cu.
//
// Axes (-D): BM (64: one warpgroup a CTA and two CTAs on a multiprocessor; 128, 256), BN (256, 128; BM*BN <= 32768), SC
// (block columns per stage), STAGES (3 or more), DEAL (small_blocks.cuh). Facts of the problem (-D): DTYPE (0 f16, 1
// bf16), SCALED, ADDS, BS, BC, B_COL, C_COL (1: column-major), WIDE (1: N % 64 == 0 and B row-major: one copy brings a
// whole slab).
#include "hopper.cuh"
#include "scaled.cuh"
#include "small_blocks.cuh"

constexpr int CONS = BM < 128 ? 1 : 2, NT = 128 * (CONS + 1), RP = 64 / BS, MI = BM / (64 * CONS), ALL = BM / BS,
    MT = BC / 16, CHUNKS = BC / 8, PANELS = BN / 64;
constexpr u32 SLAB = BC * BN * 2, BLOCK = BS * BC * 2, B_BYTES = SC * SLAB, STAGE = B_BYTES + SC * ALL * BLOCK, CPANEL = 64 * 128; // bytes
using MM = MmaHeld<BN, !B_COL>;
// Whether blocks of the next stage are read between the multiplications of this one rather than after them: 3 % less
// time where these are many and short, as much more where not.
constexpr bool BETWEEN = BC == 16 && BM > 64;
static_assert(ALL <= 32 && MI * SC <= 8 && STAGE % 1024 == 0, "a warpgroup's uses of a stage are counted to eight");

// Waits until all but the last n multiplications are done; n is at most most_.
template <int most_> DI void wait_all_but(int n) {
  if (n >= most_) mma_wait<most_>();
  else if constexpr (most_ > 0) wait_all_but<most_ - 1>(n);
}

extern "C" __global__ void __launch_bounds__(NT, 3 - CONS)
wgmma_fill(const u16* __restrict__ values, const __grid_constant__ TMap tB, const __grid_constant__ TMap tC,
           const int* __restrict__ row_ptr,
           const int* __restrict__ col_idx, const int* __restrict__ order, int M, int N, int columns SCALE_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  __shared__ Rows rows;
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, staged = base + STAGES * STAGE;
  // by used column: which rows store a block there
  u32* const marks = reinterpret_cast<u32*>(smem + (staged - smem_addr(smem)) + CONS * CPANEL);
  // by stage and warpgroup: MI bits a column
  u32* const uses = marks + (columns + SC - 1) / SC * SC;
  u16* const where = reinterpret_cast<u16*>(uses + (columns + SC - 1) / SC * CONS);                     // by used column: which
  const u32 fulls = smem_addr(full), empties = smem_addr(empty);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127, lane = threadIdx.x & 31, warp = __shfl_sync(~0u, tid >> 5, 0);
  if (threadIdx.x == 0) {
    tma_prefetch(&tB), tma_prefetch(&tC);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1 + 128), mb_init(empties + i * 8, CONS);
    mb_init_fence();
  }
  pdl_launch();
  pdl_wait();
  const int block_rows = M / BS, groups = (block_rows + ALL - 1) / ALL, wide = (N + BN - 1) / BN;
  Runs runs(groups, wide);
  int q = 0;
  // The lists of one group of rows; gives the number of stages.
  auto list = [&](int group) {
    const int n = list_columns<ALL, NT, SC>(rows, marks, where, group, block_rows, columns, row_ptr, col_idx, order),
        stages = (n + SC - 1) / SC;
#pragma unroll 1
    for (int i = threadIdx.x; i < stages * CONS; i += NT) {
      u32 word = 0;
#pragma unroll
      for (int j = 0; j < SC; j++)
#pragma unroll
        for (int p = 0; p < MI; p++)
          if (marks[i / CONS * SC + j] >> ((i % CONS * MI + p) * RP) & ((1u << RP) - 1)) word |= 1u << (j * MI + p);
      uses[i] = word;
    }
    __syncthreads();
    return stages;
  };

  if (wg == 0) {
    regs_less<40>();
    u32 phase = 1;
    for (int round = 0; runs.next(round); round++) {
      const int until = runs.until, stages = list(runs.tile / wide);
      for (int t = runs.tile; t < until; t++) {
        const int col = t % wide * BN;
        int at = rows.start[lane]; // the next block of this lane's row
        for (int s = 0; s < stages; s++) {
          const u32 bar = fulls + q * 8, to = base + q * STAGE;
          int own = 0; // blocks of this lane's row in this stage; they lie beside each other
#pragma unroll
          for (int j = 0; j < SC; j++) own += marks[s * SC + j] >> lane & 1;
          mb_wait(empties + q * 8, phase);
          if (threadIdx.x == 0) {
            mb_expect(bar, B_BYTES);
#pragma unroll
            for (int j = 0; j < SC; j++) {
              const int k = where[s * SC + j] * BC;
              if (WIDE) tma_load3(to + j * SLAB, &tB, bar, 0, k, col / 64);
              else if (B_COL) tma_load(to + j * SLAB, &tB, bar, k, col);
              else
#pragma unroll
                for (int p = 0; p < PANELS; p++) tma_load(to + j * SLAB + p * (BC * 128), &tB, bar, col + p * 64, k);
            }
          }
          __syncwarp();
#pragma unroll
          for (int y = 0; y < (ALL + 3) / 4; y++) {
            const int r = warp + y * 4;
            if (r >= ALL) continue;
            const int first = __shfl_sync(~0u, at, r), some = __shfl_sync(~0u, own, r);
            const u16* const from = values + (u64)first * (BS * BC) + lane * 8;
            const u32 slot = to + B_BYTES + r * (SC * BLOCK);
#pragma unroll
            for (int x = 0; x < SC * (int)BLOCK / 512; x++) {
              const int chunk = x * 32 + lane;
              if (x < some * ((int)BLOCK / 512))
                copy16(slot + chunk / (BLOCK / 16) * BLOCK + in_block(chunk / CHUNKS % BS, chunk % CHUNKS),
                    from + x * 256);
            }
          }
          at += own;
          copies_arrive(bar);
          if (++q == STAGES) q = 0, phase ^= 1;
        }
      }
    }
  } else {
    regs_more<CONS == 2 ? 232 : 216>();
    const int w = __shfl_sync(~0u, wg, 0) - 1;
    const u32 mine = staged + w * CPANEL;
    u32 phase = 0;
    u32 a[2][MI][SC][MT][4];
    u32 block[MI]; // where the next block of each of this warp's rows lies
    // This warp's blocks in column j of a stage, into registers.
    auto fetch = [&](u32 stage, int s, int j, u32 (&a)[MI][SC][MT][4]) {
      const u32 mark = marks[s * SC + j];
#pragma unroll
      for (int i = 0; i < MI; i++) {
        const int row = (w * MI + i) * RP + warp * 16 / BS; // of blocks, in the group
        if (j == 0) block[i] = stage + B_BYTES + row * (SC * BLOCK);
        const bool there = mark >> row & 1;
#pragma unroll
        for (int kk = 0; kk < MT; kk++) {
          u32(&v)[4] = a[i][j][kk];
          v[0] = v[1] = v[2] = v[3] = 0;
          if (there) ldmatrix4(block[i] + in_block(warp * 16 % BS + (lane & 15), kk * 2 + (lane >> 4)), v[0], v[1], v[2], v[3]);
        }
        block[i] += there ? BLOCK : 0;
      }
    };
    for (int round = 0; runs.next(round); round++) {
      const int until = runs.until, stages = list(runs.tile / wide);
      for (int tile = runs.tile; tile < until; tile++) {
        float d[MI][BN / 2];
#pragma unroll
        for (int i = 0; i < MI * BN / 2; i++) d[i / (BN / 2)][i % (BN / 2)] = 0.f;
        int before = 0;
        if (stages) mb_wait(fulls + q * 8, phase);
        if (stages)
#pragma unroll
          for (int j = 0; j < SC; j++) fetch(base + q * STAGE, 0, j, a[0]);
        for (int s0 = 0; s0 < stages; s0 += 2)
#pragma unroll
          for (int x = 0; x < 2; x++) {
            const int s = s0 + x, after = q + 1 == STAGES ? 0 : q + 1;
            const u32 phase_after = q + 1 == STAGES ? phase ^ 1 : phase;
            if (s >= stages) break;
            const u32 used = __shfl_sync(~0u, uses[s * CONS + w], 0); // tells the compiler that it is the same in all lanes
            const u64 b = B_COL ? narrow_desc<BC>(base + q * STAGE) : mma_desc(base + q * STAGE, BC * 128);
            const bool more = s + 1 < stages;
#pragma unroll
            for (int j = 0; j < SC; j++) {
#pragma unroll
              for (int i = 0; i < MI; i++)
                if (used >> (j * MI + i) & 1) {
                  mma_fence(); // without it the compiler waits after every multiplication under a condition
#pragma unroll
                  for (int kk = 0; kk < MT; kk++) MM::step(d[i], a[x][i][j][kk], b + (j * SLAB + kk * (B_COL ? 32 : 2048)) / 16, 1);
                  mma_commit();
                }
              if (j == (BETWEEN ? 0 : SC - 1)) { // the stage before is read, and the registers that held its blocks are free
                wait_all_but<BETWEEN ? MI : MI * SC>(__popc(used & ((1u << (BETWEEN ? MI : MI * SC)) - 1)));
                if (used == 0) named_sync(1 + w, 128); // nothing else holds the warps together: none may fall a whole round behind
                if (s > 0 && tid == 0) mb_arrive(empties + before * 8);
                if (more) mb_wait(fulls + after * 8, phase_after);
              }
              // A multiplication is taken only when the one before it ends: the next stage's blocks are read in
              // between.
              if (BETWEEN && more) fetch(base + after * STAGE, s + 1, j, a[x ^ 1]);
            }
            if (!BETWEEN && more)
#pragma unroll
              for (int j = 0; j < SC; j++) fetch(base + after * STAGE, s + 1, j, a[x ^ 1]);
            before = q, q = after, phase = phase_after;
          }
        mma_wait<0>();
        if (stages > 0 && tid == 0) mb_arrive(empties + before * 8);
        const int col = tile % wide * BN;
#pragma unroll
        for (int i = 0; i < MI; i++) {
          const int first = (w * MI + i) * RP; // the part's first row of the group
          mma_done(d[i]);
          if (SCALED) {
            auto place = [&](int r) { // the row of C that row r of the part is
              const int row = rows.row[first + r / BS];
              return row < 0 ? -1ll : (long long)row * BS + r % BS;
            };
            const int r = warp * 16 + (lane >> 2);
            scale_fragments(d[i], add, place(r), place(r + 8), col, N, alpha, beta, M);
          }
#pragma unroll
          for (int p = 0; p < PANELS; p++) {
            if (tid == 0) tma_store_wait_read();
            named_sync(1 + w, 128);
            if (C_COL) stage_turned<BS, 64>(mine, &d[i][p * 32], warp, lane);
            else stage_panel<64>(mine, &d[i][p * 32], warp, lane);
            async_fence();
            named_sync(1 + w, 128);
            if (tid == 0) {
#pragma unroll
              for (int x = 0; x < RP; x++) {
                const int row = rows.row[first + x] * BS;
                if (row >= 0) tma_store_passing(&tC, mine + x * (BS * 128), C_COL ? row : col + p * 64, C_COL ? col + p * 64 : row);
              }
              tma_store_commit();
            }
          }
        }
      }
    }
    if (tid == 0) tma_store_wait_read();
  }
}
