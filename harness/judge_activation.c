/* Activations, forward and backward: every element against the exact result and its bound. A quantized result against the interval
 * that the unrounded one may lie in, under the scale that the kernel chose where a maximum within its bound could have led to it. */
#include "harness/judge_internal.h"
#include "reference/activation.h"
#include "reference/norm.h"
#include "reference/round.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20, GRADIENT_STREAM = 2, UP_STREAM = 3 };
static const ng_cast nearest = {.rounding = NG_RN_EVEN, .nan = NG_NAN_CANONICAL};

typedef struct subject {
    ng_judge *judge;
    const ng_case *one;
    const ng_kernel *kernel;
    const ng_quantization *q;
    ng_activation_kind kind;
    bool backward, gated, quantized;
    int64_t rows, columns, step; /* step: rows of a piece */
    const ng_tensor *x, *u, *d;
    float given;         /* NG_SCALE_GIVEN_IN */
    double tensor_scale; /* nvfp4, decoding */
    ng_session session;
    ng_values values[2];
    ng_tallies tallies;
    ng_tally recipe;
} subject;

/* ---- inputs -------------------------------------------------------------------------------------------------------*/
static ng_status other_source(subject *s, uint32_t stream, const ng_tensor **source, ng_error *error) {
    ng_key key;
    ng_data_spec spec = s->one->data;
    spec.distribution = NG_NORMAL;
    spec.parameter = 0;
    spec.stream = stream;
    spec.target = NG_BF16;
    return ng_source(s->judge, &spec, s->kernel->in, 0, 0, s->rows, s->columns, source, &key, error);
}

static double value(const ng_tensor *t, int64_t i, int64_t j) { return t ? ng_get_value(t, i, j) : 1; }

/* Delayed scaling: from a maximum that is not quite the tensor's. */
static void choose_given(subject *s) {
    double amax = 0;
    s->given = 1;
    if (!s->quantized || (s->q->rule != NG_SCALE_GIVEN && !s->q->tensor_scale)) return;
    for (int64_t i = 0; i < s->rows && i < s->step; i++)
        for (int64_t j = 0; j < s->columns; j++)
            amax = fmax(amax, fabs(ng_reference_activation(s->kind, value(s->x, i, j), value(s->u, i, j)).c));
    if (!(amax > 0x1p-60) || !(amax < 0x1p60)) amax = 1;
    s->given = (float)(s->q->tensor_scale ? 0.9 * amax : ng_formats[s->q->element].largest / (0.75 * amax));
    ng_reference_scale(s->q, 1, (double)s->given, NG_TIER_INTEGER, &amax, &s->tensor_scale);
}

static ng_status prepare(subject *s, ng_error *error) {
    ng_key key;
    ng_status status = ng_source(s->judge, &s->one->data, s->kernel->in, 0, 0, s->rows, s->columns, &s->x, &key, error);
    if (!status && s->gated) status = other_source(s, UP_STREAM, &s->u, error);
    if (!status && s->backward) status = other_source(s, GRADIENT_STREAM, &s->d, error);
    const int64_t count = (s->step < s->rows ? s->step : s->rows) * s->columns;
    if (!status) status = ng_values_create(count, &s->values[0], error);
    if (!status && s->backward && s->gated) status = ng_values_create(count, &s->values[1], error);
    if (!status) choose_given(s);
    return status;
}

/* ---- the launch ---------------------------------------------------------------------------------------------------*/
static ng_status launch(subject *s, ng_result *result, bool *launched, ng_error *error) {
    const ng_tensor given = {&s->given, NG_FP32, NG_HOST, 1, 1, sizeof s->given};
    ng_session *to = &s->session;
    *launched = false;
    if (!ng_session_begin(to, s->judge, s->kernel, &s->one->problem, result)) return NG_OK;
    ng_status status = ng_session_input(to, NG_IN, s->x, error);
    if (!status && s->gated) status = ng_session_input(to, NG_IN_2, s->u, error);
    if (!status && s->backward) status = ng_session_input(to, NG_GRADIENT, s->d, error);
    if (!status) status = ng_session_output(to, NG_OUT, s->kernel->out, s->rows, s->columns, error);
    if (!status && s->backward && s->gated) status = ng_session_output(to, NG_OUT_2, s->kernel->out, s->rows, s->columns, error);
    if (!status && s->quantized) {
        if (s->q->rule == NG_SCALE_GIVEN || s->q->tensor_scale) status = ng_session_input(to, NG_SCALE_GIVEN_IN, &given, error);
        if (!status) status = ng_session_output(to, NG_OUT_SCALES, s->q->scale, ng_block_count(s->q->blocks.rows, s->rows), ng_block_count(s->q->blocks.columns, s->columns), error);
        if (!status && s->q->tensor_scale) status = ng_session_output(to, NG_OUT_TENSOR_SCALE, NG_FP32, 1, 1, error);
    }
    return status ? status : ng_session_run(to, s->one->repeats, false, result, launched, error);
}

