// Helper of every variant, behind it.
//
// Sums over the parts of columns that other blocks left: the gradients of weight and bias.
//
// Idea: 32 columns a block, a warp takes every 16th part, in one order; loads of several parts are under way at once, for
// what a block waits for is how long they take. Parts lie as [part][weight, bias][column].
// Facts of the problem (-D): DTYPE, WEIGHT, BIAS (1: the problem has it).
#include "element.cuh"
#define WARPS 16

extern "C" __global__ void __launch_bounds__(32 * WARPS)
columns(const float* __restrict__ parts, elem* __restrict__ dweight, elem* __restrict__ dbias, int count, int n) {
  __shared__ float room[2][WARPS][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
  float weight = 0.f, bias = 0.f;
  if (column < n)
#pragma unroll 8
    for (int part = warp; part < count; part += WARPS) {
      if (WEIGHT) weight += parts[(u64)part * 2 * n + column];
      if (BIAS) bias += parts[(u64)part * 2 * n + n + column];
    }
  room[0][warp][lane] = weight, room[1][warp][lane] = bias;
  __syncthreads();
  if (warp || column >= n) return;
  for (int i = 1; i < WARPS; i++) weight += room[0][i][lane], bias += room[1][i][lane];
  if (WEIGHT) dweight[column] = narrow(weight);
  if (BIAS) dbias[column] = narrow(bias);
}
