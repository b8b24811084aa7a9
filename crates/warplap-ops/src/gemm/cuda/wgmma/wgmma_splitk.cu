// C = A·B with K cut between the CTAs of a cluster, which exchange their float32 parts through distributed shared
// memory.
//
// Idea: a product with few output tiles leaves most SMs idle. Here SPLIT CTAs of a cluster take one tile, each a run of
// K blocks with its own TMA producer and wgmma consumers. Each then owns BN/SPLIT columns of the tile: it sends the
// other columns' accumulators straight from registers to their owners (st.async onto the owner's mbarrier), adds what
// it receives in the order of K and stores through TMA. The order is fixed: the same bits every run, no workspace, no
// second kernel. The cluster may also hold CM x CN tiles, which share B and A by multicast as in wgmma_coop. The first
// loads are issued before the CTA has met: short problems are all latency. Wins: fewer tiles than SMs (1024^3,
// 128x4096x4096); SPLIT=1 is a plain one-tile-per-CTA kernel for tiny products (512^3). Limits: f16/bf16, 16-byte
// aligned bases and leading dimensions; C row-major, N % 8 == 0 (TMA stores whole 16 bytes); K >= 1. SPLIT*CM*CN <= 8
// (portable cluster size). A row-major B is loaded in panels of 64 columns: with BN % 64 != 0 the rest of the last
// panel is brought in vain. Where the idea comes from: split-K as in CUTLASS and cuBLAS; the exchange in registers and
// mbarriers replaces their workspace.
//
// Axes (-D): BM (64*CONS*{1,2}), BN (multiple of 16*SPLIT, <= 256), BK (64, 128), STAGES, CONS (1, 2), SPLIT (1, 2, 4,
// 8), CM, CN (1, 2, 4), CTAS (per SM: 1, 2). Facts of the problem (-D): DTYPE (0 f16, 1 bf16), A_COL, B_COL (1:
// column-major), BATCH (1: the grid holds several products, maps of three dimensions), BIAS and ACT (epilogue.cuh).
// SHARED: bytes of the launch.
#include "hopper.cuh"
#include "epilogue.cuh"

constexpr int NT = 128 * CONS + 32, MI = BM / (64 * CONS), SHARES = CM * CN, CL = SPLIT * SHARES;
constexpr int CW = BN / SPLIT;                                   // columns of the tile one CTA owns
constexpr int PW = CW % 64 == 0 ? 64 : CW % 32 == 0 ? 32 : 16;   // columns of one C panel
constexpr u32 CPANEL = 64 * PW * 2, PART = BM * CW * 4;
using OpA = Operand<BM, BK, A_COL, CN>;
using OpB = Operand<BN, BK, !B_COL, CM>;
using MM = Mma<BN, A_COL, !B_COL>;
constexpr u32 STAGE = OpA::bytes + OpB::bytes;
constexpr u32 RING = STAGES * STAGE > BM * CW * 2 ? STAGES * STAGE : BM * CW * 2; // the stages, and later the staged C
static_assert(BM == MI * 64 * CONS && CW % 16 == 0 && BK % 64 == 0, "tile");
static_assert(RING + (SPLIT - 1) * PART + 1024 == SHARED, "the host counts shared memory as the kernel does");

// Writes this CTA's columns of the tile, held as accumulator fragments, through shared memory. `row` and `col` are
// where they go in C.
template <class Fragments> DI void finish(Fragments& done, const TMap* tC, u32 base, int row, int col, int z, int wg,
    int tid, const elem* bias, const elem* other, u64 ld, const float* scale, int M, int N) {
  pdl_wait();
  named_sync(1, CONS * 128); // the staged C overwrites the stages: every consumer is done with them
  const u32 staged = base + wg * MI * (CW / PW) * CPANEL;
#pragma unroll
  for (int i = 0; i < MI; i++) {
    scale_fragments(done[i], scale, (u64)M * z, row + (wg * MI + i) * 64 + (tid >> 5) * 16, M);
    finish_fragments(done[i], bias, col, N);
    join_fragments<true>(done[i], other + (u64)M * z * ld, ld, row + (wg * MI + i) * 64 + (tid >> 5) * 16, col, M, N);
  }
#pragma unroll
  for (int p = 0; p < MI * (CW / PW); p++)
    stage_panel<PW>(staged + p * CPANEL, &done[p / (CW / PW)][p % (CW / PW) * (PW / 2)], tid >> 5, tid & 31);
  async_fence();
  named_sync(2 + wg, 128);
  if (tid == 0) {
#pragma unroll
    for (int p = 0; p < MI * (CW / PW); p++)
      tma_store(tC, staged + p * CPANEL, col + p % (CW / PW) * PW, row + (wg * MI + p / (CW / PW)) * 64, z);
    tma_store_commit();
    tma_store_wait_read();
  }
}

