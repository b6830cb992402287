/* LayerNorm and RMSNorm. Every element of every output against the exact result and its bound; a quantized result against the
 * interval that the unrounded one may lie in, under the scale that the kernel chose where an exact maximum within its bound
 * could have led to it; and all bits against the prediction where the contract fixes the order. Mean and rstd that a backward
 * kernel is given are the reference's, rounded once. */
#include "harness/judge_internal.h"
#include "reference/norm.h"
#include "reference/round.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20, RESIDUAL_STREAM = 3, GRADIENT_STREAM = 2, WITNESSES = 3, WITNESS_COLUMNS = 4096 };
static const ng_cast nearest = {.rounding = NG_RN_EVEN, .nan = NG_NAN_CANONICAL};

typedef struct subject {
    ng_judge *judge;
    const ng_case *one;
    const ng_kernel *kernel;
    const ng_norm *norm;
    const ng_quantization *q;
    bool quantized;
    int64_t rows, columns, step; /* step: rows of a piece */
    const ng_tensor *source, *residual, *gradient;
    ng_tensor lowered, sum, output, gamma, beta, mean, rstd; /* output: what a memory-efficient backward pass starts from */
    float given;                                    /* NG_SCALE_GIVEN_IN */
    double tensor_scale;                            /* nvfp4, decoding */
    ng_norm_operands operands;
    ng_session session;
    ng_norm_truth truth;
    ng_tally tally, recipe;
    ng_power power, predicted_power;
    int64_t undecided, scales; /* blocks whose scale may be one of two; all */
} subject;

/* ---- inputs -------------------------------------------------------------------------------------------------------*/
/* gamma around 1, beta around 0; some gamma are 0, tiny, or negative. zero_centered: stored less 1. */
static ng_status make_parameters(subject *s, ng_error *error) {
    const ng_data_spec spec = {.distribution = NG_NORMAL, .parameter = 0.25, .seed = s->one->data.seed, .stream = 5, .target = NG_BF16, .whole_rows = 2, .whole_columns = s->columns};
    ng_tensor both = {0};
    ng_status status = ng_tensor_create(NG_FP32, 2, s->columns, &both, error);
    if (!status) status = ng_data_fill(&spec, 0, 0, &both, s->judge->threads, error);
    if (!status) status = ng_tensor_create(s->norm->parameters, 1, s->columns, &s->gamma, error);
    if (!status) status = ng_tensor_create(s->norm->parameters, 1, s->columns, &s->beta, error);
    for (int64_t j = 0; !status && j < s->columns; j++) {
        double w = 1 + ng_get_value(&both, 0, j), off = s->norm->zero_centered;
        if (j % 13 == 3) w = 0;
        if (j % 17 == 5) w *= 1e-6;
        if (j % 29 == 7) w = -1.5 * w;
        ng_set_code(&s->gamma, 0, j, ng_round(s->norm->parameters, w - off, &nearest, 0));
        ng_set_code(&s->beta, 0, j, ng_round(s->norm->parameters, ng_get_value(&both, 1, j), &nearest, 0));
    }
    ng_tensor_free(&both);
    return status;
}

static ng_status other_source(subject *s, uint32_t stream, const ng_tensor **source, ng_error *error) {
    ng_key key;
    ng_data_spec spec = s->one->data;
    spec.distribution = NG_NORMAL;
    spec.parameter = 0;
    spec.stream = stream;
    spec.target = NG_BF16;
    return ng_source(s->judge, &spec, s->kernel->in, 0, 0, s->rows, s->columns, source, &key, error);
}

/* The rows of a tensor that a piece is about. */
static ng_tensor rows_of(const ng_tensor *t, int64_t row0, int64_t rows) {
    ng_tensor part = *t;
    part.data = (char *)t->data + row0 * t->row_bytes;
    part.rows = rows;
    return part;
}

static int64_t rows_at(const subject *s, int64_t row0) { return s->step < s->rows - row0 ? s->step : s->rows - row0; }

static ng_status no_memory(const subject *s, ng_status status, ng_error *error) {
    return status ? ng_fail(error, status, "%s: the reference failed on rows of %lld", s->kernel->name, (long long)s->columns) : NG_OK;
}

static ng_status forward_truth(subject *s, int64_t row0, int64_t rows, ng_error *error) {
    return no_memory(s, ng_norm_forward(s->norm, &s->operands, row0, rows, NG_TIER_DOUBLE_DOUBLE, s->judge->threads, &s->truth), error);
}

