// Hopper's tensor cores on bytes: products of signed bytes and of f8e4m3, sums that are added up in f32 in time, and
// how tiles leave. Comes in: what quant.cuh and hopper.cuh take. A block of K is 128 bytes: to the copy engine, and to
// hopper.cuh, a line of 64 pairs. Goes out: the names below.
#pragma once
#include "hopper.cuh"
#include "quant.cuh"
#if INT
#undef WG_O4
#define WG_O4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define QUANT_KIND "s32.s8.s8"
#define QUANT_SIGNS ""
#define QUANT_DONE "+r"
#else
#define QUANT_KIND "f32.e4m3.e4m3"
#define QUANT_SIGNS ", 1, 1"
#define QUANT_DONE "+f"
#endif

// One m64 x N x k32 step, both operands along k in shared memory; `keep` 0 overwrites the sums.
template <int N> struct Bytes;
#define WG_BYTES(N, R, A, B, P)                                                                                          \
  template <> struct Bytes<N> {                                                                                          \
    static DI void step(sum_t (&d)[R], u64 a, u64 b, int keep) {                                                         \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #P ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k32." QUANT_KIND    \
                   " {" WG_R##R "}, %" #A ", %" #B ", p" QUANT_SIGNS ";}" : WG_O##R(0) : "l"(a), "l"(b), "r"(keep));     \
    }                                                                                                                    \
  };
WG_BYTES(8, 4, 4, 5, 6)
WG_BYTES(16, 8, 8, 9, 10)
WG_BYTES(32, 16, 16, 17, 18)
WG_BYTES(64, 32, 32, 33, 34)
WG_BYTES(96, 48, 48, 49, 50)
WG_BYTES(112, 56, 56, 57, 58)
WG_BYTES(128, 64, 64, 65, 66)
WG_BYTES(160, 80, 80, 81, 82)
WG_BYTES(192, 96, 96, 97, 98)
WG_BYTES(224, 112, 112, 113, 114)
WG_BYTES(256, 128, 128, 129, 130)

// An operand of rows_ lines, each wide_ bytes along k and swizzled as wide as it is; share_ CTAs of the cluster each
// bring a run of lines and multicast it. To the copy engine a line is pairs of bytes. As Operand otherwise.
template <int rows_, int wide_, int share_> struct Lines {
  static_assert((wide_ == 64 || wide_ == 128) && rows_ % (8 * share_) == 0, "lines");
  static constexpr u32 bytes = rows_ * wide_;
  static DI void load(u32 dst, const TMap* m, u32 bar, int row, int k, int part, u16 ctas) {
    const int cut = part * (rows_ / share_);
    if (share_ > 1) tma_load_multicast(dst + cut * wide_, m, bar, k, row + cut, ctas);
    else tma_load(dst, m, bar, k, row);
  }
  static DI u64 desc(u32 base, int row) {
    constexpr u64 swizzle = wide_ == 128 ? 1 : 2;
    return (u64)(((base + row * wide_) & 0x3FFFF) >> 4) | (1ull << 16) | ((u64)(8 * wide_ >> 4) << 32) | (swizzle << 62);
  }
  static constexpr __device__ u64 step(int kk) { return kk * 32 >> 4; }
};

// Sums may be read from here on.
template <int r_> DI void bytes_done(sum_t (&d)[r_]) {
#pragma unroll
  for (int i = 0; i < r_; i++) asm volatile("" : QUANT_DONE(d[i])::"memory");
}

// Sums that run through all of K in the tensor cores' registers: one warpgroup's 64-row parts from `part` on over the
// blocks of K from `from` to `to`. A stage is released one step later; `issued(k)` is called once the products of block
// k are on their way.
template <class First, class Second, int stages_, int mi_, int r_, class Release, class Issued>
DI void multiply_through(sum_t (&d)[mi_][r_], u32 base, u32 fulls, int part, int from, int to, int& q, u32& phase,
    Release release, Issued issued) {
  int before = 0;
  for (int k = from; k < to; k++) {
    const u32 at = base + q * (First::bytes + Second::bytes);
    mb_wait(fulls + q * 8, phase);
    mma_fence();
#pragma unroll
    for (int i = 0; i < mi_; i++) {
      const u64 a = First::desc(at, (part + i) * 64), b = Second::desc(at + First::bytes, 0);
#pragma unroll
      for (int kk = 0; kk < 4; kk++) Bytes<2 * r_>::step(d[i], a + First::step(kk), b + Second::step(kk), k > from || kk > 0);
    }
    mma_commit();
    issued(k);
    mma_wait<1>();
    if (k > from) release(before);
    before = q;
    if (++q == stages_) q = 0, phase ^= 1;
  }
  mma_wait<0>();
  release(before);
#pragma unroll
  for (int i = 0; i < mi_; i++) bytes_done(d[i]);
}

