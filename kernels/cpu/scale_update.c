/* scale-update/<element>/cpu/<algorithm>: delayed scaling's maxima of earlier steps into the next step's scales. */
#include "kernels/catalogue.h"
#include "kernels/common/scale_update.h"
#include "kernels/cpu/cpu.h"

static float at(const ng_tensor *t, int64_t row, int64_t column) { return ((const ng_f32 *)ng_cpu_row(t, row))[column]; }
static void put(const ng_tensor *t, int64_t row, int64_t column, float x) { ((ng_f32 *)ng_cpu_row(t, row))[column] = x; }

static ng_status check_launch(const ng_launch *launch) {
    const int64_t steps = launch->problem->m, tensors = launch->problem->n;
    ng_status status = ng_cpu_check(launch, NG_IN, NG_FP32, steps, tensors);
    if (!status) status = ng_cpu_check(launch, NG_IN_2, NG_FP32, 1, tensors);
    if (!status) status = ng_cpu_check(launch, NG_OUT, NG_FP32, steps, tensors);
    if (!status) status = ng_cpu_check(launch, NG_OUT_2, NG_FP32, 1, tensors);
    if (!status) status = ng_cpu_check(launch, NG_OUT_3, NG_FP32, 1, tensors);
    return status;
}

static ng_status launch_update(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_scale_update *u = &kernel->contract.scale_update;
    const ng_tensor *t = launch->tensors, *in = &t[NG_IN];
    ng_status status = check_launch(launch);
    if (status) return status;
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, in->rows * in->columns)) schedule(static)
    for (int64_t j = 0; j < in->columns; j++) {
        float amax = at(in, 0, j);
        for (int64_t i = 0; i < in->rows; i++) {
            put(&t[NG_OUT], i, j, i == 0 ? 0.0f : at(in, i + 1 < in->rows ? i + 1 : 0, j));
            if (!u->most_recent) amax = ng_larger_number(amax, at(in, i, j));
        }
        const float scale = ng_next_scale(u, amax, at(&t[NG_IN_2], 0, j));
        put(&t[NG_OUT_2], 0, j, scale);
        put(&t[NG_OUT_3], 0, j, ng_div(1.0f, scale));
    }
    return NG_OK;
}

#define UPDATE(name_, element_, variant, margin_, recent)                                                                 \
    {.name = "scale-update/" name_ "/cpu/" variant, .op = NG_OP_SCALE_UPDATE, .backend = NG_BACKEND_CPU, .in = NG_FP32,   \
     .in_b = NG_NO_FORMAT, .out = NG_FP32,                                                                                \
     .contract = {.determinism = NG_DETERMINISTIC, .scale_update = {element_, margin_, recent}},                          \
     .supports = ng_cpu_supports, .launch = launch_update}

static const ng_kernel kernels[] = {NG_SCALE_UPDATE_ROWS(UPDATE)};

const ng_kernel_list ng_cpu_scale_updates = {kernels, sizeof kernels / sizeof *kernels};
