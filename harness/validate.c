#include "harness/validate.h"
#include "harness/terminal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const ng_acceptance_names[NG_ACCEPTANCES] = {"ACCEPT", "REVIEW", "REJECT", "NO VERDICT"};

/* What a change means for what is under test. */
static const ng_acceptance weights[NG_CHANGES] = {
    [NG_CHANGE_CONVERGENCE] = NG_REJECT,
    [NG_CHANGE_BOUND] = NG_REJECT, [NG_CHANGE_CRASH] = NG_REJECT,  [NG_CHANGE_DETERMINISM] = NG_REJECT, [NG_CHANGE_LOST] = NG_REJECT,
    [NG_CHANGE_SLOWER] = NG_REJECT, [NG_CHANGE_MOVED] = NG_REVIEW, [NG_CHANGE_VACUOUS] = NG_REVIEW,     [NG_CHANGE_XPASS] = NG_REVIEW,
    [NG_CHANGE_FLAKE] = NG_REVIEW,
};

static ng_acceptance weight_of(const ng_finding *f, const ng_compare_options *o) {
    return f->change == NG_CHANGE_MOVED && o->allow_moved ? NG_ACCEPT : weights[f->change];
}

/* ---- what the records say themselves ------------------------------------------------------------------------------*/
static ng_change change_of(const ng_result *r) {
    switch (r->verdict) {
    case NG_FAIL: return NG_CHANGE_BOUND;
    case NG_CRASH: case NG_TIMEOUT: return NG_CHANGE_CRASH;
    case NG_MOVED: return NG_CHANGE_MOVED;
    case NG_VACUOUS: return NG_CHANGE_VACUOUS;
    case NG_XPASS: return NG_CHANGE_XPASS;
    case NG_FLAKE: return NG_CHANGE_FLAKE;
    default: return NG_CHANGES;
    }
}

static double ratio_of(const ng_result *r) { return r->error.present ? r->error.bound_ratio : 0; }

static ng_status add_own(ng_validation *v, const ng_record_file *record, ng_error *error) {
    ng_status status = NG_OK;
    for (size_t i = 0; i < record->count && !status; i++) {
        const ng_recorded_case *one = &record->cases[i];
        ng_change change = change_of(&one->result);
        if (change == NG_CHANGES || ng_finding_of(&v->comparison, change, one->id)) continue;
        status = ng_add_finding(&v->comparison, change, one->id, one->repro, ratio_of(&one->result), error, "%s", one->result.reason);
    }
    return status;
}

/* ---- goldens ------------------------------------------------------------------------------------------------------*/
/* A copy that lives as long as the validation; "" where there is no memory for it. */
static const char *keep(ng_validation *v, const char *text) {
    char **texts = realloc(v->texts, (v->text_count + 1) * sizeof *texts), *copy = strdup(text);
    if (texts) v->texts = texts;
    if (!texts || !copy) {
        free(copy);
        return "";
    }
    return texts[v->text_count++] = copy;
}

static const char *base_name(const char *path) { return strrchr(path, '/') ? strrchr(path, '/') + 1 : path; }

static ng_status on_golden(void *context, const ng_golden_finding *f, ng_error *error) {
    ng_validation *v = context;
    const char *name = base_name(f->set->path);
    ng_golden_key its;
    if (f->kind == NG_GOLDEN_GONE)
        return ng_add_finding(&v->comparison, NG_CHANGE_LOST, keep(v, f->id), "", 0, error, "not there; %s has its golden", name);
    if (f->kind == NG_GOLDEN_LOST && !ng_finding_of(&v->comparison, NG_CHANGE_LOST, f->id))
        return ng_add_finding(&v->comparison, NG_CHANGE_LOST, f->id, f->one->repro, 0, error, "skipped: %.200s; %s has its golden", f->one->result.reason, name);
    if (f->kind != NG_GOLDEN_DIFFERS || f->one->result.verdict == NG_XFAIL || f->one->result.verdict == NG_FLAKE) return NG_OK;
    ng_golden_key_of_record(&v->comparison.b.records[0], f->one, &its);
    if (!ng_golden_key_equal(&its, &f->set->key) && !strstr(v->other_versions, name)) {
        size_t used = strlen(v->other_versions);
        snprintf(v->other_versions + used, sizeof v->other_versions - used, "%s%.100s", used ? ", " : "", name);
    }
    if (ng_finding_of(&v->comparison, NG_CHANGE_MOVED, f->id) || ng_finding_of(&v->comparison, NG_CHANGE_BOUND, f->id)) return NG_OK;
    const ng_prediction *p = &f->one->result.prediction;
    char predicted[160] = "";
    if (p->present && p->differ)
        snprintf(predicted, sizeof predicted, "; %lld of %lld elements are not as %.60s predicts", (long long)p->differ, (long long)p->elements, p->model);
    else if (p->present) snprintf(predicted, sizeof predicted, "; all %lld elements are as %.60s predicts", (long long)p->elements, p->model);
    return ng_add_finding(&v->comparison, NG_CHANGE_MOVED, f->id, f->one->repro, ratio_of(&f->one->result), error,
                          "%.8s, %s %.8s; error / bound %.4g, there %.4g%s", f->one->result.digest, name, f->golden->digest,
                          ratio_of(&f->one->result), f->golden->figures[0], predicted);
}