static void round_rows(const double *high, int64_t row0, int64_t rows, const ng_tensor *to) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < to->columns; j++)
            ng_set_code(to, row0 + i, j, ng_round(to->format, high[i * to->columns + j], &nearest, 0));
}

/* Mean, rstd and, where the kernel starts from it, the output: what a forward pass would have left. */
static ng_status make_statistics(subject *s, ng_error *error) {
    ng_norm forward = *s->norm;
    forward.from_output = false;
    ng_status status = ng_tensor_create(NG_FP32, s->rows, 1, &s->mean, error);
    if (!status) status = ng_tensor_create(NG_FP32, s->rows, 1, &s->rstd, error);
    if (!status && s->norm->from_output) status = ng_tensor_create(s->kernel->in, s->rows, s->columns, &s->output, error);
    for (int64_t row0 = 0; row0 < s->rows && !status; row0 += s->step) {
        int64_t rows = rows_at(s, row0);
        status = no_memory(s, ng_norm_forward(&forward, &s->operands, row0, rows, NG_TIER_DOUBLE_DOUBLE, s->judge->threads, &s->truth), error);
        if (status) break;
        round_rows(s->truth.mean.high, row0, rows, &s->mean);
        round_rows(s->truth.rstd.high, row0, rows, &s->rstd);
        if (s->norm->from_output) round_rows(s->truth.element.high, row0, rows, &s->output);
    }
    memset(s->truth.by_tier, 0, sizeof s->truth.by_tier);
    return status;
}

/* Delayed scaling: from a maximum that is not quite the tensor's. */
static ng_status choose_given(subject *s, ng_error *error) {
    double amax = 0;
    s->given = 1;
    if (!s->quantized || (s->q->rule != NG_SCALE_GIVEN && !s->q->tensor_scale)) return NG_OK;
    ng_status status = forward_truth(s, 0, rows_at(s, 0), error);
    for (int64_t i = 0; !status && i < rows_at(s, 0) * s->columns; i++)
        if (fabs(s->truth.element.high[i]) > amax) amax = fabs(s->truth.element.high[i]);
    if (!(amax > 0x1p-60) || !(amax < 0x1p60)) amax = 1;
    s->given = (float)(s->q->tensor_scale ? 0.9 * amax : ng_formats[s->q->element].largest / (0.75 * amax));
    ng_reference_scale(s->q, 1, (double)s->given, NG_TIER_INTEGER, &amax, &s->tensor_scale);
    memset(s->truth.by_tier, 0, sizeof s->truth.by_tier);
    return status;
}

/* Magnitudes near binary32's largest leave nothing but infinite squares, and zeros: two rows of three are brought down to where
 * squares begin to overflow, and to where their sums still do not. */
static ng_status lower_rows(subject *s, ng_error *error) {
    if (s->one->data.distribution != NG_NEAR_OVERFLOW || s->kernel->in == NG_FP16) return NG_OK;
    ng_status status = ng_tensor_create(s->kernel->in, s->rows, s->columns, &s->lowered, error);
    for (int64_t i = 0; !status && i < s->rows; i++)
        for (int64_t j = 0; j < s->columns; j++)
            ng_set_code(&s->lowered, i, j, ng_round(s->kernel->in, ng_get_value(s->source, i, j) * (i % 3 == 0 ? 1 : i % 3 == 1 ? 0x1p-66 : 0x1p-74), &nearest, 0));
    if (!status) s->source = &s->lowered;
    return status;
}

static ng_status prepare(subject *s, ng_error *error) {
    ng_key key;
    ng_status status = ng_source(s->judge, &s->one->data, s->kernel->in, 0, 0, s->rows, s->columns, &s->source, &key, error);
    if (!status) status = lower_rows(s, error);
    if (!status) status = make_parameters(s, error);
    if (!status) status = no_memory(s, ng_norm_truth_create(s->step < s->rows ? s->step : s->rows, s->columns, &s->truth), error);
    s->operands = (ng_norm_operands){.in = s->source, .gamma = &s->gamma, .beta = &s->beta, .epsilon = s->one->problem.scalars[NG_EPSILON]};
    if (!status && s->norm->residual) {
        status = other_source(s, RESIDUAL_STREAM, &s->residual, error);
        if (!status) status = ng_tensor_create(s->kernel->in, s->rows, s->columns, &s->sum, error);
        if (!status) ng_norm_add(s->source, s->residual, s->judge->threads, &s->sum);
        s->operands.in = &s->sum;
    }
    if (status) return status;
    if (s->kernel->op == NG_OP_NORM_FORWARD) return choose_given(s, error);
    status = other_source(s, GRADIENT_STREAM, &s->gradient, error);
    if (!status) status = make_statistics(s, error);
    s->operands.gradient = s->gradient;
    s->operands.mean = &s->mean;
    s->operands.rstd = &s->rstd;
    if (s->norm->from_output) s->operands.in = &s->output;
    return status;
}