// Sums that leave the tensor cores after every block of K, 128 elements, and are added up in f32: pn_ columns of 64
// rows at a time. `ask(k)` is called before block k is waited for, `seen(k, q)` once it is there in stage q; `add(i, p,
// sums)` takes those of the 64-row part i and of the part p of pn_ columns.
template <class First, class Second, int stages_, int mi_, int parts_, int pn_, class Release, class Ask, class Seen, class Add>
DI void multiply_by_blocks(u32 base, u32 fulls, int part, int from, int to, int& q, u32& phase, Release release,
    Ask ask, Seen seen, Add add) {
  for (int k = from; k < to; k++) {
    const u32 at = base + q * (First::bytes + Second::bytes);
    ask(k);
    mb_wait(fulls + q * 8, phase);
    seen(k, q);
#pragma unroll
    for (int i = 0; i < mi_; i++)
#pragma unroll
      for (int p = 0; p < parts_; p++) {
        sum_t d[pn_ / 2];
        const u64 a = First::desc(at, (part + i) * 64), b = Second::desc(at + First::bytes, p * pn_);
        mma_fence();
#pragma unroll
        for (int kk = 0; kk < 4; kk++) Bytes<pn_>::step(d, a + First::step(kk), b + Second::step(kk), kk > 0);
        mma_commit();
        mma_wait<0>();
        bytes_done(d);
        if (i == mi_ - 1 && p == parts_ - 1) release(q);
        add(i, p, d);
      }
    if (++q == stages_) q = 0, phase ^= 1;
  }
}

// The same for one part of 64 rows by pn_ columns whose registers suffice twice: the products of a block are on their
// way while those of the block before are added up. `seen(k, q)` is called before a stage is released,
// by each warp in its own time: where it reads from the stage, every warp has to say that it did.
template <class First, class Second, int stages_, int pn_, class Release, class Seen, class Add>
DI void multiply_overlapped(u32 base, u32 fulls, int part, int from, int to, int& q, u32& phase, Release release, Seen seen, Add add) {
  sum_t even[pn_ / 2], odd[pn_ / 2];
  int before = 0;
  auto issue = [&](sum_t(&d)[pn_ / 2]) {
    const u32 at = base + q * (First::bytes + Second::bytes);
    mb_wait(fulls + q * 8, phase);
    const u64 a = First::desc(at, part * 64), b = Second::desc(at + First::bytes, 0);
    mma_fence();
#pragma unroll
    for (int kk = 0; kk < 4; kk++) Bytes<pn_>::step(d, a + First::step(kk), b + Second::step(kk), kk > 0);
    mma_commit();
  };
  auto take = [&](sum_t(&d)[pn_ / 2], int k) {
    bytes_done(d);
    seen(k, before);
    release(before);
    add(0, 0, d);
  };
  auto next = [&] {
    before = q;
    if (++q == stages_) q = 0, phase ^= 1;
  };
  issue(even);
  next();
  int k = from + 1;
  for (; k + 1 < to; k += 2) {
    issue(odd);
    mma_wait<1>();
    take(even, k - 1);
    next();
    issue(even);
    mma_wait<1>();
    take(odd, k);
    next();
  }
  if (k < to) {
    issue(odd);
    mma_wait<1>();
    take(even, k - 1);
    next();
    mma_wait<0>();
    take(odd, k);
  } else {
    mma_wait<0>();
    take(even, k - 1);
  }
}

