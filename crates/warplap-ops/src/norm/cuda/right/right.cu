// y = norm(dropout(x + before) + residual) * weight + bias in double precision: the right answer that every other kernel is held to.
//
// Idea: one block a row, which is read again for every step. Beside y and the sum come the largest magnitudes that
// tolerances are made of: of an element before the mean is taken away and of the norm, both in the norm's unit, of a
// weight and of a bias, and of the sum of what an element is made of, in the norm's unit and as it is. With QUANT y is
// what codes are rounded from, beside it come the factors of rows, and one over the least that a row reaches.
// Facts of the problem (-D): DTYPE, LAYER (1: the mean is taken away), RESIDUAL, WEIGHT, BIAS, BEFORE, DROPOUT, SUM (1: the
// problem has it), QUANT (codes.cuh).
#include "block.cuh"
#include "codes.cuh"
#include "philox.cuh"

// What an element is made of, without signs where `plain_` says so.
template <bool plain_> DI double made(double x) { return plain_ ? fabs(x) : x; }

struct Front {
  const elem *x, *residual, *before;
  u64 seed[2], n;
  u32 below;
  float grown;
  template <bool plain_> DI double at(u64 first, u64 i) const {
    float factor[1] = {1.f};
    if (DROPOUT) dropped<false>(factor, first + i, seed, below, grown);
    const double own = made<plain_>((double)widen(x[first + i])) + (BEFORE ? made<plain_>((double)widen(before[i])) : 0.);
    return own * factor[0] + (RESIDUAL ? made<plain_>((double)widen(residual[first + i])) : 0.);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
right(const elem* __restrict__ x, const elem* __restrict__ residual, const elem* __restrict__ weight,
      const elem* __restrict__ bias, const elem* __restrict__ before, const u64* __restrict__ seed, double* __restrict__ y,
      double* __restrict__ sum, double* __restrict__ scale, u64* __restrict__ magnitudes, u64 n, double eps, u64 below, double grown) {
  const u64 first = (u64)blockIdx.x * n;
  const Front front = {x, residual, before, {DROPOUT ? seed[0] : 0, DROPOUT ? seed[1] : 0}, n, (u32)below, (float)grown};
  double mean = 0., total = 0., squares = 0.;
  if (LAYER) {
    for (u64 i = threadIdx.x; i < n; i += THREADS) total += front.at<false>(first, i);
    mean = sum_of_block(total) / n;
  }
  for (u64 i = threadIdx.x; i < n; i += THREADS) {
    const double s = front.at<false>(first, i);
    if (SUM) sum[first + i] = s;
    squares = fma(s - mean, s - mean, squares);
  }
  const double inverse = 1. / sqrt(sum_of_block(squares) / n + eps);
  double most = 0., after = 0., weights = 0., biases = 0., terms = 0., reached = 0.;
  for (u64 i = threadIdx.x; i < n; i += THREADS) {
    const double s = front.at<false>(first, i), normed = (s - mean) * inverse;
    const double w = WEIGHT ? (double)widen(weight[i]) : 1., b = BIAS ? (double)widen(bias[i]) : 0.;
    y[first + i] = fma(normed, w, b);
    if (QUANT) reached = fmax(reached, fabs(y[first + i]));
    most = fmax(most, fabs(s) * inverse), after = fmax(after, fabs(normed));
    weights = fmax(weights, fabs(w)), biases = fmax(biases, fabs(b));
    terms = fmax(terms, front.at<true>(first, i));
  }
  if (QUANT) {
    reached = most_of_block(reached);
    const double held = fmax(reached, (double)LEAST);
    // Every thread has its own elements here too.
    for (u64 i = threadIdx.x; i < n; i += THREADS) y[first + i] *= TOP / held;
    if (threadIdx.x == 0) scale[blockIdx.x] = held / TOP;
    raise(magnitudes + 6, reached > LEAST ? 1. / reached : 0.);
  }
  raise(magnitudes, most), raise(magnitudes + 1, after);
  raise(magnitudes + 4, terms * inverse), raise(magnitudes + 5, terms);
  // Every row has the same ones.
  if (blockIdx.x == 0) raise(magnitudes + 2, weights), raise(magnitudes + 3, biases);
}
