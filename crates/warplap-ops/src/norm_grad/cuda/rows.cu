// Gradients of a norm, blocks that walk the rows, a row and sums over rows in registers, float32 sums.
//
// Idea: every thread brings its part of s and of the gradient by vector loads, keeps both as they came, and has the same
// columns in every row: its sums over rows never leave registers until the end, when each block writes a row of them.
// What bounds short rows is how long a load takes, so a block may have several rows at once (TOGETHER), which wait for
// nobody and leave one row of sums. All that a row is summed up for but its mean crosses its warps at once. Wins:
// everything. Limits: rows that registers hold; VEC divides N, so that vectors lie on their own size; buffers lie on 16
// bytes. Tried: asking for the next row while this one is summed up, which costs registers and gains nothing. Facts of
// the problem (-D): DTYPE, LAYER, WEIGHT, BIAS, TOTAL, DROPOUT, N (elements of a row). Of the setting: WARPS (of a row),
// TOGETHER (rows of a block), VEC (elements of a load), STREAM (1: stores that need not stay in a cache), RESIDENT (blocks
// a multiprocessor holds).
#include "philox.cuh"
#include "rows.cuh"

constexpr int LANES = 32 * WARPS, PIECES = N / VEC, PER = (PIECES + LANES - 1) / LANES;
constexpr bool WHOLE = PIECES % LANES == 0;
static_assert(N % VEC == 0, "vectors lie on their own size");

// Sums over the threads of a row; every thread gets them. Rows of one block wait for themselves alone.
template <int count_> DI void sums_of_row(float (&v)[count_], float (*room)[WARPS], int group) {
#pragma unroll
  for (int i = 0; i < count_; i++)
#pragma unroll
    for (int step = 16; step; step /= 2) v[i] += __shfl_xor_sync(~0u, v[i], step);
  if (WARPS == 1) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % WARPS;
  if (lane == 0)
#pragma unroll
    for (int i = 0; i < count_; i++) room[i][warp] = v[i];
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(LANES) : "memory");
#pragma unroll
  for (int i = 0; i < count_; i++) {
    v[i] = 0.f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) v[i] += room[i][w];
  }
}

// What a block's rows left in the registers of each group becomes that of the first one, in one order.
DI void gather(float (&sums)[PER][VEC], float* line, int group) {
  for (int from = 1; from < TOGETHER; from++) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + threadIdx.x % LANES) * VEC;
      if ((WHOLE || at < N) && group == from)
#pragma unroll
        for (int e = 0; e < VEC; e++) line[at + e] = sums[j][e];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + threadIdx.x % LANES) * VEC;
      if ((WHOLE || at < N) && group == 0)
#pragma unroll
        for (int e = 0; e < VEC; e++) sums[j][e] += line[at + e];
    }
  }
}

extern "C" __global__ void __launch_bounds__(LANES * TOGETHER, RESIDENT)
rows(const elem* __restrict__ s, const elem* __restrict__ grad, const elem* __restrict__ weight,
     const elem* __restrict__ total, const u64* __restrict__ seed,
     elem* __restrict__ ds, elem* __restrict__ dx, elem* __restrict__ dweight, elem* __restrict__ dbias,
     float* __restrict__ parts, int count, int, float eps,
     u32 below, float grown) {
  // Two turns: who is early writes the next row's while others read this one's.
  __shared__ float room[TOGETHER][2][4][WARPS];
  __shared__ float line[TOGETHER > 1 ? N : 1];
  const u64 drawn[2] = {DROPOUT ? seed[0] : 0, DROPOUT ? seed[1] : 0};
  const int group = threadIdx.x / LANES, lane = threadIdx.x % LANES, stride = gridDim.x * TOGETHER;
  float of_weight[PER][VEC], of_bias[PER][VEC];
#pragma unroll
  for (int j = 0; j < PER; j++)
#pragma unroll
    for (int e = 0; e < VEC; e++) of_weight[j][e] = 0.f, of_bias[j][e] = 0.f;
  int turn = 0;
  for (int row = blockIdx.x * TOGETHER + group; row < count; row += stride, turn ^= 1) {
    const u64 first = (u64)row * N;
    Piece a[PER], b[PER];
    Piece t[TOTAL ? PER : 1];
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + lane) * VEC;
      if (!WHOLE && at >= N) continue;
      a[j] = get(s + first + at), b[j] = get(grad + first + at);
      if (TOTAL) t[j] = get(total + first + at);
    }
    float mean[1] = {0.f}, sums[3] = {0.f, 0.f, 0.f}; // of squares, of what goes along, of the level
    if (LAYER) {
#pragma unroll
      for (int j = 0; j < PER; j++)
        if (WHOLE || (j * LANES + lane) * VEC < N) {
#pragma unroll
          for (int e = 0; e < VEC; e++) mean[0] += widen(a[j].one[e]);
        }
      sums_of_row(mean, room[group][turn], group);
      mean[0] /= N;
    }
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + lane) * VEC;
      if (!WHOLE && at >= N) continue;
      Piece w;
      if (WEIGHT) w = get(weight + at);
#pragma unroll
      for (int e = 0; e < VEC; e++) {
        const float v = widen(a[j].one[e]) - mean[0], g = widen(b[j].one[e]) * (WEIGHT ? widen(w.one[e]) : 1.f);
        sums[0] = fmaf(v, v, sums[0]), sums[1] = fmaf(v, g, sums[1]), sums[2] += g;
      }
    }
    sums_of_row(sums, room[group][turn] + 1, group);
    const float inverse = 1.f / sqrtf(sums[0] / N + eps), along = sums[1] * inverse / N, level = LAYER ? sums[2] / N : 0.f;
#pragma unroll
    for (int j = 0; j < PER; j++) {
      const int at = (j * LANES + lane) * VEC;
      if (!WHOLE && at >= N) continue;
      Piece w;
      if (WEIGHT) w = get(weight + at);
      float v[VEC];
#pragma unroll
      for (int e = 0; e < VEC; e++) {
        const float h = (widen(a[j].one[e]) - mean[0]) * inverse, dy = widen(b[j].one[e]);
        v[e] = inverse * ((WEIGHT ? dy * widen(w.one[e]) : dy) - level - h * along) + (TOTAL ? widen(t[j].one[e]) : 0.f);
        if (WEIGHT) of_weight[j][e] = fmaf(h, dy, of_weight[j][e]);
        if (BIAS) of_bias[j][e] += dy;
      }
      put(ds + first + at, v);
      if (DROPOUT) dropped<VEC % 2 == 0>(v, first + at, drawn, below, grown), put(dx + first + at, v);
    }
  }
  if (WEIGHT) gather(of_weight, line, group);
  if (BIAS) gather(of_bias, line, group);
  if (group) return;
  parts += (u64)blockIdx.x * 2 * N;
#pragma unroll
  for (int j = 0; j < PER; j++) {
    const int at = (j * LANES + lane) * VEC;
    if (!WHOLE && at >= N) continue;
#pragma unroll
    for (int e = 0; e < VEC; e++) {
      if (WEIGHT) parts[at + e] = of_weight[j][e];
      if (BIAS) parts[N + at + e] = of_bias[j][e];
    }
  }
}
