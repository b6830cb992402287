/* AdamW, the gradients' norm and clipping in binary64 throughout (contract_layer.h), of one tensor or of many. */
#include "kernels/catalogue.h"
#include "kernels/common/fp64.h"
#include "kernels/cpu/optimizer.h"

static ng_f64 *place(const ng_launch *launch, ng_role role, ng_cpu_piece at) {
    return (ng_f64 *)(void *)ng_cpu_row(ng_cpu_listed(launch, role, at.tensor), at.row) + at.from;
}

typedef struct factors {
    double b1, a1, b2, a2, epsilon, d, l1, s2;
} factors;

static factors factors_of(const double *scalars) {
    const double a = scalars[NG_LEARNING_RATE], b1 = scalars[NG_BETA1], b2 = scalars[NG_BETA2];
    const int64_t t = (int64_t)scalars[NG_STEP];
    return (factors){.b1 = b1, .a1 = 1 - b1, .b2 = b2, .a2 = 1 - b2, .epsilon = scalars[NG_EPSILON], .d = 1 - a * scalars[NG_WEIGHT_DECAY],
                     .l1 = a / ng_one_minus_power(b1, t), .s2 = 1 / ng_sqrt64(ng_one_minus_power(b2, t))};
}

static void adam_piece(const ng_launch *launch, const factors *f, ng_cpu_piece at) {
    const ng_f64 *g = place(launch, NG_GRADIENT, at);
    ng_f64 *p = place(launch, NG_PARAMETER, at), *m = place(launch, NG_MOMENT_1, at), *v = place(launch, NG_MOMENT_2, at);
    for (int64_t i = 0; i < at.n; i++) {
        m[i] = f->b1 * m[i] + f->a1 * g[i];
        v[i] = f->b2 * v[i] + f->a2 * g[i] * g[i];
        p[i] = f->d * p[i] - f->l1 * (m[i] / (ng_sqrt64(v[i]) * f->s2 + f->epsilon));
    }
}

enum { PIECE = 4096 };

static ng_status launch_adam(const ng_kernel *kernel, const ng_launch *launch) {
    (void)kernel;
    const double step = launch->problem->scalars[NG_STEP];
    ng_cpu_pieces pieces = {0};
    ng_status status = NG_OK;
    const ng_role roles[] = {NG_PARAMETER, NG_GRADIENT, NG_MOMENT_1, NG_MOMENT_2};
    for (int i = 0; i < 4 && !status; i++)
        status = ng_cpu_check_listed(launch, roles[i], NG_FP64, NG_PARAMETER, 1);
    if (!status) status = ng_cpu_check_number(launch, NG_FOUND_INF, false);
    if (status) return status;
    if (!(step >= 1 && step <= 0x1p53)) return ng_cpu_fail(launch, NG_BAD_ARGUMENT, "step %g, expected 1 or more", step);
    if (ng_cpu_number(launch, NG_FOUND_INF, 0) != 0) return NG_OK;
    status = ng_cpu_cut(launch, NG_PARAMETER, PIECE, &pieces);
    if (status) return status;
    const factors f = factors_of(launch->problem->scalars);
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, pieces.count * PIECE)) schedule(static)
    for (int64_t i = 0; i < pieces.count; i++)
        adam_piece(launch, &f, ng_cpu_piece_of(&pieces, NG_PARAMETER, i));
    ng_cpu_uncut(&pieces);
    return NG_OK;
}

/* ---- norm and clipping: OUT is fp64 --------------------------------------------------------------------------------*/
static double squares_of(const ng_launch *launch, const ng_cpu_pieces *pieces) {
    double sum = 0;
    for (int64_t i = 0; i < pieces->count; i++) {
        const ng_cpu_piece at = ng_cpu_piece_of(pieces, NG_GRADIENT, i);
        const ng_f64 *g = place(launch, NG_GRADIENT, at);
        for (int64_t j = 0; j < at.n; j++)
            sum += g[j] * g[j];
    }
    return sum;
}

static void scale_all(const ng_launch *launch, const ng_cpu_pieces *pieces, double factor) {
    for (int64_t i = 0; i < pieces->count; i++) {
        const ng_cpu_piece at = ng_cpu_piece_of(pieces, NG_GRADIENT, i);
        ng_f64 *g = place(launch, NG_GRADIENT, at);
        for (int64_t j = 0; j < at.n; j++)
            g[j] *= factor;
    }
}

static ng_status launch_step(const ng_kernel *kernel, const ng_launch *launch) {
    ng_cpu_pieces pieces = {0};
    ng_status status = ng_cpu_check_listed(launch, NG_GRADIENT, NG_FP64, NG_GRADIENT, 1);
    if (!status) status = ng_cpu_check(launch, NG_OUT, NG_FP64, 1, 1);
    if (!status) status = ng_cpu_cut(launch, NG_GRADIENT, PIECE, &pieces);
    if (status) return status;
    ng_f64 *out = launch->tensors[NG_OUT].data;
    if (kernel->contract.optimizer.kind == NG_NORM2) *out = ng_sqrt64(squares_of(launch, &pieces));
    else {
        const double factor = launch->problem->scalars[NG_MAX_NORM] / (*out + 1e-6);
        if (!(factor >= 1)) scale_all(launch, &pieces, factor);
    }
    ng_cpu_uncut(&pieces);
    return NG_OK;
}

/* ---- catalogue ----------------------------------------------------------------------------------------------------*/
#define ROW(name_, kind_, moments, function)                                                                            \
    {.name = name_, .op = NG_OP_OPTIMIZER, .backend = NG_BACKEND_CPU, .in = NG_FP64, .in_b = NG_NO_FORMAT, .out = NG_FP64, \
     .contract = {.cast = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL}, .determinism = NG_DETERMINISTIC,       \
                  .optimizer = {kind_, NG_MASTER_NONE, moments, moments, true, false}, .layer = {.compute = NG_FP64}},  \
     .supports = ng_cpu_supports, .launch = function},

static const ng_kernel kernels[] = {
    ROW("adamw/fp64/cpu/torch", NG_ADAMW_TORCH, NG_FP64, launch_adam)
    ROW("norm2/fp64/cpu/chain", NG_NORM2, NG_NO_FORMAT, launch_step)
    ROW("clip/fp64/cpu/norm2", NG_CLIP, NG_NO_FORMAT, launch_step)
};

const ng_kernel_list ng_cpu_fp64_optimizers = {kernels, sizeof kernels / sizeof *kernels};
