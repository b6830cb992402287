#include "reference/fp64.h"

#include "reference/wide.h"

#include <math.h>

enum { SLOTS = 24 };

/* Numbers of one computation, and its sum. */
typedef struct slots {
    ng_wide *w;
    ng_wide_sum sum;
    ng_unit unit;
} slots;

static bool begin(slots *s, double exp_error) {
    s->unit = ng_unit_of(NG_FP64, exp_error);
    s->w = ng_wide_create(SLOTS);
    if (s->w) ng_wide_sum_begin(&s->sum);
    return s->w;
}

static void end(slots *s) {
    ng_wide_sum_end(&s->sum);
    ng_wide_free(s->w, SLOTS);
}

static void take(const ng_wide *a, ng_triple *t) { t->high = ng_wide_get(a, &t->low, &t->bound); }

ng_status ng_fp64_dot(const double *a, const double *b, int64_t n, const double *before, ng_triple *out) {
    slots s;
    if (!begin(&s, 0)) return NG_NO_MEMORY;
    ng_wide *x = &s.w[0], *y = &s.w[1], *r = &s.w[2];
    for (int64_t k = 0; k < n; k++) {
        ng_wide_set(x, a[k]);
        ng_wide_set(y, b[k]);
        ng_wide_sum_add_product(&s.unit, &s.sum, x, y);
    }
    ng_wide_sum_done(&s.unit, &s.sum, r);
    if (before) {
        ng_wide_set(x, *before);
        ng_wide_add(&s.unit, r, x, r);
    }
    take(r, out);
    end(&s);
    return NG_OK;
}

/* ---- norms --------------------------------------------------------------------------------------------------------*/
static void weight_of(const slots *s, const ng_contract *contract, double gamma, ng_wide *w) {
    ng_wide_set(w, gamma);
    if (!contract->norm.zero_centered) return;
    ng_wide_set(&s->w[SLOTS - 1], 1);
    ng_wide_add(&s->unit, &s->w[SLOTS - 1], w, w);
}

/* x_j - mean. */
static void deviation(const slots *s, const ng_contract *contract, double x, const ng_wide *mean, ng_wide *d) {
    ng_wide_set(d, x);
    if (contract->norm.kind == NG_LAYER_NORM) ng_wide_sub(&s->unit, d, mean, d);
}

ng_status ng_fp64_norm(const ng_contract *contract, const double *x, const double *gamma, const double *beta, int64_t n, double epsilon,
                       ng_triple *y, ng_triple statistics[2]) {
    slots s;
    if (!begin(&s, 0)) return NG_NO_MEMORY;
    ng_wide *mean = &s.w[0], *rstd = &s.w[1], *count = &s.w[2], *d = &s.w[3], *t = &s.w[4], *w = &s.w[5];
    const bool centered = contract->norm.kind == NG_LAYER_NORM;
    ng_wide_set(count, (double)n);
    for (int64_t j = 0; j < n && centered; j++) {
        ng_wide_set(d, x[j]);
        ng_wide_sum_add(&s.sum, d);
    }
    ng_wide_sum_done(&s.unit, &s.sum, mean);
    ng_wide_div(&s.unit, mean, count, mean);
    ng_wide_sum_zero(&s.sum);
    for (int64_t j = 0; j < n; j++) {
        deviation(&s, contract, x[j], mean, d);
        ng_wide_sum_add_product(&s.unit, &s.sum, d, d);
    }
    ng_wide_sum_done(&s.unit, &s.sum, t);
    ng_wide_div(&s.unit, t, count, t);
    ng_wide_set(d, epsilon);
    ng_wide_add(&s.unit, t, d, t);
    ng_wide_sqrt(&s.unit, t, t);
    ng_wide_set(d, 1);
    ng_wide_div(&s.unit, d, t, rstd);
    for (int64_t j = 0; j < n; j++) {
        deviation(&s, contract, x[j], mean, d);
        ng_wide_mul(&s.unit, d, rstd, d);
        weight_of(&s, contract, gamma[j], w);
        ng_wide_mul(&s.unit, d, w, d);
        if (centered) {
            ng_wide_set(w, beta[j]);
            ng_wide_add(&s.unit, d, w, d);
        }
        take(d, &y[j]);
    }
    take(mean, &statistics[0]);
    take(rstd, &statistics[1]);
    end(&s);
    return NG_OK;
}