/* ---- the launch ---------------------------------------------------------------------------------------------------*/
static ng_status fill_forward(subject *s, ng_error *error) {
    const ng_tensor given = {&s->given, NG_FP32, NG_HOST, 1, 1, sizeof s->given};
    ng_session *to = &s->session;
    bool centered = s->norm->kind == NG_LAYER_NORM;
    ng_status status = ng_session_input(to, NG_IN, s->source, error);
    if (!status && s->norm->residual) status = ng_session_input(to, NG_IN_2, s->residual, error);
    if (!status && s->norm->residual) status = ng_session_output(to, NG_OUT_2, s->kernel->in, s->rows, s->columns, error);
    if (!status && centered) status = ng_session_output(to, NG_MEAN, NG_FP32, s->rows, 1, error);
    if (!status) status = ng_session_output(to, NG_RSTD, NG_FP32, s->rows, 1, error);
    if (status || !s->quantized) return status;
    if (s->q->rule == NG_SCALE_GIVEN || s->q->tensor_scale) status = ng_session_input(to, NG_SCALE_GIVEN_IN, &given, error);
    if (!status) status = ng_session_output(to, NG_OUT_SCALES, s->q->scale, ng_block_count(s->q->blocks.rows, s->rows), ng_block_count(s->q->blocks.columns, s->columns), error);
    if (!status && s->q->tensor_scale) status = ng_session_output(to, NG_OUT_TENSOR_SCALE, NG_FP32, 1, 1, error);
    return status;
}

static ng_status fill_backward(subject *s, ng_error *error) {
    ng_session *to = &s->session;
    bool centered = s->norm->kind == NG_LAYER_NORM;
    ng_status status = ng_session_input(to, NG_IN, s->operands.in, error);
    if (!status) status = ng_session_input(to, NG_GRADIENT, s->gradient, error);
    if (!status && centered && !s->norm->from_output) status = ng_session_input(to, NG_MEAN, &s->mean, error);
    if (!status) status = ng_session_input(to, NG_RSTD, &s->rstd, error);
    if (!status) status = ng_session_output(to, NG_OUT_2, s->norm->parameters, 1, s->columns, error);
    if (!status && centered) status = ng_session_output(to, NG_OUT_3, s->norm->parameters, 1, s->columns, error);
    return status;
}

static ng_status launch(subject *s, ng_result *result, bool *launched, ng_error *error) {
    bool forward = s->kernel->op == NG_OP_NORM_FORWARD, needs_beta = s->norm->kind == NG_LAYER_NORM && (forward || s->norm->from_output);
    *launched = false;
    if (!ng_session_begin(&s->session, s->judge, s->kernel, &s->one->problem, result)) return NG_OK;
    ng_status status = ng_session_input(&s->session, NG_PARAMETER, &s->gamma, error);
    if (!status && needs_beta) status = ng_session_input(&s->session, NG_PARAMETER_2, &s->beta, error);
    if (!status) status = ng_session_output(&s->session, NG_OUT, s->kernel->out, s->rows, s->columns, error);
    if (!status) status = forward ? fill_forward(s, error) : fill_backward(s, error);
    return status ? status : ng_session_run(&s->session, s->one->repeats, false, result, launched, error);
}

