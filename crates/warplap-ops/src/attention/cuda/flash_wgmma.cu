// O = softmax(scale * Q*K' + mask) * V on Hopper's tensor cores: TMA, wgmma, warp-specialised, with softmax under the
// products.
//
// Idea: CONS consuming warpgroups own 64 queries each of one head; one thread of a producer warpgroup streams blocks of
// BN keys and values through a ring. A consumer sends off the scores of block j and the product of block j-1's weights
// with its values together, and works on the softmax of the former while the latter runs; with PINGPONG the warpgroups
// take turns at sending off, so that one's softmax falls under the other's products. Weights go from the accumulators
// into the second product's registers. Sums are scaled down only when a row's maximum has grown much. A persistent CTA
// (SCHED 1, 2) asks for the next tile's keys and queries while it finishes the last one; SCHED 2 deals tiles out by a
// counter, longest first.
// Wins: a thousand tokens and more on Hopper. Limits: f16, bf16; bases and strides of Q, K, V, O on 16 bytes; D, DV
// multiples of 16 up to 256.
// Where the idea comes from: FlashAttention 3 (Shah et al.); lazy scaling is FlashAttention 4's.
//
// Axes (-D): BN (multiple of 16, <= 256), CONS (1..4), STAGES (>= 2: of keys, and of values), PINGPONG (0, 1; CONS >
// 1), SCHED (0: a CTA a tile, 1: persistent, dealt out forth and back, 2: persistent, by a counter: `counters` is two
// words of zeros, and left so), RESIDENT (CTAs of one multiprocessor; 1 unless CONS is 1), SHARE (1: the warpgroups
// share 64 queries and take blocks of keys in turn, for problems of few tiles; SCHED 0, PINGPONG 0, CONS <= STAGES),
// SPLITS (1..8: so many CTAs of a cluster take a part of the keys each; more than one only with 64 queries a CTA, SCHED 0),
// QREG (1: queries are kept in registers; BN 64, 128 or 256), MASK_STAGES (with MASK 3: an added mask in blocks by TMA,
// rows on 16 bytes; then tM maps it as (element, row, head or 1, batch or 1), boxes of 64 by 64).
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16), D, DV, LSE (1: log-sum-exp is stored), what attention.cuh names, and
// PACKED (packed.cuh: sequences begin where `begins_q` and `begins_k` say among `tq` and `tk` rows, sq and sk are the
// longest; SCHED 0, SPLITS 1, no mask by pairs; a block for every tile there may be), SQUARE and LIST (squares.cuh: the
// mask is of squares that a block lies in; SCHED 0). SHARED: bytes of the launch. Grid: ceil(sq / BM) * heads * batch
// tiles, BM = 64 * CONS (SHARE: 64); SPLITS blocks of 128 * (CONS + 1) a tile, or with SCHED 1 and 2 as many as run at
// once and no more than tiles.
// tQ, tK, tV: maps of four dimensions (element, row, head, batch), boxes of 64 elements by 64 (Q) or BN rows, 128-byte
// swizzle.
#include "hopper.cuh"
#include "attention.cuh"
#include "attention_hopper.cuh"
#include "packed.cuh"
#include "squares.cuh"

#ifndef MASK_STAGES
#define MASK_STAGES 1
#endif
#ifndef QREG
#define QREG 0
#endif
#ifndef SPLITS
#define SPLITS 1
#endif

constexpr int OWNERS = SHARE ? 1 : CONS; // warpgroups with queries of their own
constexpr int NT = 128 * (CONS + 1), BM = 64 * OWNERS, QP = (D + 63) / 64, VP = (DV + 63) / 64; // panels of 64 elements
// Queries: of one warpgroup.
constexpr u32 Q_BYTES = QP * 64 * 128, K_BYTES = QP * BN * 128, V_BYTES = VP * BN * 128;
// A warpgroup's part of a block of the mask.
constexpr u32 M_BYTES = (BN + 63) / 64 * 64 * 128, MASKS = MASK == 3 ? CONS * MASK_STAGES : 0;
// What a CTA sends to the first of its cluster: sums, and for both rows of a thread maximum and total.
constexpr u32 SENT = (DV / 2 + 4) * 128 * 4;
static_assert(OWNERS * Q_BYTES + STAGES * (K_BYTES + V_BYTES) + MASKS * M_BYTES + (SPLITS - 1) * SENT + 1024 == SHARED,
              "the host counts shared memory as the kernel does");
