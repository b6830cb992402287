/* Running error analysis on MPFR numbers: a value to NG_WIDE_BITS, as good as exact, with what a kernel that rounds every operation to its own
 * format may be off by. The rules are those of running.h with the kernel's unit left open, so that one text serves kernels in binary32 and in
 * binary64: |kernel's value - x| <= e. Values that are not finite follow IEEE 754 in MPFR too; their e is 0. */
#ifndef NG_REFERENCE_WIDE_H
#define NG_REFERENCE_WIDE_H

#include "kernels/contract.h"

#include <mpfr.h>

enum { NG_WIDE_BITS = 160 };

/* A kernel's arithmetic. */
typedef struct ng_unit {
    double u, tiny, most; /* unit roundoff, half the smallest subnormal, largest finite number */
    double exp_error, log_error; /* of its functions, in units of u */
} ng_unit;
ng_unit ng_unit_of(ng_format_id compute, double exp_error);

typedef struct ng_wide {
    mpfr_t x;
    double e;
} ng_wide;

/* NULL: no memory. All are zeros. */
ng_wide *ng_wide_create(size_t count);
void ng_wide_free(ng_wide *values, size_t count);

void ng_wide_set(ng_wide *r, double x);                    /* exact */
void ng_wide_copy(ng_wide *r, const ng_wide *a);
/* A constant that the kernel holds within `units` roundings of *a. */
void ng_wide_held(const ng_unit *unit, double units, ng_wide *a);

/* r may be a or b. One rounding each. */
void ng_wide_add(const ng_unit *unit, const ng_wide *a, const ng_wide *b, ng_wide *r);
void ng_wide_sub(const ng_unit *unit, const ng_wide *a, const ng_wide *b, ng_wide *r);
void ng_wide_mul(const ng_unit *unit, const ng_wide *a, const ng_wide *b, ng_wide *r);
void ng_wide_div(const ng_unit *unit, const ng_wide *a, const ng_wide *b, ng_wide *r);
void ng_wide_sqrt(const ng_unit *unit, const ng_wide *a, ng_wide *r);
void ng_wide_exp(const ng_unit *unit, const ng_wide *a, ng_wide *r);
void ng_wide_log(const ng_unit *unit, const ng_wide *a, ng_wide *r);

/* A sum of n terms, or of n products, in any order, fused or not: what its additions lose is at most gamma_n of the sum of magnitudes. */
typedef struct ng_wide_sum {
    ng_wide sum;
    double magnitude;
    long count;
    ng_wide term; /* scratch */
} ng_wide_sum;
void ng_wide_sum_begin(ng_wide_sum *s); /* initialises */
void ng_wide_sum_zero(ng_wide_sum *s);
void ng_wide_sum_add(ng_wide_sum *s, const ng_wide *a);
void ng_wide_sum_add_product(const ng_unit *unit, ng_wide_sum *s, const ng_wide *a, const ng_wide *b);
void ng_wide_sum_done(const ng_unit *unit, const ng_wide_sum *s, ng_wide *r);
void ng_wide_sum_end(ng_wide_sum *s); /* frees */

/* The value as high + *low, and the bound as it is used, its own roundings covered; not finite: 0, or INFINITY where the kind is not certain. */
double ng_wide_get(const ng_wide *a, double *low, double *bound);

#endif
