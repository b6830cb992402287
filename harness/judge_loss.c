/* Softmax cross-entropy: losses, statistics and gradients, every element against the exact result and its bound. The statistics
 * that a backward kernel is given are the reference's, rounded once. */
#include "harness/judge_internal.h"
#include "reference/activation.h"
#include "reference/round.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20 };
static const ng_cast nearest = {.rounding = NG_RN_EVEN, .nan = NG_NAN_CANONICAL};

typedef struct subject {
    ng_judge *judge;
    const ng_case *one;
    const ng_kernel *kernel;
    bool backward;
    int64_t rows, columns, step;
    const ng_tensor *x;
    ng_tensor labels, max, sum, gradient; /* [R][1] */
    ng_session session;
    ng_values loss, maxima, sums; /* [R] */
    ng_values elements;           /* of a piece, backward */
    ng_tallies tallies;
} subject;

static int32_t label_of(const subject *s, int64_t row) { return ((const int32_t *)s->labels.data)[row]; }

/* One label in eleven is ignored; the first and the last class occur. */
static void choose_labels(subject *s) {
    for (int64_t i = 0; i < s->rows; i++) {
        const uint32_t word = ng_word(s->one->data.seed, (uint64_t)i);
        int32_t label = (int32_t)(word % (uint64_t)s->columns);
        if (i % 11 == 5) label = -1;
        if (i % 11 == 6) label = (int32_t)s->columns - 1;
        if (i % 11 == 7) label = 0;
        ((int32_t *)s->labels.data)[i] = label;
        ((float *)s->gradient.data)[i] = (float)(1 + word % 7) * 0x1p-6f * (i % 5 ? 1 : -1.1f);
    }
}

static void set(ng_values *v, int64_t at, double high, double low, double bound) {
    v->high[at] = high;
    v->low[at] = low;
    v->bound[at] = bound;
}

static double computed(const subject *s, ng_role role, int64_t i, int64_t j) { return ng_get_value(&s->session.first[role], i, j); }

static void forward_row(subject *s, int64_t i, const double *x, int64_t by_tier[NG_TIERS]) {
    double low[2] = {0, 0};
    ng_loss_result r = ng_reference_loss(x, s->columns, label_of(s, i));
    bool fast = true;
    if (s->session.first[NG_OUT].data) { /* launched */
        fast = ng_running_settles(NG_FP32, &nearest, computed(s, NG_OUT, i, 0), r.loss.c, r.loss.e, r.loss.r) &&
               ng_running_settles(NG_FP32, &nearest, computed(s, NG_ROW_SUM, i, 0), r.sum.c, r.sum.e, r.sum.r);
        if (!fast) r = ng_reference_loss_mpfr(x, s->columns, label_of(s, i), low);
        by_tier[fast ? NG_TIER_CERTIFIED : NG_TIER_MPFR] += 3;
    }
    set(&s->maxima, i, r.max, 0, 0);
    set(&s->sums, i, r.sum.c, low[0], fmax(r.sum.e - r.sum.r, 0));
    set(&s->loss, i, r.loss.c, low[1], fmax(r.loss.e - r.loss.r, 0));
}

static void backward_row(subject *s, int64_t row0, int64_t i, const double *x, int64_t by_tier[NG_TIERS]) {
    const int64_t row = row0 + i;
    const int32_t label = label_of(s, row);
    const double max = ng_get_value(&s->max, row, 0), sum = ng_get_value(&s->sum, row, 0), d = ng_get_value(&s->gradient, row, 0);
    for (int64_t j = 0; j < s->columns; j++) {
        double low = 0;
        ng_running y = label < 0 ? ng_run_exact(0) : ng_reference_loss_gradient(x[j], max, sum, j == label, d);
        const bool fast = ng_running_settles(s->kernel->out, &s->kernel->contract.cast, computed(s, NG_OUT, row, j), y.c, y.e, y.r);
        if (!fast && label >= 0) {
            y.c = ng_reference_loss_gradient_mpfr(x[j], max, sum, j == label, d, &low);
            y.r = 0;
        }
        by_tier[fast ? NG_TIER_CERTIFIED : NG_TIER_MPFR]++;
        set(&s->elements, i * s->columns + j, y.c, low, fmax(y.e - y.r, 0));
    }
}

static ng_status for_rows(subject *s, int64_t row0, int64_t rows, bool backward, ng_error *error) {
    ng_status status = NG_OK;
#pragma omp parallel for num_threads(s->judge->threads) schedule(dynamic)
    for (int64_t i = 0; i < rows; i++) {
        int64_t by_tier[NG_TIERS] = {0};
        double *x = malloc(sizeof *x * (size_t)s->columns);
        if (!x) {
#pragma omp atomic write
            status = NG_NO_MEMORY;
            continue;
        }
        ng_decode_row(s->x, row0 + i, 0, s->columns, x);
        if (backward) backward_row(s, row0, i, x, by_tier);
        else forward_row(s, row0 + i, x, by_tier);
        free(x);
        for (int t = 0; t < NG_TIERS; t++)
            if (by_tier[t]) {
#pragma omp atomic
                s->tallies.by_tier[t] += by_tier[t];
            }
    }
    return status ? ng_fail(error, status, "no memory for a row of %lld", (long long)s->columns) : NG_OK;
}

