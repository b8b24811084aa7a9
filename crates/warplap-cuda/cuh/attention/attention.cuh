// What the attention kernels share: which keys a query sees, what happens to scores, the running softmax, and how rows
// leave.
// Comes in: -DDTYPE=0 (f16) or 1 (bf16), and facts of the problem that are 0 where nothing is said: CAUSAL (1: `upper`
// counts), WINDOW (1: `lower` counts), MASK (1: an added matrix of the elements' type; 2: bytes, 0 hides; 3: as 1, but
// the kernel holds it already), MASK_PAIRS (1: rows of the mask lie on two elements), ALIBI, SOFTCAP, NEGATIVE (1: the
// scale is not above 0), DROPOUT (1: weights are dropped by `seed` and `below`, philox.cuh). Goes out: the names below.
//
// Query i sees key j where lower <= j - i <= upper. Causal from the top left corner is upper = 0, from the bottom right
// one upper = keys - queries.
// A thread holds scores as mma.sync and wgmma leave them: of every 8 columns two neighbours (lane % 4 * 2) of row lane
// / 4 and of the row 8 further.
#pragma once
#include "element.cuh"
#ifndef CAUSAL
#define CAUSAL 0
#endif
#ifndef WINDOW
#define WINDOW 0
#endif
#ifndef MASK
#define MASK 0
#endif
#ifndef MASK_PAIRS
#define MASK_PAIRS 0
#endif
#ifndef ALIBI
#define ALIBI 0
#endif
#ifndef SOFTCAP
#define SOFTCAP 0
#endif
#ifndef NEGATIVE
#define NEGATIVE 0
#endif
#ifndef LSE
#define LSE 0
#endif
#ifndef DROPOUT
#define DROPOUT 0
#endif
#include "philox.cuh"
#define LOWEST __int_as_float(0xff800000)
#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

// Scores are brought to powers of two one by one where they are bent; else the scale is part of the exponent's fused
// multiply, and what is added is divided by it.
constexpr bool SCALES_SCORES = SOFTCAP || NEGATIVE;
// Scores may be as low as floats go where a matrix is added: exponents are then taken of differences, which are exact.
constexpr bool ADDED = MASK == 1 || MASK == 3;
// A row's maximum may grow by this power of two before older sums are scaled down: weights stay below 2^8, far inside
// f16.
#ifndef LAZY
#define LAZY 8
#endif

