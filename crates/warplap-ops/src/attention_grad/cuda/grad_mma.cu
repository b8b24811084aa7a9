// dK and dV, or dQ, of softmax(scale * Q*K' + mask) * V on the tensor cores every chip from sm_80 on has: cp.async,
// ldmatrix, mma.sync. Without the matrix of scores; any length, any strides.
//
// Idea: with SIDE 0 a block owns BLOCK keys of one head of K and meets blocks of OTHER queries of all heads that share
// them; with SIDE 1 it owns queries and meets keys. Either way a warp has 16 of its own rows and computes scores and dP
// with its rows first, so that weights and gradients of scores go from accumulators straight into the products that
// add to what the block owns: nobody adds to anybody else's sums, at the price of computing scores on both sides. Wide
// heads are cut: a block adds up one of PARTS slices of columns and computes all scores for it.
// Wins: other chips than Hopper, unaligned strides, heads above 128, where sums must not depend on the run. Limits:
// f16, bf16; head dimensions up to 256; lengths below 2^30.
// Where the idea comes from: FlashAttention 2 (Dao).
//
// Axes (-D): WARPS (1..8; BLOCK = 16*WARPS), OTHER (multiple of 16), STAGES (1: a block is brought and multiplied; 2
// and more: a ring), PARTS (1, 2, 4).
// Facts of the problem (-D): SIDE (0: dK and dV, 1: dQ), DTYPE (0 f16, 1 bf16), D, DV, ALIGN (bytes every row of Q, K,
// V, dO and of what is written lies on: 16, 8, 4, 2), and what attention.cuh names (MASK 1 or 2). SHARED: bytes of the
// launch. Grid: ceil(sk / BLOCK) * heads / group * batch * PARTS blocks of 32*WARPS (SIDE 0), or ceil(sq / BLOCK) *
// heads * batch * PARTS (SIDE 1). powers, deltas: `padded` numbers a head, from delta.cu; a multiple of OTHER. PACKED
// (packed.cuh): sequences begin where `begins_q` and `begins_k` say among `tq` and `tk` rows, sq and sk are the
// longest, and numbers of each lie in blocks of PAD; the grid has tk / BLOCK + batch tiles (tq) a head. SQUARE and LIST
// (squares.cuh): the mask is of squares that a block lies in.
#include "ampere.cuh"
#include "attention.cuh"
#include "attention_ampere.cuh"
#include "attention_grad.cuh"
#include "packed.cuh"
#include "squares.cuh"

constexpr bool KEYS = SIDE == 0;
constexpr int NT = WARPS * 32, BLOCK = WARPS * 16;
// Whole steps of the products and whole slices; what is beyond D and DV is zeros.
constexpr int STEP = 16 * PARTS, DP = (D + STEP - 1) / STEP * STEP, VP = (DV + STEP - 1) / STEP * STEP;
constexpr int DC = DP / PARTS, VC = VP / PARTS;
// An odd number of 16 bytes, so that ldmatrix meets no bank twice.
constexpr u32 D_PITCH = DP * 2 + 16, V_PITCH = VP * 2 + 16;
constexpr u32 OWN_D = BLOCK * D_PITCH, OWN_V = BLOCK * V_PITCH, OTHER_D = OTHER * D_PITCH, OTHER_V = OTHER * V_PITCH;
static_assert(OTHER % 16 == 0, "tile");
static_assert(OWN_D + OWN_V + STAGES * (OTHER_D + OTHER_V) == SHARED,
              "the host counts shared memory as the kernel does");

