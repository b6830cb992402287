#include "harness/compare.h"

#include <cJSON.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const ng_change_word ng_change_words[NG_CHANGES] = {
    [NG_CHANGE_BOUND] = {"bound", "Bounds broken", true},
    [NG_CHANGE_CRASH] = {"crash", "Crashed or timed out", true},
    [NG_CHANGE_CONVERGENCE] = {"convergence", "Training that no longer converges as well", true},
    [NG_CHANGE_DETERMINISM] = {"determinism", "Not the same bits from run to run", true},
    [NG_CHANGE_LOST] = {"lost", "Cases lost", true},
    [NG_CHANGE_SLOWER] = {"slower", "Slower, confirmed", true},
    [NG_CHANGE_MOVED] = {"moved", "Bits moved inside their bounds", true},
    [NG_CHANGE_VACUOUS] = {"vacuous", "Checks that can no longer fail", true},
    [NG_CHANGE_XPASS] = {"xpass", "Expected failures that pass: remove the expectation", true},
    [NG_CHANGE_FLAKE] = {"flake", "Failed once, passed when run again", false},
    [NG_CHANGE_STILL] = {"still", "Fail on both sides", false},
    [NG_CHANGE_FIXED] = {"fixed", "Fixed", false},
    [NG_CHANGE_GREW] = {"grew", "Error grown inside its bound", false},
    [NG_CHANGE_SHRANK] = {"shrank", "Error shrunk", false},
    [NG_CHANGE_FASTER] = {"faster", "Faster, confirmed", false},
    [NG_CHANGE_AMBIGUOUS] = {"ambiguous", "Speed ambiguous", false},
    [NG_CHANGE_APPEARED] = {"appeared", "New cases", false},
};

const char *const ng_pace_names[NG_PACES] = {"same", "faster", "slower", "ambiguous"};

/* ---- sides --------------------------------------------------------------------------------------------------------*/
ng_status ng_side_read(const char *const *paths, size_t count, ng_side *side, ng_error *error) {
    ng_record_file *records = calloc(count + 1, sizeof *records);
    *side = (ng_side){records, 0};
    if (!records) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    ng_status status = NG_OK;
    for (size_t i = 0; i < count && !status; i++) {
        status = ng_record_read(paths[i], &records[i], error);
        if (!status) side->count++;
    }
    if (status) ng_side_free(side);
    return status;
}

void ng_side_free(ng_side *side) {
    for (size_t i = 0; i < side->count; i++)
        ng_record_free((ng_record_file *)&side->records[i]);
    free((ng_record_file *)side->records);
    *side = (ng_side){0};
}

/* ---- what cannot be compared --------------------------------------------------------------------------------------*/
static ng_status check_text(const ng_record_file *a, const ng_record_file *b, const char *what, const char *x, const char *y,
                            const char *advice, ng_error *error) {
    if (!strcmp(x, y)) return NG_OK;
    return ng_fail(error, NG_BAD_ARGUMENT, "%s and %s cannot be compared: %s %.60s and %.60s%s", a->path, b->path, what, *x ? x : "(unknown)",
                   *y ? y : "(unknown)", advice);
}

static bool used_gpu(const ng_record_file *record) {
    for (size_t i = 0; i < record->count; i++)
        if (strcmp(record->cases[i].backend, ng_backend_names[NG_BACKEND_CPU]) && record->cases[i].result.verdict != NG_SKIP) return true;
    return false;
}

