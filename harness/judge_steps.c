/* The steps around an optimizer: unscaling with its check for infinities, the loss scaler, the gradient norm, clipping. */
#include "harness/judge_optimizer.h"

#include "reference/round.h"
#include "reference/running.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ng_cast nearest = {.rounding = NG_RN_EVEN, .nan = NG_NAN_CANONICAL};

typedef struct subject {
    ng_judge *judge;
    const ng_case *one;
    const ng_kernel *kernel;
    const double *scalars;
    const ng_tensor *gradient;
    ng_session session;
    ng_tallies tallies;
    ng_tensor poisoned;
    int64_t *widths;
} subject;

/* "nan": one gradient in thousands is NaN, none infinite. */
static ng_status gradient(subject *s, ng_error *error) {
    ng_key key;
    ng_status status = ng_source(s->judge, &s->one->data, s->kernel->in, 0, 0, s->one->problem.m, s->one->problem.n, &s->gradient, &key, error);
    if (status || strcmp(s->one->problem_name, "nan")) return status;
    status = ng_tensor_create(s->kernel->in, s->gradient->rows, s->gradient->columns, &s->poisoned, error);
    if (status) return status;
    ng_tensor_copy(s->gradient, &s->poisoned);
    ng_set_code(&s->poisoned, s->poisoned.rows / 2, s->poisoned.columns / 3, ng_round(s->kernel->in, NAN, &nearest, 0));
    s->gradient = &s->poisoned;
    return NG_OK;
}

static ng_status begin(subject *s, ng_result *result, bool *begun) {
    ng_problem problem = s->one->problem;
    problem.k = 0;
    *begun = ng_session_begin(&s->session, s->judge, s->kernel, &problem, result);
    return NG_OK;
}

static ng_tensor number(float *x) { return (ng_tensor){x, NG_FP32, NG_HOST, 1, 1, sizeof *x}; }

static ng_status changed(subject *s, ng_role role, const ng_tensor *before, ng_error *error) {
    s->session.initial[role] = before;
    return ng_session_output(&s->session, role, before->format, before->rows, before->columns, error);
}

/* Rows as the tensors of a list, whole, where the problem is one. */
static ng_status list(subject *s, ng_error *error) {
    const ng_problem *p = &s->one->problem;
    if (strncmp(s->one->problem_name, "list", 4)) return NG_OK;
    s->widths = malloc(sizeof *s->widths * (size_t)p->m);
    if (!s->widths) return ng_fail(error, NG_NO_MEMORY, "no memory for a list");
    for (int64_t i = 0; i < p->m; i++)
        s->widths[i] = p->n;
    s->session.problem.m = 1;
    s->session.problem.n = p->m * p->n;
    s->session.problem.k = p->m;
    return ng_session_list(&s->session, s->widths, p->m, 1, error);
}

/* What every gradient times the factor is; *found: one is not finite, before or after. */
static ng_status scaled(const subject *s, float factor, ng_tensor *want, bool *found, ng_error *error) {
    *found = false;
    ng_status status = ng_tensor_create(s->kernel->in, s->gradient->rows, s->gradient->columns, want, error);
    for (int64_t i = 0; !status && i < want->rows; i++)
        for (int64_t j = 0; j < want->columns; j++) {
            const double x = ng_get_value(s->gradient, i, j);
            const float y = (float)(x * (double)factor); /* exact in binary64: one rounding */
            ng_set_code(want, i, j, ng_round(want->format, (double)y, &nearest, 0));
            *found = *found || !isfinite(x) || !isfinite(ng_get_value(want, i, j));
        }
    return status;
}

