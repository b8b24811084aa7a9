// What the kernels of cross entropy share: labels, losses, the factors of gradients, the total. Behind the constants of
// `rows.cuh`; exponents are to the base of 2.
//
// Comes in (-D): LABELS (4 or 8 bytes), GRAD (1: with the gradient), KEPT (1: that lies beside the logits, 0: in their place), MEAN (1: the total is a mean),
// SMOOTH, ZLOSS (1: the problem has it).
#pragma once
#include "soft.cuh"

constexpr float LOG2E = 1.4426950408889634f;
#if LABELS == 4
typedef int label;
#else
typedef long long label;
#endif

// The numbers of a problem.
struct Numbers {
  int rows, n;
  long long ignore;
  float smoothing, zloss;
};

DI float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// (largest, sum of exponentials), both to the base of 2. No logit is so low that it would be below the first of them.
DI Soft nothing() {
  Soft s;
  s.most = -1e38f, s.sum = 0.f;
  return s;
}

DI Soft both(Soft a, Soft b) {
  Soft c;
  c.most = fmaxf(a.most, b.most);
  c.sum = a.sum * exp2_of(a.most - c.most) + b.sum * exp2_of(b.most - c.most);
  return c;
}

DI Soft both_of_warp(Soft s) {
#pragma unroll
  for (int step = 16; step; step /= 2) {
    Soft other;
    other.most = __shfl_xor_sync(~0u, s.most, step), other.sum = __shfl_xor_sync(~0u, s.sum, step);
    s = both(s, other);
  }
  return s;
}

// Logits of a piece join a running sum.
DI void join(Soft& mine, const Piece& x) {
  float top = widen(x.one[0]);
#pragma unroll
  for (int e = 1; e < VEC; e++) top = fmaxf(top, widen(x.one[e]));
  const float most = fmaxf(mine.most, top * LOG2E);
  float a = mine.sum * exp2_of(mine.most - most), b = 0.f;
#pragma unroll
  for (int e = 0; e < VEC; e++) {
    const float w = exp2_of(fmaf(widen(x.one[e]), LOG2E, -most));
    if (e % 2) b += w;
    else a += w;
  }
  mine.most = most, mine.sum = a + b;
}

DI float natural(Soft s) { return (s.most + __log2f(s.sum)) * 0.6931471805599453f; }

// A row's loss. A label that is no column makes it no number; `sum` is that of the row's logits.
DI float loss_of(const Numbers& p, long long y, float lse, float picked, float sum) {
  if (y == p.ignore) return 0.f;
  if (y < 0 || y >= p.n) return __int_as_float(0x7fc00000);
  float loss = lse - picked;
  if (SMOOTH) loss = lse - (1.f - p.smoothing) * picked - p.smoothing * (sum / p.n);
  if (ZLOSS) loss = fmaf(p.zloss * lse, lse, loss);
  return loss;
}

// The factors of a row's gradient: of exponentials against the largest, what is taken away everywhere, and at the label.
struct Factors {
  float grown, less, hit;
};

DI Factors factors_of(const Numbers& p, long long y, Soft s, float share) {
  Factors f;
  f.grown = share / s.sum, f.less = 0.f, f.hit = share;
  if (ZLOSS) f.grown *= fmaf(2.f * p.zloss, natural(s), 1.f);
  if (SMOOTH) f.less = share * p.smoothing / p.n, f.hit = share * (1.f - p.smoothing);
  if (y == p.ignore) f.grown = 0.f, f.less = 0.f, f.hit = 0.f;
  return f;
}

// The gradient of a piece whose first logit is `at` of its row.
DI void slope(float (&v)[VEC], const Piece& x, float most, const Factors& f, long long off) {
#pragma unroll
  for (int e = 0; e < VEC; e++) v[e] = fmaf(exp2_of(fmaf(widen(x.one[e]), LOG2E, -most)), f.grown, -f.less);
  if (off >= 0 && off < VEC) {
#pragma unroll
    for (int e = 0; e < VEC; e++) v[e] -= e == off ? f.hit : 0.f;
  }
}

// The total of all losses, by the block that ends last, in one order. room[0] is zero before and after. All threads of a
// block come here once it has written its losses.
DI void close(const Numbers& p, const label* labels, const float* loss, float* total, u32* room) {
  __shared__ u32 before;
  __shared__ float parts[2][32];
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    before = atomicAdd(room, 1);
  }
  __syncthreads();
  if (before != gridDim.x - 1) return;
  __threadfence();
  float sum = 0.f, counted = 0.f;
  for (int i = threadIdx.x; i < p.rows; i += blockDim.x) {
    sum += __ldcg(loss + i);
    if (MEAN) counted += labels[i] != p.ignore;
  }
#pragma unroll
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step), counted += __shfl_xor_sync(~0u, counted, step);
  if (threadIdx.x % 32 == 0) parts[0][threadIdx.x / 32] = sum, parts[1][threadIdx.x / 32] = counted;
  __syncthreads();
  if (threadIdx.x == 0) {
    sum = 0.f, counted = 0.f;
    for (int i = 0; i < blockDim.x / 32; i++) sum += parts[0][i], counted += parts[1][i];
    *total = MEAN ? sum / counted : sum, *room = 0;
  }
}
