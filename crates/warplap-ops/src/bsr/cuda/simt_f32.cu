// C = A·B with block-sparse A in strict float32: plain lanes, every product and sum an f32 fused multiply-add.
//
// Idea: a CTA owns one line of ROWS rows (a block row, or 64 rows of a taller one) by BN columns; each thread keeps 8 x
// 8 sums. Blocks are cut into chunks of BK columns, STAGES on their way at a time: B by TMA, A by cp.async, number by
// number, so that it lies turned: of one k, both sides are read 16 bytes at a time. The numbers of the next k are read
// while those of this one are multiplied, over the end of a chunk too. Each quarter of a multiprocessor issues one
// instruction a cycle, and multiplications alone would fill them all: what else is issued is loss. So addresses are
// moved on instead of computed, the loop over k is unrolled, and sums lie in other register banks than B (see the end).
// Wins: float32 where tf32's rounding is not wanted. Limits: f32, BS and BC 16, 32, 64 or 128, B row-major, N % 4 == 0,
// 16-byte aligned buffers. Where the idea comes from: the usual register-tiled matrix product.
//
// Axes (-D): BK (16, 32; divides BC), STAGES (2, 3). Facts of the problem (-D): DTYPE (2), SCALED, ADDS, BS, BC.
#include "hopper.cuh"
#include "scaled.cuh"

constexpr int ROWS = BS < 64 ? BS : 64, PARTS = BS / ROWS, TY = ROWS / 8, NT = 128, TX = NT / TY, BN = TX * 8;
constexpr int PITCH = ROWS + 4, A_FLOATS = (BK * PITCH + 31) / 32 * 32, B_FLOATS = BK * BN; // TMA writes to whole 128 bytes
constexpr int BOX = BN < 256 ? BN : 256, STAGE = B_FLOATS + A_FLOATS, RUN = NT / BK;         // RUN rows of A are copied at once

