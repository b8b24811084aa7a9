// A block-sparse matrix in compressed rows written out with as many blocks in every row (Blocked-ELL), as cuSPARSE
// takes it.
//
// Idea: a CTA a place; places past a row's last block get the column -1 and zeros. The blocks of a block row lie side
// by side: rows of WIDE * BS elements. Limits: BS rows of whole 16 bytes (BS * SIZE % 16 == 0). Facts of the problem
// (-D): BS, SIZE (bytes of an element), WIDE (places of a block row).
typedef unsigned long long u64;

constexpr int CHUNKS = BS * SIZE / 16; // 16-byte chunks in a row of a block

extern "C" __global__ void __launch_bounds__(128)
blocked_ell(const uint4* __restrict__ values, const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
    uint4* __restrict__ to, int* __restrict__ columns) {
  const int row = blockIdx.x / WIDE, place = blockIdx.x % WIDE, block = row_ptr[row] + place;
  const bool there = block < row_ptr[row + 1];
  if (threadIdx.x == 0) columns[blockIdx.x] = there ? col_idx[block] : -1;
  for (int i = threadIdx.x; i < BS * CHUNKS; i += 128) {
    const uint4 v = there ? values[(u64)block * BS * CHUNKS + i] : make_uint4(0, 0, 0, 0);
    to[((u64)row * BS + i / CHUNKS) * (WIDE * CHUNKS) + place * CHUNKS + i % CHUNKS] = v;
  }
}
