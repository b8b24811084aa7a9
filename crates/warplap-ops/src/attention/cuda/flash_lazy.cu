// O = softmax(scale * Q*K' + what a query sees) * V on Hopper's tensor cores, with no maximum in the inner loop.
//
// Idea: weights are exponentials against a row's largest score, but any number near it does as well: sums and products
// are divided by the same sum in the end. So a block's weights are taken against what was the largest before it, at
// once, and their sum, which is needed anyway, tells whether that was near enough: as long as no thread's part of it
// is above LIMIT, nothing has overflowed and nothing else is to be done. Where it is, and rarely is it, a warp mends
// its rows: weights that are finite, and the sums so far, are scaled down by a power of two, which is exact; else (a
// row that has seen nothing yet, scores that grew by more than floats hold) the warp multiplies its scores once more,
// from keys that lie there still, against their true maximum. What is left of softmax is a multiplication, an
// exponential, an addition and half a conversion a score.
// CONS consuming warpgroups own 64 queries each; one thread of a producer warpgroup streams blocks of BN keys and
// values.
// AHEAD 0: the scores of block j are under way with the sums of block j - 1, the weights of j are made under the
// latter. AHEAD 1: the scores of the block after are under way too, in accumulators of their own, so weights wait for
// nothing. With PINGPONG the warpgroups take turns at sending off. Blocks behind the last key that any row of a
// warpgroup sees are left out. A persistent CTA (SCHED 1, 2) asks for the next tile's queries and keys while it works
// on this one.
// Wins: a thousand tokens and more on Hopper. Limits: f16, bf16; nothing added to scores, no caps, no dropout, scales
// above 0; bases and strides of Q, K, V, O on 16 bytes; D, DV multiples of 16 up to 256.
// Where the idea comes from: FlashAttention 3 for the roles, FlashAttention 4 for scaling when it is needed.
//
// Axes (-D): AHEAD, BN (multiple of 16, <= 256), CONS (1..4), STAGES (>= 2: of keys, and of values), QREG (1: queries
// are kept in registers; BN of any width), PINGPONG (0, 1; CONS > 1, AHEAD 0), SCHED (0: a CTA a tile, 1: persistent,
// dealt out forth and back, 2: persistent, by a counter: `counters` is two words of zeros, and left so).
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16), D, DV, LSE (1: log-sum-exp is stored), CAUSAL, WINDOW
// (attention.cuh), PACKED (packed.cuh: sequences begin where `begins_q` and `begins_k` say among `tq` and `tk` rows,
// sq and sk are the longest). SHARED: bytes of the launch. Grid: ceil(sq / BM) * heads * batch tiles, BM = 64 * CONS
// (PACKED: (tq / BM + batch) * heads, as many as there may be); with SCHED 1 and 2 as many blocks of 128 * (CONS + 1)
// as run at once and no more than tiles.
// tQ, tK, tV: maps of four dimensions (element, row, head, batch), boxes of 64 elements by 64 (Q) or BN rows, 128-byte
// swizzle.
#include "hopper.cuh"
#include "attention.cuh"
#include "attention_hopper.cuh"
#include "packed.cuh"

constexpr int NT = 128 * (CONS + 1), BM = 64 * CONS, QP = (D + 63) / 64, VP = (DV + 63) / 64; // panels of 64
// Queries: of one warpgroup.
constexpr u32 Q_BYTES = QP * 64 * 128, K_BYTES = QP * BN * 128, V_BYTES = VP * BN * 128;
static_assert(CONS * Q_BYTES + STAGES * (K_BYTES + V_BYTES) + 1024 == SHARED,
              "the host counts shared memory as the kernel does");
