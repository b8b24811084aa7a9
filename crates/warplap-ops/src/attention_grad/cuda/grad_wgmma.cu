// dK, dV and the float32 sums of dQ of softmax(scale * Q*K' + mask) * V on Hopper's tensor cores: TMA, wgmma,
// warp-specialised, without the matrix of scores.
//
// Idea: a CTA owns BN = 64 * CONS keys of one head of K, a consuming warpgroup 64 of them; one thread of a producer
// warpgroup streams blocks of BM queries, of all heads that share the keys, with their dO, log-sum-exps and deltas
// through a ring. A consumer computes scores and dP turned, keys by queries: weights and gradients of scores then go
// from the accumulators straight into the products with dO and Q that add to dV and dK, which stay in registers. The
// gradients of scores meet in shared memory for dQ, which is computed turned too; the warpgroups share it out (64
// elements by BM queries each, or by BM / CONS queries where heads have no more than 64) and add their parts to float32
// sums in memory, four at a time, in the order they hold them. Weights are computed under the product that gives dP,
// and dQ leaves under the one that adds to dK. With LAG the dQ of a block is computed a block later, so that no
// warpgroup waits for another's gradients; with AHEAD the next block's scores are sent off before dK is complete.
// Wins: a few hundred tokens and more on Hopper. Limits: f16, bf16; bases and strides of Q, K, V, dO, dK, dV on 16
// bytes; D, DV multiples of 16 up to 128; the order of additions to dQ differs from run to run.
// Where the idea comes from: FlashAttention 3 (Shah et al.).
//
// Axes (-D): BM (multiple of 16, <= 128; with D <= 64 of 16 * CONS), CONS (1, 2; 3 where D <= 64), STAGES (>= 2), LAG
// (0, 1), AHEAD (0, 1; D <= 64: beyond it registers do not reach and the assembler serialises the products), RESIDENT
// (CTAs of one multiprocessor; 1 unless CONS is 1).
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16), D, DV, what attention.cuh names (MASK 1 or 2), and SQUARE and LIST
// (squares.cuh: the mask is of squares that a block lies in). SHARED: bytes of the launch. Grid: ceil(sk / BN) * heads
// / group * batch blocks of 128 * (CONS + 1).
// tQ, tG (dO), tK, tV: maps of four dimensions (element, row, head, batch), boxes of 64 elements by BM (Q, dO) or BN
// rows, 128-byte swizzle. powers, deltas: `padded` numbers a head, from delta.cu, a multiple of BM. sums: QP * 64
// numbers for each of them, zeros at the start, read by finish.cu.
#include "hopper.cuh"
#include "attention.cuh"
#include "attention_hopper.cuh"
#include "attention_grad.cuh"
#include "squares.cuh"

constexpr int NT = 128 * (CONS + 1), BN = 64 * CONS, QP = (D + 63) / 64, VP = (DV + 63) / 64; // panels of 64 elements
constexpr u32 K_BYTES = QP * BN * 128, V_BYTES = VP * BN * 128, Q_BYTES = QP * BM * 128, G_BYTES = VP * BM * 128;
// Gradients of scores: a panel of 64 keys a warpgroup, rows are queries.
constexpr u32 S_BYTES = CONS * BM * 128;
// dQ: parts of 64 elements by N queries, TILES of them a warpgroup's.
constexpr int N = QP == 1 ? BM / CONS : BM, TILES = QP <= CONS ? 1 : QP / CONS;
static_assert(QP == 1 || QP == CONS * TILES, "warpgroups share out the panels of dQ");
static_assert(D % 16 == 0 && DV % 16 == 0 && D <= 128 && DV <= 128 && BM % 16 == 0 && BM <= 128, "tile");
static_assert(N % 16 == 0 && STAGES >= 2 && (LAG == 0 || LAG == 1), "tile");
static_assert(K_BYTES + V_BYTES + STAGES * (Q_BYTES + G_BYTES + BM * 8) + 2 * S_BYTES + 1024 == SHARED,
              "the host counts shared memory as the kernel does");
constexpr int START = 65536 / (NT * RESIDENT) / 8 * 8, FEW = CONS == 3 ? 32 : 24;
constexpr int MANY = (START * (CONS + 1) - FEW) / CONS / 8 * 8 > 240 ? 240 : (START * (CONS + 1) - FEW) / CONS / 8 * 8;
constexpr bool TRADES = START < 240;

