// dQ, dK and dV of softmax(scale * Q*K' + mask) * V in double precision: the right answer that every other kernel is
// held to. Log-sum-exps and O are taken as they are given.
//
// Idea: 64 rows a block, queries (ROLE 1) or keys (ROLE 2), meet 32 of the others at a time. Scores and gradients of
// weights are sums of 4x2 a thread over slices in shared memory; weights and gradients of scores go through shared
// memory to sums of 4x8 a thread over slices of the others' rows. What is written is cut into parts of 128 columns,
// each of which computes its scores again. ROLE 0 is a warp a row: delta = sum(dO * O) of every query.
// Beside it come the largest magnitudes that tolerances are made of (`reach`): squares of the norms of rows of Q, K, V,
// O and dO (0 to 4), elements of Q, K and dO (5 to 7), a query's weights and the squares of its gradients of scores (8,
// 9), a key's weights, gradients squared and weights squared (10 to 12), and a log-sum-exp (13).
// Query i sees key j where lower <= j - i <= upper; the key beside query i is i + shift.
// Facts of the problem (-D): DTYPE, MASK (1: an added matrix, 2: bytes, 0 hides; one for 2^SQUARE queries and keys),
// ALIBI, SOFTCAP, DROPOUT, ROLE, PACKED (packed.cuh: sequences begin where `begins_q` and `begins_k` say among `tq` and
// `tk` rows; sq and sk are the longest).
#include "block.cuh"
#include "philox.cuh"
#include "packed.cuh"
#define ROWS 64
#define OTHERS 32
#define COLS 128
#define DEEP 16
#define SLICE 8
#define LOWEST __int_as_float(0xff800000)

