/* The exact product against its slow derivation, bit for bit, on data made to defeat it; the bounds against sums done in
 * each order that a contract names; and the faults that all of these must notice. */
#include "reference/blas.h"
#include "reference/gemm.h"
#include "reference/round.h"
#include "suites/test.h"

#include <math.h>
#include <stdio.h>
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
            agrees_with_mpfr(&forms[f], &forms[f], (data_kind)kind, 11, 9, 131, kind % 2, &rounded);
    cr_expect(rounded > 500, "only %lld elements needed more than a double", (long long)rounded);
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
                agrees_with_mpfr(&forms[f], &forms[f], HUGE_ONE, 1, 2, 131072, false, &rounded);
                agrees_with_mpfr(&forms[f], &forms[f], FINITE_CODE, 1, 1, 131072, true, &rounded);
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
    ng_operand a = new_operand(f, FINITE_CODE, 1100, 24, false, &state), b = new_operand(f, NORMAL, 30, 24, true, &state);
    ng_exact_product one, two;
    cr_assert(ng_exact_gemm(&a, &b, NULL, 1, &one) == NG_OK && ng_exact_gemm(&a, &b, NULL, 2, &two) == NG_OK);
    cr_expect(!memcmp(one.high, two.high, sizeof(double) * 33000) && !memcmp(one.low, two.low, sizeof(double) * 33000));
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

/* ---- bounds -------------------------------------------------------------------------------------------------------------
 * One element summed as a contract says, in plain C: binary32 by the compiler, tensor-core steps by truncating scaled terms
 * to 64-bit integers. */
typedef struct terms {
    int64_t k;
    float a[4200], b[4200], sa[4200], sb[4200];
    double power_a[4200], power_b[4200]; /* raw powers of two */
    uint64_t state;                      /* NG_SUM_ANY: the order */
} terms;

static double power_of(double x, double least_normal) {
    int e;
    frexp(x, &e);
    return x == 0 ? 0 : fmax(ldexp(1, e - 1), least_normal);
}

static void load_terms(const ng_accumulation *sum, const ng_operand *a, const ng_operand *b, int64_t i, int64_t j, terms *t) {
    t->k = a->codes.columns;
    for (int64_t k = 0; k < t->k; k++) {
        int64_t ka = k / ng_block_extent(a->blocks.columns, t->k), kb = k / ng_block_extent(b->blocks.columns, t->k);
        int64_t ia = i / ng_block_extent(a->blocks.rows, a->codes.rows), jb = j / ng_block_extent(b->blocks.rows, b->codes.rows);
        t->a[k] = (float)ng_get_value(&a->codes, i, k);
        t->b[k] = (float)ng_get_value(&b->codes, j, k);
        t->sa[k] = a->scales.data ? (float)ng_get_value(&a->scales, ia, ka) : 1;
        t->sb[k] = b->scales.data ? (float)ng_get_value(&b->scales, jb, kb) : 1;
        if (sum->scales == NG_SCALES_DEQUANTIZED) {
            t->a[k] *= t->sa[k];
            t->b[k] *= t->sb[k];
        }
        bool inside = sum->scales == NG_SCALES_IN_MMA;
        t->power_a[k] = power_of(t->a[k], ldexp(1, ng_formats[a->codes.format].emin)) * (inside ? (double)t->sa[k] : 1);
        t->power_b[k] = power_of(t->b[k], ldexp(1, ng_formats[b->codes.format].emin)) * (inside ? (double)t->sb[k] : 1);
    }
}

/* c + the products of one group. */
static double fused_group(const ng_accumulation *sum, const terms *t, const int64_t *ks, int count, double c) {
    const ng_mma *mma = &sum->mma;
    double product[65], largest = c == 0 ? 0 : power_of(c, 0x1p-126);
    for (int q = 0; q < count; q++) {
        int64_t k = ks[q];
        product[q] = (double)t->a[k] * (double)t->b[k];
        if (mma->scales_inside) product[q] *= (double)t->sa[k] * (double)t->sb[k];
        if (product[q] != 0) largest = fmax(largest, t->power_a[k] * t->power_b[k]);
    }
    if (largest == 0) return 0;
    double unit = ldexp(fmax(largest, ldexp(1, mma->min_exponent)), -mma->fraction_bits);
    int64_t total = (int64_t)(c / unit);
    for (int q = 0; q < count; q++)
        total += (int64_t)(product[q] / unit);
    double d = (double)total * unit, step = ldexp(power_of(d, 0x1p-126), -mma->output_bits);
    return d == 0 ? 0 : trunc(d / step) * step;
}

