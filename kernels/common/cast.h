/* One rounding of a binary32 into a narrower format, in 32-bit integer arithmetic without a branch on the data, so that
 * compilers vectorise it and a warp does not diverge. Semantics: ng_cast in kernels/contract.h. */
#ifndef NG_KERNELS_COMMON_CAST_H
#define NG_KERNELS_COMMON_CAST_H

#include "kernels/common/target.h"

/* A format and a cast, made into the numbers that the rounding needs. Codes are right-aligned (tf32: 19 bits). */
typedef struct ng_caster {
    uint32_t mantissa_bits;
    uint32_t emin;          /* binary32 exponent field of the smallest normal number */
    uint32_t largest;       /* code of the largest finite magnitude */
    uint32_t beyond;        /* code of a magnitude that rounds beyond it */
    uint32_t infinite;      /* code of an infinity */
    uint32_t nan;
    uint32_t sign;          /* sign bit of a finite number; 0: negative numbers become 0 */
    uint32_t overflow_sign; /* sign bit of beyond and infinite; 0 where they are an unsigned NaN */
    uint32_t nan_sign;
} ng_caster;

/* The number formats' shape; the largest code and what follows it. False for fp64, fp32 and e8m0, which are not cast so. */
NG_HD bool ng_caster_shape(ng_format_id to, ng_caster *c, uint32_t *overflow, bool *has_infinity, bool *has_nan) {
    c->sign = 0;
    *has_infinity = false;
    *has_nan = true;
    switch (to) {
    case NG_TF32: c->mantissa_bits = 10, c->emin = 1, c->largest = 0x3FBFF, *overflow = 0x3FC00, c->nan = 0x3FFFF;
        c->sign = 0x40000, *has_infinity = true; return true;
    case NG_BF16: c->mantissa_bits = 7, c->emin = 1, c->largest = 0x7F7F, *overflow = 0x7F80, c->nan = 0x7FFF;
        c->sign = 0x8000, *has_infinity = true; return true;
    case NG_FP16: c->mantissa_bits = 10, c->emin = 113, c->largest = 0x7BFF, *overflow = 0x7C00, c->nan = 0x7FFF;
        c->sign = 0x8000, *has_infinity = true; return true;
    case NG_E5M2: c->mantissa_bits = 2, c->emin = 113, c->largest = 0x7B, *overflow = 0x7C, c->nan = 0x7F;
        c->sign = 0x80, *has_infinity = true; return true;
    case NG_E4M3: c->mantissa_bits = 3, c->emin = 121, c->largest = 0x7E, *overflow = 0x7F, c->nan = 0x7F;
        c->sign = 0x80; return true;
    case NG_UE4M3: c->mantissa_bits = 3, c->emin = 121, c->largest = 0x7E, *overflow = 0x7F, c->nan = 0x7F;
        return true;
    case NG_E3M2: c->mantissa_bits = 2, c->emin = 125, c->largest = *overflow = c->nan = 0x1F;
        c->sign = 0x20, *has_nan = false; return true;
    case NG_E2M3: c->mantissa_bits = 3, c->emin = 127, c->largest = *overflow = c->nan = 0x1F;
        c->sign = 0x20, *has_nan = false; return true;
    case NG_E2M1: c->mantissa_bits = 1, c->emin = 127, c->largest = *overflow = c->nan = 0x7;
        c->sign = 0x8, *has_nan = false; return true;
    default: return false;
    }
}

NG_HD ng_caster ng_caster_of(ng_format_id to, const ng_cast *cast) {
    ng_caster c = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    uint32_t overflow = 0;
    bool has_infinity, has_nan;
    if (!ng_caster_shape(to, &c, &overflow, &has_infinity, &has_nan)) return c;
    bool saturate = cast->saturate || !has_nan;
    if (cast->nan == NG_NAN_MAX) c.nan = c.largest;
    c.nan_sign = cast->nan == NG_NAN_KEEP_SIGN ? c.sign : 0;
    c.infinite = saturate ? c.largest : overflow;
    c.overflow_sign = saturate || has_infinity ? c.sign : c.nan_sign;
    c.beyond = cast->rounding == NG_R_ZERO ? c.largest : c.infinite;
    return c;
}

/* A magnitude as base + significand / 2^shift units of the last place of the target. */
typedef struct ng_magnitude {
    uint32_t base, significand, shift;
} ng_magnitude;

NG_HD ng_magnitude ng_align(const ng_caster *c, uint32_t magnitude) {
    uint32_t field = magnitude >> 23;
    uint32_t hidden = field ? 0x800000u : 0u;
    uint32_t e = field ? field : 1u;
    ng_magnitude m;
    m.significand = (magnitude & 0x7FFFFFu) | hidden;
    m.shift = 23u - c->mantissa_bits + (e < c->emin ? c->emin - e : 0u);
    m.base = e > c->emin ? (e - c->emin) << c->mantissa_bits : 0u;
    return m;
}

