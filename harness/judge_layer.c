/* Rotary position, addition, transposition, embedding: every element against its exact value and bound, and bit for bit what the contract's
 * operations give; what is only moved must keep its codes. */
#include "harness/judge_internal.h"
#include "reference/layer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECOND_STREAM = 2 };

typedef struct subject {
    ng_judge *judge;
    const ng_case *one;
    const ng_kernel *kernel;
    const ng_layer *layer;
    int64_t m, n, k;       /* tokens, width, vocabulary */
    int64_t sequence, half; /* rope */
    ng_session session;
    ng_tensor in, second;  /* owned, as are these: */
    ng_tensor tables[2], tokens, want;
    ng_values truth;
    ng_tallies tallies;
} subject;

/* ---- inputs -------------------------------------------------------------------------------------------------------*/
static ng_status make(subject *s, uint32_t stream, ng_format_id format, int64_t rows, int64_t columns, ng_tensor *t, ng_error *error) {
    ng_data_spec spec = s->one->data;
    spec.stream = stream;
    spec.whole_rows = rows;
    spec.whole_columns = columns;
    if (spec.target == NG_FP64) spec.target = NG_FP32;
    ng_status status = ng_tensor_create(format, rows, columns, t, error);
    if (!status) status = ng_data_fill(&spec, 0, 0, t, s->judge->threads, error);
    if (!status && format == NG_FP64) ng_fill_low_digits(t, spec.seed + stream);
    return status;
}

/* A token in three is one of few; the first and the last of the vocabulary occur. */
static ng_status make_tokens(subject *s, ng_error *error) {
    ng_status status = ng_tensor_create(NG_FP32, s->m, 1, &s->tokens, error);
    for (int64_t i = 0; i < s->m && !status; i++) {
        const uint64_t word = ng_word(s->one->data.seed, (uint64_t)i);
        uint64_t token = word % (uint64_t)s->k;
        if (i % 3 == 1) token %= 5;
        if (i % 29 == 7) token = (uint64_t)s->k - 1;
        if (i % 29 == 8) token = 0;
        ((int32_t *)s->tokens.data)[i] = (int32_t)token;
    }
    return status;
}

static int64_t token_of(const subject *s, int64_t row) { return ((const int32_t *)s->tokens.data)[row]; }

/* What a role becomes, poisoned or holding `before`; exact values and bits have its shape. */
static ng_status want(subject *s, ng_role role, ng_format_id format, int64_t rows, int64_t columns, bool with_truth, ng_error *error) {
    ng_status status = ng_session_output(&s->session, role, format, rows, columns, error);
    if (!status) status = ng_tensor_create(format, rows, columns, &s->want, error);
    return !status && with_truth ? ng_values_create(rows * columns, &s->truth, error) : status;
}

static void put(subject *s, int64_t row, int64_t column, const ng_layer_value *v) {
    const int64_t at = row * s->want.columns + column;
    s->truth.high[at] = v->high;
    s->truth.low[at] = v->low;
    s->truth.bound[at] = v->bound;
    ng_set_code(&s->want, row, column, v->code);
}

/* ---- rope ---------------------------------------------------------------------------------------------------------*/
static ng_status prepare_rope(subject *s, ng_error *error) {
    const double *scalars = s->one->problem.scalars;
    if (!(scalars[NG_HEADS] >= 1) || !(scalars[NG_SEQUENCE] >= 1))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: heads and sequence are not stated", s->one->id);
    s->sequence = (int64_t)scalars[NG_SEQUENCE];
    s->half = s->n / (int64_t)scalars[NG_HEADS] / 2;
    ng_status status = make(s, 0, s->kernel->in, s->m, 3 * s->n, &s->in, error);
    for (int i = 0; i < 2 && !status; i++)
        status = ng_tensor_create(s->layer->compute, s->sequence, s->half, &s->tables[i], error);
    if (status) return status;
    ng_rope_tables(&s->tables[0], &s->tables[1]);
    status = ng_session_input(&s->session, NG_IN, &s->in, error);
    if (!status) status = ng_session_input(&s->session, NG_PARAMETER, &s->tables[0], error);
    if (!status) status = ng_session_input(&s->session, NG_PARAMETER_2, &s->tables[1], error);
    return status ? status : want(s, NG_OUT, s->kernel->out, s->m, 3 * s->n, true, error);
}

