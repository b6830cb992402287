/* What comes in: generated data, model descriptions, tensor files. */
#include "suites/test.h"

#include "harness/data.h"
#include "harness/data_core.h"
#include "harness/model.h"
#include "harness/tensorfile.h"
#include "reference/format.h"
#include "reference/round.h"
#include "suites/fuzz/targets.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <mpfr.h>
#include <Random123/philox.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- tensors for tests --------------------------------------------------------------------------------------------------*/
static ng_tensor make(ng_format_id format, int64_t rows, int64_t columns) {
    int64_t row_bytes = ng_row_bytes(format, columns);
    ng_tensor t = {calloc((size_t)(rows * row_bytes) + 1, 1), format, NG_HOST, rows, columns, row_bytes};
    cr_assert(t.data, "no memory");
    return t;
}

static ng_tensor filled(const ng_data_spec *spec, ng_format_id format, int64_t row0, int64_t column0, int64_t rows, int64_t columns,
                        int threads) {
    ng_tensor t = make(format, rows, columns);
    ng_error error = {0};
    cr_assert(!ng_data_fill(spec, row0, column0, &t, threads, &error), "%s: %s", ng_distribution_names[spec->distribution], error.text);
    return t;
}

static ng_data_spec generated(ng_distribution distribution, int64_t rows, int64_t columns) {
    return (ng_data_spec){.distribution = distribution, .seed = 20260729, .stream = 0, .target = NG_E4M3, .whole_rows = rows,
                          .whole_columns = columns};
}

static bool same_bytes(const ng_tensor *a, const ng_tensor *b) {
    return a->rows == b->rows && a->row_bytes == b->row_bytes && !memcmp(a->data, b->data, (size_t)(a->rows * a->row_bytes));
}

/* ---- random words --------------------------------------------------------------------------------------------------------*/
/* Random123's kat_vectors, philox4x32 with 10 rounds. */
static void philox_known_answers(void) {
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t out[4];
        const uint32_t *c = rows[i].counter;
        ng_core_philox(c[0], c[1], c[2], c[3], rows[i].key[0], rows[i].key[1], out);
        cr_expect(!memcmp(out, rows[i].out, sizeof out), "row %zu", i);
    }
}

/* The words that Random123 itself gives for the documented counter and key, at indices around every carry. */
static void words_are_random123(void) {
    static const uint64_t indices[] = {0, 1, 2, 3, 4, 127, 128, 4095, 4096, (1ull << 34) - 1, 1ull << 34, (1ull << 34) + 5, (1ull << 60) - 1};
    ng_data_core core = {.seed = 0x0123456789abcdef, .stream = 7};
    for (size_t i = 0; i < sizeof indices / sizeof *indices; i++)
        for (uint32_t draw = 0; draw < 4; draw++) {
            uint64_t block = indices[i] / 4;
            philox4x32_ctr_t counter = {{(uint32_t)block, (uint32_t)(block >> 32), 7, draw}};
            philox4x32_key_t key = {{0x89abcdef, 0x01234567}};
            philox4x32_ctr_t out = philox4x32(counter, key);
            cr_expect_eq(ng_core_word(&core, draw, indices[i]), out.v[indices[i] % 4], "index %" PRIu64, indices[i]);
        }
}

/* ---- the normal quantile ---------------------------------------------------------------------------------------------------*/
/* Distance of the cubic from the quantile, by a Newton step with MPFR's erfc: (erfc(z/sqrt 2) - p) / (2 phi(z)). */
static double quantile_error(uint32_t magnitude, mpfr_t p, mpfr_t z, mpfr_t density) {
    float value = ng_core_normal(magnitude << 1, ng_normal_table());
    mpfr_set_d(z, (double)value, MPFR_RNDN);
    mpfr_sqr(density, z, MPFR_RNDN);
    mpfr_div_si(density, density, -2, MPFR_RNDN);
    mpfr_exp(density, density, MPFR_RNDN);
    mpfr_mul_d(density, density, 0x1.9884533d43651p-1, MPFR_RNDN); /* 2 / sqrt(2 pi) */
    mpfr_mul_d(z, z, 0x1.6a09e667f3bcdp-1, MPFR_RNDN);
    mpfr_erfc(z, z, MPFR_RNDN);
    mpfr_set_ui_2exp(p, magnitude | 1, -31, MPFR_RNDN);
    mpfr_sub(z, z, p, MPFR_RNDN);
    mpfr_div(z, z, density, MPFR_RNDN);
    return fabs(mpfr_get_d(z, MPFR_RNDN));
}

/* data_normal.h derives the bound: an ulp of z, and 7e-8. */
static void normal_is_the_quantile(void) {
    mpfr_t p, z, density;
    double worst = 0, most = 0;
    uint32_t at = 0;
    mpfr_inits2(80, p, z, density, (mpfr_ptr)0);
    for (int e = 0; e < 31; e++)
        for (uint32_t s = 0; s < 16 * 9; s++) { /* nine places in each of the 496 cubics, both ends included */
            uint32_t magnitude = (uint32_t)ldexp(1 + ((double)(s / 9) + (double)(s % 9) / 8.001) / 16, e);
            double error = quantile_error(magnitude, p, z, density);
            float value = ng_core_normal(magnitude << 1, ng_normal_table());
            double ratio = error / ((double)(nextafterf(value, INFINITY) - value) + 7e-8);
            if (ratio > worst) worst = ratio, at = magnitude;
            most = fmax(most, error);
        }
    mpfr_clears(p, z, density, (mpfr_ptr)0);
    cr_expect_lt(worst, 1, "error / bound is %g at %" PRIu32, worst, at);
    cr_expect_gt(worst, 0.1, "error / bound is %g: not believable in binary32", worst);
    cr_expect_lt(most, 5.5e-7, "%g", most);
}

/* Exhaustive over the binary32 tail probabilities: a larger one never has a larger quantile. */
static void normal_is_monotone(void) {
    const float *table = ng_normal_table();
    float last = 100;
    int64_t steps_back = 0, count = 0;
    for (int e = 0; e <= 30; e++)
        for (uint32_t f = 0, n = 1u << (e < 23 ? e : 23); f < n; f++, count++) {
            float z = ng_core_normal(((1u << e) + (e < 23 ? f : f << (e - 23))) << 1, table);
            steps_back += z > last;
            last = z;
        }
    cr_expect_eq(steps_back, 0, "%" PRId64 " of %" PRId64, steps_back, count);
    cr_expect_eq(ng_core_normal(0, table), 0x1.8ebc96p+2f, "the largest is 6.2302");
}

/* ---- statistics --------------------------------------------------------------------------------------------------------------*/
typedef struct moments {
    double mean, variance, kurtosis;
} moments;

static moments moments_of(const float *x, int64_t n) {
    double s1 = 0, s2 = 0, s4 = 0;
    for (int64_t i = 0; i < n; i++)
        s1 += (double)x[i];
    double mean = s1 / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i] - mean;
        s2 += d * d, s4 += d * d * d * d;
    }
    return (moments){mean, s2 / (double)n, s4 / (double)n / (s2 / (double)n * (s2 / (double)n))};
}

/* Five standard errors of each moment at n = 2^22. Fourth and eighth moments of the true distributions give them. */
static void moments_are_right(void) {
    static const struct {
        ng_distribution distribution;
        double mean, mean_deviation, variance, variance_deviation, kurtosis, kurtosis_deviation;
    } rows[] = {
        {NG_NORMAL, 0, 1, 1, 1.4143, 3, 4.899},             /* sqrt 2, sqrt 24 */
        {NG_UNIFORM, 0, 0.57736, 1.0 / 3, 0.29815, 1.8, 1.06}, /* sqrt(1/3), sqrt(4/45) */
        {NG_POSITIVE, 0.5, 0.28868, 1.0 / 12, 0.0745, 1.8, 1.06},
        {NG_INTEGERS, 0, 2.582, 60.0 / 9, 5.86, 1.77, 1.1},  /* -4..4: variance 20/3, fourth moment 708/9 */
    };
    const int64_t n = 1 << 22;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ng_data_spec spec = generated(rows[i].distribution, 1024, n / 1024);
        ng_tensor t = filled(&spec, NG_FP32, 0, 0, spec.whole_rows, spec.whole_columns, 0);
        moments m = moments_of(t.data, n);
        double unit = 5 / sqrt((double)n);
        const char *name = ng_distribution_names[rows[i].distribution];
        cr_expect_lt(fabs(m.mean - rows[i].mean), unit * rows[i].mean_deviation, "%s: mean %g", name, m.mean);
        cr_expect_lt(fabs(m.variance - rows[i].variance), unit * rows[i].variance_deviation, "%s: variance %g", name, m.variance);
        cr_expect_lt(fabs(m.kurtosis - rows[i].kurtosis), unit * rows[i].kurtosis_deviation, "%s: kurtosis %g", name, m.kurtosis);
        free(t.data);
    }
}

