/* adam/<format>/cpu/..., adamw/...: one pass over parameters, gradients and moments, of one tensor or of thousands; and the
 * list of all optimizers (kernels/contract_optimizer.h). */
#include "kernels/cpu/optimizer.h"

#include "kernels/catalogue.h"
#include "kernels/common/optimizer_rows.h"

#include <stdlib.h>

enum { PIECE = 2048 }; /* elements between load and store; a multiple of NG_MOMENT_BLOCK */

/* ---- the elements -------------------------------------------------------------------------------------------------
 * Compiled for each kind and instruction set. */
typedef void adam_steps(const ng_adam_factors *f, const float *g, float *p, float *m, float *v, int64_t n);

#define STEPS(name, target, kind)                                                                                          \
    target static void name(const ng_adam_factors *factors, const float *restrict g, float *restrict p, float *restrict m, \
                            float *restrict v, int64_t n) {                                                                \
        const ng_adam_factors f = *factors;                                                                                \
        for (int64_t i = 0; i < n; i++)                                                                                    \
            ng_adam(kind, &f, g[i], &p[i], &m[i], &v[i]);                                                                  \
    }
STEPS(l2, , NG_ADAM_L2)
STEPS(torch, , NG_ADAMW_TORCH)
STEPS(apex, , NG_ADAMW_APEX)
STEPS(l2_avx2, NG_AVX2, NG_ADAM_L2)
STEPS(torch_avx2, NG_AVX2, NG_ADAMW_TORCH)
STEPS(apex_avx2, NG_AVX2, NG_ADAMW_APEX)

static adam_steps *const steps_of[2][3] = {
    {[NG_ADAM_L2] = l2, [NG_ADAMW_TORCH] = torch, [NG_ADAMW_APEX] = apex},
    {[NG_ADAM_L2] = l2_avx2, [NG_ADAMW_TORCH] = torch_avx2, [NG_ADAMW_APEX] = apex_avx2},
};

/* ---- moments ------------------------------------------------------------------------------------------------------*/
typedef struct moment {
    ng_role codes, scales;
    ng_format_id format;
    ng_caster caster;
    ng_cpu_decoder decoder; /* fp8 */
} moment;

typedef struct adam {
    const ng_kernel *kernel;
    const ng_launch *launch;
    const ng_norm_loops *loops;
    adam_steps *steps;
    ng_adam_factors factors;
    ng_caster caster;
    moment moments[2];
} adam;

static bool is_scaled(ng_format_id format) { return format == NG_E4M3 || format == NG_E5M2; }

static void begin_moment(moment *m, ng_format_id format, ng_role codes, ng_role scales) {
    const ng_cast cast = {NG_RN_EVEN, NG_SR_CARRY, 0, is_scaled(format), NG_NAN_CANONICAL};
    *m = (moment){.codes = codes, .scales = scales, .format = format, .caster = ng_caster_of(format, &cast)};
    if (is_scaled(format)) ng_cpu_decoder_init(&m->decoder, format);
}

static uint8_t *place(const ng_launch *launch, ng_role role, ng_cpu_piece at) {
    const ng_tensor *t = ng_cpu_listed(launch, role, at.tensor);
    return ng_cpu_row(t, at.row) + ng_cpu_row_bytes(t->format, at.from);
}

static void load_moment(const adam *a, const moment *m, ng_cpu_piece at, float *values) {
    if (!is_scaled(m->format)) {
        a->loops->load(m->format, place(a->launch, m->codes, at), at.n, values);
        return;
    }
    const ng_tensor *scales = ng_cpu_listed(a->launch, m->scales, at.tensor);
    ng_cpu_decode(&m->decoder, place(a->launch, m->codes, at), 0, at.n, values);
    for (int64_t i = 0; i < at.n; i++)
        values[i] = ng_mul(values[i], ((const ng_f32 *)ng_cpu_row(scales, at.row))[(at.from + i) / NG_MOMENT_BLOCK]);
}

