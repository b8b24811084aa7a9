// What happens to a product before it is stored: a factor for all of it or for each row of C, a bias per column, then an
// activation, then the element of another matrix, which lies as C does, in float32 on what the kernel holds in registers.
// Comes in: -DSCALE=1 one factor, 2 one for each row of all products of a batch (a parameter behind those of what is
// joined), -DSQUARES=1 factors are found on the way (rms.cuh), -DBIAS=1 (a parameter behind the kernel's own is the bias,
// N elements), -DACT=0 none, 1 relu, 2 gelu (tanh form), 3 gelu (erf), 4 silu, 5 tanh, 6 sigmoid, -DJOIN=1 the other
// element is added, 2 multiplied with (further parameters are the matrix and its leading dimension). -DPAIR=1 says that
// the activated product is multiplied with that of A and a second B, without a bias or another matrix (of kernels of plain
// pointers the last parameter is that B). Without them every function here gives back what it was given and leaves no
// instruction behind.
#include "element.cuh"
#ifndef BIAS
#define BIAS 0
#endif
#ifndef ACT
#define ACT 0
#endif
#ifndef JOIN
#define JOIN 0
#endif
#ifndef PAIR
#define PAIR 0
#endif
#ifndef SCALE
#define SCALE 0
#endif
#ifndef SQUARES
#define SQUARES 0
#endif
#if BIAS
// Not __restrict__: that is a promise that nobody writes it for the kernel's whole life, and the assembler may lift such
// loads over the wait for the kernel before this one.
#define BIAS_PARAMETER , const elem* bias
#else
#define BIAS_PARAMETER
constexpr const elem* bias = nullptr;
#endif
// What is joined is not __restrict__: that is a promise that nobody writes it for the kernel's whole life, and the
// assembler may lift such loads over the wait for the kernel before this one.
#if JOIN
#define JOIN_PARAMETERS , const elem* joined, u64 ldj
#else
#define JOIN_PARAMETERS
constexpr const elem* joined = nullptr;
constexpr u64 ldj = 0;
#endif
// Factors are not __restrict__ either. Where they are found on the way, there are the bits of the number under the root.
#if SQUARES
#define SCALE_PARAMETER , int under_root
constexpr const float* scale = nullptr;
#elif SCALE
#define SCALE_PARAMETER , const float* scale
#else
#define SCALE_PARAMETER
constexpr const float* scale = nullptr;
#endif
#define EPILOGUE_PARAMETERS BIAS_PARAMETER JOIN_PARAMETERS SCALE_PARAMETER
// The second B of a pair, for kernels of plain pointers.
#if PAIR
#define PAIR_PARAMETER , const elem* __restrict__ B2
#else
#define PAIR_PARAMETER
#endif

