// C = A·B in tf32 on Hopper's tensor cores: f32 in memory, products rounded to tf32, sums in f32.
//
// Idea: wgmma takes tf32 from shared memory only where K is contiguous, and one operand may come from registers
// instead. So the operand whose rows lie contiguous in memory (a row-major B, seen as the first operand of Cᵀ = Bᵀ·Aᵀ)
// is the one that comes from registers: read from its swizzled tile four bytes at a time, rounded there; the other (a
// row-major A) is rounded by TMA on its way to shared memory. A persistent grid, one TMA producer, two warpgroups with
// 64 rows of the first operand each. While the tensor cores multiply one block of K, the next one's fragments are read.
// In a cluster of CR CTAs above each other every one brings a part of the second operand and multicasts it: alone, a
// tile of 128 x 256 takes more from L2 than L2 gives. Which of the 64 rows a lane holds is free (it only names the rows
// of C): rows 16 apart make the reads of a contiguous operand meet every bank once. Wins: f32 where tf32 is allowed,
// from a wave of tiles on. Limits: 16-byte aligned bases and leading dimensions of A and B; not A column-major with B
// row-major (both would have to come from registers). Where the idea comes from: CUTLASS's mixed-input kernels keep the
// operand that has to change in registers.
//
// Axes (-D): BR (64*CONS: rows of the first operand), BS (64, 128, 192, 256: rows of the second), STAGES, CONS (1, 2),
// CR (1, 2: CTAs of a cluster), GROUP (>= 1). Facts of the problem (-D): DTYPE (2), SWAP (1: the first operand is Bᵀ),
// FLAT (1: the first operand's rows are contiguous, not K), BATCH (1: L products, maps of three dimensions), VEC_C (1:
// two columns of C may be stored at once), BIAS and ACT (epilogue.cuh). SHARED: bytes of the launch.
#include "hopper.cuh"
#include "epilogue.cuh"

constexpr int NT = 128 * (CONS + 1), BK = 32;
constexpr u32 FIRST = BR * 128, STAGE = FIRST + BS * 128;
using Order = Tiles<BR, BS, CR, 1, GROUP>;
static_assert(BR == 64 * CONS && BS % (8 * CR) == 0 && DTYPE == 2, "tile");
static_assert(STAGES * STAGE + 1024 == SHARED, "the host counts shared memory as the kernel does");

struct Feed32 {
  const TMap *first, *second;
  u32 base, fulls;
  int part;
  u16 ctas;
  DI void load(int row, int col, int k, int z, int q) const {
    const u32 bar = fulls + q * 8, at = base + q * STAGE;
    mb_expect(bar, STAGE);
#pragma unroll
    for (int p = 0; p < (FLAT ? BR / 32 : 1); p++) tma_load(at + p * 4096, first, bar, FLAT ? row + p * 32 : k, FLAT ? k : row, z);
    const int cut = part * (BS / CR);
    if (CR > 1) tma_load_multicast(at + FIRST + cut * 128, second, bar, k, col + cut, ctas, z);
    else tma_load(at + FIRST, second, bar, k, col, z);
  }
};

