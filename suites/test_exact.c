/* The exact product against its slow derivation, bit for bit, on data made to defeat it; the bounds against sums done in
 * each order that a contract names; and the faults that all of these must notice. */
#include "reference/blas.h"
#include "reference/gemm.h"
#include "reference/round.h"
#include "suites/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- data ---------------------------------------------------------------------------------------------------------*/
static uint64_t next(uint64_t *state) { /* splitmix64 (Steele, Lea, Flood 2014) */
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static double uniform(uint64_t *state) { return ldexp((double)(next(state) >> 11), -53); }

static double normal(uint64_t *state) { /* nearly: twelve uniform numbers */
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += uniform(state);
    return sum;
}

typedef enum data_kind {
    ANY_CODE,    /* every code alike, infinities and NaNs too */
    FINITE_CODE, /* every finite code alike: all exponents that the format has, subnormals and both zeros */
    NORMAL,
    POSITIVE,
    HUGE_ONE,    /* normal, one element a row at the format's largest */
    CANCELLING,  /* term 2i + 1 is the negative of term 2i, but for the smallest terms at the end */
    SPARSE,      /* nine in ten are zeros of either sign */
    DATA_KINDS,
} data_kind;

static const char *const data_names[] = {"any code", "finite code", "normal", "positive", "huge one", "cancelling", "sparse"};

typedef struct form {
    const char *name;
    ng_format_id element, scale; /* NG_NO_FORMAT: no scales */
    ng_blocks blocks;
    float tensor_scale;
} form;

static const form forms[] = {
    {"fp64", NG_FP64, NG_NO_FORMAT, {0, 0}, 1},
    {"fp32", NG_FP32, NG_NO_FORMAT, {0, 0}, 1},
    {"tf32", NG_TF32, NG_NO_FORMAT, {0, 0}, 1},
    {"bf16", NG_BF16, NG_NO_FORMAT, {0, 0}, 1},
    {"fp16", NG_FP16, NG_NO_FORMAT, {0, 0}, 1},
    {"e4m3", NG_E4M3, NG_NO_FORMAT, {0, 0}, 1},
    {"e5m2", NG_E5M2, NG_NO_FORMAT, {0, 0}, 1},
    {"e3m2", NG_E3M2, NG_NO_FORMAT, {0, 0}, 1},
    {"e2m3", NG_E2M3, NG_NO_FORMAT, {0, 0}, 1},
    {"e2m1", NG_E2M1, NG_NO_FORMAT, {0, 0}, 1},
    {"e4m3 a tensor", NG_E4M3, NG_FP32, {0, 0}, 1},
    {"e5m2 a row", NG_E5M2, NG_FP32, {1, 0}, 1},
    {"e4m3 1x128", NG_E4M3, NG_FP32, {1, 128}, 1},
    {"e4m3 128x128", NG_E4M3, NG_FP32, {128, 128}, 1},
    {"mxfp8 e4m3", NG_E4M3, NG_E8M0, {1, 32}, 1},
    {"mxfp8 e5m2", NG_E5M2, NG_E8M0, {1, 32}, 1},
    {"mxfp6 e3m2", NG_E3M2, NG_E8M0, {1, 32}, 1},
    {"mxfp6 e2m3", NG_E2M3, NG_E8M0, {1, 32}, 1},
    {"mxfp4", NG_E2M1, NG_E8M0, {1, 32}, 1},
    {"nvfp4", NG_E2M1, NG_UE4M3, {1, 16}, 0x1.921fb6p-9f},
    {"nvfp4 16x16", NG_E2M1, NG_UE4M3, {16, 16}, 0x1.921fb6p-9f},
    {"e4m3 a row and tensor", NG_E4M3, NG_FP32, {1, 0}, 0x1.921fb6p-9f},
};
enum { FORMS = sizeof forms / sizeof *forms };

static ng_tensor new_tensor(ng_format_id format, int64_t rows, int64_t columns) {
    ng_tensor t = {.format = format, .rows = rows, .columns = columns, .row_bytes = ng_row_bytes(format, columns)};
    t.data = calloc((size_t)(rows + 1), (size_t)(t.row_bytes + 1));
    cr_assert(t.data);
    return t;
}

static void free_operand(ng_operand *x) {
    free(x->codes.data);
    free(x->scales.data);
}

static const ng_cast nearest = {.rounding = NG_RN_EVEN, .saturate = true};

static uint64_t finite_code(ng_format_id format, uint64_t *state) {
    for (;;) {
        uint64_t code = next(state);
        const ng_format *f = &ng_formats[format];
        int bits = f->exponent_bits + f->mantissa_bits + f->is_signed;
        if (format == NG_TF32) bits = 32;
        if (bits < 64) code &= (UINT64_C(1) << bits) - 1;
        if (format == NG_TF32) code &= ~UINT64_C(0x1FFF);
        if (isfinite(ng_decode(format, code))) return code;
    }
}

static uint64_t any_code(ng_format_id format, uint64_t *state) {
    static const double specials[] = {INFINITY, -INFINITY, NAN};
    static const ng_cast infinite = {.rounding = NG_RN_EVEN};
    uint64_t draw = next(state);
    return draw % 97 < 3 ? ng_round(format, specials[draw % 97], &infinite, 0) : finite_code(format, state);
}

static uint64_t draw_code(data_kind kind, ng_format_id format, uint64_t *state) {
    if (kind == ANY_CODE) return any_code(format, state);
    if (kind == FINITE_CODE || kind == CANCELLING) return finite_code(format, state);
    if (kind == SPARSE && next(state) % 10) return ng_round(format, next(state) & 1 ? 0.0 : -0.0, &nearest, 0);
    double value = kind == POSITIVE ? uniform(state) : normal(state);
    return ng_round(format, value, &nearest, 0);
}

static uint64_t negated(ng_format_id format, uint64_t code) {
    return ng_round(format, -ng_decode(format, code), &nearest, 0);
}

/* second: of the two operands, the one whose terms do not change sign. */
static void fill_codes(ng_tensor *t, data_kind kind, bool second, uint64_t *state) {
    for (int64_t i = 0; i < t->rows; i++) {
        for (int64_t k = 0; k < t->columns; k++) {
            uint64_t code = draw_code(kind, t->format, state);
            if (kind == CANCELLING && k % 2 && k + 3 < t->columns) {
                code = ng_get_code(t, i, k - 1);
                if (!second) code = negated(t->format, code);
            } else if (kind == CANCELLING && k + 3 >= t->columns) {
                code = ng_round(t->format, ldexp(1 + (double)(k % 2), ng_formats[t->format].emin), &nearest, 0);
            }
            ng_set_code(t, i, k, code);
        }
        if (kind == HUGE_ONE && t->columns)
            ng_set_code(t, i, (int64_t)(next(state) % (uint64_t)t->columns),
                        ng_round(t->format, ng_formats[t->format].largest, &nearest, 0));
    }
}

static void fill_scales(ng_operand *x, data_kind kind, uint64_t *state) {
    for (int64_t i = 0; i < x->scales.rows; i++)
        for (int64_t k = 0; k < x->scales.columns; k++) {
            double value = kind == NORMAL || kind == POSITIVE ? 0.01 + uniform(state) / 64 : 0;
            uint64_t code = value > 0 ? ng_round(x->scales.format, value, &nearest, 0)
                          : kind == ANY_CODE ? any_code(x->scales.format, state)
                                             : finite_code(x->scales.format, state);
            ng_set_code(&x->scales, i, k, code);
        }
}

static ng_operand new_operand(const form *f, data_kind kind, int64_t rows, int64_t k, bool second, uint64_t *state) {
    ng_operand x = {.blocks = f->blocks, .tensor_scale = f->tensor_scale, .codes = new_tensor(f->element, rows, k)};
    fill_codes(&x.codes, kind, second, state);
    if (f->scale == NG_NO_FORMAT) return x;
    x.scales = new_tensor(f->scale, ng_block_count(f->blocks.rows, rows), ng_block_count(f->blocks.columns, k));
    if (kind == CANCELLING) { /* equal scales in one operand's row keep the pairs equal; blocks hold whole pairs */
        fill_scales(&x, FINITE_CODE, state);
    } else {
        fill_scales(&x, kind, state);
    }
    return x;
}

/* ---- the exact product ----------------------------------------------------------------------------------------------*/
static bool same(double x, double y) { return (isnan(x) && isnan(y)) || !memcmp(&x, &y, sizeof x); }

/* Number of elements whose high or low differ from MPFR's; `rounded` counts those whose low is not 0. */
static int64_t differences(const ng_operand *a, const ng_operand *b, const ng_tensor *initial, int64_t *rounded) {
    ng_exact_product fast, slow;
    int64_t differ = 0, tiers = 0;
    cr_assert(ng_exact_gemm(a, b, initial, 2, &fast) == NG_OK);
    cr_assert(ng_exact_gemm_mpfr(a, b, initial, 2, &slow) == NG_OK);
    for (int64_t e = 0; e < fast.m * fast.n; e++) {
        bool equal = same(fast.high[e], slow.high[e]) && same(fast.low[e], slow.low[e]);
        differ += !equal;
        *rounded += fast.low[e] != 0;
    }
    for (int t = 0; t < NG_TIERS; t++)
        tiers += fast.elements_by_tier[t];
    cr_expect(tiers == fast.m * fast.n, "%lld elements in tiers, of %lld", (long long)tiers, (long long)(fast.m * fast.n));
    ng_exact_product_free(&fast);
    ng_exact_product_free(&slow);
    return differ;
}

static void agrees_with_mpfr(const form *f, const form *g, data_kind kind, int64_t m, int64_t n, int64_t k, bool accumulate,
                             int64_t *rounded) {
    uint64_t seed = 1000 * (uint64_t)kind + (uint64_t)(f - forms) + 1, state = seed;
    ng_operand a = new_operand(f, kind, m, k, false, &state), b = new_operand(g, kind, n, k, true, &state);
    ng_tensor initial = {0};
    if (accumulate) {
        initial = new_tensor(NG_FP32, m, n);
        fill_codes(&initial, kind == ANY_CODE ? ANY_CODE : kind == FINITE_CODE ? FINITE_CODE : NORMAL, false, &state);
    }
    int64_t differ = differences(&a, &b, accumulate ? &initial : NULL, rounded);
    cr_expect(differ == 0, "%s x %s, %s, %lldx%lldx%lld, seed %llu: %lld elements differ", f->name, g->name,
              data_names[kind], (long long)m, (long long)n, (long long)k, (unsigned long long)seed, (long long)differ);
    free_operand(&a);
    free_operand(&b);
    free(initial.data);
}

static void every_form_on_every_data(void) {
    int64_t rounded = 0;
    for (int f = 0; f < FORMS; f++)
        for (int kind = 0; kind < DATA_KINDS; kind++)
            agrees_with_mpfr(&forms[f], &forms[f], (data_kind)kind, 17, 13, 131, kind % 2, &rounded);
    cr_expect(rounded > 1000, "only %lld elements needed more than a double", (long long)rounded);
}

static void mixed_forms(void) {
    int64_t rounded = 0;
    for (int f = 0; f < FORMS; f++)
        agrees_with_mpfr(&forms[f], &forms[(f + 5) % FORMS], f % 2 ? FINITE_CODE : NORMAL, 9, 21, 150, true, &rounded);
}

static void edges_of_shape(void) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {1, 1, 0}, {3, 2, 0}, {0, 3, 5}, {3, 0, 5}, {1, 1, 300}, {1, 40, 33},
                                        {40, 1, 33}, {5, 5, 1}, {33, 31, 2}};
    int64_t rounded = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int f = 0; f < FORMS; f++)
            agrees_with_mpfr(&forms[f], &forms[f], FINITE_CODE, shapes[s][0], shapes[s][1], shapes[s][2], s % 2, &rounded);
}

