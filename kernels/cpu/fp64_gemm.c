/* gemm/fp64/cpu/fp64-chain/[nn/|nt/]fp64-out[-acc]: chains of fma in binary64 for ascending k, all three layouts, the order whatever the
 * tiling. B is packed into panels of COLUMNS; four rows of A share what is loaded of one. */
#include "kernels/catalogue.h"
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 4, COLUMNS = 8, STRIP = 64 };

typedef struct product {
    const ng_tensor *a, *b, *out;
    bool a_transposed, b_transposed, accumulate;
    int64_t m, n, k;
} product;

static double element(const ng_tensor *t, bool transposed, int64_t i, int64_t k) {
    return transposed ? ((const ng_f64 *)(const void *)ng_cpu_row(t, k))[i] : ((const ng_f64 *)(const void *)ng_cpu_row(t, i))[k];
}

/* Rows [row, row + rows) of an operand as [k][width], zeros beyond the last. */
static void pack(const ng_tensor *t, bool transposed, int64_t row, int64_t rows, int64_t k, int64_t width, double *panel) {
    for (int64_t p = 0; p < k; p++)
        for (int64_t i = 0; i < width; i++)
            panel[p * width + i] = i < rows ? element(t, transposed, row + i, p) : 0;
}

typedef void micro(const double *a, const double *b, int64_t k, double *sum);
NG_ALWAYS_INLINE void chains(const double *restrict a, const double *restrict b, int64_t k, double *restrict sum) {
    double s[ROWS][COLUMNS] = {{0}};
    for (int64_t p = 0; p < k; p++)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++)
                s[i][j] = fma(a[p * ROWS + i], b[p * COLUMNS + j], s[i][j]);
    memcpy(sum, s, sizeof s);
}
static void chains_c(const double *a, const double *b, int64_t k, double *sum) { chains(a, b, k, sum); }
NG_AVX2 static void chains_avx2(const double *a, const double *b, int64_t k, double *sum) { chains(a, b, k, sum); }
static micro *const micros[2] = {chains_c, chains_avx2};

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
#define PLAIN {.element = NG_FP64, .scale = NG_NO_FORMAT, .rule = NG_SCALE_ABSENT}
#define GEMM(layout, suffix, at, bt, into)                                                                            \
    {.name = "gemm/fp64/cpu/fp64-chain/" layout "fp64-out" suffix, .op = NG_OP_GEMM, .backend = NG_BACKEND_CPU,       \
     .in = NG_FP64, .in_b = NG_FP64, .out = NG_FP64,                                                                  \
     .contract = {.cast = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL}, .a = PLAIN, .b = PLAIN,              \
                  .sum = {.order = NG_SUM_FP64, .fused = true}, .accumulate_into = into, .determinism = NG_DETERMINISTIC, \
                  .a_transposed = at, .b_transposed = bt, .layer = {.compute = NG_FP64}},                             \
     .supports = ng_cpu_supports, .launch = launch_gemm},

static const ng_kernel kernels[] = {
    GEMM("", "", false, false, false)
    GEMM("nn/", "", false, true, false)
    GEMM("nt/", "", true, true, false)
    GEMM("nt/", "-acc", true, true, true)
};

const ng_kernel_list ng_cpu_fp64_gemms = {kernels, sizeof kernels / sizeof *kernels};
