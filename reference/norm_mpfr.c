/* The slow tier of the norms' reference: the same formulas in 700 bits, in which sums of binary32 values and of their
 * products are exact. */
#include "reference/norm_internal.h"

#include <mpfr.h>

enum { PRECISION = 700 };

typedef struct registers {
    mpfr_t mean, rstd, c1, c2, d, t, y;
} registers;

static void begin(registers *m) {
    mpfr_inits2(PRECISION, m->mean, m->rstd, m->c1, m->c2, m->d, m->t, m->y, (mpfr_ptr)0);
    mpfr_set_zero(m->mean, 1);
    mpfr_set_zero(m->rstd, 1);
    mpfr_set_zero(m->c1, 1);
    mpfr_set_zero(m->c2, 1);
    mpfr_set_zero(m->y, 1);
}

static void end(registers *m) { mpfr_clears(m->mean, m->rstd, m->c1, m->c2, m->d, m->t, m->y, (mpfr_ptr)0); }

static void give(registers *m, mpfr_srcptr x, double *high, double *low) {
    *high = mpfr_get_d(x, MPFR_RNDN);
    mpfr_sub_d(m->t, x, *high, MPFR_RNDN);
    *low = mpfr_number_p(m->t) ? mpfr_get_d(m->t, MPFR_RNDN) : 0;
}

/* gamma, with the 1 that it is stored without. */
static void weight(const ng_norm *norm, const ng_norm_operands *o, int64_t j, mpfr_ptr w) {
    mpfr_set_d(w, ng_get_value(o->gamma, 0, j), MPFR_RNDN);
    if (norm->zero_centered) mpfr_add_ui(w, w, 1, MPFR_RNDN);
}

/* Into m->d. */
static void hat(const ng_norm *norm, const ng_norm_operands *o, const ng_norm_weights *w, int64_t row, int64_t j, registers *m) {
    mpfr_set_d(m->d, ng_get_value(o->in, row, j), MPFR_RNDN);
    if (!norm->from_output) {
        if (norm->kind == NG_LAYER_NORM) mpfr_sub_d(m->d, m->d, ng_get_value(o->mean, row, 0), MPFR_RNDN);
        mpfr_mul_d(m->d, m->d, ng_get_value(o->rstd, row, 0), MPFR_RNDN);
        return;
    }
    mpfr_sub_d(m->d, m->d, w->beta[j], MPFR_RNDN);
    weight(norm, o, j, m->t);
    if (mpfr_cmpabs_ui(m->t, 0) == 0 || fabs(w->w[j]) < o->epsilon) mpfr_set_d(m->t, w->divisor[j], MPFR_RNDN);
    mpfr_div(m->d, m->d, m->t, MPFR_RNDN);
}

