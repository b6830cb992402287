/* Rounding: the integer tier against MPFR for every 16-bit input, format and mode; published edges; stochastic rounding
 * enumerated; pairs; thresholds of sweeps. */
#include "reference/round.h"
#include "reference/sweep.h"
#include "suites/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t hash(uint64_t x) { /* splitmix64, Steele, Lea and Flood 2014 */
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static void set_with_sign(mpfr_ptr x, double value) {
    mpfr_set_d(x, value, MPFR_RNDN);
    mpfr_setsign(x, x, signbit(value) != 0, MPFR_RNDN); /* mpfr_set_d forgets a NaN's */
}

static double from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- every 16-bit input --------------------------------------------------------------------------------------------
 * Every cast that a mode, saturation and NaN rule make; the stochastic ones at some widths. */
enum { CASTS_MAX = 64 };

static int all_casts(ng_cast *casts) {
    static const uint8_t widths[] = {1, 3, 8, 16, 32};
    int n = 0;
    for (int mode = 0; mode < NG_R_STOCHASTIC; mode++)
        for (int s = 0; s < 2; s++)
            casts[n++] = (ng_cast){.rounding = (ng_rounding)mode, .saturate = s, .nan = (ng_nan_rule)((mode + s) % 3)};
    for (int kind = 0; kind < NG_STOCHASTICS; kind++)
        for (int w = 0; w < 5; w++)
            casts[n++] = (ng_cast){.rounding = NG_R_STOCHASTIC,
                                   .stochastic = (ng_stochastic)kind,
                                   .random_bits = widths[w],
                                   .saturate = w % 2,
                                   .nan = NG_NAN_KEEP_SIGN};
    return n;
}

static void sixteen_bit_inputs(ng_format_id from, ng_format_id to) {
    ng_cast casts[CASTS_MAX];
    int count = all_casts(casts);
    uint32_t different = 0, worst = 0;
#pragma omp parallel reduction(+ : different) reduction(max : worst)
    {
        mpfr_t x;
        mpfr_init2(x, 24);
#pragma omp for
        for (uint32_t code = 0; code < 0x10000; code++) {
            double value = ng_decode(from, code);
            set_with_sign(x, value);
            for (int c = 0; c < count; c++) {
                uint32_t word = (uint32_t)hash((uint64_t)code << 8 | (uint64_t)c);
                if (ng_round(to, value, &casts[c], word) != ng_round_mpfr(to, x, &casts[c], word)) {
                    different++;
                    worst = code << 8 | (uint32_t)c;
                }
            }
        }
        mpfr_clear(x);
    }
    cr_expect(different == 0, "%s to %s: %u differ, e.g. input %#x, cast %u", ng_formats[from].name,
              ng_formats[to].name, different, worst >> 8, worst & 0xFF);
}

static void bf16_inputs(void) {
    for (int to = NG_FP16; to < NG_FORMATS; to++)
        sixteen_bit_inputs(NG_BF16, (ng_format_id)to);
}

static void fp16_inputs(void) {
    for (int to = NG_E4M3; to < NG_FORMATS; to++)
        sixteen_bit_inputs(NG_FP16, (ng_format_id)to);
    sixteen_bit_inputs(NG_FP16, NG_BF16);
}

/* Wide inputs, hashed: exponents spread over all of binary64, fractions sparse so that ties occur. */
static void binary64_inputs(void) {
    ng_cast casts[CASTS_MAX];
    int count = all_casts(casts);
    uint32_t different = 0;
#pragma omp parallel reduction(+ : different)
    {
        mpfr_t x;
        mpfr_init2(x, 53);
#pragma omp for
        for (uint32_t i = 0; i < 60000; i++) {
            uint64_t h = hash(i), fraction = (h & 0xFFFFFFFFFFFFFu) & ~(uint64_t)0 << hash(h) % 53;
            uint64_t field = i % 4 == 0 ? h >> 53 : 1023 + (h >> 53) % 300 - 160;
            double value = from_bits(fraction | field << 52 | (h & 1ull << 63));
            ng_format_id to = (ng_format_id)(i % NG_FORMATS);
            set_with_sign(x, value);
            for (int c = 0; c < count; c++)
                different +=
                    ng_round(to, value, &casts[c], (uint32_t)h) != ng_round_mpfr(to, x, &casts[c], (uint32_t)h);
        }
        mpfr_clear(x);
    }
    cr_expect(different == 0, "%u differ", different);
}

/* A third derivation for values in range: the format's own exponent range and precision in MPFR, one rounding followed
 * by mpfr_subnormalize with its ternary value. */
