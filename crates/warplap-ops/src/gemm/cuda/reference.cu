// C = A·B, one thread an element, 16x16 tiles through shared memory, float32 sums. Any layout, any shape, any leading dimension.
//
// Idea: the plainest kernel that is still readable work for a GPU. Wins: never by design; it fits everything and is the fallback.
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16, 2 f32), A_COL, B_COL (1: column-major).
typedef unsigned short u16;
typedef unsigned long long u64;
#if DTYPE == 2
typedef float elem;
__device__ __forceinline__ float widen(elem x) { return x; }
__device__ __forceinline__ elem narrow(float x) { return x; }
#else
typedef u16 elem;
#if DTYPE == 1
__device__ __forceinline__ float widen(elem x) { return __uint_as_float((unsigned)x << 16); }
__device__ __forceinline__ elem narrow(float x) {
  u16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
#else
__device__ __forceinline__ float widen(elem x) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x));
  return f;
}
__device__ __forceinline__ elem narrow(float x) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
#endif
#endif
#define T 16

extern "C" __global__ void __launch_bounds__(T * T)
reference(const elem* __restrict__ A, const elem* __restrict__ B, elem* __restrict__ C, int M, int N, int K, u64 lda, u64 ldb, u64 ldc) {
  __shared__ float a[T][T + 1], b[T][T + 1];
  const int x = threadIdx.x % T, y = threadIdx.x / T, tn = (N + T - 1) / T;
  const int row0 = blockIdx.x / tn * T, col0 = blockIdx.x % tn * T;
  float sum = 0.f;
  for (int k0 = 0; k0 < K; k0 += T) {
    // Neighbouring threads read neighbouring addresses in either order.
    const int ar = row0 + (A_COL ? x : y), ak = k0 + (A_COL ? y : x), bk = k0 + (B_COL ? x : y), bc = col0 + (B_COL ? y : x);
    const float va = ar < M && ak < K ? widen(A[A_COL ? ak * lda + ar : ar * lda + ak]) : 0.f;
    const float vb = bk < K && bc < N ? widen(B[B_COL ? bc * ldb + bk : bk * ldb + bc]) : 0.f;
    a[A_COL ? x : y][A_COL ? y : x] = va;
    b[B_COL ? x : y][B_COL ? y : x] = vb;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < T; i++) sum = fmaf(a[y][i], b[i][x], sum);
    __syncthreads();
  }
  if (row0 + y < M && col0 + x < N) C[(row0 + y) * ldc + col0 + x] = narrow(sum);
}
