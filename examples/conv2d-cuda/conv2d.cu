/* A block of BLOCK_X by BLOCK_Y threads computes TILE_X by TILE_Y outputs a thread, from a tile of the image in shared
   memory whose rows are PAD words longer than needed, so that columns fall into different banks. */
#define OUT_X (BLOCK_X * TILE_X)
#define OUT_Y (BLOCK_Y * TILE_Y)
#define IN_X (OUT_X + FILTER - 1)
#define IN_Y (OUT_Y + FILTER - 1)

extern "C" __global__ void __launch_bounds__(BLOCK_X * BLOCK_Y)
conv2d(float *__restrict__ out, const float *__restrict__ image, const float *__restrict__ weights) {
  __shared__ float tile[IN_Y][IN_X + PAD];
  const int tx = threadIdx.x, ty = threadIdx.y, x0 = blockIdx.x * OUT_X, y0 = blockIdx.y * OUT_Y;
  for (int j = ty; j < IN_Y; j += BLOCK_Y)
    for (int i = tx; i < IN_X; i += BLOCK_X)
      if (y0 + j < HEIGHT + FILTER - 1 && x0 + i < PITCH) tile[j][i] = image[(y0 + j) * PITCH + x0 + i];
  __syncthreads();
  float sum[TILE_Y][TILE_X] = {};
#pragma unroll
  for (int j = 0; j < FILTER; j++)
#pragma unroll
    for (int i = 0; i < FILTER; i++) {
      const float w = weights[j * FILTER + i];
#pragma unroll
      for (int b = 0; b < TILE_Y; b++)
#pragma unroll
        for (int a = 0; a < TILE_X; a++) sum[b][a] += w * tile[ty + b * BLOCK_Y + j][tx + a * BLOCK_X + i];
    }
#pragma unroll
  for (int b = 0; b < TILE_Y; b++)
#pragma unroll
    for (int a = 0; a < TILE_X; a++) {
      const int x = x0 + tx + a * BLOCK_X, y = y0 + ty + b * BLOCK_Y;
      if (x < WIDTH && y < HEIGHT) out[y * WIDTH + x] = sum[b][a];
    }
}
