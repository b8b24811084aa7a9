// Numbers in double precision that lie on the device, which proofs of chains are made of. PART 0: elements come in
// (DTYPE 0 f16, 1 bf16, 2 f32, 3 f64), the same in double precision go out. PART 1: numbers are moved by a share of
// what they may be off by, as `shift.rs` says. PART 2: the largest difference of numbers in the same places goes out,
// but for those that are not finite; it is raised as a whole number, since bits of numbers that are not negative are
// ordered as the numbers are.
#include "element.cuh"
#include "mixed.cuh"
#define THREADS 256

DI bool is_finite(double x) { return fabs(x) < __longlong_as_double(0x7ff0000000000000ll); }

// The share that a number is moved by: anything, all of it to either side, to one side, or away from zero.
DI double share_of(u64 kind, double x, u64 stream, u64 place) {
  if (kind == 0) return (double)(mixed(stream, place) >> 11) * 0x1p-52 - 1.;
  if (kind == 1) return 1. - 2. * (double)(mixed(stream, place) >> 63);
  return kind == 2 ? 1. : copysign(1., x);
}

#if PART == 0
extern "C" __global__ void __launch_bounds__(THREADS)
widened(const elem* __restrict__ from, double* __restrict__ to, u64 len) {
  for (u64 i = blockIdx.x * (u64)THREADS + threadIdx.x; i < len; i += gridDim.x * (u64)THREADS) to[i] = widen(from[i]);
}
#elif PART == 1
extern "C" __global__ void __launch_bounds__(THREADS)
shifted(double* __restrict__ values, u64 len, u64 kind, u64 stream, double relative, double floor) {
  for (u64 i = blockIdx.x * (u64)THREADS + threadIdx.x; i < len; i += gridDim.x * (u64)THREADS) {
    const double x = values[i];
    if (is_finite(x)) values[i] = x + share_of(kind, x, stream, i) * (floor + relative * fabs(x));
  }
}
#else
extern "C" __global__ void __launch_bounds__(THREADS)
distance(const double* __restrict__ a, const double* __restrict__ b, u64 len, u64* __restrict__ most) {
  double far = 0.;
  for (u64 i = blockIdx.x * (u64)THREADS + threadIdx.x; i < len; i += gridDim.x * (u64)THREADS) {
    const double off = fabs(a[i] - b[i]);
    if (is_finite(off)) far = fmax(far, off);
  }
  for (int step = 16; step; step /= 2) far = fmax(far, __shfl_xor_sync(~0u, far, step));
  if (threadIdx.x % 32 == 0) atomicMax(most, (u64)__double_as_longlong(far));
}
#endif
