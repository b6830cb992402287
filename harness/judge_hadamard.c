/* The random Hadamard transform alone: within its bound of the exact value, and bit for bit what the contract's order gives. */
#include "harness/judge_internal.h"
#include "reference/hadamard.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct truths {
    double *high, *low, *bound;
    ng_tensor predicted;
} truths;

static void free_truths(truths *t) {
    free(t->high);
    free(t->low);
    free(t->bound);
    ng_tensor_free(&t->predicted);
}

static ng_status make_truths(ng_judge *judge, const ng_kernel *kernel, const ng_tensor *source, truths *t, ng_error *error) {
    const ng_contract *c = &kernel->contract;
    size_t count = (size_t)(source->rows * source->columns) + 1;
    t->high = malloc(count * sizeof *t->high);
    t->low = malloc(count * sizeof *t->low);
    t->bound = malloc(count * sizeof *t->bound);
    if (!t->high || !t->low || !t->bound) return ng_fail(error, NG_NO_MEMORY, "no memory for an exact transform");
    ng_status status = ng_tensor_create(kernel->out, source->rows, source->columns, &t->predicted, error);
    if (status) return status;
    status = ng_hadamard_exact(&c->hadamard, source, judge->threads, t->high, t->low, t->bound);
    if (!status) status = ng_reference_hadamard(&c->hadamard, &c->cast, source, judge->threads, &t->predicted);
    return status ? ng_fail(error, status, "the reference could not transform a %lld x %lld tensor", (long long)source->rows, (long long)source->columns) : NG_OK;
}

static ng_status compare(ng_judge *judge, const ng_case *one, const ng_session *session, const truths *t, ng_result *result, ng_error *error) {
    const ng_tensor *out = &session->first[NG_OUT];
    const ng_truth truth = {t->high, t->low, t->bound, NULL};
    ng_error_figures figures;
    ng_power power, bits_power;
    ng_prediction *p = &result->prediction;
    ng_observe(judge, one, NG_OUT, out, &t->predicted, t->high);
    ng_status status = ng_measure(out, &one->kernel->contract.cast, &truth, judge->threads, &result->error, &power);
    if (!status) status = ng_measure_codes(out, &t->predicted, false, judge->threads, &figures, &bits_power);
    if (status) return ng_fail(error, status, "no memory for error figures");
    result->error.by_tier[NG_TIER_SPLIT] = result->error.checked;
    ng_accuse_figures(result, "OUT", &result->error);
    p->present = true;
    p->elements = figures.checked;
    p->differ = figures.beyond_bound + figures.nonfinite_mismatch;
    p->first[0] = figures.worst[0];
    p->first[1] = figures.worst[1];
    snprintf(p->model, sizeof p->model, "butterflies of %d, over %d", one->kernel->contract.hadamard.size, 1 << one->kernel->contract.hadamard.shift);
    if (p->differ)
        ng_accuse(result, NG_MOVED, "%lld of %lld elements differ from the bits that the contract fixes (%s), first or worst OUT[%lld][%lld]: %.9g, predicted %.9g",
                  (long long)p->differ, (long long)p->elements, p->model, (long long)p->first[0], (long long)p->first[1],
                  figures.worst_computed, figures.worst_exact);
    if (!bits_power.zero_rejected) ng_accuse_powerless(result, &result->error, &power);
    return NG_OK;
}

ng_status ng_judge_hadamard(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    const ng_kernel *kernel = one->kernel;
    const ng_tensor *source;
    ng_session session = {0};
    truths t = {0};
    ng_key key;
    bool launched;
    ng_status status = ng_source(judge, &one->data, kernel->in, 0, 0, one->problem.m, one->problem.n, &source, &key, error);
    if (status) return status;
    if (!ng_session_begin(&session, judge, kernel, &one->problem, result)) goto done;
    status = ng_session_input(&session, NG_IN, source, error);
    if (!status) status = ng_session_output(&session, NG_OUT, kernel->out, source->rows, source->columns, error);
    if (!status) status = ng_session_run(&session, one->repeats, false, result, &launched, error);
    if (status || !launched) goto done;
    double start = ng_now_s();
    status = make_truths(judge, kernel, source, &t, error);
    if (!status) status = compare(judge, one, &session, &t, result, error);
    if (status) goto done;
    status = ng_session_conclude(&session, one, start, 0, result, error);
done:
    ng_session_end(&session);
    free_truths(&t);
    return status;
}
