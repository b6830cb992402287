#include "reference/activation.h"

#include "reference/elementary.h"

#include <mpfr.h>

enum { PRECISION = 300 };
static const double gelu_cubic = 0.044715;
static const double sqrt_8_pi = 0x1.9884533d43651p+0; /* 2 sqrt(2 / pi) */
static const double density_k = 0x1.9884533d43651p-2; /* 1 / sqrt(2 pi) */

/* ---- functions of stated error ------------------------------------------------------------------------------------*/
static const double nothing = 0x1p-900; /* where the fast functions cut off */

static ng_running run_exp(ng_running a) {
    const double c = ng_reference_exp(a.c), moved = a.e < 0.5 ? a.e * (1 + a.e) : INFINITY;
    return (ng_running){c, c * (moved + NG_EXP_RELATIVE * (1 + moved)) + 0x1p-149, c * (a.r * 1.01 + NG_ELEMENTARY_ERROR) + nothing};
}

static ng_running run_logistic(ng_running a) {
    const ng_running one = ng_run_exact(1), z = run_exp(a.c < 0 ? a : ng_run_negate(a)), below = ng_run_add(one, z);
    return ng_run_div(a.c < 0 ? z : one, below);
}

static ng_running run_tail(double a) {
    const double c = ng_reference_tail(a);
    return (ng_running){c, c * NG_TAIL_RELATIVE + 0x1p-145, c * NG_ELEMENTARY_ERROR + nothing};
}
static ng_running run_density(double a) {
    const double c = ng_reference_exp(-a * a / 2);
    return (ng_running){c, c * NG_DENSITY_RELATIVE + 0x1p-148, c * NG_ELEMENTARY_ERROR + nothing};
}
static ng_running run_normal(double x) {
    const ng_running tail = run_tail(fabs(x));
    return x < 0 ? tail : ng_run_sub(ng_run_exact(1), tail);
}

/* From |x| = 20 on the argument's magnitude is beyond 500, whatever its roundings and overflow: X is 0 to 2^-149. */
static ng_running run_gelu_logistic(ng_running x) {
    if (fabs(x.c) >= 20) return (ng_running){x.c > 0, 0x1p-148, 0x1p-700};
    const ng_running c1 = ng_run_held(sqrt_8_pi, (float)sqrt_8_pi), c2 = ng_run_held(sqrt_8_pi * gelu_cubic, (float)(sqrt_8_pi * gelu_cubic));
    return run_logistic(ng_run_mul(x, ng_run_fma(ng_run_mul(x, x), c2, c1)));
}

/* ---- forward and backward -----------------------------------------------------------------------------------------*/
ng_running ng_reference_activation(ng_activation_kind kind, double x_, double u) {
    const ng_running x = ng_run_exact(x_);
    if (kind == NG_SWIGLU) return ng_run_done(ng_run_mul(ng_run_mul(x, run_logistic(x)), ng_run_exact(u)));
    return ng_run_done(ng_run_mul(x, kind == NG_GELU_TANH ? run_gelu_logistic(x) : run_normal(x_)));
}

