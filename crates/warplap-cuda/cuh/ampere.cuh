// What every chip from sm_80 on has, as one-line functions: cp.async, ldmatrix, mma.sync. No CUDA header is needed.
// Comes in: -DDTYPE=0 (f16), 1 (bf16) or 2 (f32, multiplied as tf32). Goes out: names used by the kernels that include
// this text.
#include "element.cuh"

DI u32 shared_addr(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Copies `bytes_` bytes, of which the first `there` come from memory and the others are zeros; nothing is read where
// `there` is 0.
template <int bytes_> DI void copy_async(u32 dst, const void* src, int there) {
  if (bytes_ == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(there) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(dst), "l"(src), "r"(there), "n"(bytes_) : "memory");
}
DI void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int left_> DI void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(left_) : "memory"); }

// Four 8x8 matrices of 16-bit elements (or 8x4 of 32-bit ones); lane i of each group of eight gives a row's address.
DI void ldmatrix4(u32 (&r)[4], u32 a) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");
}
DI void ldmatrix4_trans(u32 (&r)[4], u32 a) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");
}
DI u32 shared_load(u32 a) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(a) : "memory");
  return v;
}

// One m16n8k16 step of half types, or m16n8k8 of tf32. A: 4 registers, B: 2, sums: 4.
DI void mma_step(float* d, const u32 (&a)[4], u32 b0, u32 b1) {
#if DTYPE == 0
#define MMA_SHAPE "m16n8k16.row.col.f32.f16.f16.f32"
#elif DTYPE == 1
#define MMA_SHAPE "m16n8k16.row.col.f32.bf16.bf16.f32"
#else
#define MMA_SHAPE "m16n8k8.row.col.f32.tf32.tf32.f32"
#endif
  asm("mma.sync.aligned." MMA_SHAPE " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Of four neighbouring fragments of two-byte elements a lane holds a word each; afterwards lane t of a group of four holds
// the eight columns of fragment t, so that 16 bytes can be stored at once.
DI void quad_turn(u32 (&w)[4], int t) {
  u32 x = __shfl_xor_sync(~0u, t & 1 ? w[0] : w[1], 1), y = __shfl_xor_sync(~0u, t & 1 ? w[2] : w[3], 1);
  if (t & 1) w[0] = x, w[2] = y;
  else w[1] = x, w[3] = y;
  x = __shfl_xor_sync(~0u, t & 2 ? w[0] : w[2], 2), y = __shfl_xor_sync(~0u, t & 2 ? w[1] : w[3], 2);
  if (t & 2) w[0] = x, w[1] = y;
  else w[2] = x, w[3] = y;
}
// f32 bits rounded to tf32.
DI u32 to_tf32(u32 bits) {
  u32 r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(__uint_as_float(bits)));
  return r;
}

// Programmatic dependent launch, where the chip has it: does nothing unless the host asked for it.
DI void overlap_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The order in which blocks take the output tiles of a batch of products: bands of `group` tile rows, so that a wave
// touches a nearly square patch.
DI void banded_tile(int block, int tm, int tn, int group, int& row, int& col, int& z) {
  z = block / (tm * tn);
  const int t = block - z * tm * tn, band = t / (group * tn), top = band * group, high = min(tm - top, group), in = t - top * tn;
  row = top + in % high, col = in / high;
}

// One thread's share of bringing tiles of lines_ lines of line_ elements into stages of shared memory (pitch_ bytes a
// line), vec_ bytes a copy; the next tile lies step_ elements along the lines (along_) or step_ lines down. `fetch` and
// `advance` bring one tile; `prime` and `turn` run a ring.
template <int lines_, int line_, int pitch_, int vec_, int threads_, bool along_, int step_> struct Bring {
  static constexpr int size = sizeof(elem), n = vec_ / size, per = line_ / n, jump = threads_ / per, times = lines_ * per / threads_;
  static_assert(threads_ % per == 0 && lines_ % jump == 0, "threads take whole lines");
  const elem* from;
  u64 ld;
  int line, at, to, lines, width; // `lines` and `width` are those of the whole matrix
  DI Bring(const elem* src, u64 ld_, int lines__, int width_, int line0, int at0, int tid) : ld(ld_), lines(lines__), width(width_) {
    line = line0 + tid / per, at = at0 + tid % per * n, to = tid / per * pitch_ + tid % per * vec_;
    from = src + (u64)line * ld + at;
  }
  DI void fetch(u32 dst) {
    const int wide = max(min(width - at, n), 0);
#pragma unroll
    for (int j = 0; j < times; j++)
      copy_async<vec_>(dst + to + j * jump * pitch_, from + (u64)(j * jump) * ld, line + j * jump < lines ? wide * size : 0);
  }
  DI void advance() {
    if (along_) at += step_, from += step_;
    else line += step_, from += step_ * ld;
  }
  // Asks for tile q of `count` before there is anything to multiply; the stages lie `stage` bytes from each other.
  DI void prime(u32 dst, u32 stage, int q, int count) {
    if (q < count) fetch(dst + q * stage), advance();
  }
  // Called while tile k, in stage q, is being multiplied: asks for the one that is stages_ - 1 further.
  template <int stages_> DI void turn(u32 dst, u32 stage, int k, int q, int count) {
    if (k + stages_ - 1 < count) fetch(dst + (q == 0 ? stages_ - 1 : q - 1) * stage), advance();
  }
};

// The same for lines that begin at any 2-byte address, which no asynchronous copy takes: through registers, one tile
// ahead of the ring. Eight elements are read as words where they lie on words; where they lie across, as a half, three
// words and a half.
template <int lines_, int line_, int pitch_, int threads_, bool along_, int step_>
struct Bring<lines_, line_, pitch_, 2, threads_, along_, step_> {
  static constexpr int per = line_ / 8, jump = threads_ / per, times = lines_ * per / threads_;
  static_assert(threads_ % per == 0 && lines_ % jump == 0, "threads take whole lines");
  const u16* from;
  u64 ld;
  int line, at, to, lines, width;
  u32 held[times][5], across;
  DI Bring(const elem* src, u64 ld_, int lines__, int width_, int line0, int at0, int tid) : ld(ld_), lines(lines__), width(width_) {
    line = line0 + tid / per, at = at0 + tid % per * 8, to = tid / per * pitch_ + tid % per * 16;
    from = reinterpret_cast<const u16*>(src) + (u64)line * ld + at;
  }
  static DI u32 word(const u16* p) { return __ldg(reinterpret_cast<const u32*>(p)); }
  DI void hold() {
    const int wide = width - at;
    across = 0;
#pragma unroll
    for (int j = 0; j < times; j++) {
      u32(&h)[5] = held[j];
      const u16* p = from + (u64)(j * jump) * ld;
      const int there = line + j * jump < lines ? wide : 0;
      if (there < 8) { // at an edge: one by one
        h[0] = h[1] = h[2] = h[3] = 0;
#pragma unroll
        for (int e = 0; e < 8; e++)
          if (e < there) h[e / 2] |= (u32)__ldg(p + e) << (e % 2 * 16);
      } else if ((u64)p & 2) {
        across |= 1u << j;
        h[0] = __ldg(p), h[1] = word(p + 1), h[2] = word(p + 3), h[3] = word(p + 5), h[4] = __ldg(p + 7);
      } else h[0] = word(p), h[1] = word(p + 2), h[2] = word(p + 4), h[3] = word(p + 6);
    }
    if (along_) at += step_, from += step_;
    else line += step_, from += step_ * ld;
  }
  DI void put(u32 dst) {
#pragma unroll
    for (int j = 0; j < times; j++) {
      u32(&h)[5] = held[j];
      if (across >> j & 1) {
        h[0] |= h[1] << 16;
#pragma unroll
        for (int i = 1; i < 4; i++) h[i] = h[i] >> 16 | h[i + 1] << 16;
      }
      asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
          ::"r"(dst + to + j * jump * pitch_), "r"(h[0]), "r"(h[1]), "r"(h[2]), "r"(h[3]) : "memory");
    }
  }
  DI void prime(u32 dst, u32 stage, int q, int count) {
    if (q == 0 && count > 0) hold(), put(dst);
    if (q == 0 && count > 1) hold();
  }
  template <int stages_> DI void turn(u32 dst, u32 stage, int k, int q, int count) {
    if (k + 1 < count) put(dst + (q + 1 == stages_ ? 0 : q + 1) * stage);
    if (k + 2 < count) hold();
  }
};