static ng_status judge_unscale(subject *s, ng_result *result, bool *launched, ng_error *error) {
    float scale = 65536, before = 0, after;
    const ng_tensor scales = number(&scale), none = number(&before), expected = number(&after);
    ng_tensor want = {0};
    bool found;
    ng_status status = gradient(s, error);
    if (!status) status = ng_session_input(&s->session, NG_LOSS_SCALE, &scales, error);
    if (!status) status = changed(s, NG_GRADIENT, s->gradient, error);
    if (!status) status = changed(s, NG_FOUND_INF, &none, error);
    if (!status) status = list(s, error);
    if (!status) status = ng_session_run(&s->session, s->one->repeats, false, result, launched, error);
    if (status || !*launched) return status;
    status = scaled(s, 1 / scale, &want, &found, error);
    after = found;
    if (!status) status = ng_tallies_add_codes(s->judge, &s->tallies, NG_GRADIENT, &s->session.first[NG_GRADIENT], &want);
    if (!status) status = ng_tallies_add_codes(s->judge, &s->tallies, NG_FOUND_INF, &s->session.first[NG_FOUND_INF], &expected);
    ng_tensor_free(&want);
    return status;
}

/* Two norms: one beyond the limit, and one that leaves everything as it is. */
static ng_status judge_clip(subject *s, ng_result *result, bool *launched, ng_error *error) {
    const double most = s->scalars[NG_MAX_NORM];
    float norm = strcmp(s->one->problem_name, "below") ? (float)(3.7 * most) : (float)(0.5 * most);
    const ng_tensor norms = number(&norm);
    const float factor = (float)most / (norm + 1e-6f);
    ng_tensor want = {0};
    bool found;
    ng_status status = gradient(s, error);
    if (!status) status = ng_session_input(&s->session, NG_OUT, &norms, error);
    if (!status) status = changed(s, NG_GRADIENT, s->gradient, error);
    if (!status) status = list(s, error);
    if (!status) status = ng_session_run(&s->session, s->one->repeats, false, result, launched, error);
    if (status || !*launched) return status;
    if (factor < 1) status = scaled(s, factor, &want, &found, error);
    if (!status) status = ng_tallies_add_codes(s->judge, &s->tallies, NG_GRADIENT, &s->session.first[NG_GRADIENT], factor < 1 ? &want : s->gradient);
    ng_tensor_free(&want);
    return status;
}

/* The sum of squares as a pair of binary64 (squares exact, two-sums), right to n 2^-104. A chain of d additions errs by at most
 * d 2^-53 of a sum of squares: 8 in a chunk and 10 halvings, then those over the chunks; its root by half of that. */
static double norm_of(const ng_tensor *t) {
    double high = 0, low = 0;
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++) {
            const double x = ng_get_value(t, i, j), square = x * x, sum = high + square, back = sum - high;
            low += (high - (sum - back)) + (square - back);
            high = sum;
        }
    return isfinite(high) ? sqrt(high + low) : sqrt(high);
}

static ng_status judge_norm2(subject *s, ng_result *result, bool *launched, ng_error *error) {
    ng_values values;
    ng_status status = gradient(s, error);
    if (!status) status = ng_session_input(&s->session, NG_GRADIENT, s->gradient, error);
    if (!status) status = ng_session_output(&s->session, NG_OUT, NG_FP32, 1, 1, error);
    if (!status) status = list(s, error);
    if (!status) status = ng_session_run(&s->session, s->one->repeats, false, result, launched, error);
    if (status || !*launched) return status;
    status = ng_values_create(1, &values, error);
    if (status) return status;
    const int64_t chunks = s->gradient->rows * ((s->gradient->columns + NG_NORM2_CHUNK - 1) / NG_NORM2_CHUNK);
    const double depth = 8 + 10 + 10 + (double)(chunks / NG_NORM2_CHAINS + 1);
    values.high[0] = norm_of(s->gradient);
    values.low[0] = 0;
    values.bound[0] = isfinite(values.high[0]) ? values.high[0] * (depth + 4) * 0x1p-53 : 0;
    status = ng_tallies_add(s->judge, s->one, &s->tallies, NG_OUT, &s->session.first[NG_OUT], &nearest, &values, 0);
    s->tallies.by_tier[NG_TIER_SPLIT] = 1;
    ng_values_free(&values);
    return status;
}

