// Numbers as codes of 8 bits with one factor a row: what a row's largest magnitude is, and the codes of what was
// multiplied with TOP over it. Comes in: -DQUANT=0 (none), 1 (f8e4m3) or 2 (signed bytes). Goes out: u8, LEAST, TOP,
// larger, code, code_pair.
#pragma once
#include "element.cuh"
typedef unsigned char u8;

// The least magnitude that a row is said to reach: a row of zeros gets codes of zero and a factor that is one.
constexpr float LEAST = 1e-30f;
// The code that the largest of a row gets.
constexpr float TOP = QUANT == 2 ? 127.f : 448.f;

// The larger of two; what is no number stays.
DI float larger(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a > b || a != a ? a : b;
#endif
}

// Chips before sm_89 have no instruction for it: three bits of mantissa are kept and the exponent is 120 less; behind
// 2^14 a float's last place is the step of the smallest codes.
DI u32 e4m3(float x) {
  const float size = fminf(fabsf(x), 448.f);
  const u32 bits = __float_as_uint(size);
  const u32 normal = ((bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20) - (120u << 3);
  const u32 small = __float_as_uint(size + 16384.f) - __float_as_uint(16384.f);
  const u32 code = x != x ? 0x7fu : size < 0.015625f ? small : normal;
  return code | (__float_as_uint(x) >> 24 & 0x80u);
}

// Two codes, the first in the low byte: the nearest, ties to even. Nothing is beyond TOP by more than a rounding, since
// factors are those of a row's largest.
DI u16 code_pair(float low, float high) {
#if QUANT == 2
  // Behind 1.5 * 2^23 a float's last place is one.
  return (u16)__byte_perm(__float_as_uint(low + 12582912.f), __float_as_uint(high + 12582912.f), 0x0040);
#elif __CUDA_ARCH__ >= 890
  u16 r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
  return r;
#else
  return (u16)(e4m3(low) | e4m3(high) << 8);
#endif
}

DI u8 code(float x) { return (u8)code_pair(x, 0.f); }
