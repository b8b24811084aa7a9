// Gradients of a norm in double precision: the right answer that every other kernel is held to.
//
// Idea: one block a row (`right`), which is read again for every step and leaves its mean and one over what it was divided
// by; then one thread a column (`right_columns`), which walks the rows. Beside them come the largest magnitudes that
// tolerances are made of: one over what a row was divided by, an element of s in the unit of the norm, one of the norm,
// one of the gradient times its weight, and the sum of a column's gradients without their signs.
// Facts of the problem (-D): DTYPE, LAYER (1: the mean was taken away), WEIGHT, BIAS, TOTAL, DROPOUT (1: the problem has it).
#include "block.cuh"
#include "philox.cuh"
#define PARAMETERS                                                                                                     \
  const elem *__restrict__ s, const elem *__restrict__ grad, const elem *__restrict__ weight,                          \
      const elem *__restrict__ total, const u64 *__restrict__ seed, double *__restrict__ ds, double *__restrict__ dx,  \
      double *__restrict__ dweight, double *__restrict__ dbias, double *__restrict__ rows, u64 *__restrict__ magnitudes, \
      u64 count, u64 n, double eps, u64 below, double grown

extern "C" __global__ void __launch_bounds__(THREADS) right(PARAMETERS) {
  const u64 first = (u64)blockIdx.x * n;
  const u64 drawn[2] = {DROPOUT ? seed[0] : 0, DROPOUT ? seed[1] : 0};
  auto g_at = [&](u64 i) { return (double)widen(grad[first + i]) * (WEIGHT ? (double)widen(weight[i]) : 1.); };
  double mean = 0., squares = 0., along = 0., level = 0.;
  if (LAYER) {
    for (u64 i = threadIdx.x; i < n; i += THREADS) mean += widen(s[first + i]), level += g_at(i);
    mean = sum_of_block(mean) / n, level = sum_of_block(level) / n;
  }
  for (u64 i = threadIdx.x; i < n; i += THREADS) {
    const double v = widen(s[first + i]) - mean;
    squares = fma(v, v, squares);
  }
  const double inverse = 1. / sqrt(sum_of_block(squares) / n + eps);
  double before = 0., normed = 0., steep = 0.;
  for (u64 i = threadIdx.x; i < n; i += THREADS) {
    const double v = widen(s[first + i]), h = (v - mean) * inverse, g = g_at(i);
    along = fma(h, g, along);
    before = fmax(before, fabs(v) * inverse), normed = fmax(normed, fabs(h)), steep = fmax(steep, fabs(g));
  }
  along = sum_of_block(along) / n;
  for (u64 i = threadIdx.x; i < n; i += THREADS) {
    const double h = (widen(s[first + i]) - mean) * inverse;
    const double own = inverse * (g_at(i) - level - h * along) + (TOTAL ? (double)widen(total[first + i]) : 0.);
    ds[first + i] = own;
    float factor[1] = {1.f};
    if (DROPOUT) dropped<false>(factor, first + i, drawn, (u32)below, (float)grown), dx[first + i] = own * factor[0];
  }
  raise(magnitudes, inverse), raise(magnitudes + 1, before), raise(magnitudes + 2, normed), raise(magnitudes + 3, steep);
  if (threadIdx.x == 0) rows[2 * blockIdx.x] = mean, rows[2 * blockIdx.x + 1] = inverse;
}

extern "C" __global__ void __launch_bounds__(THREADS) right_columns(PARAMETERS) {
  const u64 column = (u64)blockIdx.x * THREADS + threadIdx.x;
  double of_weight = 0., of_bias = 0., plain = 0.;
  if (column < n)
    for (u64 row = 0; row < count; row++) {
      const double g = widen(grad[row * n + column]);
      of_weight = fma((widen(s[row * n + column]) - rows[2 * row]) * rows[2 * row + 1], g, of_weight);
      of_bias += g, plain += fabs(g);
    }
  if (WEIGHT && column < n) dweight[column] = of_weight;
  if (BIAS && column < n) dbias[column] = of_bias;
  raise(magnitudes + 4, plain);
}
