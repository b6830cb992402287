#include "reference/wide.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

ng_unit ng_unit_of(ng_format_id compute, double exp_error) {
    if (compute == NG_FP64) return (ng_unit){0x1p-53, 0x1p-1074, DBL_MAX, exp_error, 9}; /* half of it is no binary64 */
    return (ng_unit){0x1p-24, 0x1p-150, FLT_MAX, exp_error, 9};
}

ng_wide *ng_wide_create(size_t count) {
    ng_wide *values = malloc(sizeof *values * (count + 1));
    for (size_t i = 0; values && i < count; i++) {
        mpfr_init2(values[i].x, NG_WIDE_BITS);
        ng_wide_set(&values[i], 0);
    }
    return values;
}

void ng_wide_free(ng_wide *values, size_t count) {
    for (size_t i = 0; values && i < count; i++)
        mpfr_clear(values[i].x);
    free(values);
}

static double size(const ng_wide *a) { return fabs(mpfr_get_d(a->x, MPFR_RNDA)); }

void ng_wide_set(ng_wide *r, double x) {
    mpfr_set_d(r->x, x, MPFR_RNDN);
    r->e = 0;
}

void ng_wide_copy(ng_wide *r, const ng_wide *a) {
    mpfr_set(r->x, a->x, MPFR_RNDN);
    r->e = a->e;
}

void ng_wide_held(const ng_unit *unit, double units, ng_wide *a) { a->e += units * unit->u * size(a); }

/* One rounding to the kernel's format. A magnitude that may pass its largest number has no bound. */
static void rounded(const ng_unit *unit, double e, ng_wide *r) {
    if (!mpfr_number_p(r->x)) {
        r->e = isinf(e) ? e : 0; /* the kind is certain unless something on the way was not */
        return;
    }
    const double most = size(r) + e;
    r->e = most < unit->most ? e + unit->u * most + unit->tiny : INFINITY;
}

void ng_wide_add(const ng_unit *unit, const ng_wide *a, const ng_wide *b, ng_wide *r) {
    const double e = a->e + b->e;
    mpfr_add(r->x, a->x, b->x, MPFR_RNDN);
    rounded(unit, e, r);
}

void ng_wide_sub(const ng_unit *unit, const ng_wide *a, const ng_wide *b, ng_wide *r) {
    const double e = a->e + b->e;
    mpfr_sub(r->x, a->x, b->x, MPFR_RNDN);
    rounded(unit, e, r);
}

static double product_error(const ng_wide *a, const ng_wide *b) {
    if (a->e == 0 && b->e == 0) return 0;
    return (b->e > 0 ? size(a) * b->e : 0) + (a->e > 0 ? size(b) * a->e : 0) + a->e * b->e;
}

void ng_wide_mul(const ng_unit *unit, const ng_wide *a, const ng_wide *b, ng_wide *r) {
    const double e = product_error(a, b);
    mpfr_mul(r->x, a->x, b->x, MPFR_RNDN);
    rounded(unit, e, r);
}

/* |q^ - q| <= (ea + |q| eb) / (|b| - eb). */
void ng_wide_div(const ng_unit *unit, const ng_wide *a, const ng_wide *b, ng_wide *r) {
    const double ea = a->e, eb = b->e, least = size(b) - eb;
    mpfr_div(r->x, a->x, b->x, MPFR_RNDN);
    double e = 0;
    if (eb > 0 && !(least > 0)) e = INFINITY;
    else if (ea > 0 || eb > 0) e = (ea + size(r) * eb) / least;
    rounded(unit, e, r);
}

/* |sqrt(a + d) - sqrt(a)| = |d| / (sqrt(a + d) + sqrt(a)). */
void ng_wide_sqrt(const ng_unit *unit, const ng_wide *a, ng_wide *r) {
    const double ea = a->e, least = fmax(mpfr_get_d(a->x, MPFR_RNDD) - ea, 0);
    mpfr_sqrt(r->x, a->x, MPFR_RNDN);
    rounded(unit, ea > 0 ? fmin(ea / (sqrt(least) + mpfr_get_d(r->x, MPFR_RNDD)), sqrt(ea)) : 0, r);
}