DI float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DI float log2_fast(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DI float inverse_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DI u32 pack_pair(float low, float high) {
  u32 r;
#if DTYPE == 1
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#endif
  return r;
}
DI float widen_low(u32 pair) { return widen((elem)(pair & 0xffff)); }
DI float widen_high(u32 pair) { return widen((elem)(pair >> 16)); }

// The blocks of bn_ keys that rows from `row` to `row` + tall - 1 look at: from `begin` to before `end`.
template <int bn_> struct Span {
  int begin, end;
  DI Span(int row, int tall, int sq, int sk, int lower, int upper) {
    const int last = min(row + tall, sq) - 1, most = CAUSAL ? min(sk, last + upper + 1) : sk;
    begin = WINDOW ? max(row + lower, 0) / bn_ : 0;
    end = most <= 0 ? 0 : (most + bn_ - 1) / bn_;
  }
  DI int count() const { return max(end - begin, 0); }
};

// Which query and which keys; everything of a problem that bends a score.
struct ScoreMod {
  int sq, sk, lower, upper;
  float scale, cap, slope;   // the scale times log2(e), or over the cap; the slope times log2(e)
  float added, leans;        // what the mask and the distance are multiplied with before they are added to a score
  const unsigned char* mask; // of this batch and head
  u64 mask_row;              // bytes from one query to the next
  // The multiplier inside the exponent.
  DI float exponent() const { return SCALES_SCORES ? 1.f : scale; }
};
DI ScoreMod score_mod_of(int sq, int sk, int lower, int upper, float scale, float cap, const float* slopes,
                         const void* mask, u64 mb, u64 mh, u64 mr, int b, int h) {
  ScoreMod v;
  v.sq = sq, v.sk = sk, v.lower = lower, v.upper = upper;
  v.scale = SOFTCAP ? 2.f * LOG2E * scale / cap : scale * LOG2E, v.cap = cap * LOG2E;
  v.slope = ALIBI ? slopes[h] * LOG2E : 0.f;
  v.added = SCALES_SCORES ? LOG2E : 1.f / scale, v.leans = SCALES_SCORES || !ALIBI ? v.slope : slopes[h] / scale;
  constexpr int size = MASK == 2 ? 1 : 2;
  v.mask = reinterpret_cast<const unsigned char*>(mask) + (MASK ? (b * mb + h * mh) * size : 0), v.mask_row = mr * size;
  return v;
}

// What the mask holds for the scores of one thread: pairs of elements, or of bytes. Asked for early, so that memory
// answers during the product.
template <int r_> DI void fetch_mask(u32 (&held)[r_ / 2], const ScoreMod& v, int row, int col) {
  if (MASK != 1 && MASK != 2) return;
#pragma unroll
  for (int i = 0; i < r_ / 2; i++) {
    const int r = row + (i & 1) * 8, c = col + i / 2 * 8;
    const unsigned char* line = v.mask + r * v.mask_row;
    u32 x = 0;
    if (MASK == 1) {
      const u16* p = reinterpret_cast<const u16*>(line) + c;
      if (MASK_PAIRS) {
        if (r < v.sq && c < v.sk) x = __ldg(reinterpret_cast<const u32*>(p)); // rows end on pairs
      } else {
        if (r < v.sq && c < v.sk) x = __ldg(p);
        if (r < v.sq && c + 1 < v.sk) x |= (u32)__ldg(p + 1) << 16;
      }
    } else if (MASK_PAIRS) {
      if (r < v.sq && c < v.sk) x = __ldg(reinterpret_cast<const u16*>(line + c)), x = x & 0xff | (x & 0xff00) << 8;
    } else {
      if (r < v.sq && c < v.sk) x = __ldg(line + c);
      if (r < v.sq && c + 1 < v.sk) x |= (u32)__ldg(line + c + 1) << 16;
    }
    held[i] = x;
  }
}

// A mask's entry in the units of a score. Rounded towards zero, what is beyond floats stays the lowest of them, and
// -inf, which alone hides, stays -inf.
DI float added_of(float entry, float factor) { return __fmul_rz(entry, factor); }

// Scores of queries `row` and row + 8 and of keys `col`, col + 1, col + 8 ...: scaled, bent and added to where the
// problem says so; `edge` where some of them may lie outside what a query sees.
template <int r_>
DI void modify_scores(float (&s)[r_], const u32 (&held)[r_ / 2], const ScoreMod& v, int row, int col, bool edge) {
  if (SCALES_SCORES || ALIBI || MASK) {
    // One conversion, which takes as long as an exponential; the others are this far from it.
    const float first = ALIBI ? (float)(row + v.upper - col) : 0.f;
#pragma unroll
    for (int i = 0; i < r_; i++) {
      float x = SCALES_SCORES ? s[i] * v.scale : s[i];
      // Cap * tanh, to float32's last bits of the cap.
      if (SOFTCAP) x = v.cap * (1.f - 2.f * inverse_fast(1.f + exp2_fast(x)));
      if (ALIBI) x = fmaf(-v.leans, fabsf(first + (float)((i >> 1 & 1) * 8 - i / 4 * 8 - (i & 1))), x);
      if (ADDED) x += added_of(i & 1 ? widen_high(held[i / 2]) : widen_low(held[i / 2]), v.added);
      if (MASK == 2) x = (i & 1 ? held[i / 2] >> 16 : held[i / 2] & 0xffff) ? x : LOWEST;
      s[i] = x;
    }
  }
  if (edge) {
#pragma unroll
    for (int i = 0; i < r_; i++) {
      const int r = row + (i >> 1 & 1) * 8, c = col + i / 4 * 8 + (i & 1);
      if (c >= v.sk || (CAUSAL && c - r > v.upper) || (WINDOW && c - r < v.lower)) s[i] = LOWEST;
    }
  }
}

// Running softmax of two rows. `most` is what exponents are taken against: the true maximum or at most LAZY powers of
// two below it.
struct Running {
  float most[2], sum[2]; // `sum` is this thread's share
  DI void clear() { most[0] = most[1] = LOWEST, sum[0] = sum[1] = 0.f; }
  // Turns scores into weights. True where older sums must be multiplied with `again`.
  template <int r_> DI bool take(float (&s)[r_], float (&again)[2], float k) {
    bool grew = false;
#pragma unroll
    for (int g = 0; g < 2; g++) {
      float m = fmaxf(s[g * 2], s[g * 2 + 1]);
#pragma unroll
      for (int i = 2; i < r_ / 2; i++) m = fmaxf(m, s[i / 2 * 4 + g * 2 + (i & 1)]);
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1)), m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      const float old = most[g];
      const bool grows = (m - old) * k > (float)LAZY;
      again[g] = grows ? exp2_fast((old - m) * k) : 1.f, most[g] = grows ? m : old, grew |= grows;
      // A row that has seen nothing yet: every exponent is -inf, and -inf minus itself is no number.
      const float from = most[g] == LOWEST ? 0.f : most[g], base = from * k;
      float parts[2] = {0.f, 0.f};
#pragma unroll
      for (int i = 0; i < r_ / 2; i++) {
        float& x = s[i / 2 * 4 + g * 2 + (i & 1)];
        const float y = ADDED ? (x - from) * k : fmaf(x, k, -base);
        x = exp2_fast(y);
        parts[i & 1] += x;
      }
      sum[g] = sum[g] * again[g] + (parts[0] + parts[1]);
    }
    return grew;
  }
  // Adds up the shares. What sums of values are multiplied with, and the natural log-sum-exp.
  DI void finish(float (&inverse)[2], float (&lse)[2], float k) {
#pragma unroll
    for (int g = 0; g < 2; g++) {
      sum[g] += __shfl_xor_sync(~0u, sum[g], 1), sum[g] += __shfl_xor_sync(~0u, sum[g], 2);
      inverse[g] = sum[g] > 0.f ? 1.f / sum[g] : 0.f;
      lse[g] = sum[g] > 0.f ? (most[g] * k + log2_fast(sum[g])) * LN2 : LOWEST;
    }
  }
};

