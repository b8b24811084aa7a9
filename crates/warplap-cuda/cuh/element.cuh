// Elements in memory and their values in float: what kernels of any type include. DTYPE (-D): 0 f16, 1 bf16, 2 f32.
#pragma once
#if DTYPE == 2
typedef float elem;
__device__ __forceinline__ float widen(elem x) { return x; }
__device__ __forceinline__ elem narrow(float x) { return x; }
#elif DTYPE == 1
typedef unsigned short elem;
__device__ __forceinline__ float widen(elem x) { return __uint_as_float((unsigned)x << 16); }
__device__ __forceinline__ elem narrow(float x) {
  elem r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
#else
typedef unsigned short elem;
__device__ __forceinline__ float widen(elem x) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x));
  return f;
}
__device__ __forceinline__ elem narrow(float x) {
  elem r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
#endif
