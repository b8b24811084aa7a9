// Helper of every variant, before it.
//
// Every block of a matrix turned: block i of the result is the transpose of block place[i].
//
// Idea: a CTA a block. The whole block goes through shared memory at once, 16 bytes at a time on both sides; where it is
// too large for that, in patches of 32 x 32. The reads and writes of a plain copy. Limits: 16-byte aligned buffers. Facts
// of the problem (-D): BS, BC (rows and columns of a block of the result), SIZE (bytes of an element: 1, 2, 4).
typedef unsigned long long u64;
#if SIZE == 1
typedef unsigned char word;
#elif SIZE == 2
typedef unsigned short word;
#else
typedef unsigned int word;
#endif

constexpr int VEC = 16 / SIZE, PITCH = BS + 4 / SIZE; // lines of a block as it is stored have BS elements
constexpr bool WHOLE = BC * PITCH * SIZE <= 40000 && BS % VEC == 0 && BC % VEC == 0;
constexpr int IN = BS < VEC ? 1 : BS / VEC, OUT = BC < VEC ? 1 : BC / VEC; // runs of 16 bytes in a line, both sides

union Sixteen {
  uint4 all;
  word each[VEC];
};

extern "C" __global__ void __launch_bounds__(256) turn(const word* __restrict__ from, word* __restrict__ to,
    const int* __restrict__ place) {
  __shared__ word patch[WHOLE ? BC * PITCH : 32 * 33];
  const word* a = from + (u64)place[blockIdx.x] * (BS * BC);
  word* b = to + (u64)blockIdx.x * (BS * BC);
  if (WHOLE) {
    for (int i = threadIdx.x; i < BS * BC / VEC; i += 256) {
      Sixteen some;
      some.all = __ldg(reinterpret_cast<const uint4*>(a) + i);
      const int y = i / IN, x = i % IN * VEC;
#pragma unroll
      for (int v = 0; v < VEC; v++) patch[y * PITCH + x + v] = some.each[v];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < BS * BC / VEC; i += 256) {
      Sixteen some;
      const int x = i / OUT, y = i % OUT * VEC;
#pragma unroll
      for (int v = 0; v < VEC; v++) some.each[v] = patch[(y + v) * PITCH + x];
      reinterpret_cast<uint4*>(b)[i] = some.all;
    }
    return;
  }
  for (int y = 0; y < BC; y += 32)
    for (int x = 0; x < BS; x += 32) {
      for (int i = threadIdx.x; i < 1024; i += 256)
        if (y + i / 32 < BC && x + i % 32 < BS) patch[i / 32 * 33 + i % 32] = a[(y + i / 32) * BS + x + i % 32];
      __syncthreads();
      for (int i = threadIdx.x; i < 1024; i += 256)
        if (x + i / 32 < BS && y + i % 32 < BC) b[(x + i / 32) * BC + y + i % 32] = patch[i % 32 * 33 + i / 32];
      __syncthreads();
    }
}
