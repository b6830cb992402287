/* The floors of the exact product: time of ng_exact_gemm over the time of one cblas_dgemm of the same shape and threads,
 * on ordinary (normal) data. The two alternate, so that a busy machine slows both; the median of the pairs' ratios counts.
 * Exit 1 if a floor is missed. */
#include "reference/blas.h"
#include "reference/gemm.h"
#include "reference/round.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SIZE = 2048, PAIRS = 3 };

typedef struct floor_row {
    const char *name;
    ng_format_id element, scale; /* scale: NG_NO_FORMAT for one binary32 scale a tensor */
    uint32_t block;
    double floor; /* times one dgemm */
} floor_row;

static const floor_row floors[] = {
    {"e4m3", NG_E4M3, NG_NO_FORMAT, 0, 3},  {"nvfp4", NG_E2M1, NG_UE4M3, 16, 3}, {"bf16", NG_BF16, NG_NO_FORMAT, 0, 12},
    {"fp16", NG_FP16, NG_NO_FORMAT, 0, 12}, {"e5m2", NG_E5M2, NG_NO_FORMAT, 0, 12}, {"mxfp8", NG_E4M3, NG_E8M0, 32, 12},
};

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Close to normal: the sum of twelve uniform numbers less 6. */
static double draw(uint64_t *state) {
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += ldexp((double)(*state >> 11), -53);
    }
    return sum;
}

static ng_tensor new_tensor(ng_format_id format, int64_t rows, int64_t columns) {
    ng_tensor t = {.format = format, .rows = rows, .columns = columns, .row_bytes = ng_row_bytes(format, columns)};
    t.data = calloc((size_t)rows, (size_t)t.row_bytes);
    return t;
}

static void free_operand(ng_operand *x) {
    free(x->codes.data);
    free(x->scales.data);
}

/* One row, quantized: a scale a block that maps its maximum to the largest element, or 1/8 of it (e4m3, e5m2: a tensor
 * scale of a whole tensor's maximum). */
static void quantize_row(const floor_row *f, uint64_t seed, int64_t row, double *values, ng_operand *x) {
    static const ng_cast nearest = {.rounding = NG_RN_EVEN, .saturate = true};
    uint64_t state = seed * 1000003u + (uint64_t)row;
    int64_t block = f->block ? f->block : SIZE;
    for (int64_t k = 0; k < SIZE; k++)
        values[k] = draw(&state);
    for (int64_t from = 0; from < SIZE; from += block) {
        double amax = 0, scale = f->element == NG_E4M3 || f->element == NG_E5M2 ? 8 / ng_formats[f->element].largest : 1;
        for (int64_t k = from; k < from + block; k++)
            amax = fmax(amax, fabs(values[k]));
        if (f->scale != NG_NO_FORMAT) {
            double target = f->scale == NG_UE4M3 ? amax / 6 * 75 : amax / ng_formats[f->element].largest;
            ng_cast up = {.rounding = f->scale == NG_UE4M3 ? NG_RN_EVEN : NG_R_UP, .saturate = true};
            uint64_t code = ng_round(f->scale, target, &up, 0);
            ng_set_code(&x->scales, row, from / block, code);
            scale = ng_decode(f->scale, code) / (f->scale == NG_UE4M3 ? 75 : 1);
        }
        for (int64_t k = from; k < from + block; k++)
            ng_set_code(&x->codes, row, k, ng_round(f->element, values[k] / scale, &nearest, 0));
    }
}

static bool quantize(const floor_row *f, uint64_t seed, ng_operand *x) {
    *x = (ng_operand){.blocks = {f->block ? 1 : 0, f->block}, .tensor_scale = f->scale == NG_UE4M3 ? 0x1.b4e81cp-7f : 1};
    x->codes = new_tensor(f->element, SIZE, SIZE);
    if (f->scale != NG_NO_FORMAT) x->scales = new_tensor(f->scale, SIZE, SIZE / f->block);
    if (!x->codes.data || (f->scale != NG_NO_FORMAT && !x->scales.data)) return false;
#pragma omp parallel for
    for (int64_t row = 0; row < SIZE; row++) {
        double values[SIZE];
        quantize_row(f, seed, row, values, x);
    }
    return true;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median ratio, or NaN if something failed. */
static double ratio(const ng_operand *a, const ng_operand *b, const double *da, const double *db, double *dc, int threads,
                    const char **tier) {
    double ratios[PAIRS];
    for (int pair = 0; pair < PAIRS; pair++) {
        ng_exact_product product;
        double start = seconds();
        if (ng_exact_gemm(a, b, NULL, threads, &product) != NG_OK) return NAN;
        double between = seconds();
        ng_blas_dgemm(SIZE, SIZE, SIZE, da, db, dc);
        ratios[pair] = (between - start) / (seconds() - between);
        *tier = product.elements_by_tier[NG_TIER_INTEGER] == product.m * product.n ? "integer" : "split";
        ng_exact_product_free(&product);
    }
    qsort(ratios, PAIRS, sizeof *ratios, compare);
    return ratios[PAIRS / 2];
}

int main(void) {
    int threads = omp_get_max_threads(), missed = 0;
    double *da = malloc(sizeof(double) * SIZE * SIZE), *db = malloc(sizeof(double) * SIZE * SIZE);
    double *dc = malloc(sizeof(double) * SIZE * SIZE);
    ng_blas_set_threads(threads);
    missed += !da || !db || !dc;
    for (size_t i = 0; i < sizeof floors / sizeof *floors && da && db && dc; i++) {
        ng_operand a = {0}, b = {0};
        const char *tier = "";
        double times = NAN;
        if (quantize(&floors[i], 1, &a) && quantize(&floors[i], 2, &b)) {
            for (int64_t row = 0; row < SIZE; row++) {
                ng_decode_row(&a.codes, row, 0, SIZE, da + row * SIZE);
                ng_decode_row(&b.codes, row, 0, SIZE, db + row * SIZE);
            }
            times = ratio(&a, &b, da, db, dc, threads, &tier);
        }
        bool met = times <= floors[i].floor;
        missed += !met;
        printf("exact-gemm %s %dx%dx%d: %.2f x dgemm (floor %g)%s, %s\n", floors[i].name, SIZE, SIZE, SIZE, times,
               floors[i].floor, met ? "" : " MISSED", tier);
        free_operand(&a);
        free_operand(&b);
    }
    free(da), free(db), free(dc);
    return missed != 0;
}
