/* Adam and AdamW: parameters, masters and moments, every element against the exact result of the hyper-parameters as they were
 * passed, and against the bits that the contract fixes. One step, a list of tensors in one launch, a skipped step, or a
 * trajectory whose every step starts from what the kernel itself left. */
#include "harness/judge_optimizer.h"

#include "reference/optimizer.h"
#include "reference/round.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20, PARAMETER_STREAM = 1, MOMENT_1_STREAM = 4, MOMENT_2_STREAM = 5 };
static const ng_cast nearest = {.rounding = NG_RN_EVEN, .nan = NG_NAN_CANONICAL};

typedef struct subject {
    ng_judge *judge;
    const ng_case *one;
    const ng_kernel *kernel;
    const ng_optimizer *o;
    bool skipped, listed, first;
    double step;
    int64_t rows, columns;
    int64_t *widths;               /* of the tensors of a list */
    ng_tensor state[NG_ROLES];     /* what the changed roles hold before a launch */
    ng_tensor gradient, p, m, v;   /* the latter: decoded, fp32 */
    ng_tensor predicted_p, predicted_m, predicted_v; /* fp32 */
    ng_adam_reference reference;
    ng_session session;
    ng_values values[3];
    ng_tallies tallies;
} subject;

static bool is_scaled(ng_format_id format) { return format == NG_E4M3 || format == NG_E5M2; }
static ng_quantization moment_quantization(ng_format_id format) {
    return (ng_quantization){.element = format, .scale = NG_FP32, .blocks = {1, NG_MOMENT_BLOCK}, .rule = NG_SCALE_AMAX_OVER_MAX,
                             .cast = {.rounding = NG_RN_EVEN, .saturate = true, .nan = NG_NAN_CANONICAL}};
}

/* ---- inputs -------------------------------------------------------------------------------------------------------*/
static ng_status normal(subject *s, uint32_t stream, double factor, bool squared, ng_tensor *to, ng_error *error) {
    const ng_data_spec spec = {.distribution = NG_NORMAL, .seed = s->one->data.seed, .stream = stream, .target = NG_BF16, .whole_rows = s->rows, .whole_columns = s->columns};
    ng_status status = ng_tensor_create(NG_FP32, s->rows, s->columns, to, error);
    if (!status) status = ng_data_fill(&spec, 0, 0, to, s->judge->threads, error);
    float *x = to->data;
    for (int64_t i = 0; !status && i < s->rows * s->columns; i++) {
        x[i] *= (float)factor;
        if (squared) x[i] *= x[i];
        if (s->first && stream != PARAMETER_STREAM) x[i] = 0;
    }
    return status;
}

/* A tensor of fp32 values, rounded into a role's format. */
static ng_status store(subject *s, ng_role role, ng_format_id format, const ng_tensor *from, ng_error *error) {
    ng_tensor *to = &s->state[role];
    ng_status status = ng_tensor_create(format, s->rows, s->columns, to, error);
    if (status) return status;
#pragma omp parallel for num_threads(s->judge->threads) schedule(static)
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->columns; j++)
            ng_set_code(to, i, j, ng_round(format, ng_get_value(from, i, j), &nearest, 0));
    return status;
}

static ng_status store_moment(subject *s, ng_role codes, ng_role scales, ng_format_id format, const ng_tensor *from, ng_error *error) {
    const ng_quantization q = moment_quantization(format);
    float tensor_scale;
    if (!is_scaled(format)) return store(s, codes, format, from, error);
    ng_status status = ng_tensor_create(format, s->rows, s->columns, &s->state[codes], error);
    if (!status) status = ng_tensor_create(NG_FP32, s->rows, ng_block_count(NG_MOMENT_BLOCK, s->columns), &s->state[scales], error);
    if (status) return status;
    status = ng_reference_quantize(&q, from, NULL, NG_TIER_INTEGER, &s->state[codes], &s->state[scales], &tensor_scale);
    return status ? ng_fail(error, status, "moments could not be quantized") : NG_OK;
}