/* h_j of a row whose statistics are given. */
static void hat(const slots *s, const ng_contract *contract, double x, const ng_wide *mean, const ng_wide *rstd, ng_wide *h) {
    deviation(s, contract, x, mean, h);
    ng_wide_mul(&s->unit, h, rstd, h);
}

ng_status ng_fp64_norm_backward(const ng_contract *contract, const double *x, const double *dy, const double *gamma, int64_t n, double mean_,
                                double rstd_, ng_triple *dx) {
    slots s;
    if (!begin(&s, 0)) return NG_NO_MEMORY;
    ng_wide *mean = &s.w[0], *rstd = &s.w[1], *count = &s.w[2], *h = &s.w[3], *g = &s.w[4], *w = &s.w[5], *c1 = &s.w[6], *c2 = &s.w[7];
    const bool centered = contract->norm.kind == NG_LAYER_NORM;
    ng_wide_set(mean, mean_);
    ng_wide_set(rstd, rstd_);
    ng_wide_set(count, (double)n);
    for (int pass = 0; pass < 2; pass++) {
        ng_wide_sum_zero(&s.sum);
        for (int64_t j = 0; j < n; j++) {
            weight_of(&s, contract, gamma[j], w);
            ng_wide_set(g, dy[j]);
            ng_wide_mul(&s.unit, g, w, g);
            hat(&s, contract, x[j], mean, rstd, h);
            if (pass) ng_wide_sum_add_product(&s.unit, &s.sum, g, h);
            else if (centered) ng_wide_sum_add(&s.sum, g);
        }
        ng_wide_sum_done(&s.unit, &s.sum, pass ? c2 : c1);
        ng_wide_div(&s.unit, pass ? c2 : c1, count, pass ? c2 : c1);
    }
    for (int64_t j = 0; j < n; j++) {
        weight_of(&s, contract, gamma[j], w);
        ng_wide_set(g, dy[j]);
        ng_wide_mul(&s.unit, g, w, g);
        hat(&s, contract, x[j], mean, rstd, h);
        ng_wide_mul(&s.unit, h, c2, h);
        if (centered) ng_wide_sub(&s.unit, g, c1, g);
        ng_wide_sub(&s.unit, g, h, g);
        ng_wide_mul(&s.unit, rstd, g, g);
        take(g, &dx[j]);
    }
    end(&s);
    return NG_OK;
}

ng_status ng_fp64_norm_column(const ng_contract *contract, const double *x, const double *dy, const double *mean_, const double *rstd_, int64_t m,
                              ng_triple out[2]) {
    slots s;
    if (!begin(&s, 0)) return NG_NO_MEMORY;
    ng_wide *mean = &s.w[0], *rstd = &s.w[1], *h = &s.w[2], *g = &s.w[3];
    for (int which = 0; which < 2; which++) {
        ng_wide_sum_zero(&s.sum);
        for (int64_t i = 0; i < m; i++) {
            ng_wide_set(mean, mean_ ? mean_[i] : 0);
            ng_wide_set(rstd, rstd_[i]);
            ng_wide_set(g, dy[i]);
            hat(&s, contract, x[i], mean, rstd, h);
            if (which) ng_wide_sum_add(&s.sum, g);
            else ng_wide_sum_add_product(&s.unit, &s.sum, g, h);
        }
        ng_wide_sum_done(&s.unit, &s.sum, g);
        take(g, &out[which]);
    }
    end(&s);
    return NG_OK;
}

/* ---- activations --------------------------------------------------------------------------------------------------
 * Constants stand in slots 8 to 10: 2 sqrt(2 / pi), 0.044715 of it, three times that; the kernel's are within 4 roundings. */
