/* One tensor-core step in integers, term by term: the plain derivation that the fast paths are held to.
 * Model: arXiv:2511.10909, arXiv:2512.07004; zero and overflow: mma.sync bf16 measured on an H200. */
#include "reference/predict.h"

__extension__ typedef __int128 wide_signed;
__extension__ typedef unsigned __int128 wide_unsigned;

int ng_factor_fraction(ng_format_id format)
{
    return ng_formats[format].mantissa_bits;
}

static ng_number_kind kind_of(const ng_format *f, uint32_t exponent, uint32_t mantissa)
{
    uint32_t top = (1u << f->exponent_bits) - 1, ones = (1u << f->mantissa_bits) - 1;
    if (f->specials == NG_FINITE_ONLY || exponent != top) return NG_FINITE;
    if (f->specials == NG_NAN_ALL_ONES) return mantissa == ones ? NG_NOT_A_NUMBER : NG_FINITE;
    return mantissa ? NG_NOT_A_NUMBER : NG_INFINITE;
}

ng_factor ng_factor_of(ng_format_id format, uint64_t code)
{
    const ng_format *f = &ng_formats[format];
    if (format == NG_TF32) code >>= 13; /* stored as a binary32 */
    uint32_t mantissa = (uint32_t)code & ((1u << f->mantissa_bits) - 1);
    uint32_t exponent = (uint32_t)(code >> f->mantissa_bits) & ((1u << f->exponent_bits) - 1);
    bool negative = f->is_signed && (code >> (f->mantissa_bits + f->exponent_bits) & 1);
    ng_factor factor = {.kind = (uint8_t)kind_of(f, exponent, mantissa)};
    if (format == NG_E8M0) { /* no zero, no subnormals */
        factor.significand = 1;
        factor.exponent = (int16_t)((int)exponent - 127);
        return factor;
    }
    int32_t magnitude = (int32_t)(exponent ? mantissa | 1u << f->mantissa_bits : mantissa);
    factor.significand = negative ? -magnitude : magnitude;
    factor.exponent = (int16_t)((int)(exponent ? exponent : 1) - f->bias);
    return factor;
}

ng_factor ng_operand_factor(const ng_mma *mma, ng_format_id format, uint64_t code)
{
    ng_factor f = ng_factor_of(format, code);
    int32_t whole = 1 << ng_formats[format].mantissa_bits;
    if (!mma->interleave || f.kind != NG_FINITE) return f;
    while (f.significand && f.significand < whole && f.significand > -whole && f.exponent > ng_formats[NG_FP16].emin)
        f.significand *= 2, f.exponent--;
    return f;
}

static ng_term term_of_float(float c)
{
    uint32_t bits;
    memcpy(&bits, &c, sizeof bits);
    ng_factor f = ng_factor_of(NG_FP32, bits);
    return (ng_term){f.significand, f.exponent, 23, (ng_number_kind)f.kind};
}

/* What NaN and infinities among the terms make of the sum; false if all are finite. */
static bool special_sum(const ng_term *terms, int count, float *result)
{
    bool up = false, down = false, nan = false;
    for (int i = 0; i < count; i++) {
        nan |= terms[i].kind == NG_NOT_A_NUMBER;
        if (terms[i].kind != NG_INFINITE) continue;
        up |= terms[i].significand > 0;
        down |= terms[i].significand < 0;
    }
    if (!nan && !up && !down) return false;
    *result = nan || (up && down) ? NAN : up ? INFINITY : -INFINITY;
    return true;
}

static int largest_exponent(const ng_mma *mma, const ng_term *terms, int count)
{
    int largest = mma->min_exponent;
    for (int i = 0; i < count; i++)
        if (terms[i].significand && terms[i].exponent > largest) largest = terms[i].exponent;
    return largest;
}

