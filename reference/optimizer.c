#include "reference/optimizer.h"

#include <mpfr.h>

enum { PRECISION = 300 };

/* ---- hyper-parameters ---------------------------------------------------------------------------------------------*/
/* 1 - beta^t, rounded once. */
static double complement(double beta, double t) {
    mpfr_t x;
    mpfr_init2(x, 2200); /* beta^t may be next to 1 */
    mpfr_set_d(x, beta, MPFR_RNDN);
    mpfr_pow_ui(x, x, (unsigned long)t, MPFR_RNDN);
    mpfr_ui_sub(x, 1, x, MPFR_RNDN);
    const double c = mpfr_get_d(x, MPFR_RNDN);
    mpfr_clear(x);
    return c;
}

/* A factor that the kernel computes in binary64 by a few operations, each right to 2^-52, and rounds to binary32. */
static ng_running computed(double exact) {
    ng_running x = {exact, fabs(exact) * (0x1p-24 + 0x1p-49) + 0x1p-150, fabs(exact) * 0x1p-50};
    return x;
}

void ng_adam_reference_begin(const ng_optimizer *o, const double scalars[NG_SCALARS], double step, ng_adam_reference *f) {
    const double a = scalars[NG_LEARNING_RATE], b1 = scalars[NG_BETA1], b2 = scalars[NG_BETA2], w = scalars[NG_WEIGHT_DECAY], scale = scalars[NG_GRADIENT_SCALE];
    *f = (ng_adam_reference){.kind = o->kind, .bias_correction = o->bias_correction, .step = step};
    for (int i = 0; i < NG_SCALARS; i++)
        f->scalars[i] = scalars[i];
    f->b1 = ng_run_held(b1, (float)b1);
    f->a1 = ng_run_held(1 - b1, (float)(1 - b1)); /* the subtraction's own rounding is in r */
    f->b2 = ng_run_held(b2, (float)b2);
    f->a2 = ng_run_held(1 - b2, (float)(1 - b2));
    f->epsilon = ng_run_held(scalars[NG_EPSILON], (float)scalars[NG_EPSILON]);
    f->w = ng_run_held(w, (float)w);
    f->l = f->l1 = ng_run_held(a, (float)a);
    f->k1 = f->s2 = ng_run_exact(1);
    f->d = computed(1 - a * w);
    f->g = scale == 0 ? ng_run_exact(1) : computed(1 / scale);
    if (!o->bias_correction) return;
    const double c1 = complement(b1, step), c2 = complement(b2, step);
    f->k1 = computed(1 / c1);
    f->s2 = computed(1 / sqrt(c2));
    f->l1 = computed(a / c1);
}

/* ---- binary64 -----------------------------------------------------------------------------------------------------*/
ng_adam_result ng_adam_reference_step(const ng_adam_reference *f, double g_, double p_, double m_, double v_) {
    ng_running g = ng_run_exact(g_), p = ng_run_exact(p_), m = ng_run_exact(m_), v = ng_run_exact(v_);
    if (f->scalars[NG_GRADIENT_SCALE] != 0) g = ng_run_mul(g, f->g);
    if (f->kind == NG_ADAM_L2) g = ng_run_add(g, ng_run_mul(f->w, p));
    m = ng_run_add(ng_run_mul(f->b1, m), ng_run_mul(f->a1, g));
    v = ng_run_add(ng_run_mul(f->b2, v), ng_run_mul(ng_run_mul(f->a2, g), g));
    const ng_running q = ng_run_div(m, ng_run_add(ng_run_mul(ng_run_sqrt(v), f->s2), f->epsilon));
    if (f->kind == NG_ADAMW_APEX) p = ng_run_sub(p, ng_run_mul(f->l, ng_run_add(ng_run_mul(f->k1, q), ng_run_mul(f->w, p))));
    else p = ng_run_sub(f->kind == NG_ADAM_L2 ? p : ng_run_mul(f->d, p), ng_run_mul(f->l1, q));
    return (ng_adam_result){ng_run_done(p), ng_run_done(m), ng_run_done(v)};
}

/* ---- MPFR ---------------------------------------------------------------------------------------------------------*/
static double split(mpfr_t x, double *low) {
    const double high = mpfr_get_d(x, MPFR_RNDN);
    *low = 0;
    if (isfinite(high)) {
        mpfr_sub_d(x, x, high, MPFR_RNDN);
        *low = mpfr_get_d(x, MPFR_RNDN);
    }
    return high;
}

/* y += (1 - b) x after y *= b. */
static void mix(mpfr_t y, double b, mpfr_t x, mpfr_t t) {
    mpfr_mul_d(y, y, b, MPFR_RNDN);
    mpfr_set_d(t, b, MPFR_RNDN);
    mpfr_ui_sub(t, 1, t, MPFR_RNDN);
    mpfr_mul(t, t, x, MPFR_RNDN);
    mpfr_add(y, y, t, MPFR_RNDN);
}