// One instruction each. erff takes registers that the largest tiles do not have: they would spill, and be refused.
DI float two_to(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
DI float inverse(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// The larger of a number and zero; NaN stays NaN.
DI float positive(float x) {
  float r;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(r) : "f"(x));
  return r;
}

// tanh(x), given what 2 / (1 + e^-2x) - 1 came to: of that nothing is left near zero, where a polynomial is off by 5e-8
// of itself. NaN takes the polynomial's side.
DI float tanh_of(float x, float far) {
  const float t = x * x;
  const float near = x + x * t * (((0.017916886f * t - 0.053354982f) * t + 0.13330062f) * t - 0.333333f);
  return fabsf(x) > 0.5f ? far : near;
}

DI float activate(float x) {
#if ACT == 1
  return x < 0.f ? 0.f : x; // NaN stays NaN
#elif ACT == 2
  return __fdividef(x, 1.f + __expf(-1.5957691216f * (x + 0.044715f * x * x * x))); // x * (1 + tanh(u)) / 2 = x / (1 + exp(-2u))
#elif ACT == 3
  // max(x, 0) - |x| * P(-|x|): the normal distribution's tail by Abramowitz and Stegun 7.1.26, off by at most 0.75e-7.
  // It is nothing from 16 on. Half of x and of |x| is the larger of x and zero, but NaN of -infinity, as for everybody.
  const float far = fminf(fabsf(x), 16.f), t = inverse(1.f + 0.23164189f * far);
  const float tail = ((((0.5307027f * t - 0.726576f) * t + 0.71070687f) * t - 0.14224837f) * t + 0.1274148f) * t;
  return fmaf(0.5f, fabsf(x), 0.5f * x) - far * tail * two_to(-0.72134752f * far * far);
#elif ACT == 4
  return __fdividef(x, 1.f + __expf(-x));
#elif ACT == 5
  return tanh_of(x, 2.f * inverse(1.f + two_to(-2.8853900818f * x)) - 1.f);
#elif ACT == 6
  return inverse(1.f + two_to(-1.4426950409f * x));
#else
  return x;
#endif
}

// Two values at once. Where a quotient is all there is to it, one inverse does for both: special functions are what the
// end of a tile waits for. A denominator is kept below 2^61, so that the product of two is a number; what would be
// divided by more is multiplied with nothing instead, which is nothing beside any rounding and NaN of an infinity.
DI void activate_two(float& x, float& y) {
#if ACT == 2 || ACT >= 4
  constexpr float log2e = 1.4426950409f;
#if ACT == 2
  const float u = -1.5957691216f * log2e * (x + 0.044715f * x * x * x), v = -1.5957691216f * log2e * (y + 0.044715f * y * y * y);
#elif ACT == 5
  const float u = -2.f * log2e * x, v = -2.f * log2e * y;
#else
  const float u = -log2e * x, v = -log2e * y;
#endif
  const float below_x = 1.f + two_to(fminf(u, 60.f)), below_y = 1.f + two_to(fminf(v, 60.f)), one = inverse(below_x * below_y);
#if ACT == 5
  x = tanh_of(x, 2.f * one * below_y - 1.f), y = tanh_of(y, 2.f * one * below_x - 1.f);
#elif ACT == 6
  // NaN was lost above, so that it does not reach its neighbour.
  constexpr float least = -41.5f; // where u comes to 60
  x = x >= least ? one * below_y : positive(x), y = y >= least ? one * below_x : positive(y);
#else
  constexpr float least = ACT == 2 ? -7.46f : -41.5f; // where u comes to 60
  x *= x < least ? 0.f : one * below_y, y *= y < least ? 0.f : one * below_x;
#endif
#else
  x = activate(x), y = activate(y);
#endif
}

// The bias of a column; past the last one nothing is read.
DI float bias_of(const elem* b, int col, int N) { return BIAS && col < N ? widen(b[col]) : 0.f; }

// The factor of a row of all products of a batch.
DI float factor_of(const float* factors, u64 row) { return SCALE ? factors[SCALE == 2 ? row : 0] : 1.f; }

// One value of a column, and the factor of its row.
DI float finished(float x, const elem* b, int col, int N, float factor) {
  if (SCALE) x *= factor;
  if (BIAS) x += bias_of(b, col, N);
  return activate(x);
}

// Accumulator fragments, as below, times the factors of their rows: `row` is the first one of M rows, which are preceded
// by `before` rows of other products.
template <int r_> DI void scale_fragments(float (&d)[r_], const float* factors, u64 before, int row, int M) {
  if (!SCALE) return;
  const int r = row + (threadIdx.x & 31) / 4;
  const float upper = r < M ? factor_of(factors, before + r) : 0.f, lower = r + 8 < M ? factor_of(factors, before + r + 8) : 0.f;
#pragma unroll
  for (int q = 0; q < r_; q++) d[q] *= q & 2 ? lower : upper;
}

// Accumulator fragments of 8 columns each, as wgmma and mma.sync hold them: four values of a lane, two columns in two
// rows. `col` is the first column. All are added to before the first is activated: side by side, the two would take
// more registers than the largest tiles leave.
template <int r_> DI void finish_fragments(float (&d)[r_], const elem* b, int col, int N) {
  const int c = col + (threadIdx.x & 3) * 2;
  if (BIAS)
#pragma unroll
    for (int q = 0; q < r_ / 4; q++) {
      const float left = bias_of(b, c + q * 8, N), right = bias_of(b, c + q * 8 + 1, N);
      d[q * 4] += left, d[q * 4 + 1] += right, d[q * 4 + 2] += left, d[q * 4 + 3] += right;
    }
  if (ACT)
#pragma unroll
    for (int q = 0; q < r_; q++) d[q] = activate(d[q]);
}

// A value and the other matrix's element, where there is one.
DI float with_other(float x, float other) { return JOIN == 2 ? x * other : x + other; }
// The same with the element of a column of the other matrix's row; past the last column nothing is read.
DI float join_at(float x, const elem* line, int col, int N) { return JOIN && col < N ? with_other(x, widen(line[col])) : x; }

// Fragments as above, whose first row and column are `row` and `col` of a matrix of M rows and N columns. Where its rows
// lie on 16 bytes two neighbours come at once (pairs_).
template <bool pairs_, int r_> DI void join_fragments(float (&d)[r_], const elem* other, u64 ld, int row, int col, int M, int N) {
  if (!JOIN) return;
  const int r = row + (threadIdx.x & 31) / 4, c = col + (threadIdx.x & 3) * 2;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    if (r + h * 8 >= M) continue;
    const elem* line = other + (u64)(r + h * 8) * ld;
#pragma unroll
    for (int q = 0; q < r_ / 4; q++) {
      float &left = d[q * 4 + h * 2], &right = d[q * 4 + h * 2 + 1];
      const int at = c + q * 8;
      if (pairs_ && sizeof(elem) == 2 && at + 1 < N) {
        const u32 two = *reinterpret_cast<const u32*>(line + at);
        left = with_other(left, widen((elem)two)), right = with_other(right, widen((elem)(two >> 16)));
      } else left = join_at(left, line, at, N), right = join_at(right, line, at + 1, N);
    }
  }
}
