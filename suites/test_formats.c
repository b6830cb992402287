/* The formats: every code of every format decoded, against fields read here and values that others publish. */
#include "reference/format.h"
#include "suites/test.h"

#include <math.h>
#include <mpfr.h>
#include <stdlib.h>
#include <string.h>

/* ---- an independent reading of a code: fields, and one mpfr_set_si_2exp
 * --------------------------------------------*/
typedef enum top { NUMBERS, ONE_NAN, INFINITY_AND_NANS } top;

typedef struct shape {
    ng_format_id format;
    int sign_bit; /* position; -1: none */
    int exponent_bits, fraction_bits, bias;
    top top;                /* what the top binade holds besides numbers */
    bool zero_field_is_one; /* e8m0: exponent field 0 is an ordinary exponent */
} shape;

static const shape shapes[] = {
    {NG_BF16, 15, 8, 7, 127, INFINITY_AND_NANS, false},
    {NG_FP16, 15, 5, 10, 15, INFINITY_AND_NANS, false},
    {NG_E4M3, 7, 4, 3, 7, ONE_NAN, false},
    {NG_E5M2, 7, 5, 2, 15, INFINITY_AND_NANS, false},
    {NG_E3M2, 5, 3, 2, 3, NUMBERS, false},
    {NG_E2M3, 5, 2, 3, 1, NUMBERS, false},
    {NG_E2M1, 3, 2, 1, 1, NUMBERS, false},
    {NG_E8M0, -1, 8, 0, 127, ONE_NAN, true},
    {NG_UE4M3, -1, 4, 3, 7, ONE_NAN, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static double value_by_fields(const shape *s, uint32_t code, mpfr_ptr scratch) {
    long fraction = code & ((1l << s->fraction_bits) - 1),
         field = code >> s->fraction_bits & ((1l << s->exponent_bits) - 1);
    long ones = (1l << s->exponent_bits) - 1, whole = 1l << s->fraction_bits;
    bool negative = s->sign_bit >= 0 && code >> s->sign_bit & 1;
    if (s->top == ONE_NAN && field == ones && fraction == whole - 1) return (double)NAN;
    if (s->top == INFINITY_AND_NANS && field == ones)
        return fraction ? (double)NAN : negative ? -(double)INFINITY : (double)INFINITY;
    if (field || s->zero_field_is_one)
        mpfr_set_si_2exp(scratch, whole + fraction, field - s->bias - s->fraction_bits, MPFR_RNDN);
    else
        mpfr_set_si_2exp(scratch, fraction, 1 - s->bias - s->fraction_bits, MPFR_RNDN);
    double value = mpfr_get_d(scratch, MPFR_RNDN);
    return negative ? -value : value;
}

static bool same(double a, double b) {
    return (isnan(a) && isnan(b)) || (a == b && !signbit(a) == !signbit(b));
}

static void decode_every_code(void) {
    mpfr_t scratch;
    mpfr_init2(scratch, 64);
    for (const shape *s = shapes; s < shapes + SHAPES; s++)
        for (uint32_t code = 0; code < ng_format_codes(s->format); code++) {
            double expected = value_by_fields(s, code, scratch), got = ng_decode(s->format, code);
            cr_expect(same(got, expected), "%s code %#x: %a, expected %a", ng_formats[s->format].name, code, got,
                      expected);
        }
    mpfr_clear(scratch);
}

static void wide_formats(void) {
    cr_assert(ng_decode(NG_FP32, 0x3F800001) == 0x1.000002p0 && ng_decode(NG_FP32, 0x00000001) == 0x1p-149);
    cr_assert(ng_decode(NG_FP32, 0x807FFFFF) == -0x1.fffffcp-127 && ng_decode(NG_FP32, 0x7F7FFFFF) == 0x1.fffffep127);
    cr_assert(isinf(ng_decode(NG_FP32, 0xFF800000)) && isnan(ng_decode(NG_FP32, 0x7F800001)));
    cr_assert(ng_decode(NG_FP64, 1) == 0x1p-1074 && ng_decode(NG_FP64, 0x7FEFFFFFFFFFFFFF) == 0x1.fffffffffffffp1023);
    cr_assert(ng_decode(NG_TF32, 0x3F801FFF) == 1, "tf32's low 13 bits count as zero");
    cr_assert(ng_decode(NG_TF32, 0x3F802000) == 0x1.004p0 && ng_decode(NG_TF32, 0x00002000) == 0x1p-136);
    cr_assert(signbit(ng_decode(NG_BF16, 0xFFFF)) && !signbit(ng_decode(NG_BF16, 0x7FFF)),
              "a NaN's sign survives decoding");
}

/* Codes and values printed in OCP OFP8 1.0 table 2, OCP MX 1.0 tables 1 to 7, IEEE 754-2019 and ml_dtypes' README. */
static const struct landmark {
    ng_format_id format;
    uint32_t code;
    double value;
} landmarks[] = {
    {NG_E4M3, 0x7E, 448},
    {NG_E4M3, 0x08, 0x1p-6},
    {NG_E4M3, 0x07, 0x1.cp-7},
    {NG_E4M3, 0x01, 0x1p-9},
    {NG_E4M3, 0x38, 1},
    {NG_E4M3, 0xFE, -448},
    {NG_E4M3, 0x80, -0.0},
    {NG_E5M2, 0x7B, 57344},
    {NG_E5M2, 0x04, 0x1p-14},
    {NG_E5M2, 0x03, 0x1.8p-15},
    {NG_E5M2, 0x01, 0x1p-16},
    {NG_E5M2, 0x3C, 1},
    {NG_E3M2, 0x1F, 28},
    {NG_E3M2, 0x04, 0.25},
    {NG_E3M2, 0x03, 0.1875},
    {NG_E3M2, 0x01, 0.0625},
    {NG_E2M3, 0x1F, 7.5},
    {NG_E2M3, 0x08, 1},
    {NG_E2M3, 0x07, 0.875},
    {NG_E2M3, 0x01, 0.125},
    {NG_E2M1, 0x0, 0},
    {NG_E2M1, 0x1, 0.5},
    {NG_E2M1, 0x2, 1},
    {NG_E2M1, 0x3, 1.5},
    {NG_E2M1, 0x4, 2},
    {NG_E2M1, 0x5, 3},
    {NG_E2M1, 0x6, 4},
    {NG_E2M1, 0x7, 6},
    {NG_E2M1, 0xF, -6},
    {NG_E2M1, 0x8, -0.0},
    {NG_E8M0, 0x00, 0x1p-127},
    {NG_E8M0, 0x7F, 1},
    {NG_E8M0, 0xFE, 0x1p127},
    {NG_UE4M3, 0x7E, 448},
    {NG_UE4M3, 0x01, 0x1p-9},
    {NG_BF16, 0x7F7F, 0x1.fep127},
    {NG_BF16, 0x0080, 0x1p-126},
    {NG_BF16, 0x0001, 0x1p-133},
    {NG_FP16, 0x7BFF, 65504},
    {NG_FP16, 0x0400, 0x1p-14},
    {NG_FP16, 0x0001, 0x1p-24},
    {NG_E5M2, 0x7C, (double)INFINITY},
    {NG_E5M2, 0xFC, -(double)INFINITY},
    {NG_E4M3, 0x7F, (double)NAN},
    {NG_E4M3, 0xFF, (double)NAN},
    {NG_E5M2, 0x7D, (double)NAN},
    {NG_E5M2, 0x7F, (double)NAN},
    {NG_E8M0, 0xFF, (double)NAN},
    {NG_UE4M3, 0x7F, (double)NAN},
    {NG_FP16, 0x7C01, (double)NAN},
};

static void published_landmarks(void) {
    for (size_t i = 0; i < sizeof landmarks / sizeof *landmarks; i++) {
        const struct landmark *l = &landmarks[i];
        double got = ng_decode(l->format, l->code);
        cr_expect(same(got, l->value), "%s code %#x: %a, published %a", ng_formats[l->format].name, l->code, got,
                  l->value);
    }
}

/* The derived members of the table against the decoded codes. */
static void table_is_consistent(void) {
    for (const shape *s = shapes; s < shapes + SHAPES; s++) {
        const ng_format *f = &ng_formats[s->format];
        double largest = 0, least_normal = (double)INFINITY;
        uint32_t numbers = 0;
        for (uint32_t code = 0; code < ng_format_codes(s->format); code++) {
            double v = ng_decode(s->format, code);
            numbers += !isnan(v) && !isinf(v);
            if (isfinite(v) && v > largest) largest = v;
            if (v > 0 && (s->zero_field_is_one || code >> s->fraction_bits & ((1u << s->exponent_bits) - 1)) &&
                v < least_normal)
                least_normal = v;
        }
        cr_expect(largest == f->largest && ilogb(largest) == f->emax && least_normal == ldexp(1, f->emin), "%s",
                  f->name);
        cr_expect(f->specials != NG_FINITE_ONLY || numbers == ng_format_codes(s->format),
                  "%s has codes without a number", f->name);
    }
    for (int f = 0; f < NG_FORMATS; f++)
        cr_expect(ng_format_by_name(ng_formats[f].name) == (ng_format_id)f);
    cr_expect(ng_format_by_name("e4m3fnuz") == NG_NO_FORMAT && ng_format_by_name("") == NG_NO_FORMAT);
    cr_expect(ng_format_codes(NG_FP32) == 0 && ng_format_codes(NG_E4M3) == 256 && ng_format_codes(NG_UE4M3) == 128);
}

/* Every product of two FP8 values is exact in binary64 and an integer of the unit that integer accumulation relies on:
 * e4m3 2^-18 with |p| < 2^36, e5m2 2^-32 with |p| < 2^64. */
static void products(ng_format_id format, int unit, int bits) {
    const shape *s = shapes;
    mpfr_t a, b, p;
    while (s->format != format)
        s++;
    mpfr_inits2(64, a, b, p, (mpfr_ptr)0);
    for (uint32_t i = 0; i < 256; i++)
        for (uint32_t j = 0; j < 256; j++) {
            mpfr_set_d(a, value_by_fields(s, i, a), MPFR_RNDN);
            mpfr_set_d(b, value_by_fields(s, j, b), MPFR_RNDN);
            int inexact = mpfr_mul(p, a, b, MPFR_RNDN);
            double product = ng_decode(format, i) * ng_decode(format, j);
            cr_expect(!inexact && same(product, mpfr_get_d(p, MPFR_RNDN)), "%s %#x * %#x", ng_formats[format].name, i,
                      j);
            if (!mpfr_number_p(p)) continue;
            mpfr_mul_2si(p, p, -unit, MPFR_RNDN);
            mpfr_abs(p, p, MPFR_RNDN);
            cr_expect(mpfr_integer_p(p) && mpfr_cmp_ui_2exp(p, 1, bits) < 0);
        }
    mpfr_clears(a, b, p, (mpfr_ptr)0);
}

static void e4m3_products(void) {
    products(NG_E4M3, -18, 36);
}
static void e5m2_products(void) {
    products(NG_E5M2, -32, 64);
}

/* ---- storage ------------------------------------------------------------------------------------------------------*/
enum { ROWS = 3, COLUMNS = 259 };

static uint64_t some_code(ng_format_id format, int64_t row, int64_t column) {
    uint64_t code = (uint64_t)(row * COLUMNS + column) * 0x9E3779B97F4A7C15u >> (column % 3 ? 20 : 0);
    const ng_format *f = &ng_formats[format];
    int bits = f->exponent_bits + f->mantissa_bits + f->is_signed;
    code &= bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
    return format == NG_TF32 ? code << 13 : code;
}

/* Odd widths, padded rows, neighbours untouched. */
static void element_access(void) {
    for (int f = 0; f < NG_FORMATS; f++) {
        int64_t row_bytes = ng_row_bytes((ng_format_id)f, COLUMNS) + 8;
        unsigned char *data = malloc((size_t)(ROWS * row_bytes));
        cr_assert(data);
        memset(data, 0xA5, (size_t)(ROWS * row_bytes));
        ng_tensor t = {
            .data = data, .format = (ng_format_id)f, .rows = ROWS, .columns = COLUMNS, .row_bytes = row_bytes};
        for (int64_t i = ROWS - 1; i >= 0; i--)
            for (int64_t j = 0; j < COLUMNS; j++)
                ng_set_code(&t, i, (j * 2) % COLUMNS, some_code(t.format, i, (j * 2) % COLUMNS));
        for (int64_t i = 0; i < ROWS; i++) {
            for (int64_t j = 0; j < COLUMNS; j++)
                cr_assert(ng_get_code(&t, i, j) == some_code(t.format, i, j), "%s [%ld][%ld]", ng_formats[f].name,
                          (long)i, (long)j);
            for (int64_t j = ng_row_bytes(t.format, COLUMNS); j < row_bytes; j++)
                cr_assert(data[i * row_bytes + j] == 0xA5, "%s wrote into the padding", ng_formats[f].name);
        }
        free(data);
    }
}

static void decode_rows(void) {
    static const struct {
        int64_t from, count;
    } ranges[] = {{0, COLUMNS}, {1, COLUMNS - 1}, {3, 1}, {2, 17}, {COLUMNS - 1, 1}, {5, 0}};
    double values[COLUMNS];
    float floats[COLUMNS];
    for (int f = 0; f < NG_FORMATS; f++) {
        int64_t row_bytes = ng_row_bytes((ng_format_id)f, COLUMNS);
        unsigned char *data = malloc((size_t)(ROWS * row_bytes));
        cr_assert(data);
        ng_tensor t = {
            .data = data, .format = (ng_format_id)f, .rows = ROWS, .columns = COLUMNS, .row_bytes = row_bytes};
        for (int64_t i = 0; i < ROWS; i++)
            for (int64_t j = 0; j < COLUMNS; j++)
                ng_set_code(&t, i, j,
                            ng_format_codes(t.format) ? (uint64_t)(i * COLUMNS + j) % ng_format_codes(t.format)
                                                      : some_code(t.format, i, j));
        for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++)
            for (int64_t i = 0; i < ROWS; i++) {
                ng_decode_row(&t, i, ranges[r].from, ranges[r].count, values);
                ng_decode_row_float(&t, i, ranges[r].from, ranges[r].count, floats);
                for (int64_t j = 0; j < ranges[r].count; j++) {
                    double expected = ng_get_value(&t, i, ranges[r].from + j);
                    cr_assert(same(values[j], expected) && same((double)floats[j], (double)(float)expected),
                              "%s [%ld][%ld]", ng_formats[f].name, (long)i, (long)(ranges[r].from + j));
                }
            }
        free(data);
    }
}

static void block_counts(void) {
    cr_assert(ng_block_count(32, 64) == 2 && ng_block_count(32, 65) == 3 && ng_block_count(32, 1) == 1);
    cr_assert(ng_block_count(0, 77) == 1 && ng_block_count(0, 0) == 0 && ng_block_count(16, 0) == 0);
    cr_assert(ng_block_extent(0, 77) == 77 && ng_block_extent(128, 77) == 128);
}

const ng_test ng_tests[] = {
    {"formats", "every code of every narrow format decodes to what its fields say", decode_every_code, 0},
    {"formats", "fp32, tf32 and fp64 decode", wide_formats, 0},
    {"formats", "published codes: largest, least normal, least subnormal, NaN", published_landmarks, 0},
    {"formats", "the format table agrees with the decoded codes", table_is_consistent, 0},
    {"formats", "all 65536 e4m3 products are exact and multiples of 2^-18", e4m3_products, 0},
    {"formats", "all 65536 e5m2 products are exact and multiples of 2^-32", e5m2_products, 0},
    {"formats", "elements of odd rows are stored and read back", element_access, 0},
    {"formats", "rows decode as their elements do", decode_rows, 0},
    {"formats", "blocks at the edge are counted", block_counts, 0},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
