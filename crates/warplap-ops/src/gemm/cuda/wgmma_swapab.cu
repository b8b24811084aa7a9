// C = A·B for few rows of A (decode): the weights B take the 64-row side of the tensor-core product, the rows of A its narrow side.
//
// Idea: wgmma's first operand has 64 rows at least; with M <= 64 rows of A most of them would be padding. So the transposed product is
// computed: BW columns of B against BT rows of A, BT = 8, 16, 32, ... The weights are read once and the SMs stay busy by cutting
// K between the SPLIT CTAs of a cluster, SHARE of them side by side take the rows of A by multicast; float32 parts are added in rank order through distributed shared memory (the same bits every run).
// Wins: M from 2 to 64, where reading B is all the work.
// Limits: f16/bf16, 16-byte aligned bases and leading dimensions; A row-major; C row-major; SPLIT*SHARE <= 8.
// Where the idea comes from: the "swap AB" option of CUTLASS, DeepGEMM and quack.
//
// Axes (-D): BW (64*CONS*{1,2}), BT (8, or a multiple of 16, <= 256), BK (64, 128), STAGES, CONS (1, 2), SPLIT (1, 2, 4, 8),
// SHARE (1, 2, 4; BT or BK/64 must be divisible), CTAS (per SM: 1, 2).
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16), B_COL (1: column-major).
#include "hopper.cuh"

constexpr int NT = 128 * CONS + 32, MI = BW / (64 * CONS), CL = SPLIT * SHARE;
constexpr int PITCH = BW + 4; // floats one row of A takes among the parts: lanes of a fragment fall into different banks
using OpW = Operand<BW, BK, !B_COL, 1>;
using OpT = Operand<BT, BK, 0, SHARE>;
using MM = Mma<BT, !B_COL, 0>;
constexpr u32 STAGE = OpW::bytes + OpT::bytes;
static_assert(BW == MI * 64 * CONS && BK % 64 == 0, "tile");

extern "C" __global__ void __launch_bounds__(NT, CTAS) __cluster_dims__(CL, 1, 1)
wgmma_swapab(const __grid_constant__ TMap tA, const __grid_constant__ TMap tB, u16* __restrict__ C, int M, int N, int K, int ldc) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, fulls = smem_addr(full), empties = smem_addr(empty);
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127;
  const u32 rank = CL > 1 ? cluster_rank() : 0;
  const int slice = rank / SHARE, beside = rank % SHARE;
  const int tt = (M + BT - 1) / BT, tile = blockIdx.x / CL, row = tile % tt * BT, col = (tile / tt * SHARE + beside) * BW;
  const int all = (K + BK - 1) / BK, from = (int)((long long)all * slice / SPLIT), to = (int)((long long)all * (slice + 1) / SPLIT);
  if (threadIdx.x == CONS * 128) {
    tma_prefetch(&tA), tma_prefetch(&tB);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, CONS * SHARE);
    mb_init_fence();
  }
  if (SHARE > 1) cluster_meet();
  else __syncthreads();
  pdl_launch();
  pdl_wait();
  if (wg == CONS) {
    if (tid == 0) {
      int q = 0;
      u32 phase = 1;
      for (int k = from; k < to; k++) {
        const u32 bar = fulls + q * 8, at = base + q * STAGE;
        mb_wait(empties + q * 8, phase);
        mb_expect(bar, STAGE);
        OpW::load(at, &tB, bar, col, k * BK, 0, 0);
        OpT::load(at + OpW::bytes, &tA, bar, row, k * BK, beside, (u16)(((1 << SHARE) - 1) << (slice * SHARE)));
        if (++q == STAGES) q = 0, phase ^= 1;
      }
    }
    __syncwarp();
  } else {
    float d[MI][BT / 2];
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
      for (int j = 0; j < BT / 2; j++) d[i][j] = 0.f; // a CTA without blocks still owes zeros
    int q = 0, before = 0;
    u32 phase = 0;
    for (int k = from; k < to; k++) {
      const u32 at = base + q * STAGE;
      mb_wait(fulls + q * 8, phase);
      mma_fence();
#pragma unroll
      for (int i = 0; i < MI; i++) {
        const u64 a = OpW::desc(at, (wg * MI + i) * 64), b = OpT::desc(at + OpW::bytes, 0);
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++) MM::step(d[i], a + OpW::step(kk), b + OpT::step(kk), 1);
      }
      mma_commit();
      mma_wait<1>();
      if (tid < SHARE && k > from) {
        if (SHARE > 1) mb_arrive_at(empties + before * 8, slice * SHARE + tid);
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
      float* at = parts + c * PITCH + (wg * MI + i) * 64 + r;
#pragma unroll
      for (int j = 0; j < BT / 8; j++) {
        at[j * 8 * PITCH] = d[i][j * 4], at[(j * 8 + 1) * PITCH] = d[i][j * 4 + 1];
        at[j * 8 * PITCH + 8] = d[i][j * 4 + 2], at[(j * 8 + 1) * PITCH + 8] = d[i][j * 4 + 3];
      }
    }
  }
  if (SPLIT > 1) cluster_sync();
  else __syncthreads();
  u32 part[SPLIT];
#pragma unroll
  for (int s = 0; s < SPLIT; s++) part[s] = SPLIT > 1 ? peer_addr(base, s * SHARE + beside) : base;
  for (int v = slice * NT + threadIdx.x; v < BT * (BW / 8); v += NT * SPLIT) {
    const int r = v / (BW / 8), c = v % (BW / 8) * 8;
    if (row + r >= M || col + c >= N) continue;
    float4 x[SPLIT], y[SPLIT];
#pragma unroll
    for (int s = 0; s < SPLIT; s++) x[s] = peer_load4(part[s] + (r * PITCH + c) * 4), y[s] = peer_load4(part[s] + (r * PITCH + c) * 4 + 16);
#pragma unroll
    for (int s = 1; s < SPLIT; s++) {
      x[0].x += x[s].x, x[0].y += x[s].y, x[0].z += x[s].z, x[0].w += x[s].w;
      y[0].x += y[s].x, y[0].y += y[s].y, y[0].z += y[s].z, y[0].w += y[s].w;
    }
    uint4 o = {pack(x[0].x, x[0].y), pack(x[0].z, x[0].w), pack(y[0].x, y[0].y), pack(y[0].z, y[0].w)};
    u16* to = C + (u64)(row + r) * ldc + col + c;
    if (col + c + 8 <= N) *reinterpret_cast<uint4*>(to) = o;
    else
      for (int i = 0; i < N - col - c; i++) to[i] = (u16)((i & 1 ? (&o.x)[i / 2] >> 16 : (&o.x)[i / 2]));
  }
  if (CL > 1) cluster_meet(); // peers may still be reading this CTA's parts, or signalling its barriers
}
