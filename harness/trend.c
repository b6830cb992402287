#include "harness/trend.h"
#include "harness/terminal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const ng_turn_names[NG_TURNS] = {
    [NG_TURN_STATUS] = "status", [NG_TURN_ERROR] = "error", [NG_TURN_BITS] = "bits",
    [NG_TURN_TIME] = "time",     [NG_TURN_DRIFT] = "error (nondeterministic)",
};

static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static ng_status add(ng_trend *t, ng_turn turn, ng_error *error) {
    ng_turn *grown = realloc(t->turns, (t->turn_count + 1) * sizeof *grown);
    if (!grown) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    t->turns = grown;
    t->turns[t->turn_count++] = turn;
    return NG_OK;
}

/* Whether the run says anything about the kernel: a skipped case has no bits. */
static bool ran(const ng_history_point *p) { return p->verdict != NG_SKIP && p->verdict != NG_CRASH && p->verdict != NG_TIMEOUT; }

/* What changed for certain. Error and bits are compared with the run before in which there were some. */
static ng_status find_changes(ng_trend *t, bool deterministic, ng_error *error) {
    const ng_history_point *past = NULL;
    ng_status status = NG_OK;
    for (size_t i = 0; i < t->count && !status; i++) {
        const ng_history_point *p = &t->points[i], *last = i ? p - 1 : NULL;
        if (last && last->verdict != p->verdict)
            status = add(t, (ng_turn){NG_TURN_STATUS, i, (double)last->verdict, (double)p->verdict}, error);
        if (!status && deterministic && past && ran(p)) {
            if (!same(past->bound_ratio, p->bound_ratio)) status = add(t, (ng_turn){NG_TURN_ERROR, i, past->bound_ratio, p->bound_ratio}, error);
            else if (strcmp(past->digest, p->digest)) status = add(t, (ng_turn){NG_TURN_BITS, i, 0, 0}, error);
        }
        if (ran(p)) past = p;
    }
    return status;
}

/* Steps of one figure over the points that have it. */
static ng_status find_steps(ng_trend *t, ng_turn_kind kind, double false_alarms, double least, ng_error *error) {
    size_t n = 0, count = 0;
    ng_step *steps = NULL;
    double *values = malloc((t->count + 1) * sizeof *values);
    size_t *places = malloc((t->count + 1) * sizeof *places);
    ng_status status = values && places ? NG_OK : ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < t->count && !status; i++) {
        double value = kind == NG_TURN_TIME ? t->points[i].median_s : t->points[i].bound_ratio;
        if (!isfinite(value)) continue;
        values[n] = value;
        places[n++] = i;
    }
    if (!status) status = ng_find_steps(values, n, false_alarms, least, &steps, &count, error);
    for (size_t i = 0; i < count && !status; i++)
        status = add(t, (ng_turn){kind, places[steps[i].at], steps[i].before, steps[i].after}, error);
    free(steps);
    free(values);
    free(places);
    return status;
}

static int by_place(const void *a, const void *b) {
    const ng_turn *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (int)x->kind - (int)y->kind;
}

ng_status ng_trend_find(const ng_history_point *points, size_t count, double false_alarms, double least, ng_trend *trend, ng_error *error) {
    bool deterministic = true;
    *trend = (ng_trend){.points = points, .count = count};
    for (size_t i = 0; i < count; i++)
        deterministic = deterministic && !points[i].nondeterministic;
    ng_status status = find_changes(trend, deterministic, error);
    if (!status) status = find_steps(trend, NG_TURN_TIME, false_alarms, least, error);
    if (!status && !deterministic) status = find_steps(trend, NG_TURN_DRIFT, false_alarms, least, error);
    if (trend->turn_count) qsort(trend->turns, trend->turn_count, sizeof *trend->turns, by_place);
    if (status) ng_trend_free(trend);
    return status;
}

void ng_trend_free(ng_trend *trend) {
    free(trend->turns);
    *trend = (ng_trend){0};
}

static void print_change(char *text, size_t capacity, const char *what, const char *before, const char *after, double ratio) {
    int used = snprintf(text, capacity, "%s %s -> %s", what, before, after);
    if (isfinite(ratio)) snprintf(text + used, capacity - (size_t)used, " (%+.1f %%)", 100 * (ratio - 1));
}

void ng_turn_text(const ng_turn *turn, char text[NG_TURN_BYTES]) {
    char before[NG_FIGURE_BYTES], after[NG_FIGURE_BYTES];
    switch (turn->kind) {
    case NG_TURN_STATUS:
        print_change(text, NG_TURN_BYTES, "status", ng_verdict_names[(int)turn->before], ng_verdict_names[(int)turn->after], NAN);
        return;
    case NG_TURN_TIME:
        ng_figure_time(turn->before, before);
        ng_figure_time(turn->after, after);
        print_change(text, NG_TURN_BYTES, "time", before, after, turn->after / turn->before);
        return;
    case NG_TURN_ERROR:
    case NG_TURN_DRIFT:
        ng_figure_ratio(turn->before, before);
        ng_figure_ratio(turn->after, after);
        print_change(text, NG_TURN_BYTES, "error / bound", before, after, NAN);
        return;
    default: snprintf(text, NG_TURN_BYTES, "%s changed", ng_turn_names[turn->kind]);
    }
}

static void write_point(ng_json *json, const ng_history_point *p) {
    ng_json_object(json, NULL);
    ng_json_text(json, "run", p->run->run);
    ng_json_text(json, "started", p->run->started);
    ng_json_text(json, "commit", *p->run->commit ? p->run->commit : NULL);
    ng_json_text(json, "driver", *p->run->driver ? p->run->driver : NULL);
    ng_json_text(json, "status", ng_verdict_names[p->verdict]);
    ng_json_text(json, "digest", *p->digest ? p->digest : NULL);
    ng_json_double(json, "bound_ratio", p->bound_ratio);
    ng_json_double(json, "bias", p->bias);
    ng_json_double(json, "sqnr_db", p->sqnr_db);
    ng_json_double(json, "recipe_sqnr_db", p->recipe_sqnr_db);
    ng_json_double(json, "median_s", p->median_s);
    ng_json_double(json, "q1_s", p->q1_s);
    ng_json_double(json, "q3_s", p->q3_s);
    ng_json_end_object(json);
}

void ng_trend_json(ng_json *json, const char *id, const ng_trend *t) {
    char text[NG_TURN_BYTES];
    ng_json_object(json, NULL);
    ng_json_text(json, "id", id);
    ng_json_array(json, "points");
    for (size_t i = 0; i < t->count; i++)
        write_point(json, &t->points[i]);
    ng_json_end_array(json);
    ng_json_array(json, "turns");
    for (size_t i = 0; i < t->turn_count; i++) {
        const ng_turn *turn = &t->turns[i];
        ng_turn_text(turn, text);
        ng_json_object(json, NULL);
        ng_json_text(json, "kind", ng_turn_names[turn->kind]);
        ng_json_unsigned(json, "at", turn->at);
        ng_json_text(json, "run", t->points[turn->at].run->run);
        ng_json_double(json, "before", turn->kind == NG_TURN_STATUS || turn->kind == NG_TURN_BITS ? NAN : turn->before);
        ng_json_double(json, "after", turn->kind == NG_TURN_STATUS || turn->kind == NG_TURN_BITS ? NAN : turn->after);
        ng_json_text(json, "text", text);
        ng_json_end_object(json);
    }
    ng_json_end_array(json);
    ng_json_end_object(json);
}
