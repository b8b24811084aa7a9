// A thread's part of a row as ranks in registers, and the first of what is left of it.
//
// Comes in (-D): N (elements of a row), VEC (elements of a load) and what soft.cuh takes; behind a constant LANES, the
// threads of a row. Goes out: Part, Best, bring_part, best_of_thread, sum_of_thread, best_of_lanes. Of equal ones the
// first is the one with the lower index.
#pragma once
#include "soft.cuh"
#include "order.cuh"

constexpr int PIECES = N / VEC, PER = (PIECES + LANES - 1) / LANES;
constexpr bool WHOLE = PIECES % LANES == 0;
static_assert(N % VEC == 0, "vectors lie on their own size");

// Ranks; 0 where there is nothing, or nothing any more.
struct Part {
  u32 rank[PER][VEC];
};

// A rank and its index; N where there is nothing.
struct Best {
  u32 rank;
  int at;
};

DI Best nobody() {
  Best b;
  b.rank = 0, b.at = N;
  return b;
}

DI void bring_part(Part& part, const elem* x, int lane) {
#pragma unroll
  for (int j = 0; j < PER; j++) {
    const int at = (j * LANES + lane) * VEC;
    if (WHOLE || at < N) {
      const Piece piece = get(x + at);
#pragma unroll
      for (int e = 0; e < VEC; e++) part.rank[j][e] = rank_of(widen(piece.one[e]));
    } else {
#pragma unroll
      for (int e = 0; e < VEC; e++) part.rank[j][e] = 0;
    }
  }
}

// The first of a thread's part once an index is taken out of it.
DI Best best_of_thread(Part& part, int lane, int without) {
  Best best = nobody();
#pragma unroll
  for (int j = 0; j < PER; j++) {
#pragma unroll
    for (int e = 0; e < VEC; e++) {
      const int at = (j * LANES + lane) * VEC + e;
      if (at == without) part.rank[j][e] = 0;
      if (part.rank[j][e] > best.rank) best.rank = part.rank[j][e], best.at = at;
    }
  }
  return best;
}

DI float sum_of_thread(const Part& part, float most) {
  float sum = 0.f;
#pragma unroll
  for (int j = 0; j < PER; j++) {
#pragma unroll
    for (int e = 0; e < VEC; e++) {
      if (part.rank[j][e]) sum += weight(number_of(part.rank[j][e]) - most);
    }
  }
  return sum;
}

// The first over so many lanes of a warp that lie side by side; every one gets it.
template <int lanes> DI Best best_of_lanes(Best b) {
  if (lanes == 32) {
    u32 rank, at;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(rank) : "r"(b.rank));
    asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(at) : "r"(b.rank == rank ? (u32)b.at : (u32)N));
    b.rank = rank, b.at = (int)at;
    return b;
  }
#pragma unroll
  for (int step = lanes / 2; step; step /= 2) {
    Best other;
    other.rank = __shfl_xor_sync(~0u, b.rank, step), other.at = __shfl_xor_sync(~0u, b.at, step);
    if (other.rank > b.rank || (other.rank == b.rank && other.at < b.at)) b = other;
  }
  return b;
}