void ng_reference_activation_backward(ng_activation_kind kind, double x_, double u_, double d_, ng_running out[2]) {
    const ng_running x = ng_run_exact(x_), u = ng_run_exact(u_), d = ng_run_exact(d_), one = ng_run_exact(1);
    out[1] = ng_run_exact(0);
    if (kind == NG_SWIGLU) {
        const ng_running s = run_logistic(x);
        out[1] = ng_run_done(ng_run_mul(d, ng_run_mul(x, s)));
        out[0] = ng_run_mul(ng_run_mul(d, u), ng_run_mul(s, ng_run_fma(x, ng_run_sub(one, s), one)));
    } else if (kind == NG_GELU_TANH) {
        const double c3 = 3 * sqrt_8_pi * gelu_cubic;
        const ng_running s = run_gelu_logistic(x), slope = ng_run_fma(ng_run_mul(x, x), ng_run_held(c3, (float)c3), ng_run_held(sqrt_8_pi, (float)sqrt_8_pi));
        out[0] = ng_run_mul(d, ng_run_fma(ng_run_mul(x, s), ng_run_mul(ng_run_sub(one, s), slope), s));
    } else {
        const ng_running k = ng_run_held(density_k, (float)density_k);
        out[0] = ng_run_mul(d, ng_run_fma(x, ng_run_mul(k, run_density(fabs(x_))), run_normal(x_)));
    }
    out[0] = ng_run_done(out[0]);
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

/* s = 1 / (1 + exp(-a)). */
static void logistic(mpfr_t s, mpfr_t a) {
    mpfr_neg(s, a, MPFR_RNDN);
    mpfr_exp(s, s, MPFR_RNDN);
    mpfr_add_ui(s, s, 1, MPFR_RNDN);
    mpfr_ui_div(s, 1, s, MPFR_RNDN);
}

/* w = sqrt(8 / pi) (x + cubic x^3), slope = its derivative. */
static void gelu_argument(mpfr_t w, mpfr_t slope, mpfr_t x) {
    mpfr_sqr(slope, x, MPFR_RNDN);
    mpfr_mul_ui(slope, slope, 44715, MPFR_RNDN);
    mpfr_div_ui(slope, slope, 1000000, MPFR_RNDN);
    mpfr_add_ui(w, slope, 1, MPFR_RNDN);
    mpfr_mul(w, w, x, MPFR_RNDN);
    mpfr_mul_ui(slope, slope, 3, MPFR_RNDN);
    mpfr_add_ui(slope, slope, 1, MPFR_RNDN);
    mpfr_t k;
    mpfr_init2(k, PRECISION);
    mpfr_const_pi(k, MPFR_RNDN);
    mpfr_ui_div(k, 8, k, MPFR_RNDN);
    mpfr_sqrt(k, k, MPFR_RNDN);
    mpfr_mul(w, w, k, MPFR_RNDN);
    mpfr_mul(slope, slope, k, MPFR_RNDN);
    mpfr_clear(k);
}

/* s: the distribution function; density: its derivative. */
static void normal(mpfr_t s, mpfr_t density, mpfr_t x) {
    mpfr_sqrt_ui(density, 2, MPFR_RNDN);
    mpfr_div(s, x, density, MPFR_RNDN);
    mpfr_neg(s, s, MPFR_RNDN);
    mpfr_erfc(s, s, MPFR_RNDN);
    mpfr_div_ui(s, s, 2, MPFR_RNDN);
    mpfr_const_pi(density, MPFR_RNDN);
    mpfr_mul_ui(density, density, 2, MPFR_RNDN);
    mpfr_sqrt(density, density, MPFR_RNDN);
    mpfr_t e;
    mpfr_init2(e, PRECISION);
    mpfr_sqr(e, x, MPFR_RNDN);
    mpfr_div_si(e, e, -2, MPFR_RNDN);
    mpfr_exp(e, e, MPFR_RNDN);
    mpfr_div(density, e, density, MPFR_RNDN);
    mpfr_clear(e);
}

/* s(x) by which x is multiplied, and ds/dx. */
static void gate(ng_activation_kind kind, mpfr_t s, mpfr_t ds, mpfr_t x) {
    if (kind == NG_GELU_ERF) {
        normal(s, ds, x);
        return;
    }
    mpfr_t w, slope;
    mpfr_inits2(PRECISION, w, slope, (mpfr_ptr)0);
    mpfr_set(w, x, MPFR_RNDN);
    mpfr_set_ui(slope, 1, MPFR_RNDN);
    if (kind == NG_GELU_TANH) gelu_argument(w, slope, x);
    logistic(s, w);
    mpfr_neg(w, w, MPFR_RNDN);
    logistic(ds, w); /* 1 - s without cancellation */
    mpfr_mul(ds, ds, s, MPFR_RNDN);
    mpfr_mul(ds, ds, slope, MPFR_RNDN);
    mpfr_clears(w, slope, (mpfr_ptr)0);
}

double ng_reference_activation_mpfr(ng_activation_kind kind, double x_, double u, double *low) {
    mpfr_t x, s, ds;
    mpfr_inits2(PRECISION, x, s, ds, (mpfr_ptr)0);
    mpfr_set_d(x, x_, MPFR_RNDN);
    gate(kind, s, ds, x);
    mpfr_mul(s, s, x, MPFR_RNDN);
    if (kind == NG_SWIGLU) mpfr_mul_d(s, s, u, MPFR_RNDN);
    const double high = split(s, low);
    mpfr_clears(x, s, ds, (mpfr_ptr)0);
    return high;
}

void ng_reference_activation_backward_mpfr(ng_activation_kind kind, double x_, double u, double d, double high[2], double low[2]) {
    mpfr_t x, s, ds;
    mpfr_inits2(PRECISION, x, s, ds, (mpfr_ptr)0);
    mpfr_set_d(x, x_, MPFR_RNDN);
    gate(kind, s, ds, x);
    mpfr_mul(ds, ds, x, MPFR_RNDN);
    mpfr_add(ds, ds, s, MPFR_RNDN);
    mpfr_mul_d(ds, ds, d, MPFR_RNDN);
    if (kind == NG_SWIGLU) mpfr_mul_d(ds, ds, u, MPFR_RNDN);
    high[0] = split(ds, &low[0]);
    mpfr_mul(s, s, x, MPFR_RNDN);
    mpfr_mul_d(s, s, d, MPFR_RNDN);
    high[1] = split(s, &low[1]);
    mpfr_clears(x, s, ds, (mpfr_ptr)0);
}

/* ---- cross-entropy ------------------------------------------------------------------------------------------------
 * The sum's terms are positive: what chains of ceil(C / 2048) additions and 11 halvings lose is at most gamma_h of it, h their depth. */
static int64_t sum_depth(int64_t columns) { return (columns + NG_LOSS_CHAINS - 1) / NG_LOSS_CHAINS + 11; }

static ng_running run_term(double x, double max) {
    if (isinf(x) && x < 0 && isfinite(max)) return ng_run_exact(0);
    return run_exp(ng_run_sub(ng_run_exact(x), ng_run_exact(max)));
}

static double max_of(const double *x, int64_t columns) {
    double max = -INFINITY;
    for (int64_t j = 0; j < columns; j++)
        max = isnan(x[j]) || isnan(max) ? NAN : fmax(max, x[j]);
    return max + 0.0; /* a zero is positive */
}

static ng_running run_log(ng_running s) {
    const double c = ng_reference_log(s.c), size = fmax(fabs(c), 0x1p-45);
    const double e = s.e < s.c / 2 ? s.e / (s.c - s.e) + size * 0x1p-45 : INFINITY;
    return ng_run_rounded((ng_running){c, e, s.r / s.c * 1.01 + size * NG_ELEMENTARY_ERROR + 0x1p-50});
}

ng_loss_result ng_reference_loss(const double *x, int64_t columns, int32_t label) {
    ng_loss_result result = {.max = max_of(x, columns)};
    ng_running s = {0, 0, 0};
    for (int64_t j = 0; j < columns; j++) {
        const ng_running term = run_term(x[j], result.max);
        s = (ng_running){s.c + term.c, s.e + term.e, s.r + term.r};
    }
    const double hu = (double)sum_depth(columns) * ng_running_u, gamma = hu / (1 - hu);
    s.e += (s.c + s.e) * gamma;
    s.r += s.c * (double)columns * ng_running_64;
    const ng_running away = label < 0 ? ng_run_exact(0) : ng_run_sub(ng_run_exact(result.max), ng_run_exact(x[label]));
    result.loss = label < 0 ? ng_run_exact(0) : ng_run_done(ng_run_add(away, run_log(s)));
    result.sum = ng_run_done(s);
    return result;
}

ng_loss_result ng_reference_loss_mpfr(const double *x, int64_t columns, int32_t label, double low[2]) {
    ng_loss_result result = ng_reference_loss(x, columns, label);
    mpfr_t s, t;
    mpfr_inits2(PRECISION, s, t, (mpfr_ptr)0);
    mpfr_set_zero(s, 1);
    for (int64_t j = 0; j < columns; j++) {
        mpfr_set_d(t, x[j], MPFR_RNDN);
        mpfr_sub_d(t, t, result.max, MPFR_RNDN);
        mpfr_exp(t, t, MPFR_RNDN);
        mpfr_add(s, s, t, MPFR_RNDN);
    }
    mpfr_set(t, s, MPFR_RNDN);
    result.sum.c = split(t, &low[0]);
    low[1] = 0;
    if (label >= 0) {
        mpfr_log(s, s, MPFR_RNDN);
        mpfr_add_d(s, s, result.max, MPFR_RNDN);
        mpfr_sub_d(s, s, x[label], MPFR_RNDN);
        result.loss.c = split(s, &low[1]);
    }
    result.sum.r = result.loss.r = 0;
    mpfr_clears(s, t, (mpfr_ptr)0);
    return result;
}

ng_running ng_reference_loss_gradient(double x, double max, double sum, bool is_label, double d) {
    const ng_running inverse = ng_run_div(ng_run_exact(1), ng_run_exact(sum));
    return ng_run_done(ng_run_mul(ng_run_exact(d), ng_run_sub(ng_run_mul(run_term(x, max), inverse), ng_run_exact(is_label))));
}

double ng_reference_loss_gradient_mpfr(double x, double max, double sum, bool is_label, double d, double *low) {
    mpfr_t t;
    mpfr_init2(t, PRECISION);
    mpfr_set_d(t, x, MPFR_RNDN);
    mpfr_sub_d(t, t, max, MPFR_RNDN);
    mpfr_exp(t, t, MPFR_RNDN);
    mpfr_div_d(t, t, sum, MPFR_RNDN);
    mpfr_sub_ui(t, t, is_label, MPFR_RNDN);
    mpfr_mul_d(t, t, d, MPFR_RNDN);
    const double high = split(t, low);
    mpfr_clear(t);
    return high;
}