static void set_constants(const slots *s) {
    ng_wide *c1 = &s->w[8], *c2 = &s->w[9], *c3 = &s->w[10];
    mpfr_const_pi(c1->x, MPFR_RNDN);
    mpfr_ui_div(c1->x, 8, c1->x, MPFR_RNDN);
    mpfr_sqrt(c1->x, c1->x, MPFR_RNDN);
    mpfr_mul_ui(c2->x, c1->x, 44715, MPFR_RNDN);
    mpfr_div_ui(c2->x, c2->x, 1000000, MPFR_RNDN);
    mpfr_mul_ui(c3->x, c2->x, 3, MPFR_RNDN);
    ng_wide_held(&s->unit, 1, c1);
    ng_wide_held(&s->unit, 4, c2);
    ng_wide_held(&s->unit, 5, c3);
}

/* l = s(a), through exp(-|a|). */
static void logistic(const slots *s, const ng_wide *a, ng_wide *l) {
    ng_wide *z = &s->w[11], *one = &s->w[12];
    const bool negative = mpfr_sgn(a->x) < 0;
    ng_wide_copy(z, a);
    if (!negative) mpfr_neg(z->x, z->x, MPFR_RNDN);
    ng_wide_exp(&s->unit, z, z);
    ng_wide_set(one, 1);
    ng_wide_add(&s->unit, one, z, l);
    ng_wide_div(&s->unit, negative ? z : one, l, l);
}

/* a = x (c2 x^2 + c1), slope = c3 x^2 + c1. */
static void gelu(const slots *s, const ng_wide *x, ng_wide *a, ng_wide *slope) {
    ng_wide_mul(&s->unit, x, x, a);
    ng_wide_mul(&s->unit, a, &s->w[10], slope);
    ng_wide_add(&s->unit, slope, &s->w[8], slope);
    ng_wide_mul(&s->unit, a, &s->w[9], a);
    ng_wide_add(&s->unit, a, &s->w[8], a);
    ng_wide_mul(&s->unit, x, a, a);
}

ng_status ng_fp64_activation(const ng_contract *contract, const double *x_, const double *u_, int64_t n, ng_triple *y) {
    slots s;
    if (!begin(&s, (double)contract->layer.exp_error)) return NG_NO_MEMORY;
    ng_wide *x = &s.w[0], *u = &s.w[1], *l = &s.w[2], *a = &s.w[3], *slope = &s.w[4];
    const bool gated = contract->activation.kind == NG_SWIGLU;
    set_constants(&s);
    for (int64_t j = 0; j < n; j++) {
        ng_wide_set(x, x_[j]);
        ng_wide_copy(a, x);
        if (!gated) gelu(&s, x, a, slope);
        logistic(&s, a, l);
        ng_wide_mul(&s.unit, x, l, l);
        ng_wide_set(u, gated ? u_[j] : 1);
        if (gated) ng_wide_mul(&s.unit, l, u, l);
        take(l, &y[j]);
    }
    end(&s);
    return NG_OK;
}

/* dx = d (x s (1 - s) slope + s), times u for SwiGLU, whose slope is 1; du = d (x s). */
ng_status ng_fp64_activation_backward(const ng_contract *contract, const double *x_, const double *u_, const double *d_, int64_t n, ng_triple *dx,
                                      ng_triple *du) {
    slots s;
    if (!begin(&s, (double)contract->layer.exp_error)) return NG_NO_MEMORY;
    ng_wide *x = &s.w[0], *u = &s.w[1], *d = &s.w[2], *l = &s.w[3], *a = &s.w[4], *slope = &s.w[5], *rest = &s.w[6], *t = &s.w[7], *one = &s.w[13];
    const bool gated = contract->activation.kind == NG_SWIGLU;
    set_constants(&s);
    ng_wide_set(one, 1);
    for (int64_t j = 0; j < n; j++) {
        ng_wide_set(x, x_[j]);
        ng_wide_set(d, d_[j]);
        ng_wide_copy(a, x);
        if (!gated) gelu(&s, x, a, slope);
        logistic(&s, a, l);
        ng_wide_sub(&s.unit, one, l, rest);
        if (gated) { /* d u (s (x (1 - s) + 1)) */
            ng_wide_set(u, u_[j]);
            ng_wide_mul(&s.unit, x, l, t);
            ng_wide_mul(&s.unit, d, t, t);
            take(t, &du[j]);
            ng_wide_mul(&s.unit, x, rest, t);
            ng_wide_add(&s.unit, t, one, t);
            ng_wide_mul(&s.unit, l, t, t);
            ng_wide_mul(&s.unit, d, u, d);
        } else { /* d (x s ((1 - s) slope) + s) */
            ng_wide_mul(&s.unit, rest, slope, rest);
            ng_wide_mul(&s.unit, x, l, t);
            ng_wide_mul(&s.unit, t, rest, t);
            ng_wide_add(&s.unit, t, l, t);
        }
        ng_wide_mul(&s.unit, d, t, t);
        take(t, &dx[j]);
    }
    end(&s);
    return NG_OK;
}

