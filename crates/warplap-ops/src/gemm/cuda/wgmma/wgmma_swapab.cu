// C = A·B for few rows of A (decode): the weights B take the 64-row side of the tensor-core product, the rows of A its
// narrow side.
//
// Idea: wgmma's first operand has 64 rows at least; with M <= 64 rows of A most of them would be padding. So the
// transposed product is computed: BW columns of B against BT rows of A, BT = 8, 16, 32, ... The weights are read once
// and the SMs stay busy by cutting K between the SPLIT CTAs of a cluster. All but the first send their float32
// accumulators from registers into the first one's shared memory (st.async onto its mbarrier) and leave; it adds them
// in the order of K (the same bits every run), turns the tile by stmatrix and stores it. SHARE tiles side by side may
// take the rows of A by multicast. A pair puts 64 columns of either B under each other (pair.cuh): a warpgroup multiplies
// both, and BW/2 columns of C come of them. The first loads are issued before the CTA has met. Wins: M from 1 to 64 (and at 128
// beside wgmma_splitk), where reading B is all the work. Limits: f16/bf16, 16-byte aligned bases and leading
// dimensions; A row-major; C row-major; K >= 1; SPLIT*SHARE <= 8. Where the idea comes from: the "swap AB" option of
// CUTLASS, DeepGEMM and quack.
//
// Axes (-D): BW (64*CONS*{1,2}), BT (8, or a multiple of 16, <= 256), BK (64, 128), STAGES, CONS (1, 2), SPLIT (1, 2,
// 4, 8), SHARE (1, 2, 4; BT/8 or BK/64 divisible by it), CTAS (per SM: 1..4). Facts of the problem (-D): DTYPE (0 f16,
// 1 bf16), B_COL (1: column-major), BATCH (1: the grid holds several products, maps of three dimensions), SCALE,
// BIAS, ACT, JOIN and PAIR (epilogue.cuh; a pair has BW = 128, CONS = 1), SQUARES (rms.cuh; the first FRONT clusters find the
// factors). SHARED: bytes of the launch.
#include "hopper.cuh"
#include "epilogue.cuh"
#include "pair.cuh"
#include "rms.cuh"

constexpr int NT = 128 * CONS + 32, MI = BW / (64 * CONS), CL = SPLIT * SHARE;
constexpr int OUT = PAIR ? BW / 2 : BW, MO = PAIR ? 1 : MI; // columns of C, and of a warpgroup in 64s
constexpr u32 PITCH = OUT * 2 + 16, PART = BW * BT * 4; // bytes: a row of the turned tile, one CTA's accumulators
using OpW = Weights<BW, BK, !B_COL, 1>;
using OpT = Operand<BT, BK, 0, SHARE>;
using MM = Mma<BT, !B_COL, 0>;
constexpr u32 STAGE = OpW::bytes + OpT::bytes;
// the stages, and later the turned tile
constexpr u32 RING = STAGES * STAGE > BT * PITCH ? STAGES * STAGE : (BT * PITCH + 1023) / 1024 * 1024;
// What blocks in front read, and where they leave factors; behind all other parameters.
#if SQUARES
#define FRONT_PARAMETERS , const elem* lines_of_a, u64 lda, u64* room
#else
#define FRONT 0
#define FRONT_PARAMETERS
#endif
static_assert(BW == MI * 64 * CONS && BK % 64 == 0 && (!PAIR || (MI == 2 && CONS == 1)), "tile");
static_assert(RING + (SPLIT - 1) * PART + (SQUARES ? BT * 4 : 0) + 1024 == SHARED, "the host counts shared memory as the kernel does");

// Eight elements of C, rounded already, with as many of another matrix, `count` of which are there.
DI uint4 join_eight(uint4 x, const elem* other, int count) {
  const u32* two = &x.x;
  uint4 o = {0, 0, 0, 0};
  if (count >= 8) o = *reinterpret_cast<const uint4*>(other);
  else
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (i < count) (&o.x)[i / 2] |= (u32)other[i] << (i & 1) * 16;
  uint4 done;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const u32 y = (&o.x)[i];
    (&done.x)[i] = pack(with_other(widen((elem)two[i]), widen((elem)y)), with_other(widen((elem)(two[i] >> 16)), widen((elem)(y >> 16))));
  }
  return done;
}

