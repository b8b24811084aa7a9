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
