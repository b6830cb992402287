/* Do the random words that a kernel draws itself look uniform and independent? Each result tells which way an element went;
 * the exact probability is known. Sums of (up - p) over many elements are close to normal with known variance, so a sum beyond 7.5 of
 * its standard deviations happens to a right kernel once in 10^13 sums. Taken per sixteenth of p (always down, coarse
 * randomness, a wrong form show), over all elements (so does a small shift of every p), and over products of elements a given
 * distance or a row apart, or of an element and its transposed copy (shared or correlated words show). */
#include "harness/judge_internal.h"
#include "reference/round.h"

#include <math.h>
#include <stdlib.h>

enum { BINS = 16 };
static const double most_sigma = 7.5, least_variance = 64;

static bool probability(const ng_tensor *source, const ng_tensor *out, const ng_cast *cast, int64_t i, int64_t j, double *p, bool *up,
                        bool *possible) {
    double x = ng_get_value(source, i, j), y = ng_get_value(out, i, j), magnitude = fabs(y);
    *possible = true;
    if (!isfinite(x)) return false;
    uint64_t ups = ng_round_up_count(out->format, x, cast);
    ng_cast down = *cast;
    down.rounding = NG_R_ZERO;
    double below = fabs(ng_decode(out->format, ng_round(out->format, x, &down, 0)));
    *p = ldexp((double)ups, -cast->random_bits);
    *up = magnitude > below;
    *possible = *p <= 0 ? !*up : *p >= 1 ? *up : magnitude >= below;
    return *p > 0 && *p < 1;
}

static double sigmas(double sum, double variance) { return variance < least_variance ? 0 : fabs(sum) / sqrt(variance); }

/* Bernstein's inequality for independent terms within [-1, 1] and a variance of at least least_variance: a sum beyond
 * t = most_sigma standard deviations has probability at most 2 exp(-t^2 / 2 / (1 + t / (3 s))), s = sqrt(least_variance). Some 64
 * sums are looked at: bins, all, distances, other seeds and other steps, both copies. */
/* Sums of products of two deviations have terms that are independent in the mean only: there it is an estimate, which 1,000 right runs bear out. */
enum { SUMS = 64 };
static double false_alarm(void) {
    return SUMS * 2 * exp(-most_sigma * most_sigma / 2 / (1 + most_sigma / (3 * sqrt(least_variance))));
}

/* Found 999 times in 1,000: 3.1 standard deviations beyond the alarm. */
static void publish(double all, double variance, const ng_draw *draws, int64_t count, ng_result *result) {
    ng_draw_figures *f = &result->stochastic;
    double sigma;
    *f = (ng_draw_figures){.present = true, .analytic_bias_ulp = NAN, .measured_bias_ulp = NAN, .shift = NAN, .alarm = NAN, .detectable = NAN,
                           .false_alarm = false_alarm()};
    for (int64_t k = 0; k < count; k++)
        f->draws += draws[k].variance > 0;
    if (!f->draws) return;
    sigma = sqrt(variance) / (double)f->draws;
    f->shift = all / (double)f->draws;
    if (variance < least_variance) return;
    f->alarm = most_sigma * sigma;
    f->detectable = (most_sigma + 3.1) * sigma;
}

static void check_bins(const ng_draw *draws, int64_t count, ng_result *result, double *randomness) {
    double sum[BINS] = {0}, variance[BINS] = {0}, all = 0;
    *randomness = 0;
    for (int64_t k = 0; k < count; k++) {
        double deviation = (double)draws[k].deviation, p = deviation > 0 ? 1 - deviation : -deviation;
        int bin = (int)(p * BINS);
        if (draws[k].variance <= 0) continue;
        sum[bin] += deviation;
        variance[bin] += (double)draws[k].variance;
    }
    for (int b = 0; b < BINS; b++) {
        all += sum[b];
        *randomness += variance[b];
    }
    publish(all, *randomness, draws, count, result);
    for (int b = 0; b < BINS; b++)
        if (sigmas(sum[b], variance[b]) > most_sigma) {
            ng_accuse(result, NG_FAIL, "elements that round up with a probability in [%d/16, %d/16) do so too %s: %.0f standard deviations off",
                      b, b + 1, sum[b] > 0 ? "often" : "seldom", sigmas(sum[b], variance[b]));
            return;
        }
    if (sigmas(all, *randomness) > most_sigma) /* a small shift of every probability */
        ng_accuse(result, NG_FAIL, "elements round up too %s, all taken together: %.0f standard deviations off", all > 0 ? "often" : "seldom",
                  sigmas(all, *randomness));
}

