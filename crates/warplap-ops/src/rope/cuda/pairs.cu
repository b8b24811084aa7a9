// Heads turned by their positions, both halves of several heads in a thread's registers, arithmetic in float32.
//
// Idea: a thread has the same columns of some heads of a row: it asks for all of them by vector loads, then for its
// cosines and sines, once for all heads, and writes each head as it is turned. Threads of a warp lie side by side along a
// head and over to the next. What is not turned goes through the same loads, or is left alone where it stays as it is.
// Wins: everything. Limits: vectors lie on their own size: VEC divides D, ROT / 2 (ROT, of neighbours, where VEC is even)
// and the elements from a row to the next. Where the idea comes from: the usual kernels (vLLM, FlashInfer) have a block a
// token; here rows share a block, so that few heads fill it too. Facts of the problem (-D): rope.cuh lists them. Of the
// setting: THREADS, EACH (heads of a thread), VEC (elements of a load), TVEC (the same of the table), STREAM (1: stores
// that need not stay in a cache).
#define WARPS 1
#include "ampere.cuh"
#include "rope.cuh"
#include "rows.cuh"

// Vectors of a piece, pieces of a head, heads that are touched, and threads that share them.
constexpr int SPAN = INTERLEAVED ? 1 : 2, PAIRED = ROT / (SPAN * VEC);
constexpr int PIECES = PAIRED + (RESTS ? (D - ROT) / VEC : 0), REACHED = RESTS ? HEADS : TURNED;
constexpr int GROUPS = (REACHED + EACH - 1) / EACH;
static_assert(ROT % (SPAN * VEC) == 0 && D % VEC == 0 && (!INTERLEAVED || VEC % 2 == 0), "vectors lie on their own size");

DI Piece bring(const elem* p) {
  if (!INPLACE) return get(p);
  // What the kernel itself overwrites comes the ordinary way.
  Piece piece;
  piece.whole = *reinterpret_cast<const word*>(p);
  return piece;
}

template <int count_> DI void angles(const angle* p, float (&v)[count_]) {
  constexpr int STEP = TVEC < count_ ? TVEC : count_;
  typedef typename Words<STEP * sizeof(angle)>::type bits;
  union {
    bits whole;
    angle one[STEP];
  } some;
#pragma unroll
  for (int i = 0; i < count_; i += STEP) {
    some.whole = __ldg(reinterpret_cast<const bits*>(p + i));
#pragma unroll
    for (int e = 0; e < STEP; e++) v[i + e] = widen_angle(some.one[e]);
  }
}

// The columns of a vector of elements that begins at one of them.
DI void spread(const angle* line, int at, float (&v)[VEC]) {
  if (WIDE || !INTERLEAVED) return angles<VEC>(line + (WIDE || at < HALF ? at : at - HALF), v);
  float few[VEC > 1 ? VEC / 2 : 1];
  angles(line + at / 2, few);
#pragma unroll
  for (int e = 0; e < VEC; e++) v[e] = few[e / 2];
}

DI void biased(float (&v)[VEC], const Piece& piece, const elem* bias) {
#pragma unroll
  for (int e = 0; e < VEC; e++) v[e] = widen(piece.one[e]);
  if (!BIAS) return;
  const Piece more = get(bias);
#pragma unroll
  for (int e = 0; e < VEC; e++) v[e] += widen(more.one[e]);
}

// What is read is not __restrict__: that would let the assembler lift loads over the wait for the kernel in front. Nor is
// any asked for before the branch behind it.
extern "C" __global__ void __launch_bounds__(THREADS)
pairs(const elem* x, const elem* k, const angle* cos, const angle* sin, const place* positions, const elem* bias, elem* y,
      elem* yk, int rows, int n, int ld, int ldk, int ldt) {
  const Heads heads = {x, k, y, yk, ld, ldk};
  const u64 item = (u64)blockIdx.x * THREADS + threadIdx.x;
  const int piece = item % PIECES, group = item / PIECES % GROUPS;
  const u64 row = item / ((u64)PIECES * GROUPS);
  overlap_begin();
  if (row >= rows) return;
  const bool paired = piece < PAIRED;
  const int at = paired ? piece * VEC : ROT + (piece - PAIRED) * VEC;
  Piece first[EACH], second[EACH];
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int head = group + i * GROUPS;
    if (head >= REACHED) continue;
    first[i] = bring(heads.from(row, head) + at);
    if (SPAN == 2 && paired) second[i] = bring(heads.from(row, head) + at + HALF);
  }
  // The factor of an element itself, and of its other one.
  float own[SPAN][VEC], other[SPAN][VEC];
  if (paired) {
    const long long line = line_of(positions, row, n);
    if (line >= 0) {
      float sines[SPAN][VEC];
#pragma unroll
      for (int s = 0; s < SPAN; s++) spread(cos + line * ldt, at + s * HALF, own[s]), spread(sin + line * ldt, at + s * HALF, sines[s]);
#pragma unroll
      for (int e = 0; e < VEC; e++) {
        if (SPAN == 2) {
          other[0][e] = BACK ? sines[SPAN - 1][e] : -sines[0][e];
          other[SPAN - 1][e] = BACK ? -sines[0][e] : sines[SPAN - 1][e];
        } else {
          const float s = sines[0][BACK ? e ^ 1 : e];
          other[0][e] = (e ^ BACK) % 2 ? s : -s;
        }
      }
    } else {
#pragma unroll
      for (int s = 0; s < SPAN; s++)
#pragma unroll
        for (int e = 0; e < VEC; e++) own[s][e] = other[s][e] = __int_as_float(0x7fffffff);
    }
  }
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int head = group + i * GROUPS;
    if (head >= REACHED) continue;
    elem* to = heads.to(row, head) + at;
    float a[VEC], b[VEC];
    biased(a, first[i], bias + head * D + at);
    if (SPAN == 2 && paired) {
      biased(b, second[i], bias + head * D + at + HALF);
      if (PLAIN == 0 || head < TURNED) {
#pragma unroll
        for (int e = 0; e < VEC; e++) {
          const float va = a[e], vb = b[e];
          a[e] = fmaf(va, own[0][e], vb * other[0][e]), b[e] = fmaf(vb, own[SPAN - 1][e], va * other[SPAN - 1][e]);
        }
      }
      put(to + HALF, b);
    } else if (SPAN == 1 && paired && (PLAIN == 0 || head < TURNED)) {
#pragma unroll
      for (int e = 0; e + 1 < VEC; e += 2) {
        const float va = a[e], vb = a[e + 1];
        a[e] = fmaf(va, own[0][e], vb * other[0][e]), a[e + 1] = fmaf(vb, own[0][e + 1], va * other[0][e + 1]);
      }
    }
    put(to, a);
  }
}
