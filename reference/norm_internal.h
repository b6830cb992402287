/* What the tiers of the norms' reference share. Private to reference/norm*.c. */
#ifndef NG_REFERENCE_NORM_INTERNAL_H
#define NG_REFERENCE_NORM_INTERNAL_H

#include "reference/norm.h"

#include <math.h>
#include <stdlib.h>

/* The parameters, decoded: [C] each. */
typedef struct ng_norm_weights {
    double *w, *beta, *divisor;
} ng_norm_weights;

/* What the bounds need to know of a row, whichever tier found it. */
typedef struct ng_norm_row {
    double mean, mean_low, mean_remainder, absolute; /* absolute: sum |x| / C */
    double variance, rstd, rstd_low, rstd_relative;  /* rstd_relative: of the remainder */
    double g, gh, g_absolute, gh_absolute;           /* backward: c1, c2, and the means of the magnitudes */
    double g_low, gh_low, c_remainder[2];
    bool finite;                                     /* of all inputs */
} ng_norm_row;

ng_status ng_norm_mpfr_forward_row(const ng_norm *norm, const ng_norm_operands *o, const ng_norm_weights *w, int64_t row, double *x,
                                   ng_norm_row *r, double *high, double *low);
ng_status ng_norm_mpfr_backward_row(const ng_norm *norm, const ng_norm_operands *o, const ng_norm_weights *w, int64_t row, double *x,
                                    ng_norm_row *r, double *high, double *low);
/* The exact sum over the rows for one column. */
void ng_norm_mpfr_sum(const ng_norm *norm, const ng_norm_operands *o, const ng_norm_weights *w, int which, int64_t column, double *high,
                      double *low);

#endif