// 16 rows times OTHER rows over wide_ elements.
template <int wide_, u32 pitch_> DI void multiply_rows(float (&s)[OTHER / 2], u32 rows, u32 columns) {
#pragma unroll
  for (int i = 0; i < OTHER / 2; i++) s[i] = 0.f;
#pragma unroll
  for (int k = 0; k < wide_ / 16; k++) {
    u32 a[4], f[4];
    ldmatrix4(a, rows + k * 32);
#pragma unroll
    for (int n = 0; n < OTHER / 16; n++) {
      ldmatrix4(f, columns + n * 16 * pitch_ + k * 32);
      mma_step(&s[n * 8], a, f[0], f[1]), mma_step(&s[n * 8 + 4], a, f[2], f[3]);
    }
  }
}
// Adds 16 rows by OTHER columns, accumulators of another product, times OTHER rows of wide_ elements.
template <int wide_, u32 pitch_, bool weights_> DI void multiply_on(float (&sum)[wide_ / 2], const float (&p)[OTHER / 2], u32 block) {
#pragma unroll
  for (int k = 0; k < OTHER / 16; k++) {
    u32 a[4], f[4];
#pragma unroll
    for (int y = 0; y < 4; y++) {
      const float low = p[k * 8 + y * 2], high = p[k * 8 + y * 2 + 1];
      a[y] = weights_ ? pack_pair(left(low), left(high)) : pack_pair(low, high);
    }
#pragma unroll
    for (int n = 0; n < wide_ / 16; n++) {
      ldmatrix4_trans(f, block + k * 16 * pitch_ + n * 32);
      mma_step(&sum[n * 8], a, f[0], f[1]), mma_step(&sum[n * 8 + 4], a, f[2], f[3]);
    }
  }
}
// A slice of a row of width_ elements, from column `at` on.
template <int width_, int r_>
DI void store_slice(elem* line, const float (&o)[r_], int at, int half, float factor, bool there) {
#if PARTS == 1
  store_row<width_, ALIGN>(line, o, half, factor, there);
#else
#pragma unroll
  for (int i = 0; i < r_ / 4; i++) {
    const int c = at + i * 8 + (threadIdx.x & 3) * 2;
    const float x = o[i * 4 + half * 2] * factor, y = o[i * 4 + half * 2 + 1] * factor;
    if (!there || c >= width_) continue;
    if (ALIGN >= 4 && width_ % 2 == 0) *reinterpret_cast<u32*>(line + c) = pack_pair(x, y);
    else {
      line[c] = narrow(x);
      if (c + 1 < width_) line[c + 1] = narrow(y);
    }
  }
#endif
}

