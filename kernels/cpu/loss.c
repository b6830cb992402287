/* cross-entropy/<format>/cpu/fused, cross-entropy-backward/...: softmax cross-entropy with fp32 statistics
 * (kernels/contract_activation.h). */
#include "kernels/catalogue.h"
#include "kernels/common/activation.h"
#include "kernels/common/activation_rows.h"
#include "kernels/cpu/norm.h"

enum { PIECE = NG_LOSS_CHAINS };

typedef float max_loop(const float *x, int64_t n, float max);
typedef void sum_loop(const float *x, float max, int64_t n, float *chains);
typedef void gradient_loop(const float *x, float max, float r, float d, int64_t n, float *y);

#define LOOPS(suffix, target)                                                                                              \
    target static float max##suffix(const float *x, int64_t n, float max) {                                               \
        for (int64_t i = 0; i < n; i++)                                                                                   \
            max = ng_max_nan(max, x[i]);                                                                                  \
        return max;                                                                                                       \
    }                                                                                                                     \
    target static void sum##suffix(const float *restrict x, float max, int64_t n, float *restrict chains) {               \
        for (int64_t i = 0; i < n; i++)                                                                                   \
            chains[i] = ng_add(chains[i], ng_exp(ng_sub(x[i], max)));                                                     \
    }                                                                                                                     \
    target static void gradient##suffix(const float *restrict x, float max, float r, float d, int64_t n, float *restrict y) { \
        for (int64_t i = 0; i < n; i++)                                                                                   \
            y[i] = ng_loss_gradient(x[i], max, r, false, d);                                                              \
    }
LOOPS(_c, )
LOOPS(_avx2, NG_AVX2)

static max_loop *const max_of[2] = {max_c, max_avx2};
static sum_loop *const sum_of[2] = {sum_c, sum_avx2};
static gradient_loop *const gradient_of[2] = {gradient_c, gradient_avx2};

typedef struct loss {
    const ng_kernel *kernel;
    const ng_launch *launch;
    const ng_norm_loops *loops;
    ng_caster caster;
    int64_t columns;
    bool avx2;
} loss;

static int32_t label_of(const loss *l, int64_t row) { return (int32_t)*(const ng_u32 *)ng_cpu_row(&l->launch->tensors[NG_LABELS], row); }
static float number_of(const loss *l, ng_role role, int64_t row) { return *(const ng_f32 *)ng_cpu_row(&l->launch->tensors[role], row); }
static void store_number(const loss *l, ng_role role, int64_t row, float value) {
    const ng_tensor *t = &l->launch->tensors[role];
    if (t->data) *(ng_u32 *)ng_cpu_row(t, row) = ng_norm_code(NULL, NG_FP32, value);
}

/* Columns [from, from + the number returned) of a row. */
static int64_t load(const loss *l, int64_t row, int64_t from, float *x) {
    const int64_t n = ng_cpu_min(PIECE, l->columns - from);
    l->loops->load(l->kernel->in, ng_cpu_row(&l->launch->tensors[NG_IN], row) + ng_cpu_row_bytes(l->kernel->in, from), n, x);
    return n;
}

static void forward_row(const loss *l, int64_t row) {
    float x[PIECE], chains[NG_LOSS_CHAINS] = {0}, max = -INFINITY, label = 0;
    const int32_t which = label_of(l, row);
    for (int64_t from = 0; from < l->columns; from += PIECE)
        max = max_of[l->avx2](x, load(l, row, from, x), max);
    max = ng_add(max, 0.0f);
    for (int64_t from = 0; from < l->columns; from += PIECE) {
        const int64_t n = load(l, row, from, x);
        sum_of[l->avx2](x, max, n, chains);
        if (which >= from && which < from + n) label = x[which - from];
    }
    for (int h = NG_LOSS_CHAINS / 2; h; h /= 2)
        for (int k = 0; k < h; k++)
            chains[k] = ng_add(chains[k], chains[k + h]);
    store_number(l, NG_ROW_MAX, row, max);
    store_number(l, NG_ROW_SUM, row, chains[0]);
    store_number(l, NG_OUT, row, which < 0 ? 0 : ng_loss_value(max, label, chains[0]));
}

