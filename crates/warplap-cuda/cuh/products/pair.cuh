// A pair, C = act(A·B) ∘ (A·B2), as one product of Hopper's tensor cores, behind hopper.cuh and epilogue.cuh. Comes in:
// -DPAIR=1 (the last parameter is the map of B2); without it every name here stands for the plain one.
//
// Idea: a stage holds lines of B and, behind them, the same lines of B2, as if they were one operand; no weight is laid
// out anew. What a thread holds of a product's first half belongs to the columns of its second half: they are multiplied
// in registers. Where two CTAs of a cluster share the operand, one brings the lines of B for both and the other those of
// B2. Where the idea comes from: CUTLASS's dual product; quack and others interleave the weights instead.
#if PAIR
#define PAIR_MAP , const __grid_constant__ TMap tB2
#define PAIR_FEED , &tB2

// The operand of rows_ rows, the second half of which are B2's. A row-major B is loaded in panels of 64 columns: each
// half takes whole ones.
template <int rows_, int deep_, int mn_, int share_> struct Halves : Operand<rows_, deep_, mn_, 1> {
  using Whole = Operand<rows_, deep_, mn_, 1>;
  using Half = Operand<rows_ / 2, deep_, mn_, 1>;
  static_assert(rows_ % (mn_ ? 128 : 16) == 0 && share_ <= 2, "this operand has no such halves");
  static DI void load(u32 dst, const TMap* one, const TMap* two, u32 bar, int row, int k, int part, u16 ctas, int z) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      if (share_ > 1 && h != part) continue;
#pragma unroll
      for (int p = 0; p < Half::panels; p++) {
        const u32 at = dst + (mn_ ? (h * Half::panels + p) * Half::panel : p * Whole::panel + h * Half::panel);
        const int x = mn_ ? row + p * 64 : k + p * 64, y = mn_ ? k : row;
        if (share_ > 1) tma_load_multicast(at, h ? two : one, bar, x, y, ctas, z);
        else tma_load(at, h ? two : one, bar, x, y, z);
      }
    }
  }
};
template <class Op> struct IsHalves { static constexpr bool yes = false; };
template <int rows_, int deep_, int mn_, int share_>
struct IsHalves<Halves<rows_, deep_, mn_, share_>> {
  static constexpr bool yes = true;
};

// What a Feed's operands come from where one of them has halves: its own map, and that of the second half.
struct TwoMaps {
  const TMap* other;
  template <class Op> DI void bring(u32 at, const TMap* m, u32 bar, int row, int k, int part, u16 ctas, int z) const {
    if constexpr (IsHalves<Op>::yes) Op::load(at, m, other, bar, row, k, part, ctas, z);
    else Op::load(at, m, bar, row, k, part, ctas, z);
  }
};
template <int rows_, int deep_, int mn_, int share_> using Weights = Halves<rows_, deep_, mn_, share_>;
template <class First, class Second> using Supply = Feed<First, Second, TwoMaps>;
#else
#define PAIR_MAP
#define PAIR_FEED
template <int rows_, int deep_, int mn_, int share_> using Weights = Operand<rows_, deep_, mn_, share_>;
template <class First, class Second> using Supply = Feed<First, Second>;
#endif

DI void stmatrix2(u32 a, u32 r0, u32 r1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(a), "r"(r0), "r"(r1) : "memory");
}

// The fragments of both halves become those of C.
template <int r_> DI void pair_fragments(float (&done)[r_ / 2], const float (&d)[r_]) {
#pragma unroll
  for (int j = 0; j < r_ / 2; j += 2) {
    float x = d[j], y = d[j + 1];
    activate_two(x, y);
    done[j] = x * d[j + r_ / 2], done[j + 1] = y * d[j + 1 + r_ / 2];
  }
}

// As store_tile, for the sums of both halves of a tile whose rows in C are an odd number of 16 bytes: one panel without a
// swizzle, in which stmatrix meets no bank twice. 64 rows leave while the next are activated; there is room for all.
template <int wide_, int mi_, int r_> DI void store_odd_tile(const float (&d)[mi_][r_], const TMap* c, u32 staged,
    int row, int col, int z, int barrier) {
  static_assert(wide_ == r_ && wide_ / 8 % 2 == 1, "an odd number of 16 bytes in a row");
  const int tid = threadIdx.x & 127, lane = tid & 31;
#pragma unroll
  for (int i = 0; i < mi_; i++) {
    float done[r_ / 2];
    pair_fragments(done, d[i]);
    const u32 line = staged + (i * 64 + (tid >> 5) * 16 + (lane & 15)) * wide_ * 2;
#pragma unroll
    for (int v = 0; v + 16 <= wide_; v += 16) {
      const float* w = done + v / 2;
      stmatrix4(line + v * 2 + (lane >> 4) * 16, pack(w[0], w[1]), pack(w[2], w[3]), pack(w[4], w[5]), pack(w[6], w[7]));
    }
    const float* w = done + r_ / 2 - 4;
    stmatrix2(line + wide_ * 2 - 16, pack(w[0], w[1]), pack(w[2], w[3]));
    async_fence();
    named_sync(barrier, 128);
    if (tid == 0) tma_store(c, staged + i * 64 * wide_ * 2, col, row + i * 64, z), tma_store_commit();
  }
}
