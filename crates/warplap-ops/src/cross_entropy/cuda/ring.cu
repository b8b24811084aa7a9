// Losses, and the gradient of their total in place of the logits, for long rows: pieces of a row in a ring of shared
// memory.
//
// Idea: a cluster of two blocks walks the rows. A block's half of a row comes in PIECES pieces into SLOTS places, brought
// by a warp of its own. The other warps go over the pieces twice: for the largest and the sum, then, once the blocks have
// joined theirs, for the gradient, which frees the piece. The places beyond a row's pieces take the beginning of the next
// row, so that reading goes on while the gradient is written. Wins: rows that registers cannot hold, from Hopper on.
// Limits: rows are whole vectors of 16 bytes. Facts of the problem (-D): DTYPE, LABELS, GRAD (1), KEPT, MEAN, SMOOTH, ZLOSS
// (entropy.cuh), N (logits of a row), VEC (of a vector). Of the setting: WARPS (that compute), PIECES, SLOTS, STREAM.
#include "entropy.cuh"

constexpr int BLOCKS = 2, THREADS = 32 * WARPS, VECTORS = N / VEC, PIECE = (VECTORS + BLOCKS * PIECES - 1) / (BLOCKS * PIECES);
static_assert(N % VEC == 0 && VEC * sizeof(elem) == 16 && SLOTS > PIECES, "whole vectors; a row and the beginning of the next");