static void store_moment(const adam *a, const moment *m, ng_cpu_piece at, const float *values) {
    uint8_t *codes = place(a->launch, m->codes, at);
    if (!is_scaled(m->format)) {
        a->loops->store(m->format, &m->caster, values, at.n, codes);
        return;
    }
    ng_u32 *scales = (ng_u32 *)ng_cpu_row(ng_cpu_listed(a->launch, m->scales, at.tensor), at.row) + at.from / NG_MOMENT_BLOCK;
    for (int64_t from = 0; from < at.n; from += NG_MOMENT_BLOCK) {
        const int64_t end = ng_cpu_min(from + NG_MOMENT_BLOCK, at.n);
        uint32_t amax = 0;
        for (int64_t i = from; i < end; i++) {
            const uint32_t magnitude = ng_bits(values[i]) & NG_ABS_MASK;
            amax = magnitude > amax ? magnitude : amax;
        }
        const ng_block_scale scale = ng_moment_scale(m->format, amax);
        scales[from / NG_MOMENT_BLOCK] = scale.code;
        for (int64_t i = from; i < end; i++)
            codes[i] = (uint8_t)ng_cast_code(&m->caster, NG_RN_EVEN, ng_bits(ng_scale_apply(values[i], scale, true)));
    }
}

/* ---- parameters ---------------------------------------------------------------------------------------------------*/
static void load_parameters(const adam *a, ng_cpu_piece at, float *p) {
    const ng_master master = a->kernel->contract.optimizer.master;
    const void *parameter = place(a->launch, NG_PARAMETER, at);
    if (master == NG_MASTER_NONE) a->loops->load(a->kernel->out, parameter, at.n, p);
    else if (master == NG_MASTER_FP32) memcpy(p, place(a->launch, NG_PARAMETER_2, at), (size_t)at.n * sizeof *p);
    else {
        const ng_u16 *rest = (const ng_u16 *)place(a->launch, NG_PARAMETER_2, at);
        for (int64_t i = 0; i < at.n; i++)
            p[i] = ng_master_join(((const ng_u16 *)parameter)[i], rest[i]);
    }
}

static void store_parameters(const adam *a, ng_cpu_piece at, const float *p) {
    const ng_master master = a->kernel->contract.optimizer.master;
    uint8_t *parameter = place(a->launch, NG_PARAMETER, at);
    if (master == NG_MASTER_FP32) a->loops->store(NG_FP32, &a->caster, p, at.n, place(a->launch, NG_PARAMETER_2, at));
    if (master != NG_MASTER_REMAINDER) {
        a->loops->store(a->kernel->out, &a->caster, p, at.n, parameter);
        return;
    }
    ng_u16 *rest = (ng_u16 *)place(a->launch, NG_PARAMETER_2, at);
    for (int64_t i = 0; i < at.n; i++) {
        const uint32_t bits = ng_norm_code(NULL, NG_FP32, p[i]);
        ((ng_u16 *)parameter)[i] = (uint16_t)ng_master_parameter(bits);
        rest[i] = (uint16_t)bits;
    }
}

/* ---- launch -------------------------------------------------------------------------------------------------------*/
static void one_piece(const adam *a, ng_cpu_piece at) {
    float g[PIECE], p[PIECE], m[PIECE], v[PIECE];
    a->loops->load(a->kernel->in, place(a->launch, NG_GRADIENT, at), at.n, g);
    load_parameters(a, at, p);
    load_moment(a, &a->moments[0], at, m);
    load_moment(a, &a->moments[1], at, v);
    a->steps(&a->factors, g, p, m, v, at.n);
    store_parameters(a, at, p);
    store_moment(a, &a->moments[0], at, m);
    store_moment(a, &a->moments[1], at, v);
}