/* exp(a + d) = exp(a) exp(d); a relative error of exp_error u, and 2^-149 or 2^-1074. */
void ng_wide_exp(const ng_unit *unit, const ng_wide *a, ng_wide *r) {
    const double moved = a->e < 0.5 ? expm1(a->e) * (1 + 0x1p-40) : INFINITY;
    mpfr_exp(r->x, a->x, MPFR_RNDN);
    if (!mpfr_number_p(r->x)) {
        r->e = isinf(moved) ? INFINITY : 0;
        return;
    }
    const double x = size(r), relative = unit->exp_error * unit->u;
    if (a->e == 0 && mpfr_inf_p(a->x)) r->e = 0; /* exp(-infinity) is 0 */
    else r->e = x * (moved + relative * (1 + moved)) + 2 * unit->tiny + 0x1p-1074;
    if (x + r->e >= unit->most) r->e = INFINITY;
}

void ng_wide_log(const ng_unit *unit, const ng_wide *a, ng_wide *r) {
    const double x = mpfr_get_d(a->x, MPFR_RNDD), ea = a->e;
    mpfr_log(r->x, a->x, MPFR_RNDN);
    const double e = ea > 0 ? (ea < x / 2 ? ea / (x - ea) : INFINITY) : 0;
    if (!mpfr_number_p(r->x)) r->e = isinf(e) ? e : 0;
    else r->e = e + unit->log_error * unit->u * (size(r) + e) + unit->tiny;
}

/* ---- sums ---------------------------------------------------------------------------------------------------------*/
void ng_wide_sum_begin(ng_wide_sum *s) {
    mpfr_init2(s->sum.x, 2 * NG_WIDE_BITS);
    mpfr_init2(s->term.x, 2 * NG_WIDE_BITS);
    ng_wide_sum_zero(s);
}

void ng_wide_sum_zero(ng_wide_sum *s) {
    ng_wide_set(&s->sum, 0);
    s->magnitude = 0;
    s->count = 0;
}

void ng_wide_sum_add(ng_wide_sum *s, const ng_wide *a) {
    mpfr_add(s->sum.x, s->sum.x, a->x, MPFR_RNDN);
    s->sum.e += a->e;
    s->magnitude += size(a) + a->e;
    s->count++;
}

/* A product that is rounded before it is added counts as one more term of the chain. */
void ng_wide_sum_add_product(const ng_unit *unit, ng_wide_sum *s, const ng_wide *a, const ng_wide *b) {
    mpfr_mul(s->term.x, a->x, b->x, MPFR_RNDN);
    s->term.e = product_error(a, b);
    s->term.e += mpfr_number_p(s->term.x) ? unit->u * (size(&s->term) + s->term.e) + unit->tiny : 0;
    ng_wide_sum_add(s, &s->term);
}

void ng_wide_sum_done(const ng_unit *unit, const ng_wide_sum *s, ng_wide *r) {
    const double n = (double)s->count * unit->u, gamma = n / (1 - n), e = s->sum.e + gamma * s->magnitude + (double)s->count * unit->tiny;
    mpfr_set(r->x, s->sum.x, MPFR_RNDN);
    if (!mpfr_number_p(r->x)) r->e = isinf(s->sum.e) ? INFINITY : 0;
    else r->e = s->magnitude * (1 + gamma) < unit->most ? e : INFINITY;
}

void ng_wide_sum_end(ng_wide_sum *s) {
    mpfr_clear(s->sum.x);
    mpfr_clear(s->term.x);
}

double ng_wide_get(const ng_wide *a, double *low, double *bound) {
    const double high = mpfr_get_d(a->x, MPFR_RNDN);
    *low = 0;
    *bound = a->e * (1 + 0x1p-40);
    if (!(*bound >= 0)) *bound = INFINITY;
    if (!isfinite(high)) return high;
    mpfr_t rest;
    mpfr_init2(rest, NG_WIDE_BITS);
    mpfr_sub_d(rest, a->x, high, MPFR_RNDN);
    *low = mpfr_get_d(rest, MPFR_RNDN);
    mpfr_clear(rest);
    return high;
}
