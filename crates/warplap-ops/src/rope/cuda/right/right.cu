// Heads turned by their positions in double precision: the right answer that every other kernel is held to.
//
// Idea: one block a row, a thread an element. Beside it comes the largest sum of magnitudes that an element is made of.
// What lies between rows in place is not a number. Facts of the problem (-D): rope.cuh lists them.
#include "block.cuh"
#include "rope.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
right(const elem* x, const elem* k, const angle* __restrict__ cos, const angle* __restrict__ sin, const place* __restrict__ positions,
      const elem* __restrict__ bias, double* y, double* yk, u64* magnitudes, u64 rows, u64 n, u64 ld, u64 ldk, u64 ldt) {
  const Heads heads = {x, k, nullptr, nullptr, (int)ld, (int)ldk};
  const u64 row = blockIdx.x;
  const long long line = line_of(positions, row, (int)n);
  cos += line * (long long)ldt, sin += line * (long long)ldt;
  double most = 0.;
  for (int i = threadIdx.x; i < HEADS * D; i += THREADS) {
    const int head = i / D, j = i % D;
    const elem* from = heads.from(row, head);
    auto of = [&](int j) { return (double)widen(from[j]) + (BIAS ? (double)widen(bias[head * D + j]) : 0.); };
    auto plain = [&](int j) { return fabs((double)widen(from[j])) + (BIAS ? fabs((double)widen(bias[head * D + j])) : 0.); };
    double value = of(j), terms = plain(j);
    if (head < TURNED && j < ROT) {
      const double c = widen_angle(cos[column_of(j)]), plus = widen_angle(sin[column_of(sine_of(j))]);
      const double s = is_first(sine_of(j)) ? -plus : plus;
      value = value * c + of(other_of(j)) * s;
      terms = terms * fabs(c) + plain(other_of(j)) * fabs(s);
    }
    most = fmax(most, terms);
    if (head < H) y[row * (INPLACE ? ld : H * D) + i] = value;
    else yk[row * (INPLACE ? ldk : HK * D) + i - H * D] = value;
  }
  raise(magnitudes, most);
  if (!INPLACE || row + 1 == rows) return;
  const double nothing = __longlong_as_double(0x7ff8000000000000ll);
  for (u64 i = H * D + threadIdx.x; i < ld; i += THREADS) y[row * ld + i] = nothing;
  if (HK)
    for (u64 i = HK * D + threadIdx.x; i < ldk; i += THREADS) yk[row * ldk + i] = nothing;
}