static void subnormalize(void) {
    static const struct {
        ng_rounding mode;
        mpfr_rnd_t mpfr;
    } modes[] = {{NG_RN_EVEN, MPFR_RNDN}, {NG_R_ZERO, MPFR_RNDZ}, {NG_R_UP, MPFR_RNDU}, {NG_R_AWAY, MPFR_RNDA}};
    mpfr_exp_t emin = mpfr_get_emin(), emax = mpfr_get_emax();
    for (int to = NG_BF16; to <= NG_E2M1; to++) {
        const ng_format *f = &ng_formats[to];
        if (f->mantissa_bits < 2) continue; /* mpfr_subnormalize wants a precision of 3 or more where emin is so near */
        mpfr_t y;
        mpfr_init2(y, f->mantissa_bits + 1);
        for (uint32_t code = 0; code < 0x10000; code++)
            for (int m = 0; m < 4; m++) {
                double value = ng_decode(to == NG_BF16 ? NG_FP16 : NG_BF16, code);
                const ng_cast cast = {.rounding = modes[m].mode, .saturate = true};
                if (!(fabs(value) <= f->largest)) continue;
                mpfr_set_emin(f->emin - f->mantissa_bits + 1); /* MPFR's significands are in [1/2, 1) */
                mpfr_set_emax(f->emax + 2);
                int ternary = mpfr_set_d(y, value, modes[m].mpfr);
                mpfr_subnormalize(y, ternary, modes[m].mpfr);
                double expected = mpfr_get_d(y, MPFR_RNDN);
                mpfr_set_emin(emin);
                mpfr_set_emax(emax);
                if (fabs(expected) > f->largest) continue;
                double got = ng_decode((ng_format_id)to, ng_round((ng_format_id)to, value, &cast, 0));
                cr_assert(got == expected && !signbit(got) == !signbit(expected), "%s(%a), mode %d: %a, mpfr %a",
                          f->name, value, m, got, expected);
            }
        mpfr_clear(y);
    }
}

/* The machine's own conversion is an IEEE 754 rounding to nearest. */
static void machine_conversion(void) {
    const ng_cast cast = {.rounding = NG_RN_EVEN, .nan = NG_NAN_CANONICAL};
    for (uint64_t i = 0; i < 2000000; i++) {
        uint64_t h = hash(i + 77), field = 1023 + (h >> 40) % 300 - 155;
        double value = from_bits((h & 0x800FFFFFFFFFFFFFu & ~(uint64_t)0 << (h >> 56) % 40) | field << 52);
        float narrow = (float)value;
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        cr_assert(ng_round(NG_FP32, value, &cast, 0) == bits, "input %a", value);
    }
}