/* ---- cross-entropy ------------------------------------------------------------------------------------------------*/
ng_status ng_fp64_loss(const ng_contract *contract, const double *x_, int64_t n, int32_t label, ng_triple out[3]) {
    slots s;
    if (!begin(&s, (double)contract->layer.exp_error)) return NG_NO_MEMORY;
    ng_wide *max = &s.w[0], *x = &s.w[1], *sum = &s.w[2], *loss = &s.w[3];
    double most = x_[0];
    for (int64_t j = 1; j < n; j++)
        most = isnan(x_[j]) || isnan(most) ? NAN : fmax(most, x_[j]);
    ng_wide_set(max, most + 0.0);
    for (int64_t j = 0; j < n; j++) {
        ng_wide_set(x, x_[j]);
        ng_wide_sub(&s.unit, x, max, x);
        ng_wide_exp(&s.unit, x, x);
        ng_wide_sum_add(&s.sum, x);
    }
    ng_wide_sum_done(&s.unit, &s.sum, sum);
    ng_wide_set(loss, 0);
    if (label >= 0) {
        ng_wide_log(&s.unit, sum, loss);
        ng_wide_set(x, x_[label]);
        ng_wide_sub(&s.unit, max, x, x);
        ng_wide_add(&s.unit, x, loss, loss);
    }
    take(loss, &out[0]);
    take(max, &out[1]);
    take(sum, &out[2]);
    end(&s);
    return NG_OK;
}

ng_status ng_fp64_loss_backward(const ng_contract *contract, const double *x_, int64_t n, int32_t label, double max_, double sum_, double d_,
                                ng_triple *dx) {
    slots s;
    if (!begin(&s, (double)contract->layer.exp_error)) return NG_NO_MEMORY;
    ng_wide *max = &s.w[0], *inverse = &s.w[1], *d = &s.w[2], *x = &s.w[3], *one = &s.w[4];
    ng_wide_set(max, max_);
    ng_wide_set(inverse, sum_);
    ng_wide_set(d, d_);
    ng_wide_set(one, 1);
    ng_wide_div(&s.unit, one, inverse, inverse);
    for (int64_t j = 0; j < n; j++) {
        ng_wide_set(x, x_[j]);
        ng_wide_sub(&s.unit, x, max, x);
        ng_wide_exp(&s.unit, x, x);
        ng_wide_mul(&s.unit, x, inverse, x);
        ng_wide_set(one, j == label);
        ng_wide_sub(&s.unit, x, one, x);
        ng_wide_mul(&s.unit, d, x, x);
        if (label < 0) ng_wide_set(x, 0);
        take(x, &dx[j]);
    }
    end(&s);
    return NG_OK;
}

/* ---- optimizer ----------------------------------------------------------------------------------------------------*/
/* c = 1 - beta^t, which the kernel has within 2 u. */
static void correction(const slots *s, double beta, double t, ng_wide *c) {
    mpfr_set_d(c->x, beta, MPFR_RNDN);
    mpfr_pow_ui(c->x, c->x, (unsigned long)t, MPFR_RNDN);
    mpfr_ui_sub(c->x, 1, c->x, MPFR_RNDN);
    c->e = 0;
    ng_wide_held(&s->unit, 2, c);
}

