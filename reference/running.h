/* Running error analysis: a value in binary64 with what a kernel that keeps its contract may be off by, operation by operation,
 * and what binary64 itself is off by. With x the exact value: |c - x| <= r, |kernel's value - x| <= e. Every rule is the first-order
 * identity of its operation with the second-order terms kept; u = 2^-24, one binary32 rounding; 2^-150 where a result may underflow.
 * What these bounds are to first order: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.3.
 * The fast tier accepts a result only within e - r of c; MPFR decides about the others. */
#ifndef NG_REFERENCE_RUNNING_H
#define NG_REFERENCE_RUNNING_H

#include "kernels/contract.h"

#include <float.h>
#include <math.h>

typedef struct ng_running {
    double c, e, r;
} ng_running;

static const double ng_running_u = 0x1p-24, ng_running_tiny = 0x1p-150, ng_running_64 = 0x1p-52;

static inline ng_running ng_run_exact(double x) { return (ng_running){x, 0, 0}; }

/* A hyper-parameter that the kernel holds as `held`, which went through memory: gcc 12 takes two neighbouring conversions to float and
 * back, done as one vector, for nothing. */
static inline ng_running ng_run_held(double exact, float narrow) {
    const volatile float kept = narrow;
    const double held = (double)kept;
    return (ng_running){exact, fabs(held - exact), fabs(exact) * ng_running_64};
}

/* One rounding to binary32 of what was just computed. A magnitude that may pass the largest number has no bound. */
static inline ng_running ng_run_rounded(ng_running x) {
    const double most = fabs(x.c) + x.e + x.r;
    x.e += ng_running_u * most + ng_running_tiny;
    if (most >= FLT_MAX && isfinite(x.c)) x.e = INFINITY;
    return x;
}

static inline ng_running ng_run_add_exact(ng_running a, ng_running b) {
    const double c = a.c + b.c;
    return (ng_running){c, a.e + b.e, a.r + b.r + fabs(c) * ng_running_64};
}
static inline ng_running ng_run_negate(ng_running a) { return (ng_running){-a.c, a.e, a.r}; }

static inline double ng_run_cross(ng_running a, ng_running b, double ea, double eb) {
    return (fabs(a.c) + a.r) * eb + (fabs(b.c) + b.r) * ea + ea * eb;
}
static inline ng_running ng_run_mul_exact(ng_running a, ng_running b) {
    const double c = a.c * b.c;
    return (ng_running){c, ng_run_cross(a, b, a.e, b.e), ng_run_cross(a, b, a.r, b.r) + fabs(c) * ng_running_64 + 0x1p-1000};
}

static inline ng_running ng_run_add(ng_running a, ng_running b) { return ng_run_rounded(ng_run_add_exact(a, b)); }
static inline ng_running ng_run_sub(ng_running a, ng_running b) { return ng_run_add(a, ng_run_negate(b)); }
static inline ng_running ng_run_mul(ng_running a, ng_running b) { return ng_run_rounded(ng_run_mul_exact(a, b)); }
static inline ng_running ng_run_fma(ng_running a, ng_running b, ng_running c) { return ng_run_rounded(ng_run_add_exact(ng_run_mul_exact(a, b), c)); }

/* A divisor that may be 0 leaves no bound. */
static inline ng_running ng_run_div(ng_running a, ng_running b) {
    const double c = a.c / b.c, least = fabs(b.c) - b.e - b.r, least_r = fabs(b.c) - b.r;
    ng_running q = {c, (a.e + (fabs(c) * (1 + ng_running_64)) * b.e) / least, (a.r + fabs(c) * b.r) / least_r + fabs(c) * ng_running_64 + 0x1p-1000};
    if (!(least > 0) && b.e > 0) q.e = INFINITY;
    return ng_run_rounded(q);
}

static inline ng_running ng_run_sqrt(ng_running a) {
    const double c = sqrt(a.c);
    const double least = fmax(a.c - a.e - a.r, 0), e = a.e > 0 ? fmin(a.e / (sqrt(least) + c), sqrt(a.e)) : 0;
    return ng_run_rounded((ng_running){c, e, c > 0 ? a.r / c + c * ng_running_64 : sqrt(a.r)});
}

/* The bound as it is used: its own roundings covered. Results that are not finite come from inputs that were not. */
static inline ng_running ng_run_done(ng_running x) {
    if (!isfinite(x.c)) return (ng_running){x.c, 0, 0};
    x.e *= 1 + 0x1p-40;
    if (!(x.e >= 0)) x.e = INFINITY;
    return x;
}

#endif