/* ---- comparison ---------------------------------------------------------------------------------------------------*/
/* Another output than OUT: its own accusation; failures and ratio count for the case. */
static ng_status compare_other(subject *s, ng_role role, const ng_tensor *part, const ng_norm_values *values, int64_t row0, ng_result *result) {
    const ng_truth truth = {values->high, values->low, values->bound, NULL};
    ng_error_figures figures;
    ng_power power;
    ng_tally all;
    ng_tally_begin(&all);
    ng_observe(s->judge, s->one, role, part, NULL, values->high);
    ng_status status = ng_tally_add(&all, part, &nearest, &truth, row0, s->judge->threads);
    ng_tally_publish(&all, part->rows * part->columns, &figures, &power);
    if (!status) ng_accuse_figures(result, ng_role_names[role], &figures);
    s->tally.beyond += figures.beyond_bound;
    s->tally.nonfinite += figures.nonfinite_mismatch;
    s->tally.bounded += power.bounded;
    s->tally.zero_rejected += power.zero_rejected;
    if (figures.bound_ratio > s->tally.ratio) s->tally.ratio = figures.bound_ratio;
    return status;
}

/* Whether the scale of a block could come from a maximum between `low` and `high`; counts those that could be two. */
static bool scale_is_possible(subject *s, double low, double high, uint64_t code) {
    double decode, tensor_scale;
    float from = (float)low, to = (float)high;
    if ((double)from > low) from = nextafterf(from, 0);
    if ((double)to < high) to = nextafterf(to, INFINITY);
    uint64_t least = ng_reference_scale(s->q, (double)from, (double)s->given, NG_TIER_INTEGER, &decode, &tensor_scale);
    uint64_t most = ng_reference_scale(s->q, (double)to, (double)s->given, NG_TIER_INTEGER, &decode, &tensor_scale);
#pragma omp atomic
    s->undecided += least != most;
    return least <= code && code <= most;
}

/* Rounds where the contract rounds: element = cast(fl(y encode)); multiplying by a power of two is exact. */
static void scale_block(const subject *s, double encode, int64_t from, int64_t count) {
    ng_norm_values *e = (ng_norm_values *)&s->truth.element;
    for (int64_t k = from; k < from + count; k++) {
        e->high[k] *= encode;
        e->low[k] *= encode;
        e->bound[k] = e->bound[k] * encode * (1 + 0x1p-23) + fabs(e->high[k]) * (s->q->scale == NG_E8M0 ? 0x1p-52 : 0x1p-24) + 0x1p-149;
    }
}

/* Turns the truth of y into that of the elements under the kernel's own scales. */
static void quantize_truth(subject *s, int64_t row0, int64_t rows, ng_result *result) {
    const ng_tensor *scales = &s->session.first[NG_OUT_SCALES];
    int64_t width = ng_block_extent(s->q->blocks.columns, s->columns), wrong = 0, row = -1, column = -1;
    bool per_block = s->q->rule != NG_SCALE_GIVEN;
#pragma omp parallel for num_threads(s->judge->threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < s->columns; j += width) {
            int64_t at = i * s->columns + j, count = width < s->columns - j ? width : s->columns - j;
            double low = 0, high = 0, encode = (double)s->given;
            bool known = true;
            for (int64_t k = at; k < at + count; k++) {
                known = known && s->truth.element.high[k] == s->truth.element.high[k];
                low = fmax(low, fabs(s->truth.element.high[k]) - s->truth.element.bound[k]);
                high = fmax(high, fabs(s->truth.element.high[k]) + s->truth.element.bound[k]);
            }
            if (per_block) {
                uint64_t code = ng_get_code(scales, row0 + i, j / width);
                known = known && high < (double)FLT_MAX;
                for (int64_t k = at; !known && k < at + count; k++)
                    s->truth.element.bound[k] = INFINITY;
                if (known && !scale_is_possible(s, low, high, code)) {
#pragma omp critical
                    if (!wrong++) row = row0 + i, column = j / width;
                }
                encode = known ? ng_norm_encoding(s->q, ng_decode(s->q->scale, code), s->tensor_scale) : 1;
            }
            scale_block(s, encode, at, count);
        }
    s->scales += per_block ? rows * ng_block_count(s->q->blocks.columns, s->columns) : 0;
    s->tally.beyond += wrong;
    if (wrong) ng_accuse(result, NG_FAIL, "%lld scales that no maximum within its bound leads to, as OUT_SCALES[%lld][%lld]", (long long)wrong, (long long)row, (long long)column);
}

