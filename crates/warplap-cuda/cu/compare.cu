// What proofs ask of memory that lies on the device. Comes in: an output between its guard bands and the right answer
// in double precision (PART 0), or any buffer (PART 1). Goes out, for every block: the largest share of the allowed
// error, and its part of the seal of what it read. The seal is a sum over the elements, each mixed with its place: a
// changed, moved or missing element changes it, the order of adding does not. DTYPE is 0 (f16), 1 (bf16), 2 (f32), 3
// (f64), 4 (i32), 5 (i64), 6 (i8), 7 (u8), 8 (bool), 9 (f8e4m3) or 10 (f8e5m2).
#include "element.cuh"
#include "mixed.cuh"
#define THREADS 256

#if DTYPE == 3
typedef double value;
DI double exact(value x) { return x; }
#elif DTYPE == 4
typedef int value;
DI double exact(value x) { return x; }
#elif DTYPE == 5
typedef long long value;
DI double exact(value x) { return (double)x; }
#elif DTYPE == 6
typedef signed char value;
DI double exact(value x) { return x; }
#elif DTYPE == 7
typedef unsigned char value;
DI double exact(value x) { return x; }
#elif DTYPE == 8
// A byte that is neither 0 nor 1 was never written.
typedef unsigned char value;
DI double exact(value x) { return x > 1 ? __longlong_as_double(0x7ff8000000000000ull) : x; }
#elif DTYPE == 9
// Its fields in a half's: the half's exponent is eight steps further from one.
typedef unsigned char value;
DI double exact(value x) {
  if ((x & 0x7f) == 0x7f) return __longlong_as_double(0x7ff8000000000000ull);
  return 256. * widen((x & 0x80) << 8 | (x & 0x7f) << 7);
}
#elif DTYPE == 10
// The upper byte of a half.
typedef unsigned char value;
DI double exact(value x) { return widen(x << 8); }
#else
typedef elem value;
DI double exact(value x) { return widen(x); }
#endif

// One number of the block: the largest share and the sum of the parts.
DI void reduce(double share, u64 part, double* __restrict__ out) {
  __shared__ double shares[THREADS];
  __shared__ u64 parts[THREADS];
  shares[threadIdx.x] = share, parts[threadIdx.x] = part;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      shares[threadIdx.x] = fmax(shares[threadIdx.x], shares[threadIdx.x + half]);
      parts[threadIdx.x] += parts[threadIdx.x + half];
    }
  }
  if (threadIdx.x == 0) out[2 * blockIdx.x] = shares[0], out[2 * blockIdx.x + 1] = __longlong_as_double(parts[0]);
}

#if PART == 0
extern "C" __global__ void __launch_bounds__(THREADS)
compare(const value* __restrict__ got, const double* __restrict__ right, u64 len, u64 guard, double band, double relative, double floor, double* __restrict__ out) {
  const double wrong = __longlong_as_double(0x7ff0000000000000ull);
  const u64 first = blockIdx.x * (u64)THREADS + threadIdx.x, step = gridDim.x * (u64)THREADS;
  double worst = 0.;
  u64 seal = 0;
  for (u64 i = first; i < len; i += step) {
    const double r = right[i], v = exact(got[guard + i]), error = fabs(v - r), share = error / (floor + relative * fabs(r));
    // Padding must still be poison; and NaN, which compares false, must not slip through as "not larger". The same is
    // right, also where no error is allowed; beside an infinity nothing else is.
    const double taken = r != r ? (v != v ? 0. : wrong) : v == r ? 0. : fabs(r) == wrong || share != share ? wrong : share;
    worst = fmax(worst, taken);
    seal += mixed(__double_as_longlong(r), i);
  }
  for (u64 i = first; i < 2 * guard; i += step)
    if (!(exact(got[i < guard ? i : len + i]) == band)) worst = wrong;
  reduce(worst, seal, out);
}
#else
#if DTYPE == 3 || DTYPE == 5
typedef u64 word;
#elif DTYPE == 2 || DTYPE == 4
typedef u32 word;
#elif DTYPE > 5
typedef unsigned char word;
#else
typedef u16 word;
#endif
extern "C" __global__ void __launch_bounds__(THREADS) compare(const word* __restrict__ got, u64 len, double* __restrict__ out) {
  u64 seal = 0;
  for (u64 i = blockIdx.x * (u64)THREADS + threadIdx.x; i < len; i += gridDim.x * (u64)THREADS) seal += mixed(got[i], i);
  reduce(0., seal, out);
}
#endif
