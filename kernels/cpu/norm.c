/* layernorm/<in>-><out>/cpu/..., rmsnorm/...: forward, fused with a residual and with quantization; the unfused chains that
 * fusion is measured against; and the list of all norms (kernels/contract_norm.h). */
#include "kernels/cpu/norm.h"

#include "kernels/catalogue.h"
#include "kernels/common/norm_rows.h"
#include "kernels/common/scale.h"

#include <stdlib.h>

typedef struct forward {
    const ng_kernel *kernel;
    const ng_launch *launch;
    const ng_norm_loops *loops;
    ng_caster caster;
    ng_tensor_level level;
    ng_block_scale given;
    int32_t lanes;
    int64_t columns;
    float epsilon;
    float *w, *beta; /* [C] */
} forward;

typedef struct scratch {
    float *x, *y, *chains; /* [C], [C], [8 L] */
    uint32_t *codes;       /* [C] */
} scratch;

static bool is_quantized(const ng_kernel *kernel) { return kernel->contract.quantization.rule != NG_SCALE_ABSENT; }

/* ---- quantization of a row ----------------------------------------------------------------------------------------*/
static void store_scale(const ng_tensor *scales, int64_t row, int64_t column, uint32_t code) {
    uint8_t *to = ng_cpu_row(scales, row);
    if (scales->format == NG_FP32) ((ng_u32 *)to)[column] = code;
    else to[column] = (uint8_t)code;
}

static void quantize_row(const forward *f, int64_t row, const scratch *s) {
    const ng_quantization *q = &f->kernel->contract.quantization;
    const ng_tensor *out = &f->launch->tensors[NG_OUT], *scales = &f->launch->tensors[NG_OUT_SCALES];
    const int64_t block = ng_cpu_block(q->blocks.columns, f->columns);
    for (int64_t from = 0, b = 0; from < f->columns; from += block, b++) {
        const int64_t end = ng_cpu_min(from + block, f->columns);
        ng_block_scale scale = f->given;
        if (q->rule != NG_SCALE_GIVEN) {
            uint32_t amax = 0;
            for (int64_t i = from; i < end; i++) {
                const uint32_t magnitude = ng_bits(s->y[i]) & NG_ABS_MASK;
                amax = magnitude > amax ? magnitude : amax;
            }
            scale = ng_scale_block(q, amax, f->level);
            store_scale(scales, row, b, scale.code);
        }
        for (int64_t i = from; i < end; i++)
            s->codes[i] = ng_cast_code(&f->caster, NG_RN_EVEN, ng_bits(ng_scale_apply(s->y[i], scale, false)));
    }
    ng_cpu_store(q->element, s->codes, f->columns, ng_cpu_row(out, row), 0);
}

/* The scales that come in rather than from the row, and what stands once for the whole tensor. */
static void begin_quantization(forward *f) {
    const ng_quantization *q = &f->kernel->contract.quantization;
    const ng_tensor *t = f->launch->tensors;
    if (!is_quantized(f->kernel)) return;
    if (q->rule == NG_SCALE_GIVEN) {
        f->given = ng_scale_encoding(*(const ng_f32 *)t[NG_SCALE_GIVEN_IN].data);
        store_scale(&t[NG_OUT_SCALES], 0, 0, f->given.code);
    } else if (q->tensor_scale) {
        f->level = ng_tensor_scale(q, ng_bits(*(const ng_f32 *)t[NG_SCALE_GIVEN_IN].data) & NG_ABS_MASK);
        *(ng_f32 *)t[NG_OUT_TENSOR_SCALE].data = f->level.decode;
    }
}

/* ---- rows ---------------------------------------------------------------------------------------------------------*/
static void store_statistic(const ng_tensor *t, int64_t row, float value) {
    if (t->data) *(ng_u32 *)ng_cpu_row(t, row) = ng_norm_code(NULL, NG_FP32, value);
}

static void load_input(const forward *f, int64_t row, const scratch *s) {
    const ng_tensor *t = f->launch->tensors;
    f->loops->load(f->kernel->in, ng_cpu_row(&t[NG_IN], row), f->columns, s->x);
    if (!f->kernel->contract.norm.residual) return;
    f->loops->load(f->kernel->in, ng_cpu_row(&t[NG_IN_2], row), f->columns, s->y);
    f->loops->add(s->x, s->y, f->kernel->in, f->columns, s->x, ng_cpu_row(&t[NG_OUT_2], row));
}

