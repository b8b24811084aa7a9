// What happens to a product before it is stored: a bias per column of C, then an activation, in float32 on what the kernel holds in registers.
// Comes in: -DBIAS=1 (the kernel's last parameter is the bias, N elements), -DACT=0 none, 1 relu, 2 gelu (tanh form), 3 gelu (erf), 4 silu.
// Without either every function here gives back what it was given and leaves no instruction behind.
#include "element.cuh"
#ifndef BIAS
#define BIAS 0
#endif
#ifndef ACT
#define ACT 0
#endif
#if BIAS
#define BIAS_PARAMETER , const elem* __restrict__ bias
#else
#define BIAS_PARAMETER
constexpr const elem* bias = nullptr;
#endif

DI float activate(float x) {
#if ACT == 1
  return x < 0.f ? 0.f : x; // NaN stays NaN
#elif ACT == 2
  return __fdividef(x, 1.f + __expf(-1.5957691216f * (x + 0.044715f * x * x * x))); // x * (1 + tanh(u)) / 2 = x / (1 + exp(-2u))
#elif ACT == 3
  return 0.5f * x * (1.f + erff(0.7071067812f * x));
#elif ACT == 4
  return __fdividef(x, 1.f + __expf(-x));
#else
  return x;
#endif
}

// The bias of a column; past the last one nothing is read.
DI float bias_of(const elem* b, int col, int N) { return BIAS && col < N ? widen(b[col]) : 0.f; }

// One value of a column.
DI float finished(float x, const elem* b, int col, int N) {
  if (BIAS) x += bias_of(b, col, N);
  return activate(x);
}

// Accumulator fragments of 8 columns each, as wgmma and mma.sync hold them: four values of a lane, two columns in two rows. `col` is the first column.
template <int r_> DI void finish_fragments(float (&d)[r_], const elem* b, int col, int N) {
  if (!BIAS && !ACT) return;
  const int c = col + (threadIdx.x & 3) * 2;
#pragma unroll
  for (int q = 0; q < r_ / 4; q++) {
    const float left = bias_of(b, c + q * 8, N), right = bias_of(b, c + q * 8 + 1, N);
    d[q * 4] = activate(d[q * 4] + left), d[q * 4 + 1] = activate(d[q * 4 + 1] + right);
    d[q * 4 + 2] = activate(d[q * 4 + 2] + left), d[q * 4 + 3] = activate(d[q * 4 + 3] + right);
  }
}