static ng_status prepare(subject *s, ng_error *error) {
    ng_key key;
    ng_tensor *const columns[] = {&s->labels, &s->max, &s->sum, &s->gradient};
    ng_values *const values[] = {&s->loss, &s->maxima, &s->sums};
    ng_status status = ng_source(s->judge, &s->one->data, s->kernel->in, 0, 0, s->rows, s->columns, &s->x, &key, error);
    for (int i = 0; i < 4 && !status; i++)
        status = ng_tensor_create(NG_FP32, s->rows, 1, columns[i], error);
    for (int i = 0; i < 3 && !status; i++)
        status = ng_values_create(s->rows, values[i], error);
    if (status) return status;
    choose_labels(s);
    if (!s->backward) return NG_OK;
    status = ng_values_create((s->step < s->rows ? s->step : s->rows) * s->columns, &s->elements, error);
    if (!status) status = for_rows(s, 0, s->rows, false, error);
    for (int64_t i = 0; i < s->rows && !status; i++) {
        ng_set_code(&s->max, i, 0, ng_round(NG_FP32, s->maxima.high[i], &nearest, 0));
        ng_set_code(&s->sum, i, 0, ng_round(NG_FP32, s->sums.high[i], &nearest, 0));
    }
    return status;
}

static ng_status launch(subject *s, ng_result *result, bool *launched, ng_error *error) {
    ng_session *to = &s->session;
    *launched = false;
    if (!ng_session_begin(to, s->judge, s->kernel, &s->one->problem, result)) return NG_OK;
    ng_status status = ng_session_input(to, NG_IN, s->x, error);
    if (!status) status = ng_session_input(to, NG_LABELS, &s->labels, error);
    if (!status) status = ng_session_output(to, NG_OUT, s->kernel->out, s->rows, s->backward ? s->columns : 1, error);
    if (s->backward) {
        if (!status) status = ng_session_input(to, NG_ROW_MAX, &s->max, error);
        if (!status) status = ng_session_input(to, NG_ROW_SUM, &s->sum, error);
        if (!status) status = ng_session_input(to, NG_GRADIENT, &s->gradient, error);
    } else {
        if (!status) status = ng_session_output(to, NG_ROW_MAX, NG_FP32, s->rows, 1, error);
        if (!status) status = ng_session_output(to, NG_ROW_SUM, NG_FP32, s->rows, 1, error);
    }
    return status ? status : ng_session_run(to, s->one->repeats, false, result, launched, error);
}

static ng_status compare(subject *s, ng_error *error) {
    ng_status status = NG_OK;
    if (!s->backward) {
        status = for_rows(s, 0, s->rows, false, error);
        if (!status) status = ng_tallies_add(s->judge, s->one, &s->tallies, NG_OUT, &s->session.first[NG_OUT], &nearest, &s->loss, 0);
        if (!status) status = ng_tallies_add(s->judge, s->one, &s->tallies, NG_ROW_MAX, &s->session.first[NG_ROW_MAX], &nearest, &s->maxima, 0);
        return status ? status : ng_tallies_add(s->judge, s->one, &s->tallies, NG_ROW_SUM, &s->session.first[NG_ROW_SUM], &nearest, &s->sums, 0);
    }
    for (int64_t row0 = 0; row0 < s->rows && !status; row0 += s->step) {
        const int64_t rows = s->step < s->rows - row0 ? s->step : s->rows - row0;
        const ng_tensor out = ng_rows_of(&s->session.first[NG_OUT], row0, rows);
        status = for_rows(s, row0, rows, true, error);
        if (!status) status = ng_tallies_add(s->judge, s->one, &s->tallies, NG_OUT, &out, &s->kernel->contract.cast, &s->elements, row0);
    }
    return status;
}

ng_status ng_judge_loss(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    subject s = {.judge = judge, .one = one, .kernel = one->kernel, .backward = one->kernel->op == NG_OP_LOSS_BACKWARD,
                 .rows = one->problem.m, .columns = one->problem.n, .step = PIECE / one->problem.n};
    ng_power power;
    bool launched = false;
    const double start = ng_now_s();
    if (s.step < 1) s.step = 1;
    ng_tallies_begin(&s.tallies);
    ng_status status = prepare(&s, error);
    if (!status) status = launch(&s, result, &launched, error);
    if (!status && launched) status = compare(&s, error);
    if (status || !launched) goto done;
    ng_tallies_publish(&s.tallies, result, &power);
    ng_accuse_powerless(result, &result->error, &power);
    status = ng_session_conclude(&s.session, one, start, 0, result, error);
done:
    ng_session_end(&s.session);
    ng_values *const values[] = {&s.loss, &s.maxima, &s.sums, &s.elements};
    ng_tensor *const tensors[] = {&s.labels, &s.max, &s.sum, &s.gradient};
    for (int i = 0; i < 4; i++) {
        ng_values_free(values[i]);
        ng_tensor_free(tensors[i]);
    }
    return status;
}