// Four words of each of a quad's lanes turned: lane t gets word t of all four.
DI void turn_quad(u32 (&v)[4], int t) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const u32 x = __shfl_xor_sync(~0u, t & 1 ? v[i] : v[i + 1], 1);
    if (t & 1) v[i] = x;
    else v[i + 1] = x;
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const u32 x = __shfl_xor_sync(~0u, t & 2 ? v[i] : v[i + 2], 2);
    if (t & 2) v[i] = x;
    else v[i + 2] = x;
  }
}

// width_ columns of row lane / 4 (half 0) or of the one 8 further (half 1), times a factor, to `line`, which lies on
// align_ bytes. Whole warps come here; `there` says whether the row exists.
template <int width_, int align_, int r_>
DI void store_row(elem* line, const float (&o)[r_], int half, float factor, bool there) {
  const int t = threadIdx.x & 3;
  constexpr int whole = align_ == 16 ? width_ / 32 * 4 : 0; // fragments of 8 columns that leave as 16 bytes a lane
#pragma unroll
  for (int i = 0; i < whole; i += 4) {
    u32 v[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
      v[j] = pack_pair(o[(i + j) * 4 + half * 2] * factor, o[(i + j) * 4 + half * 2 + 1] * factor);
    turn_quad(v, t);
    if (there) *reinterpret_cast<uint4*>(line + (i + t) * 8) = make_uint4(v[0], v[1], v[2], v[3]);
  }
#pragma unroll
  for (int i = whole; i < r_ / 4; i++) {
    const int c = i * 8 + t * 2;
    const float x = o[i * 4 + half * 2] * factor, y = o[i * 4 + half * 2 + 1] * factor;
    if (!there || c >= width_) continue;
    if (align_ >= 4 && width_ % 2 == 0) *reinterpret_cast<u32*>(line + c) = pack_pair(x, y);
    else {
      line[c] = narrow(x);
      if (c + 1 < width_) line[c + 1] = narrow(y);
    }
  }
}

// The order in which blocks take tiles: `band` heads (of all batches, counted together) at a time, so that their keys
// and values stay in L2; among them, where a causal mask makes later rows longer, the longest first.
DI void tile_of(int t, int tall, int heads, int band, int& m, int& head) {
  const int per = band * tall, part = t / per, in = t - part * per, wide = min(band, heads - part * band);
  m = in / wide, head = part * band + in - m * wide;
  if (CAUSAL) m = tall - 1 - m;
}
