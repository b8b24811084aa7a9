/* The right answer: one output a thread, summed in double precision. */
__constant__ float weights[SIZE * SIZE];

extern "C" __global__ void plain(const float *image, float *out) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x >= WIDTH) return;
  double sum = 0;
  for (int j = 0; j < SIZE; j++)
    for (int i = 0; i < SIZE; i++) sum += (double)weights[j * SIZE + i] * image[(y + j) * PITCH + x + i];
  out[y * WIDTH + x] = (float)sum;
}