/* ---- truth --------------------------------------------------------------------------------------------------------*/
/* Results that are quantized are compared behind their scale: what lies near the bound is not known here, so all are settled by
 * the fast tier, whose remainder then widens the bound by less than 2^-15 of itself. */
static void set_value(subject *s, int which, int64_t at, ng_running x, bool fast, double high, double low, int64_t by_tier[NG_TIERS]) {
    s->values[which].high[at] = fast ? x.c : high;
    s->values[which].low[at] = fast ? 0 : low;
    s->values[which].bound[at] = fast && !s->quantized ? fmax(x.e - x.r, 0) : x.e + (s->quantized ? x.r : 0);
    by_tier[fast ? NG_TIER_CERTIFIED : NG_TIER_MPFR]++;
}

static void one_element(subject *s, int64_t row0, int64_t i, int64_t j, int64_t by_tier[NG_TIERS]) {
    const double x = value(s->x, row0 + i, j), u = value(s->u, row0 + i, j), d = value(s->d, row0 + i, j);
    const ng_cast *cast = &s->kernel->contract.cast;
    const int64_t at = i * s->columns + j;
    ng_running y[2];
    double high[2], low[2];
    if (s->backward) ng_reference_activation_backward(s->kind, x, u, d, y);
    else y[0] = ng_reference_activation(s->kind, x, u);
    bool fast = s->quantized;
    for (int which = 0; !s->quantized && which < (s->backward && s->gated ? 2 : 1); which++)
        fast = (which == 0 || fast) && ng_running_settles(s->kernel->out, cast, ng_get_value(&s->session.first[which ? NG_OUT_2 : NG_OUT], row0 + i, j), y[which].c, y[which].e, y[which].r);
    if (!fast && s->backward) ng_reference_activation_backward_mpfr(s->kind, x, u, d, high, low);
    else if (!fast) high[0] = ng_reference_activation_mpfr(s->kind, x, u, &low[0]);
    for (int which = 0; which < (s->backward && s->gated ? 2 : 1); which++)
        set_value(s, which, at, y[which], fast, fast ? 0 : high[which], fast ? 0 : low[which], by_tier);
}

static void make_truth(subject *s, int64_t row0, int64_t rows) {
#pragma omp parallel for num_threads(s->judge->threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        int64_t by_tier[NG_TIERS] = {0};
        for (int64_t j = 0; j < s->columns; j++)
            one_element(s, row0, i, j, by_tier);
        for (int t = 0; t < NG_TIERS; t++)
            if (by_tier[t]) {
#pragma omp atomic
                s->tallies.by_tier[t] += by_tier[t];
            }
    }
}

/* ---- quantization -------------------------------------------------------------------------------------------------*/
/* Whether a block's scale could come from a maximum between `low` and `high`. */
static bool scale_is_possible(const subject *s, double low, double high, uint64_t code) {
    double decode, tensor_scale;
    float from = (float)low, to = (float)high;
    if ((double)from > low) from = nextafterf(from, 0);
    if ((double)to < high) to = nextafterf(to, INFINITY);
    const uint64_t least = ng_reference_scale(s->q, (double)from, (double)s->given, NG_TIER_INTEGER, &decode, &tensor_scale);
    const uint64_t most = ng_reference_scale(s->q, (double)to, (double)s->given, NG_TIER_INTEGER, &decode, &tensor_scale);
    return least <= code && code <= most;
}

/* Turns the truth of one block of y into that of its elements under the kernel's own scale. False: a scale that cannot be. */
static bool quantize_block(subject *s, int64_t row, int64_t block, int64_t at, int64_t count) {
    ng_values *v = &s->values[0];
    double low = 0, high = 0, encode = (double)s->given;
    bool known = true, possible = true;
    for (int64_t k = at; k < at + count; k++) {
        known = known && !isnan(v->high[k]);
        low = fmax(low, fabs(v->high[k]) - v->bound[k]);
        high = fmax(high, fabs(v->high[k]) + v->bound[k]);
    }
    if (s->q->rule != NG_SCALE_GIVEN) {
        const uint64_t code = ng_get_code(&s->session.first[NG_OUT_SCALES], row, block);
        known = known && high < (double)FLT_MAX;
        possible = !known || scale_is_possible(s, low, high, code);
        encode = known ? ng_norm_encoding(s->q, ng_decode(s->q->scale, code), s->tensor_scale) : 1;
        for (int64_t k = at; !known && k < at + count; k++)
            v->bound[k] = INFINITY;
    }
    for (int64_t k = at; k < at + count; k++) { /* cast(fl(y encode)); by a power of two, exact */
        v->high[k] *= encode;
        v->bound[k] = v->bound[k] * encode * (1 + 0x1p-23) + fabs(v->high[k]) * (s->q->scale == NG_E8M0 ? 0x1p-52 : 0x1p-24) + 0x1p-149;
    }
    return possible;
}

