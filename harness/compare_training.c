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

static const cJSON *rows_of(const ng_side *side) {
    const cJSON *rows = side->count ? cJSON_GetObjectItemCaseSensitive(side->records[0].json, "training") : NULL;
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

/* Where the loss of one seed first has other bits: its seed and step; false: nowhere, or nothing to compare. */
static bool first_difference(const cJSON *a, const cJSON *b, double *seed, int *step) {
    const cJSON *x, *seeds = cJSON_GetObjectItemCaseSensitive(b, "seeds");
    cJSON_ArrayForEach(x, cJSON_GetObjectItemCaseSensitive(a, "seeds")) {
        const cJSON *y, *other = NULL;
        *seed = number_of(x, "seed");
        cJSON_ArrayForEach(y, seeds) if (!(number_of(y, "seed") < *seed || number_of(y, "seed") > *seed)) other = y;
        if (!other) continue;
        const cJSON *p = cJSON_GetObjectItemCaseSensitive(x, "losses"), *q = cJSON_GetObjectItemCaseSensitive(other, "losses");
        p = p ? p->child : NULL, q = q ? q->child : NULL;
        for (*step = 1; p && q; p = p->next, q = q->next, ++*step)
            if (p->valuedouble < q->valuedouble || p->valuedouble > q->valuedouble) return true;
    }
    return false;
}

static ng_status compare_row(ng_comparison *c, const cJSON *a, const cJSON *b, ng_error *error) {
    const char *id = text_of(b, "recipe");
    char context[120];
    context_of(b, context);
    const char *x = text_of(a, "status"), *y = text_of(b, "status");
    const interval p = gap_of(a), q = gap_of(b);
    const bool failed = !strcmp(x, "fail"), fails = !strcmp(y, "fail");
    double seed = 0;
    int step = 0;
    ng_status status = NG_OK;
    if (fails || failed)
        status = ng_add_finding(c, !fails ? NG_CHANGE_FIXED : failed ? NG_CHANGE_STILL : NG_CHANGE_CONVERGENCE, id, "", q.mean, error,
                                "%s: %s -> %s: gap %+.3f %% [%+.3f, %+.3f] -> %+.3f %% [%+.3f, %+.3f], delta %.2f %%: %.90s", context, x, y, p.mean, p.low, p.high, q.mean,
                                q.low, q.high, 100 * number_of(b, "delta"), text_of(b, "reason"));
    else if (q.low > p.high || q.high < p.low)
        status = ng_add_finding(c, q.low > p.high ? NG_CHANGE_GREW : NG_CHANGE_SHRANK, id, "", fabs(q.mean - p.mean), error,
                                "%s: gap of the loss %+.3f %% [%+.3f, %+.3f] -> %+.3f %% [%+.3f, %+.3f]", context, p.mean, p.low, p.high, q.mean, q.low, q.high);
    if (status) return status;
    if (first_difference(a, b, &seed, &step))
        return ng_add_finding(c, NG_CHANGE_MOVED, id, "", 0, error, "%s: the loss of seed %.0f has other bits from step %d on", context, seed, step);
    c->same_bits++;
    return NG_OK;
}

ng_status ng_compare_training(ng_comparison *c, ng_error *error) {
    const cJSON *before = rows_of(&c->a), *after = rows_of(&c->b), *row;
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
