/* rope, add, transpose, embedding-forward, embedding-backward (contract_layer.h) on the CPU, for fp64, fp32, bf16, fp16. */
#include "kernels/catalogue.h"
#include "kernels/common/layer_rows.h"
#include "kernels/cpu/cpu.h"

#include <stdlib.h>

enum { CHUNK = 256 };

NG_ALWAYS_INLINE uint32_t store_code(const ng_caster *caster, ng_format_id to, float value) {
    uint32_t bits = ng_bits(value);
    if (to != NG_FP32) return ng_cast_code(caster, NG_RN_EVEN, bits);
    return (bits & NG_ABS_MASK) > NG_INF_BITS ? NG_NAN_BITS : bits;
}

NG_ALWAYS_INLINE void load(ng_format_id format, const void *row, int64_t from, int64_t n, float *values) {
    uint32_t bits[CHUNK];
    ng_cpu_load_bits(format, row, from, n, bits);
    memcpy(values, bits, (size_t)n * sizeof *values);
}

/* ---- rope ---------------------------------------------------------------------------------------------------------*/
typedef struct rope {
    const ng_kernel *kernel;
    const ng_tensor *in, *out, *cosines, *sines;
    ng_caster caster;
    int64_t heads, half, sequence;
} rope;

static void rotate_floats(const rope *r, int64_t row, int64_t from, const float *c, const float *s, float sign) {
    const uint8_t *in = ng_cpu_row(r->in, row);
    uint8_t *out = ng_cpu_row(r->out, row);
    for (int64_t at = 0; at < r->half; at += CHUNK) {
        int64_t n = ng_cpu_min(CHUNK, r->half - at);
        float x[CHUNK], y[CHUNK];
        load(r->kernel->in, in, from + at, n, x);
        load(r->kernel->in, in, from + r->half + at, n, y);
        uint32_t codes[2][CHUNK];
        for (int64_t i = 0; i < n; i++) {
            float sine = sign * s[at + i];
            codes[0][i] = store_code(&r->caster, r->kernel->out, x[i] * c[at + i] - y[i] * sine);
            codes[1][i] = store_code(&r->caster, r->kernel->out, y[i] * c[at + i] + x[i] * sine);
        }
        ng_cpu_store(r->kernel->out, codes[0], n, out, from + at);
        ng_cpu_store(r->kernel->out, codes[1], n, out, from + r->half + at);
    }
}

static void rotate_doubles(const rope *r, int64_t row, int64_t from, const ng_f64 *c, const ng_f64 *s, double sign) {
    const ng_f64 *in = (const ng_f64 *)ng_cpu_row(r->in, row) + from;
    ng_f64 *out = (ng_f64 *)ng_cpu_row(r->out, row) + from;
    for (int64_t i = 0; i < r->half; i++) {
        double x = in[i], y = in[i + r->half], sine = sign * s[i];
        out[i] = x * c[i] - y * sine;
        out[i + r->half] = y * c[i] + x * sine;
    }
}

static ng_status launch_rope(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    const ng_format_id real = kernel->contract.layer.compute;
    rope r = {kernel, &launch->tensors[NG_IN], &launch->tensors[NG_OUT], &launch->tensors[NG_PARAMETER], &launch->tensors[NG_PARAMETER_2],
              .heads = (int64_t)p->scalars[NG_HEADS], .sequence = (int64_t)p->scalars[NG_SEQUENCE]};
    if (r.heads < 1 || r.sequence < 1 || p->n % (2 * r.heads) || p->m % r.sequence)
        return ng_cpu_fail(launch, NG_BAD_ARGUMENT, "heads of an even size, and whole sequences, are wanted");
    r.half = p->n / r.heads / 2;
    ng_status status = ng_cpu_check(launch, NG_IN, kernel->in, p->m, 3 * p->n);
    if (!status) status = ng_cpu_check(launch, NG_OUT, kernel->out, p->m, 3 * p->n);
    if (!status) status = ng_cpu_check(launch, NG_PARAMETER, real, r.sequence, r.half);
    if (!status) status = ng_cpu_check(launch, NG_PARAMETER_2, real, r.sequence, r.half);
    if (status) return status;
    if (kernel->out != NG_FP64) r.caster = ng_caster_of(kernel->out, &kernel->contract.cast);
    const bool inverse = kernel->contract.layer.inverse;
    const int64_t values = ng_cpu_row_bytes(kernel->in, 2 * p->n), bytes = ng_cpu_row_bytes(kernel->in, p->n);
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, p->m * p->n)) schedule(static)
    for (int64_t row = 0; row < p->m; row++) {
        const void *c = ng_cpu_row(r.cosines, row % r.sequence), *s = ng_cpu_row(r.sines, row % r.sequence);
        for (int64_t head = 0; head < 2 * r.heads; head++)
            if (kernel->in == NG_FP64) rotate_doubles(&r, row, head * 2 * r.half, c, s, inverse ? -1 : 1);
            else rotate_floats(&r, row, head * 2 * r.half, c, s, inverse ? -1 : 1);
        memcpy(ng_cpu_row(r.out, row) + values, ng_cpu_row(r.in, row) + values, (size_t)bytes);
    }
    return NG_OK;
}

