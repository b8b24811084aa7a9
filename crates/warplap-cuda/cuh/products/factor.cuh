// The factors of a block-sparse product as they lie in memory, and as float32: of C's type, or codes of f8e4m3. Comes
// in: what element.cuh takes, for C; -DBYTES=1 where factors are codes, with what quant.cuh takes. Goes out: factor_t,
// factor.
#pragma once
#include "element.cuh"
#if BYTES
#include "quant.cuh"
typedef u8 factor_t;
DI float factor(factor_t x) { return value(x); }
#else
typedef elem factor_t;
DI float factor(factor_t x) { return widen(x); }
#endif
