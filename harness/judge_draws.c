/* Do the random words that a kernel draws itself look uniform and independent? Each result tells which way an element went;
 * the exact probability is known. Sums of (up - p) over many elements are close to normal with known variance, so a sum beyond 7.5 of
 * its standard deviations happens to a right kernel once in 10^13 sums. Taken per sixteenth of p (always down, coarse
 * randomness, a wrong form show), and over products of elements a given distance apart (shared or correlated words show). */
#include "harness/judge_internal.h"
#include "reference/round.h"

#include <math.h>
#include <stdlib.h>

enum { BINS = 16, LAGS = 7 };
static const int64_t lags[LAGS] = {1, 2, 3, 4, 8, 16, 32};
static const double most_sigma = 7.5, least_variance = 64;

typedef struct draw {
    float deviation, variance; /* up - p; p (1 - p); both 0 where nothing is random */
} draw;

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

ng_status ng_check_draws(const ng_tensor *source, const ng_tensor *out, const ng_cast *cast, ng_result *result,
                         double *randomness, ng_error *error) {
    int64_t count = source->rows * source->columns, impossible = 0;
    double sum[BINS] = {0}, variance[BINS] = {0};
    *randomness = 0;
    draw *draws = calloc((size_t)count + 1, sizeof *draws);
    if (!draws) return ng_fail(error, NG_NO_MEMORY, "no memory to look at random draws");
    for (int64_t k = 0; k < count; k++) {
        double p;
        bool up, possible;
        bool random = probability(source, out, cast, k / source->columns, k % source->columns, &p, &up, &possible);
        impossible += !possible;
        if (!random) continue;
        int bin = (int)(p * BINS);
        draws[k] = (draw){(float)((up ? 1 : 0) - p), (float)(p * (1 - p))};
        sum[bin] += draws[k].deviation;
        variance[bin] += draws[k].variance;
        *randomness += draws[k].variance;
    }
    if (impossible) ng_accuse(result, NG_FAIL, "%lld elements went where no random word leads", (long long)impossible);
    for (int b = 0; b < BINS; b++)
        if (sigmas(sum[b], variance[b]) > most_sigma) {
            ng_accuse(result, NG_FAIL, "elements that round up with a probability in [%d/16, %d/16) do so too %s: %.0f standard deviations off",
                      b, b + 1, sum[b] > 0 ? "often" : "seldom", sigmas(sum[b], variance[b]));
            break;
        }
    for (int l = 0; l < LAGS; l++) {
        double together = 0, spread = 0;
        for (int64_t k = 0; k + lags[l] < count; k++) {
            together += (double)draws[k].deviation * draws[k + lags[l]].deviation;
            spread += (double)draws[k].variance * draws[k + lags[l]].variance;
        }
        if (sigmas(together, spread) > most_sigma) {
            ng_accuse(result, NG_FAIL, "elements %d apart round together: their draws are correlated, %.0f standard deviations off",
                      (int)lags[l], sigmas(together, spread));
            break;
        }
    }
    free(draws);
    return NG_OK;
}