/* ---- edges that others publish ------------------------------------------------------------------------------------*/
/* Sources: cuda_fp8.hpp and cuda_fp4.hpp of CUDA 13.0; PTX ISA 8.7 cvt; IEEE 754-2019 4.3, 7.4 for directed modes. */
static const struct edge {
    ng_format_id to;
    ng_rounding mode;
    bool saturate;
    double x;
    uint32_t code;
} edges[] = {
    /* the tie beyond 448 goes to even, which is 448; the tie beyond 57344 goes to even, which overflows */
    {NG_E4M3, NG_RN_EVEN, false, 464, 0x7E},
    {NG_E4M3, NG_RN_EVEN, true, 464, 0x7E},
    {NG_E4M3, NG_RN_EVEN, false, 0x1.d00002p8, 0x7F},
    {NG_E4M3, NG_RN_EVEN, true, 0x1.d00002p8, 0x7E},
    {NG_E4M3, NG_RN_AWAY, false, 464, 0x7F},
    {NG_E4M3, NG_RN_AWAY, false, 0x1.cffffep8, 0x7E},
    {NG_E5M2, NG_RN_EVEN, false, 61440, 0x7C},
    {NG_E5M2, NG_RN_EVEN, true, 61440, 0x7B},
    {NG_E5M2, NG_RN_EVEN, false, 0x1.dffffep15, 0x7B},
    {NG_E5M2, NG_RN_EVEN, false, -61440, 0xFC},
    {NG_E5M2, NG_RN_EVEN, true, -61440, 0xFB},
    {NG_FP16, NG_RN_EVEN, false, 65520, 0x7C00},
    {NG_FP16, NG_RN_EVEN, false, 0x1.ffdffep15, 0x7BFF},
    {NG_BF16, NG_RN_EVEN, false, 0x1.ffp127, 0x7F80},
    {NG_BF16, NG_RN_EVEN, false, 0x1.fefffep127, 0x7F7F},
    /* infinities saturate too */
    {NG_E4M3, NG_RN_EVEN, true, INFINITY, 0x7E},
    {NG_E4M3, NG_RN_EVEN, false, INFINITY, 0x7F},
    {NG_E4M3, NG_RN_EVEN, true, -INFINITY, 0xFE},
    {NG_E5M2, NG_RN_EVEN, true, INFINITY, 0x7B},
    {NG_E5M2, NG_RN_EVEN, false, -INFINITY, 0xFC},
    {NG_E2M1, NG_RN_EVEN, false, INFINITY, 0x7},
    {NG_E2M1, NG_RN_EVEN, false, -INFINITY, 0xF},
    {NG_E3M2, NG_R_ZERO, false, -INFINITY, 0x3F},
    {NG_E2M3, NG_R_UP, false, 1e30, 0x1F},
    /* directed modes beyond the largest: truncation stops there, infinities stay infinite */
    {NG_E5M2, NG_R_ZERO, false, 1e9, 0x7B},
    {NG_E5M2, NG_R_ZERO, false, -1e9, 0xFB},
    {NG_E5M2, NG_R_UP, false, 57345, 0x7C},
    {NG_E5M2, NG_R_UP, false, -1e9, 0xFB},
    {NG_E5M2, NG_R_UP, true, 57345, 0x7B},
    {NG_E5M2, NG_R_AWAY, false, -57345, 0xFC},
    {NG_E5M2, NG_R_ZERO, false, INFINITY, 0x7C},
    {NG_E5M2, NG_R_UP, false, -INFINITY, 0xFC},
    {NG_E4M3, NG_R_ZERO, false, 480, 0x7E},
    {NG_E4M3, NG_R_ZERO, false, 1e9, 0x7E},
    {NG_E4M3, NG_R_UP, false, 449, 0x7F},
    {NG_E4M3, NG_R_UP, false, -449, 0xFE},
    {NG_E4M3, NG_R_AWAY, false, 449, 0x7F},
    {NG_E4M3, NG_R_ZERO, false, INFINITY, 0x7F},
    {NG_E4M3, NG_R_ZERO, true, INFINITY, 0x7E},
    {NG_FP16, NG_R_ZERO, false, 1e9, 0x7BFF},
    {NG_FP16, NG_R_AWAY, false, 65505, 0x7C00},
    /* underflow ties; -0 and what rounds to it keep their sign */
    {NG_E4M3, NG_RN_EVEN, false, 0x1p-10, 0x00},
    {NG_E4M3, NG_RN_EVEN, false, 0x1.000002p-10, 0x01},
    {NG_E4M3, NG_RN_EVEN, false, -0x1p-10, 0x80},
    {NG_E4M3, NG_RN_AWAY, false, 0x1p-10, 0x01},
    {NG_E4M3, NG_R_UP, false, 0x1p-149, 0x01},
    {NG_E4M3, NG_R_UP, false, -0x1p-149, 0x80},
    {NG_E4M3, NG_R_AWAY, false, -0x1p-149, 0x81},
    {NG_E4M3, NG_R_ZERO, false, 0x1.fffffep-10, 0x00},
    {NG_E4M3, NG_RN_EVEN, false, -0.0, 0x80},
    {NG_E5M2, NG_RN_EVEN, false, 0x1p-17, 0x00},
    {NG_E5M2, NG_RN_EVEN, false, 0x1.000002p-17, 0x01},
    {NG_FP16, NG_RN_EVEN, false, 0x1p-25, 0x0000},
    {NG_FP16, NG_RN_EVEN, false, 0x1.8p-24, 0x0002},
    {NG_E2M1, NG_RN_EVEN, false, 0.25, 0x0},
    {NG_E2M1, NG_RN_EVEN, false, -0.25, 0x8},
    {NG_E2M1, NG_RN_EVEN, false, -0.0, 0x8},
    {NG_E2M1, NG_RN_EVEN, false, 0.75, 0x2},
    {NG_E2M1, NG_RN_EVEN, false, 2.5, 0x4},
    {NG_E2M1, NG_RN_EVEN, false, 3.5, 0x6},
    {NG_E2M1, NG_RN_EVEN, false, 5.0, 0x6},
    {NG_E2M1, NG_RN_EVEN, false, 0x1.400002p2, 0x7},
    {NG_E2M1, NG_RN_EVEN, false, 7, 0x7},
    {NG_E3M2, NG_RN_EVEN, false, 0x1p-5, 0x00},
    {NG_E3M2, NG_RN_EVEN, false, 30, 0x1F},
    {NG_E2M3, NG_RN_EVEN, false, 0.0625, 0x00},
    {NG_E2M3, NG_RN_EVEN, false, 0.1875, 0x02},
    /* the carry out of the subnormals */
    {NG_E4M3, NG_RN_EVEN, false, 0x1.ep-7, 0x08},
    {NG_E5M2, NG_RN_EVEN, false, 0x1.cp-15, 0x04},
    {NG_FP16, NG_RN_EVEN, false, 0x1.ffep-15, 0x0400},
    /* ue4m3: what is negative becomes 0 */
    {NG_UE4M3, NG_RN_EVEN, true, -3, 0x00},
    {NG_UE4M3, NG_R_AWAY, false, -INFINITY, 0x00},
    {NG_UE4M3, NG_RN_EVEN, true, -0.0, 0x00},
    {NG_UE4M3, NG_RN_EVEN, true, 464, 0x7E},
    {NG_UE4M3, NG_RN_EVEN, true, 1e9, 0x7E},
    {NG_UE4M3, NG_RN_EVEN, false, 465, 0x7F},
    {NG_UE4M3, NG_RN_EVEN, true, 0x1p-10, 0x00},
    {NG_UE4M3, NG_RN_EVEN, true, 0x1.8p-9, 0x02},
    /* e8m0 as __nv_cvt_float_to_e8m0: the magnitude counts, 0 and all below become 2^-127 */
    {NG_E8M0, NG_R_ZERO, true, 0, 0x00},
    {NG_E8M0, NG_R_UP, true, -0.0, 0x00},
    {NG_E8M0, NG_R_UP, true, 0x1p-149, 0x00},
    {NG_E8M0, NG_R_UP, true, 0x1p-127, 0x00},
    {NG_E8M0, NG_R_ZERO, true, 0x1.000004p-127, 0x00},
    {NG_E8M0, NG_R_UP, true, 0x1.000004p-127, 0x01},
    {NG_E8M0, NG_R_ZERO, true, 1, 0x7F},
    {NG_E8M0, NG_R_ZERO, true, 0x1.000002p0, 0x7F},
    {NG_E8M0, NG_R_UP, true, 0x1.000002p0, 0x80},
    {NG_E8M0, NG_R_UP, true, -0x1.000002p0, 0x80},
    {NG_E8M0, NG_R_ZERO, true, 0x1.fffffep127, 0xFE},
    {NG_E8M0, NG_R_ZERO, false, 0x1.fffffep127, 0xFE},
    {NG_E8M0, NG_R_UP, true, 0x1.000002p127, 0xFE},
    {NG_E8M0, NG_R_UP, false, 0x1.000002p127, 0xFF},
    {NG_E8M0, NG_R_UP, false, 0x1p127, 0xFE},
    {NG_E8M0, NG_R_UP, true, INFINITY, 0xFE},
    {NG_E8M0, NG_R_UP, false, INFINITY, 0xFF},
    {NG_E8M0, NG_R_ZERO, false, -INFINITY, 0xFF},
    {NG_E8M0, NG_R_ZERO, true, -8, 0x82},
    /* e8m0 to nearest: one digit has no even neighbour, so ties go up (IEEE 754-2019 4.3.1) */
    {NG_E8M0, NG_RN_EVEN, true, 1.5, 0x80},
    {NG_E8M0, NG_RN_EVEN, true, 3, 0x81},
    {NG_E8M0, NG_RN_EVEN, true, 0x1.7ffffep0, 0x7F},
    {NG_E8M0, NG_RN_EVEN, true, 0x1.8p-127, 0x01},
    {NG_E8M0, NG_RN_EVEN, false, 0x1.8p127, 0xFF},
};

