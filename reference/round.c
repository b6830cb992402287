/* One rounding of a real number into any format: through MPFR, and in integer arithmetic (round_core.h). */
#include "reference/round.h"

#include "reference/round_core.h"

#include <math.h>

/* ---- MPFR ---------------------------------------------------------------------------------------------------------
 * |x| is scaled by a power of two (exact) so that the format's quantum at x becomes 1, and one mpfr_rint-like call does
 * the only rounding. The exponent range is never narrowed, so neither mpfr_subnormalize nor its flags are involved
 * (MPFR up to 4.2.1 can leave a wrong underflow flag there). The code is then built from the rounded value's fields. */

/* 2^r d against the random integer, as ng_stochastic words it. y: magnitude in quanta; t: scratch of y's precision. */
static bool mpfr_stochastic_up(mpfr_srcptr y, mpfr_ptr t, const ng_cast *cast, uint32_t random) {
    unsigned long words = 1ul << cast->random_bits, r = random & (words - 1);
    mpfr_frac(t, y, MPFR_RNDN);                       /* d, exact */
    mpfr_mul_2ui(t, t, cast->random_bits, MPFR_RNDN); /* 2^r d, exact */
    switch (cast->stochastic) {
    case NG_SR_HALF:
        mpfr_mul_2ui(t, t, 1, MPFR_RNDN);
        return mpfr_cmp_ui(t, 2 * words - 2 * r - 1) >= 0;
    case NG_SR_UNBIASED:
        mpfr_rint(t, t, MPFR_RNDN);
        return mpfr_cmp_ui(t, words - r) >= 0;
    default:
        mpfr_floor(t, t);
        return mpfr_cmp_ui(t, words - r) >= 0;
    }
}

/* y, a magnitude in quanta, to an integer. */
static uint64_t mpfr_integer(mpfr_ptr y, mpfr_ptr scratch, const ng_cast *cast, bool negative, uint32_t random) {
    bool up;
    switch (cast->rounding) {
    case NG_RN_EVEN:
        mpfr_rint(y, y, MPFR_RNDN);
        break;
    case NG_RN_AWAY:
        mpfr_round(y, y);
        break;
    case NG_R_UP:
        mpfr_rint(y, y, negative ? MPFR_RNDZ : MPFR_RNDU);
        break;
    case NG_R_AWAY:
        mpfr_rint(y, y, MPFR_RNDU);
        break;
    case NG_R_STOCHASTIC:
        up = mpfr_stochastic_up(y, scratch, cast, random);
        mpfr_floor(y, y);
        return mpfr_get_ui(y, MPFR_RNDZ) + up;
    default:
        mpfr_rint(y, y, MPFR_RNDZ);
        break;
    }
    return mpfr_get_ui(y, MPFR_RNDZ);
}

/* The code of the magnitude k 2^q, a value of the format, or -1 beyond its largest. */
static int64_t encode_value(const ng_format *f, uint64_t k, int q) {
    if (k == 0) return 0;
    if (ldexp((double)k, q) > f->largest) return -1;
    int e = 63 - __builtin_clzll(k) + q, p = f->mantissa_bits;
    uint64_t field = e >= f->emin ? (uint64_t)(e + f->bias) : 0;
    int unit = (e >= f->emin ? e : f->emin) - p;
    uint64_t significand = unit >= q ? k >> (unit - q) : k << (q - unit);
    return (int64_t)(field << p | (significand & (((uint64_t)1 << p) - 1)));
}

static uint64_t round_finite_mpfr(ng_format_id to, const ng_layout *l, mpfr_srcptr x, bool negative,
                                  const ng_cast *cast, uint32_t random) {
    const ng_format *f = &ng_formats[to];
    long e = mpfr_get_exp(x) - 1;
    int q = (int)(e > 4096 ? 4096 : e > f->emin ? e : f->emin) - f->mantissa_bits;
    int64_t code = -1;
    if (e <= 4096) {
        mpfr_t y, scratch;
        mpfr_inits2(mpfr_get_prec(x), y, scratch, (mpfr_ptr)0);
        mpfr_abs(y, x, MPFR_RNDN);
        mpfr_mul_2si(y, y, -q, MPFR_RNDN);
        uint64_t k = mpfr_integer(y, scratch, cast, negative, random);
        mpfr_clears(y, scratch, (mpfr_ptr)0);
        if (to == NG_E8M0 && k == 0) return 0;
        code = encode_value(f, k, q);
    }
    return code < 0 ? ng_overflow_code(l, cast, negative, false) : ng_with_sign(l, (uint64_t)code, negative);
}