/* Error of the whole, quantization included, against the exact y. */
static ng_status add_recipe(subject *s, int64_t row0, int64_t rows, ng_error *error) {
    ng_operand o = {.codes = rows_of(&s->session.first[NG_OUT], row0, rows), .scales = s->session.first[NG_OUT_SCALES], .blocks = s->q->blocks, .tensor_scale = s->q->tensor_scale ? (float)s->tensor_scale : 1};
    const ng_truth truth = {s->truth.element.high, s->truth.element.low, NULL, NULL};
    ng_tensor values = {0};
    if (s->q->blocks.rows) o.scales = rows_of(&o.scales, row0, rows);
    ng_status status = ng_tensor_create(NG_FP64, rows, s->columns, &values, error);
    for (int64_t i = 0; !status && i < rows; i++)
        ng_operand_row(&o, i, (double *)values.data + i * s->columns);
    if (!status) status = ng_tally_add(&s->recipe, &values, &nearest, &truth, row0, s->judge->threads);
    ng_tensor_free(&values);
    return status;
}

/* A seeded few rows through MPFR, from which the fast tier must not be further than its remainder says. */
static ng_status check_reference(subject *s, ng_result *result, ng_error *error) {
    bool forward = s->kernel->op == NG_OP_NORM_FORWARD;
    ng_norm_truth slow = {0};
    ng_status status = no_memory(s, ng_norm_truth_create(1, s->columns, &slow), error);
    int64_t most = s->columns > WITNESS_COLUMNS ? 1 : WITNESSES;
    for (int64_t w = 0; w < most && !status; w++) {
        int64_t row = ng_word(s->one->data.seed, (uint64_t)w) % (uint64_t)rows_at(s, 0);
        status = no_memory(s, (forward ? ng_norm_forward : ng_norm_backward)(s->norm, &s->operands, row, 1, NG_TIER_MPFR, 1, &slow), error);
        for (int64_t j = 0; !status && j < s->columns; j++) {
            const ng_norm_values *fast = &s->truth.element;
            int64_t k = row * s->columns + j;
            double off = (fast->high[k] - slow.element.high[j]) + (fast->low[k] - slow.element.low[j]);
            if (isfinite(slow.element.high[j]) && !(fabs(off) <= fast->remainder[k]))
                ng_accuse(result, NG_FAIL, "the two tiers of the reference differ at [%lld][%lld]: by %g, remainder %g", (long long)row, (long long)j, off, fast->remainder[k]);
        }
    }
    s->truth.by_tier[NG_TIER_DOUBLE_DOUBLE] -= slow.by_tier[NG_TIER_MPFR];
    s->truth.by_tier[NG_TIER_MPFR] += slow.by_tier[NG_TIER_MPFR];
    ng_norm_truth_free(&slow);
    return status;
}

static ng_status compare_piece(subject *s, int64_t row0, ng_result *result, ng_error *error) {
    bool forward = s->kernel->op == NG_OP_NORM_FORWARD;
    int64_t rows = rows_at(s, row0);
    ng_tensor out = rows_of(&s->session.first[NG_OUT], row0, rows), part;
    const ng_norm_values *e = &s->truth.element;
    const ng_truth truth = {e->high, e->low, e->bound, NULL};
    ng_status status = forward ? forward_truth(s, row0, rows, error)
                               : no_memory(s, ng_norm_backward(s->norm, &s->operands, row0, rows, NG_TIER_DOUBLE_DOUBLE, s->judge->threads, &s->truth), error);
    if (!status && row0 == 0) status = check_reference(s, result, error);
    if (!status && forward && s->norm->kind == NG_LAYER_NORM) {
        part = rows_of(&s->session.first[NG_MEAN], row0, rows);
        status = compare_other(s, NG_MEAN, &part, &s->truth.mean, row0, result);
    }
    if (!status && forward) {
        part = rows_of(&s->session.first[NG_RSTD], row0, rows);
        status = compare_other(s, NG_RSTD, &part, &s->truth.rstd, row0, result);
    }
    if (!status && s->quantized) {
        status = add_recipe(s, row0, rows, error);
        quantize_truth(s, row0, rows, result);
    }
    if (!status) ng_observe(s->judge, s->one, NG_OUT, &out, NULL, e->high);
    return status ? status : ng_tally_add(&s->tally, &out, &s->kernel->contract.cast, &truth, row0, s->judge->threads);
}

/* Bits that no order of sums can change: the residual's sum, and scales that were given. */
static void compare_exact(subject *s, ng_role role, const ng_tensor *want, ng_result *result) {
    ng_error_figures figures;
    ng_power power;
    if (ng_measure_codes(&s->session.first[role], want, false, s->judge->threads, &figures, &power)) return;
    ng_accuse_figures(result, ng_role_names[role], &figures);
    s->tally.beyond += figures.beyond_bound;
    s->tally.nonfinite += figures.nonfinite_mismatch;
}

