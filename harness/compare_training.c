/* Training runs of two sides, recipe by recipe: verdicts, gaps, and the bits of every step's loss. */
#include "harness/compare.h"

#include <cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *text_of(const cJSON *row, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(row, name);
    return cJSON_IsString(item) ? item->valuestring : "";
}

static double number_of(const cJSON *row, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(row, name);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

static const cJSON *rows_of(const ng_record_file *record) {
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(record->json, "training");
    return cJSON_IsArray(rows) ? rows : NULL;
}

/* The same recipe against the same baseline, of the same model, for as long. */
static bool is_same_run(const cJSON *a, const cJSON *b) {
    static const char *const texts[] = {"recipe", "baseline", "backend"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(text_of(a, texts[i]), text_of(b, texts[i]))) return false;
    return number_of(a, "steps") == number_of(b, "steps") && /* NOLINT: both are whole */
           cJSON_Compare(cJSON_GetObjectItemCaseSensitive(a, "model"), cJSON_GetObjectItemCaseSensitive(b, "model"), true);
}

static const cJSON *row_like(const cJSON *rows, const cJSON *row) {
    const cJSON *other;
    cJSON_ArrayForEach(other, rows) if (is_same_run(other, row)) return other;
    return NULL;
}

/* "training against fp32, cuda, 100 steps"; the finding's id is the recipe. */
static const char *context_of(const cJSON *row, char text[120]) {
    snprintf(text, 120, "training against %.40s, %.10s, %.0f steps", text_of(row, "baseline"), text_of(row, "backend"), number_of(row, "steps"));
    return text;
}

typedef struct interval { double mean, low, high; } interval;

static interval gap_of(const cJSON *row) {
    const cJSON *gap = cJSON_GetObjectItemCaseSensitive(row, "gap");
    return (interval){100 * number_of(gap, "mean"), 100 * number_of(gap, "low"), 100 * number_of(gap, "high")};
}

/* Where the losses of a seed that both have first differ in their bits, or end; seeds: how many both have. */
typedef struct difference {
    int seeds;
    bool found;
    double seed;
    int step;
} difference;

static const cJSON *losses_of(const cJSON *row, double seed) {
    const cJSON *one;
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(row, "seeds")) {
        const double other = number_of(one, "seed");
        if (!(other < seed || other > seed)) return cJSON_GetObjectItemCaseSensitive(one, "losses");
    }
    return NULL;
}

static bool same_loss(const cJSON *x, const cJSON *y) { /* null stands for what is not finite */
    return x->type == y->type && !(x->valuedouble < y->valuedouble || x->valuedouble > y->valuedouble);
}

static difference difference_of(const cJSON *a, const cJSON *b) {
    difference d = {0};
    const cJSON *one;
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(a, "seeds")) {
        const double seed = number_of(one, "seed");
        const cJSON *x = cJSON_GetObjectItemCaseSensitive(one, "losses"), *y = losses_of(b, seed);
        int step = 1;
        if (!x || !y) continue;
        d.seeds++;
        for (x = x->child, y = y->child; x && y && same_loss(x, y); x = x->next, y = y->next)
            step++;
        if ((x || y) && !d.found) d = (difference){d.seeds, true, seed, step};
    }
    return d;
}

static ng_status compare_verdicts(ng_comparison *c, const cJSON *a, const cJSON *b, const char *context, ng_error *error) {
    const char *x = text_of(a, "status"), *y = text_of(b, "status"), *id = text_of(b, "recipe");
    const interval p = gap_of(a), q = gap_of(b);
    const bool failed = !strcmp(x, "fail"), fails = !strcmp(y, "fail"), other = strcmp(x, y) != 0;
    ng_change change = !fails ? NG_CHANGE_FIXED : failed ? NG_CHANGE_STILL : NG_CHANGE_CONVERGENCE;
    if (!fails && !failed) {
        if (!other && !(q.low > p.high || q.high < p.low)) return NG_OK;
        change = q.mean > p.mean ? NG_CHANGE_GREW : NG_CHANGE_SHRANK;
    }
    return ng_add_finding(c, change, id, "", fabs(q.mean - p.mean), error,
                          "%s: %s -> %s: gap of the loss %+.3f %% [%+.3f, %+.3f] -> %+.3f %% [%+.3f, %+.3f], delta %.2f %%%s%.80s", context, x, y, p.mean, p.low,
                          p.high, q.mean, q.low, q.high, 100 * number_of(b, "delta"), *text_of(b, "reason") ? ": " : "", text_of(b, "reason"));
}

/* Side b's other runs of the recipe: the same bits, or it is not deterministic. *worst: one that fails, if any. */
static ng_status compare_repeats(ng_comparison *c, const cJSON *b, const char *context, const cJSON **worst, bool *same, ng_error *error) {
    *worst = b;
    *same = true;
    for (size_t r = 1; r < c->b.count; r++) {
        const cJSON *again = row_like(rows_of(&c->b.records[r]), b);
        if (!again) continue;
        if (!strcmp(text_of(again, "status"), "fail")) *worst = again;
        const difference d = difference_of(b, again);
        if (!d.found || !*same) continue;
        *same = false;
        ng_status status = ng_add_finding(c, NG_CHANGE_DETERMINISM, text_of(b, "recipe"), "", 0, error,
                                          "%s: the loss of seed %.0f differs between runs of this side from step %d on", context, d.seed, d.step);
        if (status) return status;
    }
    return NG_OK;
}

static ng_status compare_row(ng_comparison *c, const cJSON *a, const cJSON *b, ng_error *error) {
    char context[120];
    const cJSON *worst;
    bool same;
    ng_status status = compare_repeats(c, b, context_of(b, context), &worst, &same, error);
    if (!status) status = compare_verdicts(c, a, worst, context, error);
    if (status || !same) return status;
    const difference d = difference_of(a, b);
    if (d.found)
        return ng_add_finding(c, NG_CHANGE_MOVED, text_of(b, "recipe"), "", 0, error, "%s: the loss of seed %.0f has other bits from step %d on", context, d.seed, d.step);
    c->same_bits += d.seeds > 0;
    return NG_OK;
}

ng_status ng_compare_training(ng_comparison *c, ng_error *error) {
    const cJSON *before = rows_of(&c->a.records[0]), *after = rows_of(&c->b.records[0]), *row; /* check_sides: both have a record */
    char context[120];
    ng_status status = NG_OK;
    cJSON_ArrayForEach(row, before) {
        const cJSON *other = row_like(after, row);
        c->cases[0]++;
        c->common += other != NULL;
        if (!status) status = other ? compare_row(c, row, other, error)
                                     : ng_add_finding(c, NG_CHANGE_LOST, text_of(row, "recipe"), "", 0, error, "%s: not there", context_of(row, context));
    }
    cJSON_ArrayForEach(row, after) {
        c->cases[1]++;
        if (status || row_like(before, row)) continue;
        const bool fails = !strcmp(text_of(row, "status"), "fail");
        status = ng_add_finding(c, fails ? NG_CHANGE_CONVERGENCE : NG_CHANGE_APPEARED, text_of(row, "recipe"), "", 0, error, "%s: new, %s %.200s",
                                context_of(row, context), text_of(row, "status"), text_of(row, "reason"));
    }
    return status;
}
