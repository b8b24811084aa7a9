// What the attention kernels for Hopper share beside hopper.cuh, which is included before: copies of four dimensions,
// descriptors, and how to keep ptxas from taking the overlap of products and arithmetic apart.
#pragma once

// Products with the first operand in registers, of the widths hopper.cuh does not list.
WG_HELD(16, 8, 8, 9, 10, 11, 12, 13, 14)
WG_HELD(32, 16, 16, 17, 18, 19, 20, 21, 22)
WG_HELD(48, 24, 24, 25, 26, 27, 28, 29, 30)
WG_HELD(80, 40, 40, 41, 42, 43, 44, 45, 46)
WG_HELD(96, 48, 48, 49, 50, 51, 52, 53, 54)
WG_HELD(112, 56, 56, 57, 58, 59, 60, 61, 62)
WG_HELD(144, 72, 72, 73, 74, 75, 76, 77, 78)
WG_HELD(160, 80, 80, 81, 82, 83, 84, 85, 86)
WG_HELD(176, 88, 88, 89, 90, 91, 92, 93, 94)
WG_HELD(192, 96, 96, 97, 98, 99, 100, 101, 102)
WG_HELD(208, 104, 104, 105, 106, 107, 108, 109, 110)
WG_HELD(224, 112, 112, 113, 114, 115, 116, 117, 118)
WG_HELD(240, 120, 120, 121, 122, 123, 124, 125, 126)

DI void tma_load4(u32 dst, const TMap* m, u32 bar, int x, int y, int h, int b) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(dst),
               "l"(m), "r"(bar), "r"(x), "r"(y), "r"(h), "r"(b)
               : "memory");
}

// The part of a matrix descriptor that differs from step to step, and the whole: 32 bits are added to in one
// instruction, 64 are not.
DI u32 desc_low(u32 a, u32 leading) { return (a & 0x3FFFF) >> 4 | (leading >> 4) << 16; }
DI u64 desc_from(u32 low) {
  u64 d;
  asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"(low), "n"(1024 >> 4 | 1 << 30));
  return d;
}
// One arrival without a branch.
DI void mb_arrive_if(u32 b, bool really) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %1, 0; @p mbarrier.arrive.shared::cta.b64 _, [%0];}" ::"r"(b),
               "r"((int)really)
               : "memory");
}

// What follows on memory waits for x. The assembler sees no reason to keep a wait for products behind arithmetic, and
// moves it up; a store that never happens (x is a sum of weights) gives it one.
DI void hold_until(float x, u32 somewhere) {
  asm volatile("{.reg .pred p; setp.lt.f32 p, %0, 0fBF800000; @p st.shared.u32 [%1], 0;}" ::"f"(x), "r"(somewhere)
               : "memory");
}
DI void load_matrices(u32 (&r)[4], u32 a) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(a)
               : "memory");
}
// Where a lane of warp `warp` points ldmatrix to for 16 rows by 16 columns (from `col` on) of panels of 64 columns by
// rows_ rows, 128-byte swizzled.
template <int rows_> DI u32 in_panels(u32 base, int warp, int lane, int col) {
  const int r = warp * 16 + (lane & 15);
  return base + col / 64 * rows_ * 128 + r * 128 + (((col % 64 / 8 + (lane >> 4)) ^ (r & 7)) << 4);
}

// 64 rows times a block of bc_ columns over wide_ elements: panels of 64 elements, both operands as they lie.
template <int wide_, int bc_> DI void multiply_rows(float (&s)[bc_ / 2], u32 rows, u32 columns) {
  const u32 a = desc_low(rows, 16), b = desc_low(columns, 16);
#pragma unroll
  for (int k = 0; k < wide_ / 16; k++)
    Mma<bc_, 0, 0>::step(s, desc_from(a + (k / 4 * 8192 + k % 4 * 32 >> 4)),
                         desc_from(b + (k / 4 * bc_ * 128 + k % 4 * 32 >> 4)), k > 0);
  mma_commit();
}
// Adds weights (64 rows by bc_ columns, in registers) times a block of bc_ rows by wide_ elements.
template <int wide_, int bc_> DI void multiply_held(float (&sum)[wide_ / 2], const u32 (&p)[bc_ / 4], u32 block) {
  const u32 b = desc_low(block, bc_ * 128);
#pragma unroll
  for (int k = 0; k < bc_ / 16; k++) {
    const u32 a[4] = {p[k * 4], p[k * 4 + 1], p[k * 4 + 2], p[k * 4 + 3]};
    MmaHeld<wide_, 1>::step(sum, a, desc_from(b + (k * 2048 >> 4)), 1);
  }
  mma_commit();
}
