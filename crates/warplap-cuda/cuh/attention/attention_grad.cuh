// What the kernels of attention's backward pass share: weights from scores and log-sum-exps, and the order of tiles.
// Comes in: attention.cuh, included before, with its facts (CAUSAL, WINDOW, MASK 1 or 2, ALIBI, SOFTCAP). Goes out: the
// names below.
//
// From q, k, the log-sum-exp L of a query and delta = sum(dO * O) of a query, all of a score's gradients follow one by
// one: P = exp(score - L), dP = dO * V', dS = P * (dP - delta), times the slope of the cap where scores are capped.
// Where weights were dropped, dP is zero for those and grows for the others, and delta is as it is.
// delta.cu writes L in powers of two, +inf where a query sees nothing or does not exist: its weights are then zeros.
// A thread holds scores as mma.sync and wgmma leave them. Turned, rows are keys and columns queries; else as in the
// forward pass.
#pragma once

// Scores are weighed by one fused multiply where nothing but the scale bends them.
constexpr bool PLAIN = !(SOFTCAP || ALIBI || MASK);

// The queries that keys from `key` to key + wide - 1 are seen by, in blocks of bm_: from `begin` to before `end`.
template <int bm_> struct Seen {
  int begin, end;
  DI Seen(int key, int wide, int sq, int sk, int lower, int upper) {
    const int last = min(key + wide, sk) - 1, most = WINDOW ? min(sq, last - lower + 1) : sq;
    begin = CAUSAL ? max(key - upper, 0) / bm_ : 0;
    end = most <= 0 ? 0 : (most + bm_ - 1) / bm_;
  }
  DI int count() const { return max(end - begin, 0); }
};

// The order in which blocks take tiles of keys: `band` heads of K at a time, the first keys first, which most queries
// see where a causal mask makes a difference.
DI void keys_of(int t, int tall, int heads, int band, int& n, int& head) {
  const int per = band * tall, part = t / per, in = t - part * per, wide = min(band, heads - part * band);
  n = in / wide, head = part * band + in - n * wide;
}

// Whether some of these queries do not see some of these keys.
DI bool has_edge(const ScoreMod& v, int row, int tall, int col, int wide) {
  return col + wide > v.sk || (CAUSAL && col + wide - 1 - row > v.upper) || (WINDOW && col - row - tall + 1 < v.lower);
}

// What a mask holds for one query and one key, in powers of two; the lowest hides.
DI float mask_of(const ScoreMod& v, int r, int c) {
  if (r >= v.sq || c >= v.sk) return 0.f;
  const unsigned char* line = v.mask + r * v.mask_row;
  if (MASK == 2) return __ldg(line + c) ? 0.f : LOWEST;
  return widen(__ldg(reinterpret_cast<const u16*>(line) + c)) * LOG2E;
}

// Scores of rows `at`, at + 8 and columns `from`, from + 1, from + 8 ... become weights; `lse(i)` is the log-sum-exp in
// powers of two of score i's query, `added` what its mask holds for a query and a key, as mask_of gives it. With a cap
// `steep` is what gradients of scores are multiplied with.
template <bool turned_, int r_, class Lse, class Added>
DI void weigh(float (&s)[r_], float (&steep)[SOFTCAP ? r_ : 1], const ScoreMod& v, int at, int from, bool edge, Lse lse,
              Added added) {
  // One conversion, which takes as long as an exponential; the others are this far from it.
  const float first = ALIBI ? (float)((turned_ ? from - at : at - from) + v.upper) : 0.f;
#pragma unroll
  for (int i = 0; i < r_; i++) {
    if (PLAIN) {
      s[i] = exp2_fast(fmaf(s[i], v.scale, -lse(i)));
      continue;
    }
    const int x = at + (i >> 1 & 1) * 8, y = from + i / 4 * 8 + (i & 1), r = turned_ ? y : x, c = turned_ ? x : y;
    float z = s[i] * v.scale;
    if (SOFTCAP) {
      const float tanh_score = 1.f - 2.f * inverse_fast(1.f + exp2_fast(z));
      z = v.cap * tanh_score, steep[SOFTCAP ? i : 0] = 1.f - tanh_score * tanh_score;
    }
    const int away = (i >> 1 & 1) * 8 - i / 4 * 8 - (i & 1);
    if (ALIBI) z = fmaf(-v.slope, fabsf(first + (float)(turned_ ? -away : away)), z);
    if (MASK) z += added(i, r, c);
    s[i] = exp2_fast(z - lse(i));
  }
  if (edge) {
#pragma unroll
    for (int i = 0; i < r_; i++) {
      const int x = at + (i >> 1 & 1) * 8, y = from + i / 4 * 8 + (i & 1), r = turned_ ? y : x, c = turned_ ? x : y;
      if (c >= v.sk || (CAUSAL && c - r > v.upper) || (WINDOW && c - r < v.lower)) s[i] = 0.f;
    }
  }
}

// The same with the mask as it lies in memory.
template <bool turned_, int r_, class Lse>
DI void weigh(float (&s)[r_], float (&steep)[SOFTCAP ? r_ : 1], const ScoreMod& v, int at, int from, bool edge,
              Lse lse) {
  weigh<turned_>(s, steep, v, at, from, edge, lse,
                 [&](int, int r, int c) __attribute__((always_inline)) { return mask_of(v, r, c); });
}

// Weights are never below zero: those that were dropped bear a sign from here on.
template <bool turned_, int r_> DI void mark_dropped(float (&s)[r_], const Drops& d, int at, int from) {
  each_kept<turned_, r_>(d, at, from, [&](int i, bool kept) { s[i] = kept ? s[i] : -s[i]; });
}
// What is left of a weight.
DI float left(float weight) { return DROPOUT ? fmaxf(weight, 0.f) : weight; }
// The gradient of a score, before the slope of a cap.
DI float slope_of(float weight, float dp, float delta, float grown) {
  if (!DROPOUT) return weight * (dp - delta);
  return fabsf(weight) * fmaf(__float_as_int(weight) < 0 ? 0.f : dp, grown, -delta);
}
