// C = alpha*A*B + beta*C with a block-sparse A and a B of few columns, on Hopper's tensor cores.
//
// Idea: with few columns a product is over before a ring of stages has filled, so nothing is kept for later: a CTA has 64
// rows of one block row and BN columns, the lanes of its first warp ask for all of its blocks and slabs at once, and the
// warpgroup multiplies what has arrived. There are few rows of 64, so SPLIT CTAs of a cluster take a share of a row's
// blocks each and add their sums up through each other's shared memory, every one for a share of the columns. Where a row
// has more blocks than there are stages, a stage is filled again as soon as it was read.
// Wins: decoding with 16 to 128 columns. Limits: blocks of 64 or 128, f16/bf16, rows of B of whole 16 bytes.
//
// Axes (-D): BN (columns of a CTA: 16, 32, 64, 128), SPLIT (1, 2, 4, 8), STAGES. Facts of the problem (-D): DTYPE (0 f16, 1
// bf16), BS, B_COL, C_COL (1: column-major), TILES (of BN columns), SCALED, ADDS, BIAS.
#include "hopper.cuh"
#include "scaled.cuh"

using OpA = Operand<64, 64, 0, 1>;
using OpB = Operand<BN, 64, !B_COL, 1>;
using MM = Mma<BN, 0, !B_COL>;
constexpr int SPAN = BS / 64, FRAGMENTS = BN / 8;
constexpr u32 STAGE = OpA::bytes + (OpB::bytes + 1023) / 1024 * 1024;
static_assert(STAGES <= 32 && (FRAGMENTS % SPLIT == 0 || SPLIT == 1), "a lane a stage, whole fragments a share");

extern "C" __global__ void __launch_bounds__(128) __cluster_dims__(SPLIT, 1, 1)
wgmma_thin(const __grid_constant__ TMap tA, const __grid_constant__ TMap tB, elem* C, const int* __restrict__ row_ptr,
           const int* __restrict__ col_idx, int M, int N SCALE_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES];
  __shared__ float read[SPLIT > 1 ? 128 : 1];
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, sums = base + STAGES * STAGE, fulls = smem_addr(full);
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const int rank = SPLIT > 1 ? (int)cluster_rank() : 0, place = blockIdx.x / SPLIT;
  const int line = place / TILES, row = line / SPAN, col = place % TILES * BN;
  if (tid < STAGES) {
    mb_init(fulls + tid * 8, 1);
    mb_init_fence();
  }
  if (tid == 32) tma_prefetch(&tA), tma_prefetch(&tB);
  pdl_launch();
  pdl_wait();
  const int before = __ldg(row_ptr + row) * SPAN, all = __ldg(row_ptr + row + 1) * SPAN - before;
  const int first = before + (int)((long long)all * rank / SPLIT), count = before + (int)((long long)all * (rank + 1) / SPLIT) - first;
  // A unit is 64 columns of a block.
  auto ask = [&](int unit, int stage) {
    const int block = unit / SPAN, h = unit % SPAN;
    const u32 bar = fulls + stage * 8, to = base + stage * STAGE;
    mb_expect(bar, OpA::bytes + OpB::bytes);
    OpA::load(to, &tA, bar, block * BS + line % SPAN * 64, h * 64, 0, 0);
    OpB::load(to + OpA::bytes, &tB, bar, col, (__ldg(col_idx + block) * SPAN + h) * 64, 0, 0);
  };
  __syncwarp();
  if (tid < STAGES && tid < count) ask(first + tid, tid);
  __syncthreads();

  float d[BN / 2];
  if (count == 0) {
#pragma unroll
    for (int i = 0; i < BN / 2; i++) d[i] = 0.f;
  }
  int q = 0, last = 0;
  u32 phase = 0;
  for (int unit = 0; unit < count; unit++) {
    mb_wait(fulls + q * 8, phase);
    const u64 a = OpA::desc(base + q * STAGE, 0), b = OpB::desc(base + q * STAGE + OpA::bytes, 0);
    mma_fence();
#pragma unroll
    for (int kk = 0; kk < 4; kk++) MM::step(d, a + OpA::step(kk), b + OpB::step(kk), unit > 0 || kk > 0);
    mma_commit();
    const int again = unit - 1 + STAGES; // who takes the place of the unit before this one
    if (unit > 0 && again < count) {
      mma_wait<1>();
      __syncthreads();
      if (tid == 0) ask(first + again, last);
    }
    last = q;
    if (++q == STAGES) q = 0, phase ^= 1;
  }
  mma_wait<0>();
  mma_done(d);

  if (SPLIT > 1) {
    const u32 mine = sums + tid * 16;
#pragma unroll
    for (int j = 0; j < FRAGMENTS; j++)
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
          ::"r"(mine + j * 2048), "f"(d[j * 4]), "f"(d[j * 4 + 1]), "f"(d[j * 4 + 2]), "f"(d[j * 4 + 3]) : "memory");
    cluster_sync();
    float seen = 0.f;
#pragma unroll
    for (int s = 0; s < FRAGMENTS / SPLIT; s++) {
      const int j = rank * (FRAGMENTS / SPLIT) + s;
      float4 sum = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
      for (int peer = 0; peer < SPLIT; peer++) {
        const float4 v = peer_load4(peer_addr(mine + j * 2048, peer));
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
      }
      d[s * 4] = sum.x, d[s * 4 + 1] = sum.y, d[s * 4 + 2] = sum.z, d[s * 4 + 3] = sum.w;
      seen += sum.x; // four numbers come back together
    }
    cluster_arrive_read(smem_addr(read + tid), seen);
  }
  const long long top = (long long)line * 64 + warp * 16 + (lane >> 2);
#pragma unroll
  for (int s = 0; s < FRAGMENTS / SPLIT; s++) {
    const int j = rank * (FRAGMENTS / SPLIT) + s;
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const long long at_row = top + e / 2 * 8, c = col + j * 8 + (lane & 3) * 2 + e % 2;
      const u64 at = C_COL ? (u64)c * M + at_row : (u64)at_row * N + c;
      if (c < N) C[at] = narrow(scaled_one(d[s * 4 + e], add, BIAS ? at_row : at, alpha, beta));
    }
  }
  if (SPLIT > 1) cluster_wait(); // no CTA may leave while a peer still reads from it
}