ng_status ng_fp64_adamw(const double *scalars, const double *p_, const double *g_, const double *m_, const double *v_, int64_t n, ng_triple *out[3]) {
    slots s;
    if (!begin(&s, 0)) return NG_NO_MEMORY;
    ng_wide *one = &s.w[0], *b1 = &s.w[1], *a1 = &s.w[2], *b2 = &s.w[3], *a2 = &s.w[4], *epsilon = &s.w[5], *decay = &s.w[6], *l1 = &s.w[7],
            *s2 = &s.w[8], *p = &s.w[9], *g = &s.w[10], *m = &s.w[11], *v = &s.w[12], *t = &s.w[13];
    const ng_unit *unit = &s.unit;
    ng_wide_set(one, 1);
    ng_wide_set(b1, scalars[NG_BETA1]);
    ng_wide_set(b2, scalars[NG_BETA2]);
    ng_wide_set(epsilon, scalars[NG_EPSILON]);
    ng_wide_sub(unit, one, b1, a1);
    ng_wide_sub(unit, one, b2, a2);
    ng_wide_set(t, scalars[NG_LEARNING_RATE]);
    ng_wide_set(decay, scalars[NG_WEIGHT_DECAY]);
    ng_wide_mul(unit, t, decay, decay);
    ng_wide_sub(unit, one, decay, decay);
    correction(&s, scalars[NG_BETA1], scalars[NG_STEP], l1);
    ng_wide_div(unit, t, l1, l1);
    correction(&s, scalars[NG_BETA2], scalars[NG_STEP], s2);
    ng_wide_sqrt(unit, s2, s2);
    ng_wide_div(unit, one, s2, s2);
    for (int64_t i = 0; i < n; i++) {
        ng_wide_set(p, p_[i]);
        ng_wide_set(g, g_[i]);
        ng_wide_set(m, m_[i]);
        ng_wide_set(v, v_[i]);
        ng_wide_mul(unit, b1, m, m);
        ng_wide_mul(unit, a1, g, t);
        ng_wide_add(unit, m, t, m);
        ng_wide_mul(unit, b2, v, v);
        ng_wide_mul(unit, a2, g, t);
        ng_wide_mul(unit, t, g, t);
        ng_wide_add(unit, v, t, v);
        ng_wide_sqrt(unit, v, t);
        ng_wide_mul(unit, t, s2, t);
        ng_wide_add(unit, t, epsilon, t);
        ng_wide_div(unit, m, t, t);
        ng_wide_mul(unit, l1, t, t);
        ng_wide_mul(unit, decay, p, p);
        ng_wide_sub(unit, p, t, p);
        take(p, &out[0][i]);
        take(m, &out[1][i]);
        take(v, &out[2][i]);
    }
    end(&s);
    return NG_OK;
}

ng_status ng_fp64_norm2(const double *x, int64_t n, ng_triple *out) {
    slots s;
    if (!begin(&s, 0)) return NG_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        ng_wide_set(&s.w[0], x[i]);
        ng_wide_sum_add_product(&s.unit, &s.sum, &s.w[0], &s.w[0]);
    }
    ng_wide_sum_done(&s.unit, &s.sum, &s.w[0]);
    ng_wide_sqrt(&s.unit, &s.w[0], &s.w[0]);
    take(&s.w[0], out);
    end(&s);
    return NG_OK;
}

ng_status ng_fp64_clip(const double *x, int64_t n, double norm, double most, ng_triple *out) {
    slots s;
    if (!begin(&s, 0)) return NG_NO_MEMORY;
    ng_wide *k = &s.w[0], *t = &s.w[1];
    ng_wide_set(k, norm);
    ng_wide_set(t, 1e-6);
    ng_wide_add(&s.unit, k, t, k);
    ng_wide_set(t, most);
    ng_wide_div(&s.unit, t, k, k);
    if (mpfr_cmp_ui(k->x, 1) >= 0) ng_wide_set(k, 1);
    for (int64_t i = 0; i < n; i++) {
        ng_wide_set(t, x[i]);
        if (mpfr_cmp_ui(k->x, 1) != 0) ng_wide_mul(&s.unit, t, k, t);
        take(t, &out[i]);
    }
    end(&s);
    return NG_OK;
}
