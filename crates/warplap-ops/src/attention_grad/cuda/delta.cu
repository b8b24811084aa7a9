// Helper of every gradient, before it.
//
// What the backward pass of attention needs of every query before it begins: delta = sum(dO * O), and the log-sum-exp
// in powers of two. Also puts the float32 sums of dQ to zero where a kernel adds to them.
//
// Idea: LANES neighbouring lanes share a row of dO and O, sixteen bytes each where rows lie on them; a block takes
// 256 / LANES rows and the zeros that belong to them. Rows are padded to `padded` of a head, a multiple of the blocks
// of queries: what does not exist, and what sees no key, has +inf and 0, which make all its weights zeros.
// Wins: always used. Limits: f16, bf16; any width, any strides with a contiguous last dimension.
// Where the idea comes from: FlashAttention (Dao et al.).
//
// Axes (-D): LANES (1, 2 ... 32; the best covers DV by 8 elements a lane).
// Facts of the problem (-D): DTYPE (0 f16, 1 bf16), DV, ALIGN (bytes every row of O and dO lies on: 16, 8, 4, 2),
// SUMS (float32 sums of a query to put to zero; a multiple of 4, or 0), PACKED (packed.cuh: sequences begin where
// `begins_q` says among `tq` rows, and sq is the longest; their numbers lie in blocks of PAD).
// Grid: ceil(batch * heads * padded / (256 / LANES)) blocks of 256, with PACKED ceil(heads * padded / (256 / LANES));
// no shared memory of the launch.
#include "ampere.cuh"
#include "attention.cuh"
#include "packed.cuh"

constexpr int NT = 256, ROWS = NT / LANES;

// A pair of elements times another.
DI float dot_pair(u32 a, u32 b) { return fmaf(widen_low(a), widen_low(b), widen_high(a) * widen_high(b)); }

extern "C" __global__ void __launch_bounds__(NT)
    delta(const elem* __restrict__ O, const elem* __restrict__ dO, const float* __restrict__ lse,
          float* __restrict__ powers, float* __restrict__ deltas, float* __restrict__ sums, int batch, int heads,
          int sq, int padded, u64 ob, u64 oh, u64 orow, u64 gb, u64 gh, u64 gr, const int* begins_q, int tq) {
  overlap_begin();
  const u64 all = (PACKED ? (u64)1 : (u64)batch) * heads * padded, row = (u64)blockIdx.x * ROWS + threadIdx.x / LANES;
  const int lane = threadIdx.x % LANES;
  if (SUMS > 0) {
    float4* zeros = reinterpret_cast<float4*>(sums) + (u64)blockIdx.x * ROWS * (SUMS / 4);
    const u64 left = (all - (u64)blockIdx.x * ROWS) * (SUMS / 4);
    for (int i = threadIdx.x; i < ROWS * (SUMS / 4) && i < left; i += NT) zeros[i] = make_float4(0.f, 0.f, 0.f, 0.f);
  }
  // With PACKED `padded` is the place after all sequences' numbers, and rows are those of one head.
  const u64 head = row / padded;
  int r = (int)(row - head * padded), b = PACKED ? 0 : (int)(head / heads), h = (int)(head - (u64)b * heads);
  bool written = row < all;
  u64 known = head * sq + r;
  if (PACKED) { // a warp's rows are of one block
    const int at = sequence_at(begins_q, batch, tq, r, PAD);
    const Stretch own = stretch_of(begins_q, max(at, 0), sq, tq);
    r -= (int)padded_of(own.first, at, PAD);
    // Offsets that do not ascend may lead to a sequence that begins behind this row.
    written = written && at >= 0 && r >= 0 && r < (own.count + PAD - 1) / PAD * PAD;
    O += own.first * orow, dO += own.first * gr, sq = own.count, known = (u64)h * tq + own.first + r;
  }
  float sum = 0.f;
  if (written && r < sq) {
    const elem *x = O + b * ob + h * oh + r * orow, *y = dO + b * gb + h * gh + r * gr;
    if (ALIGN == 16 && DV % 8 == 0) {
#pragma unroll
      for (int c = lane * 8; c < DV; c += LANES * 8) {
        const uint4 p = __ldg(reinterpret_cast<const uint4*>(x + c)), q = __ldg(reinterpret_cast<const uint4*>(y + c));
        sum += dot_pair(p.x, q.x) + dot_pair(p.y, q.y) + dot_pair(p.z, q.z) + dot_pair(p.w, q.w);
      }
    } else {
      for (int c = lane; c < DV; c += LANES) sum = fmaf(widen(x[c]), widen(y[c]), sum);
    }
  }
#pragma unroll
  for (int step = LANES / 2; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (written && lane == 0) {
    const float power = r < sq ? lse[known] * LOG2E : LOWEST;
    powers[row] = power == LOWEST ? -LOWEST : power;
    deltas[row] = sum;
  }
}
