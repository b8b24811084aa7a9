/* A weighted mean over SIZE by SIZE neighbours; the weights lie in constant memory, which a warp reads at one address at a
   time at the price of a register. A thread computes TILE outputs one below the other and keeps what they share. */
__constant__ float weights[SIZE * SIZE];

extern "C" __global__ void __launch_bounds__(BLOCK_X * BLOCK_Y)
blur(const float *__restrict__ image, float *__restrict__ out) {
  const int x = blockIdx.x * BLOCK_X + threadIdx.x, y = (blockIdx.y * BLOCK_Y + threadIdx.y) * TILE;
  if (x >= WIDTH || y >= HEIGHT) return;
  float sum[TILE] = {};
#pragma unroll
  for (int j = 0; j < TILE + SIZE - 1; j++) {
    if (y + j >= HEIGHT + SIZE - 1) break;
#pragma unroll
    for (int i = 0; i < SIZE; i++) {
      const float pixel = image[(y + j) * PITCH + x + i];
#pragma unroll
      for (int t = 0; t < TILE; t++)
        if (j >= t && j - t < SIZE) sum[t] += weights[(j - t) * SIZE + i] * pixel;
    }
  }
#pragma unroll
  for (int t = 0; t < TILE; t++)
    if (y + t < HEIGHT) out[(y + t) * WIDTH + x] = sum[t];
}