DI void copy4(u32 to, const float* from) { asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory"); }

// What a thread multiplies of one k.
struct Held {
  float a[8], b[8];
};

extern "C" __global__ void __launch_bounds__(NT, 3)
simt_f32(const float* __restrict__ values, const __grid_constant__ TMap tB, float* C, const int* __restrict__ row_ptr,
         const int* __restrict__ col_idx,
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
  const int wide = (N + BN - 1) / BN, line = blockIdx.x / wide, col = blockIdx.x % wide * BN;
  const int row = order ? __ldg(order + line / PARTS) : line / PARTS, part = line % PARTS;
  const int first = __ldg(row_ptr + row), end = __ldg(row_ptr + row + 1), chunks = (end - first) * (BC / BK);

  // The next chunk to load: its block, its first column in it, its stage, and where this thread's numbers of A come
  // from and go to.
  int to_load = chunks, e = first, k_at = 0, into = 0, column = chunks > 0 ? __ldg(col_idx + first) : 0;
  const int my_k = threadIdx.x % BK, my_row = threadIdx.x / BK;
  const float* from = values + (u64)first * (BS * BC) + (part * ROWS + my_row) * BC + my_k;
  const u32 a_to = base + (B_FLOATS + my_k * PITCH + my_row) * 4;
  auto load = [&]() {
    if (to_load > 0) {
      const u32 stage = into * (STAGE * 4), bar = fulls + into * 8;
#pragma unroll
      for (int i = 0; i < ROWS / RUN; i++) copy4(a_to + stage + i * RUN * 4, from + i * RUN * BC);
      if (threadIdx.x == 0) {
        mb_expect(bar, B_FLOATS * 4);
#pragma unroll
        // one box after the other
        for (int c = 0; c < BN; c += BOX) tma_load(base + stage + c * BK * 4, &tB, bar, col + c, column * BC + k_at);
      }
      to_load--, k_at += BK, from += BK;
      if (k_at == BC) {
        k_at = 0, e++, from += (BS - 1) * BC;
        if (threadIdx.x == 0 && e < end) column = __ldg(col_idx + e); // long before it is asked for
      }
      if (++into == STAGES) into = 0;
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  // Neighbouring lanes of a warp lie along the columns; four rows apart at the most. A thread has four rows and four
  // columns of its own, and four half a tile on.
  constexpr int WY = TY < 4 ? TY : 4, WX = 32 / WY;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int ty = lane / WX + warp % (TY / WY) * WY, tx = lane % WX + warp / (TY / WY) * WX;
  const int c_lo = tx * 4, c_hi = c_lo + BN / 2;
  const u32 lo_at = base + (c_lo / BOX * (BK * BOX) + c_lo % BOX) * 4, hi_at = base + (c_hi / BOX * (BK * BOX) + c_hi % BOX) * 4;
  const u32 a_at = base + (B_FLOATS + ty * 4) * 4;
  auto fetch = [&](Held& held, u32 stage, int k) {
    const float4 lo = shared_load4(lo_at + stage + k * (BOX * 4)), hi = shared_load4(hi_at + stage + k * (BOX * 4));
    const float4 up = shared_load4(a_at + stage + k * (PITCH * 4)), down = shared_load4(a_at + stage + k * (PITCH * 4) + ROWS / 2 * 4);
    held = {{up.x, up.y, up.z, up.w, down.x, down.y, down.z, down.w}, {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w}};
  };
  float acc[8][8];
#pragma unroll
  for (int i = 0; i < 8; i++)
#pragma unroll
    for (int j = 0; j < 8; j++) acc[i][j] = 0.f;
  // Forth and back, so that neighbouring multiplications have a number in common.
  auto multiply = [&](const Held& held) {
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
      for (int x = 0; x < 8; x++) {
        const int j = i % 2 ? 7 - x : x;
        acc[i][j] = fmaf(held.a[i], held.b[j], acc[i][j]);
      }
  };

  if (chunks > 0) {
    for (int s = 0; s < STAGES; s++) load();
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
    __syncthreads();
    mb_wait(fulls, 0);
    Held now, next;
    fetch(now, 0, 0);
    int q = 0;
    u32 phase = 0;
    for (int left = chunks;;) {
      const u32 stage = q * (STAGE * 4);
#pragma unroll 7
      for (int k = 0; k < BK - 2; k += 2) {
        fetch(next, stage, k + 1);
        multiply(now);
        fetch(now, stage, k + 2);
        multiply(next);
      }
      fetch(next, stage, BK - 1);
      multiply(now);
      if (--left == 0) {
        multiply(next);
        break;
      }
      // This stage has been read: it is filled anew while the next one is multiplied.
      if (++q == STAGES) q = 0, phase ^= 1;
      asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
      __syncthreads();
      load();
      mb_wait(fulls + q * 8, phase);
      fetch(now, q * (STAGE * 4), 0);
      multiply(next);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const u64 line = (u64)row * BS + part * ROWS + i / 4 * (ROWS / 2) + ty * 4 + i % 4, at = line * N + col;
#pragma unroll
    for (int g = 0; g < 2; g++) {
      const int c = g ? c_hi : c_lo;
      if (col + c >= N) continue;
      float* const v = acc[i] + g * 4;
      if (BIAS) {
        const float shared = shared_by_row(add, line, beta);
#pragma unroll
        for (int j = 0; j < 4; j++) v[j] = plus_shared(v[j], shared, alpha);
      } else if (SCALED) scale_two(v[0], v[1], add, at + c, alpha, beta), scale_two(v[2], v[3], add, at + c + 2, alpha, beta);
      // Times one: a store of 16 bytes wants even columns in even registers, where B's even columns lie, and operands
      // of one bank are read one after the other. A product has registers of its own and leaves the sums free to lie in
      // the other bank.
      else v[0] *= alpha, v[1] *= alpha, v[2] *= alpha, v[3] *= alpha;
      *reinterpret_cast<float4*>(C + at + c) = make_float4(v[0], v[1], v[2], v[3]);
    }
  }
}
