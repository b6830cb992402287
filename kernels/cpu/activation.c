/* swiglu/<in>-><out>/cpu/..., gelu-tanh/..., gelu-erf/...: forward, alone and fused with quantization, and backward; the
 * unfused chains that fusion is measured against (kernels/contract_activation.h). */
#include "kernels/catalogue.h"
#include "kernels/common/activation.h"
#include "kernels/common/activation_rows.h"
#include "kernels/common/scale.h"
#include "kernels/cpu/norm.h"

#include <stdlib.h>

enum { PIECE = 2048 }; /* a multiple of every block of the rows */

/* ---- the elements -------------------------------------------------------------------------------------------------*/
typedef void forward_loop(const float *x, const float *u, int64_t n, float *y);
typedef void backward_loop(const float *x, const float *u, const float *d, int64_t n, float *dx, float *du);

#define LOOPS(name, target, kind)                                                                                       \
    target static void name(const float *restrict x, const float *restrict u, int64_t n, float *restrict y) {           \
        for (int64_t i = 0; i < n; i++)                                                                                 \
            y[i] = ng_activate(kind, x[i], u[i]);                                                                       \
    }                                                                                                                   \
    target static void name##_backward(const float *restrict x, const float *restrict u, const float *restrict d,       \
                                       int64_t n, float *restrict dx, float *restrict du) {                             \
        for (int64_t i = 0; i < n; i++)                                                                                 \
            dx[i] = ng_activate_backward(kind, x[i], u[i], d[i], &du[i]);                                               \
    }
LOOPS(swiglu, , NG_SWIGLU)
LOOPS(gelu_tanh, , NG_GELU_TANH)
LOOPS(gelu_erf, , NG_GELU_ERF)
LOOPS(swiglu_avx2, NG_AVX2, NG_SWIGLU)
LOOPS(gelu_tanh_avx2, NG_AVX2, NG_GELU_TANH)
LOOPS(gelu_erf_avx2, NG_AVX2, NG_GELU_ERF)

static forward_loop *const forwards[2][3] = {
    {[NG_SWIGLU] = swiglu, [NG_GELU_TANH] = gelu_tanh, [NG_GELU_ERF] = gelu_erf},
    {[NG_SWIGLU] = swiglu_avx2, [NG_GELU_TANH] = gelu_tanh_avx2, [NG_GELU_ERF] = gelu_erf_avx2},
};
static backward_loop *const backwards[2][3] = {
    {[NG_SWIGLU] = swiglu_backward, [NG_GELU_TANH] = gelu_tanh_backward, [NG_GELU_ERF] = gelu_erf_backward},
    {[NG_SWIGLU] = swiglu_avx2_backward, [NG_GELU_TANH] = gelu_tanh_avx2_backward, [NG_GELU_ERF] = gelu_erf_avx2_backward},
};

/* ---- a piece of a row ---------------------------------------------------------------------------------------------*/
typedef struct activation {
    const ng_kernel *kernel;
    const ng_launch *launch;
    const ng_norm_loops *loops;
    forward_loop *forward;
    backward_loop *backward;
    ng_caster caster;
    ng_tensor_level level;
    ng_block_scale given;
} activation;

static bool is_gated(const ng_kernel *kernel) { return kernel->contract.activation.kind == NG_SWIGLU; }
static bool is_quantized(const ng_kernel *kernel) { return kernel->contract.quantization.rule != NG_SCALE_ABSENT; }

static uint8_t *place(const activation *a, ng_role role, int64_t row, int64_t from) {
    const ng_tensor *t = &a->launch->tensors[role];
    return ng_cpu_row(t, row) + ng_cpu_row_bytes(t->format, from);
}

static void load_operands(const activation *a, int64_t row, int64_t from, int64_t n, float *x, float *u) {
    a->loops->load(a->kernel->in, place(a, NG_IN, row, from), n, x);
    if (is_gated(a->kernel)) a->loops->load(a->kernel->in, place(a, NG_IN_2, row, from), n, u);
}

static void store_scale(const ng_tensor *scales, int64_t row, int64_t column, uint32_t code) {
    uint8_t *to = ng_cpu_row(scales, row);
    if (scales->format == NG_FP32) ((ng_u32 *)to)[column] = code;
    else to[column] = (uint8_t)code;
}