/* P(|X| > x) of the true distributions; counts within five standard deviations of the binomial. */
static void tails_are_right(void) {
    static const struct {
        ng_distribution distribution;
        double x, probability;
    } rows[] = {
        {NG_NORMAL, 1, 0.31731050786291415},  {NG_NORMAL, 2, 0.04550026389635839},
        {NG_NORMAL, 3, 0.0026997960632601866}, {NG_NORMAL, 4, 6.334248366623984e-05},
        {NG_NORMAL, 4.5, 6.795346249460121e-06}, {NG_STUDENT, 3.182446305284263, 0.05},
        {NG_STUDENT, 5.840909309733357, 0.01}, {NG_STUDENT, 0.7648923284043471, 0.5},
        {NG_LOGNORMAL, 1, 0.5},               {NG_LOGNORMAL, 2.718281828459045, 0.15865525393145707},
        {NG_LOGNORMAL, 7.38905609893065, 0.022750131948179195}, {NG_LOGNORMAL, 0.1353352832366127, 0.9772498680518208},
    };
    const int64_t n = 1 << 21;
    ng_distribution held = NG_DISTRIBUTIONS;
    ng_tensor t = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].distribution != held) {
            ng_data_spec spec = generated(held = rows[i].distribution, 1024, n / 1024);
            free(t.data);
            t = filled(&spec, NG_FP32, 0, 0, spec.whole_rows, spec.whole_columns, 0);
        }
        const float *x = t.data;
        double expected = (double)n * rows[i].probability, count = 0;
        for (int64_t j = 0; j < n; j++)
            count += fabs((double)x[j]) > rows[i].x;
        cr_expect_lt(fabs(count - expected), 5 * sqrt(expected * (1 - rows[i].probability)) + 1, "%s: |x| > %g %g times, not %g",
                     ng_distribution_names[held], rows[i].x, count, expected);
    }
    free(t.data);
}

/* No correlation between neighbours along rows and columns, nor with another stream or seed; a lognormal's sign is even. */
static void nothing_correlates(void) {
    const int64_t rows = 1024, columns = 1000, n = rows * columns;
    ng_data_spec spec = generated(NG_NORMAL, rows, columns), stream = spec, seed = spec, sign = generated(NG_LOGNORMAL, rows, columns);
    stream.stream = 1, seed.seed++;
    ng_tensor t = filled(&spec, NG_FP32, 0, 0, rows, columns, 0), u = filled(&stream, NG_FP32, 0, 0, rows, columns, 0),
              v = filled(&seed, NG_FP32, 0, 0, rows, columns, 0), w = filled(&sign, NG_FP32, 0, 0, rows, columns, 0);
    const float *x = t.data, *y = u.data, *z = v.data, *s = w.data;
    double sums[6] = {0}, limit = 5 / sqrt((double)(n - columns));
    for (int64_t i = 0; i + columns < n; i++) {
        sums[0] += (double)(x[i] * x[i + 1]), sums[1] += (double)(x[i] * x[i + columns]), sums[2] += (double)(x[i] * y[i]);
        sums[3] += (double)(x[i] * z[i]), sums[4] += s[i] > 0 ? 1 : -1, sums[5] += (s[i] > 0 ? 1 : -1) * (fabsf(s[i]) > 1 ? 1 : -1);
    }
    for (int i = 0; i < 6; i++)
        cr_expect_lt(fabs(sums[i]) / (double)(n - columns), limit, "sum %d: %g", i, sums[i] / (double)(n - columns));
    free(t.data), free(u.data), free(v.data), free(w.data);
}

/* ---- the same bits, however they are asked for ------------------------------------------------------------------------------*/
static void rows_equal_elements(void) {
    for (int d = 0; d < NG_FILE_TENSOR; d++) {
        ng_data_spec spec = generated((ng_distribution)d, 77, 4999); /* odd, and more than a tile */
        ng_data_core core;
        int64_t wrong = 0;
        cr_assert(!ng_data_core_of(&spec, &core, NULL));
        ng_tensor t = filled(&spec, NG_FP64, 0, 0, 77, 4999, 1);
        for (int64_t i = 0; i < 77; i++)
            for (int64_t j = 0; j < 4999; j++) {
                double expected = ng_core_element(&core, i, j), found = ng_get_value(&t, i, j);
                wrong += !(isnan(expected) && isnan(found)) && memcmp(&expected, &found, sizeof found);
            }
        cr_expect_eq(wrong, 0, "%s: %" PRId64 " elements", ng_distribution_names[d], wrong);
        free(t.data);
    }
}

static void same_for_threads_windows_and_transposition(void) {
    static const ng_format_id formats[] = {NG_FP32, NG_BF16, NG_E2M1};
    for (int d = 0; d < NG_FILE_TENSOR; d++)
        for (int f = 0; f < 3; f++) {
            const int64_t rows = 96, columns = 1030;
            ng_data_spec spec = generated((ng_distribution)d, rows, columns), turned = spec;
            turned.transposed = true;
            const char *name = ng_distribution_names[d];
            ng_tensor whole = filled(&spec, formats[f], 0, 0, rows, columns, 1), two = filled(&spec, formats[f], 0, 0, rows, columns, 2),
                      part = filled(&spec, formats[f], 13, 250, 70, 531, 1),
                      across = filled(&turned, formats[f], 250, 13, 531, 70, 2);
            int64_t wrong = 0;
            for (int64_t i = 0; i < 70; i++)
                for (int64_t j = 0; j < 531; j++) {
                    uint64_t code = ng_get_code(&whole, 13 + i, 250 + j);
                    wrong += code != ng_get_code(&part, i, j) || code != ng_get_code(&across, j, i);
                }
            cr_expect(same_bytes(&whole, &two), "%s as %s: two threads differ from one", name, ng_formats[formats[f]].name);
            cr_expect_eq(wrong, 0, "%s as %s: %" PRId64 " elements of a window differ", name, ng_formats[formats[f]].name, wrong);
            free(whole.data), free(two.data), free(part.data), free(across.data);
        }
}

/* XXH3-64 of 64 x 300 elements in binary32, and in bf16. Any compiler, any machine. */
static const struct {
    uint64_t fp32, bf16;
} digests[NG_FILE_TENSOR] = {
    [NG_NORMAL] = {0xcf16c789a8d63b03, 0xbeb4885e5982edeb},
    [NG_UNIFORM] = {0x857bccc28d467a46, 0x64fe1a2ef21aaa89},
    [NG_POSITIVE] = {0x284934ad6abb5b24, 0x8573627e6df49323},
    [NG_LOGNORMAL] = {0x2c1aa7c79ed44e4a, 0xa4d85730d18e8ea4},
    [NG_OUTLIERS] = {0xe509446d5009fad7, 0x643b8ee660aed0e5},
    [NG_STUDENT] = {0x14828de0da64f459, 0xa425f0ac73a432c0},
    [NG_INTEGERS] = {0x90fb196ee8d4fad1, 0xad6ea9ccffd6b1df},
    [NG_ILL_CONDITIONED] = {0x2bcb43a8dd8f5d25, 0xfbc3e8c3027a9343},
    [NG_TIES] = {0x18e5b112f4bb71b7, 0x9c28708289a0bd9c},
    [NG_SUBNORMAL] = {0x7e3b164cff42e76a, 0x2cdb1672bbcdf187},
    [NG_ZERO_BLOCKS] = {0x6cab6a3e9c9412aa, 0x8fd5d3c4ba504cdb},
    [NG_BLOCK_EDGES] = {0xe1010a9888d852d0, 0xb41fb23476b761aa},
    [NG_NEAR_OVERFLOW] = {0xdee26d49edf54a39, 0xda72cc61f9447ad4},
    [NG_NONFINITE] = {0x4f924233b30e80b8, 0x1668a20218ffc537},
    [NG_LARGE_MEAN] = {0x0d7f09dca441c828, 0xc50d74f06497c3bc},
    [NG_CONSTANT] = {0x75aec6c06b41b25c, 0x927d29049d70e8af},
};

static void digests_are_golden(void) {
    for (int d = 0; d < NG_FILE_TENSOR; d++) {
        ng_data_spec spec = generated((ng_distribution)d, 64, 300);
        ng_tensor a = filled(&spec, NG_FP32, 0, 0, 64, 300, 1), b = filled(&spec, NG_BF16, 0, 0, 64, 300, 1);
        uint64_t fp32 = XXH3_64bits(a.data, 64 * 300 * 4), bf16 = XXH3_64bits(b.data, 64 * 300 * 2);
        cr_expect(fp32 == digests[d].fp32 && bf16 == digests[d].bf16, "%s: {0x%016" PRIx64 ", 0x%016" PRIx64 "}",
                  ng_distribution_names[d], fp32, bf16);
        free(a.data), free(b.data);
    }
}

