/* Blocks of BLOCK_Y rows by BLOCK_X columns; UNROLL rows are summed together, so that weights are read once for them. */
static inline int least(int a, int b) { return a < b ? a : b; }

static void rows(float *restrict out, const float *restrict image, const float *restrict weights, int x0, int x1, int y, int n) {
  float sum[UNROLL][BLOCK_X];
  for (int r = 0; r < n; r++)
    for (int x = x0; x < x1; x++) sum[r][x - x0] = 0;
  for (int j = 0; j < FILTER; j++)
    for (int i = 0; i < FILTER; i++) {
      const float w = weights[j * FILTER + i];
      for (int r = 0; r < n; r++) {
        const float *from = image + (y + r + j) * PITCH + i;
        for (int x = x0; x < x1; x++) sum[r][x - x0] += w * from[x];
      }
    }
  for (int r = 0; r < n; r++)
    for (int x = x0; x < x1; x++) out[(y + r) * WIDTH + x] = sum[r][x - x0];
}

void conv2d(float *restrict out, const float *restrict image, const float *restrict weights) {
  for (int y0 = 0; y0 < HEIGHT; y0 += BLOCK_Y * UNROLL)
    for (int x0 = 0; x0 < WIDTH; x0 += BLOCK_X) {
      const int x1 = least(x0 + BLOCK_X, WIDTH), y1 = least(y0 + BLOCK_Y * UNROLL, HEIGHT);
      for (int y = y0; y < y1; y += UNROLL) rows(out, image, weights, x0, x1, y, least(UNROLL, y1 - y));
    }
}