static void published_edges(void) {
    mpfr_t x;
    mpfr_init2(x, 53);
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        const struct edge *e = &edges[i];
        const ng_cast cast = {.rounding = e->mode, .saturate = e->saturate};
        set_with_sign(x, e->x);
        uint64_t got = ng_round(e->to, e->x, &cast, 0), mpfr = ng_round_mpfr(e->to, x, &cast, 0);
        cr_expect(got == e->code && mpfr == e->code, "row %zu: %s(%a), mode %d%s: %#lx and %#lx, expected %#x", i,
                  ng_formats[e->to].name, e->x, e->mode, e->saturate ? ", saturating" : "", (unsigned long)got,
                  (unsigned long)mpfr, e->code);
    }
    mpfr_clear(x);
}

/* NaN by rule and sign; `overflow` is what an unsaturated -infinity becomes. */
static const struct nan_row {
    ng_format_id to;
    ng_nan_rule rule;
    uint64_t positive, negative, overflow;
} nan_rows[] = {
    {NG_E4M3, NG_NAN_CANONICAL, 0x7F, 0x7F, 0x7F},
    {NG_E4M3, NG_NAN_KEEP_SIGN, 0x7F, 0xFF, 0xFF},
    {NG_E5M2, NG_NAN_CANONICAL, 0x7F, 0x7F, 0xFC},
    {NG_E5M2, NG_NAN_KEEP_SIGN, 0x7F, 0xFF, 0xFC},
    {NG_E2M1, NG_NAN_MAX, 0x7, 0x7, 0xF},
    {NG_E2M1, NG_NAN_CANONICAL, 0x7, 0x7, 0xF},
    {NG_E3M2, NG_NAN_MAX, 0x1F, 0x1F, 0x3F},
    {NG_E2M3, NG_NAN_CANONICAL, 0x1F, 0x1F, 0x3F},
    {NG_E8M0, NG_NAN_CANONICAL, 0xFF, 0xFF, 0xFF},
    {NG_E8M0, NG_NAN_KEEP_SIGN, 0xFF, 0xFF, 0xFF},
    {NG_UE4M3, NG_NAN_CANONICAL, 0x7F, 0x7F, 0x00},
    {NG_UE4M3, NG_NAN_KEEP_SIGN, 0x7F, 0x7F, 0x00},
    {NG_BF16, NG_NAN_CANONICAL, 0x7FFF, 0x7FFF, 0xFF80},
    {NG_BF16, NG_NAN_KEEP_SIGN, 0x7FFF, 0xFFFF, 0xFF80},
    {NG_FP16, NG_NAN_CANONICAL, 0x7FFF, 0x7FFF, 0xFC00},
    {NG_FP32, NG_NAN_CANONICAL, 0x7FFFFFFF, 0x7FFFFFFF, 0xFF800000},
    {NG_TF32, NG_NAN_KEEP_SIGN, 0x7FFFE000, 0xFFFFE000, 0xFF800000},
    {NG_E4M3, NG_NAN_MAX, 0x7E, 0x7E, 0x7F},
    {NG_FP64, NG_NAN_CANONICAL, 0x7FFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFF0000000000000},
};