static_assert(!PINGPONG || (CONS > 1 && !AHEAD), "turns are for warpgroups that wait for their scores");
static_assert(!SCALES_SCORES && !ALIBI && !MASK && !DROPOUT, "scores are taken as they are");
static_assert(D % 16 == 0 && DV % 16 == 0 && BN % 16 == 0 && BN <= 256 && STAGES >= 2, "tile");
// Registers of a thread at the start, and of the two roles afterwards: no more in all than the block was given.
constexpr int START = 65536 / NT / 8 * 8, FEW = CONS == 3 ? 32 : 24;
constexpr int MANY = (START * (CONS + 1) - FEW) / CONS / 8 * 8 > 240 ? 240 : (START * (CONS + 1) - FEW) / CONS / 8 * 8;
constexpr bool TRADES = START < 240; // a lone consumer with the multiprocessor to itself has all it can use
// What a thread's weights of a block may add up to, so that no weight is above it: inside f16; far inside bf16 and
// float32, whose numbers are as exact there as around one.
#ifndef LIMIT
#define LIMIT (DTYPE == 1 ? 1073741824.f : 32768.f)
#endif

// The same in all lanes of a warp, said so that the compiler keeps it in uniform registers, where descriptors belong.
DI int same(int x) { return __shfl_sync(~0u, x, 0); }

// A stage of a ring, and the phase its barriers are waited for in.
struct Place {
  int q;
  u32 phase;
  DI Place next() const {
    const bool wraps = q == STAGES - 1;
    Place n;
    if ((STAGES & STAGES - 1) == 0) n.q = (q + 1) & STAGES - 1, n.phase = phase ^ (n.q == 0);
    else n.q = wraps ? 0 : q + 1, n.phase = phase ^ (u32)wraps;
    return n;
  }
};

