// 1/sqrt(mean(x^2) + eps) of A's rows, found by the kernel that multiplies them, behind hopper.cuh and epilogue.cuh. Comes
// in: -DSQUARES=1; without it every name here leaves no instruction behind.
//
// Idea: a product of unscaled rows, times their factors, is that of rows divided by their root mean square. Products of
// many rows sum squares as they go through the stages that hold them (RowSquares): in any order, so that the swizzle of a
// stage does not matter, and what lies beyond the last column is zeros. Every CTA of a row of tiles sums the same: where
// the tensor cores leave the other units idle, that costs less than a kernel in front. Products of few rows have blocks
// of their own for it (leave_factors). Where the idea comes from: measured against a kernel in front, whose factors
// arrive by memory (SCALE=2), in every race.

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

// For few rows every CTA would go through them all, and shared memory is what such products wait for. There the first
// blocks of a grid do nothing else: they leave the factors in memory, and whoever finishes a tile takes them in the end.
// Blocks start in the order of their numbers, so that none waits for one that cannot start. `room` is zero between
// launches: a word for each row, whose upper half says that the factor in its lower half is there, behind one that counts
// the blocks that have taken theirs. One word for both spares a fence, and a second wait for memory that all others keep busy.

// What the blocks in front do, `blocks` of them in all.
DI void leave_factors(const elem* A, u64 lda, int rows, int K, int under_root, u64* room, int blocks) {
  const int warps = blockDim.x / 32, lane = threadIdx.x & 31;
  for (int row = blockIdx.x * warps + threadIdx.x / 32; row < rows; row += blocks * warps) {
    const elem* line = A + (u64)row * lda;
    float total = 0.f;
    for (int from = lane * 8; from + 8 <= K; from += 16 * 256) {
      uint4 v[16]; // under way at once: memory is busy, and answers late
#pragma unroll
      for (int i = 0; i < 16; i++) v[i] = from + i * 256 + 8 <= K ? *reinterpret_cast<const uint4*>(line + from + i * 256) : uint4{};
#pragma unroll
      for (int i = 0; i < 16; i++) total += squares_of(v[i].x) + squares_of(v[i].y) + (squares_of(v[i].z) + squares_of(v[i].w));
    }
    if (lane < K % 8) {
      const float last = widen(line[K / 8 * 8 + lane]);
      total = fmaf(last, last, total);
    }
#pragma unroll
    for (int o = 16; o > 0; o /= 2) total += __shfl_xor_sync(~0u, total, o);
    const u64 word = 1ull << 32 | __float_as_uint(root_factor(total, under_root, K));
    if (lane == 0) asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(room + 1 + row), "l"(word) : "memory");
  }
}

// One warp of a block takes `count` factors from row `first` on.
DI void take_factors(float* to, const u64* room, int first, int count) {
  for (int i = threadIdx.x & 31; i < count; i += 32) {
    u64 word;
    do asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(room + 1 + first + i) : "memory");
    while (word >> 32 == 0);
    to[i] = __uint_as_float((u32)word);
  }
}
// It says that it has; the last one of `tiles` leaves the room as it was.
DI void leave_room(u64* room, int rows, int tiles) {
  const int lane = threadIdx.x & 31;
  const u32 before = lane == 0 ? atomicAdd(reinterpret_cast<u32*>(room), 1u) : 0;
  if (__shfl_sync(~0u, before, 0) != (u32)tiles - 1) return;
  for (int i = lane; i <= rows; i += 32) room[i] = 0;
}