/* ---- what there was to compare with -------------------------------------------------------------------------------*/
static void count_compared(ng_validation *v, size_t unset) {
    const ng_record_file *record = &v->comparison.b.records[0];
    size_t without = 0;
    for (size_t i = 0; i < record->count; i++) {
        const ng_recorded_case *one = &record->cases[i];
        if (one->result.verdict == NG_SKIP) continue;
        v->executed++;
        bool in_baseline = v->has_baseline && ng_record_find(&v->comparison.a.records[0], one->id);
        without += !one->result.prediction.present && !in_baseline;
    }
    size_t unknown = unset + v->goldens.lacking + v->goldens.elsewhere;
    v->uncompared = without < unknown ? without : unknown;
}

/* "1,755 to 1,980 MHz; not higher because of power cap" */
static void describe_clocks(ng_validation *v) {
    double least = INFINITY, most = 0;
    const char *reasons[4];
    size_t kinds = 0;
    for (size_t r = 0; r < v->comparison.b.count; r++)
        for (size_t i = 0; i < v->comparison.b.records[r].count; i++) {
            const ng_speed *s = &v->comparison.b.records[r].cases[i].result.speed;
            if (!s->present || !(s->sm_mhz_after > 0)) continue;
            least = fmin(least, s->sm_mhz_after);
            most = fmax(most, s->sm_mhz_after);
            size_t k = 0;
            while (k < kinds && strcmp(reasons[k], s->throttle))
                k++;
            if (k == kinds && kinds < 4 && *s->throttle && strcmp(s->throttle, "none")) reasons[kinds++] = s->throttle;
        }
    if (most == 0) return;
    int used = snprintf(v->clocks, sizeof v->clocks, "%.0f to %.0f MHz", least, most);
    for (size_t k = 0; k < kinds && (size_t)used < sizeof v->clocks; k++)
        used += snprintf(v->clocks + used, sizeof v->clocks - (size_t)used, "%s%.60s", k ? "; " : ", not higher because of ", reasons[k]);
}

/* ---- the verdict --------------------------------------------------------------------------------------------------*/
static void decide(ng_validation *v, const ng_compare_options *o) {
    v->acceptance = NG_ACCEPT;
    for (size_t i = 0; i < v->comparison.finding_count; i++) {
        ng_acceptance weight = weight_of(&v->comparison.findings[i], o);
        if (weight > v->acceptance) v->acceptance = weight;
    }
    if (v->acceptance == NG_REJECT) return;
    if (!v->executed) snprintf(v->missing, sizeof v->missing, "no case ran");
    else if (v->uncompared == v->executed)
        snprintf(v->missing, sizeof v->missing,
                 "nothing to compare bits with: no golden of this architecture and seed, no --baseline, no prediction; every bound held. "
                 "--save-baseline NAME keeps these runs as one");
    if (*v->missing) v->acceptance = NG_NO_VERDICT;
}

ng_status ng_validate(const ng_side *b, const ng_side *a, const char *goldens, const ng_compare_options *o, ng_validation *v, ng_error *error) {
    ng_status status = NG_OK;
    *v = (ng_validation){.has_baseline = a != NULL};
    if (a) status = ng_compare(a, b, o, &v->comparison, error);
    else v->comparison.b = *b;
    if (status) return status;
    v->comparison.cases[1] = b->records[0].count;
    for (size_t r = 0; r < b->count && !status; r++)
        status = add_own(v, &b->records[r], error);
    size_t unset = b->records[0].count;
    if (!status && goldens) {
        status = ng_golden_check(goldens, &b->records[0], true, on_golden, v, &v->goldens, error);
        unset = v->goldens.unset;
    }
    count_compared(v, unset);
    describe_clocks(v);
    if (!status) {
        ng_sort_findings(&v->comparison);
        decide(v, o);
    } else ng_validation_free(v);
    return status;
}

void ng_validation_free(ng_validation *v) {
    ng_comparison_free(&v->comparison);
    for (size_t i = 0; i < v->text_count; i++)
        free(v->texts[i]);
    free(v->texts);
    *v = (ng_validation){0};
}

/* ---- output -------------------------------------------------------------------------------------------------------*/
void ng_validation_line(const ng_validation *v, const ng_compare_options *o, char *line, size_t capacity) {
    size_t used = (size_t)snprintf(line, capacity, "%s", ng_acceptance_names[v->acceptance]), named = 0;
    if (v->acceptance == NG_NO_VERDICT) {
        snprintf(line + used, capacity - used, ": %s", v->missing);
        return;
    }
    for (int k = 0; k < NG_CHANGES && used < capacity; k++) {
        const ng_finding any = {.change = (ng_change)k};
        if (!v->comparison.counts[k] || weight_of(&any, o) == NG_ACCEPT) continue;
        used += (size_t)snprintf(line + used, capacity - used, "%s %s %zu", named++ ? "," : ":", ng_change_words[k].word, v->comparison.counts[k]);
    }
}