// Raises the largest square of a norm and the largest element, by a warp.
DI void reach_of(const elem* row, u64 n, u64* square, u64* element) {
  double sum = 0., most = 0.;
  for (u64 i = threadIdx.x % 32; i < n; i += 32) {
    const double x = widen(row[i]);
    sum = fma(x, x, sum), most = fmax(most, fabs(x));
  }
  sum = sum_of(sum, 32), most = most_of(most, 32);
  if (threadIdx.x % 32 == 0) {
    raise_by_one(square, sum);
    if (element) raise_by_one(element, most);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
right(const elem* __restrict__ Q, const elem* __restrict__ K, const elem* __restrict__ V, const void* __restrict__ mask,
      const elem* __restrict__ O, const float* __restrict__ lse, const elem* __restrict__ G,
      const float* __restrict__ lean, const u64* __restrict__ seed, const int* begins_q,
      const int* begins_k, double* __restrict__ delta,
      double* __restrict__ first, double* __restrict__ second, u64* __restrict__ reach, u64 batches, u64 heads,
      u64 group, u64 sq, u64 sk, u64 d, u64 dv, double scale, double cap, long long lower, long long upper, long long shift,
      u64 qb, u64 qh, u64 qr, u64 kb, u64 kh, u64 kr, u64 vb,
      u64 vh, u64 vr, u64 ob, u64 oh, u64 orow, u64 mb, u64 mh, u64 mr, u64 below, u64 tq,
      u64 tk) {
  const u64 few = (u32)heads / (u32)group;
#if ROLE == 0
  const u32 warps = gridDim.x * (THREADS / 32), warp = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  for (u64 n = warp; n < batches * heads * sq; n += warps) {
    const u64 i = n % sq, h = n / sq % heads, b = n / sq / heads;
    const Stretch own = PACKED ? stretch_of(begins_q, b, (int)sq, (int)tq) : Stretch{0, (int)sq};
    if (i >= own.count) continue; // all of a warp
    if (PACKED && stretch_of(begins_k, b, (int)sk, (int)tk).count == 0) continue; // such a query counts for nothing
    const u64 at = b * ob + h * oh + (own.first + i) * orow, known = PACKED ? h * tq + own.first + i : n;
    double sum = 0.;
    for (u64 c = threadIdx.x % 32; c < dv; c += 32) sum = fma((double)widen(O[at + c]), (double)widen(G[at + c]), sum);
    sum = sum_of(sum, 32);
    if (threadIdx.x % 32 == 0) {
      delta[known] = sum;
      if (lse[known] != LOWEST) raise_by_one(reach + 13, fabs((double)lse[known]));
    }
    reach_of(Q + b * qb + h * qh + (own.first + i) * qr, d, reach, reach + 5);
    reach_of(O + at, dv, reach + 3, nullptr);
    reach_of(G + at, dv, reach + 4, reach + 7);
  }
  for (u64 n = warp; n < batches * few * sk; n += warps) {
    const u64 j = n % sk, h = n / sk % few, b = n / sk / few;
    const Stretch own = PACKED ? stretch_of(begins_k, b, (int)sk, (int)tk) : Stretch{0, (int)sk};
    if (j >= own.count) continue;
    reach_of(K + b * kb + h * kh + (own.first + j) * kr, d, reach + 1, reach + 6);
    reach_of(V + b * vb + h * vh + (own.first + j) * vr, dv, reach + 2, nullptr);
  }
#else
  constexpr bool KEYS = ROLE == 2;
  __shared__ double slices[DEEP * (ROWS + 1) + DEEP * (OTHERS + 1)], p[ROWS][OTHERS + 1], ds[ROWS][OTHERS + 1];
  double(*own)[ROWS + 1] = reinterpret_cast<double(*)[ROWS + 1]>(slices);
  double(*met)[OTHERS + 1] = reinterpret_cast<double(*)[OTHERS + 1]>(slices + DEEP * (ROWS + 1));
  double(*wide)[COLS] = reinterpret_cast<double(*)[COLS]>(slices);
  const int t = threadIdx.x, x = t % 16, y = t / 16;
  const u64 owners = KEYS ? few : heads;
  const u64 narrow = (d + COLS - 1) / COLS, parts = narrow + (KEYS ? (dv + COLS - 1) / COLS : 0);
  const u64 tiles = ((KEYS ? sk : sq) + ROWS - 1) / ROWS, part = blockIdx.x % parts, tile = blockIdx.x / parts % tiles;
  const u64 both = blockIdx.x / parts / tiles, mine = both % owners, b = both / owners, row0 = tile * ROWS;
  u64 numbers = b * heads * sq, per_head = sq; // where log-sum-exps and deltas of this batch begin
  if (PACKED) {
    const Stretch q = stretch_of(begins_q, b, (int)sq, (int)tq), k = stretch_of(begins_k, b, (int)sk, (int)tk);
    const long long less = PACKED == 2 ? ((long long)k.count - q.count) - ((long long)sk - (long long)sq) : 0;
    Q += q.first * qr, O += q.first * orow, G += q.first * orow, K += k.first * kr, V += k.first * vr;
    first += KEYS ? k.first * kr : q.first * qr, second += KEYS ? k.first * vr : 0;
    numbers = q.first, per_head = tq;
    sq = q.count, sk = k.count, lower += less, upper += less, shift += less;
  }
  const u64 rows = KEYS ? sk : sq, others = KEYS ? sq : sk;
  if (PACKED && row0 >= rows) return; // the sequence ends before this tile
  // Whether this part is of the gradient of V: weights times dO. Else gradients of scores times the others' rows.
  const bool values = part >= narrow;
  const u64 col0 = (values ? part - narrow : part) * COLS, columns = values ? dv : d;
  const elem* A = KEYS ? K + b * kb + mine * kh : Q + b * qb + mine * qh;
  const elem* B = KEYS ? V + b * vb + mine * vh : G + b * ob + mine * oh;
  const u64 ar = KEYS ? kr : qr, br = KEYS ? vr : orow, cr = KEYS ? qr : kr, dr = KEYS ? orow : vr;
  double sums[4][8] = {}, weights[4] = {}, squares[4] = {}, slopes[4] = {};
  // Nobody here meets others before or behind these.
  const long long from = KEYS ? (long long)row0 - upper : (long long)row0 + lower;
  const long long to_last = KEYS ? (long long)row0 + ROWS - 1 - lower : (long long)row0 + ROWS - 1 + upper;
  const u64 begin = from > 0 ? from / OTHERS * OTHERS : 0;
  const u64 end = to_last < 0 ? 0 : to_last + 1 < (long long)others ? to_last + 1 : others;
  for (u64 turn = 0; turn < (KEYS ? group : 1); turn++) {
    const u64 h = KEYS ? mine * group + turn : mine, kv = KEYS ? mine : mine / group;
    const elem* C = KEYS ? Q + b * qb + h * qh : K + b * kb + kv * kh;
    const elem* D = KEYS ? G + b * ob + h * oh : V + b * vb + kv * vh;
    const Drops drops = DROPOUT ? drops_of(seed, b * heads + h, (u32)below) : Drops{};
    for (u64 other0 = begin; other0 < end; other0 += OTHERS) {
      double s[4][2] = {}, dp[4][2] = {};
#pragma unroll 1
      for (int which = 0; which < 2; which++) {
        const elem *mineat = which ? B : A, *theirs = which ? D : C;
        const u64 deep = which ? dv : d, mr = which ? br : ar, tr = which ? dr : cr;
        double sum[4][2] = {};
        for (u64 d0 = 0; d0 < deep; d0 += DEEP) {
          const u64 c = d0 + x;
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const u64 row = row0 + y + 16 * i;
            own[x][y + 16 * i] = c < deep && row < rows ? widen(mineat[row * mr + c]) : 0.;
          }
#pragma unroll
          for (int j = 0; j < 2; j++) {
            const u64 row = other0 + y + 16 * j;
            met[x][y + 16 * j] = c < deep && row < others ? widen(theirs[row * tr + c]) : 0.;
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
          const u64 row = row0 + y + 16 * i, other = other0 + x + 16 * j, q = KEYS ? other : row, k = KEYS ? row : other;
          double weight = 0., slope = 0.;
          const long long away = (long long)k - (long long)q;
          if (q < sq && k < sk && away >= lower && away <= upper) {
            const u64 n = numbers + h * per_head + q;
            double score = s[i][j] * scale, steep = 1.;
            if (SOFTCAP) {
              const double tanh_score = tanh(score / cap);
              score = cap * tanh_score, steep = 1. - tanh_score * tanh_score;
            }
            if (ALIBI) score -= (double)lean[h] * (double)llabs(away - shift);
            const u64 at = b * mb + h * mh + (q >> SQUARE) * mr + (k >> SQUARE);
            if (MASK == 1) score += (double)widen(reinterpret_cast<const elem*>(mask)[at]);
            const bool hidden = MASK == 2 && !reinterpret_cast<const unsigned char*>(mask)[at];
            if (lse[n] != LOWEST && !hidden) {
              const double factor = !DROPOUT ? 1. : is_kept(drops, q, k) ? (double)(float)(65536. / (double)(65536 - below)) : 0.;
              weight = exp(score - (double)lse[n]), slope = weight * (dp[i][j] * factor - delta[n]) * steep;
              weight *= factor;
            }
          }
          weights[i] += weight, squares[i] = fma(weight, weight, squares[i]), slopes[i] = fma(slope, slope, slopes[i]);
          p[y + 16 * i][x + 16 * j] = weight, ds[y + 16 * i][x + 16 * j] = slope;
        }
      const elem* from = values ? D : C;
      const u64 fr = values ? dr : cr;
#pragma unroll 1
      for (int k0 = 0; k0 < OTHERS; k0 += SLICE) {
#pragma unroll
        for (int i = 0; i < SLICE * COLS / THREADS; i++) {
          const int r = t / COLS + i * (THREADS / COLS), c = t % COLS;
          const u64 row = other0 + k0 + r;
          wide[r][c] = row < others && col0 + c < columns ? widen(from[row * fr + col0 + c]) : 0.;
        }
        __syncthreads();
#pragma unroll
        for (int e = 0; e < SLICE; e++)
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const double factor = values ? p[y + 16 * i][k0 + e] : ds[y + 16 * i][k0 + e];
#pragma unroll
            for (int j = 0; j < 8; j++) sums[i][j] = fma(factor, wide[e][x + 16 * j], sums[i][j]);
          }
        __syncthreads();
      }
    }
  }
  double* to = values ? second + b * vb + mine * vh : KEYS ? first + b * kb + mine * kh : first + b * qb + mine * qh;
  const u64 out = values ? vr : ar;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const u64 row = row0 + y + 16 * i;
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const u64 c = col0 + x + 16 * j;
      if (row < rows && c < columns) to[row * out + c] = sums[i][j] * (values ? 1. : scale);
    }
    const double weight = sum_of(weights[i], 16), square = sum_of(squares[i], 16), slope = sum_of(slopes[i], 16);
    if (x == 0 && part == 0) {
      raise_by_one(reach + (KEYS ? 10 : 8), weight), raise_by_one(reach + (KEYS ? 11 : 9), slope);
      if (KEYS) raise_by_one(reach + 12, square);
    }
  }
#endif
}
