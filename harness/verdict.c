#include "harness/verdict.h"

#include "reference/gemm.h"
#include "reference/round.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- units of the last place --------------------------------------------------------------------------------------*/
static double power_of_two(int e) {
    if (e < -1022 || e > 1023) return ldexp(1.0, e);
    uint64_t bits = (uint64_t)(e + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The exponent of the format's binade that holds v. */
static int binade(const ng_format *format, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    int e = (int)(bits >> 52 & 0x7FF) - 1023;
    return e > format->emin ? e : format->emin;
}

static double ulp_at(const ng_format *format, double v) {
    return power_of_two(binade(format, v) - format->mantissa_bits);
}

/* Distance from v, a number of the format, to the next one in that direction (+1 or -1). */
static double gap(const ng_format *format, double v, double direction) {
    int e = binade(format, v), fraction;
    bool toward_zero = v * direction < 0;
    if (toward_zero && e > format->emin && frexp(fabs(v), &fraction) == 0.5) e--;
    return power_of_two(e - format->mantissa_bits);
}

/* ---- one element --------------------------------------------------------------------------------------------------*/
typedef struct yardstick {
    ng_format_id id;
    const ng_format *format;
    const ng_cast *cast;
    bool nearest;
} yardstick;

typedef struct place {
    int64_t row, column;
} place;

static void note_worst(ng_tally *t, double key, place at, double y, double c, double bound) {
    if (key <= t->worst_key) return;
    t->worst_key = key;
    t->worst_row = at.row;
    t->worst_column = at.column;
    t->worst_computed = y;
    t->worst_exact = c;
    t->worst_bound = bound;
}

static double below_one(double ratio) { return ratio < 1 ? ratio : 1 - 0x1p-53; }

/* bound_ratio of a finite y; e = y - c. */
static double ratio_of(const yardstick *by, double y, double high, double low, double e, double bound) {
    double from, to;
    ng_accepted_interval(by->id, by->cast, high, low, bound, &from, &to);
    bool accepted = from <= y && y <= to;
    if (e == 0) return accepted ? 0 : INFINITY; /* c itself is outside only if the interval is broken */
    double side = e > 0 ? 1 : -1, end = e > 0 ? to : from;
    double width = isinf(end) ? INFINITY : side * ((end - high) - low) + gap(by->format, end, side) * (by->nearest ? 0.5 : 1);
    double ratio = width > 0 ? fabs(e) / width : INFINITY;
    if (accepted) return below_one(ratio);
    return ratio >= 1 ? ratio : 1;
}

/* An upper limit of bound_ratio that costs little, INFINITY where none is known. y inside [c - B, c + B], or the number nearest to c, is
 * accepted; the edge is at least B away from c, and at least half a gap beyond y. */
static double ratio_limit(const yardstick *by, double y, double e, double bound) {
    double half = by->nearest ? power_of_two(binade(by->format, y) - by->format->mantissa_bits - 2) : 0;
    if (!(fabs(e) <= bound) && !(fabs(e) < half)) return INFINITY;
    double edge = fabs(e) + half > bound ? fabs(e) + half : bound;
    return edge > 0 ? fabs(e) / edge : 0;
}

static void bounded_element(const yardstick *by, ng_tally *t, place at, double y, double high, double low, double e,
                            double bound) {
    t->bounded++;
    if (fabs(high) > bound + power_of_two(by->format->emin - by->format->mantissa_bits)) t->zero_rejected++;
    bool sign_certain = fabs(high) > bound || (high == 0 && bound == 0);
    if (y == 0 && sign_certain && !signbit(y) != !signbit(high)) {
        t->nonfinite++;
        note_worst(t, INFINITY, at, y, high, bound);
        return;
    }
    if (t->worst_key >= 0 && ratio_limit(by, y, e, bound) <= t->ratio) return;
    double ratio = ratio_of(by, y, high, low, e, bound);
    if (ratio >= 1) t->beyond++;
    if (ratio > t->ratio) t->ratio = ratio;
    note_worst(t, ratio, at, y, high, bound);
}

static bool nonfinite_agrees(const yardstick *by, double y, double high, double low, double bound, bool has_bound) {
    if (isnan(high)) return isnan(y) || by->format->specials == NG_FINITE_ONLY;
    if (isinf(high)) {
        double rounded = ng_decode(by->id, ng_round(by->id, high, by->cast, 0));
        return y == rounded || (isnan(y) && isnan(rounded));
    }
    if (!has_bound) return isfinite(y);
    double from, to;
    ng_accepted_interval(by->id, by->cast, high, low, bound, &from, &to);
    if (isnan(y)) return by->format->specials == NG_NAN_ALL_ONES && (isinf(from) || isinf(to)); /* overflow */
    return from <= y && y <= to;
}

static void add_error(const yardstick *by, ng_tally *t, double e, double c) {
    t->sum_c2 += c * c;
    t->sum_abs += fabs(c);
    if (e == 0) return;
    double size = fabs(e), ulps = size / ulp_at(by->format, c);
    if (size > t->max_abs) t->max_abs = size;
    if (ulps > t->max_ulp) t->max_ulp = ulps;
    if (c != 0 && size > t->max_rel * fabs(c)) t->max_rel = size / fabs(c);
    t->sum_e2 += e * e;
    t->sum_signed += c < 0 ? -e : c > 0 ? e : 0;
}

static void element(const yardstick *by, ng_tally *t, place at, int64_t i, double y, const ng_truth *truth) {
    double high = truth->high[i], low = truth->low ? truth->low[i] : 0;
    bool has_bound = truth->bound != NULL;
    double bound = has_bound ? truth->bound[i] : NAN;
    bool unbounded = has_bound && !(bound < INFINITY);
    if (!isfinite(high) || !isfinite(y)) {
        if (unbounded) return;
        t->bounded += has_bound;
        t->zero_rejected += has_bound && !isfinite(high);
        if (!nonfinite_agrees(by, y, high, low, bound, has_bound)) {
            t->nonfinite++;
            note_worst(t, INFINITY, at, y, high, bound);
        }
        return;
    }
    double e = (y - high) - low, size = fabs(e);
    add_error(by, t, e, high);
    if (truth->expected && truth->expected[i] >= 0) {
        double ratio = size / (truth->expected[i] + 0.5 * ulp_at(by->format, y));
        if (!(ratio <= t->expected_ratio)) t->expected_ratio = ratio;
    }
    if (has_bound && !unbounded) bounded_element(by, t, at, y, high, low, e, bound);
    else if (!has_bound) note_worst(t, size, at, y, high, NAN);
}

/* ---- whole tensors ------------------------------------------------------------------------------------------------*/
static double larger(double a, double b) { return b > a || isnan(a) ? b : a; }

static void merge(ng_tally *sum, const ng_tally *t) {
    sum->max_abs = larger(sum->max_abs, t->max_abs);
    sum->max_rel = larger(sum->max_rel, t->max_rel);
    sum->max_ulp = larger(sum->max_ulp, t->max_ulp);
    sum->ratio = larger(sum->ratio, t->ratio);
    if (!isnan(t->expected_ratio)) sum->expected_ratio = larger(sum->expected_ratio, t->expected_ratio);
    sum->sum_e2 += t->sum_e2;
    sum->sum_c2 += t->sum_c2;
    sum->sum_signed += t->sum_signed;
    sum->sum_abs += t->sum_abs;
    sum->nonfinite += t->nonfinite;
    sum->beyond += t->beyond;
    sum->bounded += t->bounded;
    sum->zero_rejected += t->zero_rejected;
    if (t->worst_key >= 0)
        note_worst(sum, t->worst_key, (place){t->worst_row, t->worst_column}, t->worst_computed, t->worst_exact, t->worst_bound);
}

void ng_tally_begin(ng_tally *tally) {
    *tally = (ng_tally){.worst_key = -1, .expected_ratio = NAN, .worst_computed = NAN, .worst_exact = NAN, .worst_bound = NAN};
}

void ng_tally_publish(const ng_tally *t, int64_t elements, ng_error_figures *figures, ng_power *power) {
    *figures = (ng_error_figures){
        .present = true,
        .max_abs = t->max_abs,
        .max_rel = t->max_rel,
        .max_ulp = t->max_ulp,
        .rms_rel = t->sum_e2 > 0 ? sqrt(t->sum_e2 / t->sum_c2) : 0,
        .bias = t->sum_abs > 0 ? t->sum_signed / t->sum_abs : 0,
        .sqnr_db = t->sum_e2 > 0 ? 10 * log10(t->sum_c2 / t->sum_e2) : INFINITY,
        .bound_ratio = t->has_bound && t->bounded ? t->ratio : NAN,
        .expected_ratio = t->expected_ratio,
        .worst = {t->worst_row, t->worst_column},
        .worst_computed = t->worst_computed,
        .worst_exact = t->worst_exact,
        .worst_bound = t->worst_bound,
        .nonfinite_mismatch = t->nonfinite,
        .beyond_bound = t->beyond,
        .checked = t->checked,
        .elements = elements,
    };
    if (power) *power = (ng_power){t->bounded, t->zero_rejected};
}

typedef struct job {
    const ng_tensor *computed, *expected; /* expected: where codes must agree */
    const ng_truth *truth;
    yardstick by;
    bool nan_is_nan;
    int64_t row0;
} job;

static void measure_row(const job *work, int64_t row, double *values, ng_tally *t) {
    int64_t columns = work->computed->columns;
    ng_decode_row(work->computed, row, 0, columns, values);
    for (int64_t j = 0; j < columns; j++)
        element(&work->by, t, (place){work->row0 + row, j}, row * columns + j, values[j], work->truth);
}

static void code_element(const job *work, ng_tally *t, int64_t row, int64_t column, double y, double c) {
    place at = {work->row0 + row, column};
    uint64_t got = ng_get_code(work->computed, row, column), want = ng_get_code(work->expected, row, column);
    t->bounded++;
    t->zero_rejected += c != 0;
    if (got == want || (work->nan_is_nan && isnan(y) && isnan(c))) {
        note_worst(t, 0, at, y, c, 0);
        return;
    }
    if (!isfinite(y) || !isfinite(c) || (y == 0 && c == 0)) {
        t->nonfinite++;
        note_worst(t, INFINITY, at, y, c, 0);
        return;
    }
    double ratio = (double)ng_ulp_distance(work->by.id, got, want);
    if (!(ratio >= 1)) ratio = 1; /* bits that carry no value: tf32's low ones, the high ones of 6-bit formats */
    t->beyond++;
    if (ratio > t->ratio) t->ratio = ratio;
    note_worst(t, ratio, at, y, c, 0);
}

/* The usual case, at the speed of decoding. */
static void equal_code_row(const job *work, int64_t row, double *values, ng_tally *t) {
    int64_t columns = work->computed->columns;
    ng_decode_row(work->expected, row, 0, columns, values);
    for (int64_t j = 0; j < columns; j++) {
        t->zero_rejected += values[j] != 0;
        if (isfinite(values[j])) add_error(&work->by, t, 0, values[j]);
    }
    t->bounded += columns;
    if (columns) note_worst(t, 0, (place){work->row0 + row, 0}, values[0], values[0], 0);
}

static void measure_code_row(const job *work, int64_t row, double *values, ng_tally *t) {
    int64_t columns = work->computed->columns;
    double *exact = values + columns;
    const char *got = (const char *)work->computed->data + row * work->computed->row_bytes;
    const char *want = (const char *)work->expected->data + row * work->expected->row_bytes;
    if (!memcmp(got, want, (size_t)ng_row_bytes(work->computed->format, columns))) {
        equal_code_row(work, row, values, t);
        return;
    }
    ng_decode_row(work->computed, row, 0, columns, values);
    ng_decode_row(work->expected, row, 0, columns, exact);
    for (int64_t j = 0; j < columns; j++) {
        double y = values[j], c = exact[j];
        code_element(work, t, row, j, y, c);
        if (isfinite(y) && isfinite(c)) add_error(&work->by, t, y - c, c);
    }
}

enum { CHUNK = 1 << 14 }; /* elements in a chunk, about; part of what a figure means, as sums depend on it */

static ng_status measure_all(const job *work, void (*row)(const job *, int64_t, double *, ng_tally *), int threads,
                             ng_tally *sum) {
    const ng_tensor *of = work->computed;
    int64_t step = of->columns < CHUNK ? CHUNK / (of->columns ? of->columns : 1) : 1;
    int64_t chunks = of->rows / step + (of->rows % step != 0);
    ng_status status = NG_OK;
    if (threads < 1) threads = 1;
    if (threads > chunks) threads = chunks ? (int)chunks : 1;
    ng_tally *tallies = malloc(sizeof *tallies * (size_t)(chunks + 1));
    if (!tallies) return NG_NO_MEMORY;
#pragma omp parallel num_threads(threads)
    {
        double *values = malloc(sizeof *values * 2 * (size_t)(of->columns + 1));
        if (!values) {
#pragma omp atomic write
            status = NG_NO_MEMORY;
        }
#pragma omp for schedule(dynamic)
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            ng_tally_begin(&tallies[chunk]);
            int64_t end = (chunk + 1) * step < of->rows ? (chunk + 1) * step : of->rows;
            for (int64_t i = chunk * step; values && i < end; i++)
                row(work, i, values, &tallies[chunk]);
        }
        free(values);
    }
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        merge(sum, &tallies[chunk]);
    sum->checked += of->rows * of->columns;
    free(tallies);
    return status;
}

ng_status ng_tally_add(ng_tally *tally, const ng_tensor *computed, const ng_cast *cast, const ng_truth *truth,
                       int64_t row0, int threads) {
    job work = {.computed = computed, .truth = truth, .row0 = row0,
                .by = {computed->format, &ng_formats[computed->format], cast,
                       cast->rounding == NG_RN_EVEN || cast->rounding == NG_RN_AWAY}};
    tally->has_bound = truth->bound != NULL;
    return measure_all(&work, measure_row, threads, tally);
}

ng_status ng_tally_add_codes(ng_tally *tally, const ng_tensor *computed, const ng_tensor *expected, bool nan_is_nan,
                             int64_t row0, int threads) {
    job work = {.computed = computed, .expected = expected, .nan_is_nan = nan_is_nan, .row0 = row0,
                .by = {.id = computed->format, .format = &ng_formats[computed->format]}};
    tally->has_bound = true;
    return measure_all(&work, measure_code_row, threads, tally);
}

ng_status ng_measure(const ng_tensor *computed, const ng_cast *cast, const ng_truth *truth, int threads,
                     ng_error_figures *figures, ng_power *power) {
    ng_tally tally;
    ng_tally_begin(&tally);
    ng_status status = ng_tally_add(&tally, computed, cast, truth, 0, threads);
    ng_tally_publish(&tally, computed->rows * computed->columns, figures, power);
    return status;
}

ng_status ng_measure_codes(const ng_tensor *computed, const ng_tensor *expected, bool nan_is_nan, int threads,
                           ng_error_figures *figures, ng_power *power) {
    ng_tally tally;
    ng_tally_begin(&tally);
    ng_status status = ng_tally_add_codes(&tally, computed, expected, nan_is_nan, 0, threads);
    ng_tally_publish(&tally, computed->rows * computed->columns, figures, power);
    return status;
}

/* ---- verdicts -----------------------------------------------------------------------------------------------------*/
static int severity(ng_verdict verdict) {
    return verdict == NG_FAIL ? 3 : verdict == NG_MOVED ? 2 : verdict == NG_VACUOUS ? 1 : 0;
}

void ng_accuse(ng_result *result, ng_verdict verdict, const char *format, ...) {
    if (severity(verdict) < severity(result->verdict)) return;
    if (severity(verdict) > severity(result->verdict)) result->reason[0] = 0;
    result->verdict = verdict;
    size_t used = strlen(result->reason);
    if (used && used + 2 < sizeof result->reason) used += (size_t)snprintf(result->reason + used, sizeof result->reason - used, "; ");
    va_list arguments;
    va_start(arguments, format);
    if (used < sizeof result->reason) vsnprintf(result->reason + used, sizeof result->reason - used, format, arguments);
    va_end(arguments);
}

void ng_accuse_figures(ng_result *result, const char *what, const ng_error_figures *f) {
    long long i = (long long)f->worst[0], j = (long long)f->worst[1];
    if (f->nonfinite_mismatch)
        ng_accuse(result, NG_FAIL, "%s[%lld][%lld] is %g, exact %g: %lld elements differ in NaN, infinity or the sign of a zero",
                  what, i, j, f->worst_computed, f->worst_exact, (long long)f->nonfinite_mismatch);
    if (f->beyond_bound)
        ng_accuse(result, NG_FAIL, "%s[%lld][%lld] is %.9g, exact %.9g, bound %.3g: %lld of %lld elements beyond it, by a factor of up to %.4g",
                  what, i, j, f->worst_computed, f->worst_exact, f->worst_bound, (long long)f->beyond_bound,
                  (long long)f->checked, f->bound_ratio);
}

void ng_accuse_powerless(ng_result *result, const ng_error_figures *figures, const ng_power *power) {
    if (!figures->checked) ng_accuse(result, NG_VACUOUS, "no element was checked");
    else if (!power->bounded) ng_accuse(result, NG_VACUOUS, "every bound is infinite: no result could have failed");
    else if (!power->zero_rejected)
        ng_accuse(result, NG_VACUOUS, "a result of zeros would have passed: no exact value is further from zero than its bound");
}