static ng_status check_pair(const ng_record_file *a, const ng_record_file *b, const ng_compare_options *o, ng_error *error) {
    static const char *const across = "; --across-builds compares them all the same";
    char x[32], y[32];
    snprintf(x, sizeof x, a->sm ? "sm%d" : "none", a->sm);
    snprintf(y, sizeof y, b->sm ? "sm%d" : "none", b->sm);
    ng_status status = check_text(a, b, "levels", ng_level_names[a->level], ng_level_names[b->level], "", error);
    if (!status && (used_gpu(a) || used_gpu(b))) status = check_text(a, b, "GPU architectures", x, y, "", error);
    snprintf(x, sizeof x, "%llu", (unsigned long long)a->seed);
    snprintf(y, sizeof y, "%llu", (unsigned long long)b->seed);
    if (!status) status = check_text(a, b, "seeds", x, y, ": other data", error);
    if (status || o->across_builds) return status;
    status = check_text(a, b, "machines", a->machine, b->machine, across, error);
    if (!status)
        status = check_text(a, b, "other builds of the kernels,", ng_record_fact(a, "digests.kernels"), ng_record_fact(b, "digests.kernels"), across, error);
    if (!status)
        status = check_text(a, b, "other plug-ins,", ng_record_fact(a, "digests.plugins"), ng_record_fact(b, "digests.plugins"), across, error);
    return status;
}

/* Records of one side are repeats of one another. */
static ng_status check_repeat(const ng_record_file *a, const ng_record_file *b, const ng_compare_options *o, ng_error *error) {
    static const char *const facts[] = {"driver", "cuda_runtime", "cublaslt", "cpu.model", "gpu.name"};
    ng_status status = check_pair(a, b, o, error);
    for (size_t i = 0; i < sizeof facts / sizeof *facts && !status; i++)
        status = check_text(a, b, facts[i], ng_record_fact(a, facts[i]), ng_record_fact(b, facts[i]), ": no repeats of one side", error);
    return status;
}

static ng_status check_sides(const ng_side *a, const ng_side *b, const ng_compare_options *o, ng_error *error) {
    ng_status status = NG_OK;
    if (!a->count || !b->count) return ng_fail(error, NG_BAD_ARGUMENT, "a side has no records");
    for (size_t i = 1; i < a->count && !status; i++)
        status = check_repeat(&a->records[0], &a->records[i], o, error);
    for (size_t i = 0; i < b->count && !status; i++)
        status = i ? check_repeat(&b->records[0], &b->records[i], o, error) : check_pair(&a->records[0], &b->records[i], o, error);
    for (size_t i = 0; i < a->count && !status; i++)
        for (size_t j = 0; j < a->count + b->count && !status; j++) {
            const ng_record_file *other = j < a->count ? &a->records[j] : &b->records[j - a->count];
            if (other != &a->records[i] && *other->run && !strcmp(other->run, a->records[i].run))
                status = ng_fail(error, NG_BAD_ARGUMENT, "%s and %s are the same run: nothing to compare", a->records[i].path, other->path);
        }
    return status;
}

/* ---- the fingerprint ----------------------------------------------------------------------------------------------*/
static void print_value(const cJSON *value, char *text, size_t capacity) {
    if (cJSON_IsString(value)) snprintf(text, capacity, "%s", value->valuestring);
    else if (cJSON_IsNumber(value)) snprintf(text, capacity, "%.12g", value->valuedouble);
    else if (cJSON_IsBool(value)) snprintf(text, capacity, "%s", cJSON_IsTrue(value) ? "yes" : "no");
    else snprintf(text, capacity, "unknown");
}

static ng_status add_fact(ng_comparison *c, const char *name, const cJSON *a, const cJSON *b, ng_error *error) {
    ng_fact_change *facts = realloc(c->facts, (c->fact_count + 1) * sizeof *facts), *fact;
    if (!facts) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    c->facts = facts;
    fact = &facts[c->fact_count];
    snprintf(fact->name, sizeof fact->name, "%s", name);
    print_value(a, fact->a, sizeof fact->a);
    print_value(b, fact->b, sizeof fact->b);
    if (strcmp(fact->a, fact->b)) c->fact_count++;
    return NG_OK;
}

/* Leaves that differ, in A's order; what only B has comes with its own. */
static ng_status compare_facts(ng_comparison *c, const char *prefix, const cJSON *a, const cJSON *b, ng_error *error) {
    ng_status status = NG_OK;
    const cJSON *item, *either = cJSON_IsObject(a) ? a : b;
    char name[96];
    cJSON_ArrayForEach(item, either) {
        const cJSON *other = cJSON_IsObject(a) ? cJSON_GetObjectItemCaseSensitive(b, item->string) : NULL;
        const cJSON *x = cJSON_IsObject(a) ? item : NULL, *y = cJSON_IsObject(a) ? other : item;
        snprintf(name, sizeof name, "%.40s%s%.50s", prefix, *prefix ? " " : "", item->string);
        status = cJSON_IsObject(x) || cJSON_IsObject(y) ? compare_facts(c, name, x, y, error) : add_fact(c, name, x, y, error);
        if (status) break;
    }
    return status;
}