extern "C" __global__ void __launch_bounds__(NT, CTAS) __cluster_dims__(CL, 1, 1)
wgmma_swapab(const __grid_constant__ TMap tA, const __grid_constant__ TMap tB, u16* __restrict__ C, int M, int N, int K,
    int L, int ldc EPILOGUE_PARAMETERS PAIR_MAP FRONT_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 full[STAGES], empty[STAGES], received;
#if SQUARES
  if (blockIdx.x < FRONT * CL) {
    pdl_launch();
    pdl_wait();
    leave_factors(lines_of_a, lda, M * L, K, under_root, room, FRONT * CL);
    return;
  }
#endif
  const u32 base = (smem_addr(smem) + 1023) & ~1023u, inbox = base + RING;
  const u32 fulls = smem_addr(full), empties = smem_addr(empty), inbox_bar = smem_addr(&received);
#if SQUARES
  float* const factors = reinterpret_cast<float*>(smem + (inbox + (SPLIT - 1) * PART - smem_addr(smem)));
#endif
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127;
  const u32 rank = CL > 1 ? cluster_rank() : 0;
  const int slice = rank / SHARE, beside = rank % SHARE, cluster = blockIdx.x / CL - FRONT;
  const int tt = (M + BT - 1) / BT, per = tt * ((N + OUT * SHARE - 1) / (OUT * SHARE));
  const int z = BATCH ? cluster / per : 0, tile = cluster - z * per, row = tile % tt * BT,
      col = (tile / tt * SHARE + beside) * OUT;
  const int all = (K + BK - 1) / BK;
  int from = (int)((long long)all * slice / SPLIT), to = (int)((long long)all * (slice + 1) / SPLIT);
  if (SPLIT > 1 && from == to) from = all, to = all + 1; // a CTA without blocks takes the one past the end, which reads as zeros
  const Supply<OpW, OpT> feed = {&tB, &tA, base, fulls, 0, beside, 0, (u16)(((1 << SHARE) - 1) << (slice * SHARE)) PAIR_FEED};
  const int early = min(to, from + STAGES);
  if (threadIdx.x == CONS * 128) {
    tma_prefetch(&tB), tma_prefetch(&tA);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1), mb_init(empties + i * 8, CONS * SHARE);
    mb_init(inbox_bar, 1);
    mb_init_fence();
    if (SPLIT > 1 && slice == 0) mb_expect(inbox_bar, (u32)(SPLIT - 1) * PART);
    if (SHARE == 1) {
      pdl_wait();
      for (int k = from; k < early; k++) feed.load(col, row, k * BK, z, k - from);
    }
  }
  if (CL > 1) cluster_arrive_early(); // says: barriers are ready; met again before the first byte goes to a peer
  if (SHARE > 1) cluster_wait();
  else __syncthreads();
  pdl_launch();
  if (wg == CONS) {
    if (tid == 0) {
      if (SHARE > 1) {
        pdl_wait();
        for (int k = from; k < early; k++) feed.load(col, row, k * BK, z, k - from);
      }
      feed.run<BK, STAGES>(col, row, z, early, to, empties);
      if constexpr (SHARE > 1) ring_ends<STAGES>(empties, (to - from) % STAGES, 1 ^ ((to - from) / STAGES & 1));
    }
    if (CL > 1 && SHARE == 1) cluster_wait();
#if SQUARES
    if (slice == 0) {
      pdl_wait(); // for the lanes that loaded nothing
      take_factors(factors, room, z * M + row, min(BT, M - row));
      named_arrive(1, CONS * 128 + 32);
      leave_room(room, M * L, (gridDim.x / CL - FRONT) * SHARE);
    }
#endif
  } else {
    auto release = [&](int stage) {
      if (tid >= SHARE) return;
      if (SHARE > 1) mb_arrive_at(empties + stage * 8, slice * SHARE + tid);
      else mb_arrive(empties + stage * 8);
    };
    float d[MI][BT / 2];
    int q = 0;
    u32 phase = 0;
    multiply<OpW, OpT, MM, BK, STAGES, 1>(d, base, fulls, wg * MI, from, to, q, phase, release, [](int) {});
    if (CL > 1 && SHARE == 1) cluster_wait();
    const u32 mine = (wg * 128 + tid) * 16; // parts lie as the sender's threads held them
    if (SPLIT > 1 && slice > 0) {
      const u32 to_bar = peer_addr(inbox_bar, beside), to_box = peer_addr(inbox + (u32)(slice + SPLIT - 1) % SPLIT * PART + mine, beside);
#pragma unroll
      for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < BT / 2; j += 4)
          peer_send4(to_box + (i * (BT / 8) + j / 4) * (CONS * 2048), to_bar, d[i][j], d[i][j + 1], d[i][j + 2],
              d[i][j + 3]);
    } else {
      if (SPLIT > 1) {
        mb_wait(inbox_bar, 0);
#pragma unroll
        for (int s = 0; s + 1 < SPLIT; s++)
#pragma unroll
          for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < BT / 2; j += 4) {
              const float4 v = shared_load4(inbox + s * PART + mine + (i * (BT / 8) + j / 4) * (CONS * 2048));
              d[i][j] += v.x, d[i][j + 1] += v.y, d[i][j + 2] += v.z, d[i][j + 3] += v.w;
            }
      }
      pdl_wait(); // the bias, too, may be the work of the kernel before
      named_sync(1, CONS * 128 + (SQUARES ? 32 : 0)); // the turned tile overwrites the stages: every consumer is done with them
      const int lane = tid & 31;
