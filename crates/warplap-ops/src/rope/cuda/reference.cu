// Heads turned by their positions, one block a row, arithmetic in float32.
//
// Idea: the plainest kernel there is: a thread a pair, both elements of which it reads before it writes them. Wins: never
// by design; it fits everything and is the fallback. Facts of the problem (-D): rope.cuh lists them.
#include "rope.cuh"

extern "C" __global__ void __launch_bounds__(256)
reference(const elem* x, const elem* k, const angle* __restrict__ cos, const angle* __restrict__ sin, const place* __restrict__ positions,
          const elem* __restrict__ bias, elem* y, elem* yk, int rows, int n, int ld, int ldk, int ldt) {
  const Heads heads = {x, k, y, yk, ld, ldk};
  const u64 row = blockIdx.x;
  const long long line = line_of(positions, row, n);
  cos += line * ldt, sin += line * ldt;
  for (int i = threadIdx.x; i < TURNED * HALF; i += 256) {
    const int head = i / HALF, a = INTERLEAVED ? 2 * (i % HALF) : i % HALF, b = other_of(a);
    const elem* from = heads.from(row, head);
    elem* to = heads.to(row, head);
    const float va = widen(from[a]) + (BIAS ? widen(bias[head * D + a]) : 0.f);
    const float vb = widen(from[b]) + (BIAS ? widen(bias[head * D + b]) : 0.f);
    auto turned = [&](float own, float other, int j) {
      if (line < 0) return __int_as_float(0x7fffffff);
      const float s = widen_angle(sin[column_of(sine_of(j))]);
      return own * widen_angle(cos[column_of(j)]) + other * (is_first(sine_of(j)) ? -s : s);
    };
    to[a] = narrow(turned(va, vb, a)), to[b] = narrow(turned(vb, va, b));
  }
  if (!RESTS) return;
  for (int i = threadIdx.x; i < HEADS * D; i += 256) {
    const int head = i / D, j = i % D;
    if (head < TURNED && j < ROT) continue;
    heads.to(row, head)[j] = narrow(widen(heads.from(row, head)[j]) + (BIAS ? widen(bias[i]) : 0.f));
  }
}
