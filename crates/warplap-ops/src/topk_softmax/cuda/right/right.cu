// weights, indices = topk(softmax(x), K) in double precision: the right answer that every other kernel is held to.
//
// Idea: one block a row, which is read again for each of the K. Indices are decided by what x is, and are doubles as
// all right answers are. Beside them comes how far exponents reach, which the weights' tolerance is made of. Facts of
// the problem (-D): DTYPE, N, K, RENORMALIZE (1: weights are divided by their sum).
#include "block.cuh"
#include "order.cuh"

struct Larger {
  DI u64 operator()(u64 a, u64 b) const { return a > b ? a : b; }
};

extern "C" __global__ void __launch_bounds__(THREADS)
right(const elem* __restrict__ x, double* __restrict__ weights, double* __restrict__ indices, u64* __restrict__ reach) {
  __shared__ double values[K];
  const u64 row = blockIdx.x;
  x += row * N;
  u64 last = 0;
  for (int k = 0; k < K; k++) {
    u64 best = 0;
    for (int i = threadIdx.x; i < N; i += THREADS) {
      const u64 own = (u64)rank_of(widen(x[i])) << 32 | (u32)~i;
      if ((k == 0 || own < last) && own > best) best = own;
    }
    last = of_block(best, Larger());
    if (threadIdx.x == 0) values[k] = number_of((u32)(last >> 32)), indices[row * K + k] = (int)~(u32)last;
  }
  __syncthreads();
  const double most = values[0];
  double sum = 0., far = 0.;
  // The row, and behind it who was chosen: with one exponential in the text none becomes a call.
  for (int i = threadIdx.x; i < N + K; i += THREADS) {
    const bool chosen = i >= N;
    const double v = chosen ? values[i - N] : widen(x[i]), weight = exp(v - most);
    if (chosen) weights[row * K + i - N] = weight;
    if (chosen == RENORMALIZE) sum += weight;
    if (weight > 1e-30) far = fmax(far, fabs(v) + fabs(most));
  }
  raise(reach, far);
  sum = sum_of_block(sum);
  for (int k = threadIdx.x; k < K; k += THREADS) weights[row * K + k] /= sum;
}