static ng_status compare_rest(subject *s, ng_result *result, ng_error *error) {
    ng_norm_truth columns = {0};
    ng_status status = NG_OK;
    if (s->kernel->op == NG_OP_NORM_FORWARD) {
        float decode = s->q->rule == NG_SCALE_GIVEN ? 1 / s->given : (float)s->tensor_scale;
        const ng_tensor scale = {&decode, NG_FP32, NG_HOST, 1, 1, sizeof decode};
        if (s->norm->residual) compare_exact(s, NG_OUT_2, &s->sum, result);
        if (s->quantized && s->q->rule == NG_SCALE_GIVEN) compare_exact(s, NG_OUT_SCALES, &scale, result);
        if (s->q->tensor_scale) compare_exact(s, NG_OUT_TENSOR_SCALE, &scale, result);
        return NG_OK;
    }
    status = no_memory(s, ng_norm_truth_create(1, s->columns, &columns), error);
    for (int which = 0; which < (s->norm->kind == NG_LAYER_NORM ? 2 : 1) && !status; which++) {
        status = no_memory(s, ng_norm_sums(s->norm, &s->operands, which, NG_TIER_DOUBLE_DOUBLE, s->judge->threads, &columns), error);
        if (!status) status = compare_other(s, which ? NG_OUT_3 : NG_OUT_2, &s->session.first[which ? NG_OUT_3 : NG_OUT_2], &columns.element, 0, result);
    }
    ng_norm_truth_free(&columns);
    return status;
}

/* ---- prediction ---------------------------------------------------------------------------------------------------*/
static void compare_bits(subject *s, ng_role role, const ng_tensor *want, ng_result *result) {
    ng_prediction *prediction = &result->prediction;
    ng_error_figures figures;
    ng_power power;
    if (!want->data || !s->session.first[role].data) return;
    if (ng_measure_codes(&s->session.first[role], want, false, s->judge->threads, &figures, &power)) return;
    int64_t differ = figures.beyond_bound + figures.nonfinite_mismatch;
    if (differ && !prediction->differ) memcpy(prediction->first, figures.worst, sizeof prediction->first);
    prediction->present = true;
    prediction->elements += figures.checked;
    prediction->differ += differ;
    s->predicted_power.bounded += power.bounded;
    s->predicted_power.zero_rejected += power.zero_rejected;
    if (differ)
        ng_accuse(result, NG_MOVED, "%lld of %lld elements of %s differ from the bits that the contract fixes, first or worst [%lld][%lld]: %.9g, predicted %.9g", (long long)differ,
                  (long long)figures.checked, ng_role_names[role], (long long)figures.worst[0], (long long)figures.worst[1], figures.worst_computed, figures.worst_exact);
}

static ng_status predict_forward(subject *s, ng_result *result, ng_error *error) {
    ng_tensor y = {0}, mean = {0}, rstd = {0}, out = {0}, scales = {0};
    double amax = (double)s->given;
    float tensor_scale;
    ng_status status = ng_tensor_create(NG_FP32, s->rows, s->columns, &y, error);
    if (!status) status = ng_tensor_create(NG_FP32, s->rows, 1, &mean, error);
    if (!status) status = ng_tensor_create(NG_FP32, s->rows, 1, &rstd, error);
    if (!status) status = ng_tensor_create(s->kernel->out, s->rows, s->columns, &out, error);
    if (!status) status = no_memory(s, ng_predict_norm_forward(s->norm, &s->operands, s->judge->threads, &y, &mean, &rstd), error);
    if (!status && s->quantized) {
        const ng_quantize_inputs inputs = {.given_scale = &s->given, .tensor_amax = s->q->tensor_scale ? &amax : NULL};
        status = ng_tensor_create(s->q->scale, ng_block_count(s->q->blocks.rows, s->rows), ng_block_count(s->q->blocks.columns, s->columns), &scales, error);
        if (!status) status = no_memory(s, ng_reference_quantize(s->q, &y, &inputs, NG_TIER_INTEGER, &out, &scales, &tensor_scale), error);
    } else if (!status) {
#pragma omp parallel for num_threads(s->judge->threads) schedule(static)
        for (int64_t i = 0; i < s->rows; i++)
            for (int64_t j = 0; j < s->columns; j++)
                ng_set_code(&out, i, j, ng_round(out.format, ng_get_value(&y, i, j), &s->kernel->contract.cast, 0));
    }
    if (!status) {
        compare_bits(s, NG_OUT, &out, result);
        compare_bits(s, NG_OUT_SCALES, &scales, result);
        compare_bits(s, NG_MEAN, &mean, result);
        compare_bits(s, NG_RSTD, &rstd, result);
    }
    ng_tensor_free(&y);
    ng_tensor_free(&mean);
    ng_tensor_free(&rstd);
    ng_tensor_free(&out);
    ng_tensor_free(&scales);
    return status;
}

