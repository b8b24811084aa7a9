// Helper of grad_wgmma, behind it.
//
// The float32 sums of dQ that grad_wgmma.cu adds up, times the scale, as f16 or bf16 rows.
//
// Idea: sums lie as the adding threads hold them: of BM queries, parts of 64 elements by N queries; in a part a thread
// of 128 has of every 8 queries two neighbours (lane % 4 * 2) of element warp * 16 + lane / 4 and of the one 8 further,
// and the four of all threads lie behind each other. A block reads those of BM queries in that order, turns them in
// shared memory and writes whole rows, sixteen bytes a thread.
// Wins: always used behind grad_wgmma.cu. Limits: f16, bf16; rows of dQ on 16 bytes; D a multiple of 16.
// Where the idea comes from: FlashAttention 3 (Shah et al.).
//
// Axes (-D): BM and CONS as grad_wgmma.cu has them.
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16), D. Grid: padded / BM * heads * batch blocks of 256; no shared
// memory of the launch.
#include "ampere.cuh"

constexpr int NT = 256, QP = (D + 63) / 64, N = QP == 1 ? BM / CONS : BM;
constexpr int PITCH = QP * 64 + 8; // elements: neither side meets a bank twice

extern "C" __global__ void __launch_bounds__(NT)
    finish(const float* __restrict__ sums, elem* __restrict__ dQ, int batch, int heads, int sq, int padded, float scale,
           u64 qb, u64 qh, u64 qr) {
  __shared__ __align__(16) elem tile[BM * PITCH];
  overlap_begin();
  const int blocks = padded / BM, head = blockIdx.x / blocks, m = blockIdx.x - head * blocks;
  const int b = head / heads, h = head - b * heads;
  const float4* from = reinterpret_cast<const float4*>(sums) + (u64)blockIdx.x * (QP * 16 * BM);
#pragma unroll
  for (int f = threadIdx.x; f < QP * 16 * BM; f += NT) {
    const float4 x = __ldcs(from + f);
    const int part = f / (16 * N), in = f % (16 * N), warp = in % 128 / 32, lane = in % 32;
    const int e = (QP == 1 ? 0 : part * 64) + warp * 16 + (lane >> 2);
    elem* to = tile + ((QP == 1 ? part * N : 0) + in / 128 * 8 + (lane & 3) * 2) * PITCH + e;
    to[0] = narrow(x.x * scale), to[PITCH] = narrow(x.y * scale);
    to[8] = narrow(x.z * scale), to[PITCH + 8] = narrow(x.w * scale);
  }
  __syncthreads();
  elem* rows = dQ + b * qb + h * qh + (u64)m * BM * qr;
#pragma unroll
  for (int i = threadIdx.x; i < BM * (D / 8); i += NT) {
    const int r = i / (D / 8), c = i % (D / 8) * 8;
    if (m * BM + r < sq)
      *reinterpret_cast<uint4*>(rows + r * qr + c) = *reinterpret_cast<const uint4*>(tile + r * PITCH + c);
  }
}