static float mean_of(const forward *f, const scratch *s) {
    if (f->kernel->contract.norm.kind == NG_RMS_NORM) return 0;
    return ng_div(f->loops->sum(s->x, f->columns, f->lanes, s->chains), (float)f->columns);
}

static float rstd_of(const forward *f, float mean, const scratch *s) {
    return ng_norm_rstd(f->loops->squares(s->x, mean, f->columns, f->lanes, s->chains), (float)f->columns, f->epsilon);
}

static void finish_row(const forward *f, int64_t row, float mean, float rstd, const scratch *s) {
    const ng_tensor *out = &f->launch->tensors[NG_OUT];
    f->loops->normalize(s->x, mean, rstd, f->w, f->beta, f->columns, s->y);
    if (is_quantized(f->kernel)) quantize_row(f, row, s);
    else f->loops->store(out->format, &f->caster, s->y, f->columns, ng_cpu_row(out, row));
}

static void fused_row(const forward *f, int64_t row, const scratch *s) {
    load_input(f, row, s);
    const float mean = mean_of(f, s), rstd = rstd_of(f, mean, s);
    if (f->kernel->contract.norm.kind == NG_LAYER_NORM) store_statistic(&f->launch->tensors[NG_MEAN], row, mean);
    store_statistic(&f->launch->tensors[NG_RSTD], row, rstd);
    finish_row(f, row, mean, rstd, s);
}

/* One step of the unfused chain: sum, mean, rstd or result; each a pass over the whole tensor. */
typedef enum step { ADD, MEAN, RSTD, RESULT, FUSED } step;

static void unfused_row(const forward *f, int64_t row, step what, const scratch *s, float *statistics) {
    const ng_norm *norm = &f->kernel->contract.norm;
    const ng_tensor *t = f->launch->tensors;
    if (what == ADD) {
        if (norm->residual) load_input(f, row, s);
        return;
    }
    f->loops->load(f->kernel->in, ng_cpu_row(&t[norm->residual ? NG_OUT_2 : NG_IN], row), f->columns, s->x);
    if (what == MEAN) statistics[2 * row] = mean_of(f, s);
    if (what == RSTD) statistics[2 * row + 1] = rstd_of(f, statistics[2 * row], s);
    if (what != RESULT) return;
    if (norm->kind == NG_LAYER_NORM) store_statistic(&t[NG_MEAN], row, statistics[2 * row]);
    store_statistic(&t[NG_RSTD], row, statistics[2 * row + 1]);
    finish_row(f, row, statistics[2 * row], statistics[2 * row + 1], s);
}

/* ---- launch -------------------------------------------------------------------------------------------------------*/
static ng_status check_quantized(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_quantization *q = &kernel->contract.quantization;
    const int64_t rows = launch->problem->m, columns = launch->problem->n;
    ng_status status = ng_cpu_check(launch, NG_OUT_SCALES, q->scale, ng_cpu_blocks(q->blocks.rows, rows), ng_cpu_blocks(q->blocks.columns, columns));
    if (!status && (q->rule == NG_SCALE_GIVEN || q->tensor_scale)) status = ng_cpu_check(launch, NG_SCALE_GIVEN_IN, NG_FP32, 1, 1);
    if (!status && q->tensor_scale) status = ng_cpu_check(launch, NG_OUT_TENSOR_SCALE, NG_FP32, 1, 1);
    return status;
}

static ng_status check_launch(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_norm *norm = &kernel->contract.norm;
    const int64_t rows = launch->problem->m, columns = launch->problem->n;
    ng_status status = ng_cpu_check(launch, NG_IN, kernel->in, rows, columns);
    if (!status) status = ng_cpu_check(launch, NG_OUT, kernel->out, rows, columns);
    if (!status) status = ng_cpu_norm_check_parameters(kernel, launch, norm->kind == NG_LAYER_NORM);
    if (!status && norm->residual) status = ng_cpu_check(launch, NG_IN_2, kernel->in, rows, columns);
    if (!status && norm->residual) status = ng_cpu_check(launch, NG_OUT_2, kernel->in, rows, columns);
    if (!status && norm->kind == NG_LAYER_NORM && launch->tensors[NG_MEAN].data) status = ng_cpu_check(launch, NG_MEAN, NG_FP32, rows, 1);
    if (!status && launch->tensors[NG_RSTD].data) status = ng_cpu_check(launch, NG_RSTD, NG_FP32, rows, 1);
    return !status && is_quantized(kernel) ? check_quantized(kernel, launch) : status;
}

