// Every block of a matrix turned: block i of the result is the transpose of block place[i].
//
// Idea: a CTA a block, in patches of 32 x 32 through shared memory, so that both sides are read and written along rows.
// The reads and writes of a plain copy. Facts of the problem (-D): BS, BC (rows and columns of a block of the result),
// SIZE (bytes of an element: 2, 4).
typedef unsigned long long u64;
#if SIZE == 2
typedef unsigned short word;
#else
typedef unsigned int word;
#endif

extern "C" __global__ void __launch_bounds__(256) turn(const word* __restrict__ from, word* __restrict__ to, const int* __restrict__ place) {
  __shared__ word patch[32][33];
  const word* a = from + (u64)place[blockIdx.x] * (BS * BC);
  word* b = to + (u64)blockIdx.x * (BS * BC);
  for (int y = 0; y < BC; y += 32)
    for (int x = 0; x < BS; x += 32) {
      for (int i = threadIdx.x; i < 1024; i += 256)
        if (y + i / 32 < BC && x + i % 32 < BS) patch[i / 32][i % 32] = a[(y + i / 32) * BS + x + i % 32];
      __syncthreads();
      for (int i = threadIdx.x; i < 1024; i += 256)
        if (x + i / 32 < BS && y + i % 32 < BC) b[(x + i / 32) * BC + y + i % 32] = patch[i % 32][i / 32];
      __syncthreads();
    }
}