static double mma_step(const ng_accumulation *sum, const terms *t, int64_t from, int64_t to, double c) {
    const ng_mma *mma = &sum->mma;
    for (int g = 0; g < mma->k / mma->group; g++) {
        int64_t ks[64];
        int count = 0;
        for (int q = 0; q < mma->k; q++) {
            int of = mma->interleave ? q % 4 / 2 : q / mma->group;
            if (of == g && from + q < to) ks[count++] = from + q;
        }
        c = fused_group(sum, t, ks, count, c);
    }
    return c;
}

static double mma_chain(const ng_accumulation *sum, const terms *t, int64_t from, int64_t to) {
    float main = 0;
    double chain = 0;
    int steps = 0;
    for (int64_t k = from; k < to; k += sum->mma.k) {
        chain = mma_step(sum, t, k, to < k + sum->mma.k ? to : k + sum->mma.k, chain);
        if (sum->promote_every && (++steps % sum->promote_every == 0 || k + sum->mma.k >= to)) {
            main += (float)chain;
            chain = 0;
        }
    }
    return sum->promote_every ? (double)main : chain;
}

static float term(const ng_accumulation *sum, const terms *t, int64_t k, float s) {
    return sum->fused ? fmaf(t->a[k], t->b[k], s) : s + t->a[k] * t->b[k];
}

static float pairwise(const ng_accumulation *sum, const terms *t, int64_t from, int64_t to) {
    int64_t leaves = (to - from + sum->leaf - 1) / sum->leaf, half = 1;
    float s = 0;
    if (leaves <= 1) {
        for (int64_t k = from; k < to; k++)
            s = term(sum, t, k, s);
        return s;
    }
    while (half * 2 < leaves)
        half *= 2;
    return pairwise(sum, t, from, from + half * sum->leaf) + pairwise(sum, t, from + half * sum->leaf, to);
}

/* Any order: two random partial sums are added until one is left. */
static float any_order(terms *t, int64_t from, int64_t to) {
    float part[4200];
    int64_t count = 0;
    for (int64_t k = from; k < to; k++)
        part[count++] = t->a[k] * t->b[k];
    while (count > 1) {
        int64_t x = (int64_t)(next(&t->state) % (uint64_t)count), y = (int64_t)(next(&t->state) % (uint64_t)(count - 1));
        float last = part[count - 1], moved = part[x];
        part[x] = last, part[count - 1] = moved;
        part[y] += part[count - 1];
        count--;
    }
    return count ? part[0] : 0;
}

static double chain(const ng_accumulation *sum, terms *t, int64_t from, int64_t to) {
    float s = 0;
    double d = 0;
    switch (sum->order) {
    case NG_SUM_MMA: return mma_chain(sum, t, from, to);
    case NG_SUM_PAIRWISE: return (double)pairwise(sum, t, from, to);
    case NG_SUM_ANY: return (double)any_order(t, from, to);
    case NG_SUM_FP64:
        for (int64_t k = from; k < to; k++)
            d += (double)t->a[k] * (double)t->b[k];
        return d;
    default:
        for (int64_t k = from; k < to; k++)
            s = term(sum, t, k, s);
        return (double)s;
    }
}

static double part_sum(const ng_accumulation *sum, terms *t, int64_t block, int64_t from, int64_t to) {
    float main = 0;
    if (sum->scales < NG_SCALES_BLOCK_SEQUENTIAL || sum->scales > NG_SCALES_BLOCK_FMA_SECOND) return chain(sum, t, from, to);
    for (int64_t k = from, end; k < to; k = end) {
        end = (k / block + 1) * block < to ? (k / block + 1) * block : to;
        float c = (float)chain(sum, t, k, end), sa = t->sa[k], sb = t->sb[k];
        if (sum->scales == NG_SCALES_BLOCK_SEQUENTIAL) main += c * sa * sb;
        if (sum->scales == NG_SCALES_BLOCK_FMA_PRODUCT) main = fmaf(c, sa * sb, main);
        if (sum->scales == NG_SCALES_BLOCK_FMA_SECOND) main = fmaf(c * sb, sa, main);
    }
    return (double)main;
}

