/* The BLAS products that the exact tiers stand on, and the check that they may. */
#ifndef NG_REFERENCE_BLAS_H
#define NG_REFERENCE_BLAS_H

#include "kernels/contract.h"

/* c [m][n] = a [m][k] b [n][k]^T, row-major, no padding. Exact, whatever the order and the use of fma, if for every row of
 * a (in units of a power of two) and every row of b |a_i| |b_j| <= 2^53 (double) or 2^24 (float), |.| the Euclidean norm:
 * by Cauchy-Schwarz each partial sum over any subset of k is then an integer of that size. */
typedef void ng_dgemm(int64_t m, int64_t n, int64_t k, const double *a, const double *b, double *c);
typedef void ng_sgemm(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c);

ng_dgemm ng_blas_dgemm;
ng_sgemm ng_blas_sgemm;

/* How many threads serve m * n * k multiplications best: `threads` (0 or less: all that OpenMP would use), one if they are few. */
int ng_useful_threads(int threads, int64_t m, int64_t n, int64_t k);

/* Sets the number of threads of the two above for the process and returns what it was. */
int ng_blas_set_threads(int threads);

/* ng_blas_self_test of these two functions: NG_INTERNAL if a bit is wrong. */
ng_status ng_blas_self_test_of(ng_dgemm *dgemm, ng_sgemm *sgemm);

#endif