/* ---- findings -----------------------------------------------------------------------------------------------------*/
ng_status ng_add_finding(ng_comparison *c, ng_change change, const char *id, const char *repro, double size, ng_error *error,
                         const char *format, ...) {
    if ((c->finding_count & (c->finding_count - 1)) == 0) { /* grows at powers of two */
        size_t capacity = c->finding_count ? 2 * c->finding_count : 1;
        ng_finding *findings = realloc(c->findings, capacity * sizeof *findings);
        if (!findings) return ng_fail(error, NG_NO_MEMORY, "out of memory");
        c->findings = findings;
    }
    ng_finding *f = &c->findings[c->finding_count++];
    *f = (ng_finding){.change = change, .id = id, .size = isnan(size) ? 0 : size, .repro = repro};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(f->detail, sizeof f->detail, format, arguments);
    va_end(arguments);
    c->counts[change]++;
    return NG_OK;
}

const ng_finding *ng_finding_of(const ng_comparison *c, ng_change change, const char *id) {
    for (size_t i = 0; i < c->finding_count; i++)
        if (c->findings[i].change == change && !strcmp(c->findings[i].id, id)) return &c->findings[i];
    return NULL;
}

static int by_weight(const void *a, const void *b) {
    const ng_finding *x = a, *y = b;
    if (x->change != y->change) return x->change < y->change ? -1 : 1;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    return strcmp(x->id, y->id);
}

void ng_sort_findings(ng_comparison *c) {
    if (c->finding_count) qsort(c->findings, c->finding_count, sizeof *c->findings, by_weight);
}

bool ng_finding_gates(const ng_finding *f, const ng_compare_options *o) {
    return ng_change_words[f->change].gates && !(f->change == NG_CHANGE_MOVED && o->allow_moved);
}

size_t ng_gating(const ng_comparison *c, const ng_compare_options *o) {
    size_t gating = 0;
    for (size_t i = 0; i < c->finding_count; i++)
        gating += ng_finding_gates(&c->findings[i], o);
    return gating;
}

/* ---- one case -----------------------------------------------------------------------------------------------------*/
/* A case on one side: the worst of its records' verdicts, whether its bits are the same in all of them. */
typedef struct standing {
    const ng_recorded_case *worst, *first; /* NULL: not there */
    bool unstable;                         /* other bits from record to record, or from launch to launch */
    const char *other_digest;
} standing;

static int badness(ng_verdict verdict) {
    static const int order[NG_VERDICTS] = {
        [NG_PASS] = 1, [NG_XFAIL] = 2, [NG_FLAKE] = 3, [NG_XPASS] = 4, [NG_VACUOUS] = 5, [NG_MOVED] = 6,
        [NG_FAIL] = 7, [NG_TIMEOUT] = 8, [NG_CRASH] = 9, [NG_SKIP] = 0,
    };
    return order[verdict];
}

static standing stand(const ng_side *side, const char *id) {
    standing s = {0};
    for (size_t r = 0; r < side->count; r++) {
        const ng_recorded_case *one = ng_record_find(&side->records[r], id);
        if (!one) continue;
        if (!s.worst || badness(one->result.verdict) > badness(s.worst->result.verdict)) s.worst = one;
        if (!*one->result.digest) continue;
        if (!s.first) s.first = one;
        s.unstable = s.unstable || one->result.nondeterministic;
        if (strcmp(s.first->result.digest, one->result.digest)) {
            s.unstable = true;
            s.other_digest = one->result.digest;
        }
    }
    return s;
}

static bool ran(const standing *s) { return s->worst && s->worst->result.verdict != NG_SKIP; }