/* ---- add ----------------------------------------------------------------------------------------------------------*/
static void add_row(const ng_kernel *kernel, const ng_caster *caster, const void *a, const void *b, int64_t n, void *out) {
    float x[CHUNK], y[CHUNK];
    uint32_t codes[CHUNK];
    if (kernel->in == NG_FP64) {
        for (int64_t i = 0; i < n; i++)
            ((ng_f64 *)out)[i] = ((const ng_f64 *)a)[i] + ((const ng_f64 *)b)[i];
        return;
    }
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t count = ng_cpu_min(CHUNK, n - at);
        load(kernel->in, a, at, count, x);
        load(kernel->in, b, at, count, y);
        for (int64_t i = 0; i < count; i++)
            codes[i] = store_code(caster, kernel->out, x[i] + y[i]);
        ng_cpu_store(kernel->out, codes, count, out, at);
    }
}

static ng_status launch_add(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    ng_caster caster = {0};
    ng_status status = ng_cpu_check(launch, NG_IN, kernel->in, p->m, p->n);
    if (!status) status = ng_cpu_check(launch, NG_IN_2, kernel->in, p->m, p->n);
    if (!status) status = ng_cpu_check(launch, NG_OUT, kernel->out, p->m, p->n);
    if (status) return status;
    if (kernel->out != NG_FP64) caster = ng_caster_of(kernel->out, &kernel->contract.cast);
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, p->m * p->n)) schedule(static)
    for (int64_t row = 0; row < p->m; row++)
        add_row(kernel, &caster, ng_cpu_row(&launch->tensors[NG_IN], row), ng_cpu_row(&launch->tensors[NG_IN_2], row), p->n,
                ng_cpu_row(&launch->tensors[NG_OUT], row));
    return NG_OK;
}

/* ---- transpose: tiles of 16 x 16, so that whole cache lines are used either way -----------------------------------*/
typedef uint64_t any_u64 __attribute__((may_alias, aligned(1)));

#define TRANSPOSE_TILE(type)                                                              \
    for (int64_t i = row; i < row + rows; i++)                                            \
        for (int64_t j = column; j < column + columns; j++)                               \
            ((type *)ng_cpu_row(out, j))[i] = ((const type *)ng_cpu_row(in, i))[j];

static void transpose_tile(const ng_tensor *in, const ng_tensor *out, int64_t bytes, int64_t row, int64_t column) {
    const int64_t rows = ng_cpu_min(16, in->rows - row), columns = ng_cpu_min(16, in->columns - column);
    if (bytes == 8) TRANSPOSE_TILE(any_u64)
    else if (bytes == 4) TRANSPOSE_TILE(ng_u32)
    else TRANSPOSE_TILE(ng_u16)
}

static ng_status launch_transpose(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    const ng_tensor *in = &launch->tensors[NG_IN], *out = &launch->tensors[NG_OUT_T];
    ng_status status = ng_cpu_check(launch, NG_IN, kernel->in, p->m, p->n);
    if (!status) status = ng_cpu_check(launch, NG_OUT_T, kernel->out, p->n, p->m);
    if (status) return status;
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, p->m * p->n)) schedule(static)
    for (int64_t row = 0; row < p->m; row += 16)
        for (int64_t column = 0; column < p->n; column += 16)
            transpose_tile(in, out, ng_cpu_row_bytes(kernel->in, 1), row, column);
    return NG_OK;
}

/* ---- embedding ----------------------------------------------------------------------------------------------------*/
static int64_t token_of(const ng_launch *launch, int64_t row) { return (int32_t) * (const ng_u32 *)ng_cpu_row(&launch->tensors[NG_TOKENS], row); }

