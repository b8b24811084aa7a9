/* The right answer: sums in double precision. */
void conv2d_naive(float *restrict out, const float *restrict image, const float *restrict weights) {
  for (int y = 0; y < HEIGHT; y++)
    for (int x = 0; x < WIDTH; x++) {
      double sum = 0;
      for (int j = 0; j < FILTER; j++)
        for (int i = 0; i < FILTER; i++) sum += (double)image[(y + j) * PITCH + x + i] * weights[j * FILTER + i];
      out[y * WIDTH + x] = (float)sum;
    }
}