/* What is wrong with a verdict, whatever came before; NG_CHANGES: nothing. */
static ng_change fault_of(ng_verdict verdict) {
    switch (verdict) {
    case NG_FAIL: return NG_CHANGE_BOUND;
    case NG_CRASH: case NG_TIMEOUT: return NG_CHANGE_CRASH;
    case NG_VACUOUS: return NG_CHANGE_VACUOUS;
    case NG_XPASS: return NG_CHANGE_XPASS;
    case NG_FLAKE: return NG_CHANGE_FLAKE;
    default: return NG_CHANGES;
    }
}

static double ratio_of(const ng_recorded_case *one) { return one->result.error.present ? one->result.error.bound_ratio : NAN; }

/* "error / bound 0.3 -> 0.4; 12 of 2145 elements are not as predicted, first [0][3] (0 before)" */
static void describe_move(const ng_recorded_case *a, const ng_recorded_case *b, char *text, size_t capacity) {
    const ng_prediction *p = &a->result.prediction, *q = &b->result.prediction;
    int used = snprintf(text, capacity, "%.8s -> %.8s", a->result.digest, b->result.digest);
    if (!isnan(ratio_of(a)) && !isnan(ratio_of(b)))
        used += snprintf(text + used, capacity - (size_t)used, ", error / bound %.4g -> %.4g", ratio_of(a), ratio_of(b));
    if (a->result.error.present && b->result.error.present)
        used += snprintf(text + used, capacity - (size_t)used, ", largest error %.3g -> %.3g units in the last place",
                         a->result.error.max_ulp, b->result.error.max_ulp);
    if (!p->present || !q->present) return;
    if (q->differ > 0)
        snprintf(text + used, capacity - (size_t)used, "; %lld of %lld elements are not as %.60s predicts (%lld before), first [%lld][%lld]",
                 (long long)q->differ, (long long)q->elements, q->model, (long long)p->differ, (long long)q->first[0], (long long)q->first[1]);
    else if (p->differ > 0) snprintf(text + used, capacity - (size_t)used, "; now as %.60s predicts (%lld were not)", q->model, (long long)p->differ);
}

static ng_status compare_bits(ng_comparison *c, const standing *a, const standing *b, ng_error *error) {
    char text[360];
    if (!a->first || !b->first || a->unstable || b->worst->result.verdict == NG_XFAIL) return NG_OK;
    if (b->unstable)
        return ng_add_finding(c, NG_CHANGE_DETERMINISM, b->first->id, b->first->repro, 0, error, "%s",
                              b->other_digest ? "its runs have different bits among themselves" : "its launches have different bits");
    if (!strcmp(a->first->result.digest, b->first->result.digest)) {
        c->same_bits++;
        return NG_OK;
    }
    describe_move(a->first, b->first, text, sizeof text);
    return ng_add_finding(c, NG_CHANGE_MOVED, b->first->id, b->first->repro, ratio_of(b->first), error, "%s", text);
}

/* Errors inside their bounds: a tenth of the bound is worth a line. */
static ng_status compare_error(ng_comparison *c, const standing *a, const standing *b, ng_error *error) {
    if (!a->first || !b->first) return NG_OK;
    double x = ratio_of(a->first), y = ratio_of(b->first);
    if (isnan(x) || isnan(y) || fabs(y - x) < 0.1) return NG_OK;
    return ng_add_finding(c, y > x ? NG_CHANGE_GREW : NG_CHANGE_SHRANK, b->first->id, b->first->repro, fabs(y - x), error,
                          "error / bound %.4g -> %.4g", x, y);
}

