// Rows in vectors: pieces of VEC elements, stores that need not stay in a cache, sums over the threads of a row.
//
// Comes in (-D): DTYPE, WARPS (of a row), VEC (elements of a load), STREAM (1: stores pass by the cache). Goes out:
// Piece, get, put, sum_of_row. Rows lie on multiples of a piece.
#pragma once
#include "element.cuh"

template <int bytes_> struct Words;
template <> struct Words<16> { typedef uint4 type; };
template <> struct Words<8> { typedef uint2 type; };
template <> struct Words<4> { typedef u32 type; };
template <> struct Words<2> { typedef u16 type; };
typedef Words<VEC * sizeof(elem)>::type word;

// VEC elements as they lie in memory.
union Piece {
  word whole;
  elem one[VEC];
  u32 two[VEC / 2 + 1];
};

DI Piece get(const elem* p) {
  Piece piece;
  piece.whole = __ldg(reinterpret_cast<const word*>(p));
  return piece;
}

DI u32 narrow_pair(float low, float high) {
  u32 r = 0;
#if DTYPE == 1
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#elif DTYPE == 0
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#endif
  return r;
}

DI void put(elem* p, const float (&v)[VEC]) {
  Piece piece;
#pragma unroll
  for (int e = 0; e < VEC; e++) {
    if (DTYPE == 2 || VEC == 1) piece.one[e] = narrow(v[e]);
    else if (e % 2) piece.two[e / 2] = narrow_pair(v[e - 1], v[e]);
  }
  if (STREAM) __stcs(reinterpret_cast<word*>(p), piece.whole);
  else *reinterpret_cast<word*>(p) = piece.whole;
}

// The sum over the threads of a row; every thread gets it. A block's second one needs a room of its own.
DI float sum_of_row(float v, float* room) {
#pragma unroll
  for (int step = 16; step; step /= 2) v += __shfl_xor_sync(~0u, v, step);
  if (WARPS == 1) return v;
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = v;
  __syncthreads();
  v = threadIdx.x % 32 < WARPS ? room[threadIdx.x % 32] : 0.f;
#pragma unroll
  for (int step = 16; step; step /= 2) v += __shfl_xor_sync(~0u, v, step);
  return v;
}
