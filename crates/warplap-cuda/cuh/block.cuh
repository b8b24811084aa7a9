// Sums and the largest of all threads of a block, in one order, and magnitudes that blocks raise together: what right
// answers and plain kernels of rows share. Includes element.cuh. Blocks have THREADS threads.
#pragma once
#include "element.cuh"
#define THREADS 256

struct Add {
  template <class T> DI T operator()(T a, T b) const { return a + b; }
};
struct Most {
  DI double operator()(double a, double b) const { return fmax(a, b); }
  DI float operator()(float a, float b) const { return fmaxf(a, b); }
};

// What joins the values of all threads: every thread has it.
template <class T, class Join> DI T of_block(T v, Join join) {
  __shared__ T room[THREADS];
  __syncthreads();
  room[threadIdx.x] = v;
  for (int half = THREADS / 2; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) room[threadIdx.x] = join(room[threadIdx.x], room[threadIdx.x + half]);
  }
  __syncthreads();
  return room[0];
}
template <class T> DI T sum_of_block(T v) { return of_block(v, Add()); }
template <class T> DI T most_of_block(T v) { return of_block(v, Most()); }

// The sum, and the largest, over the lanes of a warp that differ in the bits below `width`.
DI double sum_of(double x, int width) {
  for (int step = width / 2; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}
DI double most_of(double x, int width) {
  for (int step = width / 2; step; step /= 2) x = fmax(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

// Numbers that are not negative are ordered as their bits are.
DI void raise_by_one(u64* place, double x) { atomicMax(place, (u64)__double_as_longlong(x)); }
// The same by all lanes of a warp.
DI void raise(u64* place, double x) {
  x = most_of(x, 32);
  if (threadIdx.x % 32 == 0) raise_by_one(place, x);
}