static void long_sums(void) {
    static const ng_format_id formats[] = {NG_E4M3, NG_BF16, NG_FP32};
    int64_t rounded = 0;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        for (int f = 0; f < FORMS; f++)
            if (forms[f].element == formats[i] && forms[f].scale == NG_NO_FORMAT) {
                agrees_with_mpfr(&forms[f], &forms[f], HUGE_ONE, 2, 2, 131072, false, &rounded);
                agrees_with_mpfr(&forms[f], &forms[f], FINITE_CODE, 1, 2, 131072, true, &rounded);
            }
}

/* x y - x y (1 - 2^-23)(1 + 2^-23) leaves 2^-46 x y; with x y = 2^60 and 2^-40 beside it, the condition is above 1e30. */
static void cancellation_of_condition_1e30(void) {
    ng_operand a = {.codes = new_tensor(NG_FP32, 1, 4), .tensor_scale = 1};
    ng_operand b = {.codes = new_tensor(NG_FP32, 1, 4), .tensor_scale = 1};
    const float left[] = {0x1p60f, -0x1p60f, 0x1.800002p-40f, 0x1p-80f}, right[] = {0x1p40f, 0x1p40f, 0x1p30f, 0x1.000002p-20f};
    memcpy(a.codes.data, left, sizeof left);
    memcpy(b.codes.data, right, sizeof right);
    ng_exact_product product;
    cr_assert(ng_exact_gemm(&a, &b, NULL, 1, &product) == NG_OK);
    cr_expect(product.high[0] == 0x1.800002p-10 && product.low[0] == 0x1.000002p-100, "%a + %a", product.high[0],
              product.low[0]);
    ng_exact_product_free(&product);
    free_operand(&a);
    free_operand(&b);
}