static ng_status make_master(subject *s, ng_error *error) {
    ng_status status = s->o->master == NG_MASTER_NONE ? NG_OK : ng_tensor_create(s->o->master == NG_MASTER_FP32 ? NG_FP32 : NG_BF16, s->rows, s->columns, &s->state[NG_PARAMETER_2], error);
    if (status || !s->o->master) return status;
#pragma omp parallel for num_threads(s->judge->threads) schedule(static)
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->columns; j++) {
            const uint64_t bits = ng_get_code(&s->p, i, j);
            const bool remainder = s->o->master == NG_MASTER_REMAINDER;
            ng_set_code(&s->state[NG_PARAMETER_2], i, j, remainder ? bits & 0xFFFF : bits);
            if (remainder) ng_set_code(&s->state[NG_PARAMETER], i, j, ((bits + 0x8000) >> 16) & 0xFFFF);
        }
    return status;
}

/* What roles hold, as fp32 values: p from the master where there is one, moments under their scales. */
static float moment_value(const subject *s, const ng_tensor *t, ng_role codes, ng_role scales, int64_t i, int64_t j) {
    const float x = (float)ng_get_value(&t[codes], i, j);
    (void)s;
    return t[scales].data ? x * (float)ng_get_value(&t[scales], i, j / NG_MOMENT_BLOCK) : x;
}
static float parameter_value(const subject *s, const ng_tensor *t, int64_t i, int64_t j) {
    if (s->o->master == NG_MASTER_NONE) return (float)ng_get_value(&t[NG_PARAMETER], i, j);
    if (s->o->master == NG_MASTER_FP32) return (float)ng_get_value(&t[NG_PARAMETER_2], i, j);
    const uint32_t rest = (uint32_t)ng_get_code(&t[NG_PARAMETER_2], i, j);
    const uint32_t bits = ((uint32_t)ng_get_code(&t[NG_PARAMETER], i, j) - (rest >> 15)) << 16 | rest;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void decode_state(subject *s) {
#pragma omp parallel for num_threads(s->judge->threads) schedule(static)
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->columns; j++) {
            const int64_t at = i * s->columns + j;
            ((float *)s->p.data)[at] = parameter_value(s, s->state, i, j);
            ((float *)s->m.data)[at] = moment_value(s, s->state, NG_MOMENT_1, NG_MOMENT_1_SCALES, i, j);
            ((float *)s->v.data)[at] = moment_value(s, s->state, NG_MOMENT_2, NG_MOMENT_2_SCALES, i, j);
        }
}

/* Ragged, but where the list is there to be timed. */
static void choose_widths(subject *s) {
    const bool ragged = !strcmp(s->one->problem_name, "list");
    const int64_t grain = is_scaled(s->o->moment_1) || is_scaled(s->o->moment_2) ? NG_MOMENT_BLOCK : 1;
    for (int64_t i = 0; i < s->rows; i++) {
        const int64_t off = ng_word(s->one->data.seed ^ 0x77, (uint64_t)i) % (uint64_t)(s->columns / 2 + 1);
        s->widths[i] = ragged && i % 3 ? (s->columns - off) / grain * grain : s->columns;
        if (s->widths[i] < 1) s->widths[i] = s->columns;
    }
}

static ng_status prepare(subject *s, ng_error *error) {
    const ng_tensor *source;
    ng_key key;
    const int64_t piece = s->rows * s->columns;
    ng_tensor *const work[] = {&s->predicted_p, &s->predicted_m, &s->predicted_v};
    ng_status status = ng_source(s->judge, &s->one->data, s->kernel->in, 0, 0, s->rows, s->columns, &source, &key, error);
    if (!status) status = ng_tensor_create(s->kernel->in, s->rows, s->columns, &s->gradient, error);
    if (!status) ng_tensor_copy(source, &s->gradient);
    if (!status) status = normal(s, PARAMETER_STREAM, 1, false, &s->p, error);
    if (!status) status = normal(s, MOMENT_1_STREAM, 0.1, false, &s->m, error);
    if (!status) status = normal(s, MOMENT_2_STREAM, 0.3, true, &s->v, error);
    if (!status) status = store(s, NG_PARAMETER, s->kernel->out, &s->p, error);
    if (!status) status = make_master(s, error);
    if (!status) status = store_moment(s, NG_MOMENT_1, NG_MOMENT_1_SCALES, s->o->moment_1, &s->m, error);
    if (!status) status = store_moment(s, NG_MOMENT_2, NG_MOMENT_2_SCALES, s->o->moment_2, &s->v, error);
    for (int i = 0; i < 3 && !status; i++) {
        status = ng_tensor_create(NG_FP32, s->rows, s->columns, work[i], error);
        if (!status) status = ng_values_create(piece, &s->values[i], error);
    }
    if (!status && s->listed) {
        s->widths = calloc((size_t)s->rows, sizeof *s->widths);
        if (!s->widths) return ng_fail(error, NG_NO_MEMORY, "no memory for a list");
        choose_widths(s);
    }
    return status;
}