static ng_status predict_backward(subject *s, ng_result *result, ng_error *error) {
    ng_tensor dx = {0}, dgamma = {0}, dbeta = {0};
    ng_status status = ng_tensor_create(s->kernel->out, s->rows, s->columns, &dx, error);
    if (!status) status = ng_tensor_create(s->norm->parameters, 1, s->columns, &dgamma, error);
    if (!status) status = ng_tensor_create(s->norm->parameters, 1, s->columns, &dbeta, error);
    if (!status) status = no_memory(s, ng_predict_norm_backward(s->norm, &s->kernel->contract.cast, &s->operands, s->judge->threads, &dx, &dgamma, &dbeta), error);
    if (!status) {
        compare_bits(s, NG_OUT, &dx, result);
        compare_bits(s, NG_OUT_2, &dgamma, result);
        compare_bits(s, NG_OUT_3, &dbeta, result);
    }
    ng_tensor_free(&dx);
    ng_tensor_free(&dgamma);
    ng_tensor_free(&dbeta);
    return status;
}

/* ---- the driver ---------------------------------------------------------------------------------------------------*/
static void publish(subject *s, ng_result *result) {
    ng_tally_publish(&s->tally, s->rows * s->columns, &result->error, &s->power);
    memcpy(result->error.by_tier, s->truth.by_tier, sizeof result->error.by_tier);
    ng_accuse_figures(result, "OUT", &result->error);
    if (!s->predicted_power.zero_rejected) ng_accuse_powerless(result, &result->error, &s->power);
    if (!s->quantized) return;
    ng_tally_publish(&s->recipe, s->rows * s->columns, &result->recipe_error, NULL);
    result->recipe_error.max_ulp = NAN; /* the values have no common format */
    if (s->undecided && result->verdict == NG_PASS)
        snprintf(result->reason, sizeof result->reason, "%lld of %lld scales may be one of several within the bound of their maximum", (long long)s->undecided, (long long)s->scales);
}

ng_status ng_judge_norm(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    const ng_kernel *kernel = one->kernel;
    subject s = {.judge = judge, .one = one, .kernel = kernel, .norm = &kernel->contract.norm, .q = &kernel->contract.quantization,
                 .quantized = kernel->op == NG_OP_NORM_FORWARD && kernel->contract.quantization.rule != NG_SCALE_ABSENT,
                 .rows = one->problem.m, .columns = one->problem.n, .step = PIECE / one->problem.n};
    bool launched = false;
    double start = ng_now_s();
    if (s.step < 1) s.step = 1;
    ng_tally_begin(&s.tally);
    ng_tally_begin(&s.recipe);
    ng_status status = prepare(&s, error);
    if (!status) status = launch(&s, result, &launched, error);
    for (int64_t row0 = 0; row0 < s.rows && !status && launched; row0 += s.step)
        status = compare_piece(&s, row0, result, error);
    if (status || !launched) goto done;
    status = compare_rest(&s, result, error);
    if (!status && s.norm->order != NG_NORM_ANY)
        status = kernel->op == NG_OP_NORM_FORWARD ? predict_forward(&s, result, error) : predict_backward(&s, result, error);
    if (status) goto done;
    snprintf(result->prediction.model, sizeof result->prediction.model, "lanes");
    publish(&s, result);
    status = ng_session_conclude(&s.session, one, start, 0, result, error);
done:
    ng_session_end(&s.session);
    ng_norm_truth_free(&s.truth);
    ng_tensor *const owned[] = {&s.lowered, &s.sum, &s.output, &s.gamma, &s.beta, &s.mean, &s.rstd};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        ng_tensor_free(owned[i]);
    return status;
}