static void amax_is_of_the_stored_values(void) {
    static const ng_format_id formats[] = {NG_FP32, NG_BF16, NG_FP16, NG_E4M3, NG_E5M2, NG_E2M1, NG_UE4M3, NG_E8M0};
    for (int d = 0; d < NG_FILE_TENSOR; d++)
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
            ng_data_spec spec = generated((ng_distribution)d, 40, 1025);
            ng_tensor t = filled(&spec, formats[f], 0, 0, 40, 1025, 1);
            double expected = 0, amax = -1;
            for (int64_t i = 0; i < 40; i++)
                for (int64_t j = 0; j < 1025; j++) {
                    double x = fabs(ng_get_value(&t, i, j));
                    expected = isnan(x) || x > expected ? x : expected;
                }
            cr_assert(!ng_data_amax(&spec, formats[f], 2, &amax, NULL));
            cr_expect(amax == expected || (isnan(amax) && isnan(expected)), "%s as %s: %g, not %g", ng_distribution_names[d],
                      ng_formats[formats[f]].name, amax, expected);
            free(t.data);
        }
}

/* ---- what distributions are for ----------------------------------------------------------------------------------------------*/
/* sum |a b| / |sum a b| in MPFR over a row of each operand. */
static double condition(const ng_tensor *a, int64_t i, const ng_tensor *b, int64_t j) {
    mpfr_t sum, magnitude, product;
    mpfr_inits2(600, sum, magnitude, product, (mpfr_ptr)0);
    mpfr_set_zero(sum, 1), mpfr_set_zero(magnitude, 1);
    for (int64_t k = 0; k < a->columns; k++) {
        mpfr_set_d(product, ng_get_value(a, i, k), MPFR_RNDN);
        mpfr_mul_d(product, product, ng_get_value(b, j, k), MPFR_RNDN);
        mpfr_add(sum, sum, product, MPFR_RNDN);
        mpfr_abs(product, product, MPFR_RNDN);
        mpfr_add(magnitude, magnitude, product, MPFR_RNDN);
    }
    mpfr_div(sum, magnitude, sum, MPFR_RNDN);
    double result = fabs(mpfr_get_d(sum, MPFR_RNDN));
    mpfr_clears(sum, magnitude, product, (mpfr_ptr)0);
    return result;
}

static void condition_is_reached(void) {
    static const struct {
        double condition;
        ng_format_id format;
    } rows[] = {{1e6, NG_BF16}, {1e6, NG_FP32}, {1e3, NG_E4M3}, {1e6, NG_E4M3}, {1e6, NG_FP16}, {1e12, NG_BF16}, {1e30, NG_BF16}, {1e30, NG_FP32}};
    const int64_t tokens = 96, out = 130, in = 257;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ng_data_spec x = generated(NG_ILL_CONDITIONED, tokens, in), w = generated(NG_ILL_CONDITIONED, out, in),
                     dy = generated(NG_ILL_CONDITIONED, tokens, out);
        x.parameter = w.parameter = dy.parameter = rows[r].condition;
        w.stream = 1, dy.stream = 2;
        ng_data_spec wt = w, xt = x, dyt = dy;
        wt.transposed = xt.transposed = dyt.transposed = true;
        const ng_data_spec *pairs[3][2] = {{&x, &w}, {&dy, &wt}, {&dyt, &xt}}; /* fprop, dgrad, wgrad */
        for (int p = 0; p < 3; p++) {
            const ng_data_spec *sa = pairs[p][0], *sb = pairs[p][1];
            int64_t m = sa->transposed ? sa->whole_columns : sa->whole_rows, k = sa->transposed ? sa->whole_rows : sa->whole_columns,
                    n = sb->transposed ? sb->whole_columns : sb->whole_rows;
            ng_tensor a = filled(sa, rows[r].format, 0, 0, m, k, 1), b = filled(sb, rows[r].format, 0, 0, n, k, 1);
            for (int64_t i = 1; i < m / 2 * 2; i += 7)
                for (int64_t j = 1; j < n / 2 * 2; j += 11) {
                    if (i == m / 2 || j == n / 2) continue; /* the broken terms of the other axis, like row 0 */
                    double reached = condition(&a, i, &b, j) / rows[r].condition;
                    cr_expect(reached > 0.5 && reached < 2, "phase %d, %s, %g: %g of it at %" PRId64 ", %" PRId64, p,
                              ng_formats[rows[r].format].name, rows[r].condition, reached, i, j);
                }
            free(a.data), free(b.data);
        }
    }
}

/* In every format with integers to 4 they are stored as they are, and 2^17 products of them sum below 2^24. */
static void integers_are_exact(void) {
    static const ng_format_id formats[] = {NG_TF32, NG_BF16, NG_FP16, NG_E4M3, NG_E5M2, NG_E3M2, NG_E2M3, NG_E2M1};
    ng_data_spec spec = generated(NG_INTEGERS, 30, 1000);
    ng_tensor exact = filled(&spec, NG_FP32, 0, 0, 30, 1000, 1);
    double largest = 0;
    cr_assert(!ng_data_amax(&spec, NG_FP32, 1, &largest, NULL));
    cr_expect_leq(largest * largest * 0x1p17, 0x1p24);
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        ng_tensor t = filled(&spec, formats[f], 0, 0, 30, 1000, 1);
        int64_t wrong = 0;
        for (int64_t i = 0; i < 30; i++)
            for (int64_t j = 0; j < 1000; j++)
                wrong += ng_get_value(&t, i, j) != ng_get_value(&exact, i, j);
        cr_expect_eq(wrong, 0, "%s", ng_formats[formats[f]].name);
        free(t.data);
    }
    free(exact.data);
}

/* Half of the elements but one in 16 are midpoints of the target, the rest lie beside one. */
static void ties_are_ties(void) {
    static const ng_format_id targets[] = {NG_BF16, NG_FP16, NG_E4M3, NG_E5M2, NG_E3M2, NG_E2M3, NG_E2M1, NG_UE4M3, NG_E8M0, NG_TF32, NG_FP32};
    for (size_t f = 0; f < sizeof targets / sizeof *targets; f++) {
        ng_data_spec spec = generated(NG_TIES, 64, 256);
        spec.target = targets[f];
        ng_tensor t = filled(&spec, NG_FP64, 0, 0, 64, 256, 1);
        int64_t ties = 0, above = 0, below = 0, elements = 64 * 256;
        for (int64_t i = 0; i < 64; i++)
            for (int64_t j = 0; j < 256; j++) {
                double x = fabs(ng_get_value(&t, i, j));
                uint64_t low, high;
                ng_neighbours(targets[f], x, &low, &high);
                double l = ng_decode(targets[f], low), h = ng_decode(targets[f], high), middle = (l + h) / 2;
                ties += low != high && x == middle, above += x > middle, below += x < middle;
            }
        cr_expect(ties > elements * 43 / 100 && ties < elements * 54 / 100, "%s: %" PRId64 " ties", ng_formats[targets[f]].name, ties);
        cr_expect(above > elements / 12 && below > elements / 12, "%s: %" PRId64 " above, %" PRId64 " below", ng_formats[targets[f]].name,
                  above, below);
        free(t.data);
    }
}

static void edges_are_at_the_edges(void) {
    static const ng_format_id targets[] = {NG_FP32, NG_BF16, NG_FP16, NG_E4M3, NG_E5M2, NG_E2M1};
    for (size_t f = 0; f < sizeof targets / sizeof *targets; f++) {
        const ng_format *format = &ng_formats[targets[f]];
        double normal = ldexp(1, format->emin), ulp = ldexp(1, format->emax - format->mantissa_bits);
        ng_data_spec small = generated(NG_SUBNORMAL, 64, 256), large = generated(NG_NEAR_OVERFLOW, 64, 256);
        small.target = large.target = targets[f];
        ng_tensor s = filled(&small, NG_FP64, 0, 0, 64, 256, 1), l = filled(&large, NG_FP64, 0, 0, 64, 256, 1);
        int64_t subnormal = 0, lost = 0, normals = 0, zeros = 0, largest = 0, tie = 0, over = 0, wild = 0;
        for (int64_t i = 0; i < 64; i++)
            for (int64_t j = 0; j < 256; j++) {
                double x = fabs(ng_get_value(&s, i, j)), y = fabs(ng_get_value(&l, i, j));
                subnormal += x < normal && x >= ldexp(normal, -format->mantissa_bits), lost += x > 0 && x < ldexp(normal, -format->mantissa_bits - 1);
                normals += x >= normal && x <= 4 * normal, zeros += x == 0, wild += x > 4 * normal && x != format->largest;
                largest += y == format->largest, tie += y == format->largest + ulp / 2, over += y > format->largest + ulp / 2;
                wild += y < format->largest / 2 || y > 2 * format->largest;
            }
        cr_expect(subnormal > 1000 && lost > 200 && normals > 1000 && zeros > 500 && largest > 1000 && tie > 1000 && over > 3000 && !wild,
                  "%s: %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "; %" PRId64 " %" PRId64 " %" PRId64 "; %" PRId64, format->name, subnormal,
                  lost, normals, zeros, largest, tie, over, wild);
        free(s.data), free(l.data);
    }
}

