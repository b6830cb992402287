/* AdamW, the gradients' norm and clipping in binary64 throughout (contract_layer.h), of one tensor or of many. */
#include "kernels/catalogue.h"
#include "kernels/common/fp64.h"
#include "kernels/common/fp64_rows.h"
#include "kernels/cpu/optimizer.h"

static ng_f64 *place(const ng_launch *launch, ng_role role, ng_cpu_piece at) {
    return (ng_f64 *)(void *)ng_cpu_row(ng_cpu_listed(launch, role, at.tensor), at.row) + at.from;
}

static void adam_piece(const ng_launch *launch, const ng_adam_factors64 *f, ng_cpu_piece at) {
    const ng_f64 *g = place(launch, NG_GRADIENT, at);
    ng_f64 *p = place(launch, NG_PARAMETER, at), *m = place(launch, NG_MOMENT_1, at), *v = place(launch, NG_MOMENT_2, at);
    for (int64_t i = 0; i < at.n; i++) {
        double mine[3] = {p[i], m[i], v[i]};
        ng_adam64(f, g[i], &mine[0], &mine[1], &mine[2]);
        p[i] = mine[0], m[i] = mine[1], v[i] = mine[2];
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
    const ng_adam_factors64 f = ng_adam_factors64_of(launch->problem->scalars);
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, pieces.count * PIECE)) schedule(static)
    for (int64_t i = 0; i < pieces.count; i++)
        adam_piece(launch, &f, ng_cpu_piece_of(&pieces, NG_PARAMETER, i));
    ng_cpu_uncut(&pieces);
    return NG_OK;
}

/* ---- norm and clipping: OUT is fp64 --------------------------------------------------------------------------------
 * NG_FP64_NORM2_CHAINS chains of squares; each row of each tensor, in their order, begins with the first. */
static double squares_of(const ng_launch *launch) {
    double chains[NG_FP64_NORM2_CHAINS] = {0};
    const int64_t count = launch->list_count ? launch->list_count : 1;
    for (int64_t t = 0; t < count; t++) {
        const ng_tensor *tensor = ng_cpu_listed(launch, NG_GRADIENT, t);
        for (int64_t row = 0; row < tensor->rows; row++) {
            const ng_f64 *g = (const ng_f64 *)(const void *)ng_cpu_row(tensor, row);
            for (int64_t j = 0; j < tensor->columns; j++)
                chains[j % NG_FP64_NORM2_CHAINS] += g[j] * g[j];
        }
    }
    for (int h = NG_FP64_NORM2_CHAINS / 2; h; h /= 2)
        for (int k = 0; k < h; k++)
            chains[k] += chains[k + h];
    return chains[0];
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
    if (kernel->contract.optimizer.kind == NG_NORM2) *out = ng_sqrt64(squares_of(launch));
    else {
        const double factor = ng_clip_factor64(launch->problem->scalars[NG_MAX_NORM], *out);
        if (!(factor >= 1)) scale_all(launch, &pieces, factor);
    }
    ng_cpu_uncut(&pieces);
    return NG_OK;
}

/* ---- catalogue ----------------------------------------------------------------------------------------------------*/
#define NG_FP64_OPTIMIZER(name_, variant, kind_, moments)                                                             \
    {.name = name_ "/cpu/" variant, .op = NG_OP_OPTIMIZER, .backend = NG_BACKEND_CPU, .in = NG_FP64, .in_b = NG_NO_FORMAT, .out = NG_FP64, \
     .contract = NG_FP64_OPTIMIZER_CONTRACT(kind_, moments), .supports = ng_cpu_supports,                               \
     .launch = kind_ == NG_ADAMW_TORCH ? launch_adam : launch_step},

static const ng_kernel kernels[] = {NG_FP64_OPTIMIZER_ROWS};

const ng_kernel_list ng_cpu_fp64_optimizers = {kernels, sizeof kernels / sizeof *kernels};
