// 1/sqrt(mean(x^2) + eps) of A's rows, found while a product goes through the stages that hold them, behind hopper.cuh
// and epilogue.cuh. Comes in: -DSQUARES=1; without it every name here leaves no instruction behind.
//
// Idea: squares are summed in any order, so that the swizzle of a stage does not matter, and what lies beyond the last
// column is zeros. A product of unscaled rows, times their factors, is that of rows divided by their root mean square.
// Every CTA of a row of tiles sums the same squares: for few rows, or products so long that the tensor cores leave the
// other units idle, that costs less than a kernel in front. Where the idea comes from: measured against such a kernel,
// whose factors arrive by memory (SCALE=2), in every race.

// Whoever reads a stage by itself says so itself: a thread of every warp frees it, not one of every warpgroup.
constexpr int FREERS = SQUARES ? 4 : 1;

DI float squares_of(u32 two) {
  const float low = widen((elem)two), high = DTYPE == 1 ? __uint_as_float(two & 0xffff0000u) : widen((elem)(two >> 16));
  return fmaf(low, low, high * high);
}
DI float squares_at(u32 at) {
  const uint4 v = shared_load8(at);
  return squares_of(v.x) + squares_of(v.y) + (squares_of(v.z) + squares_of(v.w));
}
DI float root_factor(float squares, int under_root, int K) { return rsqrtf(squares / (float)K + __int_as_float(under_root)); }

// 64 rows of a stage, K-major, which one warpgroup multiplies: two threads a row, so that a warp has those rows whose
// sums it holds.
template <int bk_> struct RowSquares {
  float total = 0.f;
  // `rows` is where the first of them lies in the first panel; panels of 64 columns lie `panel` bytes apart.
  DI void add(u32 rows, u32 panel) {
    if (!SQUARES) return;
    const int tid = threadIdx.x & 127, row = tid >> 1;
#pragma unroll
    for (int p = 0; p < bk_ / 64; p++)
#pragma unroll
      // no bank twice
      for (int c = 0; c < 4; c++)
        total += squares_at(rows + p * panel + row * 128 + (tid & 1) * 64 + ((c + row & 3) << 4));
  }
  template <int r_> DI void scale(float (&d)[r_], int under_root, int K) {
    if (!SQUARES) return;
    const int lane = threadIdx.x & 31;
    const float factor = root_factor(total + __shfl_xor_sync(~0u, total, 1), under_root, K);
    const float upper = __shfl_sync(~0u, factor, lane >> 2 << 1), lower = __shfl_sync(~0u, factor, (lane >> 2) + 8 << 1);
#pragma unroll
    for (int q = 0; q < r_; q++) d[q] *= q & 2 ? lower : upper;
    total = 0.f;
  }
};

// The few rows of a stage (8, or a multiple of 16) that all of a CTA multiplies with: eight threads of the first
// warpgroup a row.
template <int rows_, int bk_> struct TileSquares {
  static constexpr int room = rows_ < 16 ? 16 : rows_, each = rows_ < 16 ? 1 : rows_ / 16; // sums in memory, and of a thread
  float total[each] = {};
  DI void add(u32 tile) {
    if (!SQUARES) return;
    const int tid = threadIdx.x & 127;
#pragma unroll
    for (int i = 0; i < (rows_ * bk_ / 8 + 127) / 128; i++)
      if (rows_ * bk_ / 8 % 128 == 0 || tid + i * 128 < rows_ * bk_ / 8) total[i % each] += squares_at(tile + (tid + i * 128) * 16);
  }
  // Leaves the sums in shared memory, `room` of them: of 8 rows those of two halves.
  DI void leave(float* sums) {
    const int tid = threadIdx.x & 127;
#pragma unroll
    for (int j = 0; j < each; j++) {
#pragma unroll
      for (int o = 1; o < 8; o *= 2) total[j] += __shfl_xor_sync(~0u, total[j], o);
      if (tid % 8 == 0) sums[tid / 8 + j * 16] = total[j];
    }
  }
};
