// Activations in double precision, for right answers. Comes in: -DACT, as epilogue.cuh counts them (none without it).
// Goes out: activated. Behind element.cuh.
#ifndef ACT
#define ACT 0
#endif

DI double activated(double x) {
#if ACT == 1
  return x < 0. ? 0. : x;
#elif ACT == 2
  return x / (1. + exp(-2. * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
#elif ACT == 3
  return 0.5 * x * erfc(-0.70710678118654752440 * x);
#elif ACT == 4
  return x / (1. + exp(-x));
#elif ACT == 5
  return tanh(x);
#elif ACT == 6
  return 1. / (1. + exp(-x));
#else
  return x;
#endif
}