// A block's factors as they come with its stage: those of rows_ lines of one operand, and for each part of the other
// the four of which one belongs to the block. Needs lines on 16 bytes: M a multiple of four.
template <int rows_, int parts_, int pn_> struct Staged {
  static constexpr u32 bytes = rows_ * 4 + parts_ * 16;
  // Asks for those of block k of the tile at `row` and `col`; they count on the stage's barrier.
  static DI void load(u32 dst, u32 bar, const Factors& f, int row, int col, int N, int k) {
    const int lines = min(rows_, f.m - row);
    u32 all = parts_ * 16;
    if (lines > 0) all += lines * 4;
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(all) : "memory");
    if (lines > 0) bring(dst, f.a + (u64)k * f.m + row, lines * 4, bar);
#pragma unroll
    for (int p = 0; p < parts_; p++)
      bring(dst + rows_ * 4 + p * 16, f.b + (u64)(min(col + p * pn_, N - 1) / 128) * f.pitch + (k & ~3), 16, bar);
  }
  static DI void bring(u32 dst, const float* src, u32 size, u32 bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        ::"r"(dst), "l"(src), "r"(size), "r"(bar) : "memory");
  }
  static DI float of_row(u32 at, int line) { return number(at + line * 4); }
  static DI float of_part(u32 at, int p, int k) { return number(at + rows_ * 4 + p * 16 + (k & 3) * 4); }
  static DI float number(u32 at) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
    return v;
  }
};

// A warpgroup's finished sums of four bytes straight from its registers to C: nothing is waited for.
template <int mi_, int r_> DI void store_direct(const sum_t (&d)[mi_][r_], out_t* c, int row, int col, int M, int N) {
  const int tid = threadIdx.x & 127, r0 = row + (tid >> 5) * 16 + (tid & 31) / 4, c0 = col + (tid & 3) * 2;
#pragma unroll
  for (int i = 0; i < mi_ * 2; i++) {
    const int r = r0 + (i >> 1) * 64 + (i & 1) * 8;
    if (r >= M) continue;
    out_t* line = c + (u64)r * N;
#pragma unroll
    for (int j = 0; j < r_; j += 4)
      if (c0 + j * 2 < N)
        asm volatile("st.global.v2.b32 [%0], {%1, %2};"
                     ::"l"(line + c0 + j * 2), "r"(*reinterpret_cast<const u32*>(&d[i >> 1][j + (i & 1) * 2])),
                     "r"(*reinterpret_cast<const u32*>(&d[i >> 1][j + (i & 1) * 2 + 1])) : "memory");
  }
}

// A warpgroup's finished sums of four bytes on their way to C: panels of 64 rows by 32 columns staged in shared memory,
// swizzled as their tensor map says, and stored by TMA while others are staged. As store_tile otherwise.
template <int slots_, int mi_, int r_> DI void store_words(const sum_t (&d)[mi_][r_], const TMap* c, u32 staged,
    int row, int col, int barrier) {
  constexpr int across = r_ * 2 / 32, panels = mi_ * across;
  constexpr u32 bytes = 64 * 128;
  const int tid = threadIdx.x & 127, r = (tid >> 5) * 16 + (tid & 31) / 4;
#pragma unroll
  for (int p0 = 0; p0 < panels; p0 += slots_) {
    if (tid == 0) tma_store_wait_read();
    named_sync(barrier, 128);
#pragma unroll
    for (int p = p0; p < p0 + slots_ && p < panels; p++) {
      const sum_t* v = &d[p / across][p % across * 16];
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int low = 0; low < 2; low++) {
          const int y = r + low * 8, chunk = (j * 2 + (tid & 3) / 2) ^ (y & 7);
          asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(staged + (p - p0) * bytes + y * 128 + chunk * 16 + (tid & 1) * 8),
                       "r"(*reinterpret_cast<const u32*>(v + j * 4 + low * 2)),
                       "r"(*reinterpret_cast<const u32*>(v + j * 4 + low * 2 + 1)) : "memory");
        }
    }
    async_fence();
    named_sync(barrier, 128);
    if (tid == 0) {
#pragma unroll
      for (int p = p0; p < p0 + slots_ && p < panels; p++)
        tma_store(c, staged + (p - p0) * bytes, col + p % across * 32, row + p / across * 64);
      tma_store_commit();
    }
  }
}
