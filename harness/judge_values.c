/* What the drivers of fused kernels share: several outputs of one launch, each against exact values, bounds and bits. */
#include "harness/judge_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

ng_status ng_values_create(int64_t count, ng_values *values, ng_error *error) {
    double *all = malloc(sizeof *all * 3 * (size_t)(count + 1));
    if (!all) return ng_fail(error, NG_NO_MEMORY, "no memory for %lld exact values", (long long)count);
    *values = (ng_values){all, all + count, all + 2 * count};
    return NG_OK;
}

void ng_values_free(ng_values *values) {
    free(values->high);
    *values = (ng_values){0};
}

void ng_fill_low_digits(const ng_tensor *t, uint64_t seed) {
    double *values = t->data;
    for (int64_t i = 0; i < t->rows * t->columns; i++) {
        const double more = values[i] * (0x1p-56 * ng_word(seed ^ 0x64, (uint64_t)i));
        if (isfinite(more)) values[i] += more;
    }
}

void ng_tallies_begin(ng_tallies *tallies) {
    memset(tallies, 0, sizeof *tallies);
    for (int role = 0; role < NG_ROLES; role++)
        ng_tally_begin(&tallies->role[role]);
}

ng_status ng_tallies_add(ng_judge *judge, const ng_case *one, ng_tallies *tallies, ng_role role, const ng_tensor *part, const ng_cast *cast,
                         const ng_values *values, int64_t row0) {
    const ng_truth truth = {values->high, values->low, values->bound, NULL};
    ng_observe(judge, one, role, part, NULL, values->high);
    tallies->elements[role] += part->rows * part->columns;
    return ng_tally_add(&tallies->role[role], part, cast, &truth, row0, judge->threads);
}

ng_status ng_tallies_add_codes(ng_judge *judge, ng_tallies *tallies, ng_role role, const ng_tensor *part, const ng_tensor *want) {
    tallies->elements[role] += part->rows * part->columns;
    tallies->by_tier[NG_TIER_INTEGER] += part->rows * part->columns;
    return ng_tally_add_codes(&tallies->role[role], part, want, false, 0, judge->threads);
}

static bool is_worse(const ng_error_figures *a, const ng_error_figures *b) {
    const bool fails = a->nonfinite_mismatch || a->beyond_bound, other_fails = b->nonfinite_mismatch || b->beyond_bound;
    if (!b->present || fails != other_fails) return !b->present || fails;
    return a->bound_ratio > b->bound_ratio || isnan(b->bound_ratio);
}

void ng_tallies_publish(const ng_tallies *tallies, ng_result *result, ng_power *power) {
    ng_error_figures worst = {0};
    int64_t elements = 0, checked = 0, nonfinite = 0, beyond = 0;
    *power = (ng_power){0, 0};
    for (int role = 0; role < NG_ROLES; role++) {
        ng_error_figures figures;
        ng_power one;
        if (!tallies->elements[role]) continue;
        ng_tally_publish(&tallies->role[role], tallies->elements[role], &figures, &one);
        ng_accuse_figures(result, ng_role_names[role], &figures);
        power->bounded += one.bounded;
        power->zero_rejected += one.zero_rejected;
        elements += figures.elements;
        checked += figures.checked;
        nonfinite += figures.nonfinite_mismatch;
        beyond += figures.beyond_bound;
        if (is_worse(&figures, &worst)) worst = figures;
    }
    worst.elements = elements;
    worst.checked = checked;
    worst.nonfinite_mismatch = nonfinite;
    worst.beyond_bound = beyond;
    memcpy(worst.by_tier, tallies->by_tier, sizeof worst.by_tier);
    result->error = worst;
}

bool ng_running_settles(ng_format_id format, const ng_cast *cast, double y, double c, double e, double r) {
    double lowest, highest;
    if (!isfinite(c) || isinf(e)) return true; /* nothing that more digits would change */
    if (!(e >= r) || ng_accepted_interval(format, cast, c, 0, e - r, &lowest, &highest)) return false;
    return lowest <= y && y <= highest;
}

void ng_compare_prediction(ng_judge *judge, ng_role role, const ng_tensor *computed, const ng_tensor *want, ng_result *result) {
    ng_prediction *prediction = &result->prediction;
    ng_error_figures figures;
    if (ng_measure_codes(computed, want, false, judge->threads, &figures, NULL)) return;
    const int64_t differ = figures.beyond_bound + figures.nonfinite_mismatch;
    if (differ && !prediction->differ) memcpy(prediction->first, figures.worst, sizeof prediction->first);
    prediction->present = true;
    prediction->elements += figures.checked;
    prediction->differ += differ;
    if (differ)
        ng_accuse(result, NG_MOVED, "%lld of %lld elements of %s differ from the bits that the contract fixes, first or worst [%lld][%lld]: %.9g, predicted %.9g", (long long)differ,
                  (long long)figures.checked, ng_role_names[role], (long long)figures.worst[0], (long long)figures.worst[1], figures.worst_computed, figures.worst_exact);
}

ng_tensor ng_rows_of(const ng_tensor *t, int64_t row0, int64_t rows) {
    ng_tensor part = *t;
    part.data = (char *)t->data + row0 * t->row_bytes;
    part.rows = rows;
    return part;
}
