// C = A·B with block-sparse A in strict float32: plain lanes, every product and sum an f32 fused multiply-add.
//
// Idea: a CTA owns one line of ROWS rows (a block row, or 64 rows of a taller one) by BN columns; each thread keeps 8 x 8 sums. Blocks are cut
// into chunks of BK columns, STAGES on their way at a time: B by TMA (its addresses would cost the lanes a tenth of their time), A by cp.async.
// A stays row-major: a thread reads four columns of its rows at once, and rows are padded so that neighbouring rows meet different banks.
// Wins: float32 where tf32's rounding is not wanted. Limits: f32, BS and BC 16, 32, 64 or 128, B row-major, N % 4 == 0, 16-byte aligned buffers.
// Where the idea comes from: the usual register-tiled matrix product.
//
// Axes (-D): BK (16, 32; divides BC), STAGES (2..4), CTAS (per SM). Facts of the problem (-D): DTYPE (2), SCALED, ADDS, BS, BC.
#include "hopper.cuh"
#include "scaled.cuh"

constexpr int ROWS = BS < 64 ? BS : 64, TY = ROWS / 8, NT = 128, TX = NT / TY, BN = TX * 8, PITCH = BK + 4;
constexpr int A_FLOATS = ROWS * PITCH, B_FLOATS = BK * BN, BOX = BN < 256 ? BN : 256;
constexpr int STAGE = (A_FLOATS + B_FLOATS + 31) / 32 * 32; // TMA writes to whole 128 bytes

DI void copy16(u32 to, const void* from) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory"); }

extern "C" __global__ void __launch_bounds__(NT, CTAS)
simt_f32(const float* __restrict__ values, const __grid_constant__ TMap tB, float* C, const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
         const int* __restrict__ order, int M, int N SCALE_PARAMETERS) {
  extern __shared__ __align__(1024) float stages[];
  __shared__ __align__(8) u64 full[STAGES];
  const u32 fulls = smem_addr(full), base = smem_addr(stages);
  if (threadIdx.x == 0) {
    tma_prefetch(&tB);
    for (int i = 0; i < STAGES; i++) mb_init(fulls + i * 8, 1);
    mb_init_fence();
  }
  __syncthreads();
  pdl_launch();
  pdl_wait();
  const int wide = (N + BN - 1) / BN, parts = BS / ROWS;
  const int at = blockIdx.x / wide, col = blockIdx.x % wide * BN;
  const int row = order ? __ldg(order + at / parts) : at / parts, part = at % parts;
  const int first = __ldg(row_ptr + row), chunks = (__ldg(row_ptr + row + 1) - first) * (BC / BK);
  // Neighbouring lanes of a warp lie along the columns; four rows apart at the most.
  constexpr int WY = TY < 4 ? TY : 4, WX = 32 / WY;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int ty = lane / WX + warp % (TY / WY) * WY, tx = lane % WX + warp / (TY / WY) * WX;
  auto load = [&](int chunk, int q) {
    const int e = first + chunk / (BC / BK), k = chunk % (BC / BK) * BK;
    const float* a = values + (u64)e * (BS * BC) + part * ROWS * BC + k;
    const u32 to = base + q * STAGE * 4, bar = fulls + q * 8;
    if (threadIdx.x == 0) {
      const int line = __ldg(col_idx + e) * BC + k;
      mb_expect(bar, B_FLOATS * 4);
#pragma unroll
      for (int c = 0; c < BN; c += BOX) tma_load(to + c * BK * 4, &tB, bar, col + c, line); // one box after the other
    }
    for (int i = threadIdx.x; i < ROWS * (BK / 4); i += NT) copy16(to + (B_FLOATS + i / (BK / 4) * PITCH + i % (BK / 4) * 4) * 4, a + i / (BK / 4) * BC + i % (BK / 4) * 4);
  };
  float acc[8][8];
#pragma unroll
  for (int i = 0; i < 8; i++)
#pragma unroll
    for (int j = 0; j < 8; j++) acc[i][j] = 0.f;
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < chunks) load(s, s);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  int q = 0;
  u32 phase = 0;
  // The columns of thread tx: four of its own and four half a tile on.
  const int c_lo = tx * 4, c_hi = c_lo + BN / 2;
  for (int chunk = 0; chunk < chunks; chunk++) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();
    const int ahead = chunk + STAGES - 1;
    if (ahead < chunks) load(ahead, q == 0 ? STAGES - 1 : q - 1);
    asm volatile("cp.async.commit_group;" ::: "memory");
    mb_wait(fulls + q * 8, phase);
    const float* a = stages + q * STAGE + B_FLOATS + ty * PITCH;
    const float* lo_at = stages + q * STAGE + c_lo / BOX * (BK * BOX) + c_lo % BOX;
    const float* hi_at = stages + q * STAGE + c_hi / BOX * (BK * BOX) + c_hi % BOX;
#pragma unroll
    for (int k = 0; k < BK; k += 4) {
      float av[8][4];
#pragma unroll
      for (int i = 0; i < 8; i++) {
        const float4 v = *reinterpret_cast<const float4*>(a + i * TY * PITCH + k);
        av[i][0] = v.x, av[i][1] = v.y, av[i][2] = v.z, av[i][3] = v.w;
      }
#pragma unroll
      for (int kk = 0; kk < 4; kk++) {
        const float4 lo = *reinterpret_cast<const float4*>(lo_at + (k + kk) * BOX), hi = *reinterpret_cast<const float4*>(hi_at + (k + kk) * BOX);
        const float bv[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
          for (int j = 0; j < 8; j++) acc[i][j] = fmaf(av[i][kk], bv[j], acc[i][j]);
      }
    }
    if (++q == STAGES) q = 0, phase ^= 1;
  }
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const u64 at = ((u64)row * BS + part * ROWS + ty + i * TY) * N + col;
    float* to = C + at;
#pragma unroll
    for (int j = 0; j < 8; j += 2)
      if (SCALED && col + (j < 4 ? c_lo : c_hi) < N) scale_two(acc[i][j], acc[i][j + 1], add, at + (j < 4 ? c_lo : c_hi) + j % 4, alpha, beta);
    if (col + c_lo < N) *reinterpret_cast<float4*>(to + c_lo) = make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
    if (col + c_hi < N) *reinterpret_cast<float4*>(to + c_hi) = make_float4(acc[i][4], acc[i][5], acc[i][6], acc[i][7]);
  }
}