/* Overflow, infinities, NaN and the sign: the rest of a cast once the magnitude's code is rounded. */
NG_HD uint32_t ng_cast_finish(const ng_caster *c, ng_rounding rounding, uint32_t bits, uint32_t code) {
    uint32_t magnitude = bits & NG_ABS_MASK, negative = 0u - (bits >> 31);
    uint32_t beyond = rounding == NG_R_UP ? (c->beyond & ~negative) | (c->largest & negative) : c->beyond;
    /* a stop at the largest number is a number and keeps its sign, whatever an overflow to NaN would do */
    uint32_t beyond_sign = beyond == c->largest ? c->sign : c->overflow_sign;
    uint32_t sign = c->sign;
    sign = code > c->largest ? beyond_sign : sign;
    code = code > c->largest ? beyond : code;
    sign = magnitude == NG_INF_BITS ? c->overflow_sign : sign;
    code = magnitude == NG_INF_BITS ? c->infinite : code;
    code = c->sign == 0 && negative ? 0u : code; /* ue4m3 */
    sign = magnitude > NG_INF_BITS ? c->nan_sign : sign;
    code = magnitude > NG_INF_BITS ? c->nan : code;
    return code | (sign & negative);
}

/* The code of the binary32 with these bits, in any mode but NG_R_STOCHASTIC. `rounding` is the caster's own, passed so
 * that it can be a compile-time constant. Adding before the shift carries into the next code, binade and overflow alike. */
NG_HD uint32_t ng_cast_code(const ng_caster *c, ng_rounding rounding, uint32_t bits) {
    ng_magnitude m = ng_align(c, bits & NG_ABS_MASK);
    uint32_t s = m.shift < 30u ? m.shift : 30u; /* 2^29 is more than any significand: nothing below half an ulp changes */
    uint32_t half = 1u << (s - 1), add = 0;
    switch (rounding) {
    case NG_RN_EVEN: add = half - 1 + (m.significand >> s & 1u); break;
    case NG_RN_AWAY: add = half; break;
    case NG_R_UP: add = (2u * half - 1) & ((bits >> 31) - 1u); break;
    case NG_R_AWAY: add = 2u * half - 1; break;
    default: break;
    }
    return ng_cast_finish(c, rounding, bits, m.base + ((m.significand + add) >> s));
}

/* floor(2^bits * d), d the fraction of an ulp below the magnitude; *sticky: whether anything was cut off. */
NG_HD uint64_t ng_fraction(ng_magnitude m, uint32_t bits, bool *sticky) {
    uint32_t cut = m.shift < 32u ? m.significand & ((1u << m.shift) - 1u) : m.significand;
    if (bits >= m.shift) {
        *sticky = false;
        return (uint64_t)cut << (bits - m.shift);
    }
    uint32_t down = m.shift - bits;
    uint32_t kept = down < 32u ? cut >> down : 0u;
    *sticky = down < 32u ? (kept << down) != cut : cut != 0;
    return kept;
}

/* Whether r random bits R round the magnitude up. The three forms are those of ng_stochastic. */
NG_HD bool ng_stochastic_up(ng_magnitude m, ng_stochastic form, uint32_t r, uint32_t random) {
    uint64_t one = (uint64_t)1 << r, word = random & (one - 1);
    bool sticky;
    if (form == NG_SR_HALF) /* 2 * 2^r d is compared with an integer: its floor decides */
        return ng_fraction(m, r + 1, &sticky) + 2 * word + 1 >= 2 * one;
    if (form == NG_SR_CARRY) return ng_fraction(m, r, &sticky) + word >= one;
    uint64_t fine = ng_fraction(m, r + 1, &sticky);
    uint64_t units = fine >> 1;
    units += (fine & 1) && (sticky || (units & 1)); /* to nearest, ties to even */
    return units + word >= one;
}

NG_HD uint32_t ng_cast_code_stochastic(const ng_caster *c, ng_stochastic form, uint32_t r, uint32_t bits, uint32_t random) {
    ng_magnitude m = ng_align(c, bits & NG_ABS_MASK);
    uint32_t code = m.base + (m.shift < 32u ? m.significand >> m.shift : 0u) + ng_stochastic_up(m, form, r, random);
    return ng_cast_finish(c, NG_R_STOCHASTIC, bits, code);
}

/* Into e8m0: the magnitude's exponent, rounded. Between two powers of two the significand's fraction decides; nearest ties
 * go up in either mode. Nothing lies below code 0. */
NG_HD uint32_t ng_cast_e8m0(ng_rounding rounding, bool saturate, uint32_t bits) {
    uint32_t magnitude = bits & NG_ABS_MASK;
    uint32_t code = magnitude >> 23, fraction = magnitude & 0x7FFFFFu;
    if (magnitude > NG_INF_BITS) return 0xFF;
    if (magnitude == NG_INF_BITS) return saturate ? 0xFE : 0xFF;
    if (code == 0) /* binary32 subnormals: 2^-127 is 0x400000, and 2^22 of them make the next ulp */
        fraction = fraction > 0x400000u ? (fraction - 0x400000u) << 1 : 0u;
    bool up = false;
    switch (rounding) {
    case NG_RN_EVEN:
    case NG_RN_AWAY: up = fraction >= 0x400000u; break;
    case NG_R_UP:
    case NG_R_AWAY: up = fraction != 0; break;
    default: break;
    }
    code += up;
    return code > 0xFE && saturate ? 0xFE : code;
}

/* A binary64 as the binary32 that every narrower format rounds alike: truncated, the last bit set if anything was cut
 * (rounding to odd: Boldo, Melquiond 2008). Sound for targets of at most 22 significant bits, subnormals included. */
NG_HD float ng_round_to_odd(double x) {
    float f = (float)x;
    double back = (double)f;
    uint32_t over = (back < 0 ? -back : back) > (x < 0 ? -x : x), cut = back != x; /* a NaN stays one */
    return ng_float((ng_bits(f) - over) | cut);
}

#endif