extern "C" __global__ void __launch_bounds__(NT, CTAS) __cluster_dims__(CL, 1, 1)
wgmma_splitk(const __grid_constant__ TMap tA, const __grid_constant__ TMap tB, const __grid_constant__ TMap tC, int M,
    int N, int K, int L EPILOGUE_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES], received;
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, inbox = base + RING;
  const u32 fulls = smem_addr(full), empties = smem_addr(empty), inbox_bar = smem_addr(&received);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127;
  const u32 rank = CL > 1 ? cluster_rank() : 0; // (slice of K, tile row, tile column) within the cluster
  const int slice = rank / SHARES, rm = rank % SHARES / CN, rn = rank % CN;
  const int tm = (M + BM * CM - 1) / (BM * CM), per = tm * ((N + BN * CN - 1) / (BN * CN));
  const int z = BATCH ? blockIdx.x / CL / per : 0, tile = blockIdx.x / CL - z * per, row = (tile % tm * CM + rm) * BM,
      col = (tile / tm * CN + rn) * BN;
  const int all = (K + BK - 1) / BK;
  int from = (int)((long long)all * slice / SPLIT), to = (int)((long long)all * (slice + 1) / SPLIT);
  if (SPLIT > 1 && from == to) from = all, to = all + 1; // a CTA without blocks takes the one past the end, which reads as zeros
  u16 row_mask = (u16)(((1 << CN) - 1) << (rank - rn)), col_mask = 0;
  for (int i = 0; i < CM; i++) col_mask |= (u16)(1 << (slice * SHARES + i * CN + rn));
  const Feed<OpA, OpB> feed = {&tA, &tB, base, fulls, rn, rm, row_mask, col_mask};
  const int early = min(to, from + STAGES);
  if (threadIdx.x == CONS * 128) {
    tma_prefetch(&tA), tma_prefetch(&tB);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, CONS * (CM + CN - 1));
    mb_init(inbox_bar, 1);
    mb_init_fence();
    if (SPLIT > 1) mb_expect(inbox_bar, (SPLIT - 1) * PART);
    if (SHARES == 1) {
      pdl_wait();
      for (int k = from; k < early; k++) feed.load(row, col, k * BK, z, k - from);
    }
  }
  if (CL > 1) cluster_arrive_early(); // says: barriers are ready; met again before the first byte goes to a peer
  if (SHARES > 1) cluster_wait();
  else __syncthreads();
  pdl_launch();
  if (wg == CONS) {
    if (tid == 0) {
      if (SHARES > 1) {
        pdl_wait();
        for (int k = from; k < early; k++) feed.load(row, col, k * BK, z, k - from);
      }
      feed.run<BK, STAGES>(row, col, z, early, to, empties);
      if constexpr (SHARES > 1) ring_ends<STAGES>(empties, (to - from) % STAGES, 1 ^ ((to - from) / STAGES & 1));
    }
    if (CL > 1 && SHARES == 1) cluster_wait();
  } else {
    const bool signals = SHARES > 1 ? tid < SHARES && (tid / CN == rm || tid % CN == rn) : tid == 0;
    auto release = [&](int stage) {
      if (!signals) return;
      if (SHARES > 1) mb_arrive_at(empties + stage * 8, slice * SHARES + tid);
      else mb_arrive(empties + stage * 8);
    };
    // As `multiply` of hopper.cuh, written out: behind the call ptxas serialises these products (C7514, NVRTC 13.0).
    float d[MI][BN / 2];
    int q = 0, before = 0;
    u32 phase = 0;
    for (int k = from; k < to; k++) {
      const u32 at = base + q * STAGE;
      mb_wait(fulls + q * 8, phase);
      mma_fence();
#pragma unroll
      for (int i = 0; i < MI; i++) {
        const u64 a = OpA::desc(at, (wg * MI + i) * 64), b = OpB::desc(at + OpA::bytes, 0);
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++) MM::step(d[i], a + OpA::step(kk), b + OpB::step(kk), k > from || kk > 0);
      }
      mma_commit();
      mma_wait<1>();
      if (k > from) release(before);
      before = q;
      if (++q == STAGES) q = 0, phase ^= 1;
    }
    mma_wait<0>();
    if (SHARES > 1) release(before); // alone, nobody waits for it
#pragma unroll
    for (int i = 0; i < MI; i++) mma_done(d[i]);
    if constexpr (SPLIT == 1) finish(d, &tC, base, row, col, z, wg, tid, bias, joined, ldj, scale, M, N);
    else {
      float sum[MI][CW / 2];
      if (SHARES == 1) cluster_wait();
      // Part e of an inbox lies as the sender's threads held it: 16 bytes a thread, thread beside thread.
      const u32 mine = (wg * 128 + tid) * 16;
      float own[MI][CW / 2];
#pragma unroll
      for (int s = 0; s < SPLIT; s++) {
        if (s == slice) {
#pragma unroll
          for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < CW / 2; j++) own[i][j] = d[i][s * (CW / 2) + j];
        } else {
          const u32 peer = s * SHARES + rank % SHARES, to_bar = peer_addr(inbox_bar, peer);
          const u32 to_box = peer_addr(inbox + (slice < s ? slice : slice - 1) * PART + mine, peer);
#pragma unroll
          for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < CW / 2; j += 4) {
              const float* v = &d[i][s * (CW / 2) + j];
              peer_send4(to_box + (i * (CW / 8) + j / 4) * (CONS * 2048), to_bar, v[0], v[1], v[2], v[3]);
            }
        }
      }
#pragma unroll
      for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < CW / 2; j++) sum[i][j] = 0.f;
      mb_wait(inbox_bar, 0);
#pragma unroll
      for (int s = 0; s < SPLIT; s++)
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
          for (int j = 0; j < CW / 2; j += 4) {
            float4 v = make_float4(own[i][j], own[i][j + 1], own[i][j + 2], own[i][j + 3]);
            if (s != slice) v = shared_load4(inbox + (s < slice ? s : s - 1) * PART + mine + (i * (CW / 8) + j / 4) * (CONS * 2048));
            sum[i][j] += v.x, sum[i][j + 1] += v.y, sum[i][j + 2] += v.z, sum[i][j + 3] += v.w;
          }
      finish(sum, &tC, base, row, col + slice * CW, z, wg, tid, bias, joined, ldj, scale, M, N);
    }
  }
}
