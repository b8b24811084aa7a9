// Helper of every variant, before it.
//
// One over the number of rows that count, for gradients of a mean: they need it before the first row is done.
//
// Facts of the problem (-D): LABELS (4 or 8 bytes).
typedef unsigned int u32;
#if LABELS == 4
typedef int label;
#else
typedef long long label;
#endif

extern "C" __global__ void __launch_bounds__(1024) count(const label* __restrict__ labels, float* __restrict__ share,
    int rows, long long ignore) {
  __shared__ int parts[32];
  int counted = 0;
  for (int i = threadIdx.x; i < rows; i += 1024) counted += labels[i] != ignore;
  counted = __reduce_add_sync(~0u, counted);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = counted;
  __syncthreads();
  if (threadIdx.x < 32) {
    counted = __reduce_add_sync(~0u, parts[threadIdx.x]);
    if (threadIdx.x == 0) *share = 1.f / counted;
  }
}