static ng_status check_tokens(const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    ng_status status = p->k < 1 ? ng_cpu_fail(launch, NG_BAD_ARGUMENT, "an empty vocabulary") : NG_OK;
    if (!status) status = ng_cpu_check(launch, NG_TOKENS, NG_FP32, p->m, 1);
    for (int64_t row = 0; !status && row < p->m; row++)
        if (token_of(launch, row) < 0 || token_of(launch, row) >= p->k)
            status = ng_cpu_fail(launch, NG_BAD_ARGUMENT, "token %lld is %lld, the vocabulary %lld", (long long)row,
                                 (long long)token_of(launch, row), (long long)p->k);
    return status;
}

static ng_status launch_embedding(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    ng_status status = check_tokens(launch);
    if (!status) status = ng_cpu_check(launch, NG_PARAMETER, kernel->in, p->k, p->n);
    if (!status) status = ng_cpu_check(launch, NG_OUT, kernel->out, p->m, p->n);
    if (status) return status;
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, p->m * p->n)) schedule(static)
    for (int64_t row = 0; row < p->m; row++)
        memcpy(ng_cpu_row(&launch->tensors[NG_OUT], row), ng_cpu_row(&launch->tensors[NG_PARAMETER], token_of(launch, row)),
               (size_t)ng_cpu_row_bytes(kernel->in, p->n));
    return NG_OK;
}

/* Threads share the columns, so that every chain stays in one thread and in order. */
static void add_gradients(const ng_kernel *kernel, const ng_launch *launch, int64_t from, int64_t n) {
    const ng_tensor *gradient = &launch->tensors[NG_GRADIENT], *out = &launch->tensors[NG_OUT];
    float values[CHUNK];
    for (int64_t row = 0; row < launch->problem->m; row++) {
        uint8_t *into = ng_cpu_row(out, token_of(launch, row));
        const void *g = ng_cpu_row(gradient, row);
        if (kernel->out == NG_FP64) {
            for (int64_t i = from; i < from + n; i++)
                ((ng_f64 *)into)[i] += ((const ng_f64 *)g)[i];
            continue;
        }
        load(kernel->in, g, from, n, values);
        for (int64_t i = 0; i < n; i++)
            ((ng_u32 *)(void *)into)[from + i] = store_code(NULL, NG_FP32, ((const ng_f32 *)(const void *)into)[from + i] + values[i]); /* NaN: the canonical one */
    }
}

static ng_status launch_embedding_backward(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    ng_status status = check_tokens(launch);
    if (!status) status = ng_cpu_check(launch, NG_GRADIENT, kernel->in, p->m, p->n);
    if (!status) status = ng_cpu_check(launch, NG_OUT, kernel->out, p->k, p->n);
    if (status) return status;
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, p->m * p->n)) schedule(static)
    for (int64_t from = 0; from < p->n; from += CHUNK)
        add_gradients(kernel, launch, from, ng_cpu_min(CHUNK, p->n - from));
    return NG_OK;
}

/* ---- catalogue ----------------------------------------------------------------------------------------------------*/
#define LAYER(operation, OPERATION, name_, in_format, out_format, real, variant, turned, function)                  \
    {.name = operation "/" name_ "/cpu/" variant, .op = OPERATION, .backend = NG_BACKEND_CPU, .in = in_format,    \
     .in_b = NG_NO_FORMAT, .out = out_format, .contract = NG_LAYER_CONTRACT(.compute = real, .inverse = turned),  \
     .supports = ng_cpu_supports, .launch = function},
#define NG_ROPE(name, format, real, variant, turned) LAYER("rope", NG_OP_ROPE, name, format, format, real, variant, turned, launch_rope)
#define NG_ADD(name, format, real, variant) LAYER("add", NG_OP_ADD, name, format, format, real, variant, false, launch_add)
#define NG_TRANSPOSE(name, format, real, variant) LAYER("transpose", NG_OP_TRANSPOSE, name, format, format, real, variant, false, launch_transpose)
#define NG_EMBEDDING(name, format, real, variant) \
    LAYER("embedding-forward", NG_OP_EMBEDDING_FORWARD, name, format, format, real, variant, false, launch_embedding)
#define NG_EMBEDDING_BACKWARD(name, format, real, variant) \
    LAYER("embedding-backward", NG_OP_EMBEDDING_BACKWARD, name, format, real, real, variant, false, launch_embedding_backward)

static const ng_kernel kernels[] = {NG_LAYER_ROWS};

const ng_kernel_list ng_cpu_layers = {kernels, sizeof kernels / sizeof *kernels};