/* |significand| * 2^shift truncated, and whether anything was lost. */
static wide_signed shifted(wide_unsigned magnitude, int shift, bool *inexact)
{
    *inexact = false;
    if (!magnitude || shift >= 0) return (wide_signed)(magnitude << (magnitude ? shift : 0));
    if (shift <= -127) {
        *inexact = true;
        return 0;
    }
    *inexact = (magnitude & (((wide_unsigned)1 << -shift) - 1)) != 0;
    return (wide_signed)(magnitude >> -shift);
}

static int floor_log2(wide_unsigned x)
{
    uint64_t high = (uint64_t)(x >> 64);
    return high ? 127 - __builtin_clzll(high) : 63 - __builtin_clzll((uint64_t)x);
}

/* sum * 2^unit truncated to p fraction bits in binary32's range. */
static float truncated(const ng_mma *mma, wide_signed sum, int unit, double *bound)
{
    if (sum == 0) return 0.0f;
    wide_unsigned magnitude = sum < 0 ? -(wide_unsigned)sum : (wide_unsigned)sum;
    int exponent = floor_log2(magnitude) + unit;
    int quantum = (exponent > -126 ? exponent : -126) - mma->output_bits;
    bool inexact = false;
    if (quantum > unit) {
        magnitude = (wide_unsigned)shifted(magnitude, unit - quantum, &inexact);
        unit = quantum;
    }
    if (inexact) *bound += ldexp(1, quantum);
    if (exponent > 127) return sum < 0 ? -INFINITY : INFINITY;
    double value = ldexp((double)(uint64_t)magnitude, unit);
    return magnitude == 0 ? 0.0f : (float)(sum < 0 ? -value : value);
}

float ng_fused_sum(const ng_mma *mma, const ng_term *terms, int count, double *bound)
{
    float result;
    double error = 0;
    if (!special_sum(terms, count, &result)) {
        int e = largest_exponent(mma, terms, count), unit = e - mma->fraction_bits;
        wide_signed sum = 0;
        for (int i = 0; i < count; i++) {
            bool negative = terms[i].significand < 0, inexact;
            uint64_t magnitude = (uint64_t)(negative ? -terms[i].significand : terms[i].significand);
            wide_signed t = shifted(magnitude, terms[i].exponent - terms[i].fraction - unit, &inexact);
            sum += negative ? -t : t;
            if (inexact) error += ldexp(1, unit);
        }
        result = truncated(mma, sum, unit, &error);
    }
    if (!isfinite(result)) error = INFINITY;
    if (bound) *bound += error;
    return result;
}

static ng_term product(ng_factor x, ng_factor y)
{
    ng_term t = {(int64_t)x.significand * y.significand, x.exponent + y.exponent, 0, NG_FINITE};
    if (x.kind == NG_NOT_A_NUMBER || y.kind == NG_NOT_A_NUMBER) t.kind = NG_NOT_A_NUMBER;
    else if (x.kind == NG_INFINITE || y.kind == NG_INFINITE)
        t.kind = t.significand ? NG_INFINITE : NG_NOT_A_NUMBER; /* 0 * Inf */
    return t;
}

/* The terms of one group from factors in the group's order; sa, sb NULL without scales inside. */
static int product_terms(const ng_mma *mma, const ng_factor *const *a, const ng_factor *const *b,
                         const ng_factor *const *sa, const ng_factor *const *sb, int fraction, int scale_fraction,
                         ng_term *terms)
{
    for (int i = 0; i < mma->group; i++) {
        terms[i] = product(*a[i], *b[i]);
        terms[i].fraction = fraction;
        if (!sa) continue;
        ng_term s = product(*sa[i], *sb[i]);
        terms[i].significand *= s.significand;
        terms[i].exponent += s.exponent;
        terms[i].fraction += scale_fraction;
        if (s.kind == NG_NOT_A_NUMBER) terms[i].kind = NG_NOT_A_NUMBER;
    }
    return mma->group;
}

/* nvf4: each `dot` products are one exact sum in units of 2^-fraction; it is multiplied by the scales' significands and
 * carries their exponents alone. */