static void nan_rules(void) {
    mpfr_t x;
    mpfr_init2(x, 53);
    for (size_t i = 0; i < sizeof nan_rows / sizeof *nan_rows; i++) {
        const struct nan_row *r = &nan_rows[i];
        const ng_cast cast = {.rounding = NG_RN_EVEN, .nan = r->rule};
        const double inputs[3] = {from_bits(0x7FF8000000000001), from_bits(0xFFF0000000000001), -INFINITY};
        const uint64_t expected[3] = {r->positive, r->negative, r->overflow};
        for (int k = 0; k < 3; k++) {
            set_with_sign(x, inputs[k]);
            cr_expect(ng_round(r->to, inputs[k], &cast, 0) == expected[k], "row %zu, input %d", i, k);
            cr_expect(ng_round_mpfr(r->to, x, &cast, 0) == expected[k], "row %zu, input %d, mpfr", i, k);
        }
    }
    mpfr_clear(x);
}

/* ---- stochastic rounding ------------------------------------------------------------------------------------------*/
/* T of 2^r n / 2^depth as each kind rounds it, in integers of its own. */
static uint64_t expected_count(ng_stochastic kind, uint64_t n, int depth, int r) {
    if (depth <= r) return n << (r - depth);
    uint64_t unit = 1ull << (depth - r), whole = n / unit, rest = n % unit;
    if (kind == NG_SR_HALF) return whole + (2 * rest >= unit);
    if (kind == NG_SR_UNBIASED) return whole + (2 * rest > unit || (2 * rest == unit && whole % 2));
    return whole;
}

/* Between the code `below` and the next, n / 2^depth of the way: all 2^r random integers, both tiers. */
static void enumerate(ng_format_id to, uint64_t below, uint64_t n, int depth, ng_cast cast) {
    double low = ng_decode(to, below), high = ng_decode(to, below + 1);
    double x = low + (high - low) * ldexp((double)n, -depth); /* exact: few bits */
    uint64_t ups = 0, expected = expected_count(cast.stochastic, n, depth, cast.random_bits);
    mpfr_t m;
    mpfr_init2(m, 53);
    for (int negative = 0; negative < 2; negative++) {
        double signed_x = negative ? -x : x;
        uint64_t sign = negative ? ng_round(to, -0.0, &cast, 0) : 0;
        mpfr_set_d(m, signed_x, MPFR_RNDN);
        ups = 0;
        for (uint64_t word = 0; word < 1ull << cast.random_bits; word++) {
            uint64_t code = ng_round(to, signed_x, &cast, (uint32_t)(word | 0xFFFFFC00u << (cast.random_bits - 1)));
            cr_assert(code == (below | sign) || code == ((below + 1) | sign), "%s: %a became %#lx", ng_formats[to].name,
                      signed_x, (unsigned long)code);
            cr_assert(word % 7 ||
                      ng_round_mpfr(to, m, &cast, (uint32_t)word) == ng_round(to, signed_x, &cast, (uint32_t)word));
            ups += code != (below | sign);
        }
        uint64_t counted = ng_round_up_count(to, signed_x, &cast);
        cr_assert(ups == expected && counted == expected, "%s, kind %d, r %d, %a: %lu up, counted %lu, expected %lu",
                  ng_formats[to].name, cast.stochastic, cast.random_bits, signed_x, (unsigned long)ups,
                  (unsigned long)counted, (unsigned long)expected);
    }
    mpfr_clear(m);
}

static void stochastic_words(void) {
    static const struct {
        ng_format_id to;
        uint64_t below;
    } places[] = {{NG_E2M1, 0x0},  {NG_E2M1, 0x3},    {NG_E2M1, 0x6},    {NG_E4M3, 0x00},   {NG_E4M3, 0x07},
                  {NG_E4M3, 0x3B}, {NG_E4M3, 0x7D},   {NG_E5M2, 0x02},   {NG_E5M2, 0x7A},   {NG_E3M2, 0x13},
                  {NG_E2M3, 0x08}, {NG_FP16, 0x0001}, {NG_FP16, 0x3C00}, {NG_BF16, 0x3F80}, {NG_BF16, 0x0003}};
    for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        for (int kind = 0; kind < NG_STOCHASTICS; kind++)
            for (uint8_t r = 1; r <= 10; r++) {
                const ng_cast cast = {.rounding = NG_R_STOCHASTIC, .stochastic = (ng_stochastic)kind, .random_bits = r};
                const uint64_t full = 1ull << (r + 2);
                const uint64_t ns[] = {0,        1,        2,       3, 6, full / 4 + 2, full / 2, full / 2 + 1,
                                       full - 3, full - 2, full - 1};
                for (size_t k = 0; k < sizeof ns / sizeof *ns; k++)
                    enumerate(places[p].to, places[p].below, ns[k] % full, r + 2, cast);
                enumerate(places[p].to, places[p].below, 3, 3, cast);
            }
}