uint64_t ng_round_mpfr(ng_format_id to, mpfr_srcptr x, const ng_cast *cast, uint32_t random) {
    ng_layout l = ng_layout_of(to);
    bool negative = mpfr_signbit(x) != 0;
    if (mpfr_nan_p(x)) return ng_nan_code(&l, cast->nan, negative);
    if (ng_sign_to_zero(&l, &negative) || mpfr_zero_p(x)) return ng_with_sign(&l, 0, negative);
    if (mpfr_inf_p(x)) return ng_overflow_code(&l, cast, negative, true);
    return round_finite_mpfr(to, &l, x, negative, cast, random);
}

/* ---- integers -----------------------------------------------------------------------------------------------------*/
uint64_t ng_round(ng_format_id to, double x, const ng_cast *cast, uint32_t random) {
    ng_layout l = ng_layout_of(to);
    if (cast->rounding == NG_RN_EVEN && to != NG_FP64) return ng_round_double_even(&l, x, cast);
    return ng_round_double(&l, x, cast, random);
}

/* low in units of 2^exponent, rounded down, and whether that lost anything. |low| is below 2^10 such units unless the
 * caller broke his promise; where the scaling itself underflows, a quarter unit stands for what is lost. */
static int64_t units_below(double low, int exponent, bool *sticky) {
    double scaled = ldexp(low, -exponent);
    if (scaled == 0 && low != 0) scaled = low > 0 ? 0.25 : -0.25;
    double whole = floor(scaled);
    *sticky = scaled != whole;
    return (int64_t)whole;
}

uint64_t ng_round_pair(ng_format_id to, double high, double low, const ng_cast *cast) {
    uint64_t bits = ng_double_bits(high), significand;
    int exponent;
    bool sticky, negative = bits >> 63;
    ng_layout l = ng_layout_of(to);
    if (ng_is_special(bits)) return ng_round_special(&l, bits, cast);
    ng_double_parts(bits, &significand, &exponent);
    significand += (uint64_t)units_below(negative ? -low : low, exponent, &sticky);
    return ng_round_parts(&l, significand, exponent, sticky, negative, cast, 0);
}

uint64_t ng_round_up_count(ng_format_id to, double x, const ng_cast *cast) {
    ng_layout l = ng_layout_of(to);
    uint64_t bits = ng_double_bits(x), significand, words = (uint64_t)1 << cast->random_bits;
    int exponent;
    bool negative = bits >> 63;
    if (isnan(x) || isinf(x) || ng_sign_to_zero(&l, &negative)) return 0;
    if (l.offset && fabs(x) < ldexp(1, l.emin)) /* below e8m0's least value: always up to it */
        return words;
    if (x == 0) return 0;
    ng_double_parts(bits, &significand, &exponent);
    ng_cut cut = ng_cut_at(&l, significand, exponent, false);
    bool saturated = (cast->saturate || l.finite_only) && ng_cut_code(&l, &cut, true) > l.largest;
    return saturated ? 0 : ng_stochastic_count(&cut, cast);
}

/* ---- the number line ----------------------------------------------------------------------------------------------*/
void ng_neighbours(ng_format_id to, double x, uint64_t *below, uint64_t *above) {
    const ng_cast inward = {.rounding = NG_R_ZERO, .saturate = true}, outward = {.rounding = NG_R_AWAY, .saturate = true};
    if (x < 0 && !ng_formats[to].is_signed) x = 0; /* the least value is both */
    uint64_t in = ng_round(to, x, &inward, 0), out = ng_round(to, x, &outward, 0);
    *below = x < 0 ? out : in;
    *above = x < 0 ? in : out;
}

uint64_t ng_ulp_distance(ng_format_id format, uint64_t code_a, uint64_t code_b) {
    ng_layout l = ng_layout_of(format);
    uint64_t a = code_a >> l.pad, b = code_b >> l.pad;
    bool apart = false;
    if (l.sign >= 0) {
        uint64_t sign = (uint64_t)1 << l.sign;
        apart = (a ^ b) & sign;
        a &= sign - 1;
        b &= sign - 1;
    }
    return apart ? a + b : a > b ? a - b : b - a;
}