static void backward_row(const loss *l, int64_t row) {
    float x[PIECE], y[PIECE];
    const int32_t which = label_of(l, row);
    const float max = number_of(l, NG_ROW_MAX, row), r = ng_div(1.0f, number_of(l, NG_ROW_SUM, row)), d = number_of(l, NG_GRADIENT, row);
    for (int64_t from = 0; from < l->columns; from += PIECE) {
        const int64_t n = load(l, row, from, x);
        if (which < 0) memset(y, 0, sizeof y);
        else gradient_of[l->avx2](x, max, r, d, n, y);
        if (which >= from && which < from + n) y[which - from] = ng_loss_gradient(x[which - from], max, r, true, d);
        l->loops->store(l->kernel->out, &l->caster, y, n, ng_cpu_row(&l->launch->tensors[NG_OUT], row) + ng_cpu_row_bytes(l->kernel->out, from));
    }
}

static ng_status check_launch(const ng_kernel *kernel, const ng_launch *launch, bool backward) {
    const int64_t rows = launch->problem->m, columns = launch->problem->n;
    ng_status status = ng_cpu_check(launch, NG_IN, kernel->in, rows, columns);
    if (!status) status = ng_cpu_check(launch, NG_LABELS, NG_FP32, rows, 1);
    if (!status) status = ng_cpu_check(launch, NG_OUT, kernel->out, rows, backward ? columns : 1);
    if (!status && (backward || launch->tensors[NG_ROW_MAX].data)) status = ng_cpu_check(launch, NG_ROW_MAX, NG_FP32, rows, 1);
    if (!status && (backward || launch->tensors[NG_ROW_SUM].data)) status = ng_cpu_check(launch, NG_ROW_SUM, NG_FP32, rows, 1);
    if (!status && backward) status = ng_cpu_check(launch, NG_GRADIENT, NG_FP32, rows, 1);
    for (int64_t row = 0; row < rows && !status; row++) {
        const int32_t label = (int32_t)*(const ng_u32 *)ng_cpu_row(&launch->tensors[NG_LABELS], row);
        if (label >= columns) status = ng_cpu_fail(launch, NG_BAD_ARGUMENT, "label %d of row %lld, of %lld classes", (int)label, (long long)row, (long long)columns);
    }
    return status;
}

static ng_status launch_loss(const ng_kernel *kernel, const ng_launch *launch, bool backward) {
    ng_status status = check_launch(kernel, launch, backward);
    if (status) return status;
    const bool avx2 = ng_cpu_avx2(launch->device);
    const loss l = {kernel, launch, &ng_norm_loops_of[avx2], ng_caster_of(kernel->out, &kernel->contract.cast), launch->problem->n, avx2};
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, launch->problem->m * l.columns)) schedule(static)
    for (int64_t row = 0; row < launch->problem->m; row++) {
        if (backward) backward_row(&l, row);
        else forward_row(&l, row);
    }
    return NG_OK;
}

static ng_status launch_forward(const ng_kernel *kernel, const ng_launch *launch) { return launch_loss(kernel, launch, false); }
static ng_status launch_backward(const ng_kernel *kernel, const ng_launch *launch) { return launch_loss(kernel, launch, true); }

/* ---- catalogue ----------------------------------------------------------------------------------------------------*/
#define NG_LOSS(i, I)                                                                                               \
    {.name = "cross-entropy/" i "/cpu/fused", .op = NG_OP_LOSS, .backend = NG_BACKEND_CPU, .in = I,                 \
     .in_b = NG_NO_FORMAT, .out = NG_FP32, .contract = {.cast = NG_NORM_CAST, .determinism = NG_DETERMINISTIC},     \
     .supports = ng_cpu_supports, .launch = launch_forward},                                                        \
    {.name = "cross-entropy-backward/" i "/cpu/fused", .op = NG_OP_LOSS_BACKWARD, .backend = NG_BACKEND_CPU, .in = I, \
     .in_b = NG_NO_FORMAT, .out = I, .contract = {.cast = NG_NORM_CAST, .determinism = NG_DETERMINISTIC},           \
     .supports = ng_cpu_supports, .launch = launch_backward},

static const ng_kernel kernels[] = {NG_LOSS_ROWS};

const ng_kernel_list ng_cpu_losses = {kernels, sizeof kernels / sizeof *kernels};
