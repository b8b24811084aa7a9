// Numbers as whole ones in the order of rows: NaN above all, both zeros alike, -inf above 0, which stands for nothing.
// Twin of `order.rs`. Behind element.cuh. Goes out: rank_of, number_of.
#pragma once

DI u32 rank_of(float x) {
  u32 bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return ~0u;
  if (bits == 0x80000000u) bits = 0;
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// The number of a rank; that of NaN is one.
DI float number_of(u32 rank) { return __uint_as_float(rank >> 31 ? rank & 0x7fffffffu : ~rank); }
