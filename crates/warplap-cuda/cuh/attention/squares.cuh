// Masks by squares. Comes in: a map with a byte for every square of 2^SQUARE queries and keys, 0 where nobody looks at
// it. Goes out: a list of the blocks that somebody looks at, for kernels whose blocks lie in one square each: they need
// to know nothing else of the mask.
// -DSQUARE: 0 where there is no map. -DLIST: blocks a list may have, no more than 65536.
#pragma once
#ifndef SQUARE
#define SQUARE 0
#endif
#ifndef LIST
#define LIST 1
#endif

typedef unsigned short place_t;

// Whether the square of a query and a key is looked at. The map is read as it is now: the kernel before this one may
// have written it.
DI bool is_seen(const void* map, u64 before, u64 mr, int query, int key) {
  return reinterpret_cast<const volatile unsigned char*>(map)[before + (u64)(query >> SQUARE) * mr + (key >> SQUARE)];
}

// Numbers of those of `count` blocks that are looked at, in their order. One whole warp comes here; how many they are.
template <class Seen> DI int list_seen(place_t* list, int count, Seen seen) {
  const int lane = threadIdx.x & 31;
  int seen_count = 0;
  for (int first = 0; first < count; first += 32) {
    const int i = first + lane;
    const bool is = i < count && seen(i);
    const u32 all = __ballot_sync(~0u, is);
    if (is) list[seen_count + __popc(all & ((1u << lane) - 1))] = (place_t)i;
    seen_count += __popc(all);
  }
  return seen_count;
}
