/* Rounding in integer arithmetic: the fast tier's core, inline so that loops over a tensor keep its constants in
 * registers. Internal to reference/; round.h is the interface.
 *
 * A magnitude is significand * 2^exponent, plus an unknown positive amount below one unit of it where `sticky` is set.
 * With E = floor(log2 magnitude) and the quantum 2^q, q = max(E, emin) - mantissa bits, it is (k + d) 2^q with an
 * integer k and 0 <= d < 1. Codes of a format count upwards through binades, so the magnitude's code is k + ((max(E,
 * emin) - emin) << p) and "up" is + 1, across binades too. */
#ifndef NG_REFERENCE_ROUND_CORE_H
#define NG_REFERENCE_ROUND_CORE_H

#include "reference/format.h"

#include <string.h>

typedef struct ng_layout {
    int p, emin;   /* mantissa bits, least normal exponent */
    int sign;      /* position of the sign bit; -1 without one */
    int pad;       /* zero bits below the code in storage: 13 for tf32 */
    int offset;    /* what a code counts less: 1 for e8m0, whose first code is 2^emin and not 0 */
    bool absolute; /* signs are dropped (e8m0); without it and without a sign, negative values become 0 (ue4m3) */
    bool finite_only;
    bool has_infinity;
    uint64_t largest; /* code of the largest finite value */
    uint64_t nan;     /* canonical, or `largest` in a finite-only format */
} ng_layout;

static inline ng_layout ng_layout_of(ng_format_id id) {
    const ng_format *f = &ng_formats[id];
    uint64_t ones = ((uint64_t)1 << (f->exponent_bits + f->mantissa_bits)) - 1;
    uint64_t top = ones - (((uint64_t)1 << f->mantissa_bits) - 1);
    bool ieee = f->specials == NG_IEEE, finite_only = f->specials == NG_FINITE_ONLY;
    return (ng_layout){
        .p = f->mantissa_bits,
        .emin = f->emin,
        .sign = f->is_signed ? f->exponent_bits + f->mantissa_bits : -1,
        .pad = id == NG_TF32 ? 13 : 0,
        .offset = id == NG_E8M0,
        .absolute = id == NG_E8M0,
        .finite_only = finite_only,
        .has_infinity = ieee,
        .largest = ieee          ? top - 1
                   : finite_only ? ones
                                 : ones - 1,
        .nan = ones,
    };
}

static inline uint64_t ng_double_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline uint64_t ng_with_sign(const ng_layout *l, uint64_t magnitude, bool negative) {
    return (l->sign >= 0 ? magnitude | (uint64_t)negative << l->sign : magnitude) << l->pad;
}

static inline uint64_t ng_nan_code(const ng_layout *l, ng_nan_rule rule, bool negative) {
    uint64_t code = rule == NG_NAN_MAX ? l->largest : l->nan;
    return ng_with_sign(l, code, rule == NG_NAN_KEEP_SIGN && negative);
}

/* The code of an overflow, sign included. Truncating directions stop at the largest finite value (IEEE 754-2019 7.4),
 * infinities do not; a NaN that stands for infinity has a sign only by the NaN rule. */
static inline uint64_t ng_overflow_code(const ng_layout *l, const ng_cast *cast, bool negative, bool from_infinity) {
    bool truncates = cast->rounding == NG_R_ZERO || (cast->rounding == NG_R_UP && negative);
    if (cast->saturate || l->finite_only || (truncates && !from_infinity)) return ng_with_sign(l, l->largest, negative);
    if (l->has_infinity) return ng_with_sign(l, l->nan - (((uint64_t)1 << l->p) - 1), negative);
    return ng_with_sign(l, l->nan, negative && cast->nan == NG_NAN_KEEP_SIGN);
}

/* k and the fraction d as 64 bits, with what lies below them. */
typedef struct ng_cut {
    uint64_t k, fraction;
    bool sticky;
    int binade; /* max(E, emin) - emin */
} ng_cut;

static inline ng_cut ng_cut_at(const ng_layout *l, uint64_t significand, int exponent, bool sticky) {
    int e = 63 - __builtin_clzll(significand) + exponent;
    int top = e > l->emin ? e : l->emin;
    int shift = top - l->p - exponent; /* > 0: callers leave bits below any format's precision */
    ng_cut cut = {.sticky = sticky, .binade = top - l->emin};
    if (shift < 64) {
        cut.k = significand >> shift;
        cut.fraction = significand << (64 - shift);
    } else if (shift < 128) {
        cut.fraction = significand >> (shift - 64);
        cut.sticky |= shift > 64 && significand << (128 - shift) != 0;
    } else {
        cut.sticky = true;
    }
    return cut;
}

/* How many of the 2^r random integers round the cut up: 2^r d rounded to an integer T; R rounds up iff T + R >= 2^r. */
static inline uint64_t ng_stochastic_count(const ng_cut *cut, const ng_cast *cast) {
    uint64_t t = cut->fraction >> (64 - cast->random_bits), rest = cut->fraction << cast->random_bits;
    const uint64_t half = (uint64_t)1 << 63;
    if (cast->stochastic == NG_SR_HALF) return t + (rest >= half);
    if (cast->stochastic == NG_SR_UNBIASED) return t + (rest > half || (rest == half && (cut->sticky || (t & 1))));
    return t;
}

