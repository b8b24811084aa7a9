// C = A·B with block-sparse A in float32 whose factors may be cut to tf32: tensor cores through mma.sync, float32 sums.
//
// Idea: a CTA owns one line of ROWS rows (a block row, or 64 rows of a taller one) by BN columns; blocks are cut into
// chunks of BK columns, STAGES on their way at a time by cp.async. wgmma wants tf32 factors with K contiguous, which a
// row-major B is not; mma.sync takes single numbers from shared memory, whose lines are padded so that the lanes of a
// fragment meet different banks. Factors go in as they are: the tensor cores cut what does not fit eleven bits. Wins:
// float32 where tf32 will do. Limits: f32, BS and BC 16, 32, 64 or 128, B row-major, N % 4 == 0, 16-byte aligned
// buffers. Where the idea comes from: the usual mma.sync product.
//
// Axes (-D): BN (128, 256), BK (16, 32; divides BC), STAGES (2..4). Facts of the problem (-D): DTYPE (2), SCALED, ADDS,
// BS, BC.
#include "ampere.cuh"
#include "scaled.cuh"

constexpr int ROWS = BS < 64 ? BS : 64, PARTS = BS / ROWS, NT = 256, WM = ROWS == 64 ? 2 : 1, WN = 8 / WM,
    MI = ROWS / WM / 16, NI = BN / WN / 8;
constexpr int A_PITCH = BK + 4, B_PITCH = BN + 8, A_FLOATS = ROWS * A_PITCH, STAGE = A_FLOATS + BK * B_PITCH;

extern "C" __global__ void __launch_bounds__(NT)
mma_tf32(const float* __restrict__ values, const float* __restrict__ B, float* C, const int* __restrict__ row_ptr,
         const int* __restrict__ col_idx,
         const int* __restrict__ order, int M, int N SCALE_PARAMETERS) {
  extern __shared__ __align__(16) float stages[];
  overlap_begin();
  const int wide = (N + BN - 1) / BN, at = blockIdx.x / wide, col = blockIdx.x % wide * BN;
  const int row = order ? __ldg(order + at / PARTS) : at / PARTS, part = at % PARTS;
  const int first = __ldg(row_ptr + row), chunks = (__ldg(row_ptr + row + 1) - first) * (BC / BK);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wm = warp % WM * (MI * 16), wn = warp / WM * (NI * 8);
  const u32 base = shared_addr(stages);
  auto load = [&](int chunk, int q) {
    const int e = first + chunk / (BC / BK), k = chunk % (BC / BK) * BK;
    const float* a = values + (u64)e * (BS * BC) + part * ROWS * BC + k;
    const float* b = B + ((u64)__ldg(col_idx + e) * BC + k) * N + col;
    const u32 to = base + q * STAGE * 4;
    for (int i = threadIdx.x; i < ROWS * (BK / 4); i += NT)
      copy_async<16>(to + (i / (BK / 4) * A_PITCH + i % (BK / 4) * 4) * 4,
          a + i / (BK / 4) * BC + i % (BK / 4) * 4, 16);
    for (int i = threadIdx.x; i < BK * (BN / 4); i += NT) {
      const int r = i / (BN / 4), c = i % (BN / 4) * 4;
      const bool there = col + c < N;
      copy_async<16>(to + (A_FLOATS + r * B_PITCH + c) * 4, there ? b + (u64)r * N + c : B, there ? 16 : 0);
    }
  };
  float acc[MI][NI][4];
#pragma unroll
  for (int i = 0; i < MI; i++)
#pragma unroll
    for (int j = 0; j < NI; j++)
#pragma unroll
      for (int x = 0; x < 4; x++) acc[i][j][x] = 0.f;
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < chunks) load(s, s);
    copy_commit();
  }
  int q = 0;
  for (int chunk = 0; chunk < chunks; chunk++) {
    copy_wait<STAGES - 2>();
    __syncthreads();
    if (chunk + STAGES - 1 < chunks) load(chunk + STAGES - 1, q == 0 ? STAGES - 1 : q - 1);
    copy_commit();
    const u32* a = reinterpret_cast<const u32*>(stages + q * STAGE) + (wm + (lane >> 2)) * A_PITCH + (lane & 3);
    const u32* b = reinterpret_cast<const u32*>(stages + q * STAGE) + A_FLOATS + (lane & 3) * B_PITCH + wn + (lane >> 2);
#pragma unroll
    for (int k = 0; k < BK; k += 8) {
      u32 left[MI][4];
#pragma unroll
      for (int i = 0; i < MI; i++)
#pragma unroll
        for (int x = 0; x < 4; x++) left[i][x] = a[(i * 16 + x % 2 * 8) * A_PITCH + k + x / 2 * 4];
#pragma unroll
      for (int j = 0; j < NI; j++) {
        const u32 b0 = b[k * B_PITCH + j * 8], b1 = b[(k + 4) * B_PITCH + j * 8];
#pragma unroll
        for (int i = 0; i < MI; i++) mma_step(acc[i][j], left[i], b0, b1);
      }
    }
    if (++q == STAGES) q = 0;
  }
#pragma unroll
  for (int i = 0; i < MI; i++) {
    const long long top = (long long)row * BS + part * ROWS + wm + i * 16 + (lane >> 2);
#pragma unroll
    for (int j = 0; j < NI; j++) {
      const int c = col + wn + j * 8;
      scale_fragments(acc[i][j], add, top, top + 8, c, N, alpha, beta);
      if (c + (lane & 3) * 2 >= N) continue;
#pragma unroll
      for (int h = 0; h < 2; h++)
        *reinterpret_cast<float2*>(C + (top + h * 8) * N + c + (lane & 3) * 2) =
            make_float2(acc[i][j][h * 2], acc[i][j][h * 2 + 1]);
    }
  }
}
