// The gradient of what is added to the scores of softmax(scale * Q*K' + mask) * V, one thread an entry, float32
// throughout.
//
// Idea: a block has 128 keys of one row of a mask and goes through the batches and heads that share it: their query and
// its gradient lie in shared memory, and each thread computes one weight and its gradient. Wins: never by design; it
// fits every shape, type and layout and is the fallback.
// Query i sees key j where lower <= j - i <= upper; the key beside query i is i + shift.
// Facts of the problem (-D): DTYPE, ALIBI, SOFTCAP, DROPOUT. `apart` heads have masks of their own; `along_b` batches
// and `along_h` heads share one.
// Grid: masks * sq * ceil(sk / 128) blocks of 128; shared: d + 2 * dv floats.
#include "element.cuh"
#include "philox.cuh"
#define MET 128
#define LOWEST __int_as_float(0xff800000)

__device__ __forceinline__ float dot(const float* own, const elem* row, int n) {
  float sum = 0.f;
  for (int x = 0; x < n; x++) sum = fmaf(own[x], widen(row[x]), sum);
  return sum;
}

extern "C" __global__ void __launch_bounds__(MET, 1)
reference(const elem* Q, const elem* K, const elem* V, const elem* mask, const elem* O, const float* lse, const elem* G,
          elem* __restrict__ to, const float* leans, const u64* seed, int heads, int group, int sq, int sk, int d,
          int dv, float scale, float cap, int lower, int upper, int shift, u64 qb, u64 qh, u64 qr, u64 kb, u64 kh,
          u64 kr, u64 vb, u64 vh, u64 vr, u64 ob, u64 oh, u64 orow, u64 mb, u64 mh, u64 mr, u32 below, int apart,
          int along_b, int along_h) {
  extern __shared__ float room[];
  float *query = room, *grad = query + d, *out = grad + dv;
  const int t = threadIdx.x;
  const u32 wide = (sk + MET - 1) / MET, row = blockIdx.x / wide;
  const int k = blockIdx.x % wide * MET + t, q = row % sq, one = row / sq, b0 = one / apart, h0 = one % apart;
  const u64 at = b0 * mb + h0 * mh + q * mr + k;
  const bool seen = k < sk && k - q >= lower && k - q <= upper;
  float sum = 0.f;
  for (int turn = 0; turn < along_b * along_h; turn++) {
    const int h = h0 + turn % along_h, kv = h / group;
    const u64 b = b0 + turn / along_h;
    const elem *from = Q + b * qb + h * qh + q * qr, *o = O + b * ob + h * oh + q * orow;
    __syncthreads();
    for (int x = t; x < d; x += MET) query[x] = widen(from[x]);
    for (int x = t; x < dv; x += MET) grad[x] = widen(G[b * ob + h * oh + q * orow + x]), out[x] = widen(o[x]);
    __syncthreads();
    const float known = lse[(b * heads + h) * sq + q];
    if (!seen || known == LOWEST) continue;
    float delta = 0.f, score = dot(query, K + b * kb + kv * kh + k * kr, d) * scale;
    for (int x = 0; x < dv; x++) delta = fmaf(out[x], grad[x], delta);
    if (SOFTCAP) score = cap * tanhf(score / cap);
    if (ALIBI) score -= leans[h] * (float)abs(q + shift - k);
    score += widen(mask[at]);
    const Drops drops = DROPOUT ? drops_of(seed, b * heads + h, below) : Drops{};
    const float factor = !DROPOUT ? 1.f : is_kept(drops, q, k) ? grown_of(below) : 0.f;
    sum += expf(score - known) * (dot(grad, V + b * vb + kv * vh + k * vr, dv) * factor - delta);
  }
  if (k < sk) to[at] = narrow(sum);
}