static int dot_terms(const ng_mma *mma, const ng_factor *const *a, const ng_factor *const *b,
                     const ng_factor *const *sa, const ng_factor *const *sb, int fraction, int scale_fraction,
                     ng_term *terms)
{
    int count = 0;
    for (int g = 0; g < mma->group; g += mma->dot, count++) {
        int64_t dot = 0;
        for (int i = g; i < g + mma->dot; i++) {
            ng_term t = product(*a[i], *b[i]);
            dot += t.significand * ((int64_t)1 << t.exponent); /* e2m1: exponents 0 to 2 */
        }
        ng_term s = product(*sa[g], *sb[g]);
        terms[count] = (ng_term){dot * s.significand, s.exponent, fraction + scale_fraction, s.kind};
    }
    return count;
}

/* Position in the step of element i of group g. */
static int member(const ng_mma *mma, int g, int i)
{
    if (!mma->interleave) return g * mma->group + i;
    return i / mma->interleave * 2 * mma->interleave + g * mma->interleave + i % mma->interleave;
}

float ng_factor_step(const ng_mma *mma, int fraction, int scale_fraction, const ng_factor *a, const ng_factor *b,
                     const ng_factor *sa, const ng_factor *sb, float c, double *bound)
{
    const ng_factor *pa[NG_MAX_STEP], *pb[NG_MAX_STEP], *qa[NG_MAX_STEP], *qb[NG_MAX_STEP];
    ng_term terms[NG_MAX_STEP + 1];
    for (int g = 0; g < mma->k / mma->group; g++) {
        for (int i = 0; i < mma->group; i++) {
            int k = member(mma, g, i);
            pa[i] = a + k, pb[i] = b + k;
            if (sa) qa[i] = sa + k, qb[i] = sb + k;
        }
        int count = mma->dot ? dot_terms(mma, pa, pb, qa, qb, fraction, scale_fraction, terms)
                             : product_terms(mma, pa, pb, sa ? qa : NULL, sa ? qb : NULL, fraction, scale_fraction, terms);
        terms[count] = term_of_float(c);
        c = ng_fused_sum(mma, terms, count + 1, bound);
    }
    return c;
}

bool ng_mma_is_defined(const ng_mma *mma)
{
    return mma->group && mma->k && mma->k <= NG_MAX_STEP && mma->k % mma->group == 0 && mma->fraction_bits <= 48 &&
           mma->output_bits <= 23 && (!mma->interleave || mma->group * 2 == mma->k) &&
           (!mma->dot || (mma->scales_inside && mma->group % mma->dot == 0)) &&
           (!mma->scales_inside || mma->scale_block);
}

ng_status ng_mma_step(const ng_mma *mma, ng_format_id a_format, const uint64_t *a, ng_format_id b_format,
                      const uint64_t *b, ng_format_id scale_format, const uint64_t *a_scales, const uint64_t *b_scales,
                      float c, float *d)
{
    if (!ng_mma_is_defined(mma) || mma->scales_inside != (a_scales && b_scales)) return NG_UNSUPPORTED;
    ng_factor fa[NG_MAX_STEP], fb[NG_MAX_STEP], sa[NG_MAX_STEP], sb[NG_MAX_STEP];
    for (int k = 0; k < mma->k; k++) {
        fa[k] = ng_operand_factor(mma, a_format, a[k]);
        fb[k] = ng_operand_factor(mma, b_format, b[k]);
        if (!mma->scales_inside) continue;
        sa[k] = ng_factor_of(scale_format, a_scales[k / mma->scale_block]);
        sb[k] = ng_factor_of(scale_format, b_scales[k / mma->scale_block]);
    }
    int fraction = ng_factor_fraction(a_format) + ng_factor_fraction(b_format);
    int scale_fraction = mma->scales_inside ? 2 * ng_factor_fraction(scale_format) : 0;
    bool scaled = mma->scales_inside;
    *d = ng_factor_step(mma, fraction, scale_fraction, fa, fb, scaled ? sa : NULL, scaled ? sb : NULL, c, NULL);
    return NG_OK;
}