static_assert(!PACKED || (SPLITS == 1 && SCHED == 0 && !MASK), "a block knows one tile of one sequence");
static_assert(!SQUARE || SCHED == 0, "a list is of one tile");
static_assert(SPLITS == 1 || (OWNERS == 1 && SCHED == 0), "one warpgroup's sums are sent, of one tile");
static_assert(!SHARE || (SCHED == 0 && !PINGPONG && STAGES % CONS == 0),
              "warpgroups that share queries take blocks of keys in turn, in one tile");
static_assert(!SHARE || (CONS - 1) * 128 * (DV / 2 + 4) * 4 <= STAGES * (K_BYTES + V_BYTES),
              "their sums meet where keys and values were");
static_assert(D % 16 == 0 && DV % 16 == 0 && BN % 16 == 0 && BN <= 256 && (PINGPONG == 0 || CONS > 1), "tile");
// Registers of a thread at the start, and of the two roles afterwards: no more in all than the block was given.
constexpr int START = 65536 / (NT * RESIDENT) / 8 * 8, FEW = CONS == 3 ? 32 : 24;
constexpr int MANY = (START * (CONS + 1) - FEW) / CONS / 8 * 8 > 240 ? 240 : (START * (CONS + 1) - FEW) / CONS / 8 * 8;
constexpr bool TRADES = START < 240; // a lone consumer with the multiprocessor to itself has all it can use
static_assert(!QREG || BN == 64 || BN == 128 || BN == 256, "queries in registers");
static_assert(MASK != 3 || !SHARE, "a block of the mask belongs to one warpgroup");

extern "C" __global__ void __launch_bounds__(NT, RESIDENT)
#if SPLITS > 1
    __cluster_dims__(SPLITS, 1, 1)
#endif
    flash_wgmma(const __grid_constant__ TMap tQ, const __grid_constant__ TMap tK, const __grid_constant__ TMap tV,
                const __grid_constant__ TMap tM, const void* __restrict__ mask, const float* __restrict__ slopes,
                elem* __restrict__ O, float* __restrict__ lse, u32* counters, int batch, int heads, int group, int sq,
                int sk, int lower, int upper, int band, float scale, float cap, u64 ob, u64 oh, u64 orow, u64 mb,
                u64 mh, u64 mr, const u64* __restrict__ seed, u32 below, const int* begins_q, const int* begins_k,
                int tq, int tk) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 bars[4 * STAGES + 2 * CONS + 2 * MASKS + 1];
  __shared__ volatile int taken; // the tile whose queries are there; -1 ends it all
  const u32 sQ = (smem_addr(smem) + 1023) & ~1023u, sK = sQ + OWNERS * Q_BYTES, sV = sK + STAGES * K_BYTES,
            sM = sV + STAGES * V_BYTES, sSent = sM + MASKS * M_BYTES;
  const u32 full_k = smem_addr(bars), full_v = full_k + STAGES * 8, empty_k = full_v + STAGES * 8,
            empty_v = empty_k + STAGES * 8;
  const u32 full_q = empty_v + STAGES * 8, empty_q = full_q + CONS * 8, full_m = empty_q + CONS * 8,
            empty_m = full_m + MASKS * 8, full_sent = empty_m + MASKS * 8;
  const int wg = threadIdx.x >> 7, tid = threadIdx.x & 127;
  const int tall = (sq + BM - 1) / BM, tiles = PACKED ? gridDim.x : tall * heads * batch;
  const int part = SPLITS > 1 ? cluster_rank() : 0;
  // The keys of a tile that are this CTA's.
  auto span_of = [&](int row) {
    Span<BN> span(row, BM, sq, sk, lower, upper);
    if (SPLITS > 1 && !SQUARE) {
      const int from = span.begin, count = span.count();
      span.begin = from + count * part / SPLITS, span.end = from + count * (part + 1) / SPLITS;
    }
    return span;
  };
  if (threadIdx.x == 0) {
    tma_prefetch(&tQ), tma_prefetch(&tK), tma_prefetch(&tV);
    for (int i = 0; i < 2 * STAGES; i++) mb_init(full_k + i * 8, 1), mb_init(empty_k + i * 8, OWNERS);
    for (int i = 0; i < 2 * CONS; i++) mb_init(full_q + i * 8, 1);
    // Every warp says that it has read.
    for (int i = 0; i < MASKS; i++) mb_init(full_m + i * 8, 1), mb_init(empty_m + i * 8, 4);
    if (SPLITS > 1) mb_init(full_sent, 1), mb_expect(full_sent, (SPLITS - 1) * SENT);
    mb_init_fence();
  }
  __syncthreads();
  if (SPLITS > 1) cluster_arrive_early(); // waited for before sums are sent: the barrier they count on is there
  pdl_launch();
  pdl_wait();
  int own_tile = 0, own_batch = 0, own_head = 0, from_q = 0, from_k = 0; // the one of a block among packed sequences
  if (PACKED) {
    const int stack = gridDim.x / heads;
    own_head = blockIdx.x / stack;
    if (!tile_in<BM>(begins_q, batch, sq, tq, blockIdx.x - own_head * stack, own_batch, own_tile)) return;
    const Stretch own = stretch_of(begins_q, own_batch, sq, tq), met = stretch_of(begins_k, own_batch, sk, tk);
    if (CAUSAL) own_tile = (own.count + BM - 1) / BM - 1 - own_tile; // the longest first
    const int less = PACKED == 2 ? (met.count - own.count) - (sk - sq) : 0;
    from_q = own.first, from_k = met.first;
    sq = own.count, sk = met.count, lower += less, upper += less;
  }
  // The tile m of queries, the batch and the head that the t-th is: where batches share a mask they follow each other,
  // so that it comes from memory once.
  auto place = [&](int t, int& m, int& b, int& h) {
    if (PACKED) {
      m = own_tile, b = own_batch, h = own_head;
      return;
    }
    int head;
    tile_of(t, tall, heads * batch, band, m, head);
    if (MASK && mb == 0) h = head / batch, b = head - h * batch;
    else b = head / heads, h = head - b * heads;
  };