static inline bool ng_goes_up(const ng_cut *cut, const ng_cast *cast, bool negative, uint32_t random) {
    const uint64_t half = (uint64_t)1 << 63;
    bool inexact = cut->fraction || cut->sticky;
    switch (cast->rounding) {
    case NG_RN_EVEN:
        return cut->fraction > half || (cut->fraction == half && (cut->sticky || (cut->k & 1)));
    case NG_RN_AWAY:
        return cut->fraction >= half;
    case NG_R_UP:
        return inexact && !negative;
    case NG_R_AWAY:
        return inexact;
    case NG_R_STOCHASTIC: {
        uint64_t words = (uint64_t)1 << cast->random_bits;
        return ng_stochastic_count(cut, cast) + (random & (words - 1)) >= words;
    }
    default:
        return false;
    }
}

static inline uint64_t ng_cut_code(const ng_layout *l, const ng_cut *cut, bool up) {
    uint64_t code = cut->k + up + ((uint64_t)cut->binade << l->p);
    return code > (uint64_t)l->offset ? code - (uint64_t)l->offset : 0;
}

/* Signs as the format has them; true if the value becomes 0 by its sign alone. */
static inline bool ng_sign_to_zero(const ng_layout *l, bool *negative) {
    bool zero = *negative && l->sign < 0 && !l->absolute;
    *negative = *negative && l->sign >= 0;
    return zero;
}

/* Any mode; significand not 0. */
static inline uint64_t ng_round_parts(const ng_layout *l, uint64_t significand, int exponent, bool sticky,
                                      bool negative, const ng_cast *cast, uint32_t random) {
    if (ng_sign_to_zero(l, &negative)) return 0;
    ng_cut cut = ng_cut_at(l, significand, exponent, sticky);
    uint64_t code = ng_cut_code(l, &cut, ng_goes_up(&cut, cast, negative, random));
    return code > l->largest ? ng_overflow_code(l, cast, negative, false) : ng_with_sign(l, code, negative);
}

/* NaN, infinities and zeros. */
static inline uint64_t ng_round_special(const ng_layout *l, uint64_t bits, const ng_cast *cast) {
    bool negative = bits >> 63;
    uint64_t magnitude = bits & ~((uint64_t)1 << 63);
    if (magnitude > 0x7FF0000000000000u) return ng_nan_code(l, cast->nan, negative);
    if (ng_sign_to_zero(l, &negative) || magnitude == 0) return ng_with_sign(l, 0, negative);
    return ng_overflow_code(l, cast, negative, true);
}

static inline bool ng_is_special(uint64_t bits) {
    return (bits & 0x7FFFFFFFFFFFFFFFu) - 1 >= 0x7FEFFFFFFFFFFFFFu;
}

/* significand * 2^exponent with ten zero bits below the binary64's own, so that fp64 itself is a possible target. */
static inline void ng_double_parts(uint64_t bits, uint64_t *significand, int *exponent) {
    int field = (int)(bits >> 52 & 0x7FF);
    uint64_t m = bits & 0xFFFFFFFFFFFFFu;
    *significand = (field ? m | (uint64_t)1 << 52 : m) << 10;
    *exponent = (field ? field : 1) - 1075 - 10;
}

static inline uint64_t ng_round_double(const ng_layout *l, double x, const ng_cast *cast, uint32_t random) {
    uint64_t bits = ng_double_bits(x), significand;
    int exponent;
    if (ng_is_special(bits)) return ng_round_special(l, bits, cast);
    ng_double_parts(bits, &significand, &exponent);
    return ng_round_parts(l, significand, exponent, false, bits >> 63, cast, random);
}

/* The lean path: ties to even, every target but fp64. Equal to ng_round_double; half an ulp less one, plus the last
 * kept bit, is added below the cut, so that the carry decides. */
static inline uint64_t ng_round_double_even(const ng_layout *l, double x, const ng_cast *cast) {
    uint64_t bits = ng_double_bits(x);
    if (ng_is_special(bits)) return ng_round_special(l, bits, cast);
    bool negative = bits >> 63;
    if (ng_sign_to_zero(l, &negative)) return 0;
    int field = (int)(bits >> 52 & 0x7FF), least = l->emin + 1023;
    uint64_t m = bits & 0xFFFFFFFFFFFFFu;
    if (field)
        m |= (uint64_t)1 << 52;
    else
        field = 1;
    int binade = field - least, shift = 52 - l->p;
    if (binade < 0) {
        shift -= binade;
        binade = 0;
    }
    ng_cut cut = {.binade = binade};
    if (shift < 54) /* else below half of the least quantum */
        cut.k = (m + ((uint64_t)1 << (shift - 1)) - 1 + (m >> shift & 1)) >> shift;
    uint64_t code = ng_cut_code(l, &cut, false);
    return code > l->largest ? ng_overflow_code(l, cast, negative, false) : ng_with_sign(l, code, negative);
}

#endif
