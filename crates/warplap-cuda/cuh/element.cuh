// Elements as they lie in memory, and as float32. Comes in: -DDTYPE=0 (f16), 1 (bf16) or 2 (f32). Goes out: elem,
// widen, narrow. Of 3 (f64), which right answers are made of where these are right answers themselves, nothing is made
// narrower.
#pragma once
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
#ifndef DI
#define DI __device__ __forceinline__
#endif
#if DTYPE == 3
typedef double elem;
DI double widen(elem x) { return x; }
#elif DTYPE == 2
typedef float elem;
DI float widen(elem x) { return x; }
DI elem narrow(float x) { return x; }
#else
typedef u16 elem;
#if DTYPE == 1
DI float widen(elem x) { return __uint_as_float((u32)x << 16); }
DI elem narrow(float x) {
  u16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
#else
DI float widen(elem x) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x));
  return f;
}
DI elem narrow(float x) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
#endif
#endif
