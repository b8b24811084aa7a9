// Tiles of all groups, for kernels of the copy engine: in which order a persistent grid visits them, how the matrix of
// an expert is brought, and how a tile whose last rows are another's is stored. Includes hopper.cuh and groups.cuh.
// Facts of the problem (-D): W_COL (1: matrices of w are column-major), EXPERTS.
#pragma once
#include "hopper.cuh"
#include "groups.cuh"

// Expert by expert, within one in bands of group_ tile rows: those above each other share its matrix, those beside each
// other its rows. `firsts` of the groups count tiles of bm_*cm_ rows.
template <int bm_, int bn_, int cm_, int cn_, int group_> struct GroupTiles : Tiles<bm_, bn_, cm_, cn_, group_> {
  const Groups& groups;
  DI GroupTiles(const Groups& groups_, int n, u32 rank) : Tiles<bm_, bn_, cm_, cn_, group_>(1, n, 1, rank), groups(groups_) {
    this->count = groups.firsts[EXPERTS] * this->tn;
  }
  DI void at(int t, int& row, int& col, int& z) const { z = expert_of(groups, t / this->tn), within(t, row, col, z); }
  DI void within(int t, int& row, int& col, int z) const {
    const int first = groups.firsts[z], tm = groups.firsts[z + 1] - first;
    t -= first * this->tn;
    const int band = t / (group_ * this->tn), top = band * group_, high = min(tm - top, group_), in = t - top * this->tn;
    row = groups.begins[z] + ((top + in % high) * cm_ + this->rm) * bm_, col = ((in / high) * cn_ + this->rn) * bn_;
  }
};

// How an operand comes from its map: one map holds the matrices of all experts under each other, n or k lines each; the
// other one holds rows.
struct ByExpert {
  const TMap* rows;
  int n, k;
  template <class Op> DI void bring(u32 at, const TMap* m, u32 bar, int row, int k0, int part, u16 ctas, int z) const {
    const bool is_w = m != rows;
    Op::load(at, m, bar, row + (W_COL && is_w ? z * n : 0), k0 + (!W_COL && is_w ? z * k : 0), part, ctas);
  }
};

// As store_tile of hopper.cuh, for a tile of rows of one expert that ends in front of row `end`: whole panels leave by
// the copy engine, the rows of others are left alone.
template <int wide_, int slots_, int mi_, int r_> DI void store_rows(const float (&d)[mi_][r_], const TMap* map, u16* y,
    int n, u32 staged, int row, int col, int end, int barrier) {
  constexpr int across = r_ * 2 / wide_, panels = mi_ * across;
  constexpr u32 bytes = 64 * wide_ * 2;
  const int tid = threadIdx.x & 127;
#pragma unroll
  for (int p0 = 0; p0 < panels; p0 += slots_) {
    if (tid == 0) tma_store_wait_read();
    named_sync(barrier, 128);
#pragma unroll
    for (int p = p0; p < p0 + slots_ && p < panels; p++)
      stage_panel<wide_>(staged + (p - p0) * bytes, &d[p / across][p % across * (wide_ / 2)], tid >> 5, tid & 31);
    async_fence();
    named_sync(barrier, 128);
#pragma unroll
    for (int p = p0; p < p0 + slots_ && p < panels; p++) {
      const u32 panel = staged + (p - p0) * bytes;
      const int first = row + p / across * 64, left = col + p % across * wide_;
      if (first + 64 <= end) {
        if (tid == 0) tma_store(map, panel, left, first);
        continue;
      }
      for (int v = tid; v < 64 * (wide_ / 8); v += 128) {
        const int r = v / (wide_ / 8), c = v % (wide_ / 8), swizzle = wide_ == 64 ? r & 7 : wide_ == 32 ? (r >> 1) & 3 : (r >> 2) & 1;
        if (first + r >= end || left + c * 8 >= n) continue;
        *reinterpret_cast<uint4*>(y + (u64)(first + r) * n + left + c * 8) = shared_load8(panel + r * wide_ * 2 + ((c ^ swizzle) << 4));
      }
    }
    if (tid == 0) tma_store_commit();
  }
}