static void quantize_truth(subject *s, int64_t row0, int64_t rows, ng_result *result) {
    const int64_t width = ng_block_extent(s->q->blocks.columns, s->columns);
    int64_t wrong = 0, row = -1, column = -1;
#pragma omp parallel for num_threads(s->judge->threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < s->columns; j += width)
            if (!quantize_block(s, row0 + i, j / width, i * s->columns + j, width < s->columns - j ? width : s->columns - j)) {
#pragma omp critical
                if (!wrong++) row = row0 + i, column = j / width;
            }
    if (wrong) ng_accuse(result, NG_FAIL, "%lld scales that no maximum within its bound leads to, as OUT_SCALES[%lld][%lld]", (long long)wrong, (long long)row, (long long)column);
}

/* Error of the whole, quantization included, against the exact y. */
static ng_status add_recipe(subject *s, int64_t row0, int64_t rows, ng_error *error) {
    ng_operand o = {.codes = ng_rows_of(&s->session.first[NG_OUT], row0, rows), .scales = s->session.first[NG_OUT_SCALES], .blocks = s->q->blocks, .tensor_scale = s->q->tensor_scale ? (float)s->tensor_scale : 1};
    const ng_truth truth = {s->values[0].high, s->values[0].low, NULL, NULL};
    ng_tensor values = {0};
    if (s->q->blocks.rows) o.scales = ng_rows_of(&o.scales, row0, rows);
    ng_status status = ng_tensor_create(NG_FP64, rows, s->columns, &values, error);
    for (int64_t i = 0; !status && i < rows; i++)
        ng_operand_row(&o, i, (double *)values.data + i * s->columns);
    if (!status) status = ng_tally_add(&s->recipe, &values, &nearest, &truth, row0, s->judge->threads);
    ng_tensor_free(&values);
    return status;
}

static ng_status compare_piece(subject *s, int64_t row0, ng_result *result, ng_error *error) {
    const int64_t rows = s->step < s->rows - row0 ? s->step : s->rows - row0;
    const ng_cast *cast = &s->kernel->contract.cast;
    ng_status status = NG_OK;
    make_truth(s, row0, rows);
    if (s->quantized) {
        status = add_recipe(s, row0, rows, error);
        quantize_truth(s, row0, rows, result);
    }
    const ng_tensor out = ng_rows_of(&s->session.first[NG_OUT], row0, rows);
    if (!status) status = ng_tallies_add(s->judge, s->one, &s->tallies, NG_OUT, &out, cast, &s->values[0], row0);
    if (status || !s->backward || !s->gated) return status;
    const ng_tensor second = ng_rows_of(&s->session.first[NG_OUT_2], row0, rows);
    return ng_tallies_add(s->judge, s->one, &s->tallies, NG_OUT_2, &second, cast, &s->values[1], row0);
}

static ng_status compare_given(subject *s) {
    float decode = s->q->rule == NG_SCALE_GIVEN ? 1 / s->given : (float)s->tensor_scale;
    const ng_tensor scale = {&decode, NG_FP32, NG_HOST, 1, 1, sizeof decode};
    const ng_role role = s->q->rule == NG_SCALE_GIVEN ? NG_OUT_SCALES : NG_OUT_TENSOR_SCALE;
    if (!s->quantized || (s->q->rule != NG_SCALE_GIVEN && !s->q->tensor_scale)) return NG_OK;
    return ng_tallies_add_codes(s->judge, &s->tallies, role, &s->session.first[role], &scale);
}

/* ---- the driver ---------------------------------------------------------------------------------------------------*/
ng_status ng_judge_activation(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    const ng_kernel *kernel = one->kernel;
    subject s = {.judge = judge, .one = one, .kernel = kernel, .q = &kernel->contract.quantization, .kind = kernel->contract.activation.kind,
                 .backward = kernel->op == NG_OP_ACTIVATION_BACKWARD, .gated = kernel->contract.activation.kind == NG_SWIGLU,
                 .quantized = kernel->op == NG_OP_ACTIVATION && kernel->contract.quantization.rule != NG_SCALE_ABSENT,
                 .rows = one->problem.m, .columns = one->problem.n, .step = PIECE / one->problem.n};
    ng_power power;
    bool launched = false;
    const double start = ng_now_s();
    if (s.step < 1) s.step = 1;
    ng_tallies_begin(&s.tallies);
    ng_tally_begin(&s.recipe);
    ng_status status = prepare(&s, error);
    if (!status) status = launch(&s, result, &launched, error);
    for (int64_t row0 = 0; row0 < s.rows && !status && launched; row0 += s.step)
        status = compare_piece(&s, row0, result, error);
    if (!status && launched) status = compare_given(&s);
    if (status || !launched) goto done;
    ng_tallies_publish(&s.tallies, result, &power);
    ng_accuse_powerless(result, &result->error, &power);
    if (s.quantized) {
        ng_tally_publish(&s.recipe, s.rows * s.columns, &result->recipe_error, NULL);
        result->recipe_error.max_ulp = NAN; /* the values have no common format */
    }
    status = ng_session_conclude(&s.session, one, start, 0, result, error);
done:
    ng_session_end(&s.session);
    ng_values_free(&s.values[0]);
    ng_values_free(&s.values[1]);
    return status;
}