/* Ties and what lies just beside them, in the second rounding too: 1 + 2^-53 + 2^-106 (+- 2^-140). */
static void ties_of_the_result(void) {
    static const struct {
        float left[4], right[4];
        double high;
    } rows[] = {
        {{1, 0x1p-53f, 0, 0}, {1, 1, 1, 1}, 1},
        {{1, 0x1p-53f, 0x1p-70f, 0}, {1, 1, 0x1p-70f, 1}, 0x1.0000000000001p0},
        {{1, 0x1p-53f, 0x1p-70f, 0}, {1, 1, -0x1p-70f, 1}, 1},
        {{0x1.000002p0f, 0x1p-23f, 0x1p-54f, 0}, {1, -1, -1, 1}, 1},
        {{1, 0x1p-54f, 0x1p-60f, 0x1p-70f}, {1, -1, -0x1p-47f, -0x1p-70f}, 0x1.fffffffffffffp-1},
        {{-1, 0x1p-53f, 0x1p-60f, 0}, {1, -1, -0x1p-80f, 1}, -0x1.0000000000001p0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ng_operand a = {.codes = {(void *)rows[i].left, NG_FP32, NG_HOST, 1, 4, 16}, .tensor_scale = 1};
        ng_operand b = {.codes = {(void *)rows[i].right, NG_FP32, NG_HOST, 1, 4, 16}, .tensor_scale = 1};
        ng_exact_product x, y;
        cr_assert(ng_exact_gemm(&a, &b, NULL, 1, &x) == NG_OK && ng_exact_gemm_mpfr(&a, &b, NULL, 1, &y) == NG_OK);
        cr_expect(same(x.high[0], y.high[0]) && same(x.low[0], y.low[0]), "row %zu: %a + %a, by MPFR %a + %a", i, x.high[0],
                  x.low[0], y.high[0], y.low[0]);
        cr_expect(x.high[0] == rows[i].high, "row %zu: %a", i, x.high[0]);
        ng_exact_product_free(&x);
        ng_exact_product_free(&y);
    }
}

static void threads_and_panels_change_nothing(void) {
    uint64_t state = 5;
    const form *f = &forms[3];
    ng_operand a = new_operand(f, FINITE_CODE, 1100, 40, false, &state), b = new_operand(f, NORMAL, 60, 40, true, &state);
    ng_exact_product one, two;
    cr_assert(ng_exact_gemm(&a, &b, NULL, 1, &one) == NG_OK && ng_exact_gemm(&a, &b, NULL, 2, &two) == NG_OK);
    cr_expect(!memcmp(one.high, two.high, sizeof(double) * 66000) && !memcmp(one.low, two.low, sizeof(double) * 66000));
    ng_exact_product_free(&one);
    ng_exact_product_free(&two);
    int64_t rounded = 0;
    cr_expect(differences(&a, &b, NULL, &rounded) == 0);
    free_operand(&a);
    free_operand(&b);
}

/* The comparison has power: a plain dgemm of the same data is not the exact product. */
static void a_plain_product_differs(void) {
    enum { N = 32, K = 200 };
    uint64_t state = 6;
    const form *f = &forms[3];
    ng_operand a = new_operand(f, FINITE_CODE, N, K, false, &state), b = new_operand(f, FINITE_CODE, N, K, true, &state);
    double da[N * K], db[N * K], dc[N * N];
    for (int i = 0; i < N; i++) {
        ng_decode_row(&a.codes, i, 0, K, da + i * K);
        ng_decode_row(&b.codes, i, 0, K, db + i * K);
    }
    ng_blas_dgemm(N, N, K, da, db, dc);
    ng_exact_product product;
    cr_assert(ng_exact_gemm(&a, &b, NULL, 2, &product) == NG_OK);
    int differ = 0;
    for (int e = 0; e < N * N; e++)
        differ += dc[e] != product.high[e];
    cr_expect(differ > 0);
    ng_exact_product_free(&product);
    free_operand(&a);
    free_operand(&b);
}

static void bad_arguments(void) {
    uint64_t state = 1;
    ng_operand a = new_operand(&forms[5], NORMAL, 3, 4, false, &state), b = new_operand(&forms[5], NORMAL, 3, 5, true, &state);
    ng_exact_product product;
    cr_expect(ng_exact_gemm(&a, &b, NULL, 1, &product) == NG_BAD_ARGUMENT);
    cr_expect(ng_exact_gemm_mpfr(&a, &b, NULL, 1, &product) == NG_BAD_ARGUMENT);
    ng_tensor initial = new_tensor(NG_FP32, 3, 2);
    cr_expect(ng_exact_gemm(&a, &a, &initial, 1, &product) == NG_BAD_ARGUMENT);
    cr_expect(ng_exact_gemm(&a, &a, NULL, 1, NULL) == NG_BAD_ARGUMENT);
    free(initial.data);
    free_operand(&a);
    free_operand(&b);
}

/* ---- the BLAS self-test ---------------------------------------------------------------------------------------------*/
static void self_test_passes(void) {
    for (int threads = 1; threads <= 2; threads++) {
        ng_blas_set_threads(threads);
        cr_expect(ng_blas_self_test() == NG_OK, "%d threads", threads);
    }
}

static void last_bit_wrong(int64_t m, int64_t n, int64_t k, const double *a, const double *b, double *c) {
    ng_blas_dgemm(m, n, k, a, b, c);
    if (m == 257) c[m * n - 1] = nextafter(c[m * n - 1], 0);
}

static void edge_tile_forgotten(int64_t m, int64_t n, int64_t k, const double *a, const double *b, double *c) {
    ng_blas_dgemm(m, n, k, a, b, c);
    if (n % 12 == 1 && n > 1) c[n - 1] = 0;
}

static void one_bit_less(int64_t m, int64_t n, int64_t k, const double *a, const double *b, double *c) {
    ng_blas_dgemm(m, n, k, a, b, c); /* a sum kept to 52 bits */
    for (int64_t e = 0; e < m * n; e++) {
        double t = c[e] * 3;
        c[e] = t - (t - c[e]);
    }
}

static void last_k_forgotten(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c) {
    ng_blas_sgemm(m, n, k, a, b, c);
    if (k == 33)
        for (int64_t e = 0; e < m * n; e++)
            c[e] -= a[e / n * k + k - 1] * b[e % n * k + k - 1];
}

static void self_test_notices_faults(void) {
    cr_expect(ng_blas_self_test_of(last_bit_wrong, ng_blas_sgemm) == NG_INTERNAL);
    cr_expect(ng_blas_self_test_of(edge_tile_forgotten, ng_blas_sgemm) == NG_INTERNAL);
    cr_expect(ng_blas_self_test_of(one_bit_less, ng_blas_sgemm) == NG_INTERNAL);
    cr_expect(ng_blas_self_test_of(ng_blas_dgemm, last_k_forgotten) == NG_INTERNAL);
}

const ng_test ng_tests[] = {
    {"exact", "every form on every data agrees with MPFR", every_form_on_every_data, 0},
    {"exact", "mixed forms agree with MPFR", mixed_forms, 0},
    {"exact", "edges of shape agree with MPFR", edges_of_shape, 0},
    {"exact", "sums of 131072 terms agree with MPFR", long_sums, 0},
    {"exact", "cancellation of condition 1e30", cancellation_of_condition_1e30, 0},
    {"exact", "ties of the result", ties_of_the_result, 0},
    {"exact", "threads and panels change nothing", threads_and_panels_change_nothing, 0},
    {"exact", "a plain product differs", a_plain_product_differs, 0},
    {"exact", "bad arguments", bad_arguments, 0},
    {"blas", "self-test passes", self_test_passes, 0},
    {"blas", "self-test notices faults", self_test_notices_faults, 0},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
