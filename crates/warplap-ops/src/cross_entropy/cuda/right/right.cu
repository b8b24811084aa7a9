// Cross entropy in double precision: the right answer that every other kernel is held to.
//
// Idea: first how many rows count, then one block a row, which is read again for every step, then the total in one
// order. Beside the answers come the largest magnitudes that tolerances are made of (answer.rs says which), and the
// number of rows that count. Facts of the problem (-D): DTYPE, LABELS (4 or 8 bytes), GRAD, MEAN, SMOOTH.
#include "block.cuh"
#if LABELS == 4
typedef int label;
#else
typedef long long label;
#endif
#define PARAMETERS                                                                                                     \
  const elem *__restrict__ x, const label *__restrict__ labels, double *__restrict__ gradient,                         \
      double *__restrict__ loss, double *__restrict__ lse, double *__restrict__ total, u64 *__restrict__ magnitudes,   \
      u64 rows, u64 n, long long ignore, double smoothing, double zloss

extern "C" __global__ void __launch_bounds__(THREADS) right_count(PARAMETERS) {
  double counted = 0.;
  for (u64 i = threadIdx.x; i < rows; i += THREADS) counted += labels[i] != ignore;
  counted = sum_of_block(counted);
  if (threadIdx.x == 0) magnitudes[5] = (u64)__double_as_longlong(counted);
}

extern "C" __global__ void __launch_bounds__(THREADS) right(PARAMETERS) {
  const u64 first = (u64)blockIdx.x * n;
  const long long y = labels[blockIdx.x];
  double top = -__longlong_as_double(0x7ff0000000000000ll), sum = 0., plain = 0., far = 0.;
  for (u64 i = threadIdx.x; i < n; i += THREADS) top = fmax(top, (double)widen(x[first + i]));
  top = most_of_block(top);
  for (u64 i = threadIdx.x; i < n; i += THREADS) {
    const double v = widen(x[first + i]), weight = exp(v - top);
    sum += weight, plain += v;
    if (weight > 1e-30) far = fmax(far, fabs(v));
  }
  sum = sum_of_block(sum), plain = sum_of_block(plain) / n, far = most_of_block(far);
  const double all = top + log(sum);
  const bool counts = y != ignore;
  const double picked = counts ? (double)widen(x[first + y]) : 0.;
  if (threadIdx.x == 0) {
    const double own = counts ? all - (1. - smoothing) * picked - smoothing * plain + zloss * all * all : 0.;
    lse[blockIdx.x] = all, loss[blockIdx.x] = own;
    raise_by_one(magnitudes, far + fabs(top)), raise_by_one(magnitudes + 1, fabs(all));
    if (counts) {
      raise_by_one(magnitudes + 2, fmax(fabs(picked), SMOOTH ? fabs(plain) : 0.));
      raise_by_one(magnitudes + 3, exp(picked - all)), raise_by_one(magnitudes + 4, fabs(own));
    }
  }
  if (GRAD) {
    const double share = MEAN ? 1. / __longlong_as_double((long long)magnitudes[5]) : 1., grown = 1. + 2. * zloss * all;
    for (u64 i = threadIdx.x; i < n; i += THREADS) {
      const double hit = (long long)i == y ? 1. - smoothing : 0.;
      gradient[first + i] = counts ? share * (grown * exp((double)widen(x[first + i]) - all) - hit - smoothing / n) : 0.;
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) right_total(PARAMETERS) {
  double sum = 0.;
  for (u64 i = threadIdx.x; i < rows; i += THREADS) sum += loss[i];
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) *total = MEAN ? sum / __longlong_as_double((long long)magnitudes[5]) : sum;
}