#if SQUARE
  __shared__ place_t list[LIST];
  __shared__ int listed;
  if (threadIdx.x < 32) {
    int m, b, h;
    place(blockIdx.x / SPLITS, m, b, h);
    const Span<BN> span = span_of(m * BM);
    const u64 before = b * mb + h * mh;
    const int seen_count = list_seen(list, span.count(), [&](int i) {
      return is_seen(mask, before, mr, m * BM, (span.end - 1 - i) * BN);
    });
    if (threadIdx.x == 0) listed = seen_count;
  }
  __syncthreads();
  const int first_listed = listed * part / SPLITS, last_listed = listed * (part + 1) / SPLITS;
#endif
  // The i-th block of a span that is visited, from the last on; one before the first behind them.
  auto visited = [&](const Span<BN>& span, int i) {
#if SQUARE
    return first_listed + i < last_listed ? span.end - 1 - list[first_listed + i] : span.begin - 1;
#else
    return span.end - 1 - i;
#endif
  };

  if (wg == 0) {
    if (TRADES) regs_less<FEW>();
    if (threadIdx.x == 0) {
      int q = 0, t = blockIdx.x / SPLITS, round = 0;
      u32 phase = 1; // of the stages; the phase of the queries is that of the round
      int qm = 0;
      u32 phase_m = 1;
      for (; t < tiles; round++) {
        int m, b, h;
        place(t, m, b, h);
        const int hk = h / group, row = m * BM, stack = PACKED ? 0 : b;
        const Span<BN> span = span_of(row);
        auto load_k = [&](int j) {
          mb_wait(empty_k + q * 8, phase);
          mb_expect(full_k + q * 8, K_BYTES);
          for (int c = 0; c < QP; c++)
            tma_load4(sK + q * K_BYTES + c * BN * 128, &tK, full_k + q * 8, c * 64, from_k + j * BN, hk, stack);
        };
        auto load_v = [&](int j) {
          mb_wait(empty_v + q * 8, phase);
          mb_expect(full_v + q * 8, V_BYTES);
          for (int c = 0; c < VP; c++)
            tma_load4(sV + q * V_BYTES + c * BN * 128, &tV, full_v + q * 8, c * 64, from_k + j * BN, hk, stack);
        };
        auto load_mask = [&](int j) {
          for (int w = 0; w < CONS; w++) {
            const int i = w * MASK_STAGES + qm;
            mb_wait(empty_m + i * 8, phase_m);
            mb_expect(full_m + i * 8, M_BYTES);
            for (int c = 0; c < (BN + 63) / 64; c++)
              tma_load4(sM + i * M_BYTES + c * 8192, &tM, full_m + i * 8, j * BN + c * 64, row + w * 64, mh ? h : 0,
                        mb ? b : 0);
          }
          if (++qm == MASK_STAGES) qm = 0, phase_m ^= 1;
        };
        const int last = visited(span, 0);
        if (last >= span.begin) load_k(last); // before the queries, whose room is free later
        if (SCHED > 0) {
          for (int w = 0; w < CONS; w++) mb_wait(empty_q + w * 8, round & 1 ^ 1);
          taken = t; // everybody has read the one before: who gave back its queries had
        }
        for (int w = 0; w < OWNERS; w++) {
          mb_expect(full_q + w * 8, Q_BYTES);
          for (int c = 0; c < QP; c++)
            tma_load4(sQ + w * Q_BYTES + c * 8192, &tQ, full_q + w * 8, c * 64, from_q + row + w * 64, h, stack);
        }
        for (int i = 0, j = last; j >= span.begin; j = visited(span, ++i)) {
          if (j < last) load_k(j);
          if (MASK == 3) load_mask(j);
          load_v(j);
          if (++q == STAGES) q = 0, phase ^= 1;
        }
        if (SCHED == 0) t = tiles;
        else if (SCHED == 1) t = (round + 1) * gridDim.x + (round & 1 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
        else t = atomicAdd(counters, 1) + gridDim.x;
      }
      if (SCHED > 0) {
        for (int w = 0; w < CONS; w++) mb_wait(empty_q + w * 8, round & 1 ^ 1);
        taken = -1;
        for (int w = 0; w < CONS; w++) mb_arrive(full_q + w * 8);
      }
      // The last to leave puts the counters back to zero for the next launch.
      if (SCHED == 2 && atomicAdd(counters + 1, 1) == gridDim.x - 1) counters[0] = 0, counters[1] = 0;
    }
    if (SPLITS > 1) cluster_wait();
  } else {
    if (TRADES) regs_more<MANY>();
    const int w = wg - 1, warp = tid >> 5, lane = tid & 31, owner = SHARE ? 0 : w;
    const u32 mine = sQ + owner * Q_BYTES;
    const bool speaks = tid == 0;
    constexpr int TURN = SHARE ? CONS : 1; // every so manieth block of keys is this warpgroup's
    int q = SHARE ? w : 0;                 // stage of the next one
    u32 phase = 0;
    int qm = 0; // stage of the next block of the mask
    u32 phase_m = 0;
    auto next_stage = [&] {
      q += TURN;
      if (q >= STAGES) q -= STAGES, phase ^= 1;
    };
    if (PINGPONG && w == CONS - 1) named_arrive(1, 256); // the first turn is the first warpgroup's
    for (int round = 0;; round++) {
      if (SCHED == 0 && round == 1) break;
      mb_wait(full_q + owner * 8, round & 1);
      const int t = SCHED == 0 ? blockIdx.x / SPLITS : taken;
      if (t < 0) break;
      int m, b, h;
      place(t, m, b, h);
      const int top = m * BM + owner * 64, r0 = top + warp * 16 + (lane >> 2), c0 = (lane & 3) * 2;
      const Span<BN> span = span_of(m * BM);
      const ScoreMod v = score_mod_of(sq, sk, lower, upper, scale, cap, slopes, mask, mb, mh, mr, b, h);
      const float k2 = v.exponent();
      const Drops drops = DROPOUT ? drops_of(seed, (u64)b * heads + h, below) : Drops{};
      float o[DV / 2], s[BN / 2], again[2];
      u32 p[BN / 4], held[BN / 4];
      Running run;
      run.clear();
#pragma unroll
      for (int i = 0; i < DV / 2; i++) o[i] = 0.f;

#if QREG
      u32 kept[D / 16][4];
#pragma unroll
      for (int k = 0; k < D / 16; k++) load_matrices(kept[k], in_panels<64>(mine, warp, lane, k * 16));
      auto multiply_qk = [&] {
        const u32 keys = desc_low(sK + q * K_BYTES, 16);
#pragma unroll
        for (int k = 0; k < D / 16; k++)
          MmaHeld<BN, 0>::step(s, kept[k], desc_from(keys + (k / 4 * BN * 128 + k % 4 * 32 >> 4)), k > 0);
        mma_commit();
      };
#else
      auto multiply_qk = [&] { multiply_rows<D, BN>(s, mine, sK + q * K_BYTES); };
#endif
      auto multiply_pv = [&](int stage) { multiply_held<DV, BN>(o, p, sV + stage * V_BYTES); };
      auto soften = [&](int j, bool edge) __attribute__((always_inline)) -> bool {
        if (MASK == 3) {
          const int i = w * MASK_STAGES + qm; // waited for before the products: nothing may branch here
#pragma unroll
          for (int c = 0; c < BN; c += 16) {
            u32 x[4];
            load_matrices(x, in_panels<64>(sM + i * M_BYTES, warp, lane, c));
#pragma unroll
            for (int y = 0; y < 4; y++) held[c / 4 + y] = x[y];
          }
          __syncwarp();
          mb_arrive_if(empty_m + i * 8, lane == 0);
          if (++qm == MASK_STAGES) qm = 0, phase_m ^= 1;
        }
        modify_scores(s, held, v, r0, j * BN + c0, edge);
        const bool grew = run.take(s, again, k2);
        if (DROPOUT)
          each_kept<false, BN / 2>(drops, r0, j * BN + c0, [&](int i, bool kept) { s[i] = kept ? s[i] : 0.f; });
        return grew;
      };
      auto pack_weights = [&] {
#pragma unroll
        for (int i = 0; i < BN / 4; i++) p[i] = pack_pair(s[i * 2], s[i * 2 + 1]);
      };

      int turn = SHARE ? w : 0, j = visited(span, turn), stage = 0;
      u32 phase_v = 0;
      // Scores of block j under way with the sums of the block before, then the softmax of the former. Nothing may
      // branch between the two waits: the compiler would wait for both products before it, and they would run alone.
      auto advance = [&](bool edge) __attribute__((always_inline)) {
        fetch_mask<BN / 2>(held, v, r0, j * BN + c0);
        mb_wait(full_k + q * 8, phase);
        mb_wait(full_v + stage * 8, phase_v);
        if (MASK == 3) mb_wait(full_m + (w * MASK_STAGES + qm) * 8, phase_m);
        if (PINGPONG) named_sync(1 + w, 256);
        mma_fence();
        multiply_qk();
        multiply_pv(stage);
        if (PINGPONG) named_arrive(1 + (w + 1) % CONS, 256);
        mma_wait<1>();
        mma_done(s);
        mb_arrive_if(empty_k + q * 8, speaks);
        mb_arrive_if(empty_q + w * 8, speaks && j == span.begin);
        const bool grew = soften(j, edge);
        hold_until(run.sum[0] + run.sum[1], sQ);
        mma_wait<0>();
        mma_done(o);
        mb_arrive_if(empty_v + stage * 8, speaks);
        if (__any_sync(~0u, grew)) {
#pragma unroll
          for (int i = 0; i < DV / 2; i++) o[i] *= again[i >> 1 & 1];
        }
        pack_weights();
        stage = q, phase_v = phase;
        next_stage();
      };
      if (j >= span.begin) {
        fetch_mask<BN / 2>(held, v, r0, j * BN + c0);
        mb_wait(full_k + q * 8, phase);
        if (MASK == 3) mb_wait(full_m + (w * MASK_STAGES + qm) * 8, phase_m);
        mma_fence();
        multiply_qk();
        mma_wait<0>();
        mma_done(s);
        if (speaks) mb_arrive(empty_k + q * 8);
        if (speaks && j == span.begin) mb_arrive(empty_q + w * 8);
        soften(j, true);
        pack_weights();
        stage = q, phase_v = phase;
        next_stage();
        if (PACKED && (j + 1) * BN > sk) {
          // Values behind the last key are another sequence's: a weight of nothing times what is no number would count.
          mb_wait(full_v + stage * 8, phase_v);
          const int last = sk - j * BN;
          for (int i = tid; i < (BN - last) * VP * 8; i += 128)
            shared_zero4(sV + stage * V_BYTES + i % VP * BN * 128 + (last + i / VP / 8) * 128 + i / VP % 8 * 16);
          async_fence();
          named_sync(5 + w, 128);
        }
        // Blocks that some row sees in part: the last ones under a causal mask, the first ones of a window. A last one
        // cut by the end of the keys is behind us.
        const int plain = CAUSAL ? max(top + upper + 1, 0) / BN : span.end,
                  whole = WINDOW ? max(top + 63 + lower + BN - 1, 0) / BN : 0;
        auto step = [&] {
          if (SQUARE) turn += TURN, j = visited(span, turn);
          else j -= TURN;
        };
        step();
        if (CAUSAL)
          for (; j >= max(plain, span.begin); step()) advance(true);
        for (; j >= max(whole, span.begin); step()) advance(false);
        if (WINDOW)
          for (; j >= span.begin; step()) advance(true);
        mb_wait(full_v + stage * 8, phase_v);
        mma_fence();
        multiply_pv(stage);
        mma_wait<0>();
        mma_done(o);
        if (speaks) mb_arrive(empty_v + stage * 8);
      } else {
        named_sync(5 + w, 128); // everybody knows the tile
        if (speaks) mb_arrive(empty_q + w * 8);
      }
      // Another's maximum and total of a row of ours become part of ours; `again` and `other` are what sums count then.
      auto join = [&](int g, float most, float sum, float& other) {
        const float top_most = fmaxf(run.most[g], most), from = top_most == LOWEST ? 0.f : top_most;
        again[g] = exp2_fast((run.most[g] - from) * k2), other = exp2_fast((most - from) * k2);
        run.sum[g] = run.sum[g] * again[g] + sum * other, run.most[g] = top_most;
      };
      if (SPLITS > 1) cluster_wait();
#if SHARE
      // The first warpgroup adds up what all have: a thread's sums of the others lie 128 words apart, behind their
      // maxima and sums.
      float* room = reinterpret_cast<float*>(smem + (sK - smem_addr(smem)));
      named_sync(1, 128 * CONS); // nobody multiplies any more
      if (w > 0) {
        float* mine_at = room + (w - 1) * 128 * (DV / 2 + 4) + tid;
#pragma unroll
        for (int g = 0; g < 2; g++) mine_at[g * 128] = run.most[g], mine_at[(g + 2) * 128] = run.sum[g];
#pragma unroll
        for (int i = 0; i < DV / 2; i++) mine_at[(i + 4) * 128] = o[i];
      }
      named_sync(1, 128 * CONS);
      if (w > 0) break;
#pragma unroll 1
      for (int x = 0; x < CONS - 1; x++) {
        const float* theirs = room + x * 128 * (DV / 2 + 4) + tid;
        float other[2];
#pragma unroll
        for (int g = 0; g < 2; g++) join(g, theirs[g * 128], theirs[(g + 2) * 128], other[g]);
#pragma unroll
        for (int i = 0; i < DV / 2; i++) o[i] = o[i] * again[i >> 1 & 1] + theirs[(i + 4) * 128] * other[i >> 1 & 1];
      }
#endif
#if SPLITS > 1
      // Likewise the first CTA of the cluster; four of a thread's numbers lie 2048 bytes from the next four.
      if (part > 0) {
        const u32 to = peer_addr(sSent, 0) + (part - 1) * SENT + tid * 16, bar = peer_addr(full_sent, 0);
        peer_send4(to, bar, run.most[0], run.most[1], run.sum[0], run.sum[1]);
#pragma unroll
        for (int i = 0; i < DV / 2; i += 4)
          peer_send4(to + (i / 4 + 1) * 2048, bar, o[i], o[i + 1], o[i + 2], o[i + 3]);
        break;
      }
      mb_wait(full_sent, 0);
#pragma unroll 1
      for (int x = 0; x < SPLITS - 1; x++) {
        const u32 theirs = sSent + x * SENT + tid * 16;
        const float4 f = shared_load4(theirs);
        float other[2];
        join(0, f.x, f.z, other[0]), join(1, f.y, f.w, other[1]);
#pragma unroll
        for (int i = 0; i < DV / 2; i += 4) {
          const float4 y = shared_load4(theirs + (i / 4 + 1) * 2048);
          o[i] = o[i] * again[0] + y.x * other[0], o[i + 1] = o[i + 1] * again[0] + y.y * other[0];
          o[i + 2] = o[i + 2] * again[1] + y.z * other[1], o[i + 3] = o[i + 3] * again[1] + y.w * other[1];
        }
      }
#endif
      float inverse[2], ls[2];
      run.finish(inverse, ls, k2);
      const float grown = DROPOUT ? grown_of(below) : 1.f;
#pragma unroll
      for (int g = 0; g < 2; g++) {
        const int r = r0 + g * 8;
        const u64 known = PACKED ? (u64)h * tq + from_q : ((u64)b * heads + h) * sq, apart = PACKED ? 0 : b * ob;
        if (LSE && r < sq && (lane & 3) == 0) lse[known + r] = ls[g];
        store_row<DV, 16>(O + apart + h * oh + (from_q + (u64)r) * orow, o, g, inverse[g] * grown, r < sq);
      }
    }
    if (PINGPONG && w == 0) named_sync(1, 256); // takes the turn nobody needs
  }
}