static ng_status compare_case(ng_comparison *c, const char *id, ng_error *error) {
    standing a = stand(&c->a, id), b = stand(&c->b, id);
    if (ran(&a) && !ran(&b))
        return ng_add_finding(c, NG_CHANGE_LOST, id, a.worst->repro, 0, error, b.worst ? "skipped: %s" : "not there%s",
                              b.worst ? b.worst->result.reason : "");
    if (!ran(&a) && ran(&b)) {
        ng_status status = ng_add_finding(c, NG_CHANGE_APPEARED, id, b.worst->repro, 0, error, "%s%s", ng_verdict_names[b.worst->result.verdict],
                                          a.worst ? ", skipped before" : "");
        ng_change fault = fault_of(b.worst->result.verdict); /* a new case that is wrong is wrong */
        if (b.worst->result.verdict == NG_MOVED) fault = NG_CHANGE_MOVED;
        if (!status && fault != NG_CHANGES)
            status = ng_add_finding(c, fault, id, b.worst->repro, ratio_of(b.worst), error, "new; %s", b.worst->result.reason);
        return status;
    }
    if (!ran(&a)) return NG_OK;
    c->common++;
    ng_verdict x = a.worst->result.verdict, y = b.worst->result.verdict;
    ng_change before = fault_of(x), now = fault_of(y);
    ng_status status = NG_OK;
    if (now != NG_CHANGES && now == before && now != NG_CHANGE_FLAKE)
        status = ng_add_finding(c, NG_CHANGE_STILL, id, b.worst->repro, ratio_of(b.worst), error, "%s: %s", ng_verdict_names[y], b.worst->result.reason);
    else if (now != NG_CHANGES)
        status = ng_add_finding(c, now, id, b.worst->repro, ratio_of(b.worst), error, "%s -> %s: %s", ng_verdict_names[x],
                                ng_verdict_names[y], b.worst->result.reason);
    else if (before != NG_CHANGES && before != NG_CHANGE_FLAKE)
        status = ng_add_finding(c, NG_CHANGE_FIXED, id, b.worst->repro, 0, error, "%s -> %s", ng_verdict_names[x], ng_verdict_names[y]);
    if (!status) status = compare_bits(c, &a, &b, error);
    if (!status && now != NG_CHANGE_BOUND) status = compare_error(c, &a, &b, error);
    return status;
}

/* ---- all cases ----------------------------------------------------------------------------------------------------*/
static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Every id of every record, once, sorted. */
static ng_status collect_ids(const ng_side *a, const ng_side *b, const char ***ids, size_t *count, ng_error *error) {
    size_t most = 0, kept = 0;
    *count = 0;
    for (size_t s = 0; s < 2; s++)
        for (size_t r = 0; r < (s ? b : a)->count; r++)
            most += (s ? b : a)->records[r].count;
    *ids = calloc(most + 1, sizeof **ids);
    if (!*ids) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (size_t s = 0; s < 2; s++)
        for (size_t r = 0; r < (s ? b : a)->count; r++)
            for (size_t i = 0; i < (s ? b : a)->records[r].count; i++)
                (*ids)[(*count)++] = (s ? b : a)->records[r].cases[i].id;
    if (*count) qsort(*ids, *count, sizeof **ids, by_text);
    for (size_t i = 0; i < *count; i++)
        if (!kept || strcmp((*ids)[kept - 1], (*ids)[i])) (*ids)[kept++] = (*ids)[i];
    *count = kept;
    return NG_OK;
}

ng_status ng_compare(const ng_side *a, const ng_side *b, const ng_compare_options *options, ng_comparison *c, ng_error *error) {
    const char **ids = NULL;
    size_t count = 0;
    *c = (ng_comparison){.a = *a, .b = *b};
    ng_status status = check_sides(a, b, options, error);
    if (!status) status = compare_facts(c, "", a->records[0].fingerprint, b->records[0].fingerprint, error);
    if (!status) status = collect_ids(a, b, &ids, &count, error);
    c->cases[0] = a->count ? a->records[0].count : 0;
    c->cases[1] = b->count ? b->records[0].count : 0;
    for (size_t i = 0; i < count && !status; i++)
        status = compare_case(c, ids[i], error);
    if (!status) status = ng_compare_training(c, error);
    if (!status && !c->common) status = ng_fail(error, NG_BAD_ARGUMENT, "%s and %s have no case in common that ran", a->records[0].path, b->records[0].path);
    if (!status) status = ng_compare_speed(c, options, error);
    if (!status) ng_sort_findings(c);
    free(ids);
    if (status) ng_comparison_free(c);
    return status;
}

void ng_comparison_free(ng_comparison *c) {
    free(c->facts);
    free(c->findings);
    *c = (ng_comparison){0};
}