/* Values that do not move, overflow, and e8m0's lower end. */
static void stochastic_edges(void) {
    const ng_cast saturating = {.rounding = NG_R_STOCHASTIC, .random_bits = 8, .saturate = true};
    ng_cast open = saturating;
    open.saturate = false;
    for (uint32_t code = 0; code < 0x7F; code++)
        for (uint32_t word = 0; word < 256; word++)
            cr_assert(ng_round(NG_E4M3, ng_decode(NG_E4M3, code), &open, word) == code);
    cr_assert(ng_round(NG_E4M3, 472, &open, 0xFF) == 0x7F && ng_round(NG_E4M3, 472, &open, 0) == 0x7E);
    cr_assert(ng_round(NG_E4M3, 472, &saturating, 0xFF) == 0x7E);
    cr_assert(ng_round_up_count(NG_E4M3, 472, &open) == 192 && ng_round_up_count(NG_E4M3, 472, &saturating) == 0);
    cr_assert(ng_round_up_count(NG_E4M3, 0, &open) == 0 && ng_round_up_count(NG_E4M3, INFINITY, &open) == 0);
    cr_assert(ng_round_up_count(NG_E8M0, 0x1p-130, &open) == 256 && ng_round_up_count(NG_UE4M3, -1.1, &open) == 0);
    cr_assert(ng_round_up_count(NG_E2M1, 0x1p-1000, &open) == 0);
    const ng_cast unbiased = {.rounding = NG_R_STOCHASTIC, .stochastic = NG_SR_UNBIASED, .random_bits = 12};
    cr_assert(ng_round_up_count(NG_E4M3, 0x1p-22, &unbiased) == 0, "2^12 d is 1/2: to even");
    cr_assert(ng_round_up_count(NG_E4M3, 0x1.0000000000001p-22, &unbiased) == 1,
              "just above 1/2, 75 bits below the quantum");
}

/* Mean bias over the 2^D inputs of D bits between two codes, in ulp: floor -(2^-r - 2^-D)/2, half +2^-(D+1), unbiased
 * 0, all 0 where D <= r (arXiv:2504.20634). Sums are in units of 2^-(r + D), exact. */
static void stochastic_bias(void) {
    static const struct {
        uint8_t r;
        int depth;
    } cases[] = {{3, 3}, {3, 4}, {3, 7}, {4, 10}, {8, 12}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int kind = 0; kind < NG_STOCHASTICS; kind++) {
            int r = cases[c].r, depth = cases[c].depth;
            const ng_cast cast = {
                .rounding = NG_R_STOCHASTIC, .stochastic = (ng_stochastic)kind, .random_bits = cases[c].r};
            int64_t sum = 0; /* of P(up) - d, times 2^(r + depth) */
            for (int64_t n = 0; n < 1ll << depth; n++)
                sum +=
                    ((int64_t)ng_round_up_count(NG_E4M3, 1 + ldexp((double)n, -3 - depth), &cast) << depth) - (n << r);
            double mean = ldexp((double)sum, -r - 2 * depth);
            double expected = depth <= r || kind == NG_SR_UNBIASED ? 0
                              : kind == NG_SR_HALF                 ? ldexp(1, -depth - 1)
                                                                   : -(ldexp(1, -r) - ldexp(1, -depth)) / 2;
            cr_expect(mean == expected, "kind %d, r %d, D %d: mean %a, published %a", kind, r, depth, mean, expected);
        }
}

/* ---- pairs --------------------------------------------------------------------------------------------------------*/
static void check_pair(ng_format_id to, double high, double low, mpfr_ptr x) {
    for (int mode = 0; mode < NG_R_STOCHASTIC; mode++) {
        const ng_cast cast = {.rounding = (ng_rounding)mode};
        mpfr_set_d(x, high, MPFR_RNDN);
        mpfr_add_d(x, x, low, MPFR_RNDN);
        uint64_t got = ng_round_pair(to, high, low, &cast), expected = ng_round_mpfr(to, x, &cast, 0);
        cr_assert(got == expected, "%s(%a + %a), mode %d: %#lx, mpfr %#lx", ng_formats[to].name, high, low, mode,
                  (unsigned long)got, (unsigned long)expected);
    }
}

static void pairs(void) {
    mpfr_t x;
    mpfr_init2(x, 2200);
    for (int to = 0; to < NG_FORMATS; to++)
        for (uint64_t i = 0; i < 3000; i++) {
            uint64_t h = hash(i * 31 + (uint64_t)to);
            const ng_format *f = &ng_formats[to];
            int keep = i % 3 ? f->mantissa_bits + (int)(h % 3) : 52; /* values, ties and quarter points of the target */
            uint64_t fraction = (h >> 7 & 0xFFFFFFFFFFFFFu) & ~(keep >= 52 ? 0 : 0xFFFFFFFFFFFFFull >> keep);
            int64_t spread = f->exponent_bits > 8 ? 1000 : f->emax + f->mantissa_bits + 8;
            double high = from_bits(fraction | (uint64_t)(1023 + (int64_t)(h >> 20) % spread) << 52 | (h & 1) << 63);
            if (i % 2)
                high = from_bits(fraction | (uint64_t)(1023 - (int64_t)(h >> 20) % spread) << 52 | (h & 1) << 63);
            double ulp = ldexp(1, ilogb(high) - 52);
            const double lows[] = {0,         ulp / 2,    -ulp / 2,         ulp / 4,
                                   0x1p-1074, -0x1p-1074, ulp * 0x1.23p-30, -ulp * 0x1.23p-30};
            for (size_t k = 0; k < sizeof lows / sizeof *lows; k++)
                if (i % 5 == 0 || k < 6) check_pair((ng_format_id)to, high, lows[k], x);
        }
    check_pair(NG_FP64, 0x1p-1074, 0, x);
    check_pair(NG_FP64, 0x1p-1022, 0, x);
    check_pair(NG_FP64, 0x1p0, -0x1p-54, x);
    check_pair(NG_FP64, 0x1.0000000000001p0, 0x1p-53, x);
    check_pair(NG_E4M3, 464, 0x1p-1074, x);
    check_pair(NG_E4M3, 464, -0x1p-1074, x);
    check_pair(NG_FP32, 0x1.fffffep127, 0x1p74, x);
    mpfr_clear(x);
    const ng_cast cast = {.rounding = NG_RN_EVEN};
    cr_assert(ng_round_pair(NG_BF16, INFINITY, 0, &cast) == 0x7F80 && ng_round_pair(NG_BF16, -0.0, 0, &cast) == 0x8000);
}

