// C = A·B for one to four rows of A: plain 16-byte loads, float32 sums, no tensor cores.
//
// Idea: reading B once is all the work, so every thread keeps many independent 16-byte loads of B in flight.
// Column-major B: a warp owns ROWS columns of B and runs along K. Row-major B: LANES lanes lie side by side on 8
// columns each, the other lanes, the warps and the SPLIT CTAs of a cluster cut K; parts are added by shuffles, then
// through shared memory, then across the cluster, always in the same order. Wins: M <= 4, above all M = 1. Limits:
// f16/bf16, 16-byte aligned bases and leading dimensions, A row-major. No padding is read past the last row of a
// matrix. Where the idea comes from: the usual memory-bound matrix-vector kernels; the cluster sum is this project's
// own choice.
//
// Axes (-D): WARPS (4, 8, 16), UNROLL (independent steps per thread: 1, 2, 4, 8), and by layout
//   B_COL=1: ROWS (1, 2, 4);  SPLIT must be 1, LANES is not read
//   B_COL=0: LANES (8, 16, 32), SPLIT (1, 2, 4, 8);  ROWS is not read
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16), B_COL (1: column-major), MROWS (= M, 1..4), BATCH (1: the grid
// holds several products), BIAS and ACT (epilogue.cuh).
#include "hopper.cuh"
#include "epilogue.cuh"

DI float low(u32 v) { return widen((u16)v); }
DI float high(u32 v) { return DTYPE == 1 ? __uint_as_float(v & 0xffff0000u) : widen((u16)(v >> 16)); }
DI void widen(const uint4& v, float (&f)[8]) {
  f[0] = low(v.x), f[1] = high(v.x), f[2] = low(v.y), f[3] = high(v.y), f[4] = low(v.z), f[5] = high(v.z),
      f[6] = low(v.w), f[7] = high(v.w);
}
// Eight elements of which only `n` exist; the others read as zero.
DI uint4 load8(const u16* p, int n) {
  uint4 v = {0, 0, 0, 0};
  if (n >= 8) return *reinterpret_cast<const uint4*>(p);
  u32* w = &v.x;
#pragma unroll
  for (int i = 0; i < 8; i++)
    if (i < n) w[i / 2] |= (u32)p[i] << (i % 2 * 16);
  return v;
}
// B is read once: it passes by the first-level cache.
DI uint4 stream8(const u16* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

#if B_COL
extern "C" __global__ void __launch_bounds__(WARPS * 32)
gemv(const u16* __restrict__ A, const u16* __restrict__ B, u16* __restrict__ C, int N, int K, int lda, int ldb,
    int ldc EPILOGUE_PARAMETERS) {
  pdl_launch();
  pdl_wait();
  const int per = (N + WARPS * ROWS - 1) / (WARPS * ROWS), z = BATCH ? blockIdx.x / per : 0;
  const int lane = threadIdx.x & 31, n0 = ((blockIdx.x - z * per) * WARPS + (threadIdx.x >> 5)) * ROWS;
  if (n0 >= N) return;
  if (BATCH) A += (u64)z * MROWS * lda, B += (u64)z * N * ldb, C += (u64)z * MROWS * ldc;
  float sum[MROWS][ROWS] = {};
  const u16* b[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) b[r] = B + (u64)min(n0 + r, N - 1) * ldb;
  const int whole = K / 256; // steps in which every lane has a full vector
  int k = lane * 8;
  for (int s = 0; s < whole; s += UNROLL) {
    uint4 v[UNROLL][ROWS];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (s + u < whole)
#pragma unroll
        for (int r = 0; r < ROWS; r++) v[u][r] = stream8(b[r] + k + u * 256);
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (s + u < whole) {
        float f[ROWS][8];
#pragma unroll
        for (int r = 0; r < ROWS; r++) widen(v[u][r], f[r]);
#pragma unroll
        for (int m = 0; m < MROWS; m++) {
          float a[8];
          widen(__ldg(reinterpret_cast<const uint4*>(A + (u64)m * lda + k + u * 256)), a);
#pragma unroll
          for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int i = 0; i < 8; i++) sum[m][r] = fmaf(a[i], f[r][i], sum[m][r]);
        }
      }
    k += UNROLL * 256;
  }
  k = whole * 256 + lane * 8;
  if (k < K) {
#pragma unroll
    for (int m = 0; m < MROWS; m++) {
      float a[8];
      widen(load8(A + (u64)m * lda + k, K - k), a);
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        float f[8];
        widen(load8(b[r] + k, K - k), f);
#pragma unroll
        for (int i = 0; i < 8; i++) sum[m][r] = fmaf(a[i], f[i], sum[m][r]);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < MROWS; m++)
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
      for (int o = 16; o; o >>= 1) sum[m][r] += __shfl_xor_sync(~0u, sum[m][r], o);
      if (lane == 0 && n0 + r < N)
        C[(u64)m * ldc + n0 + r] = narrow(
            join_at(finished(sum[m][r], bias, n0 + r, N, factor_of(scale, (u64)z * MROWS + m)),
                joined + ((u64)z * MROWS + m) * ldj, n0 + r, N));
    }
}
#else
constexpr int NT = WARPS * 32, COLS = LANES * 8, DEEP = 32 / LANES; // k groups inside a warp
extern "C" __global__ void __launch_bounds__(NT) __cluster_dims__(SPLIT, 1, 1)
gemv(const u16* __restrict__ A, const u16* __restrict__ B, u16* __restrict__ C, int N, int K, int lda, int ldb,
    int ldc EPILOGUE_PARAMETERS) {
  __shared__ __align__(16) float parts[WARPS][MROWS][COLS];
  __shared__ __align__(16) float sums[MROWS][COLS];
  pdl_launch();
  pdl_wait();
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const u32 rank = SPLIT > 1 ? cluster_rank() : 0;
  const int per = (N + COLS - 1) / COLS, z = BATCH ? blockIdx.x / SPLIT / per : 0;
  if (BATCH) A += (u64)z * MROWS * lda, B += (u64)z * K * ldb, C += (u64)z * MROWS * ldc;
  const int c0 = (blockIdx.x / SPLIT - z * per) * COLS, c = c0 + lane % LANES * 8;
  const int units = (K + 7) / 8, step = SPLIT * WARPS * DEEP; // a unit is 8 rows of B
  float sum[MROWS][8] = {};
  const bool wide = c + 8 <= N;
  for (int u = (rank * WARPS + warp) * DEEP + lane / LANES; u < units; u += step * UNROLL) {
    uint4 v[UNROLL][8];
#pragma unroll
    for (int z = 0; z < UNROLL; z++) {
      const int k = (u + z * step) * 8;
      if (wide && k + 8 <= K) {
        const u16* p = B + (u64)k * ldb + c;
#pragma unroll
        for (int i = 0; i < 8; i++) v[z][i] = stream8(p + (u64)i * ldb);
      } else {
#pragma unroll
        for (int i = 0; i < 8; i++) v[z][i] = k + i < K ? load8(B + (u64)(k + i) * ldb + c, N - c) : make_uint4(0, 0, 0, 0);
      }
    }
#pragma unroll
    for (int z = 0; z < UNROLL; z++) {
      const int k = (u + z * step) * 8;
      if (k < K) {
        float a[MROWS][8];
#pragma unroll
        for (int m = 0; m < MROWS; m++) widen(load8(A + (u64)m * lda + k, K - k), a[m]);
#pragma unroll
        for (int i = 0; i < 8; i++) {
          float f[8];
          widen(v[z][i], f);
#pragma unroll
          for (int m = 0; m < MROWS; m++)
#pragma unroll
            for (int j = 0; j < 8; j++) sum[m][j] = fmaf(a[m][i], f[j], sum[m][j]);
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < MROWS; m++) {
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int o = 16; o >= LANES; o >>= 1) sum[m][j] += __shfl_xor_sync(~0u, sum[m][j], o);
    if (lane < LANES) {
      float4* to = reinterpret_cast<float4*>(&parts[warp][m][lane * 8]);
      to[0] = make_float4(sum[m][0], sum[m][1], sum[m][2], sum[m][3]), to[1] = make_float4(sum[m][4], sum[m][5], sum[m][6], sum[m][7]);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < MROWS * COLS; i += NT) {
    float t = 0.f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) t += parts[w][i / COLS][i % COLS];
    if (SPLIT == 1) {
      if (c0 + i % COLS < N)
        C[(u64)(i / COLS) * ldc + c0 + i % COLS] = narrow(
            join_at(finished(t, bias, c0 + i % COLS, N, factor_of(scale, (u64)z * MROWS + i / COLS)),
                joined + ((u64)z * MROWS + i / COLS) * ldj, c0 + i % COLS, N));
    } else sums[i / COLS][i % COLS] = t;
  }
  if (SPLIT > 1) {
    __shared__ float read[NT];
    cluster_sync();
    float seen = 0.f;
    if (rank == 0) {
      for (int i = threadIdx.x * 4; i < MROWS * COLS; i += NT * 4) {
        float4 t = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
        for (int s = 0; s < SPLIT; s++) {
          const float4 x = peer_load4(peer_addr(smem_addr(sums) + i * 4, s));
          t.x += x.x, t.y += x.y, t.z += x.z, t.w += x.w;
        }
        const float o[4] = {t.x, t.y, t.z, t.w};
        seen += t.x; // four numbers come back together
#pragma unroll
        for (int j = 0; j < 4; j++)
          if (c0 + i % COLS + j < N) {
            const int at = c0 + i % COLS + j;
            C[(u64)(i / COLS) * ldc + at] = narrow(
                join_at(finished(o[j], bias, at, N, factor_of(scale, (u64)z * MROWS + i / COLS)),
                    joined + ((u64)z * MROWS + i / COLS) * ldj, at, N));
          }
      }
    }
    cluster_arrive_read(smem_addr(read + threadIdx.x), seen);
    cluster_wait(); // no CTA may leave while its sums are read
  }
}
#endif
