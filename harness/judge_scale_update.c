/* Delayed scaling's update: history, scales and their inverses must be the reference's, bit for bit. */
#include "harness/judge_internal.h"
#include "reference/scale_update.h"

#include <math.h>

typedef struct update {
    ng_tensor history, in_use;                   /* given */
    ng_tensor next, scales, inverses;            /* expected */
} update;

static void free_update(update *u) {
    ng_tensor *const all[] = {&u->history, &u->in_use, &u->next, &u->scales, &u->inverses};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ng_tensor_free(all[i]);
}

/* Magnitudes of the described data; whole columns of 0, infinity and NaN among them, and this step's alone. */
static ng_status make_update(ng_judge *judge, const ng_case *one, update *u, ng_error *error) {
    const int64_t steps = one->problem.m, tensors = one->problem.n;
    const ng_tensor *source;
    ng_key key;
    ng_status status = ng_source(judge, &one->data, NG_FP32, 0, 0, steps, tensors, &source, &key, error);
    if (!status) status = ng_tensor_create(NG_FP32, steps, tensors, &u->history, error);
    if (!status) status = ng_tensor_create(NG_FP32, 1, tensors, &u->in_use, error);
    if (!status) status = ng_tensor_create(NG_FP32, steps, tensors, &u->next, error);
    if (!status) status = ng_tensor_create(NG_FP32, 1, tensors, &u->scales, error);
    if (!status) status = ng_tensor_create(NG_FP32, 1, tensors, &u->inverses, error);
    if (status) return status;
    static const float odd[] = {0.0f, INFINITY, NAN, 0x1p-149f, 0x1.fffffep+127f, 0x1p-128f};
    for (int64_t j = 0; j < tensors; j++) {
        uint32_t word = ng_word(one->data.seed, (uint64_t)j);
        for (int64_t i = 0; i < steps; i++) {
            float x = fabsf((float)ng_get_value(source, i, j));
            bool special = word % 4 == 0 && (word >> 8 & 1 || i == 0);
            ((float *)(void *)((char *)u->history.data + i * u->history.row_bytes))[j] = special ? odd[(word >> 16) % 6] : x;
        }
        ((float *)u->in_use.data)[j] = (float)(1 + word % 977) * 0x1p-3f;
    }
    status = ng_reference_scale_update(&one->kernel->contract.scale_update, &u->history, &u->in_use, &u->next, &u->scales, &u->inverses);
    return status ? ng_fail(error, status, "the reference could not update %lld scales", (long long)tensors) : NG_OK;
}

static ng_status compare(ng_judge *judge, const ng_case *one, ng_session *session, const update *u, ng_result *result, ng_error *error) {
    const struct { ng_role role; const ng_tensor *want; } outputs[] = {{NG_OUT, &u->next}, {NG_OUT_3, &u->inverses}, {NG_OUT_2, &u->scales}};
    int64_t rejected = 0;
    for (size_t i = 0; i < 3; i++) { /* the scales last: theirs are the case's figures */
        ng_power power;
        const ng_tensor *got = &session->first[outputs[i].role];
        ng_observe(judge, one, outputs[i].role, got, outputs[i].want, NULL);
        ng_status status = ng_measure_codes(got, outputs[i].want, true, judge->threads, &result->error, &power);
        if (status) return ng_fail(error, status, "no memory for error figures");
        ng_accuse_figures(result, ng_role_names[outputs[i].role], &result->error);
        rejected += power.zero_rejected;
        if (i == 2 && !rejected) ng_accuse_powerless(result, &result->error, &power);
    }
    result->error.by_tier[NG_TIER_INTEGER] = result->error.checked;
    return NG_OK;
}

ng_status ng_judge_scale_update(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    ng_session session = {0};
    update u = {0};
    bool launched;
    ng_status status = make_update(judge, one, &u, error);
    if (status || !ng_session_begin(&session, judge, one->kernel, &one->problem, result)) goto done;
    status = ng_session_input(&session, NG_IN, &u.history, error);
    if (!status) status = ng_session_input(&session, NG_IN_2, &u.in_use, error);
    if (!status) status = ng_session_output(&session, NG_OUT, NG_FP32, u.next.rows, u.next.columns, error);
    if (!status) status = ng_session_output(&session, NG_OUT_2, NG_FP32, 1, u.next.columns, error);
    if (!status) status = ng_session_output(&session, NG_OUT_3, NG_FP32, 1, u.next.columns, error);
    if (!status) status = ng_session_run(&session, one->repeats, false, result, &launched, error);
    if (status || !launched) goto done;
    const double start = ng_now_s();
    status = compare(judge, one, &session, &u, result, error);
    if (!status) status = ng_session_conclude(&session, one, start, 0, result, error);
done:
    ng_session_end(&session);
    free_update(&u);
    return status;
}
