// The gradient of what is added to the scores of softmax(scale * Q*K' + mask) * V in double precision: the right answer
// that every other kernel is held to. Log-sum-exps and deltas are taken as they are given.
//
// Idea: 64 queries by 32 keys of one mask a block, which goes through the batches and heads that share it. Scores and
// gradients of weights are sums of 4x2 a thread over slices in shared memory. Beside it comes the largest sum of weights
// that one entry has (`most`), which its tolerance is made of.
// Query i sees key j where lower <= j - i <= upper; the key beside query i is i + shift.
// Facts of the problem (-D): DTYPE, ALIBI, SOFTCAP, DROPOUT. `apart` heads have masks of their own; `along_b` batches
// and `along_h` heads share one.
// Grid: masks * ceil(sq / 64) * ceil(sk / 32) blocks of 256.
#include "element.cuh"
#include "philox.cuh"
#define ROWS 64
#define OTHERS 32
#define DEEP 16
#define THREADS 256
#define LOWEST __int_as_float(0xff800000)

extern "C" __global__ void __launch_bounds__(THREADS, 1)
right(const elem* Q, const elem* K, const elem* V, const elem* mask, const float* lse, const elem* G, const float* lean,
      const u64* seed, const double* delta, double* to, u64* most, u64 heads, u64 group, u64 sq, u64 sk, u64 d, u64 dv,
      double scale, double cap, long long lower, long long upper, long long shift, u64 qb, u64 qh, u64 qr, u64 kb,
      u64 kh, u64 kr, u64 vb, u64 vh, u64 vr, u64 ob, u64 oh, u64 orow, u64 mb, u64 mh, u64 mr, u64 below, u64 apart,
      u64 along_b, u64 along_h) {
  __shared__ double own[DEEP][ROWS + 1], met[DEEP][OTHERS + 1];
  const int t = threadIdx.x, x = t % 16, y = t / 16;
  const u64 wide = (sk + OTHERS - 1) / OTHERS, tall = (sq + ROWS - 1) / ROWS;
  const u64 col0 = blockIdx.x % wide * OTHERS, row0 = blockIdx.x / wide % tall * ROWS, one = blockIdx.x / wide / tall;
  const u64 b0 = one / apart, h0 = one % apart;
  double sums[4][2] = {}, weights[4][2] = {};
  for (u64 turn = 0; turn < along_b * along_h; turn++) {
    const u64 b = b0 + turn / along_h, h = h0 + turn % along_h, kv = h / group;
    const Drops drops = DROPOUT ? drops_of(seed, b * heads + h, (u32)below) : Drops{};
    double s[4][2], dp[4][2];
#pragma unroll 1
    for (int which = 0; which < 2; which++) {
      const elem *mine = which ? G + b * ob + h * oh : Q + b * qb + h * qh;
      const elem *theirs = which ? V + b * vb + kv * vh : K + b * kb + kv * kh;
      const u64 deep = which ? dv : d, down = which ? orow : qr, along = which ? vr : kr;
      double sum[4][2] = {};
      for (u64 d0 = 0; d0 < deep; d0 += DEEP) {
        const u64 c = d0 + x;
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const u64 row = row0 + y + 16 * i;
          own[x][y + 16 * i] = c < deep && row < sq ? widen(mine[row * down + c]) : 0.;
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
          const u64 row = col0 + y + 16 * j;
          met[x][y + 16 * j] = c < deep && row < sk ? widen(theirs[row * along + c]) : 0.;
        }
        __syncthreads();
#pragma unroll
        for (int e = 0; e < DEEP; e++)
#pragma unroll
          for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 2; j++) sum[i][j] = fma(own[e][y + 16 * i], met[e][x + 16 * j], sum[i][j]);
        __syncthreads();
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 2; j++)
          if (which) dp[i][j] = sum[i][j];
          else s[i][j] = sum[i][j];
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const u64 q = row0 + y + 16 * i, k = col0 + x + 16 * j, n = (b * heads + h) * sq + q;
        const long long away = (long long)k - (long long)q;
        if (q >= sq || k >= sk || away < lower || away > upper || lse[n] == LOWEST) continue;
        double score = s[i][j] * scale;
        if (SOFTCAP) score = cap * tanh(score / cap);
        if (ALIBI) score -= (double)lean[h] * (double)llabs(away - shift);
        score += (double)widen(mask[b0 * mb + h0 * mh + q * mr + k]);
        const double factor = !DROPOUT ? 1. : is_kept(drops, q, k) ? (double)(float)(65536. / (double)(65536 - below)) : 0.;
        const double weight = exp(score - (double)lse[n]);
        sums[i][j] += weight * (dp[i][j] * factor - delta[n]), weights[i][j] += weight;
      }
  }
  double largest = 0.;
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const u64 q = row0 + y + 16 * i, k = col0 + x + 16 * j;
      if (q < sq && k < sk) to[b0 * mb + h0 * mh + q * mr + k] = sums[i][j];
      largest = fmax(largest, weights[i][j]);
    }
  for (int step = 16; step; step /= 2) largest = fmax(largest, __shfl_xor_sync(~0u, largest, step));
  // Numbers that are not negative are ordered as their bits are.
  if (t % 32 == 0) atomicMax(most, (u64)__double_as_longlong(largest));
}
