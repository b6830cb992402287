/* Speed of sessions on a GPU: their buffers in several sets, so that a run finds none of them in the L2. */
#include "harness/judge_internal.h"
#include "harness/timing_gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SETS = 64, TINY_SETS = 32, ALIGNMENT = 256 };
/* The footprint after which nothing of the first set is left in the L2, in its sizes. */
static const size_t l2_sizes = 4;
/* A GPU is quick, and a level's limit for a case is a CPU's: the least that samples may take together. */
static const double least_limit_s = 0.05;

typedef struct sets {
    ng_session *const *sessions;
    int first, count;          /* of the sessions: all, or one part */
    int sessions_all;
    ng_gpu_rotation rotation;
    ng_tensor (*roles)[NG_ROLES]; /* [sessions_all * rotation.sets]; set 0 is the sessions' own */
} sets;

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static size_t set_bytes(const sets *s) {
    size_t bytes = 0;
    for (int i = 0; i < s->sessions_all; i++)
        for (int role = 0; role < NG_ROLES; role++)
            if (s->sessions[i]->roles[role].device) bytes += aligned(s->sessions[i]->roles[role].bytes);
    return bytes;
}

/* Sets enough to fill the L2 several times over; where they would be too many, fewer, and a flush before each sample. */
static void choose_rotation(sets *s, const ng_gpu *gpu, bool warm) {
    size_t bytes = set_bytes(s), wanted = l2_sizes * gpu->properties.l2;
    s->rotation = (ng_gpu_rotation){.sets = 1};
    if (warm || !bytes) return;
    size_t needed = (wanted + bytes - 1) / bytes;
    s->rotation.enough = needed <= MOST_SETS;
    s->rotation.sets = s->rotation.enough ? (needed < 1 ? 1 : (int)needed) : TINY_SETS;
    s->rotation.flush_from = bytes * (size_t)(s->rotation.sets - 1);
    s->rotation.flush_bytes = s->rotation.enough && s->rotation.sets == 1 ? 0 : wanted;
}

static ng_status copy_session(const ng_session *session, size_t *used, ng_tensor roles[NG_ROLES], ng_error *error) {
    ng_gpu *gpu = &session->judge->gpu;
    ng_status status = NG_OK;
    for (int role = 0; role < NG_ROLES && !status; role++) {
        const ng_guarded *g = &session->roles[role];
        if (!g->device) continue;
        roles[role] = ng_guarded_view(g);
        roles[role].data = (char *)gpu->arena + *used;
        status = ng_gpu_copy(gpu, roles[role].data, g->device + NG_GUARD_BYTES, g->bytes, NG_ON_DEVICE, error);
        *used += aligned(g->bytes);
    }
    return status;
}

static ng_status make_sets(sets *s, ng_gpu *gpu, ng_error *error) {
    size_t used = 0;
    s->roles = calloc((size_t)(s->sessions_all * s->rotation.sets), sizeof *s->roles);
    if (!s->roles) return ng_fail(error, NG_NO_MEMORY, "no memory for timing");
    ng_status status = ng_gpu_reserve(gpu, s->rotation.flush_from + s->rotation.flush_bytes, error);
    for (int i = 0; i < s->sessions_all && !status; i++)
        for (int role = 0; role < NG_ROLES; role++)
            s->roles[i][role] = ng_guarded_view(&s->sessions[i]->roles[role]);
    for (int set = 1; set < s->rotation.sets && !status; set++)
        for (int i = 0; i < s->sessions_all && !status; i++)
            status = copy_session(s->sessions[i], &used, s->roles[set * s->sessions_all + i], error);
    return status;
}

static ng_status enqueue(void *context, int set) {
    const sets *s = context;
    ng_status status = NG_OK;
    for (int i = s->first; i < s->first + s->count && !status; i++) {
        ng_launch launch;
        ng_session_fill(s->sessions[i], &launch);
        memcpy(launch.tensors, s->roles[set * s->sessions_all + i], sizeof launch.tensors);
        status = s->sessions[i]->kernel->launch(s->sessions[i]->kernel, &launch);
    }
    return status;
}

/* A ceiling that there is no memory to measure is unknown. */
static ng_status know_ceiling(ng_judge *judge, ng_error *error) {
    if (judge->gpu_copy_bytes_s != 0) return NG_OK;
    ng_status status = ng_gpu_copy_rate(&judge->gpu, &judge->gpu_copy_bytes_s, error);
    return status == NG_NO_MEMORY ? NG_OK : status;
}

static ng_status time_parts(sets *s, const char *const *names, double limit_s, ng_speed *speed, ng_error *error) {
    ng_timing timing;
    char method[sizeof speed->method];
    ng_status status = NG_OK;
    speed->part_count = names ? s->sessions_all : 0;
    for (int p = 0; p < speed->part_count && !status; p++) {
        s->first = p;
        s->count = 1;
        status = ng_gpu_time(&s->sessions[0]->judge->gpu, enqueue, s, &s->rotation, limit_s, &timing, method, sizeof method, error);
        snprintf(speed->parts[p].name, sizeof speed->parts[p].name, "%s", names[p]);
        speed->parts[p].median_s = timing.median_s;
    }
    return status;
}

/* The largest fraction of a ceiling that is known: products have none in fp32 yet. */
static void publish(ng_judge *judge, const ng_timing *timing, double flop, double bytes, ng_speed *speed) {
    speed->present = true;
    speed->median_s = timing->median_s;
    speed->q1_s = timing->q1_s;
    speed->q3_s = timing->q3_s;
    speed->samples = timing->samples;
    speed->flop = flop;
    speed->bytes = bytes;
    speed->rate = (flop > 0 ? flop : bytes) / timing->median_s;
    speed->roofline = flop > 0 ? NAN : bytes / judge->gpu_copy_bytes_s / timing->median_s;
}

ng_status ng_session_time_gpu(ng_session *const *sessions, const char *const *names, int count, double limit_s, double flop,
                              double bytes, ng_result *result, ng_error *error) {
    ng_judge *judge = sessions[0]->judge;
    sets s = {.sessions = sessions, .count = count, .sessions_all = count};
    ng_speed speed = {0};
    ng_timing timing = {0};
    if (!judge->nvml.library) ng_nvml_open(judge->gpu.properties.pci, &judge->nvml);
    ng_status status = know_ceiling(judge, error);
    if (status) return status;
    if (limit_s < least_limit_s) limit_s = least_limit_s;
    choose_rotation(&s, &judge->gpu, judge->settings.warm_cache);
    status = make_sets(&s, &judge->gpu, error);
    if (status) goto done;
    status = time_parts(&s, names, limit_s / (count + 1), &speed, error);
    if (status) goto done;
    s.first = 0;
    s.count = count;
    speed.sm_mhz_before = ng_nvml_sm_mhz(&judge->nvml);
    unsigned long long throttle = ng_nvml_throttle(&judge->nvml);
    status = ng_gpu_time(&judge->gpu, enqueue, &s, &s.rotation, limit_s, &timing, speed.method, sizeof speed.method, error);
    if (status) goto done;
    speed.sm_mhz_after = ng_nvml_sm_mhz(&judge->nvml);
    if (judge->nvml.throttle) ng_throttle_text(throttle | ng_nvml_throttle(&judge->nvml), speed.throttle, sizeof speed.throttle);
    publish(judge, &timing, flop, bytes, &speed);
    result->speed = speed;
done:
    free(s.roles);
    if (status == NG_NO_MEMORY && judge->gpu.short_of_memory) { /* what was judged stays judged, and has no speed */
        judge->gpu.short_of_memory = false;
        return NG_OK;
    }
    return status;
}