/* ---- the launch ---------------------------------------------------------------------------------------------------*/
static const ng_role changed[] = {NG_PARAMETER, NG_PARAMETER_2, NG_MOMENT_1, NG_MOMENT_2, NG_MOMENT_1_SCALES, NG_MOMENT_2_SCALES};
enum { CHANGED = sizeof changed / sizeof *changed };

static ng_status begin(subject *s, ng_result *result, bool *begun, ng_error *error) {
    ng_problem problem = s->one->problem;
    float found = s->skipped, step = (float)s->step;
    const ng_tensor found_inf = {&found, NG_FP32, NG_HOST, 1, 1, sizeof found}, step_count = {&step, NG_FP32, NG_HOST, 1, 1, sizeof step};
    problem.k = 0;
    if (s->listed) {
        problem.m = 1;
        problem.n = s->rows * s->columns;
        problem.k = s->rows;
    }
    *begun = ng_session_begin(&s->session, s->judge, s->kernel, &problem, result);
    if (!*begun) return NG_OK;
    ng_status status = ng_session_input(&s->session, NG_GRADIENT, &s->gradient, error);
    if (!status) status = ng_session_input(&s->session, NG_FOUND_INF, &found_inf, error);
    if (!status && s->o->capturable) status = ng_session_input(&s->session, NG_STEP_COUNT, &step_count, error);
    for (int i = 0; i < CHANGED && !status; i++) {
        const ng_tensor *t = &s->state[changed[i]];
        if (!t->data) continue;
        s->session.initial[changed[i]] = t;
        status = ng_session_output(&s->session, changed[i], t->format, t->rows, t->columns, error);
    }
    return !status && s->listed ? ng_session_list(&s->session, s->widths, s->rows, NG_MOMENT_BLOCK, error) : status;
}

/* ---- truth --------------------------------------------------------------------------------------------------------*/
static bool touched(const subject *s, int64_t i, int64_t j) { return !s->widths || j < s->widths[i]; }

static void set(ng_values *v, int64_t at, double high, double low, double bound) {
    v->high[at] = high;
    v->low[at] = low;
    v->bound[at] = bound;
}

/* An fp8 moment's own rounding, under the scale that the kernel chose: half an ulp of the code, or half the smallest one; three roundings to
 * binary32 beside it (division, and decoding). */
static double quantization_bound(ng_format_id format, double x, double e, double scale) {
    const double u = format == NG_E4M3 ? 0x1p-4 : 0x1p-3, eta = format == NG_E4M3 ? 0x1p-10 : 0x1p-17;
    return fmax(u * (fabs(x) + e), scale * eta) * (1 + 0x1p-20) + 3 * 0x1p-24 * (fabs(x) + e);
}

/* x: a result; y: what the kernel's storage decodes to. */
static bool settles(ng_format_id format, double y, ng_running x) { return is_scaled(format) || ng_running_settles(format, &nearest, y, x.c, x.e, x.r); }