DI void mma_rows(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32." ELEM "." ELEM ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
      " {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void __launch_bounds__(NT, 1)
    flash_lazy(const __grid_constant__ TMap tQ, const __grid_constant__ TMap tK, const __grid_constant__ TMap tV,
               elem* __restrict__ O, float* __restrict__ lse, u32* counters, int batch, int heads, int group, int sq,
               int sk, int lower, int upper, int band, float scale, float cap, u64 ob, u64 oh, u64 orow,
               const int* begins_q, const int* begins_k, int tq, int tk) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 bars[4 * STAGES + 2 * CONS];
  __shared__ volatile int taken; // the tile whose queries are there; -1 ends it all
  __shared__ volatile int known[6]; // of a tile of packed sequences: m, h, first row, rows, keys, shift of the diagonal
  __shared__ volatile float factor;
  const u32 sQ = (smem_addr(smem) + 1023) & ~1023u, sK = sQ + CONS * Q_BYTES, sV = sK + STAGES * K_BYTES;
  const u32 full_k = smem_addr(bars), full_v = full_k + STAGES * 8, empty_k = full_v + STAGES * 8,
            empty_v = empty_k + STAGES * 8, full_q = empty_v + STAGES * 8, empty_q = full_q + CONS * 8;
  const int wg = same(threadIdx.x >> 7), tid = threadIdx.x & 127;
  // Tiles of a head of one batch; of all packed sequences, as many as there may be.
  const int tall = PACKED ? tq / BM + batch : (sq + BM - 1) / BM, tiles = tall * heads * (PACKED ? 1 : batch);
  if (threadIdx.x == 0) {
    tma_prefetch(&tQ), tma_prefetch(&tK), tma_prefetch(&tV);
    // Every warp says that it has read: some read by themselves, and none may miss a phase while others go on.
    for (int i = 0; i < 2 * STAGES; i++) mb_init(full_k + i * 8, 1), mb_init(empty_k + i * 8, 4 * CONS);
    for (int i = 0; i < CONS; i++) mb_init(full_q + i * 8, 1), mb_init(empty_q + i * 8, 4);
    mb_init_fence();
    factor = scale * LOG2E;
  }
  __syncthreads();
  pdl_launch();
  pdl_wait();
  // The tile m of queries, the batch and the head that the t-th is.
  auto place = [&](int t, int& m, int& b, int& h) {
    int head;
    tile_of(t, tall, heads * batch, band, m, head);
    b = head / heads, h = head - b * heads;
  };

  if (wg == 0) {
    if (TRADES) regs_less<FEW>();
    if (PACKED ? threadIdx.x < 32 : threadIdx.x == 0) { // a whole warp looks at offsets, one thread does the rest
      const bool leads = threadIdx.x == 0;
      Place at = {0, 1};
      int t = blockIdx.x, dealt = 0;
      auto deal = [&] {
        if (SCHED == 0) return tiles;
        dealt++;
        if (SCHED == 1) return dealt * (int)gridDim.x + (int)(dealt & 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
        return leads ? (int)(atomicAdd(counters, 1) + gridDim.x) : 0;
      };
      for (int round = 0;; round++) {
        int m = 0, b = 0, h = 0, from_q = 0, from_k = 0, rows = sq, keys = sk, less = 0;
        if (PACKED) {
          // Heads of a part one after the other for every tile, so that what is left over at the end is short; behind
          // the last sequence there are none.
          const int most = min(band, heads);
          for (; t < tiles; t = same(deal())) {
            const int part = t / (most * tall), in = t - part * most * tall, wide = min(most, heads - part * most);
            h = part * most + in % wide;
            if (tile_in<BM>(begins_q, batch, sq, tq, in / wide, b, m)) break;
          }
          if (t < tiles) {
            const Stretch own = stretch_of(begins_q, b, sq, tq), met = stretch_of(begins_k, b, sk, tk);
            from_q = own.first, rows = own.count, from_k = met.first, keys = met.count;
            if (CAUSAL) m = (rows + BM - 1) / BM - 1 - m; // the longest first
            less = PACKED == 2 ? (keys - rows) - (sk - sq) : 0;
          }
        } else if (t < tiles) place(t, m, b, h);
        int next = tiles;
        if (leads) {
          const int hk = h / group, row = m * BM, stack = PACKED ? 0 : b;
          const Span<BN> span(row, BM, rows, keys, lower + less, upper + less);
          const int last = t < tiles ? span.end - 1 : -1;
          const bool any = t < tiles && last >= span.begin;
          auto load_k = [&](int j, Place p) {
            mb_wait(empty_k + p.q * 8, p.phase);
            mb_expect(full_k + p.q * 8, K_BYTES);
            for (int c = 0; c < QP; c++)
              tma_load4(sK + p.q * K_BYTES + c * BN * 128, &tK, full_k + p.q * 8, c * 64, from_k + j * BN, hk, stack);
          };
          auto load_v = [&](int j, Place p) {
            mb_wait(empty_v + p.q * 8, p.phase);
            mb_expect(full_v + p.q * 8, V_BYTES);
            for (int c = 0; c < VP; c++)
              tma_load4(sV + p.q * V_BYTES + c * BN * 128, &tV, full_v + p.q * 8, c * 64, from_k + j * BN, hk, stack);
          };
          // Room for queries is free early where registers keep them, late where not.
          if (!QREG && any) load_k(last, at);
          if (SCHED > 0 || round == 0) {
            // Everybody has read the one before: who gave back its queries had.
            if (SCHED > 0)
              for (int w = 0; w < CONS; w++) mb_wait(empty_q + w * 8, round & 1 ^ 1);
            taken = t < tiles ? t : -1;
            if (PACKED)
              known[0] = m, known[1] = h, known[2] = from_q, known[3] = rows, known[4] = keys, known[5] = less;
            for (int w = 0; w < CONS; w++) {
              const u32 bar = full_q + w * 8;
              if (t >= tiles) {
                mb_arrive(bar);
                continue;
              }
              mb_expect(bar, Q_BYTES);
              for (int c = 0; c < QP; c++)
                tma_load4(sQ + w * Q_BYTES + c * 8192, &tQ, bar, c * 64, from_q + row + w * 64, h, stack);
            }
          }
          if (QREG && any) load_k(last, at);
          if (t < tiles && !any) next = deal();
          for (int j = last; any && j >= span.begin; j--) { // keys are a block in front of values
            const Place then = at.next();
            // Early, so that the answer is there when this tile's blocks are asked for.
            if (j == min(last, span.begin + 3)) next = deal();
            if (j > span.begin) load_k(j - 1, then);
            load_v(j, at);
            at = then;
          }
        }
        if (t >= tiles) break;
        t = PACKED ? same(next) : next;
      }
      // The last to leave puts the counters back to zero for the next launch.
      if (SCHED == 2 && leads && atomicAdd(counters + 1, 1) == gridDim.x - 1) counters[0] = 0, counters[1] = 0;
    }
  } else {
    if (TRADES) regs_more<MANY>();
    const int w = wg - 1, warp = tid >> 5, lane = tid & 31;
    const u32 mine = sQ + w * Q_BYTES;
    float k2 = scale * LOG2E;
    Place at = {0, 0}; // of the next block of keys
    if (PINGPONG && w == CONS - 1) named_arrive(1, 256); // the first turn is the first warpgroup's
    for (int round = 0;; round++) {
      if (SCHED == 0 && round == 1) break;
      mb_wait(full_q + w * 8, round & 1);
      const int t = SCHED == 0 && !PACKED ? (int)blockIdx.x : same(taken);
      if (t < 0) break;
      int m, b = 0, h, from_q = 0, rows = sq, keys = sk, first = lower, last_seen = upper;
      if (PACKED) {
        m = same(known[0]), h = same(known[1]), from_q = same(known[2]), rows = same(known[3]), keys = same(known[4]);
        first += same(known[5]), last_seen += same(known[5]);
      } else place(t, m, b, h);
      const int top = m * BM + w * 64, r0 = top + warp * 16 + (lane >> 2), c0 = (lane & 3) * 2;
      // Of the tile, and of this warpgroup; where turns are taken all take as many.
      const Span<BN> all(m * BM, BM, rows, keys, first, last_seen);
      const Span<BN> own(PINGPONG ? m * BM : top, PINGPONG ? BM : 64, rows, keys, first, last_seen);
      const int end = min(own.end, all.end), begin = max(own.begin, all.begin);
      const int n = PINGPONG || top < rows ? max(end - begin, 0) : 0;
      // `base`: what exponents are taken against, in powers of two; `sum` is this thread's share.
      float o[DV / 2], base[2] = {LOWEST, LOWEST}, sum[2] = {0.f, 0.f}, part[2], again[2];
#pragma unroll
      for (int i = 0; i < DV / 2; i++) o[i] = 0.f;

#if QREG
      u32 kept[D / 16][4];
#pragma unroll
      for (int k = 0; k < D / 16; k++) load_matrices(kept[k], in_panels<64>(mine, warp, lane, k * 16));
      __syncwarp();
      mb_arrive_if(empty_q + w * 8, lane == 0);
      auto multiply_qk = [&](float (&s)[BN / 2], int q) __attribute__((always_inline)) {
        const u32 block = desc_low(sK + q * K_BYTES, 16);
#pragma unroll
        for (int k = 0; k < D / 16; k++)
          MmaHeld<BN, 0>::step(s, kept[k], desc_from(block + (k / 4 * BN * 128 + k % 4 * 32 >> 4)), k > 0);
        mma_commit();
      };
#else
      auto multiply_qk = [&](float (&s)[BN / 2], int q) __attribute__((always_inline)) {
        multiply_rows<D, BN>(s, mine, sK + q * K_BYTES);
      };
#endif
      auto multiply_pv = [&](const u32 (&p)[BN / 4], int q) __attribute__((always_inline)) {
        multiply_held<DV, BN>(o, p, sV + q * V_BYTES);
      };
      // Blocks of the tile that this warpgroup has no use for.
      auto skip = [&](int count) {
        for (; count > 0; count--) {
          mb_wait(full_k + at.q * 8, at.phase);
          mb_arrive_if(empty_k + at.q * 8, lane == 0);
          mb_wait(full_v + at.q * 8, at.phase);
          mb_arrive_if(empty_v + at.q * 8, lane == 0);
          at = at.next();
        }
      };
      // What a query does not see.
      auto hide = [&](float (&s)[BN / 2], int j) __attribute__((always_inline)) {
#pragma unroll
        for (int i = 0; i < BN / 2; i++) {
          const int r = r0 + (i >> 1 & 1) * 8, c = j * BN + c0 + i / 4 * 8 + (i & 1);
          if (c >= keys || (CAUSAL && c - r > last_seen) || (WINDOW && c - r < first)) s[i] = LOWEST;
        }
      };
      // Scores become weights against `base`, whatever it is. True where a warp has to mend that.
      auto weigh = [&](float (&s)[BN / 2]) __attribute__((always_inline)) -> bool {
#pragma unroll
        for (int g = 0; g < 2; g++) {
          float x[2] = {0.f, 0.f};
#pragma unroll
          for (int i = 0; i < BN / 4; i++) {
            float& y = s[i / 2 * 4 + g * 2 + (i & 1)];
            y = exp2_fast(fmaf(y, k2, -base[g]));
            x[i & 1] = i < 2 ? y : x[i & 1] + y;
          }
          part[g] = x[0] + x[1];
        }
        return __any_sync(~0u, !(fmaxf(part[0], part[1]) <= LIMIT));
      };
      // Scores become weights against the largest that was seen, which becomes `base`; `again`: what older sums count.
      auto climb = [&](float (&s)[BN / 2]) __attribute__((always_inline)) {
#pragma unroll
        for (int g = 0; g < 2; g++) {
          float most = LOWEST;
#pragma unroll
          for (int i = 0; i < BN / 4; i++) most = fmaxf(most, s[i / 2 * 4 + g * 2 + (i & 1)]);
          most = fmaxf(most, __shfl_xor_sync(~0u, most, 1)), most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
          const float up = fmaxf(base[g], most * k2), from = up == LOWEST ? 0.f : up;
          again[g] = exp2_fast(base[g] - from), base[g] = up, part[g] = 0.f;
#pragma unroll
          for (int i = 0; i < BN / 4; i++) {
            float& y = s[i / 2 * 4 + g * 2 + (i & 1)];
            y = exp2_fast(fmaf(y, k2, -from));
            part[g] += y;
          }
        }
      };
      // Weights have grown. Here a warp is by itself: nothing of it is under way, and its keys are in stage q still.
      auto mend = [&](float (&s)[BN / 2], int q, int j) __attribute__((always_inline)) {
        if (__all_sync(~0u, part[0] + part[1] < 1e37f)) {
#pragma unroll
          for (int g = 0; g < 2; g++) {
            float most = 1.f;
#pragma unroll
            for (int i = 0; i < BN / 4; i++) most = fmaxf(most, s[i / 2 * 4 + g * 2 + (i & 1)]);
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 1)), most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
            const int e = (__float_as_int(most) >> 23) - 127; // at least 0, at most 123
            again[g] = __int_as_float((127 - e) << 23), base[g] += e, part[g] *= again[g];
#pragma unroll
            for (int i = 0; i < BN / 4; i++) s[i / 2 * 4 + g * 2 + (i & 1)] *= again[g];
          }
        } else {
          const u32 block = sK + q * K_BYTES + (lane & 7) * 128;
#pragma unroll
          for (int i = 0; i < BN / 2; i++) s[i] = 0.f;
          auto add = [&](const u32 (&a)[4], int k) __attribute__((always_inline)) {
#pragma unroll
            for (int c = 0; c < BN / 8; c += 2) {
              u32 x[4]; // of two times eight keys both halves of sixteen elements
              load_matrices(x, block + k / 4 * BN * 128 + (c + (lane >> 4)) * 1024 +
                                   (((k % 4 * 2 + (lane >> 3 & 1)) ^ (lane & 7)) << 4));
              mma_rows(*reinterpret_cast<float(*)[4]>(&s[c * 4]), a, x[0], x[1]);
              mma_rows(*reinterpret_cast<float(*)[4]>(&s[c * 4 + 4]), a, x[2], x[3]);
            }
          };
#if QREG
#pragma unroll
          for (int k = 0; k < D / 16; k++) add(kept[k], k);
#else
#pragma unroll 1
          for (int k = 0; k < D / 16; k++) {
            const int r = warp * 16 + (lane & 15);
            u32 a[4];
            load_matrices(a, mine + k / 4 * 8192 + r * 128 + (((k % 4 * 2 + (lane >> 4)) ^ (r & 7)) << 4));
            add(a, k);
          }
#endif
          hide(s, j);
          climb(s);
        }
        sum[0] *= again[0], sum[1] *= again[1];
#pragma unroll
        for (int i = 0; i < DV / 2; i++) o[i] *= again[i >> 1 & 1];
      };
      auto pack_weights = [&](u32 (&p)[BN / 4], const float (&s)[BN / 2]) __attribute__((always_inline)) {
#pragma unroll
        for (int i = 0; i < BN / 4; i++) p[i] = pack_pair(s[i * 2], s[i * 2 + 1]);
      };
      // Values behind the last key are another sequence's: a weight of nothing times what is no number would count.
      auto clear_rest = [&](int j, Place v) {
        if (!PACKED || (j + 1) * BN <= keys) return;
        mb_wait(full_v + v.q * 8, v.phase);
        const int last = keys - j * BN;
        for (int i = tid; i < (BN - last) * VP * 8; i += 128)
          shared_zero4(sV + v.q * V_BYTES + i % VP * BN * 128 + (last + i / VP / 8) * 128 + i / VP % 8 * 16);
        async_fence();
        named_sync(5 + w, 128);
      };

      if (n) {
        skip(all.end - end);
        // Blocks that some row sees in part: the last ones under a causal mask, the first ones of a window. A last one
        // cut by the end of the keys is behind us then.
        const int plain = CAUSAL ? max(top + last_seen + 1, 0) / BN : end,
                  whole = WINDOW ? max(top + 63 + first + BN - 1, 0) / BN : 0;
        int j = end - 1;
        Place v = at; // of the block whose weights wait for their values
#if AHEAD
        float sa[BN / 2], sb[BN / 2];
        u32 pa[BN / 4], pb[BN / 4];
        mb_wait(full_k + at.q * 8, at.phase);
        mma_fence();
        multiply_qk(sb, same(at.q));
        mma_wait<0>();
        mma_done(sb);
        if (n > 1) {
          at = at.next();
          mb_wait(full_k + at.q * 8, at.phase);
        }
        mma_fence();
        multiply_qk(sa, same(at.q)); // of the same block again where there is no other
        hide(sb, j);
        climb(sb);
        sum[0] = part[0], sum[1] = part[1];
        mma_wait<0>();
        mma_done(sa);
        pack_weights(pb, sb);
        mb_arrive_if(empty_k + v.q * 8, lane == 0);
        clear_rest(j, v);
        // Scores of a block are in `cur`; those of the next one come into `nxt`, and the weights of the one before meet
        // their values, while those of `cur` are made. Nothing may branch before the wait: the compiler would wait.
        auto step = [&](float (&cur)[BN / 2], float (&nxt)[BN / 2], const u32 (&before)[BN / 4], u32 (&p)[BN / 4],
                        bool edge) __attribute__((always_inline)) {
          j--;
          const Place held = at;
          at = at.next();
          mb_wait(full_k + at.q * 8, at.phase);
          mb_wait(full_v + v.q * 8, v.phase);
          const int q = same(at.q), u = same(v.q), x = same(held.q);
          mma_fence();
          multiply_qk(nxt, q);
          multiply_pv(before, u);
          // All products are sent off before the first weight: an arrival at a barrier keeps its place behind them, and
          // what is loaded behind it stays there.
          named_arrive(1 + w, 128);
          asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(k2) : "r"(smem_addr((const void*)&factor)) : "memory");
          if (edge) hide(cur, j);
          const bool grew = weigh(cur);
          hold_until((sum[0] + part[0]) + (sum[1] + part[1]), sQ);
          mma_wait<0>();
          mma_done(nxt), mma_done(o);
          mb_arrive_if(empty_v + u * 8, lane == 0);
          if (grew) mend(cur, x, j);
          pack_weights(p, cur);
          sum[0] += part[0], sum[1] += part[1];
          mb_arrive_if(empty_k + x * 8, lane == 0);
          v = held;
        };
        if (n > 1) {
          int left = n - 2; // blocks behind the second whose scores are asked for
          auto single = [&] {
            step(sa, sb, pb, pa, true);
            left--;
#pragma unroll
            for (int i = 0; i < BN / 2; i++) sa[i] = sb[i];
#pragma unroll
            for (int i = 0; i < BN / 4; i++) pb[i] = pa[i];
          };
          while (left > 0 && (left & 1 || j - 1 >= plain)) single();
          for (; left > 0 && (!WINDOW || j - 2 >= whole); left -= 2) {
            step(sa, sb, pb, pa, false);
            step(sb, sa, pa, pb, false);
          }
          if (WINDOW)
            while (left > 0) single();
          j--;
          const Place held = at;
          mb_wait(full_v + v.q * 8, v.phase);
          const int u = same(v.q), x = same(held.q);
          mma_fence();
          multiply_pv(pb, u);
          if (CAUSAL || WINDOW) hide(sa, j);
          const bool grew = weigh(sa);
          hold_until((sum[0] + part[0]) + (sum[1] + part[1]), sQ);
          mma_wait<0>();
          mma_done(o);
          mb_arrive_if(empty_v + u * 8, lane == 0);
          if (grew) mend(sa, x, j);
          pack_weights(pb, sa);
          sum[0] += part[0], sum[1] += part[1];
          mb_arrive_if(empty_k + x * 8, lane == 0);
          v = held;
        }
        at = v.next();
        const u32(&last)[BN / 4] = pb;
#else
        float s[BN / 2];
        u32 last[BN / 4];
        mb_wait(full_k + at.q * 8, at.phase);
        mma_fence();
        multiply_qk(s, same(at.q));
        mma_wait<0>();
        mma_done(s);
        mb_arrive_if(empty_k + at.q * 8, lane == 0);
        hide(s, j);
        climb(s);
        sum[0] = part[0], sum[1] = part[1];
        pack_weights(last, s);
        at = at.next();
        clear_rest(j, v);
        // Nothing may branch between the two waits: the compiler would wait for both products before it.
        auto step = [&](bool edge) __attribute__((always_inline)) {
          j--;
          mb_wait(full_k + at.q * 8, at.phase);
          mb_wait(full_v + v.q * 8, v.phase);
          const int q = same(at.q), u = same(v.q);
          if (PINGPONG) named_sync(1 + w, 256);
          mma_fence();
          multiply_qk(s, q);
          multiply_pv(last, u);
          if (PINGPONG) named_arrive(1 + (w + 1) % CONS, 256);
          mma_wait<1>();
          mma_done(s);
          if (edge) hide(s, j);
          const bool grew = weigh(s);
          hold_until((sum[0] + part[0]) + (sum[1] + part[1]), sQ);
          mma_wait<0>();
          mma_done(o);
          mb_arrive_if(empty_v + u * 8, lane == 0);
          if (grew) mend(s, q, j);
          pack_weights(last, s);
          sum[0] += part[0], sum[1] += part[1];
          mb_arrive_if(empty_k + q * 8, lane == 0);
          v = at, at = at.next();
        };
        if (CAUSAL)
          while (j > max(begin, plain)) step(true);
        while (j > max(begin, whole)) step(false);
        if (WINDOW)
          while (j > begin) step(true);
#endif
        if (!QREG) mb_arrive_if(empty_q + w * 8, lane == 0);
        mb_wait(full_v + v.q * 8, v.phase);
        mma_fence();
        multiply_pv(last, same(v.q));
        mma_wait<0>();
        mma_done(o);
        mb_arrive_if(empty_v + v.q * 8, lane == 0);
        skip(begin - all.begin);
      } else {
        __syncwarp();
        if (!QREG) mb_arrive_if(empty_q + w * 8, lane == 0);
        skip(all.count());
      }
#pragma unroll
      for (int g = 0; g < 2; g++) {
        float x = sum[g];
        x += __shfl_xor_sync(~0u, x, 1), x += __shfl_xor_sync(~0u, x, 2);
        const int r = r0 + g * 8;
        const u64 lse_start = PACKED ? (u64)h * tq + from_q : ((u64)b * heads + h) * sq, apart = PACKED ? 0 : b * ob;
        if (LSE && r < rows && (lane & 3) == 0) lse[lse_start + r] = x > 0.f ? (base[g] + log2_fast(x)) * LN2 : LOWEST;
        store_row<DV, 16>(O + apart + h * oh + (from_q + (u64)r) * orow, o, g, x > 0.f ? 1.f / x : 0.f, r < rows);
      }
    }
    if (PINGPONG && w == 0) named_sync(1, 256); // takes the turn nobody needs
  }
}
