// Dropout by position: the factor of an element follows from its place and a seed alone. Twin of `philox.rs`, which says
// the rule. Goes out: philox, dropped.
#pragma once
#include "element.cuh"

DI uint4 philox(u64 counter, u64 stream, u64 seed) {
  u32 c0 = (u32)counter, c1 = (u32)(counter >> 32), c2 = (u32)stream, c3 = (u32)(stream >> 32), k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
  for (int i = 0; i < 10; i++) {
    const u64 p = (u64)0xD2511F53u * c0, q = (u64)0xCD9E8D57u * c2;
    c0 = (u32)(q >> 32) ^ c1 ^ k0, c1 = (u32)q, c2 = (u32)(p >> 32) ^ c3 ^ k1, c3 = (u32)p;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return make_uint4(c0, c1, c2, c3);
}

// Elements from one on, dropped or grown. Eight share a call where `aligned_` says that they begin at a multiple of
// their number, which divides eight or is eight.
template <bool aligned_, int n_> DI void dropped(float (&v)[n_], u64 first, const u64 (&seed)[2], u32 below, float grown) {
  if (aligned_) {
    const uint4 r = philox(first / 8, seed[1], seed[0]);
    const bool late = n_ < 8 && first & 4, odd = n_ < 4 && first & 2;
    const u32 w[4] = {late ? (odd ? r.w : r.z) : odd ? r.y : r.x, late ? r.w : r.y, r.z, r.w};
#pragma unroll
    for (int i = 0; i < n_; i++) v[i] = (i % 2 ? w[i / 2] >> 16 : w[i / 2] & 0xffffu) < below ? 0.f : v[i] * grown;
  } else {
#pragma unroll
    for (int i = 0; i < n_; i++) {
      const uint4 r = philox((first + i) / 8, seed[1], seed[0]);
      const u32 at = (u32)(first + i) % 8, w = at < 2 ? r.x : at < 4 ? r.y : at < 6 ? r.z : r.w;
      v[i] = (at % 2 ? w >> 16 : w & 0xffffu) < below ? 0.f : v[i] * grown;
    }
  }
}

// Which weights of one head of attention are dropped. Four share a call: those of queries i and i + 8 (of every
// sixteen) and keys j and j + 8, which one thread holds whichever way round tensor cores leave them.
struct Drops {
  u32 key, row, col, below; // `below` in the upper half
};
DI Drops drops_of(const u64* seed, u64 head, u32 below) {
  const uint4 r = philox(head, seed[1], seed[0]);
  return {r.x, r.y, r.z, below << 16};
}
DI float grown_of(u32 below) { return 65536.f / (float)(65536 - below); }
DI uint2 drop_words(const Drops& d, int i, int j) {
  u32 c0 = d.row + (i >> 4 << 3 | i & 7), c1 = d.col + (j >> 4 << 3 | j & 7), k = d.key;
#pragma unroll
  for (int n = 0; n < 7; n++) {
    const u64 p = (u64)0xD256D193u * c0;
    c0 = (u32)(p >> 32) ^ k ^ c1, c1 = (u32)p, k += 0x9E3779B9u;
  }
  return make_uint2(c0, c1);
}
// Of a word, the low half or the high one.
DI bool is_kept(u32 word, bool high, u32 below) { return (high ? word : word << 16) >= below; }
// Whether the weight of query i and key j stays.
DI bool is_kept(const Drops& d, int i, int j) {
  const uint2 w = drop_words(d, i, j);
  return is_kept(i & 8 ? w.y : w.x, j & 8, d.below);
}
// The same of all scores that a thread holds of rows `at`, at + 8 and columns `from`, from + 1, from + 8 ... as
// attention.cuh has them: `each(number, stays)`. Turned, rows are keys. `at` and `from` have no eight in them.
template <bool turned_, int r_, class Each> DI void each_kept(const Drops& d, int at, int from, Each each) {
#pragma unroll
  for (int n = 0; n < r_; n += 8)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int x = at, y = from + n * 2 + e;
      const uint2 w = turned_ ? drop_words(d, y, x) : drop_words(d, x, y);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const bool next = i & 1, below = i >> 1 & 1; // eight columns, or eight rows further
        each(n + next * 4 + below * 2 + e, is_kept(turned_ ? (next ? w.y : w.x) : below ? w.y : w.x, turned_ ? below : next, d.below));
      }
    }
}