static void print_machine(FILE *out, const ng_record_file *r) {
    static const char *const facts[][2] = {
        {"gpu.name", ""}, {"driver", "driver "}, {"cuda_runtime", "CUDA "}, {"cublaslt", "cuBLASLt "}, {"cpu.model", ""},
    };
    fprintf(out, "level %s, seed %llu", ng_level_names[r->level], (unsigned long long)r->seed);
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (*ng_record_fact(r, facts[i][0])) fprintf(out, ", %s%s", facts[i][1], ng_record_fact(r, facts[i][0]));
    fputc('\n', out);
}

static void print_references(FILE *out, const ng_validation *v) {
    const ng_golden_tally *g = &v->goldens;
    if (*v->clocks) fprintf(out, "clock of the multiprocessors: %s\n", v->clocks);
    if (g->match + g->differ + g->lost + g->lacking)
        fprintf(out, "goldens: %zu match, %zu differ, %zu did not run, %zu cases lack one\n", g->match, g->differ, g->lost, g->lacking);
    else fputs("goldens: none applies\n", out);
    if (*v->other_versions) fprintf(out, "no golden of this library's version; in its place: %s\n", v->other_versions);
    if (!v->has_baseline) fputs("baseline: none; what it would show is speed, and other machines' bits\n", out);
    if (v->uncompared) fprintf(out, "%zu of %zu cases had nothing to compare their bits with; their bounds count alone\n", v->uncompared, v->executed);
}

static void print_findings(FILE *out, const ng_validation *v, const ng_compare_options *o, size_t most) {
    const ng_comparison *c = &v->comparison;
    for (size_t i = 0; i < c->finding_count;) {
        ng_change change = c->findings[i].change;
        size_t count = c->counts[change], shown = weight_of(&c->findings[i], o) == NG_ACCEPT && most > 3 ? 3 : most;
        fprintf(out, "\n%s: %zu\n", ng_change_words[change].title, count);
        for (size_t k = 0; k < count && k < shown; k++) {
            const ng_finding *f = &c->findings[i + k];
            fprintf(out, "  %s%s%s\n", f->id, *f->id && *f->detail ? "\n      " : "", f->detail);
            if (weight_of(f, o) != NG_ACCEPT && f->repro && *f->repro) fprintf(out, "      %s\n", f->repro);
        }
        if (count > shown) fprintf(out, "  ... and %zu more; --json FILE has them all\n", count - shown);
        i += count;
    }
}

void ng_validation_print(FILE *out, const ng_validation *v, const ng_compare_options *o, size_t most) {
    char line[800];
    const ng_comparison *c = &v->comparison;
    print_machine(out, &c->b.records[0]);
    if (v->has_baseline)
        fprintf(out, "baseline: %s%s (%zu record%s); %zu cases in common, %zu with the same bits\n", c->a.records[0].path,
                c->a.count > 1 ? " and others" : "", c->a.count, c->a.count > 1 ? "s" : "", c->common, c->same_bits);
    for (size_t i = 0; i < c->fact_count; i++)
        fprintf(out, "  %s: %s -> %s\n", c->facts[i].name, c->facts[i].a, c->facts[i].b);
    print_references(out, v);
    if (*c->speed_note) fprintf(out, "%s\n", c->speed_note);
    print_findings(out, v, o, most);
    ng_validation_line(v, o, line, sizeof line);
    fprintf(out, "\n%s\n", line);
}

void ng_validation_json(FILE *out, const ng_validation *v, const ng_compare_options *o) {
    ng_json json = {.out = out, .break_depth = 2};
    char line[800];
    ng_validation_line(v, o, line, sizeof line);
    ng_json_object(&json, NULL);
    ng_json_text(&json, "schema", "narrowgauge.validation/1");
    ng_json_text(&json, "verdict", ng_acceptance_names[v->acceptance]);
    ng_json_text(&json, "line", line);
    ng_json_text(&json, "missing", *v->missing ? v->missing : NULL);
    ng_json_value(&json, "ran_on", v->comparison.b.records[0].fingerprint, NULL);
    ng_json_text(&json, "clocks", *v->clocks ? v->clocks : NULL);
    ng_json_object(&json, "goldens");
    ng_json_unsigned(&json, "match", v->goldens.match);
    ng_json_unsigned(&json, "differ", v->goldens.differ);
    ng_json_unsigned(&json, "lost", v->goldens.lost);
    ng_json_unsigned(&json, "lacking", v->goldens.lacking);
    ng_json_unsigned(&json, "unset", v->goldens.unset);
    ng_json_text(&json, "other_versions", *v->other_versions ? v->other_versions : NULL);
    ng_json_end_object(&json);
    ng_json_unsigned(&json, "executed", v->executed);
    ng_json_unsigned(&json, "uncompared", v->uncompared);
    ng_comparison_json(&json, &v->comparison, o);
    ng_json_end_object(&json);
    fputc('\n', out);
}
