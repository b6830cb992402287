/* Attention, forward and backward: every element of the sequences that are looked at against its exact value and bound. One head of one sequence is a
 * task; its binary64 values settle nearly all, MPFR the rest. */
#include "harness/judge_internal.h"
#include "reference/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GRADIENT_STREAM = 2 };

typedef struct subject {
    ng_judge *judge;
    const ng_case *one;
    const ng_kernel *kernel;
    bool backward;
    int64_t sequence, sequences, heads, d, width, columns; /* width: heads * d; columns: of OUT */
    const ng_tensor *in, *gradient;
    ng_session session;
    ng_values truth; /* of one sequence */
    ng_tallies tallies;
} subject;

/* ---- one head -----------------------------------------------------------------------------------------------------*/
static void gather(const ng_tensor *t, int64_t row0, int64_t rows, int64_t column, int64_t d, double *values) {
    for (int64_t i = 0; i < rows; i++)
        ng_decode_row(t, row0 + i, column, d, values + i * d);
}

/* What the kernel wrote for the element `at` of [parts][s][d] of a head. */
static double computed(const subject *s, int64_t row0, int64_t column, int64_t at) {
    const int64_t part = s->sequence * s->d;
    return ng_get_value(&s->session.first[NG_OUT], row0 + at % part / s->d, at / part * s->width + column + at % s->d);
}

typedef enum verdict { WITHIN, BEYOND, OPEN } verdict;

/* What the fast tier can say of y: certainly within the bound, certainly beyond it, or neither. */
static verdict fast_verdict(const subject *s, double y, double c, double e) {
    const double r = e * NG_ATTENTION_REMAINDER;
    const ng_cast *cast = &s->kernel->contract.cast;
    double lowest, highest;
    if (ng_running_settles(s->kernel->out, cast, y, c, e, r)) return WITHIN;
    if (ng_accepted_interval(s->kernel->out, cast, c, 0, e + r, &lowest, &highest)) return OPEN;
    return lowest <= y && y <= highest ? OPEN : BEYOND;
}

/* high, low, bound: [parts][s][d] of the head whose results begin in that row and column. The fast tier's remainder is taken off the bound where that
 * still holds the result, and added where even then it does not. */
static ng_status head_truth(const subject *s, const ng_attention_head *head, int64_t row0, int64_t column, double *high, double *low,
                            double *bound, ng_tier *tier) {
    const int64_t count = (s->backward ? 3 : 1) * head->s * head->d;
    *tier = NG_TIER_MPFR;
    if (head->layer->compute == NG_FP64) return ng_attention_mpfr(head, s->backward, high, low, bound);
    ng_status status = ng_attention_fast(head, s->backward, high, bound);
    bool open = false;
    for (int64_t at = 0; at < count && !status && !open; at++)
        open = fast_verdict(s, computed(s, row0, column, at), high[at], bound[at]) == OPEN;
    if (status || open) return status ? status : ng_attention_mpfr(head, s->backward, high, low, NULL);
    *tier = NG_TIER_CERTIFIED;
    for (int64_t at = 0; at < count; at++) {
        const bool within = fast_verdict(s, computed(s, row0, column, at), high[at], bound[at]) == WITHIN;
        low[at] = 0;
        bound[at] *= within ? 1 - NG_ATTENTION_REMAINDER : 1 + NG_ATTENTION_REMAINDER;
    }
    return NG_OK;
}

static ng_status one_head(subject *s, int64_t row0, int64_t number, int64_t by_tier[NG_TIERS]) {
    const int64_t part = s->sequence * s->d, parts = s->backward ? 3 : 1, column = number * s->d;
    double *memory = malloc(sizeof *memory * (size_t)(part * (4 + 3 * parts)));
    if (!memory) return NG_NO_MEMORY;
    double *high = memory + 4 * part, *low = high + parts * part, *bound = low + parts * part;
    const ng_attention_head head = {
        &s->kernel->contract.layer, s->sequence, s->d, memory, memory + part, memory + 2 * part, s->backward ? memory + 3 * part : NULL};
    ng_tier tier;
    for (int64_t p = 0; p < 3; p++)
        gather(s->in, row0, s->sequence, p * s->width + column, s->d, memory + p * part);
    if (s->backward) gather(s->gradient, row0, s->sequence, column, s->d, memory + 3 * part);
    ng_status status = head_truth(s, &head, row0, column, high, low, bound, &tier);
    for (int64_t at = 0; at < parts * part && !status; at++) {
        const int64_t to = at % part / s->d * s->columns + at / part * s->width + column + at % s->d;
        s->truth.high[to] = high[at];
        s->truth.low[to] = low[at];
        s->truth.bound[to] = bound[at];
    }
    by_tier[tier] += parts * part;
    free(memory);
    return status;
}