/* fl(x + y) of doubles, rounded once. */
static float fl_sum(double x, double y) {
    double s = x + y, t = s - x, e = (x - (s - t)) + (y - t);
    static const ng_cast to_nearest = {.rounding = NG_RN_EVEN};
    return isfinite(s) ? (float)ng_decode(NG_FP32, ng_round_pair(NG_FP32, s, e, &to_nearest)) : (float)s;
}

static double simulate(const ng_accumulation *sum, const ng_operand *a, const ng_operand *b, const ng_tensor *initial,
                       int64_t i, int64_t j, terms *t) {
    load_terms(sum, a, b, i, j, t);
    int64_t block = ng_block_extent(a->blocks.columns, t->k), part = t->k;
    if (sum->split_k > 1) {
        int64_t tiles = (t->k + sum->split_tile - 1) / sum->split_tile;
        part = (tiles + sum->split_k - 1) / sum->split_k * sum->split_tile;
    }
    double result = part_sum(sum, t, block, 0, part);
    for (int64_t from = part; from < t->k; from += part)
        result = (double)fl_sum(result, part_sum(sum, t, block, from, from + part < t->k ? from + part : t->k));
    if (sum->scales == NG_SCALES_AFTER) result = (double)((float)result * t->sa[0] * t->sb[0]);
    if (sum->scales == NG_SCALES_AFTER_AT_ONCE) result = (double)((float)result * (t->sa[0] * t->sb[0]));
    float scale = a->tensor_scale * b->tensor_scale;
    if (scale != 1) result = (double)((float)result * scale);
    if (initial && sum->rounds_to != NG_FP64) result = ng_decode(sum->rounds_to, ng_round(sum->rounds_to, result, &(ng_cast){.rounding = NG_RN_EVEN}, 0));
    return initial ? (double)fl_sum(result, ng_get_value(initial, i, j)) : result;
}

typedef struct bound_row {
    const char *name;
    int form;
    ng_accumulation sum;
    int64_t k;
    double sharp; /* the largest error / bound over all data is at least this */
} bound_row;

#define WGMMA_FP8 {"", 32, 32, 0, 13, 13, -133, 0, false, 0}
#define ADA_FP8 {"", 32, 16, 0, 13, 13, -133, 0, false, 0}
#define SYNC_FP8 {"", 32, 16, 2, 25, 23, -133, 0, false, 0}
#define HOPPER_16 {"", 16, 16, 0, 25, 23, -133, 0, false, 0}
#define AMPERE_16 {"", 16, 8, 0, 24, 23, -133, 0, false, 0}
#define MXF8 {"", 32, 32, 0, 25, 23, -133, 0, true, 32}

