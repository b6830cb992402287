/* The exact product, slowly: mpfr_mul with room for every bit, mpfr_sum (correctly rounded) for the value and again for
 * what is left of it. Shares nothing with exact.c. */
#include "reference/gemm.h"

#include <math.h>
#include <mpfr.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    VALUE_BITS = 53 + 24 + 24,      /* element * scale * tensor scale */
    PRODUCT_BITS = 2 * VALUE_BITS,
    RESULT_BITS = 53,
};

/* k values of one row, a product each and one place more for the initial value, another for -high. */
typedef struct work {
    int64_t k;
    mpfr_t *a, *b, *terms;
    mpfr_ptr *pointers;
    mpfr_t result;
} work;

static mpfr_t *new_numbers(int64_t count, mpfr_prec_t bits) {
    mpfr_t *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; x && i < count; i++)
        mpfr_init2(x[i], bits);
    return x;
}

static void free_numbers(mpfr_t *x, int64_t count) {
    for (int64_t i = 0; x && i < count; i++)
        mpfr_clear(x[i]);
    free(x);
}

static bool work_create(work *w, int64_t k) {
    w->k = k;
    mpfr_init2(w->result, RESULT_BITS);
    w->a = new_numbers(k + 1, VALUE_BITS);
    w->b = new_numbers(k + 1, VALUE_BITS);
    w->terms = new_numbers(k + 2, PRODUCT_BITS);
    w->pointers = malloc((size_t)(k + 2) * sizeof *w->pointers);
    for (int64_t i = 0; w->terms && w->pointers && i < k + 2; i++)
        w->pointers[i] = w->terms[i];
    return w->a && w->b && w->terms && w->pointers;
}

static void work_free(work *w) {
    free_numbers(w->a, w->k + 1);
    free_numbers(w->b, w->k + 1);
    free_numbers(w->terms, w->k + 2);
    free(w->pointers);
    mpfr_clear(w->result);
    mpfr_free_cache();
}

/* value[k] = code * block scale * tensor scale, exact. */
static void row_values(const ng_operand *x, int64_t row, mpfr_t *values) {
    int64_t rows_a_block = ng_block_extent(x->blocks.rows, x->codes.rows);
    int64_t columns_a_block = ng_block_extent(x->blocks.columns, x->codes.columns);
    for (int64_t k = 0; k < x->codes.columns; k++) {
        mpfr_set_d(values[k], ng_get_value(&x->codes, row, k), MPFR_RNDN);
        if (x->scales.data)
            mpfr_mul_d(values[k], values[k], ng_get_value(&x->scales, row / rows_a_block, k / columns_a_block), MPFR_RNDN);
        mpfr_mul_d(values[k], values[k], (double)x->tensor_scale, MPFR_RNDN);
    }
}

static double sum_terms(work *w, int64_t count) {
    mpfr_sum(w->result, w->pointers, (unsigned long)count, MPFR_RNDN);
    return mpfr_get_d(w->result, MPFR_RNDN) + 0.0; /* an exact zero is +0 */
}

static void element(work *w, double initial, double *high, double *low) {
    int64_t k = w->k;
    for (int64_t i = 0; i < k; i++)
        mpfr_mul(w->terms[i], w->a[i], w->b[i], MPFR_RNDN);
    mpfr_set_d(w->terms[k], initial, MPFR_RNDN);
    *high = sum_terms(w, k + 1);
    *low = 0;
    if (!isfinite(*high)) return;
    mpfr_set_d(w->terms[k + 1], -*high, MPFR_RNDN);
    *low = sum_terms(w, k + 2);
}

static bool shapes_fit(const ng_operand *a, const ng_operand *b, const ng_tensor *initial) {
    if (!a || !b || a->codes.columns != b->codes.columns || a->codes.columns < 0) return false;
    if (a->codes.space != NG_HOST || b->codes.space != NG_HOST) return false;
    return !initial || (initial->space == NG_HOST && initial->rows == a->codes.rows && initial->columns == b->codes.rows);
}

static ng_status product_create(int64_t m, int64_t n, ng_exact_product *product) {
    size_t bytes = (size_t)(m * n + 1) * sizeof(double);
    memset(product, 0, sizeof *product);
    product->m = m;
    product->n = n;
    product->high = malloc(bytes);
    product->low = malloc(bytes);
    return product->high && product->low ? NG_OK : NG_NO_MEMORY;
}

ng_status ng_exact_gemm_mpfr(const ng_operand *a, const ng_operand *b, const ng_tensor *initial, int threads,
                             ng_exact_product *product) {
    if (!product || !shapes_fit(a, b, initial)) return NG_BAD_ARGUMENT;
    int64_t m = a->codes.rows, n = b->codes.rows;
    ng_status status = product_create(m, n, product);
    bool no_memory = status != NG_OK;
    if (no_memory) goto done;
#pragma omp parallel num_threads(threads > 0 ? threads : omp_get_max_threads())
    {
        work w;
        int64_t row = -1;
        bool ready = work_create(&w, a->codes.columns);
        if (!ready) {
#pragma omp atomic write
            no_memory = true;
        }
#pragma omp for schedule(dynamic, 4)
        for (int64_t e = 0; e < m * n; e++) {
            if (!ready) continue;
            if (row != e / n) row_values(a, row = e / n, w.a);
            row_values(b, e % n, w.b);
            element(&w, initial ? ng_get_value(initial, row, e % n) : 0.0, &product->high[e], &product->low[e]);
        }
        work_free(&w);
    }
    product->elements_by_tier[NG_TIER_MPFR] = m * n;
done:
    if (!no_memory) return NG_OK;
    ng_exact_product_free(product);
    return NG_NO_MEMORY;
}