/* ---- scaler -------------------------------------------------------------------------------------------------------*/
/* What a scaler does, in words of torch/amp/grad_scaler.py, and no further than the largest number. */
static void next_scale(const double *scalars, bool found, double state[3]) {
    if (found) {
        state[0] = (double)(float)(state[0] * scalars[NG_BACKOFF]);
        state[1] = 0;
        return;
    }
    state[2]++;
    if (++state[1] < scalars[NG_GROWTH_INTERVAL]) return;
    state[1] = 0;
    if (state[0] * scalars[NG_GROWTH] <= (double)FLT_MAX) state[0] = (double)(float)(state[0] * scalars[NG_GROWTH]);
}

enum { STATE = 4 };
static const ng_role state_roles[STATE] = {NG_LOSS_SCALE, NG_GROWTH_COUNT, NG_STEP_COUNT, NG_FOUND_INF};

/* problem.k updates, some of them after a gradient that was infinite; each from the kernel's own previous state. */
static ng_status judge_scaler(subject *s, ng_result *result, bool *launched, ng_error *error) {
    float now[STATE] = {(float)s->scalars[NG_GRADIENT_SCALE], 0, 0, 0};
    ng_tensor state[STATE];
    ng_status status = NG_OK;
    for (int k = 0; k < STATE && !status; k++) {
        state[k] = number(&now[k]);
        status = changed(s, state_roles[k], &state[k], error);
    }
    *launched = true;
    for (int64_t i = 0; i < s->one->problem.k && !status && *launched && result->verdict == NG_PASS; i++) {
        double want[3] = {(double)now[0], (double)now[1], (double)now[2]};
        float expected[STATE];
        now[3] = i == 5 || i == 2090;
        next_scale(s->scalars, now[3] != 0, want);
        *launched = ng_session_launch(&s->session, 0, false, true, result);
        if (!*launched) return ng_session_broken(&s->session, error);
        for (int k = 0; k < STATE && !status; k++) {
            const ng_tensor *left = &s->session.roles[state_roles[k]].tensor, right = number(&expected[k]);
            expected[k] = k < 3 ? (float)want[k] : 0;
            status = ng_tallies_add_codes(s->judge, &s->tallies, state_roles[k], left, &right);
            if ((float)ng_get_value(left, 0, 0) != expected[k]) ng_accuse(result, NG_FAIL, "update %lld leaves %s at %g, expected %g", (long long)i + 1, ng_role_names[state_roles[k]], ng_get_value(left, 0, 0), (double)expected[k]);
            now[k] = (float)ng_get_value(left, 0, 0);
            ng_tensor_copy(left, &s->session.first[state_roles[k]]);
        }
    }
    return status;
}

ng_status ng_judge_steps(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    subject s = {.judge = judge, .one = one, .kernel = one->kernel, .scalars = one->problem.scalars};
    ng_session *timed = &s.session;
    ng_power power;
    bool launched = false;
    const double start = ng_now_s();
    const ng_optimizer_kind kind = one->kernel->contract.optimizer.kind;
    ng_tallies_begin(&s.tallies);
    ng_status status = begin(&s, result, &launched);
    if (!launched) goto done;
    launched = false;
    switch (kind) {
    case NG_UNSCALE: status = judge_unscale(&s, result, &launched, error); break;
    case NG_SCALER: status = judge_scaler(&s, result, &launched, error); break;
    case NG_NORM2: status = judge_norm2(&s, result, &launched, error); break;
    default: status = judge_clip(&s, result, &launched, error);
    }
    if (status || !launched) goto done;
    ng_tallies_publish(&s.tallies, result, &power);
    ng_accuse_powerless(result, &result->error, &power);
    ng_session_digest(&s.session, result);
    result->verify_s = ng_now_s() - start;
    if (kind != NG_SCALER) status = ng_session_time(&timed, NULL, 1, one->level, 0, result, error);
    if (!status) status = ng_save_session(&s.session, one, result, error);
done:
    ng_session_end(&s.session);
    ng_tensor_free(&s.poisoned);
    free(s.widths);
    return status;
}

ng_status ng_judge_optimizer(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    return one->kernel->contract.optimizer.kind <= NG_ADAMW_APEX ? ng_judge_adam(judge, one, result, error) : ng_judge_steps(judge, one, result, error);
}
