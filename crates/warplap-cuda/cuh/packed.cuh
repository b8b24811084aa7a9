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