void ng_check_draw_list(const ng_draw *draws, int64_t count, int64_t columns, ng_result *result, double *randomness) {
    const int64_t lags[] = {1, 2, 3, 4, 8, 16, 32, columns, 2 * columns};
    check_bins(draws, count, result, randomness);
    for (size_t l = 0; l < sizeof lags / sizeof *lags; l++) {
        double together = 0, spread = 0;
        for (int64_t k = 0; k + lags[l] < count; k++) {
            together += (double)draws[k].deviation * (double)draws[k + lags[l]].deviation;
            spread += (double)draws[k].variance * (double)draws[k + lags[l]].variance;
        }
        if (sigmas(together, spread) > most_sigma) {
            ng_accuse(result, NG_FAIL, "elements %lld apart round together: their draws are correlated, %.0f standard deviations off",
                      (long long)lags[l], sigmas(together, spread));
            return;
        }
    }
}

void ng_check_draw_lists(const ng_draw *draws, const ng_draw *others, int64_t count, const char *other, ng_result *result) {
    static const int64_t lags[] = {0, 1, 4, 16}; /* the same place; streams that overlap by an element, a call or several */
    for (size_t l = 0; l < sizeof lags / sizeof *lags; l++) {
        double together = 0, spread = 0;
        for (int64_t k = 0; k + lags[l] < count; k++) {
            together += (double)draws[k + lags[l]].deviation * (double)others[k].deviation;
            spread += (double)draws[k + lags[l]].variance * (double)others[k].variance;
        }
        if (sigmas(together, spread) <= most_sigma) continue;
        ng_accuse(result, NG_FAIL, "elements round as elements %lld on do with %s: their draws are correlated, %.0f standard deviations off",
                  (long long)lags[l], other, sigmas(together, spread));
        return;
    }
}

void ng_check_draw_pairs(const ng_draw *draws, const ng_draw *others, int64_t rows, int64_t columns, ng_result *result) {
    double together = 0, spread = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const ng_draw *a = &draws[i * columns + j], *b = &others[j * rows + i];
            together += (double)a->deviation * (double)b->deviation;
            spread += (double)a->variance * (double)b->variance;
        }
    if (sigmas(together, spread) > most_sigma)
        ng_accuse(result, NG_FAIL, "an element and its transposed copy round together: their draws are correlated, %.0f standard deviations off",
                  sigmas(together, spread));
}

/* The exact fraction of a step by which |x| exceeds the number below it; NaN: no step. */
static double fraction_of(ng_format_id format, double x, const ng_cast *cast) {
    ng_cast toward = *cast, away = *cast;
    toward.rounding = NG_R_ZERO;
    away.rounding = NG_R_AWAY;
    double below = fabs(ng_decode(format, ng_round(format, x, &toward, 0))), above = fabs(ng_decode(format, ng_round(format, x, &away, 0)));
    return isfinite(above) && above > below && fabs(x) >= below ? (fabs(x) - below) / (above - below) : NAN;
}

void ng_draws_of_cast(const ng_tensor *source, const ng_tensor *out, const ng_cast *cast, ng_draw *draws, ng_result *result) {
    int64_t count = source->rows * source->columns, impossible = 0;
    for (int64_t k = 0; k < count; k++) {
        double p;
        bool up, possible;
        bool random = probability(source, out, cast, k / source->columns, k % source->columns, &p, &up, &possible);
        impossible += !possible;
        draws[k] = random ? (ng_draw){(float)((up ? 1 : 0) - p), (float)(p * (1 - p))} : (ng_draw){0, 0};
    }
    if (impossible) ng_accuse(result, NG_FAIL, "%lld elements went where no random word leads", (long long)impossible);
}

/* Over everything that lies between two numbers, that which goes down for certain included. */
static void publish_bias(const ng_tensor *source, const ng_tensor *out, const ng_cast *cast, ng_draw_figures *figures) {
    double analytic = 0, measured = 0;
    int64_t between = 0;
    for (int64_t k = 0; k < source->rows * source->columns; k++) {
        double x = ng_get_value(source, k / source->columns, k % source->columns), p = 0;
        bool up = false, possible;
        if (!isfinite(x)) continue;
        double d = fraction_of(out->format, x, cast);
        if (!(d > 0)) continue;
        probability(source, out, cast, k / source->columns, k % source->columns, &p, &up, &possible);
        between++;
        analytic += p - d;
        measured += (up ? 1 : 0) - d;
    }
    if (!between) return;
    figures->analytic_bias_ulp = analytic / (double)between;
    figures->measured_bias_ulp = measured / (double)between;
}

ng_status ng_check_draws(const ng_tensor *source, const ng_tensor *out, const ng_cast *cast, ng_result *result,
                         double *randomness, ng_error *error) {
    int64_t count = source->rows * source->columns;
    ng_draw *draws = calloc((size_t)count + 1, sizeof *draws);
    if (!draws) return ng_fail(error, NG_NO_MEMORY, "no memory to look at random draws");
    ng_draws_of_cast(source, out, cast, draws, result);
    ng_check_draw_list(draws, count, source->columns, result, randomness);
    publish_bias(source, out, cast, &result->stochastic);
    free(draws);
    return NG_OK;
}
