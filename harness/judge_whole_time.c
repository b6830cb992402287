/* Speed of a product of full size: the quantizers and the product in turn, and each alone. */
#include "harness/judge_whole.h"

#include "harness/timing_gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SETS = 12 }; /* of buffers, at most */

typedef struct clocked {
    const ng_kernel *kernels[NG_WHOLE_SIDES + 1];
    ng_launch launches[SETS][NG_WHOLE_SIDES + 1];
    int count, from, to; /* steps that run */
} clocked;

static ng_status enqueue(void *context, int set) {
    clocked *c = context;
    ng_status status = NG_OK;
    for (int i = c->from; i < c->to && !status; i++)
        status = c->kernels[i]->launch(c->kernels[i], &c->launches[set][i]);
    return status;
}

static size_t launch_bytes(const ng_launch *launch) {
    size_t bytes = 0;
    for (int role = 0; role < NG_ROLES; role++)
        if (launch->tensors[role].data) bytes += ng_whole_bytes(&launch->tensors[role]);
    return bytes;
}

static ng_status copy_launch(ng_whole *w, ng_launch *launch, ng_error *error) {
    ng_status status = NG_OK;
    for (int role = 0; role < NG_ROLES && !status; role++) {
        ng_tensor *t = &launch->tensors[role], from = *t;
        if (!t->data) continue;
        status = ng_whole_tensor(w, from.format, from.rows, from.columns, t, error);
        if (!status) status = ng_gpu_copy(w->gpu, t->data, from.data, ng_whole_bytes(&from), NG_ON_DEVICE, error);
    }
    return status;
}

static ng_status clock_steps(ng_whole *w, clocked *c, const ng_gpu_rotation *rotation, double limit_s, ng_timing *timing, char *method, size_t bytes, ng_error *error) {
    return ng_gpu_time(w->gpu, enqueue, c, rotation, limit_s, timing, method, bytes, error);
}

static ng_status time_steps(ng_whole *w, clocked *c, ng_result *result, ng_error *error) {
    static const char *const names[NG_WHOLE_SIDES] = {"quantize a", "quantize b"};
    ng_judge *judge = w->judge;
    ng_speed *speed = &result->speed;
    ng_timing timing;
    double limit_s = judge->settings.time_limit_s > 0 ? judge->settings.time_limit_s : w->one->level == NG_NIGHTLY ? 0.1 : 0.05;
    size_t bytes = 0;
    ng_status status = NG_OK;
    if (!judge->nvml.library) ng_nvml_open(judge->gpu.properties.pci, &judge->nvml);
    for (int s = 0; s < NG_WHOLE_SIDES && w->one->mode == NG_AUTOCAST && !status; s++) {
        ng_whole_half *d = &w->sides[s];
        if (d->plain) continue;
        if (d->timed != d->quantizer) status = ng_whole_quantizer_launch(w, d, d->timed, &d->timed_launch, error);
        c->launches[0][c->count] = d->timed != d->quantizer ? d->timed_launch : d->launch;
        c->kernels[c->count] = d->timed;
        snprintf(speed->parts[c->count++].name, sizeof speed->parts[0].name, "%s", names[s]);
    }
    c->launches[0][c->count] = w->launch;
    c->kernels[c->count] = w->kernel;
    snprintf(speed->parts[c->count++].name, sizeof speed->parts[0].name, "gemm");
    for (int i = 0; i < c->count; i++)
        bytes += launch_bytes(&c->launches[0][i]);
    size_t wanted = 3 * w->gpu->properties.l2;
    ng_gpu_rotation rotation = {.sets = judge->settings.warm_cache || bytes >= wanted ? 1 : (int)(wanted / (bytes + 1)) + 1, .enough = true};
    if (rotation.sets > SETS || w->made_count + rotation.sets * c->count * 4 > NG_WHOLE_BUFFERS) rotation.sets = 1;
    for (int set = 1; set < rotation.sets && !status; set++)
        for (int i = 0; i < c->count && !status; i++) {
            c->launches[set][i] = c->launches[0][i];
            status = copy_launch(w, &c->launches[set][i], error);
        }
    for (c->from = 0; c->from < c->count && c->count > 1 && !status; c->from++) {
        c->to = c->from + 1;
        status = clock_steps(w, c, &rotation, limit_s / 3, &timing, speed->method, sizeof speed->method, error);
        speed->parts[c->from].median_s = timing.median_s;
    }
    speed->part_count = c->count > 1 ? c->count : 0;
    c->from = 0;
    c->to = c->count;
    speed->sm_mhz_before = ng_nvml_sm_mhz(&judge->nvml);
    unsigned long long throttle = ng_nvml_throttle(&judge->nvml);
    if (!status) status = clock_steps(w, c, &rotation, limit_s, &timing, speed->method, sizeof speed->method, error);
    speed->sm_mhz_after = ng_nvml_sm_mhz(&judge->nvml);
    if (judge->nvml.throttle) ng_throttle_text(throttle | ng_nvml_throttle(&judge->nvml), speed->throttle, sizeof speed->throttle);
    if (status) return status;
    speed->present = true;
    speed->median_s = timing.median_s;
    speed->q1_s = timing.q1_s;
    speed->q3_s = timing.q3_s;
    speed->samples = timing.samples;
    speed->flop = 2.0 * (double)w->problem.m * (double)w->problem.n * (double)w->problem.k;
    speed->bytes = (double)bytes;
    speed->rate = speed->flop / timing.median_s;
    speed->roofline = NAN;
    return NG_OK;
}

/* Where there is no memory to time, what was judged stays judged and has no speed. */
ng_status ng_whole_time(ng_whole *w, ng_result *result, ng_error *error) {
    if (!w->judge->settings.timing) return NG_OK;
    clocked *c = calloc(1, sizeof *c);
    if (!c) return ng_fail(error, NG_NO_MEMORY, "no memory for timing");
    ng_status status = time_steps(w, c, result, error);
    free(c);
    if (status != NG_NO_MEMORY || !w->gpu->short_of_memory) return status;
    w->gpu->short_of_memory = false;
    result->speed = (ng_speed){0};
    return NG_OK;
}
