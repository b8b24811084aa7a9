// What the attention kernels for every chip from sm_80 on share beside ampere.cuh, which is included before.
// Comes in: -DALIGN (bytes every row lies on: 16, 8, 4, 2). Goes out: bring.
#pragma once

DI void bring_piece(u32 to, const elem* from, int bytes) {
#if ALIGN == 2
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(bytes ? *from : (elem)0) : "memory");
#else
  copy_async<ALIGN>(to, from, bytes);
#endif
}
// rows_ rows of width_ elements, of which `there` exist, to lines of pitch_ bytes; what is missing, and what pads a row
// to padded_ elements, becomes zeros.
template <int threads_, int rows_, int width_, int padded_, int pitch_>
DI void bring(u32 dst, const elem* src, u64 ld, int there) {
  constexpr int n = ALIGN / 2, per = padded_ / n, all = rows_ * per, pieces = (all + threads_ - 1) / threads_;
  if (threads_ % per == 0) { // a thread keeps its column
    constexpr int jump = threads_ / per > 0 ? threads_ / per : 1;
    const int r = threadIdx.x / per, c = threadIdx.x % per * n, wide = c < width_ ? min((width_ - c) * 2, ALIGN) : 0;
    const elem* from = src + r * ld + c;
    const u32 to = dst + r * pitch_ + c * 2;
#pragma unroll
    for (int i = 0; i < (rows_ + jump - 1) / jump; i++) {
      if (rows_ % jump != 0 && r + i * jump >= rows_) break;
      bring_piece(to + i * jump * pitch_, from + i * jump * ld, r + i * jump < there ? wide : 0);
    }
  } else { // where every piece is of another column, places of many pieces would be kept in registers all along
#pragma unroll(pieces <= 8 ? pieces : 4)
    for (int first = 0; first < all; first += threads_) {
      const int i = first + threadIdx.x, r = i / per, c = i % per * n;
      if (all % threads_ != 0 && i >= all) break;
      bring_piece(dst + r * pitch_ + c * 2, src + r * ld + c,
                  r < there && c < width_ ? min((width_ - c) * 2, ALIGN) : 0);
    }
  }
}
