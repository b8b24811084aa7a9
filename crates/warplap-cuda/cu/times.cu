// Numbers times one number, in their own place. Who wins: a factor that is one, which is most of them: a gradient of a
// loss that nobody scaled. Then nothing is read. Comes in (-D): DTYPE (element.cuh).
#include "element.cuh"
#define THREADS 256

constexpr int PER = 16 / sizeof(elem);

extern "C" __global__ void __launch_bounds__(THREADS) times(elem* __restrict__ x, const float* __restrict__ by, u64 len) {
  const float factor = *by;
  if (factor == 1.f) return;
  const u64 first = blockIdx.x * (u64)THREADS + threadIdx.x, step = gridDim.x * (u64)THREADS;
  const u64 whole = (u64)x % 16 ? 0 : len / PER;
  uint4* vectors = reinterpret_cast<uint4*>(x);
  for (u64 i = first; i < whole; i += step) {
    uint4 vector = vectors[i];
    elem* some = reinterpret_cast<elem*>(&vector);
#pragma unroll
    for (int e = 0; e < PER; e++) some[e] = narrow(widen(some[e]) * factor);
    vectors[i] = vector;
  }
  for (u64 i = whole * PER + first; i < len; i += step) x[i] = narrow(widen(x[i]) * factor);
}