static const bound_row bound_rows[] = {
    {"chain, exact products", 3, {.order = NG_SUM_CHAIN}, 300, 0.5},
    {"chain, rounded products", 1, {.order = NG_SUM_CHAIN}, 300, 0.02},
    {"chain, fused", 1, {.order = NG_SUM_CHAIN, .fused = true}, 300, 0.02},
    {"pairwise", 3, {.order = NG_SUM_PAIRWISE, .leaf = 8}, 301, 0.1},
    {"pairwise of fp32", 1, {.order = NG_SUM_PAIRWISE, .leaf = 1}, 77, 0.05},
    {"any order", 3, {.order = NG_SUM_ANY}, 300, 0.02},
    {"any order of fp32", 1, {.order = NG_SUM_ANY}, 33, 0.05},
    {"fp64", 1, {.order = NG_SUM_FP64}, 300, 0.005},
    {"fp64 split in 3", 1, {.order = NG_SUM_FP64, .split_k = 3, .split_tile = 16}, 300, 0.05},
    {"chain split in 4", 3, {.order = NG_SUM_CHAIN, .split_k = 4, .split_tile = 16}, 300, 0.1},
    {"two products", 3, {.order = NG_SUM_CHAIN}, 2, 0.4},
    {"one product", 1, {.order = NG_SUM_CHAIN}, 1, 0.4},
    {"fp8, Hopper", 5, {.order = NG_SUM_MMA, .mma = WGMMA_FP8}, 128, 0.03},
    {"fp8, Hopper, one step", 5, {.order = NG_SUM_MMA, .mma = WGMMA_FP8}, 32, 0.1},
    {"fp8, Hopper, promoted", 5, {.order = NG_SUM_MMA, .mma = WGMMA_FP8, .promote_every = 4}, 4096, 0.03},
    {"fp8, Hopper, e5m2, ragged", 6, {.order = NG_SUM_MMA, .mma = WGMMA_FP8}, 101, 0.03},
    {"fp8, Ada", 5, {.order = NG_SUM_MMA, .mma = ADA_FP8}, 128, 0.03},
    {"fp8, Hopper mma.sync", 5, {.order = NG_SUM_MMA, .mma = SYNC_FP8}, 128, 0.01},
    {"bf16, Hopper", 3, {.order = NG_SUM_MMA, .mma = HOPPER_16}, 128, 0.03},
    {"fp16, Hopper, split in 3", 4, {.order = NG_SUM_MMA, .mma = HOPPER_16, .split_k = 3, .split_tile = 64}, 500, 0.02},
    {"fp16, Ampere", 4, {.order = NG_SUM_MMA, .mma = AMPERE_16}, 64, 0.03},
    {"mxfp8, Blackwell", 14, {.order = NG_SUM_MMA, .mma = MXF8, .scales = NG_SCALES_IN_MMA}, 256, 0.02},
    {"scales after", 11, {.order = NG_SUM_CHAIN, .scales = NG_SCALES_AFTER}, 64, 0.02},
    {"scales after, one tensor", 10, {.order = NG_SUM_MMA, .mma = WGMMA_FP8, .scales = NG_SCALES_AFTER}, 64, 0.05},
    {"scales after, at once", 11, {.order = NG_SUM_CHAIN, .scales = NG_SCALES_AFTER_AT_ONCE}, 64, 0.02},
    {"blocks, sequential", 12, {.order = NG_SUM_CHAIN, .scales = NG_SCALES_BLOCK_SEQUENTIAL}, 400, 0.02},
    {"blocks, fma of the product", 12,
     {.order = NG_SUM_MMA, .mma = WGMMA_FP8, .promote_every = 4, .scales = NG_SCALES_BLOCK_FMA_PRODUCT}, 400, 0.03},
    {"blocks, fma of the second", 13,
     {.order = NG_SUM_MMA, .mma = WGMMA_FP8, .promote_every = 4, .scales = NG_SCALES_BLOCK_FMA_SECOND}, 400, 0.03},
    {"dequantized 1x128", 12, {.order = NG_SUM_CHAIN, .scales = NG_SCALES_DEQUANTIZED}, 300, 0.005},
    {"dequantized nvfp4", 19, {.order = NG_SUM_CHAIN, .scales = NG_SCALES_DEQUANTIZED}, 300, 0.005},
    {"dequantized mxfp4", 18, {.order = NG_SUM_PAIRWISE, .leaf = 16, .scales = NG_SCALES_DEQUANTIZED}, 300, 0.005},
    /* one of the ways to cut K that a contract without a known cut allows */
    {"bf16, Hopper, cut anywhere", 3, {.order = NG_SUM_MMA, .mma = HOPPER_16, .split_unknown = true, .split_k = 5, .split_tile = 16}, 500, 0.008},
    {"bf16, Hopper, rounded before the bias", 3, {.order = NG_SUM_MMA, .mma = HOPPER_16, .rounds_to = NG_BF16}, 64, 0.3},
    {"a row and tensor", 21, {.order = NG_SUM_CHAIN, .scales = NG_SCALES_AFTER}, 3, 0.1},
};

/* The first term 1, then ties that are lost: every addition errs by its most, in one direction. */
static void fill_lost_ties(ng_operand *x) {
    for (int64_t i = 0; i < x->codes.rows; i++)
        for (int64_t k = 0; k < x->codes.columns; k++)
            ng_set_code(&x->codes, i, k, ng_round(x->codes.format, k ? 0x1p-12 : 1, &nearest, 0));
}

