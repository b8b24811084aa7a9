// Whose rows are whose: the ends of groups come in; where each group begins and which tiles of rows it has go out.
//
// An end that goes back, or leads past the rows, is taken as the nearest that does not: nothing outside is read or
// written, whatever the list holds. Facts of the problem (-D): EXPERTS (1 to 1024).
#pragma once
#ifndef DI
#define DI __device__ __forceinline__
#endif

// begins[e] is the first row of expert e, begins[EXPERTS] the first of nobody; firsts[e] says how many tiles of tall_
// rows the experts before e have, firsts[EXPERTS] how many there are.
struct Groups {
  int begins[EXPERTS + 1], firsts[EXPERTS + 1];
};

// By one warp, each lane some experts in a row.
template <int tall_> DI void scan_groups(Groups& groups, const int* offsets, int rows) {
  constexpr int each = (EXPERTS + 31) / 32;
  const int lane = threadIdx.x & 31, first = lane * each;
  int ends[each], most = 0;
#pragma unroll
  for (int i = 0; i < each; i++) {
    const int end = first + i < EXPERTS ? offsets[first + i] : 0;
    ends[i] = most = max(most, min(end, rows));
  }
#pragma unroll
  for (int o = 1; o < 32; o *= 2) {
    const int other = __shfl_up_sync(~0u, most, o);
    if (lane >= o) most = max(most, other);
  }
  const int last = __shfl_sync(~0u, most, 31);
  int begin = __shfl_up_sync(~0u, most, 1);
  if (lane == 0) begin = 0;
  int tiles = 0;
#pragma unroll
  for (int i = 0; i < each; i++) {
    const int end = max(ends[i], begin);
    if (first + i < EXPERTS) groups.begins[first + i] = begin;
    ends[i] = (end - begin + tall_ - 1) / tall_;
    tiles += ends[i], begin = end;
  }
  int before = tiles;
#pragma unroll
  for (int o = 1; o < 32; o *= 2) {
    const int other = __shfl_up_sync(~0u, before, o);
    if (lane >= o) before += other;
  }
  const int all = __shfl_sync(~0u, before, 31);
  before -= tiles;
#pragma unroll
  for (int i = 0; i < each; i++) {
    if (first + i < EXPERTS) groups.firsts[first + i] = before;
    before += ends[i];
  }
  if (lane == 0) groups.begins[EXPERTS] = last, groups.firsts[EXPERTS] = all;
}

// The expert that has a tile, of those there are: the last whose first tile does not lie behind it. By one thread.
DI int expert_of(const Groups& groups, int tile) {
  int low = 0, high = EXPERTS;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (groups.firsts[middle] <= tile) low = middle;
    else high = middle;
  }
  return low;
}

// The same by all lanes of a warp, which look at once.
struct Finder {
  static constexpr int each = (EXPERTS + 31) / 32;
  const Groups& groups;
  int first; // the first tile of the lane's experts
  DI Finder(const Groups& groups_) : groups(groups_) {
    const int expert = (int)(threadIdx.x & 31) * each;
    first = expert < EXPERTS ? groups.firsts[expert] : 0x7fffffff;
  }
  DI int expert_of(int tile) const {
    const int begin = (31 - __clz(__ballot_sync(~0u, first <= tile))) * each, expert = begin + (threadIdx.x & 31);
    const bool is = (threadIdx.x & 31) < each && expert < EXPERTS && groups.firsts[expert] <= tile;
    return begin + 31 - __clz(__ballot_sync(~0u, is));
  }
};
