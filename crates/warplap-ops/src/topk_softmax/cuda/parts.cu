// weights, indices = topk(softmax(x), K), one block a row, the row in registers.
//
// Idea: every warp chooses the first K of its own part, as `lanes.cu` does of a row, without waiting for the others;
// the first warp then joins these sorted lists by their heads. Threads meet twice a row, not K times. Wins: long rows.
// Limits: rows that the registers of WARPS warps hold.
//
// Facts of the problem (-D): DTYPE, N, K, RENORMALIZE (1: weights are divided by their sum). Of the setting: WARPS (of
// a row), VEC (elements of a load). STREAM is for the headers.
constexpr int LANES = 32 * WARPS;
#include "choose.cuh"
static_assert(WARPS <= 32, "a warp has a lane for each list");

extern "C" __global__ void __launch_bounds__(LANES)
parts(const elem* __restrict__ x, float* __restrict__ weights, int* __restrict__ indices, int) {
  __shared__ Soft softs[WARPS];
  __shared__ Best lists[WARPS][K];
  __shared__ float room[K];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const u64 row = blockIdx.x;
  Part part;
  bring_part(part, x + row * N, thread);
  Best mine = best_of_thread(part, thread, -1);
  Soft all = none();
  if (!RENORMALIZE) {
    Soft soft = none();
    if (mine.rank) soft.most = fmaxf(soft.most, number_of(mine.rank)), soft.sum = sum_of_thread(part, soft.most);
    all = over_row(soft, softs);
  }
#pragma unroll 1
  for (int i = 0; i < K; i++) {
    const Best best = best_of_lanes<32>(mine);
    if (lane == 0) lists[warp][i] = best;
    if (best.rank && mine.at == best.at) mine = best_of_thread(part, thread, best.at);
  }
  __syncthreads();
  if (warp) return;
  int next = 0;
  Best head = lane < WARPS ? lists[lane][0] : nobody();
  float most = all.most, sum = all.sum;
#pragma unroll 1
  for (int i = 0; i < K; i++) {
    const Best best = best_of_lanes<32>(head);
    const float v = number_of(best.rank);
    if (RENORMALIZE && i == 0) most = v, sum = 0.f;
    const float w = weight(v - most);
    if (RENORMALIZE) sum += w;
    if (lane == 0) room[i] = w, indices[row * K + i] = best.at;
    if (head.at == best.at) head = ++next < K ? lists[lane][next] : nobody();
  }
  __syncwarp();
  for (int i = lane; i < K; i += 32) weights[row * K + i] = room[i] / sum;
}
