#include "reference/elementary.h"

#include <math.h>
#include <mpfr.h>
#include <pthread.h>

/* x = (64 n + j) ln 2 / 64 + r, |r| < 0.0055: exp(r) by Taylor to r^7 (r^8 / 8! < 2^-75), 2^(j/64) from a table that MPFR makes. ln 2 / 64 in
 * two parts, the first of 38 bits: its products with integers up to 2^15 are exact. */
enum { EXP_STEPS = 64, TAIL_STEPS = 16, TAIL_MOST = 37, TAIL_TERMS = 16 };

static double exp_table[EXP_STEPS], tail_table[TAIL_STEPS * TAIL_MOST + 1], density_table[TAIL_STEPS * TAIL_MOST + 1];
static double ln2_high, ln2_low;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_tables(void) {
    mpfr_t x, y, z;
    mpfr_inits2(200, x, y, z, (mpfr_ptr)0);
    for (int j = 0; j < EXP_STEPS; j++) {
        mpfr_set_ui_2exp(x, (unsigned long)j, -6, MPFR_RNDN);
        mpfr_exp2(x, x, MPFR_RNDN);
        exp_table[j] = mpfr_get_d(x, MPFR_RNDN);
    }
    mpfr_const_log2(x, MPFR_RNDN);
    mpfr_div_ui(x, x, EXP_STEPS, MPFR_RNDN);
    mpfr_set(y, x, MPFR_RNDN);
    mpfr_prec_round(y, 38, MPFR_RNDN);
    ln2_high = mpfr_get_d(y, MPFR_RNDN);
    mpfr_sub_d(x, x, ln2_high, MPFR_RNDN);
    ln2_low = mpfr_get_d(x, MPFR_RNDN);
    mpfr_prec_round(y, 200, MPFR_RNDN);
    for (int k = 0; k <= TAIL_STEPS * TAIL_MOST; k++) {
        mpfr_set_d(x, (double)k / TAIL_STEPS, MPFR_RNDN);
        mpfr_sqr(y, x, MPFR_RNDN);
        mpfr_div_si(y, y, -2, MPFR_RNDN);
        mpfr_exp(y, y, MPFR_RNDN);
        mpfr_const_pi(z, MPFR_RNDN);
        mpfr_mul_ui(z, z, 2, MPFR_RNDN);
        mpfr_sqrt(z, z, MPFR_RNDN);
        mpfr_div(y, y, z, MPFR_RNDN);
        density_table[k] = mpfr_get_d(y, MPFR_RNDN);
        mpfr_sqrt_ui(z, 2, MPFR_RNDN);
        mpfr_div(x, x, z, MPFR_RNDN);
        mpfr_erfc(x, x, MPFR_RNDN);
        mpfr_div_ui(x, x, 2, MPFR_RNDN);
        tail_table[k] = mpfr_get_d(x, MPFR_RNDN);
    }
    mpfr_clears(x, y, z, (mpfr_ptr)0);
}

double ng_reference_exp(double x) {
    pthread_once(&once, make_tables);
    if (!(x > -700)) return isnan(x) ? x : 0; /* below 2^-1009, far below every bound's absolute part */
    if (x > 700) return INFINITY;
    const double n = rint(x / (ln2_high + ln2_low)), r = (x - n * ln2_high) - n * ln2_low;
    double p = 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1;
    const long whole = (long)n, j = whole & (EXP_STEPS - 1);
    return ldexp(exp_table[j] + exp_table[j] * (p * r), (int)((whole - j) / EXP_STEPS));
}

/* Taylor around the nearest sixteenth, |h| <= 1/32: the n-th derivative of the density is (-1)^n He_n(a) times it (probabilists'
 * Hermite polynomials), He_n = a He_(n-1) - (n - 1) He_(n-2). At a = 36 a term is below 1.25^n / n! of the tail's own size. */
double ng_reference_tail(double a) {
    pthread_once(&once, make_tables);
    if (!(a < TAIL_MOST - 1)) return isnan(a) ? a : 0; /* below 2^-930; binary64's own subnormal numbers begin at 37.5 */
    const int k = (int)rint(a * TAIL_STEPS);
    const double at = (double)k / TAIL_STEPS, h = a - at;
    double before = 0, hermite = 1, power = h, sum = 0;
    for (int n = 0; n < TAIL_TERMS; n++) {
        sum += hermite * power;
        const double next = at * hermite - n * before;
        before = hermite;
        hermite = next;
        power *= -h / (n + 2);
    }
    return tail_table[k] - density_table[k] * sum;
}

/* One Newton step, of third order (Halley's), from a logarithm good to 2^-12: y + 2 (x - exp y) / (x + exp y). */
double ng_reference_log(double x) {
    int exponent;
    if (!(x > 0) || isinf(x)) return x == 0 ? -INFINITY : x > 0 ? x : NAN;
    const double f = frexp(x, &exponent), t = (f - 0.75) / 0.75;
    double y = (double)exponent * 0x1.62e42fefa39efp-1 - 0x1.269621134db92p-2 + t * (1 - t * (0.5 - t * (1.0 / 3 - t * (0.25 - t * 0.2))));
    for (int i = 0; i < 2; i++) {
        const double e = ng_reference_exp(y);
        y += 2 * (x - e) / (x + e);
    }
    return y;
}
