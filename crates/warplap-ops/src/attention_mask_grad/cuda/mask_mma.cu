// The gradient of what is added to the scores of softmax(scale * Q*K' + mask) * V, on the tensor cores every chip from
// sm_80 on has: cp.async, ldmatrix, mma.sync. Without the matrix of scores; any length, any strides.
//
// Idea: a block owns BLOCK queries by OTHER keys of one mask and goes through the batches and heads that share it. Each
// brings two pairs of tiles, Q with K and dO with V, through one ring; two products later every thread adds the
// gradients of its scores to sums that stay in registers, and at the end writes them once. What the mask holds is
// fetched once too. Nobody adds to anybody else's sums. Tiles that nobody sees are zeros.
// Wins: always where it fits. Limits: f16, bf16; head dimensions up to 256; lengths below 2^30.
// Where the idea comes from: FlashAttention 2 (Dao), turned to the side of the scores.
//
// Axes (-D): WARPS (1..8) and TALL (1, 2: a warp has 16*TALL queries; BLOCK = 16*TALL*WARPS), OTHER (multiple of 16),
// STAGES (1: tiles are brought and multiplied; 2 and more: a ring).
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16), D, DV, ALIGN (bytes every row of Q, K, V and dO lies on: 16, 8, 4,
// 2), and what attention.cuh names (MASK 1, MASK_PAIRS). SHARED: bytes of the launch. Grid: ceil(sq / BLOCK) *
// ceil(sk / OTHER) * masks blocks of 32*WARPS. powers, deltas: `padded` numbers a head, from delta.cu. `apart` heads
// have masks of their own; `along_b` batches and `along_h` heads share one.
#include "ampere.cuh"
#include "attention.cuh"
#include "attention_ampere.cuh"
#include "attention_grad.cuh"

constexpr int NT = WARPS * 32, WARP = TALL * 16, BLOCK = WARPS * WARP;
// Whole steps of the products; what is beyond D and DV is zeros.
constexpr int DP = (D + 15) / 16 * 16, VP = (DV + 15) / 16 * 16;
// An odd number of 16 bytes, so that ldmatrix meets no bank twice.
constexpr u32 D_PITCH = DP * 2 + 16, V_PITCH = VP * 2 + 16;
constexpr u32 STAGE = (BLOCK + OTHER) * (D_PITCH > V_PITCH ? D_PITCH : V_PITCH);
// Tile rows of a band: blocks that run together touch a nearly square patch.
constexpr int BAND = 8;
static_assert(OTHER % 16 == 0 && MASK == 1, "tile");
static_assert(STAGES * STAGE == SHARED, "the host counts shared memory as the kernel does");

// WARP rows times OTHER rows over wide_ elements.
template <int wide_, u32 pitch_> DI void multiply_tile(float (&s)[TALL][OTHER / 2], u32 rows, u32 columns) {
#pragma unroll
  for (int t = 0; t < TALL; t++)
#pragma unroll
    for (int i = 0; i < OTHER / 2; i++) s[t][i] = 0.f;
#pragma unroll
  for (int k = 0; k < wide_ / 16; k++) {
    u32 a[TALL][4], f[4];
#pragma unroll
    for (int t = 0; t < TALL; t++) ldmatrix4(a[t], rows + t * 16 * pitch_ + k * 32);
#pragma unroll
    for (int n = 0; n < OTHER / 16; n++) {
      ldmatrix4(f, columns + n * 16 * pitch_ + k * 32);
#pragma unroll
      for (int t = 0; t < TALL; t++)
        mma_step(&s[t][n * 8], a[t], f[0], f[1]), mma_step(&s[t][n * 8 + 4], a[t], f[2], f[3]);
    }
  }
}

// What is read is not __restrict__: that is a promise that nobody writes it for the kernel's whole life, and the
// assembler lifts such loads over the wait for the kernel before this one (seen in SASS).
extern "C" __global__ void __launch_bounds__(NT)
    mask_mma(const elem* Q, const elem* K, const elem* V, const elem* dO, const float* powers, const float* deltas,
             const elem* mask, const float* slopes, elem* __restrict__ to, int batch, int heads, int group, int sq,
             int sk, int padded, int lower, int upper, int band, float scale, float cap, u64 qb, u64 qh, u64 qr, u64 kb,
             u64 kh, u64 kr, u64 vb, u64 vh, u64 vr, u64 gb, u64 gh, u64 gr, u64 mb, u64 mh, u64 mr, const u64* seed,
             u32 below, int apart, int along_b, int along_h) {
  extern __shared__ __align__(16) unsigned char smem[];
  const u32 ring = shared_addr(smem);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  int tile, place, one;
  banded_tile(blockIdx.x, (sq + BLOCK - 1) / BLOCK, (sk + OTHER - 1) / OTHER, BAND, tile, place, one);
  const int own = tile * BLOCK, j = place * OTHER, b0 = one / apart, h0 = one - b0 * apart;
  overlap_begin();
  const bool unseen = (CAUSAL && j - (own + BLOCK - 1) > upper) || (WINDOW && j + OTHER - 1 - own < lower);
  const int all = unseen ? 0 : along_b * along_h;
  // Tile pairs of the ring: those of scores have even numbers, those of dP odd ones.
  auto bring_pair = [&](int i) {
    const int turn = i >> 1, b = b0 + turn / along_h, h = h0 + turn % along_h, kv = h / group;
    const u32 at = ring + i % STAGES * STAGE;
    if (i & 1) {
      bring<NT, BLOCK, DV, VP, V_PITCH>(at, dO + b * gb + h * gh + own * gr, gr, sq - own);
      bring<NT, OTHER, DV, VP, V_PITCH>(at + BLOCK * V_PITCH, V + b * vb + kv * vh + j * vr, vr, sk - j);
    } else {
      bring<NT, BLOCK, D, DP, D_PITCH>(at, Q + b * qb + h * qh + own * qr, qr, sq - own);
      bring<NT, OTHER, D, DP, D_PITCH>(at + BLOCK * D_PITCH, K + b * kb + kv * kh + j * kr, kr, sk - j);
    }
  };
  // The next pair is there when this returns.
  auto next = [&](int i) {
    if (STAGES == 1) {
      if (i > 0) __syncthreads(); // nobody reads the pair before any more
      bring_pair(i);
      copy_commit();
      copy_wait<0>();
      __syncthreads();
    } else {
      copy_wait<STAGES == 1 ? 0 : STAGES - 2>();
      __syncthreads(); // and everybody is done with the stage that is filled next
      if (i + STAGES - 1 < 2 * all) bring_pair(i + STAGES - 1);
      copy_commit();
    }
    return ring + i % STAGES * STAGE;
  };
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) {
    if (i < 2 * all) bring_pair(i);
    copy_commit();
  }
  const int top = own + warp * WARP, x0 = top + (lane >> 2), y0 = j + (lane & 3) * 2;
  const int down = (lane & 7) + (lane >> 4) * 8, along = (lane & 8) * 2;
  const u32 in_d = (warp * WARP + (lane & 15)) * D_PITCH + (lane >> 4) * 16;
  const u32 in_v = (warp * WARP + (lane & 15)) * V_PITCH + (lane >> 4) * 16;
  const u32 of_d = (BLOCK + down) * D_PITCH + along, of_v = (BLOCK + down) * V_PITCH + along;
  mask += b0 * mb + h0 * mh, to += b0 * mb + h0 * mh;
  // Pairs of entries, as they are stored.
  u32 held[TALL][OTHER / 4];
  float sums[TALL][OTHER / 2];
#pragma unroll
  for (int t = 0; t < TALL; t++)
#pragma unroll
    for (int i = 0; i < OTHER / 4; i++) {
      const int r = x0 + t * 16 + (i & 1) * 8, c = y0 + i / 2 * 8;
      const elem* p = mask + r * mr + c;
      u32 x = 0;
      if (all && r < sq && c < sk) {
        if (MASK_PAIRS) x = *reinterpret_cast<const u32*>(p); // rows begin and end on pairs
        else x = (u32)p[0] | (c + 1 < sk ? (u32)p[1] << 16 : 0);
      }
      held[t][i] = x, sums[t][i * 2] = sums[t][i * 2 + 1] = 0.f;
    }
  ScoreMod v = score_mod_of(sq, sk, lower, upper, scale, cap, slopes, nullptr, 0, 0, 0, 0, h0);
  const bool edge = has_edge(v, top, WARP, j, OTHER);
  const float grown = DROPOUT ? grown_of(below) : 1.f;
  for (int turn = 0; turn < all; turn++) {
    const int b = b0 + turn / along_h, h = h0 + turn % along_h;
    if (ALIBI) v.slope = slopes[h] * LOG2E;
    float power[TALL][2], less[TALL][2];
#pragma unroll
    for (int t = 0; t < TALL; t++)
#pragma unroll
      for (int g = 0; g < 2; g++) {
        const int r = x0 + t * 16 + g * 8;
        const u64 at = ((u64)b * heads + h) * padded + r;
        power[t][g] = r < sq ? powers[at] : -LOWEST, less[t][g] = r < sq ? deltas[at] : 0.f;
      }
    float s[TALL][OTHER / 2], dp[TALL][OTHER / 2], steep[SOFTCAP ? OTHER / 2 : 1];
    u32 at = next(turn * 2);
    multiply_tile<DP, D_PITCH>(s, at + in_d, at + of_d);
#pragma unroll
    for (int t = 0; t < TALL; t++) {
      weigh<false>(
          s[t], steep, v, x0 + t * 16, y0, edge, [&](int i) __attribute__((always_inline)) { return power[t][i >> 1 & 1]; },
          [&](int i, int, int) __attribute__((always_inline)) {
            return (i & 1 ? widen_high(held[t][i / 2]) : widen_low(held[t][i / 2])) * LOG2E;
          });
      if (DROPOUT) mark_dropped<false>(s[t], drops_of(seed, (u64)b * heads + h, below), x0 + t * 16, y0);
    }
    at = next(turn * 2 + 1);
    multiply_tile<VP, V_PITCH>(dp, at + in_v, at + of_v);
#pragma unroll
    for (int t = 0; t < TALL; t++)
#pragma unroll
      for (int i = 0; i < OTHER / 2; i++) sums[t][i] += slope_of(s[t][i], dp[t][i], less[t][i >> 1 & 1], grown);
  }
#pragma unroll
  for (int t = 0; t < TALL; t++)
#pragma unroll
    for (int i = 0; i < OTHER / 4; i++) {
      const int r = x0 + t * 16 + (i & 1) * 8, c = y0 + i / 2 * 8;
      elem* p = to + r * mr + c;
      if (r >= sq || c >= sk) continue;
      if (MASK_PAIRS) *reinterpret_cast<u32*>(p) = pack_pair(sums[t][i * 2], sums[t][i * 2 + 1]);
      else {
        p[0] = narrow(sums[t][i * 2]);
        if (c + 1 < sk) p[1] = narrow(sums[t][i * 2 + 1]);
      }
    }
}