/* ---- the number line ----------------------------------------------------------------------------------------------*/
static void neighbours(void) {
    static const ng_format_id formats[] = {NG_E4M3, NG_E5M2, NG_E2M1, NG_E3M2, NG_E2M3, NG_E8M0, NG_UE4M3};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (uint32_t i = 0; i < 0x10000; i += 3) {
            double x = ng_decode(NG_BF16, i), below = -INFINITY, above = INFINITY;
            if (isnan(x)) continue;
            for (uint32_t code = 0; code < ng_format_codes(formats[f]); code++) { /* by search */
                double v = ng_decode(formats[f], code);
                if (isnan(v) || isinf(v)) continue;
                if (v <= x && v > below) below = v;
                if (v >= x && v < above) above = v;
            }
            if (isinf(below)) below = above; /* saturated */
            if (isinf(above)) above = below;
            uint64_t a, b;
            ng_neighbours(formats[f], x, &a, &b);
            cr_assert(ng_decode(formats[f], a) == below && ng_decode(formats[f], b) == above, "%s(%a): %#lx %#lx",
                      ng_formats[formats[f]].name, x, (unsigned long)a, (unsigned long)b);
        }
}

static void ulp_distances(void) {
    cr_assert(ng_ulp_distance(NG_E4M3, 0x80, 0x00) == 0 && ng_ulp_distance(NG_E4M3, 0x81, 0x01) == 2);
    cr_assert(ng_ulp_distance(NG_E4M3, 0x7E, 0xFE) == 252 && ng_ulp_distance(NG_E4M3, 0x38, 0x3A) == 2);
    cr_assert(ng_ulp_distance(NG_FP32, 0x3F800000, 0x3F7FFFFF) == 1 &&
              ng_ulp_distance(NG_FP32, 0xBF800000, 0xBF800001) == 1);
    cr_assert(ng_ulp_distance(NG_TF32, 0x3F800000, 0x3F802000) == 1, "tf32's padding is not counted");
    cr_assert(ng_ulp_distance(NG_E8M0, 0x80, 0x7F) == 1 && ng_ulp_distance(NG_E2M1, 0x9, 0x1) == 2);
    cr_assert(ng_ulp_distance(NG_FP64, 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF) == 0xFFDFFFFFFFFFFFFE);
}

/* ---- sweeps -------------------------------------------------------------------------------------------------------*/
static void check_sweep(ng_format_id to, const ng_cast *cast) {
    ng_sweep sweep;
    cr_assert(ng_sweep_new(to, cast, &sweep) == NG_OK, "%s", ng_formats[to].name);
    cr_assert(sweep.count > 4 && sweep.runs[0].first == 0);
    for (size_t r = 0; r < sweep.count; r++) { /* both sides of every threshold, and the middle of every run */
        uint32_t first = sweep.runs[r].first, last = (r + 1 < sweep.count ? sweep.runs[r + 1].first : 0) - 1;
        const uint32_t places[] = {first, last, first + (last - first) / 2};
        for (int k = 0; k < 3; k++) {
            double x = ng_decode(NG_FP32, places[k]);
            cr_assert(ng_sweep_code(&sweep, places[k]) == sweep.runs[r].code);
            cr_assert(ng_round(to, x, cast, 0) == sweep.runs[r].code, "%s(%a)", ng_formats[to].name, x);
        }
    }
    for (uint64_t bits = 0; bits < 1ull << 32; bits += 104729)
        cr_assert(ng_round(to, ng_decode(NG_FP32, bits), cast, 0) == ng_sweep_code(&sweep, (uint32_t)bits),
                  "%s input %#lx", ng_formats[to].name, (unsigned long)bits);
    ng_sweep_free(&sweep);
}