static ng_status launch_forward(const ng_kernel *kernel, const ng_launch *launch, bool fused) {
    const int64_t rows = launch->problem->m, columns = launch->problem->n;
    ng_status status = check_launch(kernel, launch);
    if (status) return status;
    const int threads = ng_cpu_team(launch->device, rows * columns);
    const int32_t lanes = ng_norm_shape_of(columns).lanes;
    const size_t each = (size_t)columns * 3 + (size_t)NG_NORM_VECTOR * (size_t)lanes;
    float *memory = malloc(sizeof *memory * (2 * (size_t)columns + each * (size_t)threads));
    float *statistics = fused ? NULL : calloc(2 * (size_t)rows, sizeof *statistics);
    if (!memory || (!fused && !statistics)) {
        status = ng_cpu_fail(launch, NG_NO_MEMORY, "no memory for rows of %lld", (long long)columns);
        goto done;
    }
    forward f = {.kernel = kernel, .launch = launch, .loops = &ng_norm_loops_of[ng_cpu_avx2(launch->device)], .lanes = lanes,
                 .columns = columns, .epsilon = ng_cpu_epsilon(launch), .w = memory, .beta = memory + columns};
    f.caster = ng_caster_of(kernel->out, &kernel->contract.cast);
    ng_cpu_norm_parameters(kernel, launch, -0.0f, f.w, f.beta);
    begin_quantization(&f);
    for (step what = fused ? FUSED : ADD; what <= (fused ? FUSED : RESULT); what++) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t row = 0; row < rows; row++) {
            float *mine = memory + 2 * columns + each * (size_t)ng_cpu_thread();
            const scratch s = {mine, mine + columns, mine + 3 * columns, (uint32_t *)(void *)(mine + 2 * columns)};
            if (fused) fused_row(&f, row, &s);
            else unfused_row(&f, row, what, &s, statistics);
        }
    }
done:
    free(statistics);
    free(memory);
    return status;
}

static ng_status launch_fused(const ng_kernel *kernel, const ng_launch *launch) { return launch_forward(kernel, launch, true); }
static ng_status launch_unfused(const ng_kernel *kernel, const ng_launch *launch) { return launch_forward(kernel, launch, false); }

/* ---- catalogue ----------------------------------------------------------------------------------------------------*/
#define DESCRIBE(o, k, i, I, o_, O, variant, P, zero, residual, form, launcher)                          \
    {.name = o "/" i "->" o_ "/cpu/" variant, .op = NG_OP_NORM_FORWARD, .backend = NG_BACKEND_CPU, .in = I,               \
     .in_b = NG_NO_FORMAT, .out = O, .contract = NG_NORM_CONTRACT_FORWARD(k, P, zero, residual, form),      \
     .supports = ng_cpu_supports, .launch = launcher},
#define NG_NORM_BACKWARD(o, k, i, I, variant, P, zero, output)                                                            \
    {.name = o "/" i "/cpu/" variant, .op = NG_OP_NORM_BACKWARD, .backend = NG_BACKEND_CPU, .in = I,                      \
     .in_b = NG_NO_FORMAT, .out = I, .contract = NG_NORM_CONTRACT_BACKWARD(k, P, zero, output),                           \
     .supports = ng_cpu_supports, .launch = ng_cpu_launch_norm_backward},

static const ng_kernel kernels[] = {
#define NG_NORM_FORWARD(...) DESCRIBE(__VA_ARGS__, launch_fused)
    NG_NORM_FORWARD_ROWS
#undef NG_NORM_FORWARD
#define NG_NORM_FORWARD(...) DESCRIBE(__VA_ARGS__, launch_unfused)
    NG_NORM_UNFUSED_ROWS
#undef NG_NORM_FORWARD
    NG_NORM_BACKWARD_ROWS
};

const ng_kernel_list ng_cpu_norms = {kernels, sizeof kernels / sizeof *kernels};