static void rope_row(subject *s, int64_t row) {
    for (int64_t j = 0; j < 2 * s->n; j++) {
        const int64_t i = j % (2 * s->half), at = row % s->sequence;
        ng_layer_value v[2];
        if (i >= s->half) continue;
        ng_reference_rotate(s->layer, s->kernel->out, &s->kernel->contract.cast, ng_get_value(&s->in, row, j), ng_get_value(&s->in, row, j + s->half),
                            ng_get_value(&s->tables[0], at, i), ng_get_value(&s->tables[1], at, i), v);
        put(s, row, j, &v[0]);
        put(s, row, j + s->half, &v[1]);
    }
    for (int64_t j = 2 * s->n; j < 3 * s->n; j++) {
        const ng_layer_value v = {ng_get_value(&s->in, row, j), 0, 0, ng_get_code(&s->in, row, j)};
        put(s, row, j, &v);
    }
}

/* ---- add, transpose -----------------------------------------------------------------------------------------------*/
static ng_status prepare_add(subject *s, ng_error *error) {
    ng_status status = make(s, 0, s->kernel->in, s->m, s->n, &s->in, error);
    if (!status) status = make(s, SECOND_STREAM, s->kernel->in, s->m, s->n, &s->second, error);
    if (!status) status = ng_session_input(&s->session, NG_IN, &s->in, error);
    if (!status) status = ng_session_input(&s->session, NG_IN_2, &s->second, error);
    return status ? status : want(s, NG_OUT, s->kernel->out, s->m, s->n, true, error);
}

static void add_row(subject *s, int64_t row) {
    for (int64_t j = 0; j < s->n; j++) {
        const ng_layer_value v = ng_reference_add(s->layer, s->kernel->out, &s->kernel->contract.cast, ng_get_value(&s->in, row, j),
                                                  ng_get_value(&s->second, row, j));
        put(s, row, j, &v);
    }
}

static ng_status prepare_transpose(subject *s, ng_error *error) {
    ng_status status = make(s, 0, s->kernel->in, s->m, s->n, &s->in, error);
    if (!status) status = ng_session_input(&s->session, NG_IN, &s->in, error);
    return status ? status : want(s, NG_OUT_T, s->kernel->out, s->n, s->m, false, error);
}

static void transpose_row(subject *s, int64_t row) {
    for (int64_t j = 0; j < s->n; j++)
        ng_set_code(&s->want, j, row, ng_get_code(&s->in, row, j));
}

/* ---- embedding ----------------------------------------------------------------------------------------------------*/
static ng_status prepare_embedding(subject *s, ng_error *error) {
    ng_status status = s->k > 0 && s->k <= INT32_MAX ? make_tokens(s, error) : ng_fail(error, NG_BAD_ARGUMENT, "%s: no vocabulary", s->one->id);
    if (!status) status = make(s, 0, s->kernel->in, s->k, s->n, &s->in, error);
    if (!status) status = ng_session_input(&s->session, NG_TOKENS, &s->tokens, error);
    if (!status) status = ng_session_input(&s->session, NG_PARAMETER, &s->in, error);
    return status ? status : want(s, NG_OUT, s->kernel->out, s->m, s->n, false, error);
}

static void embedding_row(subject *s, int64_t row) {
    for (int64_t j = 0; j < s->n; j++)
        ng_set_code(&s->want, row, j, ng_get_code(&s->in, token_of(s, row), j));
}

static ng_status prepare_embedding_backward(subject *s, ng_error *error) {
    ng_status status = s->k > 0 && s->k <= INT32_MAX ? make_tokens(s, error) : ng_fail(error, NG_BAD_ARGUMENT, "%s: no vocabulary", s->one->id);
    if (!status) status = make(s, 0, s->kernel->in, s->m, s->n, &s->in, error);
    if (!status) status = make(s, SECOND_STREAM, s->kernel->out, s->k, s->n, &s->second, error);
    if (!status) status = ng_session_input(&s->session, NG_TOKENS, &s->tokens, error);
    if (!status) status = ng_session_input(&s->session, NG_GRADIENT, &s->in, error);
    if (!status) status = want(s, NG_OUT, s->kernel->out, s->k, s->n, true, error);
    s->session.initial[NG_OUT] = &s->second;
    return status;
}

