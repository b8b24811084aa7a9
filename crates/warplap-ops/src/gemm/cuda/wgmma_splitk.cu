// C = A·B with K cut between the CTAs of a cluster, which add their parts up through each other's shared memory.
//
// Idea: a product with few output tiles leaves most SMs idle. Here SPLIT CTAs (one cluster) take one tile, each a run of K blocks with
// its own TMA producer and wgmma consumers. The float32 parts are laid in each CTA's shared memory; after a cluster
// barrier each adds BM/SPLIT rows of all parts, always in the same order: the same bits every run, no workspace, no second kernel.
// The cluster may also hold CM x CN tiles, which share B and A by multicast as in wgmma_coop.
// Wins: fewer tiles than SMs (1024^3, 128x4096x4096, 512^3 with small tiles); SPLIT=1 is a plain one-tile-per-CTA kernel for tiny products.
// Limits: f16/bf16, 16-byte aligned bases and leading dimensions; C row-major. SPLIT*CM*CN <= 8 (portable cluster size). B_COL=0 wants BN % 64 == 0.
// Where the idea comes from: split-K as in CUTLASS and cuBLAS; the reduction through distributed shared memory replaces their workspace.
//
// Axes (-D): BM (64*CONS*{1,2}), BN (multiple of 16, <= 256), BK (64, 128), STAGES, CONS (1, 2), SPLIT (1, 2, 4, 8; BM % SPLIT == 0),
// CM, CN (1, 2, 4), CTAS (per SM: 1, 2).
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16), A_COL, B_COL (1: column-major).
#include "hopper.cuh"

constexpr int NT = 128 * CONS + 32, MI = BM / (64 * CONS), SHARED = CM * CN, CL = SPLIT * SHARED;
constexpr int PITCH = BN + 8; // floats a row of parts takes: 8 rows apart in banks by 8, so the fragments land without conflict
using OpA = Operand<BM, BK, A_COL, CN>;
using OpB = Operand<BN, BK, !B_COL, CM>;
using MM = Mma<BN, A_COL, !B_COL>;
constexpr u32 STAGE = OpA::bytes + OpB::bytes;
static_assert(BM == MI * 64 * CONS && BN % 16 == 0 && BK % 64 == 0 && BM % SPLIT == 0, "tile");
static_assert(B_COL || BN % 64 == 0, "an MN-major B comes in panels of 64 columns");

extern "C" __global__ void __launch_bounds__(NT, CTAS) __cluster_dims__(CL, 1, 1)
wgmma_splitk(const __grid_constant__ TMap tA, const __grid_constant__ TMap tB, u16* __restrict__ C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, fulls = smem_addr(full), empties = smem_addr(empty);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127;
  const u32 rank = CL > 1 ? cluster_rank() : 0; // (slice of K, tile row, tile column) within the cluster
  const int slice = rank / SHARED, rm = rank % SHARED / CN, rn = rank % CN;
  const int tm = (M + BM * CM - 1) / (BM * CM), tile = blockIdx.x / CL, row = (tile % tm * CM + rm) * BM, col = (tile / tm * CN + rn) * BN;
  const int all = (K + BK - 1) / BK, from = (int)((long long)all * slice / SPLIT), to = (int)((long long)all * (slice + 1) / SPLIT);
  if (threadIdx.x == CONS * 128) {
    tma_prefetch(&tA), tma_prefetch(&tB);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, CONS * (CM + CN - 1));
    mb_init_fence();
  }
  if (SHARED > 1) cluster_meet();
  else __syncthreads();
  pdl_launch();
  pdl_wait();
  if (wg == CONS) {
    if (tid == 0) {
      const u16 row_mask = (u16)(((1 << CN) - 1) << (rank - rn));
      u16 col_mask = 0;
      for (int i = 0; i < CM; i++) col_mask |= (u16)(1 << (slice * SHARED + i * CN + rn));
      int q = 0;
      u32 phase = 1;
      for (int k = from; k < to; k++) {
        const u32 bar = fulls + q * 8, at = base + q * STAGE;
        mb_wait(empties + q * 8, phase);
        mb_expect(bar, STAGE);
        OpA::load(at, &tA, bar, row, k * BK, rn, row_mask);
        OpB::load(at + OpA::bytes, &tB, bar, col, k * BK, rm, col_mask);
        if (++q == STAGES) q = 0, phase ^= 1;
      }
    }
    __syncwarp();
  } else {
    float d[MI][BN / 2];
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
      for (int j = 0; j < BN / 2; j++) d[i][j] = 0.f; // a CTA without blocks still owes zeros
    const bool signals = SHARED > 1 ? tid < SHARED && (tid / CN == rm || tid % CN == rn) : tid == 0;
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
        for (int kk = 0; kk < BK / 16; kk++) MM::step(d[i], a + OpA::step(kk), b + OpB::step(kk), 1);
      }
      mma_commit();
      mma_wait<1>();
      if (signals && k > from) {
        if (SHARED > 1) mb_arrive_at(empties + before * 8, slice * SHARED + tid);
        else mb_arrive(empties + before * 8);
      }
      before = q;
      if (++q == STAGES) q = 0, phase ^= 1;
    }
    mma_wait<0>();
    named_sync(1, CONS * 128); // the parts overwrite the stages: every consumer is done with them
    const int r = (tid >> 5) * 16 + ((tid & 31) >> 2), c = (tid & 3) * 2;
    float* parts = reinterpret_cast<float*>(smem + (base - smem_addr(smem)));
