// Elements in double precision, under the names of element.cuh and in its place: what a right answer is computed of
// where that is itself a right answer, which nobody has rounded.
#pragma once
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
#ifndef DI
#define DI __device__ __forceinline__
#endif
typedef double elem;
DI double widen(elem x) { return x; }
