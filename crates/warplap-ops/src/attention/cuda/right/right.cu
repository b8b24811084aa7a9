// O = softmax(scale * Q*K' + mask) * V in double precision: the right answer that every other kernel is held to.
//
// Idea: 64 queries a block meet 32 keys at a time. Scores are sums of 4x2 a thread over slices of Q and K in shared
// memory; the running maximum and sums of a row are carried on by the sixteen threads that share it, and weights go
// through shared memory to sums of 4x8 a thread over slices of V. Wider values are cut into parts of 128 columns, each
// of which computes its scores again.
// Beside it come the largest magnitudes that tolerances are made of: squares of the norms of a query by head, of a key
// by head of K, and of a row of weights, and the largest value. Keys that nobody sees count too.
// Query i sees key j where lower <= j - i <= upper; the key beside query i is i + shift.
// Facts of the problem (-D): DTYPE, MASK (1: an added matrix, 2: bytes, 0 hides; one for 2^SQUARE queries and keys),
// LSE (1: log-sum-exps too), ALIBI, SOFTCAP, DROPOUT, PAGE (0, or keys of a page: `table` names the pages of a batch,
// kb and vb go from page to page; numbers outside of 0..pages hide their keys), LENGTHS (1: keys of each batch in
// `lengths`, 2: and the diagonal ends at the last of them), PACKED (packed.cuh: sequences begin where `begins_q` and
// `begins_k` say among `tq` and `tk` rows; sq and sk are the longest).
#include "block.cuh"
#include "philox.cuh"
#include "packed.cuh"
#define ROWS 64
#define KEYS 32
#define ROOM (PAGE ? PAGE : 1)
#define COLS 128
#define DEEP 16
#define LOWEST __longlong_as_double(0xfff0000000000000ull)

// The sum of the squares of a row, by a warp.
DI double squares_of(const elem* row, u64 n) {
  double sum = 0.;
  for (u64 i = threadIdx.x % 32; i < n; i += 32) {
    const double x = widen(row[i]);
    sum = fma(x, x, sum);
  }
  return sum_of(sum, 32);
}

