// C = A·B with small blocks: a CTA streams B once past many block rows, each warp multiplies what its own rows store.
//
// Idea: with blocks of 16 or 32 every stored block pulls a slab of B that is little used, so B must be shared by many rows: a CTA owns WARPS strips of
// 64 rows by 64 columns of C (one strip a warp, sums in registers), finds the union of their block columns in shared memory, and one
// thread streams just those slabs of B through TMA. A warp brings its own blocks of A by cp.async, a window ahead, and runs mma.sync on
// exactly the stored blocks: no multiplication by zeros (wgmma's 64 rows would meet four rows of blocks of 16).
// The lists are made by the kernel from the matrix's own indices, once per run of tiles: nothing is prepared, nothing can be stale.
// `order` (optional) names the block rows in the order in which strips are put together; any permutation is right.
// Wins: nowhere with a row-major B since wgmma_swapab.cu; not measured with a column-major one. Limits: f16/bf16, BS 16 or 32, 16-byte aligned buffers and rows (N % 8 == 0), K/BS <= 2048.
// Where the idea comes from: this project's own arithmetic (bytes through L2 per multiplication).
//
// Axes (-D): WARPS (8), STAGES, CAP (blocks of A in one window: 4..32, at least 64/BS).
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16), SCALED, ADDS, B_COL (1: column-major), BS.
#include "hopper.cuh"
#include "scaled.cuh"

constexpr int NT = 32 * WARPS + 128, RPW = 64 / BS, ROWS = WARPS * RPW, SPS = 64 / BS, MT = BS / 16;
constexpr u32 STAGE = 64 * 128, SLAB = BS * 128, BLOCK = BS * BS * 2;
constexpr u32 RING = 2 * CAP * BLOCK > 8192 ? 2 * CAP * BLOCK : 8192; // per warp; a finished strip passes through it too
static_assert(CAP >= RPW && CAP <= 32 && ROWS <= 32, "windows");

DI void ldmatrix4(u32 a, u32 (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");
}
DI void ldmatrix4_trans(u32 a, u32 (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");
}
DI void mma16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." ELEM "." ELEM ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DI void copy16(u32 to, const void* from) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory"); }
DI void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DI void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
// Where 16-byte chunk c of row r lies in rows of BS elements, so that eight rows of one chunk meet different banks.
DI u32 in_block(int r, int c) { return r * BS * 2 + ((BS == 16 ? c ^ (r >> 2 & 1) : c ^ (r >> 1 & 3)) << 4); }

