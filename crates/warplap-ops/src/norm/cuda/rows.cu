// y = norm(dropout(x + before) + residual) * weight + bias, a warp or a block a row, the row in registers, float32 sums of
// the float32 sum.
//
// Idea: every thread brings its part of a row by vector loads and keeps it in float32. RMSNorm has one reduction,
// LayerNorm two (the mean, then squares of what is left), each of warp shuffles and at most one barrier, in one order.
// Weights are asked for before the reduction where registers are plenty. Rows that registers cannot hold (KEEP 0) are
// read again for every step. Wins: everything. Limits: VEC divides N, so that vectors lie on their own size; buffers
// lie on 16 bytes. Where the idea comes from: the usual row kernels (FlashInfer, quack). Facts of the problem (-D):
// DTYPE, LAYER, RESIDUAL, WEIGHT, BIAS, BEFORE, DROPOUT, SUM (1: it is written), QUANT (codes.cuh), N (elements of a
// row). Of the setting: WARPS (of a row), VEC (elements of a load), STREAM (1: stores that need not stay in a cache),
// TOGETHER (rows of a block; 1 where WARPS is more), KEEP.
//
// With QUANT a row that is done stays in its registers until one more reduction gave its largest, then leaves as codes.
#include "codes.cuh"
#include "philox.cuh"
#include "rows.cuh"
#if QUANT
typedef u8 out_t;
template <> struct Words<1> { typedef u8 type; };
typedef Words<VEC>::type code_word;
#else
typedef elem out_t;
#endif

constexpr int LANES = 32 * WARPS, PIECES = N / VEC, PER = (PIECES + LANES - 1) / LANES;
constexpr bool WHOLE = PIECES % LANES == 0, EARLY = KEEP && PER * VEC <= 16;
// Loads of a long row under way: fewer where codes, and drawing numbers, take the registers.
constexpr int AHEAD = !QUANT ? 4 : DROPOUT ? 1 : 2;
static_assert(N % VEC == 0 && (WARPS == 1 || TOGETHER == 1), "vectors lie on their own size; one row a block, or one warp a row");

// What is dropped.
struct Drawn {
  u64 seed[2];
  u32 below;
  float grown;
};

// The float32 sums of one piece, which is so far into the row and into all rows.
DI void bring(float (&s)[VEC], const elem* x, const elem* residual, const elem* before, int at, u64 place, const Drawn& drawn) {
  const Piece a = get(x + at);
  Piece more;
  if (BEFORE) more = get(before + at);
#pragma unroll
  for (int e = 0; e < VEC; e++) s[e] = widen(a.one[e]) + (BEFORE ? widen(more.one[e]) : 0.f);
  if (DROPOUT) dropped<VEC % 2 == 0>(s, place + at, drawn.seed, drawn.below, drawn.grown);
  if (RESIDUAL) {
    const Piece b = get(residual + at);
#pragma unroll
    for (int e = 0; e < VEC; e++) s[e] += widen(b.one[e]);
  }
}

DI float plain(const float (&s)[VEC]) {
  float sum = 0.f;
#pragma unroll
  for (int e = 0; e < VEC; e++) sum += s[e];
  return sum;
}

DI float squared(const float (&s)[VEC], float mean) {
  float sum = 0.f;
#pragma unroll
  for (int e = 0; e < VEC; e++) sum = fmaf(s[e] - mean, s[e] - mean, sum);
  return sum;
}

DI void normed(float (&s)[VEC], float mean, float inverse, const Piece& weight, const Piece& bias) {
#pragma unroll
  for (int e = 0; e < VEC; e++) {
    s[e] = (s[e] - mean) * inverse;
    if (WEIGHT) s[e] *= widen(weight.one[e]);
    if (BIAS) s[e] += widen(bias.one[e]);
  }
}

#if QUANT
DI float reached(const float (&s)[VEC], float most) {
#pragma unroll
  for (int e = 0; e < VEC; e++) most = larger(most, fabsf(s[e]));
  return most;
}

// The largest over the threads of a row, as the sum is.
DI float largest_of_row(float v, float* room) {
#pragma unroll
  for (int step = 16; step; step /= 2) v = larger(v, __shfl_xor_sync(~0u, v, step));
  if (WARPS == 1) return v;
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = v;
  __syncthreads();
  v = room[threadIdx.x % WARPS];
#pragma unroll
  for (int step = WARPS / 2; step; step /= 2) v = larger(v, __shfl_xor_sync(~0u, v, step));
  return v;
}

// Codes of a piece.
DI void put_codes(u8* p, const float (&s)[VEC], float factor) {
  union {
    code_word whole;
    u8 one[VEC];
    u16 two[VEC / 2 + 1];
  } piece;
  if (VEC == 1) piece.one[0] = code(s[0] * factor);
#pragma unroll
  for (int e = 1; e < VEC; e += 2) piece.two[e / 2] = code_pair(s[e - 1] * factor, s[e] * factor);
  if (STREAM) __stcs(reinterpret_cast<code_word*>(p), piece.whole);
  else *reinterpret_cast<code_word*>(p) = piece.whole;
}
#endif

