/* The exact product of two operands, and what a contract allows a kernel to differ from it. */
#ifndef NG_REFERENCE_GEMM_H
#define NG_REFERENCE_GEMM_H

#include "reference/format.h"
#include "reference/quantize.h" /* ng_tier */

/* c[i][j] = sum over k of a[i][k] b[j][k] (+ initial[i][j]) as high + low: high is c rounded to nearest, low is c - high
 * rounded to nearest; |c - high - low| <= 2^-105 |high + low| + 2^-1074, and 0 in the exact tiers' elements that fit.
 * A sum with a NaN, or with infinities, follows IEEE 754: high is NaN or infinite, low is 0. */
typedef struct ng_exact_product {
    int64_t m, n;
    double *high, *low;              /* [m][n] */
    int64_t elements_by_tier[NG_TIERS];
} ng_exact_product;

ng_status ng_exact_gemm(const ng_operand *a, const ng_operand *b, const ng_tensor *initial, int threads,
                        ng_exact_product *product);
/* The same by mpfr_mul and mpfr_sum, element by element: the slow derivation. */
ng_status ng_exact_gemm_mpfr(const ng_operand *a, const ng_operand *b, const ng_tensor *initial, int threads,
                             ng_exact_product *product);
void ng_exact_product_free(ng_exact_product *product);

/* Checks that this machine's cblas_dgemm is exact where it must be (integers below 2^53, all shapes that the library's
 * kernels treat apart). NG_INTERNAL: it is not, and ng_exact_gemm must not be believed. */
ng_status ng_blas_self_test(void);

/* What the kernel may be off, per element, before the cast of the result: |computed sum - c| <= bound[i][j], rounded
 * outward. From the contract alone (a priori), for any order that it allows. Infinite where intermediate overflow is possible.
 * expected (may be NULL): the probabilistic bound at failure probability 1e-9 over all elements, NaN where it does not apply. */
ng_status ng_gemm_bound(const ng_accumulation *sum, const ng_operand *a, const ng_operand *b, const ng_tensor *initial,
                        const ng_exact_product *exact, int threads, double *bound, double *expected);

/* What a kernel may return whose sum before the cast is within `bound` of c = high + low: every y with
 * lowest <= y <= highest, the values of RN(c - bound) and RN(c + bound) under `cast` (its rounding in place of RN; of
 * stochastic rounding, the outer neighbour). A cast that overflows to NaN (e4m3 without saturation) is an infinite end,
 * which that NaN attains. c NaN: both are NaN, and only NaN is right. bound infinite and c finite: the whole line.
 * NG_BAD_ARGUMENT: bound negative or NaN, no such format. */
ng_status ng_accepted_interval(ng_format_id format, const ng_cast *cast, double high, double low, double bound,
                               double *lowest, double *highest);

/* The bits that the contract fixes: computes the whole product in integer arithmetic (or FP64 where a proof says that it
 * is the same) in the contract's order. out [m][n], cast included. bound (may be NULL): the running bound from the actual
 * partial sums, as ng_gemm_bound's but sharper. NG_UNSUPPORTED: the contract does not fix the bits. */
ng_status ng_predict_gemm(const ng_accumulation *sum, const ng_cast *cast, const ng_operand *a, const ng_operand *b,
                          const ng_tensor *initial, int threads, ng_tensor *out, double *bound);

#endif