static void blocks_are_as_named(void) {
    ng_data_spec zero = generated(NG_ZERO_BLOCKS, 512, 1024), edge = generated(NG_BLOCK_EDGES, 256, 512);
    ng_tensor z = filled(&zero, NG_FP32, 0, 0, 512, 1024, 1), e = filled(&edge, NG_BF16, 0, 0, 256, 512, 1);
    int64_t blocks[3] = {0}, mixed = 0, powers = 0, above = 0, below = 0;
    for (int64_t i = 0; i < 256; i++)
        for (int64_t j = 0; j < 512; j += 16) {
            int zeros = 0, zeros32 = 0;
            double amax = 0;
            for (int64_t k = j; k < j + 32 && k < 512; k++) {
                zeros += k < j + 16 && ng_get_value(&z, i, k) == 0, zeros32 += ng_get_value(&z, i, k) == 0;
                if (k < j + 16) amax = fmax(amax, fabs(ng_get_value(&e, i, k)));
            }
            blocks[0] += zeros == 16, mixed += zeros > 1 && zeros < 16, blocks[1] += j % 32 == 0 && zeros32 == 32;
            int exponent;
            double f = frexp(amax, &exponent);
            powers += f == 0.5, above += f == 0.5 + 0x1p-8, below += f == 1 - 0x1p-8;
        }
    for (int64_t i = 0; i < 512; i += 128)
        for (int64_t j = 0; j < 1024; j += 128)
            blocks[2] += ng_get_value(&z, i, j) == 0 && ng_get_value(&z, i + 64, j + 64) == 0 && ng_get_value(&z, i + 127, j + 127) == 0;
    cr_expect(blocks[0] > 1500 && blocks[1] > 500 && blocks[2] >= 1 && !mixed, "%" PRId64 " %" PRId64 " %" PRId64 "; %" PRId64, blocks[0],
              blocks[1], blocks[2], mixed);
    cr_expect(powers > 1000 && above > 100 && below > 100, "%" PRId64 " powers of two, %" PRId64 " above, %" PRId64 " below", powers, above,
              below);
    free(z.data), free(e.data);
}

static void rows_and_columns_are_as_named(void) {
    ng_data_spec outliers = generated(NG_OUTLIERS, 200, 640), nonfinite = generated(NG_NONFINITE, 64, 640),
                 mean = generated(NG_LARGE_MEAN, 64, 4096), constant = generated(NG_CONSTANT, 64, 640);
    ng_tensor o = filled(&outliers, NG_FP32, 0, 0, 200, 640, 1), n = filled(&nonfinite, NG_E5M2, 0, 0, 64, 640, 1),
              m = filled(&mean, NG_FP32, 0, 0, 64, 4096, 1), c = filled(&constant, NG_FP32, 0, 0, 64, 640, 1);
    int large_columns = 0;
    for (int64_t j = 0; j < 640; j++) {
        double square = 0;
        for (int64_t i = 0; i < 200; i++)
            square += pow(ng_get_value(&o, i, j), 2) / 200;
        large_columns += square > 1000;
        cr_expect(square < 2 || square > 1000, "column %" PRId64 ": %g", j, square);
    }
    cr_expect_eq(large_columns, 10);
    int nan = 0, plus = 0, minus = 0, negative_zero = 0, rows = 0;
    for (int64_t i = 0; i < 64; i++) {
        int before = nan + plus + minus;
        for (int64_t j = 0; j < 640; j++) {
            double x = ng_get_value(&n, i, j);
            nan += isnan(x), plus += isinf(x) && x > 0, minus += isinf(x) && x < 0, negative_zero += x == 0 && signbit(x);
        }
        rows += nan + plus + minus > before;
    }
    cr_expect(rows == 8 && nan >= 2 && plus >= 2 && minus >= 2 && negative_zero > 400, "%d rows, %d NaN, %d, %d, %d", rows, nan, plus, minus,
              negative_zero);
    for (int64_t i = 0; i < 64; i++) {
        moments r = moments_of((const float *)m.data + i * 4096, 4096);
        double ratio = fabs(r.mean) / sqrt(r.variance);
        cr_expect(ratio > 9000 && ratio < 11000, "row %" PRId64 ": %g", i, ratio);
        for (int64_t j = 1; j < 640; j++)
            if (ng_get_code(&c, i, j) != ng_get_code(&c, i, 0)) cr_expect_fail("row %" PRId64 " is not constant", i);
        cr_expect(i == 0 || ng_get_code(&c, i, 0) != ng_get_code(&c, i - 1, 0), "rows %" PRId64 " are equal", i);
    }
    free(o.data), free(n.data), free(m.data), free(c.data);
}

static void bad_specs_are_refused(void) {
    ng_data_spec good = generated(NG_NORMAL, 10, 10), specs[8];
    static const char *const texts[] = {"no distribution 99", "elements", "parameter -1", "parameter nan", "target format", "target format",
                                        "no tensor", "[5 +6"};
    ng_tensor t = make(NG_FP32, 6, 6);
    for (int i = 0; i < 8; i++)
        specs[i] = good;
    specs[0].distribution = (ng_distribution)99, specs[1].whole_rows = specs[1].whole_columns = INT64_MAX / 2;
    specs[2].parameter = -1, specs[3].parameter = NAN;
    specs[4].distribution = NG_TIES, specs[4].target = NG_NO_FORMAT, specs[5].distribution = NG_SUBNORMAL, specs[5].target = NG_FP64;
    specs[6].distribution = NG_FILE_TENSOR;
    for (int i = 0; i < 8; i++) {
        ng_error error = {0};
        cr_expect_eq(ng_data_fill(&specs[i], 5, 0, &t, 1, &error), NG_BAD_ARGUMENT, "row %d", i);
        cr_expect(strstr(error.text, texts[i]), "row %d: %s", i, error.text);
    }
    ng_distribution d;
    ng_error error = {0};
    cr_expect(!ng_distribution_by_name("block-edges", &d, NULL) && d == NG_BLOCK_EDGES);
    cr_expect(ng_distribution_by_name("gauss", &d, &error) == NG_BAD_ARGUMENT && strstr(error.text, "\"gauss\"; there are: normal uniform"));
    free(t.data);
}

/* ---- tensor files -------------------------------------------------------------------------------------------------------------*/
/* A safetensors file from its header and data bytes; header_length < 0: the header's own. */
static size_t safetensors(unsigned char *file, const char *header, int64_t header_length, const void *data, size_t data_bytes) {
    size_t length = strlen(header);
    uint64_t stated = header_length < 0 ? length : (uint64_t)header_length;
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(stated >> (8 * i));
    memcpy(file + 8, header, length);
    memcpy(file + 8 + length, data, data_bytes);
    return 8 + length + data_bytes;
}

static void safetensors_are_read(void) {
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"}, \"w\":{\"dtype\":\"BF16\",\"shape\":[2,1,2],\"data_offsets\":[0,8]},"
                                 "\"b\":{\"shape\":[2],\"data_offsets\":[8,16],\"dtype\":\"F32\",\"later\":[{\"x\":1}]},"
                                 "\"q\\u00e9\":{\"dtype\":\"F8_E4M3\",\"shape\":[],\"data_offsets\":[16,17]},"
                                 "\"step\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[17,21]}}";
    static const unsigned char data[] = {0x80, 0x3f, 0x00, 0xc0, 0x80, 0x7f, 0xc0, 0x7f, 0, 0, 0xc0, 0x3f, 1, 0, 0, 0x80, 0x7e, 9, 9, 9, 9};
    unsigned char bytes[1024];
    size_t size = safetensors(bytes, header, -1, data, sizeof data), index = 9;
    ng_tensor_file *file = NULL;
    ng_error error = {0};
    cr_assert(!ng_tensor_file_parse(bytes, size, "model.safetensors", &file, &error), "%s", error.text);
    cr_assert_eq(ng_tensor_file_count(file), 4);
    cr_expect(!ng_tensor_file_find(file, "w", &index, &error) && index == 0);
    const ng_file_tensor *w = ng_tensor_file_tensor(file, 0), *b = ng_tensor_file_tensor(file, 1), *q = ng_tensor_file_tensor(file, 2);
    cr_expect(w->rows == 2 && w->columns == 2 && w->format == NG_BF16 && !strcmp(w->type, "BF16"));
    cr_expect(b->rows == 1 && b->columns == 2 && b->format == NG_FP32);
    cr_expect(q->rows == 1 && q->columns == 1 && q->format == NG_E4M3 && !strcmp(q->name, "q\xc3\xa9"));
    ng_data_spec spec = {.distribution = NG_FILE_TENSOR, .file = file, .file_index = 0, .whole_rows = 2, .whole_columns = 2};
    ng_tensor t = filled(&spec, NG_FP32, 0, 0, 2, 2, 1);
    const float *x = t.data;
    cr_expect(x[0] == 1 && x[1] == -2 && isinf(x[2]) && isnan(x[3]));
    free(t.data);
    spec.file_index = 1, spec.whole_rows = 1;
    t = filled(&spec, NG_FP64, 0, 0, 1, 2, 1);
    cr_expect(ng_get_value(&t, 0, 0) == 1.5 && ng_get_value(&t, 0, 1) == -0x1p-149);
    free(t.data);
    spec.whole_columns = 3;
    t = make(NG_FP32, 1, 3);
    cr_expect(ng_data_fill(&spec, 0, 0, &t, 1, &error) == NG_BAD_ARGUMENT && strstr(error.text, "tensor \"b\" is 1 x 2; 1 x 3 asked for"), "%s", error.text);
    free(t.data);
    cr_expect(ng_tensor_file_find(file, "step", &index, &error) == NG_UNSUPPORTED &&
                  !strcmp(error.text, "model.safetensors: tensor \"step\" has type I32; expected F32, BF16, F16 or an 8-bit float"), "%s", error.text);
    cr_expect(ng_tensor_file_find(file, "stop", &index, &error) == NG_BAD_ARGUMENT && strstr(error.text, "did you mean \"step\"?"), "%s", error.text);
    cr_expect(ng_tensor_file_find(file, "attention.weight", &index, &error) == NG_BAD_ARGUMENT &&
                  strstr(error.text, "there are \"w\", \"b\""), "%s", error.text);
    ng_tensor_file_close(file);
}

