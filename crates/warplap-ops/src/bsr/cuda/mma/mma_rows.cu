// C = A·B with block-sparse A of half types: tensor cores through mma.sync, float32 sums; for chips before Hopper, and
// blocks of every shape.
//
// Idea: a CTA owns one line of ROWS rows (a block row, or 64 rows of a taller one) by BN columns; blocks are cut into
// chunks of BK columns, STAGES on their way at a time by cp.async, in lines padded by 16 bytes so that the eight rows
// of a fragment meet different banks. ldmatrix turns a row-major B on its way into registers. Wins: chips from sm_80 on
// without wgmma. Limits: f16/bf16, BS and BC 16, 32, 64 or 128, C row-major, N % 8 == 0, 16-byte aligned buffers. Where
// the idea comes from: the usual mma.sync product; every line reads the slabs of B it needs by itself.
//
// Axes (-D): BN (128, 256), BK (16, 32, 64; divides BC), STAGES (2..4). Facts of the problem (-D): DTYPE (0 f16, 1
// bf16), SCALED, ADDS, BS, BC, B_COL (1: column-major).
#include "ampere.cuh"
#include "scaled.cuh"

constexpr int ROWS = BS < 64 ? BS : 64, PARTS = BS / ROWS, NT = 256, WM = ROWS == 64 ? 2 : 1, WN = 8 / WM,
    MI = ROWS / WM / 16, NI = BN / WN / 8;
constexpr int RUN = NI % 4 == 0 ? 4 : 2; // fragments of a store
constexpr int B_LINES = B_COL ? BN : BK, B_LINE = B_COL ? BK : BN;
constexpr u32 A_PITCH = BK * 2 + 16, B_PITCH = B_LINE * 2 + 16, A_BYTES = ROWS * A_PITCH, STAGE = A_BYTES + B_LINES * B_PITCH;
static_assert(NI % 2 == 0 && BC % BK == 0, "fragments");

extern "C" __global__ void __launch_bounds__(NT)
mma_rows(const elem* __restrict__ values, const elem* __restrict__ B, elem* C, const int* __restrict__ row_ptr,
         const int* __restrict__ col_idx,
         const int* __restrict__ order, int M, int N, int K SCALE_PARAMETERS) {
  extern __shared__ __align__(16) unsigned char stages[];
  overlap_begin();
  const int wide = (N + BN - 1) / BN, at = blockIdx.x / wide, col = blockIdx.x % wide * BN;
  const int row = order ? __ldg(order + at / PARTS) : at / PARTS, part = at % PARTS;
  const int first = __ldg(row_ptr + row), chunks = (__ldg(row_ptr + row + 1) - first) * (BC / BK);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wm = warp % WM * (MI * 16), wn = warp / WM * (NI * 8);
  const u32 base = shared_addr(stages);
  auto load = [&](int chunk, int q) {
    const int e = first + chunk / (BC / BK), k = chunk % (BC / BK) * BK;
    const u64 slab = (u64)__ldg(col_idx + e) * BC + k;
    const elem* a = values + (u64)e * (BS * BC) + part * ROWS * BC + k;
    const u32 to = base + q * STAGE;
    for (int i = threadIdx.x; i < ROWS * (BK / 8); i += NT) {
      const int r = i / (BK / 8), c = i % (BK / 8);
      copy_async<16>(to + r * A_PITCH + c * 16, a + r * BC + c * 8, 16);
    }
    for (int i = threadIdx.x; i < B_LINES * (B_LINE / 8); i += NT) {
      const int r = i / (B_LINE / 8), c = i % (B_LINE / 8) * 8;
      const bool there = col + (B_COL ? r : c) < N;
      const elem* b = B_COL ? B + (u64)(col + r) * K + slab + c : B + (slab + r) * N + col + c;
      copy_async<16>(to + A_BYTES + r * B_PITCH + c * 2, there ? b : B, there ? 16 : 0);
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
    const u32 a = base + q * STAGE, b = a + A_BYTES;
#pragma unroll
    for (int k = 0; k < BK; k += 16) {
      u32 left[MI][4];
#pragma unroll
      for (int i = 0; i < MI; i++) ldmatrix4(left[i], a + (wm + i * 16 + (lane & 15)) * A_PITCH + (k + (lane >> 4) * 8) * 2);
#pragma unroll
      for (int j = 0; j < NI; j += 2) {
        const int c = wn + j * 8;
        u32 right[4];
        if (B_COL) ldmatrix4(right, b + (c + (lane >> 4) * 8 + (lane & 7)) * B_PITCH + (k + (lane >> 3 & 1) * 8) * 2);
        else ldmatrix4_trans(right, b + (k + (lane >> 3 & 1) * 8 + (lane & 7)) * B_PITCH + (c + (lane >> 4) * 8) * 2);
#pragma unroll
        for (int i = 0; i < MI; i++) mma_step(acc[i][j], left[i], right[0], right[1]), mma_step(acc[i][j + 1], left[i], right[2], right[3]);
      }
    }
    if (++q == STAGES) q = 0;
  }
  const int t = lane & 3;
#pragma unroll
  for (int i = 0; i < MI; i++) {
    const long long top = (long long)row * BS + part * ROWS + wm + i * 16 + (lane >> 2);
#pragma unroll
    for (int j = 0; j < NI; j++) scale_fragments(acc[i][j], add, top, top + 8, col + wn + j * 8, N, alpha, beta);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      elem* const line = C + (top + h * 8) * N;
#pragma unroll
      for (int j = 0; j < NI; j += RUN) {
        u32 w[4] = {};
#pragma unroll
        for (int f = 0; f < RUN; f++) w[f] = (u32)narrow(acc[i][j + f][h * 2]) | (u32)narrow(acc[i][j + f][h * 2 + 1]) << 16;
        if (RUN == 4) {
          quad_turn(w, t);
          const int c = col + wn + (j + t) * 8;
          if (c < N) *reinterpret_cast<uint4*>(line + c) = make_uint4(w[0], w[1], w[2], w[3]);
        } else { // two fragments: halves of them
          const u32 other = __shfl_xor_sync(~0u, t & 1 ? w[0] : w[1], 1);
          const int c = col + wn + (j + (t & 1)) * 8 + (t & 2) * 2;
          if (c < N) *reinterpret_cast<uint2*>(line + c) = t & 1 ? make_uint2(other, w[1]) : make_uint2(w[0], other);
        }
      }
    }
  }
}