DI u32 shared_at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DI u32 block_of_cluster() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
DI void barrier_made(u32 b, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(count)); }
DI void arrive(u32 b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory"); }
DI void expect(u32 b, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory"); }
DI void wait_for(u32 b, u32 parity) {
  asm volatile("{.reg .pred p; again_%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra done_%=; bra again_%=; done_%=: }" ::"r"(b), "r"(parity) : "memory");
}
DI void bring(u32 to, const void* from, u32 bytes, u32 b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      ::"r"(to), "l"(from), "r"(bytes), "r"(b) : "memory");
}
// Twelve bytes into a block's shared memory; they count on its barrier.
DI void send(u32 to, u32 b, u32 block, Soft s, float plain) {
  asm volatile("{.reg .b32 a, c; mapa.shared::cluster.u32 a, %0, %2; mapa.shared::cluster.u32 c, %1, %2;"
               "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [a], {%3, %4, %5, %5}, [c];}"
               ::"r"(to), "r"(b), "r"(block), "f"(s.most), "f"(s.sum), "f"(plain) : "memory");
}

// Where a piece of this block begins, and how many vectors it has.
DI int begin_of(int block, int piece) { return min(VECTORS, (block * PIECES + piece) * PIECE); }
DI int end_of(int block, int piece) { return min(VECTORS, (block * PIECES + piece + 1) * PIECE); }

extern "C" __global__ void __launch_bounds__(THREADS + 32, 1) __cluster_dims__(BLOCKS, 1, 1)
ring(elem* x, const label* __restrict__ labels, float* loss, float* lse, float* total, elem* beside, u32* room, int rows, int n,
    long long ignore, float smoothing, float zloss) {
  extern __shared__ __align__(128) uint4 places[];
  __shared__ __align__(8) u64 full[SLOTS], empty[SLOTS], swapped[2];
  __shared__ __align__(16) float4 joined_parts[2][BLOCKS];
  __shared__ float4 parts[2][WARPS];
  const Numbers p = {rows, N, ignore, smoothing, zloss};
  const int block = block_of_cluster(), first = blockIdx.x / BLOCKS, step = gridDim.x / BLOCKS, warp = threadIdx.x / 32,
      lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < SLOTS; i++) barrier_made(shared_at(&full[i]), 1), barrier_made(shared_at(&empty[i]), WARPS);
    barrier_made(shared_at(&swapped[0]), 1), barrier_made(shared_at(&swapped[1]), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (warp == WARPS) {
    if (lane == 0)
      for (int k = 0, row = first; row < rows; row += step)
        for (int c = 0; c < PIECES; c++, k++) {
          const u32 b = shared_at(&full[k % SLOTS]);
          const int begin = begin_of(block, c), bytes = (end_of(block, c) - begin) * 16;
          if (k >= SLOTS) wait_for(shared_at(&empty[k % SLOTS]), k / SLOTS - 1 & 1);
          expect(b, bytes);
          if (bytes) bring(shared_at(places + k % SLOTS * PIECE), x + (u64)row * N + (u64)begin * VEC, bytes, b);
        }
  } else {
    const float share = MEAN ? __int_as_float((int)room[1]) : 1.f;
    for (int i = 0, row = first; row < rows; i++, row += step) {
      const long long y = labels[row];
      Soft mine = nothing();
      float plain = 0.f;
      for (int c = 0; c < PIECES; c++) {
        const int k = i * PIECES + c, count = end_of(block, c) - begin_of(block, c);
        const uint4* here = places + k % SLOTS * PIECE;
        wait_for(shared_at(&full[k % SLOTS]), k / SLOTS & 1);
        for (int at = threadIdx.x; at < count; at += THREADS) {
          Piece piece;
          piece.whole = *reinterpret_cast<const word*>(here + at);
          join(mine, piece);
          if (SMOOTH) {
#pragma unroll
            for (int e = 0; e < VEC; e++) plain += widen(piece.one[e]);
          }
        }
      }
      // Warps, then blocks, each in one order.
      mine = both_of_warp(mine);
      if (SMOOTH) {
#pragma unroll
        for (int s = 16; s; s /= 2) plain += __shfl_xor_sync(~0u, plain, s);
      }
      if (lane == 0) parts[i & 1][warp] = make_float4(mine.most, mine.sum, plain, 0.f);
      asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
      const float4 part = lane < WARPS ? parts[i & 1][lane] : make_float4(nothing().most, 0.f, 0.f, 0.f);
      mine.most = part.x, mine.sum = part.y, plain = part.z;
      mine = both_of_warp(mine);
      if (SMOOTH) {
#pragma unroll
        for (int s = 16; s; s /= 2) plain += __shfl_xor_sync(~0u, plain, s);
      }
      const u32 b = shared_at(&swapped[i & 1]);
      if (threadIdx.x == 0) expect(b, BLOCKS * 16);
      if (threadIdx.x < BLOCKS) send(shared_at(&joined_parts[i & 1][block]), b, threadIdx.x, mine, plain);
      wait_for(b, i >> 1 & 1);
      const float4 own = joined_parts[i & 1][0], other = joined_parts[i & 1][1];
      Soft all;
      all.most = own.x, all.sum = own.y, mine.most = other.x, mine.sum = other.y;
      all = both(all, mine);
      // The block that has the label's logit tells of the row; the first where there is none. This warp has freed no
      // piece yet.
      const long long off = y - (long long)begin_of(block, 0) * VEC;
      const bool none_has = y < 0 || y >= N, has = off >= 0 && off < (long long)(end_of(block, PIECES - 1) - begin_of(block, 0)) * VEC;
      if (threadIdx.x == 0 && (none_has ? block == 0 : has)) {
        const int c = none_has ? 0 : (int)(off / (PIECE * VEC));
        const elem* here = reinterpret_cast<const elem*>(places + (i * PIECES + c) % SLOTS * PIECE);
        const float log_sum = natural(all);
        lse[row] = log_sum, loss[row] = loss_of(p, y, log_sum,
            none_has ? 0.f : widen(here[off - (long long)c * PIECE * VEC]), own.z + other.z);
      }
      const Factors f = factors_of(p, y, all, share);
      for (int c = 0; c < PIECES; c++) {
        const int k = i * PIECES + c, begin = begin_of(block, c), count = end_of(block, c) - begin;
        const uint4* here = places + k % SLOTS * PIECE;
        elem* to = (KEPT ? beside : x) + (u64)row * N + (u64)begin * VEC;
        for (int at = threadIdx.x; at < count; at += THREADS) {
          Piece piece;
          float v[VEC];
          piece.whole = *reinterpret_cast<const word*>(here + at);
          slope(v, piece, all.most, f, y - (long long)(begin + at) * VEC);
          put(to + (u64)at * VEC, v);
        }
        __syncwarp();
        if (lane == 0) arrive(shared_at(&empty[k % SLOTS]));
      }
    }
  }
  close(p, labels, loss, total, room);
  // A block's memory stays until the other has sent its last part.
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
