/* What an optimizer's step should give: exact values from the hyper-parameters as the user passed them, bounds from the
 * contract's roundings, and the bits that the contract fixes. */
#ifndef NG_REFERENCE_OPTIMIZER_H
#define NG_REFERENCE_OPTIMIZER_H

#include "kernels/kernel.h"
#include "reference/running.h"

/* The hyper-parameters of a step. */
typedef struct ng_adam_reference {
    ng_optimizer_kind kind;
    bool bias_correction;
    double scalars[NG_SCALARS];
    double step;
    ng_running b1, a1, b2, a2, epsilon, w, l, k1, s2, l1, d, g;
} ng_adam_reference;

void ng_adam_reference_begin(const ng_optimizer *optimizer, const double scalars[NG_SCALARS], double step, ng_adam_reference *reference);

/* p', m', v' before their rounding for storage. */
typedef struct ng_adam_result {
    ng_running p, m, v;
} ng_adam_result;

ng_adam_result ng_adam_reference_step(const ng_adam_reference *reference, double g, double p, double m, double v);
/* The same by MPFR: c is the exact value to 2^-53 of it, and low[0 .. 2] what is left of p, m, v. */
ng_adam_result ng_adam_reference_mpfr(const ng_adam_reference *reference, double g, double p, double m, double v, double low[3]);
/* The binary32 numbers that the contract's order of roundings gives. */
void ng_adam_predict(const ng_adam_reference *reference, float g, float *p, float *m, float *v);

#endif