static void quantize_piece(const activation *a, int64_t row, int64_t first, int64_t n, const float *y) {
    const ng_quantization *q = &a->kernel->contract.quantization;
    const int64_t block = q->blocks.columns ? q->blocks.columns : PIECE;
    uint32_t codes[PIECE];
    for (int64_t from = 0; from < n; from += block) {
        const int64_t end = ng_cpu_min(from + block, n);
        ng_block_scale scale = a->given;
        if (q->rule != NG_SCALE_GIVEN) {
            uint32_t amax = 0;
            for (int64_t i = from; i < end; i++) {
                const uint32_t magnitude = ng_bits(y[i]) & NG_ABS_MASK;
                amax = magnitude > amax ? magnitude : amax;
            }
            scale = ng_scale_block(q, amax, a->level);
            store_scale(&a->launch->tensors[NG_OUT_SCALES], row, (first + from) / block, scale.code);
        }
        for (int64_t i = from; i < end; i++)
            codes[i] = ng_cast_code(&a->caster, NG_RN_EVEN, ng_bits(ng_scale_apply(y[i], scale, false)));
    }
    ng_cpu_store(q->element, codes, n, ng_cpu_row(&a->launch->tensors[NG_OUT], row), first);
}

static void forward_piece(const activation *a, int64_t row, int64_t from, int64_t n) {
    float x[PIECE], u[PIECE], y[PIECE];
    load_operands(a, row, from, n, x, u);
    a->forward(x, u, n, y);
    if (is_quantized(a->kernel)) quantize_piece(a, row, from, n, y);
    else a->loops->store(a->kernel->out, &a->caster, y, n, place(a, NG_OUT, row, from));
}

static void backward_piece(const activation *a, int64_t row, int64_t from, int64_t n) {
    float x[PIECE], u[PIECE], d[PIECE], dx[PIECE], du[PIECE];
    load_operands(a, row, from, n, x, u);
    a->loops->load(a->kernel->in, place(a, NG_GRADIENT, row, from), n, d);
    a->backward(x, u, d, n, dx, du);
    a->loops->store(a->kernel->out, &a->caster, dx, n, place(a, NG_OUT, row, from));
    if (is_gated(a->kernel)) a->loops->store(a->kernel->out, &a->caster, du, n, place(a, NG_OUT_2, row, from));
}

/* ---- launch -------------------------------------------------------------------------------------------------------*/
static ng_status check_operands(const ng_kernel *kernel, const ng_launch *launch) {
    const int64_t rows = launch->problem->m, columns = launch->problem->n;
    ng_status status = ng_cpu_check(launch, NG_IN, kernel->in, rows, columns);
    if (!status && is_gated(kernel)) status = ng_cpu_check(launch, NG_IN_2, kernel->in, rows, columns);
    if (!status) status = ng_cpu_check(launch, NG_OUT, kernel->out, rows, columns);
    return status;
}

static ng_status check_quantized(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_quantization *q = &kernel->contract.quantization;
    const int64_t rows = launch->problem->m, columns = launch->problem->n;
    ng_status status = ng_cpu_check(launch, NG_OUT_SCALES, q->scale, ng_cpu_blocks(q->blocks.rows, rows), ng_cpu_blocks(q->blocks.columns, columns));
    if (!status && (q->rule == NG_SCALE_GIVEN || q->tensor_scale)) status = ng_cpu_check(launch, NG_SCALE_GIVEN_IN, NG_FP32, 1, 1);
    if (!status && q->tensor_scale) status = ng_cpu_check(launch, NG_OUT_TENSOR_SCALE, NG_FP32, 1, 1);
    return status;
}

static void begin_quantization(activation *a) {
    const ng_quantization *q = &a->kernel->contract.quantization;
    const ng_tensor *t = a->launch->tensors;
    if (q->rule == NG_SCALE_GIVEN) {
        a->given = ng_scale_encoding(*(const ng_f32 *)t[NG_SCALE_GIVEN_IN].data);
        store_scale(&t[NG_OUT_SCALES], 0, 0, a->given.code);
    } else if (q->tensor_scale) {
        a->level = ng_tensor_scale(q, ng_bits(*(const ng_f32 *)t[NG_SCALE_GIVEN_IN].data) & NG_ABS_MASK);
        *(ng_f32 *)t[NG_OUT_TENSOR_SCALE].data = a->level.decode;
    }
}

static activation begin(const ng_kernel *kernel, const ng_launch *launch) {
    const bool avx2 = ng_cpu_avx2(launch->device);
    const ng_activation_kind kind = kernel->contract.activation.kind;
    return (activation){.kernel = kernel, .launch = launch, .loops = &ng_norm_loops_of[avx2], .forward = forwards[avx2][kind],
                        .backward = backwards[avx2][kind], .caster = ng_caster_of(kernel->out, &kernel->contract.cast)};
}

