/* What the kernels in binary64 come to, exactly, and what they may be off by (kernels/contract_layer.h, at its end): one row or element of each
 * operation, by MPFR. Every function fills triples: the value as high + low, and the bound. */
#ifndef NG_REFERENCE_FP64_H
#define NG_REFERENCE_FP64_H

#include "kernels/kernel.h"

typedef struct ng_triple {
    double high, low, bound;
} ng_triple;

/* NG_NO_MEMORY is what can go wrong. Rows of n elements; contract: of the kernel. */
ng_status ng_fp64_dot(const double *a, const double *b, int64_t n, const double *before, ng_triple *out); /* before NULL: 0 */
/* y [n], statistics: mean, rstd. */
ng_status ng_fp64_norm(const ng_contract *contract, const double *x, const double *gamma, const double *beta, int64_t n, double epsilon,
                       ng_triple *y, ng_triple statistics[2]);
ng_status ng_fp64_norm_backward(const ng_contract *contract, const double *x, const double *dy, const double *gamma, int64_t n, double mean,
                                double rstd, ng_triple *dx);
/* One column over m rows: out[0] dgamma, out[1] dbeta. */
ng_status ng_fp64_norm_column(const ng_contract *contract, const double *x, const double *dy, const double *mean, const double *rstd, int64_t m,
                              ng_triple out[2]);
/* Element by element; SwiGLU backward: du too. */
ng_status ng_fp64_activation(const ng_contract *contract, const double *x, const double *u, int64_t n, ng_triple *y);
ng_status ng_fp64_activation_backward(const ng_contract *contract, const double *x, const double *u, const double *d, int64_t n, ng_triple *dx,
                                      ng_triple *du);
/* out: loss, max, sum. */
ng_status ng_fp64_loss(const ng_contract *contract, const double *x, int64_t n, int32_t label, ng_triple out[3]);
ng_status ng_fp64_loss_backward(const ng_contract *contract, const double *x, int64_t n, int32_t label, double max, double sum, double d, ng_triple *dx);
/* AdamW as PyTorch has it; out: parameter, moment 1, moment 2, each [n]. scalars: ng_problem's. */
ng_status ng_fp64_adamw(const double *scalars, const double *p, const double *g, const double *m, const double *v, int64_t n, ng_triple *out[3]);
ng_status ng_fp64_norm2(const double *x, int64_t n, ng_triple *out);
ng_status ng_fp64_clip(const double *x, int64_t n, double norm, double most, ng_triple *out);

#endif
