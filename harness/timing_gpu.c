#include "harness/timing_gpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LEAST_SAMPLES = 5, MOST_LAUNCHES = 256 };
/* An event's clock ticks every half microsecond, and a graph starts in a few: below this a sample is made of many runs. */
static const double least_sample_s = 100e-6;
/* A round over all sets may take this long; where it takes longer, caches are flushed instead. */
static const double longest_round_s = 5e-3;

typedef struct clockwork {
    ng_gpu *gpu;
    ng_gpu_enqueue run;
    void *context;
    const ng_gpu_rotation *rotation;
    void *from, *to; /* events */
    void *graph, *executable;
    int launches;    /* in one sample */
    bool flush;
} clockwork;

static ng_status start_runs(const clockwork *c, int count, ng_error *error) {
    for (int i = 0; i < count; i++) {
        ng_status status = c->run(c->context, i % c->rotation->sets);
        if (status) return ng_fail(error, status, "a launch failed when it was timed");
    }
    return NG_OK;
}

/* ---- graphs -------------------------------------------------------------------------------------------------------*/
/* A kernel that can't be captured (it allocates, or waits) is no failure: executable stays NULL. */
static void capture(clockwork *c) {
    const ng_runtime *r = c->gpu->runtime;
    ng_error why;
    if (r->capture_begin(c->gpu->stream)) goto done;
    ng_status status = start_runs(c, c->launches, &why);
    if (r->capture_end(c->gpu->stream, &c->graph)) c->graph = NULL;
    if (!status && c->graph && r->graph_instantiate(&c->executable, c->graph)) c->executable = NULL;
done:
    if (!c->executable) r->last_error();
}

static void release(clockwork *c) {
    const ng_runtime *r = c->gpu->runtime;
    if (c->executable) r->executable_free(c->executable);
    if (c->graph) r->graph_free(c->graph);
    if (c->from) r->event_destroy(c->from);
    if (c->to) r->event_destroy(c->to);
}

/* ---- samples ------------------------------------------------------------------------------------------------------*/
static ng_status sample(clockwork *c, int launches, double *seconds, ng_error *error) {
    ng_gpu *gpu = c->gpu;
    const ng_runtime *r = gpu->runtime;
    const ng_gpu_rotation *rotation = c->rotation;
    float ms = 0;
    int code = 0;
    if (c->flush) code = r->set((char *)gpu->arena + rotation->flush_from, 0, rotation->flush_bytes, gpu->stream);
    if (!code) code = r->event_record(c->from, gpu->stream);
    if (code) return ng_gpu_check(gpu, code, "starting a measurement", error);
    if (c->executable) {
        ng_status status = ng_gpu_check(gpu, r->graph_launch(c->executable, gpu->stream), "replaying a graph", error);
        if (status) return status;
    } else {
        ng_status status = start_runs(c, launches, error);
        if (status) return status;
    }
    code = r->event_record(c->to, gpu->stream);
    if (!code) code = r->event_synchronize(c->to);
    if (!code) code = r->event_elapsed(&ms, c->from, c->to);
    *seconds = 1e-3 * (double)ms / launches;
    return ng_gpu_check(gpu, code, "measuring", error);
}

/* How many runs a sample is made of, and what keeps them cold, once it is known what one takes. */
static void plan_samples(clockwork *c, double one_s) {
    const ng_gpu_rotation *rotation = c->rotation;
    double wanted = one_s > 0 ? ceil(least_sample_s / one_s) : MOST_LAUNCHES;
    int launches = wanted < 1 ? 1 : wanted > MOST_LAUNCHES ? MOST_LAUNCHES : (int)wanted;
    c->flush = rotation->flush_bytes && !(rotation->enough && one_s * rotation->sets <= longest_round_s);
    if (c->flush) c->launches = launches < rotation->sets ? launches : rotation->sets; /* each set once after a flush */
    else if (rotation->enough) c->launches = (launches + rotation->sets - 1) / rotation->sets * rotation->sets;
    else c->launches = launches;
}

static void describe(const clockwork *c, char *method, size_t bytes) {
    int used = snprintf(method, bytes, c->executable ? "graph of %d launches" : "%d plain launches", c->launches);
    if (used < 0 || (size_t)used >= bytes) return;
    if (c->flush) snprintf(method + used, bytes - (size_t)used, ", L2 flushed");
    else if (c->rotation->enough && c->rotation->sets > 1) snprintf(method + used, bytes - (size_t)used, ", %d sets in turn", c->rotation->sets);
    else if (!c->rotation->enough) snprintf(method + used, bytes - (size_t)used, ", warm caches");
}

ng_status ng_gpu_time(ng_gpu *gpu, ng_gpu_enqueue run, void *context, const ng_gpu_rotation *rotation, double limit_s,
                      ng_timing *timing, char *method, size_t bytes, ng_error *error) {
    clockwork c = {.gpu = gpu, .run = run, .context = context, .rotation = rotation, .launches = 1};
    const ng_runtime *r = gpu->runtime;
    double samples[NG_TIMING_SAMPLES], one_s = 0;
    int n = 0;
    memset(timing, 0, sizeof *timing);
    int code = r->event_create(&c.from);
    if (code) c.from = NULL;
    if (!code && (code = r->event_create(&c.to))) c.to = NULL;
    ng_status status = ng_gpu_check(gpu, code, "making events", error);
    for (int warm = 0; warm < 2 && !status; warm++) /* code loaded, clocks up; the second says how long it takes */
        status = sample(&c, 1, &one_s, error);
    if (status) goto done;
    plan_samples(&c, one_s);
    if (!rotation->plain) capture(&c);
    double start = ng_now_s(), ignored;
    status = sample(&c, c.launches, &ignored, error);
    while (!status && n < NG_TIMING_SAMPLES && (n < LEAST_SAMPLES || ng_now_s() - start < limit_s))
        status = sample(&c, c.launches, &samples[n++], error);
    if (status) goto done;
    ng_timing_publish(samples, n, timing);
    describe(&c, method, bytes);
done:
    release(&c);
    return status;
}

/* ---- the ceiling --------------------------------------------------------------------------------------------------*/
static const size_t copied_bytes = (size_t)1 << 30;

static ng_status copy_half(void *context, int set) {
    ng_gpu *gpu = context;
    char *arena = gpu->arena;
    int code = gpu->runtime->copy(arena + (set ? 0 : copied_bytes), arena + (set ? copied_bytes : 0), copied_bytes, NG_ON_DEVICE, gpu->stream);
    return code ? NG_DEVICE : NG_OK;
}

ng_status ng_gpu_copy_rate(ng_gpu *gpu, double *bytes_s, ng_error *error) {
    static const ng_gpu_rotation rotation = {.sets = 2, .enough = true, .plain = true};
    ng_timing timing;
    char method[64];
    *bytes_s = NAN;
    ng_status status = ng_gpu_reserve(gpu, 2 * copied_bytes, error);
    if (!status) status = ng_gpu_check(gpu, gpu->runtime->set(gpu->arena, 0, 2 * copied_bytes, gpu->stream), "clearing memory", error);
    if (!status) status = ng_gpu_time(gpu, copy_half, gpu, &rotation, 0.3, &timing, method, sizeof method, error);
    if (!status && timing.median_s > 0) *bytes_s = 2.0 * (double)copied_bytes / timing.median_s;
    return status;
}
