/* attention-forward|backward/<format>/cpu/causal (contract_layer.h): a task is one head of one sequence; fp64 in binary64, the others in binary32. */
#include "kernels/catalogue.h"
#include "kernels/common/fp64.h"
#include "kernels/common/layer_rows.h"
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>

#define REAL float
#define EXP ng_exp
#define SQRT sqrtf
#define FMA fmaf
#define NAME(x) float_##x
#include "kernels/cpu/attention_real.h"
#undef REAL
#undef EXP
#undef SQRT
#undef FMA
#undef NAME
#define REAL double
#define EXP ng_exp64
#define SQRT sqrt
#define FMA fma
#define NAME(x) double_##x
#include "kernels/cpu/attention_real.h"

/* One head, compiled for each instruction set. */
typedef void float_pass(const float_head *h);
typedef void double_pass(const double_head *h);
#define PASS(type, pass)                                                          \
    static void type##_##pass##_c(const type##_head *h) { type##_##pass##_head(h); } \
    NG_AVX2 static void type##_##pass##_avx2(const type##_head *h) { type##_##pass##_head(h); }
PASS(float, forward)
PASS(float, backward)
PASS(double, forward)
PASS(double, backward)
static float_pass *const float_passes[2][2] = {{float_forward_c, float_forward_avx2}, {float_backward_c, float_backward_avx2}};
static double_pass *const double_passes[2][2] = {{double_forward_c, double_forward_avx2}, {double_backward_c, double_backward_avx2}};

typedef struct attention {
    const ng_launch *launch;
    ng_format_id format;
    ng_caster caster;
    int64_t sequence, heads, d;
    bool backward, causal, avx2;
} attention;

static void load_floats(const ng_tensor *t, int64_t row, int64_t from, int64_t n, float *values) {
    uint32_t bits[256];
    for (int64_t at = 0; at < n; at += 256) {
        int64_t count = ng_cpu_min(256, n - at);
        ng_cpu_load_bits(t->format, ng_cpu_row(t, row), from + at, count, bits);
        memcpy(values + at, bits, (size_t)count * sizeof *bits);
    }
}

static void store_floats(const attention *a, const ng_tensor *t, int64_t row, int64_t from, int64_t n, const float *values) {
    uint32_t codes[256];
    for (int64_t at = 0; at < n; at += 256) {
        int64_t count = ng_cpu_min(256, n - at);
        for (int64_t i = 0; i < count; i++) {
            uint32_t bits = ng_bits(values[at + i]);
            codes[i] = a->format != NG_FP32                      ? ng_cast_code(&a->caster, NG_RN_EVEN, bits)
                       : (bits & NG_ABS_MASK) > NG_INF_BITS ? NG_NAN_BITS
                                                            : bits;
        }
        ng_cpu_store(a->format, codes, count, ng_cpu_row(t, row), from + at);
    }
}

/* Rows of one head's part of a tensor, either way. */
static void gather(const attention *a, ng_role role, int64_t row0, int64_t from, void *values) {
    const ng_tensor *t = &a->launch->tensors[role];
    for (int64_t i = 0; i < a->sequence; i++)
        if (a->format == NG_FP64)
            memcpy((double *)values + i * a->d, (const ng_f64 *)ng_cpu_row(t, row0 + i) + from, (size_t)a->d * sizeof(double));
        else load_floats(t, row0 + i, from, a->d, (float *)values + i * a->d);
}
static void scatter(const attention *a, int64_t row0, int64_t from, const void *values) {
    const ng_tensor *t = &a->launch->tensors[NG_OUT];
    for (int64_t i = 0; i < a->sequence; i++)
        if (a->format == NG_FP64)
            memcpy((ng_f64 *)ng_cpu_row(t, row0 + i) + from, (const double *)values + i * a->d, (size_t)a->d * sizeof(double));
        else store_floats(a, t, row0 + i, from, a->d, (const float *)values + i * a->d);
}