ng_status ng_norm_mpfr_forward_row(const ng_norm *norm, const ng_norm_operands *o, const ng_norm_weights *w, int64_t row, double *x,
                                   ng_norm_row *r, double *high, double *low) {
    int64_t n = o->in->columns;
    registers m;
    begin(&m);
    r->absolute = 0;
    for (int64_t j = 0; j < n; j++) {
        double value = ng_get_value(o->in, row, j);
        if (norm->kind == NG_LAYER_NORM) mpfr_add_d(m.mean, m.mean, value, MPFR_RNDN);
        r->absolute += fabs(value);
    }
    mpfr_div_ui(m.mean, m.mean, (unsigned long)n, MPFR_RNDN);
    r->absolute = r->absolute / (double)n * (1 + 0x1p-30);
    for (int64_t j = 0; j < n; j++) {
        mpfr_d_sub(m.d, ng_get_value(o->in, row, j), m.mean, MPFR_RNDN);
        x[j] = mpfr_get_d(m.d, MPFR_RNDN);
        mpfr_sqr(m.d, m.d, MPFR_RNDN);
        mpfr_add(m.y, m.y, m.d, MPFR_RNDN);
    }
    mpfr_div_ui(m.y, m.y, (unsigned long)n, MPFR_RNDN);
    r->variance = mpfr_get_d(m.y, MPFR_RNDU);
    mpfr_add_d(m.y, m.y, o->epsilon, MPFR_RNDN);
    mpfr_rec_sqrt(m.rstd, m.y, MPFR_RNDN);
    for (int64_t j = 0; j < n; j++) {
        mpfr_d_sub(m.d, ng_get_value(o->in, row, j), m.mean, MPFR_RNDN);
        mpfr_mul(m.d, m.d, m.rstd, MPFR_RNDN);
        weight(norm, o, j, m.t);
        mpfr_mul(m.d, m.d, m.t, MPFR_RNDN);
        mpfr_add_d(m.d, m.d, norm->kind == NG_LAYER_NORM ? w->beta[j] : -0.0, MPFR_RNDN);
        give(&m, m.d, &high[j], &low[j]);
    }
    give(&m, m.mean, &r->mean, &r->mean_low);
    give(&m, m.rstd, &r->rstd, &r->rstd_low);
    r->mean_remainder = r->rstd_relative = 0;
    end(&m);
    return NG_OK;
}

ng_status ng_norm_mpfr_backward_row(const ng_norm *norm, const ng_norm_operands *o, const ng_norm_weights *w, int64_t row, double *x,
                                    ng_norm_row *r, double *high, double *low) {
    int64_t n = o->in->columns;
    registers m;
    (void)x;
    begin(&m);
    for (int64_t j = 0; j < n; j++) {
        hat(norm, o, w, row, j, &m);
        weight(norm, o, j, m.t);
        mpfr_mul_d(m.t, m.t, ng_get_value(o->gradient, row, j), MPFR_RNDN);
        if (norm->kind == NG_LAYER_NORM) mpfr_add(m.c1, m.c1, m.t, MPFR_RNDN);
        mpfr_mul(m.t, m.t, m.d, MPFR_RNDN);
        mpfr_add(m.c2, m.c2, m.t, MPFR_RNDN);
    }
    mpfr_div_ui(m.c1, m.c1, (unsigned long)n, MPFR_RNDN);
    mpfr_div_ui(m.c2, m.c2, (unsigned long)n, MPFR_RNDN);
    for (int64_t j = 0; j < n; j++) {
        hat(norm, o, w, row, j, &m);
        mpfr_mul(m.d, m.d, m.c2, MPFR_RNDN);
        weight(norm, o, j, m.t);
        mpfr_mul_d(m.t, m.t, ng_get_value(o->gradient, row, j), MPFR_RNDN);
        mpfr_sub(m.t, m.t, m.c1, MPFR_RNDN);
        mpfr_sub(m.y, m.t, m.d, MPFR_RNDN);
        mpfr_mul_d(m.y, m.y, ng_get_value(o->rstd, row, 0), MPFR_RNDN);
        give(&m, m.y, &high[j], &low[j]);
    }
    r->g = mpfr_get_d(m.c1, MPFR_RNDN);
    r->gh = mpfr_get_d(m.c2, MPFR_RNDN);
    end(&m);
    return NG_OK;
}

void ng_norm_mpfr_sum(const ng_norm *norm, const ng_norm_operands *o, const ng_norm_weights *w, int which, int64_t column, double *high,
                      double *low) {
    registers m;
    begin(&m);
    for (int64_t row = 0; row < o->in->rows; row++) {
        if (which) mpfr_set_ui(m.d, 1, MPFR_RNDN);
        else hat(norm, o, w, row, column, &m);
        mpfr_mul_d(m.d, m.d, ng_get_value(o->gradient, row, column), MPFR_RNDN);
        mpfr_add(m.y, m.y, m.d, MPFR_RNDN);
    }
    give(&m, m.y, high, low);
    end(&m);
}