#pragma unroll
      for (int i = 0; i < MO; i++) {
        // A fragment's rows are columns of C here: one bias for each of the two rows a lane holds.
        const int r = (wg * MI + i) * 64 + (tid >> 5) * 16 + (lane >> 2);
        const float upper = bias_of(bias, col + r, N), lower = bias_of(bias, col + r + 8, N);
#pragma unroll
        for (int j = 0; j < BT / 8; j++) {
          if (SCALE || SQUARES) {
            const int r = j * 8 + (lane & 3) * 2; // two rows of C, which are columns here
#if SQUARES
            const float left = factors[r], right = factors[r + 1];
#else
            const float left = row + r < M ? factor_of(scale, (u64)z * M + row + r) : 0.f,
                right = row + r + 1 < M ? factor_of(scale, (u64)z * M + row + r + 1) : 0.f;
#endif
#pragma unroll
            for (int h = i; h < MI; h += MO)
              d[h][j * 4] *= left, d[h][j * 4 + 1] *= right, d[h][j * 4 + 2] *= left, d[h][j * 4 + 3] *= right;
          }
          const int w = (wg * MI + i) * 64 + (tid >> 5) * 16 + (lane & 8);
          if (PAIR) {
#pragma unroll
            for (int e = j * 4; e < j * 4 + 4; e += 2) {
              activate_two(d[i][e], d[i][e + 1]);
              d[i][e] *= d[MI - 1][e], d[i][e + 1] *= d[MI - 1][e + 1];
            }
          } else if (BIAS || ACT) {
            d[i][j * 4] = activate(d[i][j * 4] + upper), d[i][j * 4 + 1] = activate(d[i][j * 4 + 1] + upper);
            d[i][j * 4 + 2] = activate(d[i][j * 4 + 2] + lower), d[i][j * 4 + 3] = activate(d[i][j * 4 + 3] + lower);
          }
          stmatrix2_trans(base + (j * 8 + (lane & 7)) * PITCH + w * 2, pack(d[i][j * 4], d[i][j * 4 + 1]),
              pack(d[i][j * 4 + 2], d[i][j * 4 + 3]));
        }
      }
      named_sync(1, CONS * 128);
      for (int v = wg * 128 + tid; v < BT * (OUT / 8); v += CONS * 128) {
        const int r = v / (OUT / 8), c = v % (OUT / 8) * 8;
        if (row + r >= M || col + c >= N) continue;
        uint4 o = shared_load8(base + r * PITCH + c * 2);
        if (JOIN) o = join_eight(o, joined + ((u64)z * M + row + r) * ldj + col + c, N - col - c);
        u16* to = C + ((u64)z * M + row + r) * ldc + col + c;
        if (col + c + 8 <= N) *reinterpret_cast<uint4*>(to) = o;
        else
#pragma unroll
          for (int i = 0; i < 8; i++) // known places: by an index that is not, all of it would lie in memory
            if (i < N - col - c) to[i] = (u16)((&o.x)[i / 2] >> (i & 1) * 16);
      }
    }
  }
}