extern "C" __global__ void __launch_bounds__(NT, 1)
mma_strips(const u16* __restrict__ values, const __grid_constant__ TMap tB, u16* C, const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
           const int* __restrict__ order, int M, int N, int columns SCALE_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  __shared__ int rows[32], found;
  __shared__ uint2 items[WARPS][32];
  const u32 base = (smem_addr(smem) + 1023) & ~1023u;
  unsigned char* const lists = smem + (base - smem_addr(smem)) + STAGES * STAGE + WARPS * RING;
  u32* const marks = reinterpret_cast<u32*>(lists);        // by column: which rows store a block there
  u32* const steps = marks + columns;                      // the same for columns with blocks only
  u16* const where = reinterpret_cast<u16*>(steps + columns); // and the column
  const u32 fulls = smem_addr(full), empties = smem_addr(empty);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const u32 below = (1u << lane) - 1;
  if (threadIdx.x == 0) {
    tma_prefetch(&tB);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, WARPS);
    mb_init_fence();
  }
  pdl_launch();
  pdl_wait();
  const int block_rows = M / BS, groups = (block_rows + ROWS - 1) / ROWS, wide = (N + 63) / 64, count = groups * wide;
  int tile = (int)((long long)count * blockIdx.x / gridDim.x);
  const int last = (int)((long long)count * (blockIdx.x + 1) / gridDim.x);
  int q = 0, n_steps = 0;
  // The lists of one group of rows, made by all threads together.
  auto list = [&](int group) {
    __syncthreads(); // nobody reads the lists of the run before any more
    for (int i = threadIdx.x; i < columns; i += NT) marks[i] = 0;
    if (threadIdx.x < 32) {
      const int i = group * ROWS + lane;
      rows[lane] = lane < ROWS && i < block_rows ? (order ? __ldg(order + i) : i) : -1;
    }
    __syncthreads();
    for (int r = warp; r < ROWS; r += NT / 32) {
      if (rows[r] < 0) continue;
      const int end = __ldg(row_ptr + rows[r] + 1);
      for (int e = __ldg(row_ptr + rows[r]) + lane; e < end; e += 32) {
        const u32 c = __ldg(col_idx + e);
        if (c < (u32)columns) atomicOr(&marks[c], 1u << r); // a wrong index must not write into another list
      }
    }
    __syncthreads();
    if (warp == 0) {
      int n = 0;
      for (int c = lane; c < (columns + 31) / 32 * 32; c += 32) {
        const u32 m = c < columns ? marks[c] : 0, some = __ballot_sync(~0u, m != 0);
        if (m) steps[n + __popc(some & below)] = m, where[n + __popc(some & below)] = (u16)c;
        n += __popc(some);
      }
      if (lane == 0) found = n;
    }
    __syncthreads();
    n_steps = found;
  };
  // Registers are dealt out per quarter of the SM: a ninth warp would cost every warp a third of its own.
  if (warp >= WARPS) {
    regs_less<40>();
    u32 phase = 1;
    while (tile < last) {
      const int group = tile / wide, until = min(last, (group + 1) * wide);
      list(group);
      const int n_stages = (n_steps + SPS - 1) / SPS;
      if (threadIdx.x == WARPS * 32)
        for (int t = tile; t < until; t++)
          for (int s = 0; s < n_stages; s++) {
            const u32 bar = fulls + q * 8, to = base + q * STAGE;
            const int have = min(SPS, n_steps - s * SPS), col = t % wide * 64;
            mb_wait(empties + q * 8, phase);
            mb_expect(bar, have * SLAB);
            for (int i = 0; i < have; i++) {
              const int k = where[s * SPS + i] * BS;
              tma_load(to + i * SLAB, &tB, bar, B_COL ? k : col, B_COL ? col : k);
            }
            if (++q == STAGES) q = 0, phase ^= 1;
          }
      __syncwarp();
      tile = until;
    }
  } else {
    regs_more<232>();
    u32 phase = 0;
    while (tile < last) {
      const int group = tile / wide, until = min(last, (group + 1) * wide);
      list(group);
      const int n_stages = (n_steps + SPS - 1) / SPS;
      const u32 ring = base + STAGES * STAGE + warp * RING;
      for (int t = tile; t < until; t++) {
        float acc[4][8][4];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int j = 0; j < 8; j++)
#pragma unroll
            for (int x = 0; x < 4; x++) acc[i][j][x] = 0.f;
        int at[RPW]; // the next block of each of the warp's rows
#pragma unroll
        for (int r = 0; r < RPW; r++) at[r] = rows[warp * RPW + r] >= 0 ? __ldg(row_ptr + rows[warp * RPW + r]) : 0;
        int s0 = 0, stage = 0;
        bool ready = false;
        // A window: the next steps whose blocks fit CAP slots. Its blocks are asked for, and lane j is told item j (step, row).
        auto window = [&](int parity, u32& what) {
          const u32 m0 = s0 + lane < n_steps ? steps[s0 + lane] >> (warp * RPW) & ((1u << RPW) - 1) : 0;
          int upto = __popc(m0);
#pragma unroll
          for (int o = 1; o < 32; o <<= 1) {
            const int x = __shfl_up_sync(~0u, upto, o);
            if (lane >= o) upto += x;
          }
          const u32 fits = __ballot_sync(~0u, upto <= CAP);
          const u32 m = upto <= CAP ? m0 : 0;
          const int n = __shfl_sync(~0u, upto, __popc(fits) - 1);
          int slot = upto - __popc(m0);
#pragma unroll
          for (int r = 0; r < RPW; r++) {
            const u32 has = __ballot_sync(~0u, m >> r & 1);
            if (m >> r & 1) items[warp][slot++] = make_uint2(at[r] + __popc(has & below), (s0 + lane) << 2 | r);
            at[r] += __popc(has);
          }
          __syncwarp();
          const uint2 mine = items[warp][lane];
          __syncwarp();
          what = mine.y;
          const u32 to = ring + parity * CAP * BLOCK;
          for (int j = 0; j < n; j++) {
            const u16* from = values + (u64)__shfl_sync(~0u, mine.x, j) * (BS * BS) + lane * 8;
#pragma unroll
            for (int i = 0; i < MT * MT; i++) {
              const int chunk = i * 32 + lane;
              copy16(to + j * BLOCK + in_block(chunk / (BS / 8), chunk % (BS / 8)), from + i * 256);
            }
          }
          copy_commit();
          s0 += __popc(fits);
          return n;
        };
        u32 what, what_next = 0;
        int n = window(0, what), parity = 0, held = -1;
        u32 b[MT][8][2];
        while (true) {
          const bool more = s0 < n_steps;
          int n_next = 0;
          if (more) n_next = window(parity ^ 1, what_next);
          else copy_commit();
          copy_wait<1>();
          __syncwarp();
          for (int j = 0; j < n; j++) {
            const int item = __shfl_sync(~0u, what, j), s = item >> 2, r = item & 3;
            if (s != held) {
              for (; stage < s / SPS; stage++) { // pass the stages before
                if (!ready) mb_wait(fulls + q * 8, phase);
                __syncwarp();
                if (lane == 0) mb_arrive(empties + q * 8);
                if (++q == STAGES) q = 0, phase ^= 1;
                ready = false;
              }
              if (!ready) mb_wait(fulls + q * 8, phase), ready = true;
              held = s;
              const u32 slab = base + q * STAGE + s % SPS * SLAB;
#pragma unroll
              for (int kk = 0; kk < MT; kk++)
#pragma unroll
                for (int p = 0; p < 4; p++) {
                  u32 v[4];
                  if (B_COL) {
                    const int row = p * 16 + (lane >> 4) * 8 + (lane & 7);
                    ldmatrix4(slab + in_block(row, kk * 2 + (lane >> 3 & 1)), v);
                  } else {
                    const int k = kk * 16 + (lane & 15);
                    ldmatrix4_trans(slab + k * 128 + (((p * 2 + (lane >> 4)) ^ (k & 7)) << 4), v);
                  }
                  b[kk][p * 2][0] = v[0], b[kk][p * 2][1] = v[1], b[kk][p * 2 + 1][0] = v[2], b[kk][p * 2 + 1][1] = v[3];
                }
            }
            const u32 block = ring + (parity * CAP + j) * BLOCK;
#pragma unroll
            for (int x = 0; x < RPW; x++)
              if (x == r) {
#pragma unroll
                for (int kk = 0; kk < MT; kk++)
#pragma unroll
                  for (int i = 0; i < MT; i++) {
                    u32 a[4];
                    ldmatrix4(block + in_block(i * 16 + (lane & 15), kk * 2 + (lane >> 4)), a);
#pragma unroll
                    for (int y = 0; y < 8; y++) mma16(acc[x * MT + i][y], a, b[kk][y][0], b[kk][y][1]);
                  }
              }
          }
          __syncwarp();
          if (!more) break;
          what = what_next, n = n_next, parity ^= 1;
        }
        for (; stage < n_stages; stage++) {
          if (!ready) mb_wait(fulls + q * 8, phase);
          __syncwarp();
          if (lane == 0) mb_arrive(empties + q * 8);
          if (++q == STAGES) q = 0, phase ^= 1;
          ready = false;
        }
        copy_wait<0>();
        __syncwarp();
        if (SCALED) {
          auto place = [&](int r) { // the row of C that row r of the strip is
            const int row = rows[warp * RPW + r / BS];
            return row < 0 ? -1ll : (long long)row * BS + r % BS;
          };
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const int r = i * 16 + (lane >> 2);
#pragma unroll
            for (int y = 0; y < 8; y++) scale_fragments(acc[i][y], add, place(r), place(r + 8), t % wide * 64 + y * 8, N, alpha, beta);
          }
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int c = 0; c < 4; c++) {
            const int r = i * 16 + (lane & 15);
            const float(&lo)[4] = acc[i][c * 2];
            const float(&hi)[4] = acc[i][c * 2 + 1];
            stmatrix4(ring + r * 128 + (((c * 2 + (lane >> 4)) ^ (r & 7)) << 4), pack(lo[0], lo[1]), pack(lo[2], lo[3]), pack(hi[0], hi[1]), pack(hi[2], hi[3]));
          }
        __syncwarp();
        const int c = lane & 7, col = t % wide * 64 + c * 8;
#pragma unroll
        for (int i = 0; i < 16; i++) {
          const int r = i * 4 + (lane >> 3), row = rows[warp * RPW + r / BS];
          if (row >= 0 && col < N) *reinterpret_cast<uint4*>(C + ((u64)row * BS + r % BS) * N + col) = shared_load8(ring + r * 128 + ((c ^ (r & 7)) << 4));
        }
        __syncwarp();
      }
      tile = until;
    }
  }
}