static ng_status check_launch(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_optimizer *o = &kernel->contract.optimizer;
    const ng_format_id master = o->master == NG_MASTER_FP32 ? NG_FP32 : NG_BF16;
    ng_status status = ng_cpu_check_listed(launch, NG_PARAMETER, kernel->out, NG_PARAMETER, 1);
    if (!status) status = ng_cpu_check_listed(launch, NG_GRADIENT, kernel->in, NG_PARAMETER, 1);
    if (!status) status = ng_cpu_check_listed(launch, NG_MOMENT_1, o->moment_1, NG_PARAMETER, 1);
    if (!status) status = ng_cpu_check_listed(launch, NG_MOMENT_2, o->moment_2, NG_PARAMETER, 1);
    if (!status && o->master) status = ng_cpu_check_listed(launch, NG_PARAMETER_2, master, NG_PARAMETER, 1);
    if (!status && is_scaled(o->moment_1)) status = ng_cpu_check_listed(launch, NG_MOMENT_1_SCALES, NG_FP32, NG_PARAMETER, NG_MOMENT_BLOCK);
    if (!status && is_scaled(o->moment_2)) status = ng_cpu_check_listed(launch, NG_MOMENT_2_SCALES, NG_FP32, NG_PARAMETER, NG_MOMENT_BLOCK);
    if (!status) status = ng_cpu_check_number(launch, NG_FOUND_INF, false);
    if (!status && o->capturable) status = ng_cpu_check_number(launch, NG_STEP_COUNT, true);
    return status;
}

static ng_status launch_adam(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_optimizer *o = &kernel->contract.optimizer;
    ng_cpu_pieces pieces = {0};
    ng_status status = check_launch(kernel, launch);
    if (status) return status;
    const double *scalars = launch->problem->scalars;
    const double step = o->capturable ? (double)ng_cpu_number(launch, NG_STEP_COUNT, 0) : scalars[NG_STEP];
    if (!(step >= 1 && step <= 0x1p53)) return ng_cpu_fail(launch, NG_BAD_ARGUMENT, "step %g, expected 1 or more", step);
    if (ng_cpu_number(launch, NG_FOUND_INF, 0) != 0) return NG_OK;
    status = ng_cpu_cut(launch, NG_PARAMETER, PIECE, &pieces);
    if (status) return status;
    const bool avx2 = ng_cpu_avx2(launch->device);
    adam a = {.kernel = kernel, .launch = launch, .loops = &ng_norm_loops_of[avx2], .steps = steps_of[avx2][o->kind],
              .factors = ng_adam_factors_of(scalars, o->bias_correction, (int64_t)step),
              .caster = ng_caster_of(kernel->out, &kernel->contract.cast)};
    begin_moment(&a.moments[0], o->moment_1, NG_MOMENT_1, NG_MOMENT_1_SCALES);
    begin_moment(&a.moments[1], o->moment_2, NG_MOMENT_2, NG_MOMENT_2_SCALES);
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, pieces.count * PIECE)) schedule(static)
    for (int64_t i = 0; i < pieces.count; i++)
        one_piece(&a, ng_cpu_piece_of(&pieces, NG_PARAMETER, i));
    ng_cpu_uncut(&pieces);
    return NG_OK;
}

/* ---- catalogue ----------------------------------------------------------------------------------------------------*/
#define NG_ADAM(o, i, I, G, variant, kind, master, m1, m2, correction, capturable)                                  \
    {.name = o "/" i "/cpu/" variant, .op = NG_OP_OPTIMIZER, .backend = NG_BACKEND_CPU, .in = G, .in_b = NG_NO_FORMAT, \
     .out = I, .contract = NG_ADAM_CONTRACT(kind, master, m1, m2, correction, capturable),                          \
     .supports = ng_cpu_supports, .launch = launch_adam},
#define NG_STEP(o, i, I, variant, kind)                                                                             \
    {.name = o "/" i "/cpu/" variant, .op = NG_OP_OPTIMIZER, .backend = NG_BACKEND_CPU, .in = I, .in_b = NG_NO_FORMAT, \
     .out = I, .contract = NG_STEP_CONTRACT(kind), .supports = ng_cpu_supports, .launch = ng_cpu_launch_steps},

static const ng_kernel kernels[] = {NG_ADAM_ROWS NG_STEP_ROWS};

const ng_kernel_list ng_cpu_optimizers = {kernels, sizeof kernels / sizeof *kernels};
