// dQ, dK and dV of softmax(scale * Q*K' + mask) * V, one block a row that is written, float32 throughout.
//
// Idea: the first blocks have a query each and meet keys, the others a key and meet the queries of all heads that share
// it, 128 at a time: each thread computes one weight and its gradient, then the threads share out the columns. Wins:
// never by design; it fits every shape, mask, type and layout and is the fallback.
// Query i sees key j where lower <= j - i <= upper; the key beside query i is i + shift.
// Facts of the problem (-D): DTYPE, MASK (1: an added matrix, 2: bytes, 0 hides; one for 2^SQUARE queries and keys),
// ALIBI, SOFTCAP, DROPOUT, PACKED (packed.cuh: sequences begin where `begins_q` and `begins_k` say among `tq` and `tk`
// rows; sq and sk are the longest).
// Grid: batch * (heads * sq + heads / group * sk) blocks of 128; shared: 2 * (d + dv) + 256 floats.
#include "element.cuh"
#include "philox.cuh"
#include "packed.cuh"
#define MET 128
#define LOWEST __int_as_float(0xff800000)

__device__ __forceinline__ float dot(const float* own, const elem* row, int n) {
  float sum = 0.f;
  for (int x = 0; x < n; x++) sum = fmaf(own[x], widen(row[x]), sum);
  return sum;
}

extern "C" __global__ void __launch_bounds__(MET)
reference(const elem* __restrict__ Q, const elem* __restrict__ K, const elem* __restrict__ V, const void* __restrict__ mask,
          const elem* __restrict__ O, const float* __restrict__ lse, const elem* __restrict__ G, elem* __restrict__ dQ,
          elem* __restrict__ dK, elem* __restrict__ dV, const float* __restrict__ leans, const u64* __restrict__ seed,
          const int* begins_q, const int* begins_k, int batch, int heads, int group, int sq, int sk,
          int d, int dv, float scale, float cap, int lower, int upper, int shift, u64 qb, u64 qh, u64 qr, u64 kb,
          u64 kh, u64 kr, u64 vb, u64 vh, u64 vr, u64 ob, u64 oh, u64 orow, u64 mb, u64 mh, u64 mr, u32 below, int tq, int tk) {
  extern __shared__ float room[];
  float *first = room, *second = first + d, *sums = second + dv, *weights = sums + d + dv, *slopes = weights + MET;
  const int t = threadIdx.x, few = heads / group;
  const u32 queries = batch * heads * sq;
  const bool is_key = blockIdx.x >= queries;
  const u32 n = is_key ? blockIdx.x - queries : blockIdx.x, rows = is_key ? sk : sq, owners = is_key ? few : heads;
  const int row = n % rows, mine = n / rows % owners;
  const u64 b = n / rows / owners;
  const float* sums_of = lse + b * heads * sq;
  u64 per_head = sq;
  if (PACKED) {
    const Stretch q = stretch_of(begins_q, b, sq, tq), k = stretch_of(begins_k, b, sk, tk);
    if (row >= (is_key ? k.count : q.count)) return;
    const int less = PACKED == 2 ? (k.count - q.count) - (sk - sq) : 0;
    Q += q.first * qr, dQ += q.first * qr, O += q.first * orow, G += q.first * orow;
    K += k.first * kr, dK += k.first * kr, V += k.first * vr, dV += k.first * vr;
    sums_of = lse + q.first, per_head = tq;
    sq = q.count, sk = k.count, lower += less, upper += less, shift += less;
  }
  const elem* a = is_key ? K + b * kb + mine * kh + row * kr : Q + b * qb + mine * qh + row * qr;
  const elem* c = is_key ? V + b * vb + mine * vh + row * vr : G + b * ob + mine * oh + row * orow;
  for (int x = t; x < d; x += MET) first[x] = widen(a[x]);
  for (int x = t; x < dv; x += MET) second[x] = widen(c[x]);
  for (int x = t; x < d + dv; x += MET) sums[x] = 0.f;
  __syncthreads();
  for (int turn = 0; turn < (is_key ? group : 1); turn++) {
    const int h = is_key ? mine * group + turn : mine, kv = is_key ? mine : mine / group;
    const elem* with = is_key ? Q + b * qb + h * qh : K + b * kb + kv * kh;
    const elem* beside = is_key ? G + b * ob + h * oh : V + b * vb + kv * vh;
    const Drops drops = DROPOUT ? drops_of(seed, b * heads + h, below) : Drops{};
    const u64 wr = is_key ? qr : kr, br = is_key ? orow : vr;
    const int begin = max(is_key ? row - upper : row + lower, 0);
    const int end = is_key ? min(sq, row - lower + 1) : min(sk, row + upper + 1);
    for (int j0 = begin; j0 < end; j0 += MET) {
      const int j = j0 + t, there = min(MET, end - j0);
      float weight = 0.f, slope = 0.f;
      if (j < end) {
        const int q = is_key ? j : row, k = is_key ? row : j;
        const float known = sums_of[h * per_head + q];
        float score = dot(first, with + j * wr, d) * scale, steep = 1.f;
        if (SOFTCAP) {
          const float tanh_score = tanhf(score / cap);
          score = cap * tanh_score, steep = 1.f - tanh_score * tanh_score;
        }
        if (ALIBI) score -= leans[h] * (float)abs(q + shift - k);
        const u64 at = b * mb + h * mh + (q >> SQUARE) * mr + (k >> SQUARE);
        if (MASK == 1) score += widen(reinterpret_cast<const elem*>(mask)[at]);
        if (MASK == 2 && !reinterpret_cast<const unsigned char*>(mask)[at]) score = LOWEST;
        if (known != LOWEST) {
          const elem *o = O + b * ob + h * oh + q * orow, *g = G + b * ob + h * oh + q * orow;
          float delta = 0.f;
          for (int x = 0; x < dv; x++) delta = fmaf(widen(o[x]), widen(g[x]), delta);
          const float factor = !DROPOUT ? 1.f : is_kept(drops, q, k) ? grown_of(below) : 0.f;
          weight = expf(score - known), slope = weight * (dot(second, beside + j * br, dv) * factor - delta) * steep;
          weight *= factor;
        }
      }
      weights[t] = weight, slopes[t] = slope;
      __syncthreads();
      for (int x = t; x < d; x += MET) {
        float sum = sums[x];
        for (int i = 0; i < there; i++) sum = fmaf(slopes[i], widen(with[(j0 + i) * wr + x]), sum);
        sums[x] = sum;
      }
      for (int x = t; is_key && x < dv; x += MET) {
        float sum = sums[d + x];
        for (int i = 0; i < there; i++) sum = fmaf(weights[i], widen(beside[(j0 + i) * br + x]), sum);
        sums[d + x] = sum;
      }
      __syncthreads();
    }
  }
  elem* to = is_key ? dK + b * kb + mine * kh + row * kr : dQ + b * qb + mine * qh + row * qr;
  for (int x = t; x < d; x += MET) to[x] = narrow(sums[x] * scale);
  if (is_key)
    for (int x = t; x < dv; x += MET) dV[b * vb + mine * vh + row * vr + x] = narrow(sums[d + x]);
}
