/* layernorm-backward/<format>/cpu/..., rmsnorm-backward/...: dx row by row; dgamma and dbeta by the contract's groups of rows,
 * whose chains are the unit of parallel work: a thread takes whole blocks. */
#include "kernels/cpu/norm.h"

#include <stdlib.h>

typedef struct backward {
    const ng_kernel *kernel;
    const ng_launch *launch;
    const ng_norm_loops *loops;
    ng_caster caster;
    ng_norm_shape shape;
    int32_t blocks;
    int64_t rows, columns;
    float *w, *beta, *divisor; /* [C] */
    float *partial;            /* [blocks][2][C]: dgamma, dbeta */
} backward;

typedef struct scratch {
    float *h, *g, *dy, *dx, *group, *chains; /* [C] each; group [2][C]; chains [8 L] */
} scratch;

static float statistic(const ng_tensor *t, int64_t row) { return *(const ng_f32 *)ng_cpu_row(t, row); }

static void one_row(const backward *b, int64_t row, const scratch *s) {
    const ng_tensor *t = b->launch->tensors;
    const ng_norm *norm = &b->kernel->contract.norm;
    const int64_t n = b->columns;
    const bool centered = norm->kind == NG_LAYER_NORM;
    const float rstd = statistic(&t[NG_RSTD], row), count = (float)n;
    b->loops->load(b->kernel->in, ng_cpu_row(&t[NG_IN], row), n, s->dx);
    b->loops->load(b->kernel->in, ng_cpu_row(&t[NG_GRADIENT], row), n, s->dy);
    if (norm->from_output) b->loops->hat_of_output(s->dx, b->beta, b->divisor, n, s->h);
    else b->loops->hat(s->dx, centered ? statistic(&t[NG_MEAN], row) : 0, rstd, n, s->h);
    b->loops->scale(s->dy, b->w, n, s->g);
    const float c1 = centered ? ng_div(b->loops->sum(s->g, n, b->shape.lanes, s->chains), count) : 0;
    const float c2 = ng_div(b->loops->products(s->g, s->h, n, b->shape.lanes, s->chains), count);
    b->loops->dx(s->h, s->g, c1, c2, rstd, n, s->dx);
    b->loops->store(b->kernel->out, &b->caster, s->dx, n, ng_cpu_row(&t[NG_OUT], row));
    b->loops->accumulate(s->dy, s->h, n, s->group, s->group + n);
}

static void one_block(const backward *b, int32_t block, const scratch *s) {
    const int64_t n = b->columns, step = (int64_t)b->shape.blocks * b->shape.groups;
    float *partial = b->partial + 2 * n * block;
    for (int32_t group = 0; group < b->shape.groups; group++) {
        memset(s->group, 0, 2 * (size_t)n * sizeof *s->group);
        for (int64_t row = (int64_t)block * b->shape.groups + group; row < b->rows; row += step)
            one_row(b, row, s);
        if (group == 0) memcpy(partial, s->group, 2 * (size_t)n * sizeof *partial);
        else
            for (int64_t i = 0; i < 2 * n; i++)
                partial[i] = ng_add(partial[i], s->group[i]);
    }
}

static float add_blocks(const backward *b, int which, int64_t column) {
    float chain[NG_NORM_LAST_CHAINS] = {0};
    for (int32_t block = 0; block < b->blocks; block++)
        chain[block % NG_NORM_LAST_CHAINS] = ng_add(chain[block % NG_NORM_LAST_CHAINS], b->partial[(2 * (int64_t)block + which) * b->columns + column]);
    for (int h = NG_NORM_LAST_CHAINS / 2; h; h /= 2)
        for (int q = 0; q < h; q++)
            chain[q] = ng_add(chain[q], chain[q + h]);
    return chain[0];
}

static void store_sums(const backward *b, int which, const ng_tensor *to, float *sums, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t column = 0; column < b->columns; column++)
        sums[column] = add_blocks(b, which, column);
    const ng_caster caster = ng_caster_of(to->format, &b->kernel->contract.cast);
    b->loops->store(to->format, &caster, sums, b->columns, to->data);
}

static ng_status check_launch(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_norm *norm = &kernel->contract.norm;
    const int64_t rows = launch->problem->m, columns = launch->problem->n;
    const bool centered = norm->kind == NG_LAYER_NORM;
    ng_status status = ng_cpu_check(launch, NG_IN, kernel->in, rows, columns);
    if (!status) status = ng_cpu_check(launch, NG_GRADIENT, kernel->in, rows, columns);
    if (!status) status = ng_cpu_check(launch, NG_OUT, kernel->out, rows, columns);
    if (!status) status = ng_cpu_norm_check_parameters(kernel, launch, centered && norm->from_output);
    if (!status && centered && !norm->from_output) status = ng_cpu_check(launch, NG_MEAN, NG_FP32, rows, 1);
    if (!status) status = ng_cpu_check(launch, NG_RSTD, NG_FP32, rows, 1);
    if (!status) status = ng_cpu_check(launch, NG_OUT_2, norm->parameters, 1, columns);
    if (!status && centered) status = ng_cpu_check(launch, NG_OUT_3, norm->parameters, 1, columns);
    return status;
}

ng_status ng_cpu_launch_norm_backward(const ng_kernel *kernel, const ng_launch *launch) {
    const int64_t rows = launch->problem->m, n = launch->problem->n;
    ng_status status = check_launch(kernel, launch);
    if (status) return status;
    const int threads = ng_cpu_team(launch->device, rows * n);
    backward b = {.kernel = kernel, .launch = launch, .loops = &ng_norm_loops_of[ng_cpu_avx2(launch->device)],
                  .shape = ng_norm_shape_of(n), .rows = rows, .columns = n};
    b.blocks = ng_norm_blocks(b.shape, rows);
    b.caster = ng_caster_of(kernel->out, &kernel->contract.cast);
    const size_t each = 6 * (size_t)n + (size_t)NG_NORM_VECTOR * (size_t)b.shape.lanes;
    float *memory = malloc(sizeof *memory * (3 * (size_t)n + 2 * (size_t)n * (size_t)b.blocks + each * (size_t)threads));
    if (!memory) return ng_cpu_fail(launch, NG_NO_MEMORY, "no memory for %d partial sums of %lld", (int)b.blocks, (long long)n);
    b.w = memory;
    b.beta = memory + n;
    b.divisor = memory + 2 * n;
    b.partial = memory + 3 * n;
    ng_cpu_norm_parameters(kernel, launch, 0, b.w, b.beta);
    for (int64_t i = 0; i < n; i++)
        b.divisor[i] = ng_norm_divisor(b.w[i], ng_cpu_epsilon(launch));
    float *scratches = b.partial + 2 * n * b.blocks;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t block = 0; block < b.blocks; block++) {
        float *mine = scratches + each * (size_t)ng_cpu_thread();
        const scratch s = {mine, mine + n, mine + 2 * n, mine + 3 * n, mine + 4 * n, mine + 6 * n};
        one_block(&b, block, &s);
    }
    store_sums(&b, 0, &launch->tensors[NG_OUT_2], b.w, threads);
    if (kernel->contract.norm.kind == NG_LAYER_NORM) store_sums(&b, 1, &launch->tensors[NG_OUT_3], b.w, threads);
    free(memory);
    return NG_OK;
}