static void sweep_runs(void) {
    for (int to = NG_BF16; to < NG_FORMATS; to++)
        for (int mode = 0; mode < NG_R_STOCHASTIC; mode++)
            for (int s = 0; s < 2; s++)
                check_sweep((ng_format_id)to,
                            &(ng_cast){.rounding = (ng_rounding)mode, .saturate = s, .nan = NG_NAN_KEEP_SIGN});
    ng_sweep sweep;
    cr_assert(ng_sweep_new(NG_FP32, &(ng_cast){.rounding = NG_RN_EVEN}, &sweep) == NG_UNSUPPORTED);
    cr_assert(ng_sweep_new(NG_E4M3, &(ng_cast){.rounding = NG_R_STOCHASTIC, .random_bits = 4}, &sweep) ==
              NG_BAD_ARGUMENT);
}

/* The published number of distinct results: e4m3 255 finite or NaN codes, and so on; a run per code and sign, and the
 * NaNs. */
static void sweep_counts(void) {
    static const struct {
        ng_format_id to;
        size_t runs;
    } rows[] = {{NG_E4M3, 256}, {NG_E5M2, 250}, {NG_E3M2, 66},   {NG_E2M3, 66},
                {NG_E2M1, 18},  {NG_E8M0, 512}, {NG_BF16, 65282}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ng_sweep sweep;
        cr_assert(ng_sweep_new(rows[i].to, &(ng_cast){.rounding = NG_RN_EVEN, .saturate = true}, &sweep) == NG_OK);
        cr_expect(sweep.count == rows[i].runs, "%s: %zu runs", ng_formats[rows[i].to].name, sweep.count);
        ng_sweep_free(&sweep);
    }
}

/* The checker finds each planted wrong code, at edges of runs and of the range, and nothing else. */
static void sweep_finds_faults(void) {
    static const ng_format_id formats[] = {NG_E4M3, NG_E2M1, NG_E3M2, NG_BF16, NG_TF32};
    static const uint32_t starts[] = {0x43E00000 - 3000, 0x3F800001, 0x7F800000 - 5000,
                                      0xFFFFFFFF - 6000, 0,          0x3F400000 - 3001};
    enum { COUNT = 6001 };
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
            ng_sweep sweep;
            const ng_cast cast = {.rounding = NG_RN_EVEN, .saturate = true};
            unsigned char *data = malloc((size_t)ng_row_bytes(formats[f], COUNT));
            cr_assert(data && ng_sweep_new(formats[f], &cast, &sweep) == NG_OK);
            ng_tensor t = {.data = data, .format = formats[f], .rows = 1, .columns = COUNT};
            for (uint32_t i = 0; i < COUNT; i++)
                ng_set_code(&t, 0, i, ng_round(formats[f], ng_decode(NG_FP32, starts[s] + i), &cast, 0));
            uint32_t first = 0;
            cr_assert(ng_sweep_check(&sweep, starts[s], COUNT, data, &first) == 0, "%s", ng_formats[formats[f]].name);
            static const uint32_t places[] = {0, 1, 2999, 3000, 3001, 4444, COUNT - 1};
            for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
                uint64_t right = ng_get_code(&t, 0, places[p]), wrong = right ^ (formats[f] == NG_TF32 ? 0x2000 : 1);
                ng_set_code(&t, 0, places[p], wrong);
                cr_assert(ng_sweep_check(&sweep, starts[s], COUNT, data, &first) == 1 && first == starts[s] + places[p],
                          "%s: fault at %u not found", ng_formats[formats[f]].name, places[p]);
                ng_set_code(&t, 0, places[p], right);
            }
            for (uint32_t i = 100; i < 5000; i += 2450) /* the first of several */
                ng_set_code(&t, 0, i, ng_get_code(&t, 0, i) ^ (formats[f] == NG_TF32 ? 0x2000 : 1));
            cr_assert(ng_sweep_check(&sweep, starts[s], COUNT, data, &first) == 2 && first == starts[s] + 100);
            ng_sweep_free(&sweep);
            free(data);
        }
}

const ng_test ng_tests[] = {
    {"round", "all bf16 inputs into every narrower format and mode: integers agree with MPFR", bf16_inputs, 0},
    {"round", "all fp16 inputs into every narrower format and mode: integers agree with MPFR", fp16_inputs, 0},
    {"round", "binary64 inputs into every format and mode: integers agree with MPFR", binary64_inputs, 0},
    {"round", "mpfr_subnormalize agrees wherever the value is in range", subnormalize, 0},
    {"round", "fp32 is what the machine's own conversion gives", machine_conversion, 0},
    {"round", "published edges: overflow and underflow ties, directed modes, e8m0", published_edges, 0},
    {"round", "NaN by every rule", nan_rules, 0},
    {"round", "stochastic: all 2^r random integers, r 1 to 10, up as often as counted", stochastic_words, 0},
    {"round", "stochastic: exact values stay, overflow and underflow", stochastic_edges, 0},
    {"round", "stochastic: the published mean biases, exactly", stochastic_bias, 0},
    {"round", "high + low is rounded once", pairs, 0},
    {"round", "neighbours are those that a search finds", neighbours, 0},
    {"round", "ulp distances", ulp_distances, 0},
    {"sweep", "thresholds of every format and mode hold on both sides", sweep_runs, 0},
    {"sweep", "runs are as many as the format has codes", sweep_counts, 0},
    {"sweep", "every planted wrong code is found", sweep_finds_faults, 0},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