extern "C" __global__ void __launch_bounds__(LANES * TOGETHER)
rows(const elem* __restrict__ x, const elem* __restrict__ residual, const elem* __restrict__ weight,
     const elem* __restrict__ bias, out_t* __restrict__ y, elem* __restrict__ sum, const elem* __restrict__ before,
     const u64* __restrict__ seed, float* __restrict__ scale, int count, int, float eps, u32 below, float grown) {
  __shared__ float room[QUANT ? 3 : 2][WARPS];
  const int lane = threadIdx.x % LANES;
  const u64 row = (u64)blockIdx.x * TOGETHER + threadIdx.x / LANES;
  if (row >= count) return; // whole warps, and only where a row is one
  const u64 first = row * N;
  x += first, y += first;
  if (RESIDUAL) residual += first;
  if (SUM) sum += first;
  const Drawn drawn = {{DROPOUT ? seed[0] : 0, DROPOUT ? seed[1] : 0}, below, grown};
#if QUANT
  float most = LEAST;
#endif
  float mean = 0.f, squares = 0.f, total = 0.f;
#if KEEP
  float s[PER][VEC];
  Piece weights[EARLY ? PER : 1], biases[EARLY ? PER : 1];
#pragma unroll
  for (int j = 0; j < PER; j++) {
    const int at = (j * LANES + lane) * VEC;
#pragma unroll
    for (int e = 0; e < VEC; e++) s[j][e] = 0.f;
    if (WHOLE || at < N) bring(s[j], x, residual, before, at, first, drawn);
  }
  if (EARLY) {
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + lane) * VEC;
      if (!WHOLE && at >= N) continue;
      if (WEIGHT) weights[j] = get(weight + at);
      if (BIAS) biases[j] = get(bias + at);
    }
  }
  if (LAYER) {
#pragma unroll
    for (int j = 0; j < PER; j++) total += plain(s[j]);
    mean = sum_of_row(total, room[0]) / N;
  }
#pragma unroll
  for (int j = 0; j < PER; j++)
    if (WHOLE || (j * LANES + lane) * VEC < N) squares += squared(s[j], mean);
  if (SUM) {
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + lane) * VEC;
      if (WHOLE || at < N) put(sum + at, s[j]);
    }
  }
  const float inverse = 1.f / sqrtf(sum_of_row(squares, room[1]) / N + eps);
#pragma unroll
  for (int j = 0; j < PER; j++) {
    const int at = (j * LANES + lane) * VEC;
    if (!WHOLE && at >= N) continue;
    Piece w, b;
    if (WEIGHT) w = EARLY ? weights[EARLY ? j : 0] : get(weight + at);
    if (BIAS) b = EARLY ? biases[EARLY ? j : 0] : get(bias + at);
    normed(s[j], mean, inverse, w, b);
#if QUANT
    most = reached(s[j], most);
  }
  most = largest_of_row(most, room[2]);
  const float factor = __fdividef(TOP, most); // a row waits for it
#pragma unroll
  for (int j = 0; j < PER; j++) {
    const int at = (j * LANES + lane) * VEC;
    if (WHOLE || at < N) put_codes(y + at, s[j], factor);
  }
  if (lane == 0) scale[row] = most / TOP;
#else
    put(y + at, s[j]);
  }
#endif
#else
  // Some loads under way; several sums side by side, since rows are long.
  float s[VEC];
  if (LAYER) {
#pragma unroll AHEAD
    for (int at = lane * VEC; at < N; at += LANES * VEC) bring(s, x, residual, before, at, first, drawn), total += plain(s);
    mean = sum_of_row(total, room[0]) / N;
  }
#pragma unroll AHEAD
  for (int at = lane * VEC; at < N; at += LANES * VEC) {
    bring(s, x, residual, before, at, first, drawn);
    if (SUM) put(sum + at, s);
    squares += squared(s, mean);
  }
  const float inverse = 1.f / sqrtf(sum_of_row(squares, room[1]) / N + eps);
#pragma unroll AHEAD
  for (int at = lane * VEC; at < N; at += LANES * VEC) {
    bring(s, x, residual, before, at, first, drawn);
    Piece w, b;
    if (WEIGHT) w = get(weight + at);
    if (BIAS) b = get(bias + at);
    normed(s, mean, inverse, w, b);
#if QUANT
    most = reached(s, most);
  }
  most = largest_of_row(most, room[2]);
  const float factor = __fdividef(TOP, most); // a row waits for it
#pragma unroll AHEAD
  for (int at = lane * VEC; at < N; at += LANES * VEC) {
    bring(s, x, residual, before, at, first, drawn);
    Piece w, b;
    if (WEIGHT) w = get(weight + at);
    if (BIAS) b = get(bias + at);
    normed(s, mean, inverse, w, b);
    put_codes(y + at, s, factor);
  }
  if (lane == 0) scale[row] = most / TOP;
#else
    put(y + at, s);
  }
#endif
#endif
}
