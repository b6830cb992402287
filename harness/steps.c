/* Mann-Whitney statistics of all splits of a family of intervals, with proved tail bounds, the narrowest interval first.
 *
 * Of m values after a split and k before it, U counts the pairs in which the later value is larger (ties: a half). If the m + k
 * values are exchangeable and distinct, E exp(s U) is the Gaussian binomial coefficient over the ordinary one (Mann and Whitney,
 * Ann. Math. Stat. 18, 1947; Andrews, The Theory of Partitions, ch. 3):
 *     E exp(s (U - m k / 2)) = prod_{i=1..m} [sinh(s (k + i) / 2) / (k + i)] / [sinh(s i / 2) / i],
 * so P(|U - m k / 2| >= d) <= 2 exp(-s d) times that, for any s > 0 (Chernoff). With ties, U is the mean of U over random orders
 * of the tied values, which is such a U; exp is convex, so by Jensen's inequality the bound holds as well. Where all later values
 * lie on one side, the best s gives 2 / C(m + k, m), the exact probability.
 *
 * The intervals are those of seeded binary segmentation (Kovacs et al., Biometrika 110, 2023): lengths n, 0.7 n, 0.49 n, ... each
 * overlapping by half, the last of a length ending with the series. With T splits looked at in all, one is an alarm where its bound is at
 * most false_alarms / T; the union bound gives the rate, also of stretches beside true steps. Of overlapping alarms the
 * narrowest interval says where the step is (Baranowski, Chen and Fryzlewicz, J. R. Stat. Soc. B 81, 2019). */
#include "harness/steps.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_SIDE = 3, LEAST_LENGTH = 8 };

/* ---- one split ----------------------------------------------------------------------------------------------------*/
/* log(sinh(x) / x), x > 0 */
static double log_sinh_over(double x) {
    if (x < 1e-3) return x * x / 6;
    return x + log1p(-exp(-2 * x)) - log(2 * x);
}

static double exponent(size_t m, size_t k, double s, double distance) {
    double sum = -s * distance;
    for (size_t i = 1; i <= m; i++)
        sum += log_sinh_over(0.5 * s * (double)(k + i)) - log_sinh_over(0.5 * s * (double)i);
    return sum;
}

double ng_rank_sum_tail(size_t m, size_t k, double distance) {
    const double golden = 0.6180339887498949;
    if (m > k) return ng_rank_sum_tail(k, m, distance);
    if (!m || distance <= 0) return 1;
    /* The exponent is convex in s; any s is valid, the best one only makes the bound sharper. */
    double low = log(1e-6), high = log(60.0), left = high - golden * (high - low), right = low + golden * (high - low);
    double at_left = exponent(m, k, exp(left), distance), at_right = exponent(m, k, exp(right), distance);
    for (int i = 0; i < 40; i++) {
        if (at_left < at_right) {
            high = right, right = left, at_right = at_left;
            left = high - golden * (high - low);
            at_left = exponent(m, k, exp(left), distance);
        } else {
            low = left, left = right, at_left = at_right;
            right = low + golden * (high - low);
            at_right = exponent(m, k, exp(right), distance);
        }
    }
    double p = 2 * exp(fmin(at_left, at_right));
    return p < 1 ? p : 1;
}

/* ---- all splits of an interval ------------------------------------------------------------------------------------*/
typedef struct placed {
    double value;
    size_t index;
} placed;

typedef struct alarm {
    size_t begin, end, at;
    double p;
} alarm;

static int by_value(const void *a, const void *b) {
    const placed *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

/* ranks[i] of values[i], from 1; equal values share the mean of theirs. */
static void rank_values(const double *values, size_t count, placed *sorted, double *ranks) {
    for (size_t i = 0; i < count; i++)
        sorted[i] = (placed){values[i], i};
    qsort(sorted, count, sizeof *sorted, by_value);
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && sorted[end].value == sorted[i].value;)
            end++;
        for (size_t j = i; j < end; j++)
            ranks[sorted[j].index] = 0.5 * (double)(i + 1 + end);
    }
}

/* The most unlikely split of values[begin, end). */
static alarm look(const double *values, size_t begin, size_t end, placed *sorted, double *ranks) {
    size_t n = end - begin;
    alarm worst = {begin, end, begin, 1};
    double sum = 0, best = 0, distance = 0;
    rank_values(values + begin, n, sorted, ranks);
    for (size_t k = 1; k < n; k++) {
        size_t m = n - k;
        sum += ranks[k - 1];
        if (k < LEAST_SIDE || m < LEAST_SIDE) continue;
        double mk = (double)m * (double)k;
        double d = fabs(sum - 0.5 * (double)k * (double)(k + 1) - 0.5 * mk);
        double z = d / sqrt(mk * (double)(n + 1) / 12);
        if (z <= best) continue;
        best = z;
        distance = d;
        worst.at = begin + k;
    }
    /* The largest z alone is judged: leaving others out can only lose an alarm. Below 2.5 none is near one. */
    if (best > 2.5) worst.p = ng_rank_sum_tail(end - worst.at, worst.at - begin, distance);
    return worst;
}

static size_t interval_count(size_t n, size_t length) { return length == n ? 1 : (2 * n + length - 1) / length; }

static size_t interval_begin(size_t n, size_t length, size_t i) {
    size_t count = interval_count(n, length);
    return count < 2 ? 0 : i * (n - length) / (count - 1);
}