// What is read is not __restrict__: that is a promise that nobody writes it for the kernel's whole life, and the
// assembler lifts such loads over the wait for the kernel before this one (seen in SASS).
extern "C" __global__ void __launch_bounds__(NT)
    grad_mma(const elem* Q, const elem* K, const elem* V,
             const elem* dO, const float* powers, const float* deltas,
             const void* mask, const float* slopes, elem* __restrict__ dQK,
             elem* __restrict__ dV, int batch, int heads, int group, int sq, int sk, int padded, int lower, int upper,
             int band, float scale, float cap, u64 qb, u64 qh, u64 qr, u64 kb, u64 kh, u64 kr, u64 vb, u64 vh, u64 vr,
             u64 gb, u64 gh, u64 gr, u64 xb, u64 xh, u64 xr, u64 yb, u64 yh, u64 yr, u64 mb, u64 mh, u64 mr,
             const u64* seed, u32 below, const int* begins_q, const int* begins_k, int tq, int tk) {
  extern __shared__ __align__(16) unsigned char smem[];
  const u32 sD = shared_addr(smem), sV = sD + OWN_D, tD = sV + OWN_V, tV = tD + STAGES * OTHER_D;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, part = blockIdx.x % PARTS, tile = blockIdx.x / PARTS;
  const int owners = KEYS ? heads / group : heads;
  int place, head, b, mine;
  overlap_begin();
  u64 numbers; // before those of the batch's first head
  if (PACKED) {
    const int tiles = gridDim.x / PARTS / owners;
    mine = tile / tiles;
    const int t = tile - mine * tiles;
    if (!tile_in<BLOCK>(KEYS ? begins_k : begins_q, batch, KEYS ? sk : sq, KEYS ? tk : tq, t, b, place)) return;
    const Stretch q = stretch_of(begins_q, b, sq, tq), k = stretch_of(begins_k, b, sk, tk);
    if (CAUSAL && !KEYS) place = (q.count + BLOCK - 1) / BLOCK - 1 - place; // the longest first
    const int less = PACKED == 2 ? (k.count - q.count) - (sk - sq) : 0;
    Q += q.first * qr, dO += q.first * gr, K += k.first * kr, V += k.first * vr;
    dQK += (KEYS ? k.first : q.first) * xr, numbers = padded_of(q.first, b, PAD);
    if (KEYS) dV += k.first * yr;
    sq = q.count, sk = k.count, lower += less, upper += less;
  } else {
    if (KEYS) keys_of(tile, (sk + BLOCK - 1) / BLOCK, owners * batch, band, place, head);
    else tile_of(tile, (sq + BLOCK - 1) / BLOCK, owners * batch, band, place, head);
    b = head / owners, mine = head - b * owners, numbers = (u64)b * heads * padded;
  }
  const int own = place * BLOCK;
  // Blocks of the others: from `begin` on, `count` of them for every head.
  const Seen<OTHER> seen(own, BLOCK, sq, sk, lower, upper);
  const Span<OTHER> span(own, BLOCK, sq, sk, lower, upper);
  const int begin = KEYS ? seen.begin : span.begin, count = KEYS ? seen.count() : span.count();
  // What is met in turn: the head among those that share keys, and the block.
  auto met = [&](int c, int& turn, int& at) { turn = KEYS ? c / count : 0, at = begin + c - turn * count; };
#if SQUARE
  __shared__ place_t list[LIST];
  __shared__ int listed;
  if (warp == 0) {
    const int seen_count = list_seen(list, KEYS ? count * group : count, [&](int c) {
      int turn, at;
      met(c, turn, at);
      const u64 before = b * mb + (KEYS ? mine * group + turn : mine) * mh;
      return is_seen(mask, before, mr, KEYS ? at * OTHER : own, KEYS ? own : at * OTHER);
    });
    if (lane == 0) listed = seen_count;
  }
  __syncthreads();
  const int all = listed;
#else
  const int all = KEYS ? count * group : count;
#endif
  if (KEYS) {
    bring<NT, BLOCK, D, DP, D_PITCH>(sD, K + b * kb + mine * kh + own * kr, kr, sk - own);
    bring<NT, BLOCK, DV, VP, V_PITCH>(sV, V + b * vb + mine * vh + own * vr, vr, sk - own);
  } else {
    bring<NT, BLOCK, D, DP, D_PITCH>(sD, Q + b * qb + mine * qh + own * qr, qr, sq - own);
    bring<NT, BLOCK, DV, VP, V_PITCH>(sV, dO + b * gb + mine * gh + own * gr, gr, sq - own);
  }
  auto bring_block = [&](int i) {
#if SQUARE
    const int c = list[i];
#else
    const int c = i;
#endif
    int turn, at;
    met(c, turn, at);
    const int j = at * OTHER, there = (KEYS ? sq : sk) - j;
    const u32 d = tD + i % STAGES * OTHER_D, v = tV + i % STAGES * OTHER_V;
    const int h = KEYS ? mine * group + turn : mine / group;
    if (KEYS) {
      bring<NT, OTHER, D, DP, D_PITCH>(d, Q + b * qb + h * qh + j * qr, qr, there);
      bring<NT, OTHER, DV, VP, V_PITCH>(v, dO + b * gb + h * gh + j * gr, gr, there);
    } else {
      bring<NT, OTHER, D, DP, D_PITCH>(d, K + b * kb + h * kh + j * kr, kr, there);
      bring<NT, OTHER, DV, VP, V_PITCH>(v, V + b * vb + h * vh + j * vr, vr, there);
    }
  };
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) {
    if (i < all) bring_block(i);
    copy_commit();
  }
  const int top = own + warp * 16, x0 = top + (lane >> 2), y0 = (lane & 3) * 2;
  const u32 at_d = sD + (warp * 16 + (lane & 15)) * D_PITCH + (lane >> 4) * 16;
  const u32 at_v = sV + (warp * 16 + (lane & 15)) * V_PITCH + (lane >> 4) * 16;
  const int down = (lane & 7) + (lane >> 4) * 8, along = (lane & 8) * 2;
  // Of a row this thread owns, where queries are owned.
  float power[2], less[2];
#pragma unroll
  for (int g = 0; g < 2; g++) {
    const int r = x0 + g * 8;
    const bool there = !KEYS && r < sq;
    const u64 at = numbers + (u64)mine * padded + r;
    power[g] = there ? powers[at] : -LOWEST, less[g] = there ? deltas[at] : 0.f;
  }
  float first[DC / 2], second[KEYS ? VC / 2 : 1];
#pragma unroll
  for (int i = 0; i < DC / 2; i++) first[i] = 0.f;