/* The largest error / bound; counts what exceeds its bound, and the elements with a bound that says something. */
static double largest_ratio(const bound_row *row, const ng_operand *a, const ng_operand *b, const ng_tensor *initial,
                            uint64_t seed, int64_t *violations, int64_t *bounded, double *expected_ratio) {
    ng_exact_product exact;
    double bound[16 * 16], expected[16 * 16], largest = 0;
    terms *t = malloc(sizeof *t);
    cr_assert(t);
    t->state = seed;
    cr_assert(ng_exact_gemm(a, b, initial, 2, &exact) == NG_OK);
    cr_assert(ng_gemm_bound(&row->sum, a, b, initial, &exact, 2, bound, expected) == NG_OK, "%s", row->name);
    for (int64_t e = 0; e < exact.m * exact.n; e++) {
        if (!isfinite(exact.high[e]) || !isfinite(bound[e])) continue;
        double computed = simulate(&row->sum, a, b, initial, e / exact.n, e % exact.n, t);
        double error = fabs((computed - exact.high[e]) - exact.low[e]);
        ++*bounded;
        *violations += !(error <= bound[e]);
        if (error > 0) largest = fmax(largest, error / bound[e]);
        if (error > 0 && expected[e] > 0) *expected_ratio = fmax(*expected_ratio, error / expected[e]);
    }
    ng_exact_product_free(&exact);
    free(t);
    return largest;
}

static void bounds_hold_and_are_sharp(void) {
    for (size_t r = 0; r < sizeof bound_rows / sizeof *bound_rows; r++) {
        const bound_row *row = &bound_rows[r];
        double largest = 0, expected_ratio = 0;
        int64_t bounded = 0;
        for (int kind = ANY_CODE; kind <= DATA_KINDS; kind++)
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                int64_t violations = 0;
                uint64_t seed = 100 * (uint64_t)r + (uint64_t)kind, state = seed;
                data_kind data = kind == DATA_KINDS ? NORMAL : (data_kind)kind;
                ng_operand a = new_operand(&forms[row->form], data, 7, row->k, false, &state);
                ng_operand b = new_operand(&forms[row->form], data, 9, row->k, true, &state);
                if (kind == DATA_KINDS) fill_lost_ties(&a), fill_lost_ties(&b);
                ng_tensor initial = new_tensor(NG_FP32, 7, 9);
                fill_codes(&initial, NORMAL, false, &state);
                double ratio = largest_ratio(row, &a, &b, accumulate ? &initial : NULL, seed, &violations, &bounded,
                                             kind == NORMAL && !accumulate ? &expected_ratio : &(double){0});
                largest = fmax(largest, ratio);
                cr_expect(violations == 0, "%s, %s, seed %llu: %lld elements beyond their bounds (ratio %g)", row->name,
                          kind == DATA_KINDS ? "lost ties" : data_names[kind], (unsigned long long)seed,
                          (long long)violations, ratio);
                free_operand(&a);
                free_operand(&b);
                free(initial.data);
            }
        fprintf(stderr, "# %s: largest error / bound %.4f, error / expected %.4f, %lld elements\n", row->name, largest,
                expected_ratio, (long long)bounded);
        cr_expect(largest >= row->sharp, "%s: largest error / bound is only %g", row->name, largest);
        cr_expect(expected_ratio < 1, "%s: error / expected %g", row->name, expected_ratio);
        cr_expect(bounded > 250, "%s: only %lld elements have a bound", row->name, (long long)bounded);
    }
}