#pragma unroll
    for (int i = 0; i < MI; i++) {
      float* at = parts + ((wg * MI + i) * 64 + r) * PITCH + c;
#pragma unroll
      for (int j = 0; j < BN / 8; j++) {
        *reinterpret_cast<float2*>(at + j * 8) = make_float2(d[i][j * 4], d[i][j * 4 + 1]);
        *reinterpret_cast<float2*>(at + 8 * PITCH + j * 8) = make_float2(d[i][j * 4 + 2], d[i][j * 4 + 3]);
      }
    }
  }
  if (SPLIT > 1) cluster_sync();
  else __syncthreads();
  constexpr int ROWS = BM / SPLIT, VECS = ROWS * (BN / 8);
  u32 part[SPLIT];
#pragma unroll
  for (int s = 0; s < SPLIT; s++) part[s] = SPLIT > 1 ? peer_addr(base, s * SHARED + rank % SHARED) : base;
#pragma unroll 2
  for (int v = threadIdx.x; v < VECS; v += NT) {
    const int r = slice * ROWS + v / (BN / 8), c = v % (BN / 8) * 8;
    float4 x[SPLIT], y[SPLIT];
#pragma unroll
    for (int s = 0; s < SPLIT; s++) x[s] = peer_load4(part[s] + (r * PITCH + c) * 4), y[s] = peer_load4(part[s] + (r * PITCH + c) * 4 + 16);
#pragma unroll
    for (int s = 1; s < SPLIT; s++) {
      x[0].x += x[s].x, x[0].y += x[s].y, x[0].z += x[s].z, x[0].w += x[s].w;
      y[0].x += y[s].x, y[0].y += y[s].y, y[0].z += y[s].z, y[0].w += y[s].w;
    }
    uint4 o = {pack(x[0].x, x[0].y), pack(x[0].z, x[0].w), pack(y[0].x, y[0].y), pack(y[0].z, y[0].w)};
    if (row + r < M && col + c < N) {
      u16* to = C + (u64)(row + r) * ldc + col + c;
      if (col + c + 8 <= N) *reinterpret_cast<uint4*>(to) = o;
      else
        for (int i = 0; i < N - col - c; i++) to[i] = (u16)((i & 1 ? (&o.x)[i / 2] >> 16 : (&o.x)[i / 2]));
    }
  }
  if (CL > 1) cluster_meet(); // peers may still be reading this CTA's parts, or signalling its barriers
}