#define ONE(type, shape, offsets) "{\"a\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(first, second) "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" first "},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" second "}}"
#define DEEP "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["

static void bad_safetensors_are_refused(void) {
    static const struct {
        int line;
        const char *header;
        int64_t header_length;
        size_t data_bytes;
        const char *message;
    } rows[] = {
        {__LINE__, "", 1000, 0, "a header of 1000 bytes in a file of 8: truncated"},
        {__LINE__, "{}", INT64_MAX, 0, "a header of 9223372036854775807 bytes in a file of 10"},
        {__LINE__, "{}", -1, 0, "no tensors"},
        {__LINE__, "", -1, 0, "not a JSON object"},
        {__LINE__, "[1]", -1, 0, "not a JSON object"},
        {__LINE__, "{\"a\":1}", -1, 0, "tensor \"a\" is not an object"},
        {__LINE__, "{\"a\":{}}", -1, 0, "tensor \"a\" has no \"dtype\""},
        {__LINE__, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", -1, 4, "tensor \"a\" has no \"data_offsets\""},
        {__LINE__, "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F16\"}}", -1, 4, "tensor \"a\" has two members \"dtype\""},
        {__LINE__, ONE("F32", "[1]", "[0,4]") "x", -1, 4, "something follows the object"},
        {__LINE__, ONE("F32", "[1]", "[0,4]"), -1, 3, "tensor \"a\" ends at byte 4 of the data, of which the file has 3"},
        {__LINE__, ONE("F32", "[1]", "[0,4]"), -1, 5, "bytes 4 to 5 of the data belong to no tensor"},
        {__LINE__, ONE("F32", "[1]", "[4,8]"), -1, 8, "bytes 0 to 4 of the data belong to no tensor"},
        {__LINE__, ONE("F32", "[1]", "[4,0]"), -1, 4, "data_offsets 4, 0 are reversed"},
        {__LINE__, ONE("F32", "[2]", "[0,4]"), -1, 4, "1 x 2 elements of F32 take another size than its 4 bytes"},
        {__LINE__, ONE("I64", "[1]", "[0,4]"), -1, 4, "1 x 1 elements of I64 take another size"},
        {__LINE__, ONE("F32", "[4294967296,4294967296,4294967297]", "[0,4]"), -1, 4, "its shape has more than 2^60 elements"},
        {__LINE__, ONE("F32", "[1152921504606846977]", "[0,4]"), -1, 4, "its shape has more than 2^60 elements"},
        {__LINE__, ONE("F32", "[18446744073709551617]", "[0,4]"), -1, 4, "shape does not fit in 64 bits"},
        {__LINE__, ONE("F32", "[-1]", "[0,4]"), -1, 4, "shape is not a whole number from 0"},
        {__LINE__, ONE("F32", "[1.0]", "[0,4]"), -1, 4, "shape is not a whole number from 0"},
        {__LINE__, ONE("F32", "[1e0]", "[0,4]"), -1, 4, "shape is not a whole number from 0"},
        {__LINE__, ONE("F32", "[01]", "[0,4]"), -1, 4, "shape is not a whole number from 0"},
        {__LINE__, ONE("F32", "1", "[0,4]"), -1, 4, "shape is not an array"},
        {__LINE__, ONE("F32", "[1]", "[0,-4]"), -1, 4, "data_offsets is not a whole number from 0"},
        {__LINE__, ONE("F32", "[1]", "[0]"), -1, 4, "expected ','"},
        {__LINE__, ONE("F32", "[1]", "4"), -1, 4, "data_offsets is not an array"},
        {__LINE__, TWO("[0,4]", "[2,6]"), -1, 6, "tensors \"a\" and \"b\" overlap at byte 2"},
        {__LINE__, TWO("[0,4]", "[0,4]"), -1, 4, "overlap at byte 0"},
        {__LINE__, TWO("[0,4]", "[6,10]"), -1, 10, "bytes 4 to 6 of the data belong to no tensor"},
        {__LINE__, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         -1, 8, "two tensors named \"a\""},
        {__LINE__, "{\"\xff\":1}", -1, 0, "header byte 2: not UTF-8"},
        {__LINE__, "{\"\xed\xa0\x80\":1}", -1, 0, "header byte 2: not UTF-8"},
        {__LINE__, "{\"a\nb\":1}", -1, 0, "or a control character"},
        {__LINE__, "{\"\\u0000\":1}", -1, 0, "not a character"},
        {__LINE__, "{\"\\ud800\":1}", -1, 0, "not a character"},
        {__LINE__, "{\"a\\", -1, 0, "not a character"},
        {__LINE__, "{\"a", -1, 0, "a string has no end"},
        {__LINE__, "{\"a\\u000ab\":1}", -1, 0, "tensor \"a?b\" is not an object"},
        {__LINE__, "{\"__metadata__\":1}", -1, 0, "\"__metadata__\" is not an object"},
        {__LINE__, "{\"__metadata__\":{\"a\":" DEEP, -1, 0, "nested more than 32 deep"},
        {__LINE__, "{\"a\":{\"x\":" DEEP, -1, 0, "nested more than 32 deep"},
        {__LINE__, "{\"a\":{\"x\":nul}}", -1, 0, "not JSON"},
        {__LINE__, ONE("F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,4]"), -1, 4, "more than 32 dimensions"},
        {__LINE__, ONE("A_TYPE_WITH_A_VERY_LONG_NAME", "[1]", "[0,4]"), -1, 4, "a string of more than 23 bytes"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned char bytes[2048];
        const char data[16] = {0};
        size_t size = safetensors(bytes, rows[i].header, rows[i].header_length, data, rows[i].data_bytes);
        unsigned char *exact = malloc(size); /* of that size, so that a sanitizer sees a byte too many */
        cr_assert(exact);
        memcpy(exact, bytes, size);
        ng_tensor_file *file = NULL;
        ng_error error = {0};
        cr_expect_eq(ng_tensor_file_parse(exact, size, "a.safetensors", &file, &error), NG_IO, "line %d was accepted", rows[i].line);
        cr_expect(!strncmp(error.text, "a.safetensors: ", 15) && strstr(error.text, rows[i].message), "line %d: %s", rows[i].line, error.text);
        ng_tensor_file_close(file);
        free(exact);
    }
}

static size_t npy(unsigned char *file, int version, const char *header, size_t data_bytes) {
    size_t length = strlen(header), prefix = version == 1 ? 10 : 12;
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (unsigned char)version, file[7] = 0;
    file[8] = (unsigned char)length, file[9] = (unsigned char)(length >> 8), file[10] = file[11] = 0;
    memcpy(file + prefix, header, length);
    memset(file + prefix + length, 0x3c, data_bytes);
    return prefix + length + data_bytes;
}

#define NPY(type, order, shape) "{'descr': '" type "', 'fortran_order': " order ", 'shape': " shape ", }   \n"

static void npy_is_read_or_refused(void) {
    static const struct {
        int line, version;
        const char *header;
        size_t data_bytes;
        int64_t rows, columns;
        ng_format_id format;
        const char *message; /* NULL: it is read */
    } rows[] = {
        {__LINE__, 1, NPY("<f4", "False", "(2, 3)"), 24, 2, 3, NG_FP32, NULL},
        {__LINE__, 2, NPY("<f2", "False", "(2, 3, 5)"), 60, 6, 5, NG_FP16, NULL},
        {__LINE__, 3, NPY("<f8", "False", "(7,)"), 56, 1, 7, NG_FP64, NULL},
        {__LINE__, 1, NPY("<f4", "False", "()"), 4, 1, 1, NG_FP32, NULL},
        {__LINE__, 1, NPY("<f4", "True", "(3,)"), 12, 1, 3, NG_FP32, NULL},
        {__LINE__, 1, "{\"shape\":(1,),\"descr\":\"<f4\",\"fortran_order\":False}", 4, 1, 1, NG_FP32, NULL},
        {__LINE__, 1, NPY("<f4", "False", "(0, 3)"), 0, 0, 3, NG_FP32, NULL},
        {__LINE__, 1, NPY("<f4", "True", "(2, 3)"), 24, 0, 0, NG_FP32, "is in Fortran order; save numpy.ascontiguousarray(x)"},
        {__LINE__, 1, NPY("|u1", "False", "(4,)"), 4, 0, 0, NG_FP32, "has type '|u1'; expected '<f2', '<f4' or '<f8'"},
        {__LINE__, 1, NPY(">f4", "False", "(1,)"), 4, 0, 0, NG_FP32, "has type '>f4'"},
        {__LINE__, 1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4, 0, 0, NG_FP32, "has a structured type"},
        {__LINE__, 1, NPY("<f4", "False", "(2, 3)"), 23, 0, 0, NG_FP32, "2 x 3 elements of '<f4' take another size than the 23 bytes"},
        {__LINE__, 1, NPY("<f4", "False", "(2, 3)"), 25, 0, 0, NG_FP32, "another size than the 25 bytes"},
        {__LINE__, 1, NPY("<f4", "False", "(4294967296, 4294967296, 4294967296)"), 4, 0, 0, NG_FP32, "more than 2^60 elements"},
        {__LINE__, 1, NPY("<f4", "False", "(-1,)"), 4, 0, 0, NG_FP32, "shape is not a whole number from 0"},
        {__LINE__, 1, NPY("<f4", "False", "(1.0,)"), 4, 0, 0, NG_FP32, "shape is not a whole number from 0"},
        {__LINE__, 1, NPY("<f4", "False", "(1)"), 4, 0, 0, NG_FP32, "shape is not a tuple"},
        {__LINE__, 1, NPY("<f4", "False", "[1]"), 4, 0, 0, NG_FP32, "shape is not a tuple"},
        {__LINE__, 1, NPY("<f4", "0", "(1,)"), 4, 0, 0, NG_FP32, "header byte"},
        {__LINE__, 1, "{'descr': '<f4', 'shape': (1,)}", 4, 0, 0, NG_FP32, "the header has no 'fortran_order'"},
        {__LINE__, 1, "{'descr': '<f4', 'descr': '<f4'}", 4, 0, 0, NG_FP32, "two members 'descr'"},
        {__LINE__, 1, "{'x': 1}", 4, 0, 0, NG_FP32, "unknown member 'x'"},
        {__LINE__, 1, "", 0, 0, 0, NG_FP32, "expected '{'"},
        {__LINE__, 4, NPY("<f4", "False", "(1,)"), 4, 0, 0, NG_FP32, "version 4.0; expected 1 to 3"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned char bytes[512];
        size_t size = npy(bytes, rows[i].version, rows[i].header, rows[i].data_bytes);
        ng_tensor_file *file = NULL;
        ng_error error = {0};
        ng_status status = ng_tensor_file_parse(bytes, size, "folder/grad.npy", &file, &error);
        if (rows[i].message) {
            cr_expect(status == NG_IO && strstr(error.text, rows[i].message) && !strncmp(error.text, "folder/grad.npy: ", 17), "line %d: %s",
                      rows[i].line, error.text);
        } else {
            cr_assert(!status, "line %d: %s", rows[i].line, error.text);
            const ng_file_tensor *t = ng_tensor_file_tensor(file, 0);
            cr_expect(t->rows == rows[i].rows && t->columns == rows[i].columns && t->format == rows[i].format && !strcmp(t->name, "grad"),
                      "line %d: %" PRId64 " x %" PRId64, rows[i].line, t->rows, t->columns);
            cr_expect_eq(ng_tensor_file_operand(file, 0, &error) != NG_OK, t->rows == 0, "line %d", rows[i].line);
        }
        ng_tensor_file_close(file);
    }
    for (size_t size = 0; size < 90; size++) { /* cut anywhere */
        unsigned char bytes[512];
        ng_tensor_file *file = NULL;
        npy(bytes, 1, rows[0].header, 24);
        cr_expect(ng_tensor_file_parse(bytes, size, "a.npy", &file, NULL), "%zu bytes were accepted", size);
    }
}

/* Storing into binary32 and bf16 is integer arithmetic of data.c's own: held against ng_round at every upper half. */
static void fast_rounding_is_rounding(void) {
    static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    const size_t count = 65536 * 6;
    char header[128];
    snprintf(header, sizeof header, NPY("<f4", "False", "(65536, 6)"));
    unsigned char *bytes = malloc(256 + 4 * count);
    cr_assert(bytes);
    size_t start = npy(bytes, 1, header, 0);
    for (size_t i = 0; i < count; i++) {
        uint32_t word = (uint32_t)(i / 6) << 16 | low[i % 6];
        memcpy(bytes + start + 4 * i, &word, 4);
    }
    ng_tensor_file *file = NULL;
    ng_error error = {0};
    cr_assert(!ng_tensor_file_parse(bytes, start + 4 * count, "a.npy", &file, &error), "%s", error.text);
    ng_data_spec spec = {.distribution = NG_FILE_TENSOR, .file = file, .whole_rows = 65536, .whole_columns = 6};
    for (int f = NG_FP32; f <= NG_BF16; f++) {
        ng_tensor t = filled(&spec, (ng_format_id)f, 0, 0, 65536, 6, 2);
        int64_t wrong = 0;
        for (size_t i = 0; i < count; i++) {
            float x;
            memcpy(&x, bytes + start + 4 * i, 4);
            ng_cast cast = {.rounding = NG_RN_EVEN, .saturate = !isinf(x)};
            wrong += ng_get_code(&t, (int64_t)(i / 6), (int64_t)(i % 6)) != ng_round((ng_format_id)f, (double)x, &cast, 0);
        }
        cr_expect_eq(wrong, 0, "%s: %" PRId64 " of %zu", ng_formats[f].name, wrong, count);
        free(t.data);
    }
    ng_tensor_file_close(file);
    free(bytes);
}

/* A sparse file of 10 GB: read at its ends, in little memory. */
static void ten_gigabytes_are_mapped(void) {
    const int64_t rows = 1 << 20, columns = 5000;
    const char *folder = getenv("TMPDIR");
    char path[512], header[200];
    snprintf(path, sizeof path, "%s/narrowgauge-XXXXXX.safetensors", folder ? folder : "/tmp");
    int fd = mkstemps(path, 12);
    if (fd < 0) cr_skip_test("no temporary file can be made");
    snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"BF16\",\"shape\":[%" PRId64 ",%" PRId64 "],\"data_offsets\":[0,%" PRId64 "]}}", rows, columns,
             2 * rows * columns);
    unsigned char bytes[512];
    size_t size = safetensors(bytes, header, -1, "", 0);
    off_t whole = (off_t)size + 2 * rows * columns;
    if (write(fd, bytes, size) != (ssize_t)size || ftruncate(fd, whole) || pwrite(fd, "\x80\x3f", 2, whole - 2) != 2) {
        close(fd), unlink(path);
        cr_skip_test("no sparse file of 10 GB can be made");
    }
    close(fd);
    ng_tensor_file *file = NULL;
    ng_error error = {0};
    ng_status status = ng_tensor_file_open(path, &file, &error);
    unlink(path);
    cr_assert(!status, "%s", error.text);
    ng_data_spec spec = {.distribution = NG_FILE_TENSOR, .file = file, .whole_rows = rows, .whole_columns = columns};
    ng_tensor end = filled(&spec, NG_BF16, rows - 64, 0, 64, columns, 1), begin = filled(&spec, NG_BF16, 0, 0, 64, columns, 1);
    cr_expect_eq(ng_get_value(&end, 63, columns - 1), 1);
    cr_expect_eq(ng_get_value(&begin, 0, 0), 0);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    cr_expect_lt(usage.ru_maxrss, 1000000, "%ld kB", usage.ru_maxrss);
    free(end.data), free(begin.data);
    ng_tensor_file_close(file);
}

static void files_that_are_none(void) {
    static const struct {
        const char *path, *message;
    } rows[] = {{"/nonexistent/a.safetensors", "No such file"}, {"/dev/null", "not a regular file"}, {"/", "not a regular file"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ng_tensor_file *file = NULL;
        ng_model model;
        ng_error error = {0}, other = {0};
        cr_expect(ng_tensor_file_open(rows[i].path, &file, &error) == NG_IO && strstr(error.text, rows[i].message), "%s", error.text);
        cr_expect(ng_model_load(rows[i].path, &model, &other) == NG_IO && strstr(other.text, rows[i].message), "%s", other.text);
    }
}

/* ---- models ---------------------------------------------------------------------------------------------------------------------*/
static ng_model load(const char *name) {
    char path[512];
    ng_model model;
    ng_error error = {0};
    snprintf(path, sizeof path, NG_SUITES_DIR "/models/%s.json", name);
    cr_assert(!ng_model_load(path, &model, &error), "%s", error.text);
    cr_expect_str_eq(model.name, name);
    return model;
}

/* Published parameter counts, less what is in no product: embeddings, norms, biases, routers, positions. */
static void model_parameters_are_published(void) {
    static const struct {
        const char *name;
        int64_t published, others;
    } rows[] = {
        /* Model cards of Meta-Llama-3: embedding vocabulary x hidden, 2 norms a layer and one at the end */
        {"llama3-8b", 8030261248, 128256LL * 4096 + 65 * 4096},
        {"llama3-70b", 70553706496, 128256LL * 8192 + 161 * 8192},
        /* 124 M, head tied: positions, and a layer's 6912 biases and two LayerNorms, and the last one */
        {"gpt2", 124439808, 1024 * 768 + 12 * (2304 + 768 + 3072 + 768 + 4 * 768) + 2 * 768},
        /* arXiv:2401.04088, 47 B: routers of 8 x 4096 */
        {"mixtral-8x7b", 46702792704, 32000LL * 4096 + 65 * 4096 + 32 * 8 * 4096},
        /* arXiv:2412.19437, 671 B: routers 256 x 7168 with a bias each, norms also of the two latent vectors */
        {"deepseek-v3", 671026419200, 129280LL * 7168 + 58 * (256 * 7168 + 256) + 61 * (2 * 7168 + 1536 + 512) + 7168},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ng_model model = load(rows[i].name);
        ng_model_product products[64];
        size_t count;
        int64_t total = 0;
        cr_assert(!ng_model_products(&model, 1, 128, 1, products, 64, &count, NULL));
        for (size_t p = 0; p < count; p++)
            if (products[p].phase == NG_FPROP) total += products[p].n * products[p].k * products[p].count;
        cr_expect_eq(total, rows[i].published - rows[i].others, "%s: %" PRId64, rows[i].name, total);
    }
}

static void model_shapes_are_right(void) {
    static const struct {
        const char *name;
        int64_t batch, sequence, tensor_parallel;
        const char *layer;
        ng_phase phase;
        int64_t m, n, k, count;
    } rows[] = {
        {"llama3-8b", 1, 128, 1, "qkv", NG_FPROP, 128, 6144, 4096, 32},
        {"llama3-8b", 2, 8192, 1, "mlp_up", NG_FPROP, 16384, 28672, 4096, 32},
        {"llama3-8b", 1, 512, 1, "mlp_down", NG_FPROP, 512, 4096, 14336, 32},
        {"llama3-8b", 1, 512, 1, "mlp_down", NG_DGRAD, 512, 14336, 4096, 32},
        {"llama3-8b", 1, 512, 1, "mlp_down", NG_WGRAD, 4096, 14336, 512, 32},
        {"llama3-8b", 1, 512, 1, "lm_head", NG_FPROP, 512, 128256, 4096, 1},
        {"llama3-70b", 1, 4096, 8, "qkv", NG_FPROP, 4096, 1280, 8192, 80},
        {"llama3-70b", 1, 4096, 8, "attn_out", NG_FPROP, 4096, 8192, 1024, 80},
        {"llama3-70b", 1, 4096, 8, "mlp_up", NG_WGRAD, 7168, 8192, 4096, 80},
        {"llama3-70b", 1, 4096, 8, "mlp_down", NG_FPROP, 4096, 8192, 3584, 80},
        {"llama3-70b", 1, 4096, 8, "lm_head", NG_DGRAD, 4096, 8192, 16032, 1},
        {"gpt2", 1, 1024, 1, "mlp_up", NG_FPROP, 1024, 3072, 768, 12},
        {"gpt2", 1, 1024, 1, "qkv", NG_FPROP, 1024, 2304, 768, 12},
        {"mixtral-8x7b", 1, 4096, 1, "moe_up", NG_FPROP, 1024, 28672, 4096, 256},
        {"mixtral-8x7b", 1, 4095, 1, "moe_down", NG_FPROP, 1024, 4096, 14336, 256}, /* 1023.75 rounded up */
        {"deepseek-v3", 1, 4096, 1, "q_a", NG_FPROP, 4096, 1536, 7168, 61},
        {"deepseek-v3", 1, 4096, 1, "q_b", NG_FPROP, 4096, 24576, 1536, 61},
        {"deepseek-v3", 1, 4096, 1, "kv_a", NG_FPROP, 4096, 576, 7168, 61},
        {"deepseek-v3", 1, 4096, 1, "kv_b", NG_FPROP, 4096, 32768, 512, 61},
        {"deepseek-v3", 1, 4096, 1, "attn_out", NG_FPROP, 4096, 7168, 16384, 61},
        {"deepseek-v3", 1, 4096, 1, "mlp_up", NG_FPROP, 4096, 36864, 7168, 3},
        {"deepseek-v3", 1, 4096, 1, "moe_up", NG_FPROP, 128, 4096, 7168, 58 * 256},
        {"deepseek-v3", 1, 4096, 1, "shared_down", NG_FPROP, 4096, 7168, 2048, 58},
        {"deepseek-v3", 1, 4096, 2, "q_a", NG_FPROP, 4096, 1536, 7168, 61}, /* on every rank */
        {"deepseek-v3", 1, 4096, 2, "q_b", NG_FPROP, 4096, 12288, 1536, 61},
        /* TransformerEngine's GEMM benchmark of CodonFM 5B: 31 x 512 tokens */
        {"codonfm-5b", 31, 512, 1, "mlp_up", NG_FPROP, 15872, 16384, 4096, 24},
        {"codonfm-5b", 31, 512, 1, "qkv", NG_DGRAD, 15872, 4096, 12288, 24},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ng_model model = load(rows[i].name);
        ng_model_product products[64];
        size_t count, found = 64;
        ng_error error = {0};
        cr_assert(!ng_model_products(&model, rows[i].batch, rows[i].sequence, rows[i].tensor_parallel, products, 64, &count, &error), "%s", error.text);
        for (size_t p = 0; p < count; p++)
            if (!strcmp(products[p].layer, rows[i].layer) && products[p].phase == rows[i].phase) found = p;
        cr_assert_lt(found, 64, "%s has no %s", rows[i].name, rows[i].layer);
        const ng_model_product *p = &products[found];
        cr_expect(p->m == rows[i].m && p->n == rows[i].n && p->k == rows[i].k && p->count == rows[i].count,
                  "%s.%s: %" PRId64 "x%" PRId64 "x%" PRId64 ", %" PRId64 " times", rows[i].name, rows[i].layer, p->m, p->n, p->k, p->count);
    }
}

static void products_that_cannot_be(void) {
    static const struct {
        const char *name;
        int64_t batch, sequence, tensor_parallel;
        const char *message;
    } rows[] = {
        {"llama3-70b", 1, 128, 16, "llama3-70b: tensor parallelism 16 does not divide its 8 key and value heads"},
        {"gpt2", 1, 128, 3, "gpt2: tensor parallelism 3 does not divide lm_head's extent 50257"},
        {"deepseek-v3", 1, 128, 3, "tensor parallelism 3 does not divide its 128 heads"},
        {"llama3-8b", INT64_MAX, 2, 1, "expected positive numbers"},
        {"llama3-8b", 0, 128, 1, "expected positive numbers"},
        {"llama3-8b", 1, -128, 1, "expected positive numbers"},
        {"llama3-8b", 1, 128, 0, "expected positive numbers"},
        {"llama3-8b", 1 << 20, 1 << 30, 1, "qkv has more than 2^60 elements"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ng_model model = load(rows[i].name);
        ng_model_product products[64];
        size_t count = 77;
        ng_error error = {0};
        cr_expect_eq(ng_model_products(&model, rows[i].batch, rows[i].sequence, rows[i].tensor_parallel, products, 64, &count, &error),
                     NG_BAD_ARGUMENT, "row %zu", i);
        cr_expect(strstr(error.text, rows[i].message), "row %zu: %s", i, error.text);
    }
    ng_model model = load("llama3-8b");
    ng_model_product one;
    size_t count = 0;
    cr_expect(!ng_model_products(&model, 1, 1, 1, &one, 1, &count, NULL) && count == 15, "%zu", count);
}

#define CONFIG(members) "{\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":100" members "}"
#define WIDTHS ",\"hidden_size\":64,\"intermediate_size\":128"

static void bad_configs_are_refused(void) {
    static const struct {
        int line;
        const char *text, *message;
    } rows[] = {
        {__LINE__, CONFIG(",\"intermediate_size\":128"), "no \"hidden_size\" (or \"n_embd\")"},
        {__LINE__, CONFIG(",\"hidden_size\":64"), "no \"intermediate_size\""},
        {__LINE__, CONFIG(",\"hidden_size\":null,\"intermediate_size\":128"), "no \"hidden_size\""},
        {__LINE__, "{\"hidden_size\":64}", "no \"num_hidden_layers\" (or \"n_layer\")"},
        {__LINE__, CONFIG(",\"hidden_size\":0,\"intermediate_size\":128"), "\"hidden_size\" is 0; expected a whole number from 1 to 2147483647"},
        {__LINE__, CONFIG(",\"hidden_size\":-64,\"intermediate_size\":128"), "\"hidden_size\" is -64; expected"},
        {__LINE__, CONFIG(",\"hidden_size\":64.5,\"intermediate_size\":128"), "\"hidden_size\" is 64.5; expected"},
        {__LINE__, CONFIG(",\"hidden_size\":1e300,\"intermediate_size\":128"), "\"hidden_size\" is 1.0000000000000001e+300; expected"},
        {__LINE__, CONFIG(",\"hidden_size\":1e999,\"intermediate_size\":128"), "\"hidden_size\" is inf; expected"},
        {__LINE__, CONFIG(",\"hidden_size\":\"64\",\"intermediate_size\":128"), "\"hidden_size\" is a string; expected a whole number"},
        {__LINE__, CONFIG(",\"hidden_size\":[64],\"intermediate_size\":128"), "\"hidden_size\" is an array"},
        {__LINE__, CONFIG(",\"hidden_size\":true,\"intermediate_size\":128"), "\"hidden_size\" is true or false"},
        {__LINE__, CONFIG(WIDTHS ",\"hidden_size\":64"), "two members \"hidden_size\""},
        {__LINE__, CONFIG(",\"hidden_size\":66,\"intermediate_size\":128"), "\"num_attention_heads\" 4 does not divide \"hidden_size\" 66"},
        {__LINE__, CONFIG(WIDTHS ",\"num_key_value_heads\":3"), "\"num_key_value_heads\" 3 does not divide \"num_attention_heads\" 4"},
        {__LINE__, CONFIG(WIDTHS ",\"num_key_value_heads\":0"), "\"num_key_value_heads\" is 0"},
        {__LINE__, CONFIG(WIDTHS ",\"num_local_experts\":8"), "\"num_experts_per_tok\" is 0; expected 1 to the number of experts, 8"},
        {__LINE__, CONFIG(WIDTHS ",\"num_local_experts\":8,\"num_experts_per_tok\":9"), "\"num_experts_per_tok\" is 9"},
        {__LINE__, CONFIG(WIDTHS ",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"first_k_dense_replace\":3"), "\"first_k_dense_replace\" is 3, with 2 layers"},
        {__LINE__, CONFIG(WIDTHS ",\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,\"shared_expert_intermediate_size\":40"),
         "is no multiple of \"moe_intermediate_size\" 32"},
        {__LINE__, CONFIG(WIDTHS ",\"decoder_sparse_step\":2"), "\"decoder_sparse_step\" other than 1"},
        {__LINE__, CONFIG(WIDTHS ",\"mlp_only_layers\":[1]"), "\"mlp_only_layers\" is not supported"},
        {__LINE__, CONFIG(WIDTHS ",\"kv_lora_rank\":16"), "no \"qk_rope_head_dim\", which \"kv_lora_rank\" needs"},
        {__LINE__, CONFIG(WIDTHS ",\"hidden_act\":7"), "\"hidden_act\" is not a string"},
        {__LINE__, CONFIG(WIDTHS ",\"tie_word_embeddings\":\"yes\""), "\"tie_word_embeddings\" is neither true nor false"},
        {__LINE__, "", "not JSON, or cut off"},
        {__LINE__, "{\"hidden_size\":64", "not JSON, or cut off"},
        {__LINE__, "[1]", "not a JSON object"},
        {__LINE__, "{}x", "something follows the JSON object at byte 2"},
        {__LINE__, "{\"a\":NaN}", "not JSON"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ng_model model;
        ng_error error = {0};
        cr_expect_eq(ng_model_parse(rows[i].text, strlen(rows[i].text), "x.json", &model, &error) != NG_OK, 1, "line %d was accepted", rows[i].line);
        cr_expect(!strncmp(error.text, "x.json: ", 8) && strstr(error.text, rows[i].message), "line %d: %s", rows[i].line, error.text);
    }
    ng_model model;
    ng_error error = {0};
    char *deep = malloc(5 << 20);
    cr_assert(deep);
    memset(deep, '[', 5 << 20);
    cr_expect(ng_model_parse(deep, 4 << 20, "x.json", &model, &error) == NG_IO && strstr(error.text, "not JSON"), "%s", error.text);
    cr_expect(ng_model_parse(deep, 5 << 20, "x.json", &model, &error) == NG_IO && strstr(error.text, "at most 4194304"), "%s", error.text);
    cr_expect(ng_model_parse("{}\0{}", 5, "x.json", &model, &error) == NG_IO && strstr(error.text, "byte 2 is NUL"), "%s", error.text);
    free(deep);
}

static void good_configs_are_read(void) {
    static const char bom[] = "\xef\xbb\xbf" CONFIG(WIDTHS ",\"hidden_act\":\"silu\",\"head_dim\":32") "\n";
    static const char nested[] = "{\"model_type\":\"llava\",\"text_config\":" CONFIG(WIDTHS ",\"num_experts\":4,\"num_experts_per_tok\":2,"
                                 "\"moe_intermediate_size\":32,\"shared_expert_intermediate_size\":64") "}";
    ng_model model;
    ng_error error = {0};
    cr_assert(!ng_model_parse(bom, sizeof bom - 1, "runs/my model/config.json", &model, &error), "%s", error.text);
    cr_expect(model.head_dim == 32 && model.gated && model.kv_heads == 4 && !strcmp(model.name, "my-model"), "%s", model.name);
    cr_assert(!ng_model_parse(nested, sizeof nested - 1, "a.json", &model, &error), "%s", error.text);
    cr_expect(model.experts == 4 && model.shared_experts == 2 && model.expert_intermediate == 32 && !model.gated && !strcmp(model.name, "a"));
}

/* ---- fuzzing --------------------------------------------------------------------------------------------------------------------*/
static void corpus_holds(void) {
    static const struct {
        const char *name;
        bool (*run)(const void *bytes, size_t size);
    } kinds[] = {{"safetensors", ng_fuzz_safetensors}, {"npy", ng_fuzz_npy}, {"config", ng_fuzz_config}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char path[1024];
        snprintf(path, sizeof path, NG_SUITES_DIR "/fuzz/corpus/%s", kinds[k].name);
        DIR *folder = opendir(path);
        int count = 0;
        cr_assert(folder, "%s", path);
        for (struct dirent *e; (e = readdir(folder));) {
            static unsigned char held[1 << 16];
            if (e->d_name[0] == '.') continue;
            snprintf(path, sizeof path, NG_SUITES_DIR "/fuzz/corpus/%s/%s", kinds[k].name, e->d_name);
            FILE *in = fopen(path, "rb");
            cr_assert(in, "%s", path);
            size_t size = fread(held, 1, sizeof held, in);
            fclose(in);
            unsigned char *exact = malloc(size + !size);
            cr_assert(exact);
            memcpy(exact, held, size);
            cr_expect(kinds[k].run(exact, size), "%s", path);
            free(exact);
            count++;
        }
        closedir(folder);
        cr_expect_gt(count, 15, "%d inputs of %s", count, kinds[k].name);
    }
}

const ng_test ng_tests[] = {
    {"inputs", "Philox gives its published answers", philox_known_answers, 0},
    {"inputs", "random words are Random123's", words_are_random123, 0},
    {"inputs", "the normal quantile is within an ulp and 7e-8 of MPFR's", normal_is_the_quantile, 0},
    {"inputs", "the normal quantile is monotone over all 2^27 probabilities", normal_is_monotone, 0},
    {"inputs", "moments", moments_are_right, 0},
    {"inputs", "tails", tails_are_right, 0},
    {"inputs", "nothing correlates", nothing_correlates, 0},
    {"inputs", "rows equal elements", rows_equal_elements, 0},
    {"inputs", "same for threads, windows and transposition", same_for_threads_windows_and_transposition, 0},
    {"inputs", "golden digests", digests_are_golden, 0},
    {"inputs", "amax is that of the stored values", amax_is_of_the_stored_values, 0},
    {"inputs", "condition numbers are reached", condition_is_reached, 0},
    {"inputs", "integers are exact", integers_are_exact, 0},
    {"inputs", "ties are ties", ties_are_ties, 0},
    {"inputs", "subnormal and near-overflow data lie at the edges", edges_are_at_the_edges, 0},
    {"inputs", "zero blocks and block edges", blocks_are_as_named, 0},
    {"inputs", "outlier columns, non-finite places, large means, constant rows", rows_and_columns_are_as_named, 0},
    {"inputs", "bad data specs are refused", bad_specs_are_refused, 0},
    {"inputs", "safetensors are read", safetensors_are_read, 0},
    {"inputs", "bad safetensors are refused", bad_safetensors_are_refused, 0},
    {"inputs", "npy is read or refused", npy_is_read_or_refused, 0},
    {"inputs", "fast rounding is rounding", fast_rounding_is_rounding, 0},
    {"inputs", "10 GB are mapped", ten_gigabytes_are_mapped, 0},
    {"inputs", "files that are none", files_that_are_none, 0},
    {"inputs", "model parameters are the published ones", model_parameters_are_published, 0},
    {"inputs", "model shapes", model_shapes_are_right, 0},
    {"inputs", "products that cannot be", products_that_cannot_be, 0},
    {"inputs", "bad configs are refused", bad_configs_are_refused, 0},
    {"inputs", "good configs are read", good_configs_are_read, 0},
    {"inputs", "fuzzers' corpus", corpus_holds, 0},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
