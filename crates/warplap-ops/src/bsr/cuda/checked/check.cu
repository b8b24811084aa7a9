// Helper of every variant, before it.
//
// Is this a block-sparse matrix? One pass over its indices in device memory; flags[0] becomes 1 where any is wrong.
//
// Idea: a warp a block row looks at its two pointers and at neighbouring columns. Nothing is read outside of the lists
// whatever they hold. Places of a turned matrix mark a bit each, which nobody may have marked before. Comes in:
// flags[0] = 0, and with `place` a zero bit for each block behind it.

extern "C" __global__ void __launch_bounds__(256)
check(const int* __restrict__ row_ptr, const int* __restrict__ col_idx, const int* __restrict__ place,
    unsigned int* flags, int rows, int columns, int nnz) {
  const int warp = (blockIdx.x * 256 + threadIdx.x) / 32, warps = gridDim.x * 8, lane = threadIdx.x & 31;
  bool wrong = false;
  for (int row = warp; row < rows; row += warps) {
    const int begin = row_ptr[row], end = row_ptr[row + 1];
    if (begin < 0 || end < begin || end > nnz || end - begin > columns || (row == 0 && begin != 0) || (row == rows - 1 && end != nnz)) {
      wrong = true;
      continue;
    }
    for (int at = begin + lane; at < end; at += 32)
      wrong |= col_idx[at] < 0 || col_idx[at] >= columns || (at > begin && col_idx[at - 1] >= col_idx[at]);
  }
  if (place)
    for (int at = blockIdx.x * 256 + threadIdx.x; at < nnz; at += gridDim.x * 256) {
      const int to = place[at];
      wrong |= to < 0 || to >= nnz || (atomicOr(flags + 1 + to / 32, 1u << to % 32) >> to % 32 & 1);
    }
  if (wrong) flags[0] = 1;
}