#pragma unroll
  for (int i = 0; i < (KEYS ? VC / 2 : 1); i++) second[i] = 0.f;
  int h = KEYS ? mine * group : mine, block = begin;
  ScoreMod v = score_mod_of(sq, sk, lower, upper, scale, cap, slopes, mask, mb, mh, mr, b, h);
  Drops drops = DROPOUT ? drops_of(seed, (u64)b * heads + h, below) : Drops{};
  const float grown = DROPOUT ? grown_of(below) : 1.f;
  for (int i = 0; i < all; i++) {
    const u32 d = tD + i % STAGES * OTHER_D, e = tV + i % STAGES * OTHER_V;
    if (STAGES == 1) {
      if (i > 0) __syncthreads(); // nobody reads the block before any more
      bring_block(i);
      copy_commit();
      copy_wait<0>();
      __syncthreads();
    } else {
      copy_wait<STAGES - 2>();
      __syncthreads(); // this block is there, and everybody is done with the stage that is filled next
      if (i + STAGES - 1 < all) bring_block(i + STAGES - 1);
      copy_commit();
    }
#if SQUARE
    int turn;
    met(list[i], turn, block);
    if (KEYS && h != mine * group + turn) {
      h = mine * group + turn;
      if (ALIBI) v = score_mod_of(sq, sk, lower, upper, scale, cap, slopes, mask, mb, mh, mr, b, h);
      if (DROPOUT) drops = drops_of(seed, (u64)b * heads + h, below);
    }
#endif
    const int j = block * OTHER;
    float s[OTHER / 2], dp[OTHER / 2], steep[SOFTCAP ? OTHER / 2 : 1];
    multiply_rows<DP, D_PITCH>(s, at_d, d + down * D_PITCH + along);
    const bool edge = KEYS ? has_edge(v, j, OTHER, top, 16) : has_edge(v, top, 16, j, OTHER);
    const float *at_power = powers + numbers + (u64)h * padded + j + y0,
                *at_delta = deltas + numbers + (u64)h * padded + j + y0;
    float2 held = {0.f, 0.f};
    weigh<KEYS>(s, steep, v, x0, j + y0, edge, [&](int x) __attribute__((always_inline)) {
      if (!KEYS) return power[x >> 1 & 1];
      if (x % 4 == 0) held = __ldg(reinterpret_cast<const float2*>(at_power + x * 2));
      return x & 1 ? held.y : held.x;
    });
    if (DROPOUT) mark_dropped<KEYS>(s, drops, x0, j + y0);
    if (KEYS)
      multiply_on<VC, V_PITCH, true>(reinterpret_cast<float(&)[VC / 2]>(second), s,
                               e + (lane & 15) * V_PITCH + (lane >> 4) * 16 + part * VC * 2);
    multiply_rows<VP, V_PITCH>(dp, at_v, e + down * V_PITCH + along);
#pragma unroll
    for (int x = 0; x < OTHER / 2; x++) {
      if (KEYS && x % 4 == 0) held = __ldg(reinterpret_cast<const float2*>(at_delta + x * 2));
      dp[x] = slope_of(s[x], dp[x], KEYS ? (x & 1 ? held.y : held.x) : less[x >> 1 & 1], grown);
      if (SOFTCAP) dp[x] *= steep[SOFTCAP ? x : 0];
    }
    multiply_on<DC, D_PITCH, false>(first, dp, d + (lane & 15) * D_PITCH + (lane >> 4) * 16 + part * DC * 2);
    if (!SQUARE && ++block == begin + count && KEYS) {
      block = begin, h++;
      if ((MASK || ALIBI) && i + 1 < all)
        v = score_mod_of(sq, sk, lower, upper, scale, cap, slopes, mask, mb, mh, mr, b, h);
      if (DROPOUT) drops = drops_of(seed, (u64)b * heads + h, below);
    }
  }
  const int rows = KEYS ? sk : sq;
#pragma unroll
  for (int g = 0; g < 2; g++) {
    const int r = x0 + g * 8;
    store_slice<D>(dQK + b * xb + mine * xh + r * xr, first, part * DC, g, scale, r < rows);
    if (KEYS)
      store_slice<DV>(dV + b * yb + mine * yh + r * yr, reinterpret_cast<float(&)[VC / 2]>(second), part * VC, g, grown,
                      r < rows);
  }
}
