// O = softmax(scale * Q*K' + mask) * V, one block a query row, float32 throughout, one pass over the keys.
//
// Idea: 128 keys at a time are scored by a thread each; the running maximum and sum are carried on, and the threads
// share out the columns of V. Wins: never by design; it fits every shape, mask and layout and is the fallback.
// Query i sees key j where lower <= j - i <= upper; the key beside query i is i + shift.
// Facts of the problem (-D): DTYPE, MASK (1: an added matrix, 2: bytes, 0 hides; one for 2^SQUARE queries and keys),
// LSE (1: log-sum-exps are stored), ALIBI, SOFTCAP, DROPOUT, PAGE (0, or keys of a page: `table` names the pages of a
// batch, kb and vb go from page to page; numbers outside of 0..pages hide their keys), LENGTHS (1: keys of each batch
// in `lengths`, 2: and the diagonal ends at the last of them), PACKED (packed.cuh: sequences begin where `begins_q` and
// `begins_k` say among `tq` and `tk` rows; sq and sk are the longest).
#include "element.cuh"
#include "philox.cuh"
#include "packed.cuh"
#define KEYS 128
#define ROOM (PAGE ? PAGE : 1)
#define LOWEST __int_as_float(0xff800000)

__device__ __forceinline__ float most_of_block(float x, float* room) {
  for (int step = 16; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  __syncthreads();
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
  __syncthreads();
  return fmaxf(fmaxf(room[0], room[1]), fmaxf(room[2], room[3]));
}

__device__ __forceinline__ float sum_of_block(float x, float* room) {
  for (int step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
  __syncthreads();
  return room[0] + room[1] + room[2] + room[3];
}

extern "C" __global__ void __launch_bounds__(KEYS)
reference(const elem* __restrict__ Q, const elem* __restrict__ K, const elem* __restrict__ V, const void* __restrict__ mask,
          elem* __restrict__ O, float* __restrict__ lse, const float* __restrict__ slopes, const u64* __restrict__ seed,
          const int* __restrict__ table, const int* __restrict__ lengths, const int* begins_q,
          const int* begins_k, int heads, int group, int sq, int sk, int d,
          int dv, float scale, float cap, int lower, int upper, int shift, u64 qb, u64 qh, u64 qr, u64 kb, u64 kh,
          u64 kr, u64 vb, u64 vh, u64 vr, u64 ob, u64 oh, u64 orow, u64 mb, u64 mh, u64 mr, u32 below, int pages,
          int tq, int tk) {
  extern __shared__ float room[];
  float *reduced = room, *weights = room + 4, *query = weights + KEYS, *sums = query + d;
  const int t = threadIdx.x, row = blockIdx.x % sq, head = blockIdx.x / sq % heads, batch = blockIdx.x / sq / heads;
  float* sum_at = lse + blockIdx.x;
  if (PACKED) {
    const Stretch own = stretch_of(begins_q, batch, sq, tq), met = stretch_of(begins_k, batch, sk, tk);
    if (row >= own.count) return;
    const int less = PACKED == 2 ? (met.count - own.count) - (sk - sq) : 0;
    Q += own.first * qr, O += own.first * orow, K += met.first * kr, V += met.first * vr;
    sum_at = lse + (u64)head * tq + own.first + row;
    sq = own.count, sk = met.count, lower += less, upper += less, shift += less;
  }
  const elem* q = Q + batch * qb + head * qh + row * qr;
  const elem* k = K + (PAGE ? 0 : batch * kb) + head / group * kh;
  const elem* v = V + (PAGE ? 0 : batch * vb) + head / group * vh;
  const int* mine = PAGE ? table + (u64)batch * ((sk + ROOM - 1) / ROOM) : nullptr;
  // Elements before a key or value, or -1 where its page is none.
  auto place = [&](int j, u64 from_page, u64 from_key) -> long long {
    if (!PAGE) return j * from_key;
    const int page = mine[j / ROOM];
    return page >= 0 && page < pages ? page * from_page + j % ROOM * from_key : -1ll;
  };
  if (LENGTHS) {
    const int own = min(max(lengths[batch], 0), sk), less = LENGTHS == 2 ? own - sk : 0;
    sk = own, lower += less, upper += less, shift += less;
  }
  for (int x = t; x < d; x += KEYS) query[x] = widen(q[x]);
  for (int x = t; x < dv; x += KEYS) sums[x] = 0.f;
  __syncthreads();
  const int begin = max(row + lower, 0), seen = min(sk, row + upper + 1);
  const Drops drops = DROPOUT ? drops_of(seed, batch * heads + head, below) : Drops{};
  float most = LOWEST, total = 0.f;
  for (int first = begin; first < seen; first += KEYS) {
    const int j = first + t, keys = min(KEYS, seen - first);
    float score = LOWEST;
    const long long key = j < seen ? place(j, kb, kr) : -1;
    if (key >= 0) {
      float dot = 0.f;
      for (int x = 0; x < d; x++) dot = fmaf(query[x], widen(k[key + x]), dot);
      score = dot * scale;
      if (SOFTCAP) score = cap * tanhf(score / cap);
      if (ALIBI) score -= slopes[head] * (float)abs(row + shift - j);
      const u64 at = batch * mb + head * mh + (row >> SQUARE) * mr + (j >> SQUARE);
      if (MASK == 1) score += widen(reinterpret_cast<const elem*>(mask)[at]);
      if (MASK == 2 && !reinterpret_cast<const unsigned char*>(mask)[at]) score = LOWEST;
    }
    const float now = fmaxf(most, most_of_block(score, reduced));
    // A row that has seen no key yet has nothing to scale, and -inf minus itself is no number.
    const float kept = now == LOWEST ? 1.f : expf(most - now), weight = now == LOWEST ? 0.f : expf(score - now);
    weights[t] = DROPOUT && !is_kept(drops, row, j) ? 0.f : weight;
    total = total * kept + sum_of_block(weight, reduced);
    most = now;
    for (int x = t; x < dv; x += KEYS) {
      float sum = sums[x] * kept;
      for (int i = 0; i < keys; i++) {
        const long long value = place(first + i, vb, vr);
        if (value >= 0) sum = fmaf(weights[i], widen(v[value + x]), sum);
      }
      sums[x] = sum;
    }
    __syncthreads();
  }
  elem* o = O + batch * ob + head * oh + row * orow;
  const float share = (total > 0.f ? 1.f / total : 0.f) * (DROPOUT ? grown_of(below) : 1.f);
  for (int x = t; x < dv; x += KEYS) o[x] = narrow(sums[x] * share);
  if (LSE && t == 0) *sum_at = total > 0.f ? most + logf(total) : LOWEST;
}