DI void bulk_load(u32 dst, const void* src, u32 bytes, u32 bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
               "l"(src), "r"(bytes), "r"(bar)
               : "memory");
}
DI void add4(float* to, float x, float y, float z, float w) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}
DI float2 shared_load2(u32 a) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(a) : "memory");
  return v;
}
// 64 keys times a block of BM queries over wide_ elements, both in panels as they lie.
template <int wide_> DI void multiply_keys(float (&s)[BM / 2], u32 keys, u32 queries) {
  const u32 a = desc_low(keys, 16), b = desc_low(queries, 16);
#pragma unroll
  for (int k = 0; k < wide_ / 16; k++)
    Mma<BM, 0, 0>::step(s, desc_from(a + (k / 4 * BN * 128 + k % 4 * 32 >> 4)),
                        desc_from(b + (k / 4 * BM * 128 + k % 4 * 32 >> 4)), k > 0);
  mma_commit();
}

extern "C" __global__ void __launch_bounds__(NT, RESIDENT)
    grad_wgmma(const __grid_constant__ TMap tQ, const __grid_constant__ TMap tG, const __grid_constant__ TMap tK,
               const __grid_constant__ TMap tV, const float* __restrict__ powers, const float* __restrict__ deltas,
               const void* __restrict__ mask, const float* __restrict__ slopes, float* __restrict__ sums,
               elem* __restrict__ dK, elem* __restrict__ dV, int batch, int heads, int group, int sq, int sk,
               int padded, int lower, int upper, int band, float scale, float cap, u64 kb, u64 kh, u64 kr, u64 vb,
               u64 vh, u64 vr, u64 mb, u64 mh, u64 mr, const u64* __restrict__ seed, u32 below) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 bars[4 * STAGES + 5];
  const u32 sK = (smem_addr(smem) + 1023) & ~1023u, sV = sK + K_BYTES, sQ = sV + V_BYTES, sG = sQ + STAGES * Q_BYTES,
            sS = sG + STAGES * G_BYTES, sL = sS + 2 * S_BYTES, sD = sL + STAGES * BM * 4;
  const u32 full_q = smem_addr(bars), full_g = full_q + STAGES * 8, empty_q = full_g + STAGES * 8,
            empty_g = empty_q + STAGES * 8, full_k = empty_g + STAGES * 8,
            ready = full_k + 8, freed = ready + 16;
  const int wg = __shfl_sync(~0u, threadIdx.x >> 7, 0), tid = threadIdx.x & 127;
  if (threadIdx.x == 0) {
    tma_prefetch(&tQ), tma_prefetch(&tG), tma_prefetch(&tK), tma_prefetch(&tV);
    for (int i = 0; i < 2 * STAGES; i++) mb_init(full_q + i * 8, 1), mb_init(empty_q + i * 8, CONS);
    mb_init(full_k, 1);
    for (int i = 0; i < 4; i++) mb_init(ready + i * 8, 4 * CONS); // every warp speaks
    mb_init_fence();
  }
  __syncthreads();
  pdl_launch();
  pdl_wait();

  const int few = heads / group;
  int n, head;
  keys_of(blockIdx.x, (sk + BN - 1) / BN, few * batch, band, n, head);
  const int b = head / few, hk = head - b * few;
  const Seen<BM> seen(n * BN, BN, sq, sk, lower, upper);
  const int count = seen.count();
#if SQUARE
  __shared__ place_t list[LIST];
  __shared__ int listed;
  if (threadIdx.x < 32) {
    const int seen_count = list_seen(list, count * group, [&](int c) {
      const int turn = c / count;
      const u64 before = b * mb + (hk * group + turn) * mh;
      return is_seen(mask, before, mr, (seen.begin + c - turn * count) * BM, n * BN);
    });
    if (threadIdx.x == 0) listed = seen_count;
  }
  __syncthreads();
  const int all = listed;
  // The block of queries and the head that are met in turn.
  auto met = [&](int i, int& m, int& h) {
    const int c = list[i], turn = c / count;
    m = seen.begin + c - turn * count, h = hk * group + turn;
  };
#else
  const int all = count * group;