static int narrowest_first(const void *a, const void *b) {
    const alarm *x = a, *y = b;
    size_t wide_x = x->end - x->begin, wide_y = y->end - y->begin;
    if (wide_x != wide_y) return wide_x < wide_y ? -1 : 1;
    if (x->p != y->p) return x->p < y->p ? -1 : 1;
    return x->begin < y->begin ? -1 : 1;
}

static int by_place(const void *a, const void *b) {
    const ng_step *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const double *values, size_t begin, size_t end, double *scratch) {
    size_t n = end - begin;
    memcpy(scratch, values + begin, n * sizeof *scratch);
    qsort(scratch, n, sizeof *scratch, by_size);
    return n % 2 ? scratch[n / 2] : 0.5 * (scratch[n / 2 - 1] + scratch[n / 2]);
}

/* |U - m k / 2| of values[middle, end) against values[begin, middle). */
static double distance_of(const double *values, size_t begin, size_t middle, size_t end) {
    double u = 0;
    for (size_t i = middle; i < end; i++)
        for (size_t j = begin; j < middle; j++)
            u += values[i] > values[j] ? 1 : values[i] == values[j] ? 0.5 : 0;
    return fabs(u - 0.5 * (double)(end - middle) * (double)(middle - begin));
}

/* Levels on either side of each step. Two overlapping intervals may place one true step twice, a few values apart; the stretches
 * between such places do not differ. The least of those that do not stand against both neighbours, or are too small, is dropped. */
static size_t measure(const double *values, size_t count, double least, double *scratch, ng_step *steps, size_t step_count) {
    enum { NONE = -1 };
    const double doubtful = 0.05;
    qsort(steps, step_count, sizeof *steps, by_place);
    for (;;) {
        ptrdiff_t weakest = NONE;
        double weakest_p = 0;
        for (size_t i = 0; i < step_count; i++) {
            size_t begin = i ? steps[i - 1].at : 0, end = i + 1 < step_count ? steps[i + 1].at : count;
            steps[i].before = median_of(values, begin, steps[i].at, scratch);
            steps[i].after = median_of(values, steps[i].at, end, scratch);
            bool small = fabs(steps[i].after - steps[i].before) < least * fabs(steps[i].before);
            double p = ng_rank_sum_tail(end - steps[i].at, steps[i].at - begin, distance_of(values, begin, steps[i].at, end));
            if ((p <= doubtful && !small) || p <= weakest_p) continue;
            weakest = (ptrdiff_t)i;
            weakest_p = p;
        }
        if (weakest == NONE) return step_count;
        memmove(steps + weakest, steps + weakest + 1, (step_count - (size_t)weakest - 1) * sizeof *steps);
        step_count--;
    }
}

/* Where between its neighbours each step is: ranks favour even splits, and may place it a few values inwards. With the levels that were
 * found, the place is that of the least sum of distances from them; what was found to be a step stays one. */
static void sharpen(const double *values, size_t count, double *scratch, ng_step *steps, size_t step_count) {
    for (size_t s = 0; s < step_count; s++) {
        size_t begin = s ? steps[s - 1].at : 0, end = s + 1 < step_count ? steps[s + 1].at : count, best = steps[s].at;
        double gained = 0, most = -HUGE_VAL;
        for (size_t i = begin; i < end; i++) {
            if (i >= begin + LEAST_SIDE && i + LEAST_SIDE <= end && gained > most) {
                most = gained;
                best = i;
            }
            gained += fabs(values[i] - steps[s].after) - fabs(values[i] - steps[s].before);
        }
        steps[s].at = best;
        steps[s].before = median_of(values, begin, best, scratch);
        steps[s].after = median_of(values, best, end, scratch);
    }
}

ng_status ng_find_steps(const double *values, size_t count, double false_alarms, double least, ng_step **steps, size_t *step_count,
                        ng_error *error) {
    size_t intervals = 0, looks = 0, alarms = 0;
    ng_status status = NG_OK;
    *steps = NULL;
    *step_count = 0;
    for (size_t length = count; length >= LEAST_LENGTH; length = length * 7 / 10) {
        intervals += interval_count(count, length);
        looks += interval_count(count, length) * (length + 1 - 2 * LEAST_SIDE);
    }
    if (!intervals) return NG_OK;
    alarm *found = calloc(intervals, sizeof *found);
    placed *sorted = calloc(count, sizeof *sorted);
    double *scratch = calloc(count, sizeof *scratch);
    *steps = calloc(intervals, sizeof **steps);
    if (!found || !sorted || !scratch || !*steps) {
        status = ng_fail(error, NG_NO_MEMORY, "out of memory");
        goto done;
    }
    for (size_t length = count; length >= LEAST_LENGTH; length = length * 7 / 10)
        for (size_t i = 0; i < interval_count(count, length); i++) {
            size_t begin = interval_begin(count, length, i);
            found[alarms] = look(values, begin, begin + length, sorted, scratch);
            alarms += found[alarms].p <= false_alarms / (double)looks;
        }
    qsort(found, alarms, sizeof *found, narrowest_first);
    for (size_t i = 0; i < alarms; i++) {
        size_t s = 0;
        while (s < *step_count && !(found[i].begin < (*steps)[s].at && (*steps)[s].at < found[i].end))
            s++;
        if (s == *step_count) (*steps)[(*step_count)++] = (ng_step){found[i].at, 0, 0, found[i].p};
    }
    *step_count = measure(values, count, least, scratch, *steps, *step_count);
    sharpen(values, count, scratch, *steps, *step_count);
done:
    free(found);
    free(sorted);
    free(scratch);
    if (status) {
        free(*steps);
        *steps = NULL;
        *step_count = 0;
    }
    return status;
}
