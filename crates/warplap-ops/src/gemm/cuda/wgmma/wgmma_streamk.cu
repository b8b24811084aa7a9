// C = A·B on Hopper's tensor cores, every CTA taking an equal share of all the blocks of K, whatever tiles they belong
// to.
//
// Idea: as wgmma_coop (persistent grid, TMA producer, cooperating warpgroups, cluster multicast, TMA stores), but the
// tiles of the last wave, which would leave SMs idle (and, with CUT=2, those of the wave before), are laid end to end
// along K and cut into as many equal runs as there are clusters. Who has a tile's first block owns it; whoever has
// another part of it writes that part's float32 sums to a workspace and raises a flag; the owner adds them in the order
// of K. The order is fixed: the same bits every run. A cluster's run is worked off such that parts for others come
// first, so that owners do not wait, and owners wait only for CTAs with lower numbers, which started before them. Flags
// are left at zero. The other tiles follow whole. Made for: some tiles more than a whole number of waves, or fewer than
// one, with K in the thousands. It has won nowhere yet (docs/results/cuda.md). Limits: as wgmma_coop; a workspace of
// BM*BN floats for each CTA. Where the idea comes from: Osama et al., "Stream-K: Work-centric Parallel Decomposition
// for Dense Matrix-Matrix Multiplication on the GPU".
//
// Axes (-D): as wgmma_coop, and CUT (1, 2: waves that are cut).
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16), A_COL, B_COL (1: column-major), BATCH (1: L products, maps of three
// dimensions), BIAS and ACT (epilogue.cuh). SHARED: bytes of the launch, FLAGS: words of the workspace before the
// parts.
#include "hopper.cuh"
#include "epilogue.cuh"

constexpr int NT = 128 * (CONS + 1), MI = BM / (64 * CONS), CL = CM * CN;
constexpr int PW = BN % 64 == 0 ? 64 : BN % 32 == 0 ? 32 : 16; // columns of one C panel
constexpr u32 CPANEL = 64 * PW * 2;
using OpA = Operand<BM, BK, A_COL, CN>;
using OpB = Operand<BN, BK, !B_COL, CM>;
using MM = Mma<BN, A_COL, !B_COL>;
constexpr u32 STAGE = OpA::bytes + OpB::bytes;
static_assert(BM == MI * 64 * CONS && BN % 16 == 0 && BK % 64 == 0, "tile");
static_assert(STAGES * STAGE + CONS * SLOTS * CPANEL + 1024 == SHARED, "the host counts shared memory as the kernel does");

// What one cluster does: a run of the blocks of K of the tiles that are cut, then whole tiles. What all threads know
// alike lies in shared memory: in registers it would push the sums out.
struct Deal { int blocks, runs, count, even, longer; };
struct Share {
  const volatile Deal* deal;
  int at, left, next;
  template <class Order> static DI Deal dealt(const Order& tiles, int blocks) {
    const int runs = tiles.step, whole = tiles.count / runs, rest = tiles.count - whole * runs,
        cut = rest == 0 ? 0 : rest + min(whole, CUT - 1) * runs;
    return {blocks, runs, tiles.count, cut * blocks / runs, cut * blocks % runs};
  }
  DI Share(const volatile Deal* deal_, const Deal& d, int first) : deal(deal_) {
    const int run = d.runs - 1 - first;
    at = begin(run), left = begin(run + 1) - at, next = begin(d.runs) / d.blocks + first;
  }
  // Where a run begins among all the blocks that are cut: what does not come out even is dealt to the first runs.
  DI int begin(int run) const { return run * deal->even + min(run, (int)deal->longer); }
  // The next tile and its blocks from `from` to `to`.
  DI bool take(int& t, int& from, int& to) {
    if (left > 0) {
      const int blocks = deal->blocks;
      t = at / blocks, from = at - t * blocks, to = min(blocks, from + left), at += to - from, left -= to - from;
      return true;
    }
    t = next, from = 0, to = deal->blocks, next += deal->runs;
    return t < deal->count;
  }
};

// A number worked out again where it is needed rather than kept in a register all along.
DI int anew(int x) {
  int y;
  asm volatile("mov.u32 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
DI void raise(u32* flag) { asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory"); }
DI void await_and_lower(u32* flag) {
  u32 up;
  do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(up) : "l"(flag) : "memory");
  while (!up);
  *flag = 0;
}

extern "C" __global__ void __launch_bounds__(NT, 1) __cluster_dims__(CL, 1, 1)
wgmma_streamk(const __grid_constant__ TMap tA, const __grid_constant__ TMap tB, const __grid_constant__ TMap tC,
    u32* flags, int M, int N, int K, int L EPILOGUE_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, staged = base + STAGES * STAGE;
  const u32 fulls = smem_addr(full), empties = smem_addr(empty);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127;
  const u32 rank = CL > 1 ? cluster_rank() : 0;
  const Tiles<BM, BN, CM, CN, GROUP> tiles(M, N, L, rank);
  __shared__ Deal deal;
  const Deal dealt = Share::dealt(tiles, (K + BK - 1) / BK);
  if (threadIdx.x == 0) deal = dealt;
  __syncthreads();
  Share share(&deal, dealt, tiles.first);
  const Feed<OpA, OpB> feed = {&tA, &tB, base, fulls, tiles.rn, tiles.rm, tiles.row_ctas(), tiles.col_ctas()};
  int row, col, z, t, from, to, ahead = 0; // stages already asked for
  if (threadIdx.x == 0) {
    tma_prefetch(&tA), tma_prefetch(&tB), tma_prefetch(&tC);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, CONS * (CM + CN - 1));
    mb_init_fence();
    if (CL == 1) { // alone, the first loads need not wait for the CTA to meet
      pdl_wait();
      Share first = share;
      if (first.take(t, from, to)) {
        tiles.at(t, row, col, z);
        for (; ahead < min(STAGES, to - from); ahead++) feed.load(row, col, (from + ahead) * BK, z, ahead);
      }
    }
  }
  if (CL > 1) cluster_meet();
  else __syncthreads();
  pdl_launch();
  pdl_wait();

  if (wg == 0) {
    if (CONS > 1) regs_less<Roles<CONS>::producer>();
    if (threadIdx.x == 0) {
      int q = ahead % STAGES;
      u32 phase = ahead == STAGES ? 0 : 1;
      for (; share.take(t, from, to); ahead = 0) {
        tiles.at(t, row, col, z);
        for (int k = from + ahead; k < to; k++) {
          mb_wait(empties + q * 8, phase);
          feed.load(row, col, k * BK, z, q);
          if (++q == STAGES) q = 0, phase ^= 1;
        }
      }
      if constexpr (CL > 1) ring_ends<STAGES>(empties, q, phase);
    }
  } else {
    if (CONS > 1) regs_more<Roles<CONS>::consumer>();
    const int w = wg - 1;
    const u32 mine = staged + w * SLOTS * CPANEL;
    // This warpgroup's signal that a stage is free goes to every CTA that writes into it.
    const bool signals = tiles.shares_with(tid);
    auto release = [&](int stage) {
      if (signals) tiles.release_stage(empties + stage * 8, tid);
    };
    // Sums lie as the threads of a warpgroup hold them.
    float4* const parts = reinterpret_cast<float4*>(flags + FLAGS) + tid;
    auto slot = [&](int cluster) { return (cluster * CL + (int)rank) * CONS + w; };
    int q = 0;
    u32 phase = 0;
    while (share.take(t, from, to)) {
      float d[MI][BN / 2];
      multiply<OpA, OpB, MM, BK, STAGES, LAG>(d, base, fulls, w * MI, from, to, q, phase, release, [](int) {});
      if (from > 0) {
        float4* part = parts + (u64)slot(tiles.first) * (MI * BN / 8 * 128);
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
          for (int j = 0; j < BN / 8; j++)
            part[(i * (BN / 8) + j) * 128] = make_float4(d[i][j * 4], d[i][j * 4 + 1], d[i][j * 4 + 2],
                d[i][j * 4 + 3]);
        __threadfence();
        named_sync(1 + w, 128);
        if (tid == 0) raise(flags + slot(tiles.first));
        continue;
      }
      // The others' parts of the tile come from the clusters before this one, which have the runs behind this one's.
      for (int cluster = tiles.first - 1, last = (t + 1) * share.deal->blocks; to < share.deal->blocks && share.at < last; cluster--) {
        const int reach = min(share.begin(tiles.step - cluster), last);
        if (reach == share.at) continue; // a run without blocks
        share.at = reach;
        if (tid == 0) await_and_lower(flags + slot(cluster));
        named_sync(1 + w, 128);
        const float4* part = parts + (u64)slot(cluster) * (MI * BN / 8 * 128);
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
          for (int j = 0; j < BN / 8; j++) {
            const float4 v = __ldcg(part + (i * (BN / 8) + j) * 128);
            d[i][j * 4] += v.x, d[i][j * 4 + 1] += v.y, d[i][j * 4 + 2] += v.z, d[i][j * 4 + 3] += v.w;
          }
      }
      Tiles<BM, BN, CM, CN, GROUP>(anew(M), anew(N), anew(L), CL > 1 ? cluster_rank() : 0).at(t, row, col, z);
#pragma unroll
      for (int i = 0; i < MI; i++) {
        scale_fragments(d[i], scale, (u64)M * z, row + (w * MI + i) * 64 + (tid >> 5) * 16, M);
        finish_fragments(d[i], bias, col, N);
        join_fragments<true>(d[i], joined + (u64)M * z * ldj, ldj, row + (w * MI + i) * 64 + (tid >> 5) * 16, col, M, N);
      }
      store_tile<PW, SLOTS>(d, &tC, mine, row + w * MI * 64, col, z, 1 + w);
    }
    if (tid == 0) tma_store_wait_read();
  }
}