static void one_element(subject *s, const ng_tensor *t, int64_t i, int64_t j, int64_t by_tier[NG_TIERS]) {
    const int64_t at = i * s->columns + j;
    const ng_format_id formats[3] = {s->o->master ? NG_FP32 : s->kernel->out, s->o->moment_1, s->o->moment_2};
    const float before[3] = {((float *)s->p.data)[at], ((float *)s->m.data)[at], ((float *)s->v.data)[at]};
    const double g = ng_get_value(&s->gradient, i, j);
    float *predicted[3] = {(float *)s->predicted_p.data + at, (float *)s->predicted_m.data + at, (float *)s->predicted_v.data + at};
    for (int k = 0; k < 3; k++)
        *predicted[k] = before[k];
    if (!touched(s, i, j)) {
        for (int k = 0; k < 3; k++)
            set(&s->values[k], at, (double)before[k], 0, 0);
        by_tier[NG_TIER_INTEGER] += 3;
        return;
    }
    ng_adam_predict(&s->reference, (float)g, predicted[0], predicted[1], predicted[2]);
    ng_adam_result r = ng_adam_reference_step(&s->reference, g, (double)before[0], (double)before[1], (double)before[2]);
    double low[3] = {0, 0, 0};
    const bool fast = settles(formats[0], (double)parameter_value(s, t, i, j), r.p) &&
                      settles(formats[1], (double)moment_value(s, t, NG_MOMENT_1, NG_MOMENT_1_SCALES, i, j), r.m) &&
                      settles(formats[2], (double)moment_value(s, t, NG_MOMENT_2, NG_MOMENT_2_SCALES, i, j), r.v);
    if (!fast) r = ng_adam_reference_mpfr(&s->reference, g, (double)before[0], (double)before[1], (double)before[2], low);
    by_tier[fast ? NG_TIER_CERTIFIED : NG_TIER_MPFR] += 3;
    const ng_running x[3] = {r.p, r.m, r.v};
    for (int k = 0; k < 3; k++) {
        double bound = fmax(x[k].e - x[k].r, 0);
        const ng_role scales = k == 1 ? NG_MOMENT_1_SCALES : NG_MOMENT_2_SCALES;
        if (k && is_scaled(formats[k])) bound += quantization_bound(formats[k], x[k].c, x[k].e, ng_get_value(&t[scales], i, j / NG_MOMENT_BLOCK)) + 2 * x[k].r;
        set(&s->values[k], at, x[k].c, low[k], bound);
    }
}

static void make_truth(subject *s, const ng_tensor *t) {
#pragma omp parallel for num_threads(s->judge->threads) schedule(static)
    for (int64_t i = 0; i < s->rows; i++) {
        int64_t by_tier[NG_TIERS] = {0};
        for (int64_t j = 0; j < s->columns; j++)
            one_element(s, t, i, j, by_tier);
        for (int tier = 0; tier < NG_TIERS; tier++)
            if (by_tier[tier]) {
#pragma omp atomic
                s->tallies.by_tier[tier] += by_tier[tier];
            }
    }
}

/* ---- comparison ---------------------------------------------------------------------------------------------------*/
/* Moments in fp8 and masters in two parts, as the fp32 values that they stand for. */
static ng_status decoded(subject *s, const ng_tensor *t, int which, ng_tensor *values, ng_error *error) {
    ng_status status = ng_tensor_create(NG_FP32, s->rows, s->columns, values, error);
    if (status) return status;
#pragma omp parallel for num_threads(s->judge->threads) schedule(static)
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->columns; j++)
            ((float *)values->data)[i * s->columns + j] = which == 0   ? parameter_value(s, t, i, j)
                                                          : which == 1 ? moment_value(s, t, NG_MOMENT_1, NG_MOMENT_1_SCALES, i, j)
                                                                       : moment_value(s, t, NG_MOMENT_2, NG_MOMENT_2_SCALES, i, j);
    return status;
}

static ng_status compare_values(subject *s, const ng_tensor *t, ng_error *error) {
    static const ng_role roles[3] = {NG_PARAMETER, NG_MOMENT_1, NG_MOMENT_2};
    ng_status status = NG_OK;
    for (int k = 0; k < 3 && !status; k++) {
        const bool indirect = k == 0 ? s->o->master == NG_MASTER_REMAINDER : t[k == 1 ? NG_MOMENT_1_SCALES : NG_MOMENT_2_SCALES].data != NULL;
        const ng_role role = k == 0 && s->o->master ? NG_PARAMETER_2 : roles[k];
        ng_tensor values = {0};
        if (indirect) status = decoded(s, t, k, &values, error);
        if (!status) status = ng_tallies_add(s->judge, s->one, &s->tallies, role, indirect ? &values : &t[role], &nearest, &s->values[k], 0);
        ng_tensor_free(&values);
    }
    return status;
}

/* The bits of every changed role. */
static ng_status predict_role(subject *s, const ng_tensor *t, ng_role role, const ng_tensor *from, ng_result *result, ng_error *error) {
    ng_tensor want = {0};
    const ng_format_id format = t[role].format;
    ng_status status = ng_tensor_create(format, s->rows, s->columns, &want, error);
    if (status) return status;
#pragma omp parallel for num_threads(s->judge->threads) schedule(static)
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->columns; j++) {
            const uint64_t bits = ng_round(NG_FP32, ng_get_value(from, i, j), &nearest, 0);
            uint64_t code = ng_round(format, ng_get_value(from, i, j), &nearest, 0);
            if (s->o->master == NG_MASTER_REMAINDER && role == NG_PARAMETER) code = ((bits + 0x8000) >> 16) & 0xFFFF;
            if (s->o->master == NG_MASTER_REMAINDER && role == NG_PARAMETER_2) code = bits & 0xFFFF;
            ng_set_code(&want, i, j, touched(s, i, j) ? code : ng_get_code(&s->state[role], i, j));
        }
    if (!status) ng_compare_prediction(s->judge, role, &t[role], &want, result);
    ng_tensor_free(&want);
    return status;
}

