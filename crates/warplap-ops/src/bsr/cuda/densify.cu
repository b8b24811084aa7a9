// A block-sparse matrix written out dense, row-major, zeros included.
//
// Idea: a CTA owns WIDE block columns of one block row; a thread a column searches the row's sorted indices once, then
// all threads write whole rows of the patch, 16 bytes at a time, from the block found there or zeros. Reads each block
// once, writes each element once. Limits: rows of a block of whole 16 bytes (BC * SIZE % 16 == 0); columns of a row in
// rising order. Facts of the problem (-D): BS, BC, SIZE (bytes of an element), WIDE (block columns of a CTA).
#include "hopper.cuh"

constexpr int CHUNKS = BC * SIZE / 16, NT = 256; // 16-byte chunks in a row of a block

extern "C" __global__ void __launch_bounds__(NT)
densify(const uint4* __restrict__ values, uint4* __restrict__ A, const int* __restrict__ row_ptr,
    const int* __restrict__ col_idx, int columns) {
  __shared__ int blocks[WIDE];
  pdl_launch();
  pdl_wait();
  const int parts = (columns + WIDE - 1) / WIDE;
  const int row = blockIdx.x / parts, c0 = blockIdx.x % parts * WIDE, count = min(WIDE, columns - c0);
  const int begin = __ldg(row_ptr + row), end = __ldg(row_ptr + row + 1);
  for (int i = threadIdx.x; i < count; i += NT) {
    int low = begin, high = end;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (__ldg(col_idx + middle) < c0 + i) low = middle + 1;
      else high = middle;
    }
    blocks[i] = low < end && __ldg(col_idx + low) == c0 + i ? low : -1;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < BS * count * CHUNKS; i += NT) {
    const int r = i / (count * CHUNKS), x = i % (count * CHUNKS), block = blocks[x / CHUNKS];
    const uint4 v = block >= 0 ? __ldg(values + ((u64)block * BS + r) * CHUNKS + x % CHUNKS) : make_uint4(0, 0, 0, 0);
    A[((u64)row * BS + r) * ((u64)columns * CHUNKS) + (u64)c0 * CHUNKS + x] = v;
  }
}
