// Cross entropy, a warp or a block a row, float32 sums.
//
// Idea: every thread brings its part of a row by vector loads, several of them under way, and keeps a running largest
// and sum; a single reduction joins them. A gradient is computed from the logits in registers, where these hold them
// (KEEP 1), else the row is read again. Wins: losses of any rows, gradients of rows that registers hold. Limits: VEC
// divides N, so that vectors lie on their own size; buffers lie on 16 bytes. Facts of the problem (-D): DTYPE, LABELS,
// GRAD, KEPT, MEAN, SMOOTH, ZLOSS (entropy.cuh), N (logits of a row). Of the setting: WARPS (of a row), VEC (elements of a
// load), STREAM (1: stores that need not stay in a cache), TOGETHER (rows of a block; 1 where WARPS is more), KEEP.
#include "entropy.cuh"

constexpr int LANES = 32 * WARPS, PIECES = N / VEC, PER = (PIECES + LANES - 1) / LANES;
constexpr bool WHOLE = PIECES % LANES == 0;
static_assert(N % VEC == 0 && (WARPS == 1 || TOGETHER == 1), "vectors lie on their own size; one row a block, or one warp a row");

// Logits that the kernel itself overwrites come the ordinary way.
DI Piece bring(const elem* p) {
  if (!GRAD) return get(p);
  Piece piece;
  piece.whole = __ldcs(reinterpret_cast<const word*>(p));
  return piece;
}

DI Piece lowest() {
  Piece piece;
#pragma unroll
  for (int e = 0; e < VEC; e++) piece.one[e] = narrow(-INFINITE);
  return piece;
}

DI float plain_of(const Piece& x) {
  float sum = 0.f;
#pragma unroll
  for (int e = 0; e < VEC; e++) sum += widen(x.one[e]);
  return sum;
}

DI Soft both_of_row(Soft s, Soft* room) {
  s = both_of_warp(s);
  if (WARPS == 1) return s;
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = s;
  __syncthreads();
  return both_of_warp(threadIdx.x % 32 < WARPS ? room[threadIdx.x % 32] : nothing());
}

extern "C" __global__ void __launch_bounds__(LANES * TOGETHER)
rows(elem* x, const label* __restrict__ labels, float* loss, float* lse, float* total, elem* beside, u32* room, int count, int n,
    long long ignore, float smoothing, float zloss) {
  __shared__ Soft parts[WARPS];
  __shared__ float sums[WARPS];
  const Numbers p = {count, N, ignore, smoothing, zloss};
  const int lane = threadIdx.x % LANES;
  const u64 row = (u64)blockIdx.x * TOGETHER + threadIdx.x / LANES;
  if (row < count) { // whole warps leave it out, and only where a row is one
    const long long y = labels[row];
    x += row * N;
    elem* to = KEPT ? beside + row * N : x;
    const float picked = lane == 0 && y >= 0 && y < N ? widen(x[y]) : 0.f;
    Soft mine = nothing();
    float plain = 0.f;
#if KEEP
    Piece kept[PER];
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + lane) * VEC;
      kept[j] = WHOLE || at < N ? bring(x + at) : lowest();
    }
#pragma unroll
    for (int j = 0; j < PER; j++) {
      join(mine, kept[j]);
      if (SMOOTH && (WHOLE || (j * LANES + lane) * VEC < N)) plain += plain_of(kept[j]);
    }
#else
    for (int from = lane * VEC; from < N; from += UNROLL * LANES * VEC) {
      Piece some[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        const int at = from + u * LANES * VEC;
        some[u] = at < N ? bring(x + at) : lowest();
      }
      // The largest of all of them first: one factor for the sum so far.
      float top = -INFINITE, a = 0.f, b = 0.f;
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
#pragma unroll
        for (int e = 0; e < VEC; e++) top = fmaxf(top, widen(some[u].one[e]));
        if (SMOOTH && from + u * LANES * VEC < N) plain += plain_of(some[u]);
      }
      const float most = fmaxf(mine.most, top * LOG2E);
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
#pragma unroll
        for (int e = 0; e < VEC; e++) {
          const float w = exp2_of(fmaf(widen(some[u].one[e]), LOG2E, -most));
          if (e % 2) b += w;
          else a += w;
        }
      }
      mine.sum = fmaf(mine.sum, exp2_of(mine.most - most), a + b), mine.most = most;
    }
#endif
    if (SMOOTH) plain = sum_of_row(plain, sums);
    const Soft all = both_of_row(mine, parts);
    if (lane == 0) {
      const float log_sum = natural(all);
      lse[row] = log_sum, loss[row] = loss_of(p, y, log_sum, picked, plain);
    }
#if GRAD
    const Factors f = factors_of(p, y, all, MEAN ? __int_as_float((int)room[1]) : 1.f);
    float v[VEC];
#if KEEP
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + lane) * VEC;
      slope(v, kept[j], all.most, f, y - at);
      if (WHOLE || at < N) put(to + at, v);
    }
#else
#pragma unroll 4
    for (int at = lane * VEC; at < N; at += LANES * VEC) slope(v, bring(x + at), all.most, f, y - at), put(to + at, v);
#endif
#endif
  }
  close(p, labels, loss, total, room);
}
