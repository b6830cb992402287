/* gemm/fp64/cpu/fp64-chain/[nn/|nt/]fp64-out[-acc]: chains of fma in binary64 for ascending k, all three layouts, the order whatever the
 * tiling. Operands are packed into panels of 6 rows of A and 8 of B, so that a micro-tile's 6 x 8 sums stay in registers. */
#include "kernels/catalogue.h"
#include "kernels/common/fp64_rows.h"
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>
#if NG_HAVE_AVX2
#include <immintrin.h>
#endif

enum { ROWS = 6, COLUMNS = 8, STRIP = 128 };

typedef struct product {
    const ng_tensor *a, *b, *out;
    bool a_transposed, b_transposed, accumulate;
    int64_t m, n, k;
} product;

/* Rows [row, row + rows) of an operand as [k][width], zeros beyond the last: sums that are never stored. */
static void pack(const ng_tensor *t, bool transposed, int64_t row, int64_t rows, int64_t k, int64_t width, double *panel) {
    if (rows < width) memset(panel, 0, sizeof *panel * (size_t)(k * width));
    for (int64_t p = 0; p < k && transposed; p++) {
        const ng_f64 *from = (const ng_f64 *)(const void *)ng_cpu_row(t, p) + row;
        for (int64_t i = 0; i < rows; i++)
            panel[p * width + i] = from[i];
    }
    for (int64_t i = 0; i < rows && !transposed; i++) {
        const ng_f64 *from = (const ng_f64 *)(const void *)ng_cpu_row(t, row + i);
        for (int64_t p = 0; p < k; p++)
            panel[p * width + i] = from[p];
    }
}

typedef void micro(const double *a, const double *b, int64_t k, double *sum);
static void chains_c(const double *restrict a, const double *restrict b, int64_t k, double *restrict sum) {
    for (int i = 0; i < ROWS * COLUMNS; i++)
        sum[i] = 0;
    for (int64_t p = 0; p < k; p++)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++)
                sum[i * COLUMNS + j] = fma(a[p * ROWS + i], b[p * COLUMNS + j], sum[i * COLUMNS + j]);
}

#if NG_HAVE_AVX2
/* Twelve accumulators, two vectors of b and one of a: fifteen of the sixteen registers. */
NG_AVX2 static void chains_avx2(const double *a, const double *b, int64_t k, double *sum) {
    __m256d s[ROWS][2];
    for (int i = 0; i < ROWS; i++)
        s[i][0] = s[i][1] = _mm256_setzero_pd();
    for (int64_t p = 0; p < k; p++, a += ROWS, b += COLUMNS) {
        const __m256d b0 = _mm256_loadu_pd(b), b1 = _mm256_loadu_pd(b + 4);
#pragma GCC unroll 6
        for (int i = 0; i < ROWS; i++) {
            const __m256d each = _mm256_broadcast_sd(a + i);
            s[i][0] = _mm256_fmadd_pd(each, b0, s[i][0]);
            s[i][1] = _mm256_fmadd_pd(each, b1, s[i][1]);
        }
    }
    for (int i = 0; i < ROWS; i++) {
        _mm256_storeu_pd(sum + i * COLUMNS, s[i][0]);
        _mm256_storeu_pd(sum + i * COLUMNS + 4, s[i][1]);
    }
}
static micro *const micros[2] = {chains_c, chains_avx2};
#else
static micro *const micros[2] = {chains_c, chains_c};
#endif

static void store(const product *g, int64_t row, int64_t rows, int64_t column, int64_t columns, const double *sum) {
    for (int64_t i = 0; i < rows; i++) {
        ng_f64 *out = (ng_f64 *)(void *)ng_cpu_row(g->out, row + i) + column;
        for (int64_t j = 0; j < columns; j++)
            out[j] = g->accumulate ? sum[i * COLUMNS + j] + out[j] : sum[i * COLUMNS + j];
    }
}

/* Columns [column, column + columns) of OUT; panels: [STRIP / COLUMNS][k][COLUMNS], then [k][ROWS]. */
static void strip(const product *g, micro *sums_of, int64_t column, int64_t columns, double *panels) {
    double *a = panels + STRIP * g->k, sum[ROWS * COLUMNS];
    for (int64_t j = 0; j < columns; j += COLUMNS)
        pack(g->b, g->b_transposed, column + j, ng_cpu_min(COLUMNS, columns - j), g->k, COLUMNS, panels + j * g->k);
    for (int64_t i = 0; i < g->m; i += ROWS) {
        const int64_t rows = ng_cpu_min(ROWS, g->m - i);
        pack(g->a, g->a_transposed, i, rows, g->k, ROWS, a);
        for (int64_t j = 0; j < columns; j += COLUMNS) {
            sums_of(a, panels + j * g->k, g->k, sum);
            store(g, i, rows, column + j, ng_cpu_min(COLUMNS, columns - j), sum);
        }
    }
}

static ng_status launch_gemm(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_contract *c = &kernel->contract;
    const ng_problem *p = launch->problem;
    const product g = {&launch->tensors[NG_A], &launch->tensors[NG_B], &launch->tensors[NG_OUT], c->a_transposed, c->b_transposed,
                       c->accumulate_into, p->m, p->n, p->k};
    ng_status status = ng_cpu_check(launch, NG_A, NG_FP64, g.a_transposed ? p->k : p->m, g.a_transposed ? p->m : p->k);
    if (!status) status = ng_cpu_check(launch, NG_B, NG_FP64, g.b_transposed ? p->k : p->n, g.b_transposed ? p->n : p->k);
    if (!status) status = ng_cpu_check(launch, NG_OUT, NG_FP64, p->m, p->n);
    if (status) return status;
    const int threads = ng_cpu_team(launch->device, p->m * p->n / 64 * p->k);
    const size_t each = (size_t)(STRIP + ROWS) * (size_t)p->k;
    double *panels = malloc(sizeof *panels * each * (size_t)threads);
    if (!panels) return ng_cpu_fail(launch, NG_NO_MEMORY, "no memory for panels of %lld", (long long)p->k);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t column = 0; column < p->n; column += STRIP)
        strip(&g, micros[ng_cpu_avx2(launch->device)], column, ng_cpu_min(STRIP, p->n - column), panels + each * (size_t)ng_cpu_thread());
    free(panels);
    return NG_OK;
}

/* ---- catalogue ----------------------------------------------------------------------------------------------------*/
#define NG_FP64_GEMM(suffix, at, bt, into)                                                                           \
    {.name = "gemm/fp64/cpu/fp64-chain/" suffix, .op = NG_OP_GEMM, .backend = NG_BACKEND_CPU, .in = NG_FP64, .in_b = NG_FP64, \
     .out = NG_FP64, .contract = NG_FP64_GEMM_CONTRACT(at, bt, into), .supports = ng_cpu_supports, .launch = launch_gemm},

static const ng_kernel kernels[] = {NG_FP64_GEMM_ROWS};

const ng_kernel_list ng_cpu_fp64_gemms = {kernels, sizeof kernels / sizeof *kernels};
