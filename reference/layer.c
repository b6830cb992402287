#include "reference/layer.h"

#include "reference/round.h"

#include <float.h>
#include <math.h>

/* The unit of the kernel's arithmetic. */
static double unit_of(const ng_layer *layer) { return layer->compute == NG_FP64 ? 0x1p-53 : 0x1p-24; }
static double tiny_of(const ng_layer *layer) { return layer->compute == NG_FP64 ? 0x1p-1074 : 0x1p-150; }
static double most_of(const ng_layer *layer) { return layer->compute == NG_FP64 ? DBL_MAX : FLT_MAX; }

/* One rounding of a binary64 that is exact, or whose own rounding can't be told from it: sums of two binary32 (53 >= 2 * 24 + 2: Figueroa, When is
 * double rounding innocuous?, 1995). */
static double rounded(const ng_layer *layer, double x) {
    const volatile float narrow = (float)x;
    return layer->compute == NG_FP64 ? x : (double)narrow;
}

typedef struct pair {
    double high, low;
} pair;

static pair sum_of(double a, double b) {
    const double s = a + b, t = s - a;
    return (pair){s, isfinite(s) ? (a - (s - t)) + (b - t) : 0};
}

/* Where nothing is left below, a zero keeps its sign. */
static pair add_to(pair p, double x) {
    const pair s = sum_of(p.high, x);
    const double rest = s.low + p.low;
    return isfinite(s.high) && rest != 0 ? sum_of(s.high, rest) : s;
}

static void settle(const ng_layer *layer, pair exact, double bound, double most, ng_layer_value *v) {
    v->high = exact.high;
    v->low = exact.low;
    v->bound = !isfinite(exact.high) ? 0 : most * (1 + 0x1p-20) < most_of(layer) ? bound * (1 + 0x1p-40) : INFINITY;
}

void ng_rope_tables(const ng_tensor *cosines, const ng_tensor *sines) {
    const ng_cast nearest = {.rounding = NG_RN_EVEN, .nan = NG_NAN_CANONICAL};
    mpfr_t angle, c, s;
    mpfr_inits2(200, angle, c, s, (mpfr_ptr)0);
    for (int64_t i = 0; i < cosines->columns; i++)
        for (int64_t at = 0; at < cosines->rows; at++) {
            mpfr_set_si(angle, -(long)i, MPFR_RNDN);
            mpfr_div_si(angle, angle, (long)cosines->columns, MPFR_RNDN);
            mpfr_ui_pow(angle, 10000, angle, MPFR_RNDN);
            mpfr_mul_si(angle, angle, (long)at, MPFR_RNDN);
            mpfr_sin_cos(s, c, angle, MPFR_RNDN);
            ng_set_code(cosines, at, i, ng_round_mpfr(cosines->format, c, &nearest, 0));
            ng_set_code(sines, at, i, ng_round_mpfr(sines->format, s, &nearest, 0));
        }
    mpfr_clears(angle, c, s, (mpfr_ptr)0);
}

/* a b + c d: |error| <= u (|a b| + |c d|) + 2 eta from the products, u of the sum and eta. */
static void two_products(const ng_layer *layer, ng_format_id out, const ng_cast *cast, double a, double b, double c, double d, ng_layer_value *v) {
    const double p = a * b, q = c * d, u = unit_of(layer), eta = tiny_of(layer), size = fabs(p) + fabs(q);
    pair exact = sum_of(p, q);
    const double rest_p = isfinite(p) ? fma(a, b, -p) : 0, rest_q = isfinite(q) ? fma(c, d, -q) : 0;
    if (rest_p != 0) exact = add_to(exact, rest_p);
    if (rest_q != 0) exact = add_to(exact, rest_q);
    settle(layer, exact, (u * size + 2 * eta) * (1 + u) + u * fabs(exact.high) + eta, size, v);
    v->code = ng_round(out, rounded(layer, rounded(layer, p) + rounded(layer, q)), cast, 0);
}

void ng_reference_rotate(const ng_layer *layer, ng_format_id out, const ng_cast *cast, double x, double y, double c, double s,
                         ng_layer_value value[2]) {
    const double sine = layer->inverse ? -s : s;
    two_products(layer, out, cast, x, c, y, -sine, &value[0]);
    two_products(layer, out, cast, y, c, x, sine, &value[1]);
}

/* A sum that OUT's format rounds once is right to the last bit; into a narrower one it was rounded before. */
ng_layer_value ng_reference_add(const ng_layer *layer, ng_format_id out, const ng_cast *cast, double a, double b) {
    ng_layer_value v;
    const pair exact = sum_of(a, b);
    settle(layer, exact, out == layer->compute ? 0 : unit_of(layer) * fabs(exact.high), fabs(exact.high), &v);
    v.code = ng_round(out, rounded(layer, a + b), cast, 0);
    return v;
}

/* |error| <= gamma_n sum |terms|. */
ng_layer_value ng_reference_chain(const ng_layer *layer, const ng_cast *cast, double before, const double *terms, int64_t count) {
    ng_layer_value v;
    pair exact = {before, 0};
    double size = fabs(before), chain = before;
    for (int64_t i = 0; i < count; i++) {
        exact = isfinite(exact.high) ? add_to(exact, terms[i]) : (pair){exact.high + terms[i], 0};
        size += fabs(terms[i]);
        chain = rounded(layer, chain + terms[i]);
    }
    const double n = (double)count * unit_of(layer);
    settle(layer, exact, n / (1 - n) * size, size, &v);
    v.code = ng_round(layer->compute, chain, cast, 0);
    return v;
}
