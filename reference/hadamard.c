#include "reference/hadamard.h"
#include "reference/gemm.h"
#include "reference/round.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double sign_of(const ng_hadamard *h, int64_t j) { return h->signs[j / 32] >> (j % 32) & 1 ? -1 : 1; }

static ng_status check(const ng_hadamard *h, const ng_tensor *in) {
    bool power = h->size && !(h->size & (h->size - 1)) && h->size <= NG_HADAMARD_MOST;
    return power && in->data && in->space == NG_HOST && in->format != NG_FP64 ? NG_OK : NG_BAD_ARGUMENT;
}

/* ---- bits ---------------------------------------------------------------------------------------------------------*/
/* t_i after the stages below `half`: half the size of the pairs' distance, down to the signed inputs themselves. */
static float after_stages(const ng_hadamard *h, const float *x, int64_t i, int64_t half) {
    if (!half) return (float)sign_of(h, i) * x[i];
    float here = after_stages(h, x, i, half / 2), there = after_stages(h, x, i ^ half, half / 2);
    return i & half ? there - here : here + there;
}

static float element(const ng_hadamard *h, const float *group, int64_t i) {
    float y = (float)ldexp(1, -h->shift) * after_stages(h, group, i, h->size / 2);
    return y == 0 ? 0 : y;
}

ng_status ng_reference_hadamard(const ng_hadamard *h, const ng_cast *cast, const ng_tensor *in, int threads, ng_tensor *out) {
    int64_t columns = in->columns, whole = h->size ? columns / h->size * h->size : 0;
    ng_status status = check(h, in);
    if (status || out->rows != in->rows || out->columns != columns) return NG_BAD_ARGUMENT;
#pragma omp parallel num_threads(threads)
    {
        float *x = malloc(sizeof *x * (size_t)(columns + 1));
        if (!x) {
#pragma omp atomic write
            status = NG_NO_MEMORY;
        }
#pragma omp for
        for (int64_t i = 0; i < in->rows; i++) {
            if (!x) continue;
            ng_decode_row_float(in, i, 0, columns, x);
            for (int64_t j = 0; j < columns; j++) {
                float y = j < whole ? element(h, x + j / h->size * h->size, j % h->size) : x[j];
                ng_set_code(out, i, j, ng_round(out->format, (double)y, cast, 0));
            }
        }
        free(x);
    }
    return status;
}

/* ---- exact value and bound ----------------------------------------------------------------------------------------*/
/* H diag(s) as an operand: [n][n], entries 1 and -1. */
static ng_status make_matrix(const ng_hadamard *h, ng_tensor *matrix) {
    int64_t n = h->size;
    *matrix = (ng_tensor){calloc((size_t)(n * n), 4), NG_FP32, NG_HOST, n, n, n * 4};
    if (!matrix->data) return NG_NO_MEMORY;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            ((float *)matrix->data)[i * n + j] = (float)sign_of(h, j) * (__builtin_popcountll((unsigned long long)(i & j)) % 2 ? -1.0f : 1.0f);
    return NG_OK;
}

/* Every intermediate value of log2 n stages is the exact one of its stage's inputs times 1 + d, |d| <= u = 2^-24, and an addition of
 * binary32 numbers does not underflow; so |t - exact| <= ((1 + u)^(log2 n) - 1) sum |x_j|. In another order of n - 1 additions n - 1
 * stands for log2 n. 2^-shift is exact but for results below 2^-126, which are off by half of 2^-149 at most. The sum of
 * magnitudes is rounded itself: 2^-40 of it more. Where it could overflow, no bound holds. */
static double bound_of(const ng_hadamard *h, double magnitudes) {
    double stages = __builtin_ctz(h->size), scale = ldexp(1, -h->shift);
    double grown = magnitudes * (1 + 0x1p-20);
    if (!(grown < (double)FLT_MAX)) return INFINITY;
    return (stages * 0x1p-24 * (1 + 0x1p-20) * magnitudes * scale + 0x1p-150) * (1 + 0x1p-40);
}

static ng_status exact_groups(const ng_hadamard *h, const ng_tensor *in, int threads, double *high, double *low) {
    int64_t n = h->size, groups = in->columns / n, columns = in->columns;
    ng_exact_product product = {0};
    ng_tensor matrix = {0}, x = {0};
    ng_status status = make_matrix(h, &matrix);
    x = (ng_tensor){malloc((size_t)(in->rows * groups * n) * 4 + 4), NG_FP32, NG_HOST, in->rows * groups, n, n * 4};
    if (!x.data) status = NG_NO_MEMORY;
    for (int64_t i = 0; !status && i < in->rows; i++)
        ng_decode_row_float(in, i, 0, groups * n, (float *)x.data + i * groups * n);
    ng_operand a = {.codes = x, .tensor_scale = 1}, b = {.codes = matrix, .tensor_scale = 1};
    if (!status) status = ng_exact_gemm(&a, &b, NULL, threads, &product);
    for (int64_t k = 0; !status && k < in->rows * groups * n; k++) {
        int64_t at = k / (groups * n) * columns + k % (groups * n);
        high[at] = ldexp(product.high[k], -h->shift) + 0.0;
        low[at] = ldexp(product.low[k], -h->shift);
    }
    ng_exact_product_free(&product);
    free(matrix.data);
    free(x.data);
    return status;
}

ng_status ng_hadamard_exact(const ng_hadamard *h, const ng_tensor *in, int threads, double *high, double *low, double *bound) {
    ng_status status = check(h, in);
    if (status) return status;
    int64_t n = h->size, columns = in->columns, whole = columns / n * n;
    if (whole && in->rows) status = exact_groups(h, in, threads, high, low);
    for (int64_t i = 0; !status && i < in->rows; i++) {
        for (int64_t g = 0; g < whole; g += n) {
            double magnitudes = 0;
            for (int64_t j = g; j < g + n; j++)
                magnitudes += fabs(ng_get_value(in, i, j));
            for (int64_t j = g; j < g + n; j++)
                bound[i * columns + j] = isfinite(high[i * columns + j]) ? bound_of(h, magnitudes) : 0;
        }
        for (int64_t j = whole; j < columns; j++) {
            high[i * columns + j] = ng_get_value(in, i, j);
            low[i * columns + j] = bound[i * columns + j] = 0;
        }
    }
    return status;
}
