// weights, indices = topk(softmax(x), K), some lanes of a warp a row, the row in registers.
//
// Idea: every lane holds its part of a row as ranks, whole numbers in the order of rows, and knows the first of them; K
// times the lanes agree on the first of all, and who had it looks for its next. So a warp has up to 32 rows, and nobody
// waits for another warp. Wins: rows of up to some hundred experts. Limits: rows that the registers of LANES lanes
// hold. From: vLLM's and TensorRT-LLM's kernels of the same task, which lay rows over lanes likewise.
//
// Facts of the problem (-D): DTYPE, N, K, RENORMALIZE (1: weights are divided by their sum). Of the setting: LANES (of
// a row), VEC (elements of a load), THREADS (of a block). WARPS and STREAM are for the headers.
#include "choose.cuh"

constexpr int TOGETHER = THREADS / LANES;

extern "C" __global__ void __launch_bounds__(THREADS)
lanes(const elem* __restrict__ x, float* __restrict__ weights, int* __restrict__ indices, int rows) {
  __shared__ float room[TOGETHER][K];
  const int lane = threadIdx.x % LANES, own = threadIdx.x / LANES;
  // Lanes of a warp agree together: those beyond the last row do it once more, and write nothing.
  const u64 asked = (u64)blockIdx.x * TOGETHER + own;
  const bool has = asked < rows;
  const u64 row = has ? asked : rows - 1;
  Part part;
  bring_part(part, x + row * N, lane);
  Best mine = best_of_thread(part, lane, -1), best = best_of_lanes<LANES>(mine);
  const float most = number_of(best.rank);
  float sum = 0.f;
  if (!RENORMALIZE) {
    sum = sum_of_thread(part, most);
#pragma unroll
    for (int step = LANES / 2; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  }
#pragma unroll 1
  for (int i = 0; i < K; i++) {
    const float w = weight(number_of(best.rank) - most);
    if (RENORMALIZE) sum += w;
    if (lane == 0) {
      room[own][i] = w;
      if (has) indices[row * K + i] = best.at;
    }
    if (i + 1 < K) {
      if (mine.at == best.at) mine = best_of_thread(part, lane, best.at);
      best = best_of_lanes<LANES>(mine);
    }
  }
  __syncwarp();
  if (has) {
    for (int i = lane; i < K; i += LANES) weights[row * K + i] = room[own][i] / sum;
  }
}