static ng_status predict_moment(subject *s, const ng_tensor *t, ng_role codes, ng_role scales, ng_format_id format, const ng_tensor *from, ng_result *result, ng_error *error) {
    const ng_quantization q = moment_quantization(format);
    ng_tensor want = {0}, want_scales = {0};
    float tensor_scale;
    if (!is_scaled(format)) return predict_role(s, t, codes, from, result, error);
    const int64_t blocks = ng_block_count(NG_MOMENT_BLOCK, s->columns);
    ng_status status = ng_tensor_create(format, s->rows, s->columns, &want, error);
    if (!status) status = ng_tensor_create(NG_FP32, s->rows, blocks, &want_scales, error);
    if (!status) status = ng_reference_quantize(&q, from, NULL, NG_TIER_INTEGER, &want, &want_scales, &tensor_scale);
    for (int64_t i = 0; !status && i < s->rows; i++)
        for (int64_t j = 0; j < s->columns; j++)
            if (!touched(s, i, j)) {
                ng_set_code(&want, i, j, ng_get_code(&s->state[codes], i, j));
                ng_set_code(&want_scales, i, j / NG_MOMENT_BLOCK, ng_get_code(&s->state[scales], i, j / NG_MOMENT_BLOCK));
            }
    if (!status) ng_compare_prediction(s->judge, codes, &t[codes], &want, result);
    if (!status) ng_compare_prediction(s->judge, scales, &t[scales], &want_scales, result);
    ng_tensor_free(&want);
    ng_tensor_free(&want_scales);
    return status;
}

/* t: what the kernel left, by role. */
static ng_status compare_step(subject *s, const ng_tensor *t, ng_result *result, ng_error *error) {
    ng_status status = NG_OK;
    if (s->skipped) {
        for (int i = 0; i < CHANGED && !status; i++)
            if (t[changed[i]].data) status = ng_tallies_add_codes(s->judge, &s->tallies, changed[i], &t[changed[i]], &s->state[changed[i]]);
        return status;
    }
    decode_state(s);
    ng_adam_reference_begin(s->o, s->one->problem.scalars, s->step, &s->reference);
    make_truth(s, t);
    status = compare_values(s, t, error);
    if (!status) status = predict_role(s, t, NG_PARAMETER, &s->predicted_p, result, error);
    if (!status && s->o->master) status = predict_role(s, t, NG_PARAMETER_2, &s->predicted_p, result, error);
    if (!status) status = predict_moment(s, t, NG_MOMENT_1, NG_MOMENT_1_SCALES, s->o->moment_1, &s->predicted_m, result, error);
    if (!status) status = predict_moment(s, t, NG_MOMENT_2, NG_MOMENT_2_SCALES, s->o->moment_2, &s->predicted_v, result, error);
    strcpy(result->prediction.model, "elementwise");
    return status;
}

/* ---- trajectories -------------------------------------------------------------------------------------------------*/
/* Steps 1, 2, 3 ... for nine tenths of the way, then leaps to a million. */
static double step_number(int64_t i, int64_t steps) {
    const int64_t plain = steps - steps / 10;
    return i < plain ? (double)(i + 1) : (double)(plain + (1000000 - plain) * (i - plain + 1) / (steps - plain));
}

/* Gradients of one sign and size for a while, then of another: moments that move. */
static void next_gradient(subject *s, int64_t step) {
    for (int64_t j = 0; j < s->rows * s->columns; j++) {
        const uint32_t word = ng_word(s->one->data.seed, (uint64_t)(step * s->rows * s->columns + j));
        const double size = ldexp(1, (int)(ng_word(s->one->data.seed ^ 1, (uint64_t)(step / 512 * 4096 + j)) % 24) - 18);
        ng_set_code(&s->gradient, j / s->columns, j % s->columns, ng_round(s->kernel->in, ((double)word * 0x1p-31 - 0.75) * size, &nearest, 0));
    }
}

