// Bits that hang on all bits of a number and of its place. Behind element.cuh.
#pragma once
DI u64 mixed(u64 bits, u64 place) {
  u64 x = bits ^ (place + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}