#endif

  if (wg == 0) {
    if (TRADES) regs_less<FEW>();
    if (threadIdx.x == 0 && all > 0) {
      mb_expect(full_k, K_BYTES + V_BYTES);
      for (int c = 0; c < QP; c++) tma_load4(sK + c * BN * 128, &tK, full_k, c * 64, n * BN, hk, b);
      int q = 0, m = seen.begin, h = hk * group;
      u32 phase = 1;
      for (int i = 0; i < all; i++) {
#if SQUARE
        met(i, m, h);
#endif
        const u64 at = ((u64)b * heads + h) * padded + m * BM;
        mb_wait(empty_q + q * 8, phase);
        mb_expect(full_q + q * 8, Q_BYTES + BM * 4);
        for (int c = 0; c < QP; c++)
          tma_load4(sQ + q * Q_BYTES + c * BM * 128, &tQ, full_q + q * 8, c * 64, m * BM, h, b);
        bulk_load(sL + q * BM * 4, powers + at, BM * 4, full_q + q * 8);
        if (i == 0)
          for (int c = 0; c < VP; c++) tma_load4(sV + c * BN * 128, &tV, full_k, c * 64, n * BN, hk, b);
        mb_wait(empty_g + q * 8, phase);
        mb_expect(full_g + q * 8, G_BYTES + BM * 4);
        for (int c = 0; c < VP; c++)
          tma_load4(sG + q * G_BYTES + c * BM * 128, &tG, full_g + q * 8, c * 64, m * BM, h, b);
        bulk_load(sD + q * BM * 4, deltas + at, BM * 4, full_g + q * 8);
        if (!SQUARE && ++m == seen.end) m = seen.begin, h++;
        if (++q == STAGES) q = 0, phase ^= 1;
      }
    }
  } else {
    if (TRADES) regs_more<MANY>();
    const int w = wg - 1, warp = tid >> 5, lane = tid & 31;
    const bool speaks = tid == 0;
    const int top = n * BN + w * 64, c0 = top + warp * 16 + (lane >> 2);
    const u32 keys = sK + w * 64 * 128, values = sV + w * 64 * 128, pair = (lane & 3) * 8;
    // Where this lane puts a row of eight keys' gradients of one query.
    const u32 line = ((lane >> 4) * 8 + (lane & 7)) * 128 + ((warp * 2 + (lane >> 3 & 1) ^ (lane & 7)) << 4);
    float dk[D / 2], dv[DV / 2], s[BM / 2], dp[BM / 2], steep[SOFTCAP ? BM / 2 : 1];
#pragma unroll
    for (int i = 0; i < D / 2; i++) dk[i] = 0.f;
#pragma unroll
    for (int i = 0; i < DV / 2; i++) dv[i] = 0.f;
    int q = 0, m = seen.begin, h = hk * group;
    u32 phase = 0;
    ScoreMod v = score_mod_of(sq, sk, lower, upper, scale, cap, slopes, mask, mb, mh, mr, b, h);
    Drops drops = DROPOUT ? drops_of(seed, (u64)b * heads + h, below) : Drops{};
    const float grown = DROPOUT ? grown_of(below) : 1.f;
    if (all > 0) mb_wait(full_k, 0);
    // This warpgroup's part of dQ of the block whose gradients of scores lie in `buffer`.
    float dq[TILES][N / 2];
    auto multiply_dq = [&](int buffer) __attribute__((always_inline)) {
#pragma unroll
      for (int t = 0; t < TILES; t++) {
        const u32 first = desc_low(sK + (QP == 1 ? 0 : w * TILES + t) * BN * 128, 16);
        const u32 second = desc_low(sS + buffer * S_BYTES + (QP == 1 ? w * N * 128 : 0), 16);
#pragma unroll
        for (int k = 0; k < BN / 16; k++)
          Mma<N, 1, 0>::step(dq[t], desc_from(first + (k * 2048 >> 4)),
                             desc_from(second + (k / 4 * BM * 128 + k % 4 * 32 >> 4)), k > 0);
      }
      mma_commit();
    };
    auto done_dq = [&] {
#pragma unroll
      for (int t = 0; t < TILES; t++) mma_done(dq[t]);
    };
    // Where it is added to: a thread's four numbers lie side by side, 128 threads behind each other.
    auto place_dq = [&] {
      return sums + (((u64)b * heads + h) * padded + m * BM) * (QP * 64) + w * TILES * 64 * N + tid * 4;
    };
    auto add_dq = [&](float* to) __attribute__((always_inline)) {
#pragma unroll
      for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int x = 0; x < N / 2; x += 4)
          add4(to + t * 64 * N + x * 128, dq[t][x], dq[t][x + 1], dq[t][x + 2], dq[t][x + 3]);
    };
    float* to = place_dq();
    for (int i = 0; i < all; i++) {
      const int buffer = i & 1;
#if SQUARE
      const int before = h;
      met(i, m, h);
      if (ALIBI && h != before) v = score_mod_of(sq, sk, lower, upper, scale, cap, slopes, mask, mb, mh, mr, b, h);
      if (DROPOUT && h != before) drops = drops_of(seed, (u64)b * heads + h, below);
      if (!LAG) to = place_dq();
#endif
      mb_wait(full_q + q * 8, phase);
      mma_fence();
      multiply_keys<D>(s, keys, sQ + q * Q_BYTES);
      if (AHEAD) {
        mma_wait<1>(); // what the last block added to dK
        mb_arrive_if(empty_q + (q == 0 ? STAGES - 1 : q - 1) * 8, speaks && i > 0);
      }
      mb_wait(full_g + q * 8, phase);
      mma_fence();
      multiply_keys<DV>(dp, values, sG + q * G_BYTES);
      mma_wait<1>();
      mma_done(s);
      float2 held = {0.f, 0.f};
      weigh<true>(s, steep, v, c0, m * BM + (lane & 3) * 2, has_edge(v, m * BM, BM, top, 64),
                  [&](int x) __attribute__((always_inline)) {
                    if (x % 4 == 0) held = shared_load2(sL + q * BM * 4 + x * 8 + pair);
                    return x & 1 ? held.y : held.x;
                  });
      if (DROPOUT) mark_dropped<true>(s, drops, c0, m * BM + (lane & 3) * 2);
      mma_wait<0>();
      mma_done(dp);
      u32 p[BM / 4], ds[BM / 4];
#pragma unroll
      for (int x = 0; x < BM / 2; x += 4) {
        held = shared_load2(sD + q * BM * 4 + x * 8 + pair);
#pragma unroll
        for (int y = 0; y < 4; y++) {
          dp[x + y] = slope_of(s[x + y], dp[x + y], y & 1 ? held.y : held.x, grown);
          if (SOFTCAP) dp[x + y] *= steep[SOFTCAP ? x + y : 0];
        }
        ds[x / 2] = pack_pair(dp[x], dp[x + 1]), ds[x / 2 + 1] = pack_pair(dp[x + 2], dp[x + 3]);
      }
#pragma unroll
      for (int x = 0; x < BM / 4; x++) p[x] = pack_pair(left(s[x * 2]), left(s[x * 2 + 1]));
      mma_fence();
      multiply_held<DV, BM>(dv, p, sG + q * G_BYTES);
      if (LAG && i > 1) mb_wait(freed + buffer * 8, (i >> 1 & 1) ^ 1);
#pragma unroll
      for (int x = 0; x < BM / 16; x++)
        stmatrix4_trans(sS + buffer * S_BYTES + w * BM * 128 + x * 2048 + line, ds[x * 4], ds[x * 4 + 1], ds[x * 4 + 2],
                        ds[x * 4 + 3]);
      async_fence();
      if (LAG) {
        __syncwarp();
        mb_arrive_if(ready + buffer * 8, lane == 0);
        if (i > 0) mb_wait(ready + (buffer ^ 1) * 8, i - 1 >> 1 & 1);
      } else named_sync(1, 128 * CONS); // whoever comes here has read the buffer that is written next
      mma_fence();
      // Before the first block of garbage, for nobody: a branch would part the products.
      multiply_dq(LAG ? buffer ^ 1 : buffer);
      multiply_held<D, BM>(dk, ds, sQ + q * Q_BYTES);
      mma_wait<1>();
      done_dq();
      mb_arrive_if(empty_g + q * 8, speaks);
      if (LAG) mb_arrive_if(freed + (buffer ^ 1) * 8, lane == 0 && i > 0);
      if (!LAG || i > 0) add_dq(to);
      if (LAG) to = place_dq();
      if (!AHEAD) {
        mma_wait<0>();
        mb_arrive_if(empty_q + q * 8, speaks);
      }
      if (++q == STAGES) q = 0, phase ^= 1;
      if (!SQUARE && ++m == seen.end) {
        m = seen.begin, h++;
        if ((MASK || ALIBI) && i + 1 < all)
          v = score_mod_of(sq, sk, lower, upper, scale, cap, slopes, mask, mb, mh, mr, b, h);
        if (DROPOUT) drops = drops_of(seed, (u64)b * heads + h, below);
      }
      if (!LAG && !SQUARE) to = place_dq();
    }
    if (LAG && all > 0) {
      mb_wait(ready + (all - 1 & 1) * 8, all - 1 >> 1 & 1);
      mma_fence();
      multiply_dq(all - 1 & 1);
      mma_wait<0>();
      done_dq();
      add_dq(to);
    }
    mma_wait<0>();
    mma_done(dk), mma_done(dv);
#pragma unroll
    for (int g = 0; g < 2; g++) {
      const int c = c0 + g * 8;
      store_row<D, 16>(dK + b * kb + hk * kh + c * kr, dk, g, scale, c < sk);
      store_row<DV, 16>(dV + b * vb + hk * vh + c * vr, dv, g, grown, c < sk);
    }
  }
}