static void compute_head(const attention *a, int64_t task, void *memory) {
    const int64_t row0 = task / a->heads * a->sequence, column = task % a->heads * a->d, width = a->heads * a->d;
    void *in[4], *out[3];
    float_head f = {0};
    double_head e = {0};
    if (a->format == NG_FP64) {
        e = double_head_of(memory, a->sequence, a->d, a->causal);
        in[0] = e.q, in[1] = e.k, in[2] = e.v, in[3] = e.g, out[0] = e.dq, out[1] = e.dk, out[2] = e.dv;
    } else {
        f = float_head_of(memory, a->sequence, a->d, a->causal);
        in[0] = f.q, in[1] = f.k, in[2] = f.v, in[3] = f.g, out[0] = f.dq, out[1] = f.dk, out[2] = f.dv;
    }
    for (int part = 0; part < 3; part++)
        gather(a, NG_IN, row0, part * width + column, in[part]);
    if (a->backward) gather(a, NG_GRADIENT, row0, column, in[3]);
    if (a->format == NG_FP64) double_passes[a->backward][a->avx2](&e);
    else float_passes[a->backward][a->avx2](&f);
    for (int part = 0; part < (a->backward ? 3 : 1); part++)
        scatter(a, row0, part * width + column, out[part]);
}

static const char *supports(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device) {
    const char *why = ng_cpu_supports(kernel, problem, device);
    double heads = problem->scalars[NG_HEADS], sequence = problem->scalars[NG_SEQUENCE];
    if (why) return why;
    if (!(heads >= 1) || !(sequence >= 1) || heads > (double)problem->n || sequence > (double)problem->m) return "no heads, or no sequence";
    if (problem->n % (int64_t)heads || problem->m % (int64_t)sequence) return "the width is no multiple of the heads, or the tokens none of the sequence";
    return NULL;
}

static ng_status launch_attention(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *p = launch->problem;
    attention a = {.launch = launch, .format = kernel->in, .backward = kernel->op == NG_OP_ATTENTION_BACKWARD,
                   .causal = kernel->contract.layer.causal, .avx2 = ng_cpu_avx2(launch->device)};
    const char *why = supports(kernel, p, launch->device);
    if (why) return ng_cpu_fail(launch, NG_BAD_ARGUMENT, "%s", why);
    ng_status status = ng_cpu_check(launch, NG_IN, a.format, p->m, 3 * p->n);
    if (!status && a.backward) status = ng_cpu_check(launch, NG_GRADIENT, a.format, p->m, p->n);
    if (!status) status = ng_cpu_check(launch, NG_OUT, a.format, p->m, a.backward ? 3 * p->n : p->n);
    if (status) return status;
    if (a.format != NG_FP64) a.caster = ng_caster_of(a.format, &kernel->contract.cast);
    a.sequence = (int64_t)p->scalars[NG_SEQUENCE];
    a.heads = (int64_t)p->scalars[NG_HEADS];
    a.d = p->n / a.heads;
    const int threads = ng_cpu_team(launch->device, p->m * p->n / 64 * a.sequence);
    const size_t bytes = a.format == NG_FP64 ? double_head_reals(a.sequence, a.d) * sizeof(double) : float_head_reals(a.sequence, a.d) * sizeof(float);
    char *memory = malloc((size_t)threads * bytes);
    if (!memory) return ng_cpu_fail(launch, NG_NO_MEMORY, "no memory for %d heads", threads);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t task = 0; task < p->m / a.sequence * a.heads; task++)
        compute_head(&a, task, memory + (size_t)ng_cpu_thread() * bytes);
    free(memory);
    return NG_OK;
}

/* ---- catalogue ----------------------------------------------------------------------------------------------------*/
#define NG_ATTENTION(operation, OPERATION, name_, format, variant, ...)                                             \
    {.name = operation "/" name_ "/cpu/" variant, .op = OPERATION, .backend = NG_BACKEND_CPU, .in = format,       \
     .in_b = NG_NO_FORMAT, .out = format, .contract = NG_LAYER_CONTRACT(__VA_ARGS__), .supports = supports, .launch = launch_attention},

static const ng_kernel kernels[] = {NG_ATTENTION_ROWS};

const ng_kernel_list ng_cpu_attentions = {kernels, sizeof kernels / sizeof *kernels};