static ng_status one_step(subject *s, int64_t step, ng_result *result, bool *launched, ng_error *error) {
    ng_session *session = &s->session;
    const float count = (float)s->step;
    session->problem.scalars[NG_STEP] = s->step;
    next_gradient(s, step);
    ng_tensor_copy(&s->gradient, &session->roles[NG_GRADIENT].tensor);
    ng_guarded_seal(&session->roles[NG_GRADIENT]);
    ng_status status = session->roles[NG_GRADIENT].device ? ng_guarded_send(&session->roles[NG_GRADIENT], &s->judge->gpu, error) : NG_OK;
    if (!status && s->o->capturable) {
        memcpy(session->roles[NG_STEP_COUNT].tensor.data, &count, sizeof count);
        ng_guarded_seal(&session->roles[NG_STEP_COUNT]);
        if (session->roles[NG_STEP_COUNT].device) status = ng_guarded_send(&session->roles[NG_STEP_COUNT], &s->judge->gpu, error);
    }
    if (status) return status;
    *launched = ng_session_launch(session, 0, false, true, result);
    return *launched ? NG_OK : ng_session_broken(session, error);
}

static ng_status run_trajectory(subject *s, int64_t steps, ng_result *result, bool *launched, ng_error *error) {
    ng_status status = NG_OK;
    *launched = true;
    for (int64_t i = 0; i < steps && !status && *launched && result->verdict == NG_PASS; i++) {
        ng_tensor after[NG_ROLES] = {0};
        s->step = step_number(i, steps);
        status = one_step(s, i, result, launched, error);
        for (int role = 0; role < NG_ROLES; role++)
            after[role] = s->session.roles[role].tensor;
        if (!status && *launched) status = compare_step(s, after, result, error);
        if (result->verdict != NG_PASS) ng_accuse(result, result->verdict, "in step %lld of the trajectory, number %.0f", (long long)i + 1, s->step);
        for (int k = 0; k < CHANGED && !status && *launched; k++) {
            const ng_role role = changed[k];
            if (!s->state[role].data) continue;
            ng_tensor_copy(&after[role], &s->state[role]);
            ng_tensor_copy(&after[role], &s->session.first[role]);
        }
    }
    return status;
}

/* ---- the driver ---------------------------------------------------------------------------------------------------*/
static void release(subject *s) {
    ng_tensor *const tensors[] = {&s->gradient, &s->p, &s->m, &s->v, &s->predicted_p, &s->predicted_m, &s->predicted_v};
    ng_session_end(&s->session);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        ng_tensor_free(tensors[i]);
    for (int role = 0; role < NG_ROLES; role++)
        ng_tensor_free(&s->state[role]);
    for (int k = 0; k < 3; k++)
        ng_values_free(&s->values[k]);
    free(s->widths);
}

ng_status ng_judge_adam(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    subject s = {.judge = judge, .one = one, .kernel = one->kernel, .o = &one->kernel->contract.optimizer, .step = one->problem.scalars[NG_STEP],
                 .skipped = !strcmp(one->problem_name, "found-inf"), .listed = !strncmp(one->problem_name, "list", 4),
                 .rows = one->problem.m, .columns = one->problem.n};
    ng_session *timed = &s.session;
    ng_power power;
    bool launched = false;
    const double start = ng_now_s();
    s.first = s.step == 1;
    ng_tallies_begin(&s.tallies);
    ng_status status = prepare(&s, error);
    if (!status) status = begin(&s, result, &launched, error);
    if (status || !launched) goto done;
    if (one->problem.k) status = run_trajectory(&s, one->problem.k, result, &launched, error);
    else status = ng_session_run(&s.session, one->repeats, false, result, &launched, error);
    if (!status && launched && !one->problem.k) status = compare_step(&s, s.session.first, result, error);
    if (status || !launched) goto done;
    ng_tallies_publish(&s.tallies, result, &power);
    ng_accuse_powerless(result, &result->error, &power);
    ng_session_digest(&s.session, result);
    result->verify_s = ng_now_s() - start;
    if (!one->problem.k && !s.skipped) status = ng_session_time(&timed, NULL, 1, one->level, 0, result, error);
    if (!status) status = ng_save_session(&s.session, one, result, error);
done:
    release(&s);
    return status;
}