extern "C" __global__ void __launch_bounds__(THREADS)
right(const elem* __restrict__ Q, const elem* __restrict__ K, const elem* __restrict__ V, const void* __restrict__ mask,
      const float* __restrict__ slopes, const u64* __restrict__ seed, const int* __restrict__ table,
      const int* __restrict__ lengths, const int* begins_q, const int* begins_k, double* __restrict__ O,
      double* __restrict__ lse, u64* __restrict__ queries,
      u64* __restrict__ keys, u64* __restrict__ others, u64 heads, u64 group, u64 sq, u64 sk, u64 d, u64 dv, double scale,
      double cap, long long lower, long long upper, long long shift, u64 qb, u64 qh, u64 qr, u64 kb, u64 kh, u64 kr,
      u64 vb, u64 vh, u64 vr, u64 ob, u64 oh, u64 orow, u64 mb, u64 mh, u64 mr, u64 below, u64 pages, u64 tq, u64 tk) {
  __shared__ double q[DEEP][ROWS + 1], k[DEEP][KEYS + 1], p[ROWS][KEYS + 1], v[DEEP][COLS];
  const int t = threadIdx.x, x = t % 16, y = t / 16, warp = t / 32;
  const u64 parts = (dv + COLS - 1) / COLS, tiles = (sq + ROWS - 1) / ROWS;
  const u64 part = blockIdx.x % parts, tile = blockIdx.x / parts % tiles, both = blockIdx.x / parts / tiles;
  const u64 head = both % heads, batch = both / heads, row0 = tile * ROWS, col0 = part * COLS;
  Q += batch * qb + head * qh, K += head / group * kh, V += head / group * vh;
  O += batch * ob + head * oh, lse += both * sq;
  if (PACKED) {
    const Stretch own = stretch_of(begins_q, batch, (int)sq, (int)tq);
    const Stretch met = stretch_of(begins_k, batch, (int)sk, (int)tk);
    const long long less = PACKED == 2 ? ((long long)met.count - own.count) - ((long long)sk - (long long)sq) : 0;
    Q += own.first * qr, O += own.first * orow, K += met.first * kr, V += met.first * vr;
    lse += head * tq + own.first - both * sq;
    sq = own.count, sk = met.count, lower += less, upper += less, shift += less;
  }
  const int* mine = PAGE ? table + batch * ((sk + ROOM - 1) / ROOM) : nullptr;
  // Elements before a key or value, or -1 where its page is none.
  auto place = [&](u64 j, u64 from_piece, u64 from_key) -> long long {
    if (!PAGE) return batch * from_piece + j * from_key;
    const long long page = mine[j / ROOM];
    return page >= 0 && page < (long long)pages ? page * from_piece + j % ROOM * from_key : -1ll;
  };

  if (part == 0) {
    for (u64 i = row0 + warp; i < row0 + ROWS && i < sq; i += THREADS / 32) {
      const double squares = squares_of(Q + i * qr, d);
      if (t % 32 == 0) raise_by_one(queries + both, squares);
    }
    // The blocks of a head share out its keys.
    for (u64 j = tile * (THREADS / 32) + warp; head % group == 0 && j < sk; j += tiles * (THREADS / 32)) {
      const long long at = place(j, kb, kr), of = place(j, vb, vr);
      if (at < 0) continue; // all of a warp
      const double squares = squares_of(K + at, d);
      double value = 0.;
      for (u64 i = t % 32; i < dv; i += 32) value = fmax(value, fabs((double)widen(V[of + i])));
      value = most_of(value, 32);
      if (t % 32 == 0) raise_by_one(keys + both / group, squares), raise_by_one(others, value);
    }
  }

  if (LENGTHS) {
    const long long whole = sk, own = min(max((long long)lengths[batch], 0ll), whole);
    const long long less = LENGTHS == 2 ? own - whole : 0;
    sk = own, lower += less, upper += less, shift += less;
  }
  if (PACKED && row0 >= sq) return; // the sequence ends before this tile
  const Drops drops = DROPOUT ? drops_of(seed, both, (u32)below) : Drops{};
  const double grown = DROPOUT ? (double)(float)(65536. / (double)(65536 - below)) : 1.;
  double o[4][8] = {}, most[4] = {LOWEST, LOWEST, LOWEST, LOWEST}, total[4] = {}, squares[4] = {};
  // No row of this block sees further.
  const long long last = (long long)row0 + ROWS - 1 + upper, begin = (long long)row0 + lower;
  const u64 seen = last < 0 ? 0 : last + 1 < (long long)sk ? last + 1 : sk;
  for (u64 key0 = begin > 0 ? begin / KEYS * KEYS : 0; key0 < seen; key0 += KEYS) {
    double s[4][2] = {};
    for (u64 d0 = 0; d0 < d; d0 += DEEP) {
      // Neighbouring threads read neighbouring elements of a row.
      const u64 c = d0 + x;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const u64 row = row0 + y + 16 * i;
        q[x][y + 16 * i] = c < d && row < sq ? widen(Q[row * qr + c]) : 0.;
      }
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const u64 key = key0 + y + 16 * j;
        const long long at = c < d && key < sk ? place(key, kb, kr) : -1;
        k[x][y + 16 * j] = at >= 0 ? widen(K[at + c]) : 0.;
      }
      __syncthreads();
#pragma unroll
      for (int e = 0; e < DEEP; e++)
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int j = 0; j < 2; j++) s[i][j] = fma(q[e][y + 16 * i], k[e][x + 16 * j], s[i][j]);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const u64 row = row0 + y + 16 * i;
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const u64 key = key0 + x + 16 * j;
        const long long away = (long long)key - (long long)row;
        s[i][j] *= scale;
        if (SOFTCAP) s[i][j] = cap * tanh(s[i][j] / cap);
        if (ALIBI) s[i][j] -= (double)slopes[head] * (double)llabs(away - shift);
        const bool hidden = row >= sq || key >= sk || away < lower || away > upper;
        if (hidden || (PAGE && place(key, kb, kr) < 0)) s[i][j] = LOWEST;
        else {
          const u64 at = batch * mb + head * mh + ((u32)row >> SQUARE) * mr + ((u32)key >> SQUARE);
          if (MASK == 1) s[i][j] += (double)widen(reinterpret_cast<const elem*>(mask)[at]);
          if (MASK == 2 && !reinterpret_cast<const unsigned char*>(mask)[at]) s[i][j] = LOWEST;
        }
      }
      const double now = fmax(most[i], most_of(fmax(s[i][0], s[i][1]), 16));
      // A row that has seen no key yet has nothing to scale, and -inf minus itself is no number.
      const double kept = now == LOWEST ? 1. : exp(most[i] - now);
      total[i] *= kept, squares[i] *= kept * kept, most[i] = now;
#pragma unroll
      for (int j = 0; j < 8; j++) o[i][j] *= kept;
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const double weight = now == LOWEST ? 0. : exp(s[i][j] - now);
        total[i] += weight, squares[i] = fma(weight, weight, squares[i]);
        p[y + 16 * i][x + 16 * j] = DROPOUT && !is_kept(drops, row, key0 + x + 16 * j) ? 0. : weight;
      }
    }
#pragma unroll 1
    for (int k0 = 0; k0 < KEYS; k0 += DEEP) {
#pragma unroll
      for (int i = 0; i < DEEP * COLS / THREADS; i++) {
        const int r = t / COLS + i * (THREADS / COLS), c = t % COLS;
        const u64 key = key0 + k0 + r;
        const long long at = key < sk && col0 + c < dv ? place(key, vb, vr) : -1;
        v[r][c] = at >= 0 ? widen(V[at + col0 + c]) : 0.;
      }
      __syncthreads();
#pragma unroll
      for (int e = 0; e < DEEP; e++)
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int j = 0; j < 8; j++) o[i][j] = fma(p[y + 16 * i][k0 + e], v[e][x + 16 * j], o[i][j]);
      __syncthreads();
    }
  }

  double widest = 0.;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const u64 row = row0 + y + 16 * i;
    const double sum = sum_of(total[i], 16), share = sum > 0. ? 1. / sum : 0.;
    widest = fmax(widest, sum_of(squares[i], 16) * share * share);
    if (LSE && part == 0 && x == 0 && row < sq) lse[row] = sum > 0. ? most[i] + log(sum) : LOWEST;
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const u64 c = col0 + x + 16 * j;
      if (row < sq && c < dv) O[row * orow + c] = o[i][j] * share * grown;
    }
  }
  if (x == 0) raise_by_one(others + 1, widest);
}
