/* Exact norms, and what a contract allows a kernel to differ from them (kernels/contract_norm.h).
 *
 * Two tiers. NG_TIER_DOUBLE_DOUBLE: sums as unevaluated pairs of binary64, elements in binary64, every value with a proved
 * remainder. NG_TIER_MPFR: 700 bits, sums exact. The fast tier gives rows whose remainder is not small beside their bound to
 * MPFR, so that every element is decided. A backward pass takes mean and rstd as they are given: exact numbers. */
#ifndef NG_REFERENCE_NORM_H
#define NG_REFERENCE_NORM_H

#include "reference/format.h"
#include "reference/quantize.h" /* ng_tier */

/* Host tensors; NULL: absent. */
typedef struct ng_norm_operands {
    const ng_tensor *in;          /* [R][C] x (with its residual added), or y */
    const ng_tensor *gamma, *beta; /* [1][C] */
    const ng_tensor *gradient;    /* [R][C] */
    const ng_tensor *mean, *rstd; /* [R][1] fp32 */
    double epsilon;
} ng_norm_operands;

/* Each value is high + low up to its remainder; what a kernel may be off before its cast is `bound`, remainder included. */
typedef struct ng_norm_values {
    double *high, *low, *remainder, *bound;
} ng_norm_values;

typedef struct ng_norm_truth {
    int64_t rows, columns;
    ng_norm_values element; /* [rows][columns] y or dx */
    ng_norm_values mean, rstd; /* [rows]; forward */
    int64_t by_tier[NG_TIERS]; /* of the elements, since the truth was created */
    double *memory;
} ng_norm_truth;

ng_status ng_norm_truth_create(int64_t rows, int64_t columns, ng_norm_truth *truth);
void ng_norm_truth_free(ng_norm_truth *truth);

/* The rows [row0, row0 + rows) of the operands, into the first rows of the truth. NG_NO_MEMORY. */
ng_status ng_norm_forward(const ng_norm *norm, const ng_norm_operands *operands, int64_t row0, int64_t rows, ng_tier tier,
                          int threads, ng_norm_truth *truth);
ng_status ng_norm_backward(const ng_norm *norm, const ng_norm_operands *operands, int64_t row0, int64_t rows, ng_tier tier,
                           int threads, ng_norm_truth *truth);

/* dgamma (which 0) and dbeta (1), all rows: element [1][C] of the truth. */
ng_status ng_norm_sums(const ng_norm *norm, const ng_norm_operands *operands, int which, ng_tier tier, int threads, ng_norm_truth *truth);

/* x + residual as the contract rounds it into out's format, [rows][columns]. */
void ng_norm_add(const ng_tensor *x, const ng_tensor *residual, int threads, ng_tensor *out);

/* The factor that the contract's quantization multiplies an element of a block by whose scale is `scale` (decoded), under the
 * tensor's decoding scale; rounded as the rule rounds it. */
double ng_norm_encoding(const ng_quantization *quantization, double scale, double tensor_scale);

/* The bits that the contract fixes (NG_NORM_LANES), in its order and in binary32: another derivation than any kernel's.
 * y [R][C] is fp32, the result before its cast; mean and rstd [R][1] fp32; dx, dgamma and dbeta in their own formats.
 * NG_UNSUPPORTED: the contract fixes none. */
ng_status ng_predict_norm_forward(const ng_norm *norm, const ng_norm_operands *operands, int threads, ng_tensor *y, ng_tensor *mean,
                                  ng_tensor *rstd);
ng_status ng_predict_norm_backward(const ng_norm *norm, const ng_cast *cast, const ng_norm_operands *operands, int threads, ng_tensor *dx,
                                   ng_tensor *dgamma, ng_tensor *dbeta);

#endif
