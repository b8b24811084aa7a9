// weights, indices = topk(softmax(x), K), one block a row.
//
// Idea: the plainest kernel there is: the row is read again for each of the K, every time for the first behind the
// last. Wins: never by design; it fits everything and is the fallback. Facts of the problem (-D): DTYPE, N, K,
// RENORMALIZE (1: weights are divided by their sum).
#include "block.cuh"
#include "order.cuh"

struct Larger {
  DI u64 operator()(u64 a, u64 b) const { return a > b ? a : b; }
};

extern "C" __global__ void __launch_bounds__(THREADS)
reference(const elem* __restrict__ x, float* __restrict__ weights, int* __restrict__ indices, int rows) {
  __shared__ float values[K];
  const u64 row = blockIdx.x;
  x += row * N, weights += row * K, indices += row * K;
  // A rank and, of equal ones, the lower index first: no two are the same.
  auto key = [&](int i) { return (u64)rank_of(widen(x[i])) << 32 | (u32)~i; };
  u64 last = 0;
  for (int k = 0; k < K; k++) {
    u64 best = 0;
    for (int i = threadIdx.x; i < N; i += THREADS) {
      const u64 own = key(i);
      if ((k == 0 || own < last) && own > best) best = own;
    }
    last = of_block(best, Larger());
    if (threadIdx.x == 0) values[k] = number_of((u32)(last >> 32)), indices[k] = (int)~(u32)last;
  }
  __syncthreads();
  const float most = values[0];
  float sum = 0.f;
  if (RENORMALIZE) {
    for (int k = threadIdx.x; k < K; k += THREADS) sum += expf(values[k] - most);
  } else {
    for (int i = threadIdx.x; i < N; i += THREADS) sum += expf(widen(x[i]) - most);
  }
  sum = sum_of_block(sum);
  for (int k = threadIdx.x; k < K; k += THREADS) weights[k] = expf(values[k] - most) / sum;
}