/* One row of the vocabulary; terms of a column in the order of the tokens. */
static void embedding_gradient_row(subject *s, int64_t row) {
    double *terms = malloc(sizeof *terms * (size_t)s->m);
    int64_t *rows = malloc(sizeof *rows * (size_t)s->m), count = 0;
    for (int64_t i = 0; i < s->m && rows; i++)
        if (token_of(s, i) == row) rows[count++] = i;
    for (int64_t j = 0; j < s->n; j++) {
        ng_layer_value v = {NAN, 0, 0, 0}; /* no memory: what no kernel gives */
        for (int64_t i = 0; i < count && terms; i++)
            terms[i] = ng_get_value(&s->in, rows[i], j);
        if (terms && count) v = ng_reference_chain(s->layer, &s->kernel->contract.cast, ng_get_value(&s->second, row, j), terms, count);
        else if (terms && rows) v = (ng_layer_value){ng_get_value(&s->second, row, j), 0, 0, ng_get_code(&s->second, row, j)}; /* untouched */
        put(s, row, j, &v);
    }
    free(rows);
    free(terms);
}

/* ---- the driver ---------------------------------------------------------------------------------------------------*/
static const struct {
    ng_status (*prepare)(subject *s, ng_error *error);
    void (*row)(subject *s, int64_t row);
    ng_role out;
    bool vocabulary; /* rows are the vocabulary's, not the tokens' */
    const char *model;
} operations[NG_OPS] = {
    [NG_OP_ROPE] = {prepare_rope, rope_row, NG_OUT, false, "three roundings"},
    [NG_OP_ADD] = {prepare_add, add_row, NG_OUT, false, "one rounding"},
    [NG_OP_TRANSPOSE] = {prepare_transpose, transpose_row, NG_OUT_T, false, NULL},
    [NG_OP_EMBEDDING_FORWARD] = {prepare_embedding, embedding_row, NG_OUT, false, NULL},
    [NG_OP_EMBEDDING_BACKWARD] = {prepare_embedding_backward, embedding_gradient_row, NG_OUT, true, "chain over ascending tokens"},
};

static ng_status compare(subject *s, ng_result *result, ng_error *error) {
    const ng_role role = operations[s->kernel->op].out;
    const ng_tensor *out = &s->session.first[role];
    const int64_t rows = operations[s->kernel->op].vocabulary ? s->k : s->m;
    ng_power power;
    ng_tallies_begin(&s->tallies);
#pragma omp parallel for num_threads(s->judge->threads) schedule(dynamic)
    for (int64_t row = 0; row < rows; row++)
        operations[s->kernel->op].row(s, row);
    ng_status status;
    if (s->truth.high) {
        status = ng_tallies_add(s->judge, s->one, &s->tallies, role, out, &s->kernel->contract.cast, &s->truth, 0);
        s->tallies.by_tier[NG_TIER_SPLIT] += out->rows * out->columns;
        ng_compare_prediction(s->judge, role, out, &s->want, result);
        snprintf(result->prediction.model, sizeof result->prediction.model, "%s", operations[s->kernel->op].model);
    } else status = ng_tallies_add_codes(s->judge, &s->tallies, role, out, &s->want);
    if (status) return ng_fail(error, status, "no memory for error figures");
    ng_tallies_publish(&s->tallies, result, &power);
    ng_accuse_powerless(result, &result->error, &power);
    return NG_OK;
}

ng_status ng_judge_layer(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    subject s = {.judge = judge, .one = one, .kernel = one->kernel, .layer = &one->kernel->contract.layer, .m = one->problem.m, .n = one->problem.n,
                 .k = one->problem.k};
    bool launched = false;
    ng_status status = NG_OK;
    if (!ng_session_begin(&s.session, judge, one->kernel, &one->problem, result)) goto done;
    status = operations[one->kernel->op].prepare(&s, error);
    if (!status) status = ng_session_run(&s.session, one->repeats, false, result, &launched, error);
    if (status || !launched) goto done;
    const double start = ng_now_s();
    status = compare(&s, result, error);
    if (status) goto done;
    status = ng_session_conclude(&s.session, one, start, 0, result, error);
done:
    ng_session_end(&s.session);
    ng_tensor *const owned[] = {&s.in, &s.second, &s.tables[0], &s.tables[1], &s.tokens, &s.want};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        ng_tensor_free(owned[i]);
    ng_values_free(&s.truth);
    return status;
}
