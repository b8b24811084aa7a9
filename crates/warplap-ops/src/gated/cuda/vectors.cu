// y = act(a), joined with b, some vectors of a row a thread, arithmetic in float32.
//
// Idea: rows are cut into vectors and these are counted through all rows. A block has neighbouring ones, a thread every
// THREADS-th of them: it asks for all of them, then activates two elements at a time and writes. Wins: everything, at
// the speed of memory. Limits: vectors lie on their own size: VEC divides COLUMNS and the elements from a row to the
// next. Where the idea comes from: it is what compilers of such chains make. Facts of the problem (-D): DTYPE, COLUMNS
// (of a row), ACT and JOIN (epilogue.cuh). Of the setting: THREADS, UNROLL (vectors of a thread), VEC (elements of a
// vector), STREAM (1: stores that need not stay in a cache).
#define WARPS 1
#include "ampere.cuh"
#include "epilogue.cuh"
#include "rows.cuh"
static_assert(COLUMNS % VEC == 0, "vectors lie on their own size");

// What is read is not __restrict__: that would let the assembler lift loads over the wait for the kernel in front.
extern "C" __global__ void __launch_bounds__(THREADS)
vectors(const elem* a, const elem* b, elem* y, int rows, u64 lda, u64 ldb) {
  constexpr u32 ROW = COLUMNS / VEC;
  const u64 all = (u64)rows * ROW, first = (u64)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
  overlap_begin();
  if (first >= all) return;
  Piece own[UNROLL], other[UNROLL];
#pragma unroll
  for (int i = 0; i < UNROLL; i++) {
    const u64 at = first + i * THREADS;
    if (at >= all) break;
    // No tensor has more vectors than 32 bits count.
    const u32 row = (u32)at / ROW, column = (u32)at % ROW * VEC;
    own[i] = get(a + row * lda + column);
    if (JOIN) other[i] = get(b + row * ldb + column);
  }
#pragma unroll
  for (int i = 0; i < UNROLL; i++) {
    const u64 at = first + i * THREADS;
    if (at >= all) break;
    float v[VEC];
#pragma unroll
    for (int e = 0; e < VEC; e++) v[e] = widen(own[i].one[e]);
    if (VEC == 1) v[0] = activate(v[0]);
#pragma unroll
    for (int e = 0; e + 1 < VEC; e += 2) activate_two(v[e], v[e + 1]);
    if (JOIN)
#pragma unroll
      for (int e = 0; e < VEC; e++) v[e] = with_other(v[e], widen(other[i].one[e]));
    put(y + at * VEC, v);
  }
}