static void for_pieces(const activation *a, void (*piece)(const activation *a, int64_t row, int64_t from, int64_t n)) {
    const int64_t rows = a->launch->problem->m, columns = a->launch->problem->n, across = (columns + PIECE - 1) / PIECE;
#pragma omp parallel for num_threads(ng_cpu_team(a->launch->device, rows * columns)) schedule(static)
    for (int64_t task = 0; task < rows * across; task++)
        piece(a, task / across, task % across * PIECE, ng_cpu_min(PIECE, columns - task % across * PIECE));
}

static ng_status launch_forward(const ng_kernel *kernel, const ng_launch *launch) {
    ng_status status = check_operands(kernel, launch);
    if (!status && is_quantized(kernel)) status = check_quantized(kernel, launch);
    if (status) return status;
    activation a = begin(kernel, launch);
    if (is_quantized(kernel)) begin_quantization(&a);
    for_pieces(&a, forward_piece);
    return NG_OK;
}

static ng_status launch_backward(const ng_kernel *kernel, const ng_launch *launch) {
    ng_status status = check_operands(kernel, launch);
    if (!status) status = ng_cpu_check(launch, NG_GRADIENT, kernel->in, launch->problem->m, launch->problem->n);
    if (!status && is_gated(kernel)) status = ng_cpu_check(launch, NG_OUT_2, kernel->out, launch->problem->m, launch->problem->n);
    if (status) return status;
    const activation a = begin(kernel, launch);
    for_pieces(&a, backward_piece);
    return NG_OK;
}

/* ---- unfused ------------------------------------------------------------------------------------------------------
 * Each function a pass over whole tensors in fp32: the logistic function (or tail) of x, its product with x, that with u. */
static ng_status launch_unfused(const ng_kernel *kernel, const ng_launch *launch) {
    const int64_t rows = launch->problem->m, columns = launch->problem->n, count = rows * columns;
    const ng_activation_kind kind = kernel->contract.activation.kind;
    ng_status status = check_operands(kernel, launch);
    if (status) return status;
    const activation a = begin(kernel, launch);
    float *x = malloc(sizeof *x * 3 * (size_t)count), *u = x + count, *s = u + count;
    if (!x) return ng_cpu_fail(launch, NG_NO_MEMORY, "no memory for %lld intermediate values", (long long)count);
    const int team = ng_cpu_team(launch->device, count);
#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        load_operands(&a, row, 0, columns, x + row * columns, u + row * columns);
#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t i = 0; i < count; i++) {
        const float magnitude = ng_normal_argument(x[i]);
        s[i] = kind == NG_SWIGLU ? ng_logistic(x[i]) : kind == NG_GELU_TANH ? ng_logistic(ng_gelu_argument(x[i]))
               : ng_normal(x[i], ng_tail_of(magnitude, ng_density(magnitude)));
    }
#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t i = 0; i < count; i++)
        s[i] = ng_mul(x[i], s[i]);
    if (is_gated(kernel)) {
#pragma omp parallel for num_threads(team) schedule(static)
        for (int64_t i = 0; i < count; i++)
            s[i] = ng_mul(s[i], u[i]);
    }
#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        a.loops->store(kernel->out, &a.caster, s + row * columns, columns, ng_cpu_row(&launch->tensors[NG_OUT], row));
    free(x);
    return NG_OK;
}

/* ---- catalogue ----------------------------------------------------------------------------------------------------*/
#define FORWARD(o, k, i, I, o_, O, form, variant, launcher)                                                       \
    {.name = o "/" i "->" o_ "/cpu/" variant, .op = NG_OP_ACTIVATION, .backend = NG_BACKEND_CPU, .in = I,         \
     .in_b = NG_NO_FORMAT, .out = O, .contract = NG_ACTIVATION_CONTRACT(k, form), .supports = ng_cpu_supports,    \
     .launch = launcher},
#define NG_FORWARD(...) FORWARD(__VA_ARGS__, "fused", launch_forward)
#define NG_UNFUSED(...) FORWARD(__VA_ARGS__, "unfused", launch_unfused)
#define NG_BACKWARD(o, k, i, I)                                                                                   \
    {.name = o "/" i "/cpu/fused", .op = NG_OP_ACTIVATION_BACKWARD, .backend = NG_BACKEND_CPU, .in = I,           \
     .in_b = NG_NO_FORMAT, .out = I, .contract = NG_ACTIVATION_CONTRACT(k, PLAIN), .supports = ng_cpu_supports,   \
     .launch = launch_backward},

static const ng_kernel kernels[] = {NG_ACTIVATION_ROWS};

const ng_kernel_list ng_cpu_activations = {kernels, sizeof kernels / sizeof *kernels};