static void correct(mpfr_t x, double beta, double t) {
    mpfr_set_d(x, beta, MPFR_RNDN);
    mpfr_pow_ui(x, x, (unsigned long)t, MPFR_RNDN);
    mpfr_ui_sub(x, 1, x, MPFR_RNDN);
}

ng_adam_result ng_adam_reference_mpfr(const ng_adam_reference *f, double g_, double p_, double m_, double v_, double low[3]) {
    ng_adam_result result = ng_adam_reference_step(f, g_, p_, m_, v_); /* the bounds */
    const double *s = f->scalars, w = s[NG_WEIGHT_DECAY];
    mpfr_t g, p, m, v, t, q;
    mpfr_inits2(PRECISION, g, p, m, v, t, q, (mpfr_ptr)0);
    mpfr_set_d(g, g_, MPFR_RNDN);
    mpfr_set_d(p, p_, MPFR_RNDN);
    mpfr_set_d(m, m_, MPFR_RNDN);
    mpfr_set_d(v, v_, MPFR_RNDN);
    if (s[NG_GRADIENT_SCALE] != 0) mpfr_div_d(g, g, s[NG_GRADIENT_SCALE], MPFR_RNDN);
    if (f->kind == NG_ADAM_L2) {
        mpfr_mul_d(t, p, w, MPFR_RNDN);
        mpfr_add(g, g, t, MPFR_RNDN);
    }
    mix(m, s[NG_BETA1], g, t);
    mpfr_sqr(g, g, MPFR_RNDN);
    mix(v, s[NG_BETA2], g, t);
    mpfr_sqrt(q, v, MPFR_RNDN);
    if (f->bias_correction) {
        correct(t, s[NG_BETA2], f->step);
        mpfr_sqrt(t, t, MPFR_RNDN);
        mpfr_div(q, q, t, MPFR_RNDN);
    }
    mpfr_add_d(q, q, s[NG_EPSILON], MPFR_RNDN);
    mpfr_div(q, m, q, MPFR_RNDN);
    if (f->bias_correction) {
        correct(t, s[NG_BETA1], f->step);
        mpfr_div(q, q, t, MPFR_RNDN);
    }
    if (f->kind != NG_ADAM_L2) { /* both decay orders are one in exact arithmetic */
        mpfr_mul_d(t, p, w, MPFR_RNDN);
        mpfr_add(q, q, t, MPFR_RNDN);
    }
    mpfr_mul_d(q, q, s[NG_LEARNING_RATE], MPFR_RNDN);
    mpfr_sub(p, p, q, MPFR_RNDN);
    result.p.c = split(p, &low[0]);
    result.m.c = split(m, &low[1]);
    result.v.c = split(v, &low[2]);
    result.p.r = result.m.r = result.v.r = 0;
    mpfr_clears(g, p, m, v, t, q, (mpfr_ptr)0);
    return result;
}

/* ---- bits ---------------------------------------------------------------------------------------------------------
 * Binary32 operations done in binary64 and rounded: for +, -, *, / and sqrt the second rounding changes nothing (53 >= 2 * 24 + 2:
 * Figueroa, 1995), but for results below the smallest normal number, where only products and quotients could be meant: those go
 * through binary32 itself. */
static float held(ng_running x) { return (float)x.c; }

void ng_adam_predict(const ng_adam_reference *f, float g, float *p, float *m, float *v) {
    const float b1 = held(f->b1), a1 = held(f->a1), b2 = held(f->b2), a2 = held(f->a2), w = held(f->w);
    if (f->scalars[NG_GRADIENT_SCALE] != 0) g = g * held(f->g);
    if (f->kind == NG_ADAM_L2) {
        const float decay = w * *p;
        g = (float)((double)g + (double)decay);
    }
    const float m1 = b1 * *m, m2 = a1 * g, v1 = b2 * *v, v2 = a2 * g, v3 = v2 * g;
    *m = (float)((double)m1 + (double)m2);
    *v = (float)((double)v1 + (double)v3);
    const float root = (float)sqrt((double)*v), scaled = root * held(f->s2), below = (float)((double)scaled + (double)held(f->epsilon)), q = *m / below;
    if (f->kind == NG_ADAMW_APEX) {
        const float corrected = held(f->k1) * q, decay = w * *p, update = corrected + decay, step = held(f->l) * update;
        *p = *p - step;
    } else {
        const float kept = f->kind == NG_ADAM_L2 ? *p : held(f->d) * *p, step = held(f->l1) * q;
        *p = kept - step;
    }
}