/* A kernel that computes as `actual` says must be found out by the bound of `claimed`. */
static void bounds_notice_other_arithmetic(void) {
    static const struct {
        const char *name;
        int form;
        ng_accumulation actual, claimed;
        int64_t k;
    } rows[] = {
        {"not promoted", 5, {.order = NG_SUM_MMA, .mma = WGMMA_FP8}, {.order = NG_SUM_MMA, .mma = WGMMA_FP8, .promote_every = 4}, 4096},
        {"13 fraction bits for 25", 5, {.order = NG_SUM_MMA, .mma = WGMMA_FP8}, {.order = NG_SUM_MMA, .mma = SYNC_FP8}, 128},
        {"13 fraction bits for binary32", 5, {.order = NG_SUM_MMA, .mma = WGMMA_FP8}, {.order = NG_SUM_CHAIN}, 64},
        {"binary32 for binary64", 1, {.order = NG_SUM_CHAIN}, {.order = NG_SUM_FP64}, 64},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        uint64_t state = r + 1;
        ng_operand a = new_operand(&forms[rows[r].form], POSITIVE, 4, rows[r].k, false, &state);
        ng_operand b = new_operand(&forms[rows[r].form], POSITIVE, 4, rows[r].k, true, &state);
        ng_exact_product exact;
        double bound[16], largest = 0;
        terms *t = malloc(sizeof *t);
        cr_assert(t && ng_exact_gemm(&a, &b, NULL, 2, &exact) == NG_OK);
        cr_assert(ng_gemm_bound(&rows[r].claimed, &a, &b, NULL, &exact, 2, bound, NULL) == NG_OK);
        for (int e = 0; e < 16; e++) {
            double computed = simulate(&rows[r].actual, &a, &b, NULL, e / 4, e % 4, t);
            largest = fmax(largest, fabs((computed - exact.high[e]) - exact.low[e]) / bound[e]);
        }
        cr_expect(largest > 1, "%s: error / bound only %g", rows[r].name, largest);
        free(t);
        ng_exact_product_free(&exact);
        free_operand(&a);
        free_operand(&b);
    }
}

static double one_bound(const ng_accumulation *sum, float x, float y, const ng_tensor *initial) {
    ng_operand a = {.codes = {&x, NG_FP32, NG_HOST, 1, 1, 4}, .tensor_scale = 1};
    ng_operand b = {.codes = {&y, NG_FP32, NG_HOST, 1, 1, 4}, .tensor_scale = 1};
    ng_exact_product exact;
    double bound = NAN;
    cr_assert(ng_exact_gemm(&a, &b, initial, 1, &exact) == NG_OK);
    cr_assert(ng_gemm_bound(sum, &a, &b, initial, &exact, 1, &bound, NULL) == NG_OK);
    ng_exact_product_free(&exact);
    return bound;
}

static void bounds_at_the_edges(void) {
    static const ng_accumulation chain_sum = {.order = NG_SUM_CHAIN}, mma = {.order = NG_SUM_MMA, .mma = WGMMA_FP8};
    cr_expect(isinf(one_bound(&chain_sum, 0x1p100f, 0x1p28f, NULL)), "2^128 overflows");
    cr_expect(isfinite(one_bound(&chain_sum, 0x1p100f, 0x1p27f, NULL)), "2^127 does not");
    cr_expect(one_bound(&chain_sum, INFINITY, 1, NULL) == 0 && one_bound(&chain_sum, NAN, 1, NULL) == 0, "special");
    cr_expect(one_bound(&chain_sum, 0x1p-100f, 0x1.8p-60f, NULL) >= 0x1.8p-160, "a product that underflows to 0");
    ng_operand a = new_operand(&forms[0], NORMAL, 1, 1, false, &(uint64_t){1});
    ng_exact_product exact;
    double bound;
    cr_assert(ng_exact_gemm(&a, &a, NULL, 1, &exact) == NG_OK);
    cr_expect(ng_gemm_bound(&chain_sum, &a, &a, NULL, &exact, 1, &bound, NULL) == NG_UNSUPPORTED, "fp64 operands");
    free_operand(&a);
    a = new_operand(&forms[14], NORMAL, 1, 1, false, &(uint64_t){1});
    cr_expect(ng_gemm_bound(&mma, &a, &a, NULL, &exact, 1, &bound, NULL) == NG_UNSUPPORTED, "scales without a place");
    cr_expect(ng_gemm_bound(&mma, &a, &a, NULL, NULL, 1, &bound, NULL) == NG_BAD_ARGUMENT);
    free_operand(&a);
    ng_exact_product_free(&exact);
}

static void bounds_do_not_depend_on_threads(void) {
    enum { N = 80, K = 300 };
    static const ng_accumulation sum = {.order = NG_SUM_MMA, .mma = HOPPER_16};
    uint64_t state = 3;
    ng_operand a = new_operand(&forms[3], NORMAL, N, K, false, &state), b = new_operand(&forms[3], NORMAL, N, K, true, &state);
    double one[N * N], two[N * N];
    ng_exact_product exact;
    cr_assert(ng_exact_gemm(&a, &b, NULL, 2, &exact) == NG_OK);
    cr_assert(ng_gemm_bound(&sum, &a, &b, NULL, &exact, 1, one, NULL) == NG_OK);
    cr_assert(ng_gemm_bound(&sum, &a, &b, NULL, &exact, 2, two, NULL) == NG_OK);
    cr_expect(!memcmp(one, two, sizeof one));
    ng_exact_product_free(&exact);
    free_operand(&a);
    free_operand(&b);
}