/* ---- the case -----------------------------------------------------------------------------------------------------*/
static ng_status prepare(subject *s, ng_error *error) {
    ng_key key;
    ng_data_spec spec = s->one->data;
    if (spec.target == NG_FP64) spec.target = NG_FP32;
    spec.whole_columns = 3 * s->width;
    ng_status status = ng_source(s->judge, &spec, s->kernel->in, 0, 0, s->one->problem.m, 3 * s->width, &s->in, &key, error);
    spec.stream = GRADIENT_STREAM;
    spec.distribution = NG_NORMAL;
    spec.whole_columns = s->width;
    if (!status && s->backward) status = ng_source(s->judge, &spec, s->kernel->in, 0, 0, s->one->problem.m, s->width, &s->gradient, &key, error);
    return status ? status : ng_values_create(s->sequence * s->columns, &s->truth, error);
}

static ng_status launch(subject *s, ng_result *result, bool *launched, ng_error *error) {
    *launched = false;
    ng_status status = ng_session_input(&s->session, NG_IN, s->in, error);
    if (!status && s->backward) status = ng_session_input(&s->session, NG_GRADIENT, s->gradient, error);
    if (!status) status = ng_session_output(&s->session, NG_OUT, s->kernel->out, s->one->problem.m, s->columns, error);
    return status ? status : ng_session_run(&s->session, s->one->repeats, false, result, launched, error);
}

static double multiply_adds(const subject *s, double products) {
    const double pairs = (double)s->sequence * (double)(s->kernel->contract.layer.causal ? s->sequence + 1 : 2 * s->sequence) / 2;
    return products * pairs * (double)s->d * (double)s->heads;
}

/* Every how many sequences one is looked at: all, unless that takes minutes. */
static int64_t stride(const subject *s) {
    const bool wide = s->kernel->contract.layer.compute == NG_FP64;
    const double each = multiply_adds(s, s->backward ? 12 : 5) * (wide ? 256 : 1), most = 0x1p34;
    return each * (double)s->sequences <= most ? 1 : (int64_t)ceil(each * (double)s->sequences / most);
}

static ng_status compare(subject *s, ng_result *result, ng_error *error) {
    const int64_t step = stride(s), first = (int64_t)(s->one->data.seed % (uint64_t)(step < s->sequences ? step : s->sequences));
    const int64_t elements = s->one->problem.m * s->columns;
    ng_power power;
    ng_status status = NG_OK;
    ng_tallies_begin(&s->tallies);
    for (int64_t b = first; b < s->sequences && !status; b += step) {
        const int64_t row0 = b * s->sequence;
        const ng_tensor out = ng_rows_of(&s->session.first[NG_OUT], row0, s->sequence);
#pragma omp parallel for num_threads(s->judge->threads) schedule(dynamic)
        for (int64_t number = 0; number < s->heads; number++) {
            int64_t by_tier[NG_TIERS] = {0};
            const ng_status mine = one_head(s, row0, number, by_tier);
#pragma omp critical
            {
                if (mine) status = mine;
                for (int t = 0; t < NG_TIERS; t++)
                    s->tallies.by_tier[t] += by_tier[t];
            }
        }
        if (!status) status = ng_tallies_add(s->judge, s->one, &s->tallies, NG_OUT, &out, &s->kernel->contract.cast, &s->truth, row0);
    }
    if (status) return ng_fail(error, status, "no memory for the exact results of a head");
    s->tallies.elements[NG_OUT] = elements;
    ng_tallies_publish(&s->tallies, result, &power);
    ng_accuse_powerless(result, &result->error, &power);
    return NG_OK;
}

ng_status ng_judge_attention(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    const ng_problem *p = &one->problem;
    subject s = {.judge = judge, .one = one, .kernel = one->kernel, .backward = one->kernel->op == NG_OP_ATTENTION_BACKWARD, .width = p->n};
    bool launched = false;
    if (!(p->scalars[NG_HEADS] >= 1) || !(p->scalars[NG_SEQUENCE] >= 1))
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: heads and sequence are not stated", one->id);
    s.heads = (int64_t)p->scalars[NG_HEADS];
    s.sequence = (int64_t)p->scalars[NG_SEQUENCE];
    s.d = p->n / s.heads;
    s.sequences = p->m / s.sequence;
    s.columns = (s.backward ? 3 : 1) * s.width;
    ng_status status = NG_OK;
    if (!ng_session_begin(&s.session, judge, one->kernel, p, result)) goto done;
    status = prepare(&s, error);
    if (!status) status = launch(&s, result, &launched, error);
    if (status || !launched) goto done;
    const double start = ng_now_s();
    status = compare(&s, result, error);
    if (status) goto done;
    /* two products forward; five backward, one of them a forward one again */
    status = ng_session_conclude(&s.session, one, start, 2 * multiply_adds(&s, s.backward ? 5 : 2) * (double)s.sequences, result, error);
done:
    ng_session_end(&s.session);
    ng_values_free(&s.truth);
    return status;
}
