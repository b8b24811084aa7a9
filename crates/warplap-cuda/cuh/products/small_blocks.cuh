// What kernels of small blocks (16 or 32) share: how blocks lie in shared memory, copies of 16 bytes, and lists of the
// block columns that a group of rows uses. Comes in: hopper.cuh, -DDEAL (how tiles are dealt out), -DBS (rows of a
// block), -DBC (its columns; as many where it is not said). Goes out: the names below.
#ifndef DEAL
#define DEAL 0
#endif
#ifndef BC
#define BC BS
#endif

// Rows of wide_ elements (16, 32, 64), eight of them an atom of the swizzle that is as wide as a row: a stored block,
// and a panel of a column-major B.
template <int wide_> DI u64 narrow_desc(u32 a) {
  return (u64)((a & 0x3FFFF) >> 4) | (1ull << 16) | ((u64)(wide_ * 16 >> 4) << 32)
      | ((wide_ == 16 ? 3ull : wide_ == 32 ? 2ull : 1ull) << 62);
}
// Where 16-byte chunk c of row r lies in a block of BC columns, so that eight rows of one chunk meet different banks:
// that swizzle.
DI u32 in_block(int r, int c) { return r * BC * 2 + ((BC == 16 ? c ^ (r >> 2 & 1) : BC == 32 ? c ^ (r >> 1 & 3) : c ^ (r & 7)) << 4); }

// Sixteen bytes, of which `bytes` (16 or 0) are read and the rest are zeros.
DI void copy16(u32 to, const void* from, u32 bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
DI void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DI void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// One arrival a thread, when its copies so far have come. Those who wait see them as threads do; the tensor cores would
// need a fence.
DI void copies_arrive(u32 bar) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory"); }
DI void ldmatrix4(u32 a, u32& r0, u32& r1, u32& r2, u32& r3) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(a) : "memory");
}

// The tiles of a CTA, in runs of tiles of the same group of rows; `wide` tiles of a group lie beside each other. DEAL
// 0: as many tiles for every CTA, in as few runs as can be. DEAL 1: one tile a round, forth and back over the CTAs:
// with long groups first, sums come out nearly even, at the price of new lists for every tile.
struct Runs {
  int wide, count, tile = 0, until = 0;
  DI Runs(int groups, int wide_) : wide(wide_), count(groups * wide_) {}
  DI bool next(int round) {
    if (DEAL) {
      tile = round * (int)gridDim.x + (int)(round & 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x), until = tile + 1;
      return tile < count;
    }
    const int last = (int)((long long)count * (blockIdx.x + 1) / gridDim.x);
    tile = round == 0 ? (int)((long long)count * blockIdx.x / gridDim.x) : until;
    until = min(last, (tile / wide + 1) * wide);
    return tile < last;
  }
};

// The rows of a group (lane i's is the i-th): which block row it is or -1, and where its blocks begin and end.
struct Rows { int row[32], start[32], end[32], used_columns; };

// Which rows of a group store a block in which column: by used column a bit a row in `marks`, and which column in
// `where`. Made by all nt_ threads together; gives the number of used columns. Both lists go on with zeros up to a
// multiple of pad_; `marks` has room for a multiple of pad_ that holds all columns.
template <int all_, int nt_, int pad_>
DI int list_columns(Rows& rows, u32* marks, u16* where, int group, int block_rows, int columns, const int* row_ptr,
    const int* col_idx, const int* order) {
  const int lane = threadIdx.x & 31;
  __syncthreads(); // nobody reads the lists of the run before any more
#pragma unroll 1
  for (int i = threadIdx.x; i < columns; i += nt_) marks[i] = 0;
  if (threadIdx.x < 32) {
    const int i = group * all_ + lane;
    const int row = lane < all_ && i < block_rows ? (order ? __ldg(order + i) : i) : -1;
    rows.row[lane] = row, rows.start[lane] = row >= 0 ? __ldg(row_ptr + row) : 0, rows.end[lane] = row >= 0 ? __ldg(row_ptr + row + 1) : 0;
  }
  __syncthreads();
#pragma unroll 1
  for (int r = threadIdx.x >> 5; r < all_; r += nt_ / 32)
#pragma unroll 1
    for (int e = rows.start[r] + lane; e < rows.end[r]; e += 32) {
      const u32 c = __ldg(col_idx + e);
      if (c < (u32)columns) atomicOr(&marks[c], 1u << r); // a wrong index must not write into another list
    }
  __syncthreads();
  if (threadIdx.x < 32) {
    int n = 0;
#pragma unroll 1
    for (int c = lane; c < (columns + 31) / 32 * 32; c += 32) { // used columns move to the front
      const u32 m = c < columns ? marks[c] : 0, some = __ballot_sync(~0u, m != 0);
      const int at = n + __popc(some & ((1u << lane) - 1));
      if (m) marks[at] = m, where[at] = (u16)c;
      n += __popc(some);
    }
    __syncwarp();
    // a last stage in part brings a slab that nobody uses
    if (n + lane < (n + pad_ - 1) / pad_ * pad_) marks[n + lane] = 0, where[n + lane] = 0;
    if (lane == 0) rows.used_columns = n;
  }
  __syncthreads();
  return rows.used_columns;
}