extern "C" __global__ void __launch_bounds__(NT, 1) __cluster_dims__(CR, 1, 1)
wgmma_tf32(const __grid_constant__ TMap tFirst, const __grid_constant__ TMap tSecond, float* __restrict__ C, int M,
    int N, int K, int L, u64 ldc EPILOGUE_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, fulls = smem_addr(full), empties = smem_addr(empty);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127;
  const Order tiles(SWAP ? N : M, SWAP ? M : N, L, CR > 1 ? cluster_rank() : 0);
  const int blocks = (K + BK - 1) / BK;
  const Feed32 feed = {&tFirst, &tSecond, base, fulls, tiles.rm, tiles.col_ctas()};
  int row, col, z, ahead = 0; // stages of the first tile already asked for
  if (threadIdx.x == 0) {
    tma_prefetch(&tFirst), tma_prefetch(&tSecond);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, CONS * 4 * CR);
    mb_init_fence();
    if (CR == 1) { // alone, the first loads need not wait for the CTA to meet
      pdl_wait();
      tiles.at(tiles.first, row, col, z);
      for (; ahead < min(STAGES, blocks); ahead++) feed.load(row, col, ahead * BK, z, ahead);
    }
  }
  if (CR > 1) cluster_meet();
  else __syncthreads();
  pdl_launch();
  pdl_wait();

  if (wg == 0) {
    if (CONS > 1) regs_less<Roles<CONS>::producer>();
    if (threadIdx.x == 0) {
      int q = ahead % STAGES;
      u32 phase = ahead == STAGES ? 0 : 1;
      for (int t = tiles.first; t < tiles.count; t += tiles.step, ahead = 0) {
        tiles.at(t, row, col, z);
        for (int k = ahead; k < blocks; k++) {
          mb_wait(empties + q * 8, phase);
          feed.load(row, col, k * BK, z, q);
          if (++q == STAGES) q = 0, phase ^= 1;
        }
      }
      if constexpr (CR > 1) ring_ends<STAGES>(empties, q, phase);
    }
  } else {
    if (CONS > 1) regs_more<Roles<CONS>::consumer>();
    const int w = wg - 1, lane = tid & 31, warp = tid >> 5, r = lane >> 2, c = lane & 3;
    // Where a lane's first element of a stage's block lies, and the row of the tile it belongs to. Its second row is
    // eight on, or four where rows are contiguous.
    const int mine = FLAT ? w * 64 + (warp >> 1) * 32 + (warp & 1) * 8 + (r >> 2) * 16 + (r & 3) : w * 64 + warp * 16 + r;
    const u32 from = FLAT ? (mine >> 5) * 4096 + c * 128 + (r & 3) * 4 : mine * 128 + c * 4;
    const int chunk = FLAT ? (warp & 1) * 2 + (r >> 2) * 4 : 0;
    int q = 0, before = 0;
    u32 phase = 0;
    // Every warp says that it has read a stage, to each CTA that writes into it.
    auto release = [&](int stage) {
      if (lane < CR) tiles.release_stage(empties + stage * 8, lane);
    };
    auto fetch = [&](u32 (&f)[4][4]) {
      mb_wait(fulls + q * 8, phase);
      const u32 at = base + q * STAGE + from;
#pragma unroll
      for (int kk = 0; kk < 4; kk++)
#pragma unroll
        for (int h = 0; h < 2; h++) // four deeper in K
#pragma unroll
          for (int i = 0; i < 2; i++) // the second row
            f[kk][h * 2 + i] = round_tf32(FLAT ? at + kk * 1024 + h * 512 + (((chunk + i) ^ (c + h * 4)) << 4)
                : at + i * 1024 + (((kk * 2 + h) ^ r) << 4));
    };
    float d[BS / 2];
    auto turn = [&](u32 (&now)[4][4], u32 (&next)[4][4], int k) {
      const u64 second = mma_desc(base + q * STAGE + FIRST, 16);
      mma_fence();
#pragma unroll
      for (int kk = 0; kk < 4; kk++) Mma32<BS>::step(d, now[kk], second + kk * 2, k > 0 || kk > 0);
      mma_commit();
      if (k > 0) {
        mma_wait<1>();
        release(before);
      }
      before = q;
      if (++q == STAGES) q = 0, phase ^= 1;
      if (k + 1 < blocks) fetch(next);
    };
    for (int t = tiles.first; t < tiles.count; t += tiles.step) {
      u32 even[4][4], odd[4][4];
      fetch(even);
      for (int k = 0; k < blocks; k += 2) {
        turn(even, odd, k);
        if (k + 1 < blocks) turn(odd, even, k + 1);
      }
      mma_wait<0>();
      release(before);
      mma_done(d);
      tiles.at(t, row, col, z);
      float* const out = C + (u64)z * M * ldc;
      const elem* const other = joined + (u64)z * M * ldj;
      const u64 before = (u64)z * M; // rows of other products
#pragma unroll
      for (int j = 0; j < BS / 8; j++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const int x = row + mine + i * (FLAT ? 4 : 8), y = col + j * 8 + c * 2;
          const float u = d[j * 4 + i * 2], v = d[j * 4 + i * 2 + 1];
          if (SWAP) {
            if (x < N && y < M)
              out[(u64)y * ldc + x] = join_at(finished(u, bias, x, N, factor_of(scale, before + y)),
                  other + (u64)y * ldj, x, N);
            if (x < N && y + 1 < M)
              out[(u64)(y + 1) * ldc + x] = join_at(finished(v, bias, x, N, factor_of(scale, before + y + 1)),
                  other + (u64)(y + 1) * ldj, x, N);
          } else if (x < M && y < N) {
            float* const to = out + (u64)x * ldc + y;
            const float first = join_at(finished(u, bias, y, N, factor_of(scale, before + x)), other + (u64)x * ldj, y, N);
            const float second = join_at(finished(v, bias, y + 1, N, factor_of(scale, before + x)), other + (u64)x * ldj, y + 1, N);
            if (VEC_C && y + 1 < N) *reinterpret_cast<float2*>(to) = make_float2(first, second);
            else {
              to[0] = first;
              if (y + 1 < N) to[1] = second;
            }
          }
        }
    }
  }
}
