// Sequences that lie one behind the other without padding. Comes in: offsets of all sequences, as the caller gave them.
// Goes out: the rows of one, none of them outside of the tensor. -DPACKED: 0 where batches lie apart, 1 where sequences
// are packed, 2 where the diagonal ends at the last key of each.
#pragma once

struct Stretch {
  int first, count;
};
// The rows of sequence b of tensors with `total` rows, no more than the longest has. Offsets are read as they are now:
// the kernel before this one may have written them.
DI Stretch stretch_of(const int* offsets, u64 b, int longest, int total) {
  const volatile int* at = offsets + b;
  const int from = min(max(at[0], 0), total), to = min(max(at[1], from), total);
  return {from, min(to - from, longest)};
}
// Where the numbers of a sequence begin that are kept in whole blocks of `block`: no two sequences share a block.
DI u64 padded_of(int first, int b, int block) { return ((u64)(first / block) + b) * block; }

// Whole warps come to what follows: lanes look at offsets of 32 sequences at a time. A grid of as many tiles as the
// longest sequence has for each would be blocks of nothing for the most part.

// The sequence b and the tile m of its rows that tile t is where every sequence is cut into tiles of tall_ rows,
// counted over all of them; false behind the last.
template <int tall_> DI bool tile_in(const int* offsets, int batch, int longest, int total, int t, int& b, int& m) {
  const int lane = threadIdx.x & 31;
  for (int first = 0; first < batch; first += 32) {
    const int i = first + lane, rows = i < batch ? stretch_of(offsets, i, longest, total).count : 0;
    const int own = (rows + tall_ - 1) / tall_;
    int sum = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int more = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += more;
    }
    const u32 hits = __ballot_sync(~0u, t < sum);
    if (hits) {
      const int at = __ffs(hits) - 1;
      b = first + at, m = t - __shfl_sync(~0u, sum - own, at);
      return true;
    }
    t -= __shfl_sync(~0u, sum, 31);
  }
  return false;
}
// The sequence whose numbers lie around a place of rows in whole blocks; below 0 where there is none.
DI int sequence_at(const int* offsets, int batch, int total, u64 place, int block) {
  for (int first = 0; first < batch; first += 32) {
    const int i = first + (threadIdx.x & 31);
    const bool before = i < batch && padded_of(stretch_of(offsets, i, total, total).first, i, block) <= place;
    const u32 lanes_before = __ballot_sync(~0u, before);
    if (lanes_before != ~0u) return first + __popc(lanes_before) - 1;
  }
  return batch - 1;
}