/* ---- accepted intervals ---------------------------------------------------------------------------------------------*/
static void known_intervals(void) {
    static const ng_cast to_even = {.rounding = NG_RN_EVEN}, saturating = {.rounding = NG_RN_EVEN, .saturate = true},
                         away = {.rounding = NG_RN_AWAY}, stochastic = {.rounding = NG_R_STOCHASTIC, .random_bits = 8};
    static const struct {
        ng_format_id format;
        const ng_cast *cast;
        double high, low, bound, lowest, highest;
    } rows[] = {
        {NG_BF16, &to_even, 0x1.01p0, 0, 0, 1, 1}, /* a tie: half away from zero is found out */
        {NG_BF16, &away, 0x1.01p0, 0, 0, 0x1.02p0, 0x1.02p0},
        {NG_BF16, &to_even, 0x1.01p0, 0x1p-80, 0, 0x1.02p0, 0x1.02p0},
        {NG_BF16, &to_even, 0x1.01p0, 0, 0x1p-80, 1, 0x1.02p0},
        {NG_BF16, &to_even, 0x1.02p0, 0, 0x1p-9, 0x1.02p0, 0x1.02p0},
        {NG_BF16, &to_even, -0x1.02p0, 0, 0x1.1p-8, -0x1.04p0, -1},
        {NG_FP32, &to_even, 1, 0x1p-54, 0x1p-24, 0x1.fffffep-1, 0x1.000002p0}, /* 1 + 2^-24 + 2^-54 is beyond the tie */
        {NG_FP32, &to_even, 0, 0, 0, 0, 0},
        {NG_E4M3, &to_even, 464, 0, 0, 448, 448},
        {NG_E4M3, &to_even, 464, 0, 1, 448, INFINITY}, /* NaN */
        {NG_E4M3, &saturating, 464, 0, 1, 448, 448},
        {NG_E5M2, &to_even, 61440, 0, 1, 57344, INFINITY},
        {NG_E4M3, &stochastic, 1.01, 0, 0, 1, 1.125},
        {NG_E4M3, &stochastic, -1.01, 0, 0, -1.125, -1},
        {NG_E4M3, &stochastic, 1.125, 0, 0, 1.125, 1.125},
        {NG_FP32, &to_even, INFINITY, 0, 0, INFINITY, INFINITY},
        {NG_FP32, &to_even, 1, 0, INFINITY, -INFINITY, INFINITY},
        {NG_FP32, &to_even, 0x1.fffffep127, 0, 0x1p103, 0x1.fffffcp127, INFINITY}, /* ties, both */
        {NG_FP32, &to_even, 1, -0x1p-54, 0x1p-24, 0x1.fffffep-1, 1}, /* low keeps it below the tie */
        /* c - B is above the tie by 2^-107, but what the product left out of low may be as much: outward. */
        {NG_BF16, &to_even, 0x1.03p0, 0x1p-54, 0x1.fffffffffffffp-55, 0x1.02p0, 0x1.04p0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double lowest, highest;
        cr_assert(ng_accepted_interval(rows[i].format, rows[i].cast, rows[i].high, rows[i].low, rows[i].bound, &lowest,
                                       &highest) == NG_OK);
        cr_expect(lowest == rows[i].lowest && highest == rows[i].highest, "row %zu: [%a, %a]", i, lowest, highest);
    }
    double lowest, highest;
    cr_expect(ng_accepted_interval(NG_BF16, &to_even, NAN, 0, 1, &lowest, &highest) == NG_OK && isnan(lowest) && isnan(highest));
    cr_expect(ng_accepted_interval(NG_BF16, &to_even, 1, 0, -1, &lowest, &highest) == NG_BAD_ARGUMENT);
    cr_expect(ng_accepted_interval(NG_BF16, &to_even, 1, 0, NAN, &lowest, &highest) == NG_BAD_ARGUMENT);
}

static double mpfr_end(ng_format_id format, const ng_cast *cast, double high, double low, double shift) {
    mpfr_t c;
    mpfr_init2(c, 2200);
    mpfr_set_d(c, high, MPFR_RNDN);
    mpfr_add_d(c, c, low, MPFR_RNDN);
    mpfr_add_d(c, c, shift, MPFR_RNDN);
    double value = ng_decode(format, ng_round_mpfr(format, c, cast, 0));
    mpfr_clear(c);
    return value;
}

/* Never inside MPFR's interval, and outside only where c +- B is within 2^-100 of a boundary of rounding, that is, never here. */
static void intervals_agree_with_mpfr(void) {
    static const ng_format_id formats[] = {NG_FP32, NG_BF16, NG_FP16, NG_E4M3, NG_E5M2, NG_E2M1};
    static const ng_rounding modes[] = {NG_RN_EVEN, NG_RN_AWAY, NG_R_ZERO, NG_R_UP};
    uint64_t state = 11;
    for (int i = 0; i < 20000; i++) {
        ng_format_id format = formats[next(&state) % 6];
        ng_cast cast = {.rounding = modes[next(&state) % 4], .saturate = true};
        double high = ldexp(uniform(&state) - 0.5, (int)(next(&state) % 24) - 12);
        double low = ldexp(high * (uniform(&state) - 0.5), -53), lowest, highest;
        double bound = next(&state) % 4 ? ldexp(fabs(high) * uniform(&state), -(int)(next(&state) % 70)) : 0;
        cr_assert(ng_accepted_interval(format, &cast, high, low, bound, &lowest, &highest) == NG_OK);
        cr_expect(lowest == mpfr_end(format, &cast, high, low, -bound) && highest == mpfr_end(format, &cast, high, low, bound),
                  "%s, mode %d, %a + %a +- %a: [%a, %a]", ng_formats[format].name, (int)cast.rounding, high, low, bound,
                  lowest, highest);
    }
}

/* A binary32 chain stored in bf16: every element is in its interval, and one bit flipped in any one of them is not. */
static void a_wrong_bit_is_noticed(void) {
    enum { N = 12, K = 64 };
    static const ng_accumulation sum = {.order = NG_SUM_CHAIN};
    uint64_t state = 21;
    ng_operand a = new_operand(&forms[5], POSITIVE, N, K, false, &state), b = new_operand(&forms[5], POSITIVE, N, K, true, &state);
    ng_exact_product exact;
    double bound[N * N];
    terms *t = malloc(sizeof *t);
    cr_assert(t && ng_exact_gemm(&a, &b, NULL, 2, &exact) == NG_OK);
    cr_assert(ng_gemm_bound(&sum, &a, &b, NULL, &exact, 2, bound, NULL) == NG_OK);
    for (int e = 0; e < N * N; e++) {
        double lowest, highest;
        uint64_t code = ng_round(NG_BF16, simulate(&sum, &a, &b, NULL, e / N, e % N, t), &nearest, 0);
        cr_assert(ng_accepted_interval(NG_BF16, &nearest, exact.high[e], exact.low[e], bound[e], &lowest, &highest) == NG_OK);
        double right = ng_decode(NG_BF16, code), wrong = ng_decode(NG_BF16, code ^ 1);
        cr_expect(lowest <= right && right <= highest, "element %d", e);
        cr_expect(lowest < highest || wrong < lowest || wrong > highest, "element %d: a wrong bit passes", e);
        cr_expect(ng_decode(NG_BF16, code ^ 4) < lowest || ng_decode(NG_BF16, code ^ 4) > highest, "element %d", e);
    }
    free(t);
    ng_exact_product_free(&exact);
    free_operand(&a);
    free_operand(&b);
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
    {"bounds", "hold in every order and are sharp", bounds_hold_and_are_sharp, 0},
    {"bounds", "notice other arithmetic", bounds_notice_other_arithmetic, 0},
    {"bounds", "at the edges", bounds_at_the_edges, 0},
    {"bounds", "do not depend on threads", bounds_do_not_depend_on_threads, 0},
    {"intervals", "known ones", known_intervals, 0},
    {"intervals", "agree with MPFR", intervals_agree_with_mpfr, 0},
    {"intervals", "a wrong bit is noticed", a_wrong_bit_is_noticed, 0},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
