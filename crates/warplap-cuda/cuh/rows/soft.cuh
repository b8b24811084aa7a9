// Largest and sum of exponentials of a row: of a thread's pieces, joined over the threads of a row. Behind the constants
// of `rows.cuh`. Goes out: Soft, none, weight, largest, sum_of, more, joined, over_row, and UNROLL, the pieces a thread
// of a long row has under way. The largest never is below the lowest number: a difference of two -inf is none.
#pragma once
#include "rows.cuh"

constexpr int UNROLL = WARPS == 32 || VEC * sizeof(elem) != 16 ? 4 : 8;
constexpr float LOWEST = -3.402823466e38f;
#define INFINITE __int_as_float(0x7f800000)

struct Soft {
  float most, sum;
};

DI Soft none() {
  Soft s;
  s.most = LOWEST, s.sum = 0.f;
  return s;
}

// e^x for x that is not positive.
DI float weight(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
  return y;
}

DI float largest(const float (&s)[VEC], float most) {
#pragma unroll
  for (int e = 0; e < VEC; e++) most = fmaxf(most, s[e]);
  return most;
}

// Two sums side by side.
DI float sum_of(const float (&s)[VEC]) {
  float a = 0.f, b = 0.f;
#pragma unroll
  for (int e = 0; e < VEC; e++) {
    if (e % 2) b += s[e];
    else a += s[e];
  }
  return a + b;
}

// Scores of several pieces join a running sum.
DI void more(Soft& mine, const float (&s)[UNROLL][VEC]) {
  float most = mine.most;
#pragma unroll
  for (int u = 0; u < UNROLL; u++) most = largest(s[u], most);
  mine.sum *= weight(mine.most - most), mine.most = most;
  float a = 0.f, b = 0.f;
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
#pragma unroll
    for (int e = 0; e < VEC; e++) {
      if (e % 2) b += weight(s[u][e] - most);
      else a += weight(s[u][e] - most);
    }
  }
  mine.sum += a + b;
}

DI Soft joined(Soft a, Soft b) {
  Soft c;
  c.most = fmaxf(a.most, b.most);
  c.sum = a.sum * weight(a.most - c.most) + b.sum * weight(b.most - c.most);
  return c;
}

DI Soft over_warp(Soft s) {
#pragma unroll
  for (int step = 16; step; step /= 2) {
    Soft other;
    other.most = __shfl_xor_sync(~0u, s.most, step), other.sum = __shfl_xor_sync(~0u, s.sum, step);
    s = joined(s, other);
  }
  return s;
}

// Over the threads of a row, in one order; every thread gets it.
DI Soft over_row(Soft s, Soft* room) {
  s = over_warp(s);
  if (WARPS == 1) return s;
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = s;
  __syncthreads();
  return over_warp(threadIdx.x % 32 < WARPS ? room[threadIdx.x % 32] : none());
}
