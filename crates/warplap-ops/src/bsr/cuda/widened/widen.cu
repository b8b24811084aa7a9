// Helper of every variant, around it.
//
// Lines of one length copied to lines of another: what a longer line has more is zero, what a shorter one has less is
// left out. A warp a line. Facts of the problem (-D): UNIT (bytes that are copied at once: 2, 4, 8; divides both lines).
typedef unsigned long long u64;
#if UNIT == 8
typedef u64 unit;
#elif UNIT == 4
typedef unsigned int unit;
#else
typedef unsigned short unit;
#endif

extern "C" __global__ void __launch_bounds__(256) widen(const unit* __restrict__ from, unit* __restrict__ to, int lines,
    int before, int after) {
  const int line = blockIdx.x * 8 + threadIdx.x / 32;
  if (line >= lines) return;
  const unit* a = from + (u64)line * before;
  unit* b = to + (u64)line * after;
  for (int i = threadIdx.x % 32; i < after; i += 32) b[i] = i < before ? a[i] : (unit)0;
}
