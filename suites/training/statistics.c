#include "suites/training/statistics.h"

#include "kernels/common/fp64.h"

#include <math.h>

const char *const ng_gap_verdict_names[3] = {"inconclusive", "pass", "fail"};
const char *const ng_divergence_names[4] = {"converges", "loss not finite", "loss explodes", "loss stalls"};

static const double pi = 0x1.921fb54442d18p+1;

/* ---- distributions ------------------------------------------------------------------------------------------------*/
/* Halved three times, atan x = 2 atan(x / (1 + sqrt(1 + x^2))), then its series: |x| < 0.1 gives 2^-53 with nine terms. */
static double arc_tangent(double x) {
    double scale = 1, sum = 0;
    for (; scale < 16; scale *= 2)
        x = x / (1 + sqrt(1 + x * x));
    for (int k = 19; k >= 1; k -= 2)
        sum = 1.0 / k - x * x * sum;
    return scale * x * sum;
}

double ng_student_cdf(double t, int degrees) {
    if (t != t || degrees < 1) return NAN;
    double root = t / sqrt((double)degrees);
    if (isinf(t) || isinf(root * root)) return t > 0 ? 1 : 0;
    double cosine2 = 1 / (1 + root * root), sine = root * sqrt(cosine2), cosine = sqrt(cosine2), term = degrees % 2 ? cosine : 1, sum = 0;
    for (int k = degrees % 2 ? 3 : 2; k <= degrees; k += 2) {
        sum += term;
        term *= cosine2 * (k - 1) / k;
    }
    double a = degrees % 2 ? 2 / pi * (arc_tangent(root) + sine * sum) : sine * sum;
    return 0.5 * (1 + a);
}

double ng_student_quantile(double p, int degrees) {
    double low = -1, high = 1;
    if (!(p > 0 && p < 1) || degrees < 1) return NAN;
    while (ng_student_cdf(low, degrees) > p && low > -1e300)
        low *= 2;
    while (ng_student_cdf(high, degrees) < p && high < 1e300)
        high *= 2;
    for (int i = 0; i < 200 && low < high; i++) {
        double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high) break;
        if (ng_student_cdf(middle, degrees) < p) low = middle;
        else high = middle;
    }
    return high;
}

double ng_normal_cdf(double z) {
    if (z != z) return z;
    if (z < -38) return 0;
    if (z > 9) return 1;
    double density = ng_exp64(-0.5 * z * z) / 2.5066282746310002;
    if (z < -6) return density / -z * (1 - 1 / (z * z)); /* a tail so small that its first terms do */
    double sum = z, term = z;
    for (int k = 3; k < 400 && fabs(term) > 1e-18 * fabs(sum); k += 2) {
        term *= z * z / k;
        sum += term;
    }
    return 0.5 + sum * density;
}

/* Power = E[Phi(shift sqrt n - t S)], S^2 chi-squared over its degrees: Simpson's rule over S with weight S^(v-1) exp(-v S^2 / 2), normalised
 * by the same rule, so that no gamma function is needed. */
double ng_test_power(double shift, int n, double alpha) {
    if (n < 2) return 0;
    const int v = n - 1, steps = 100;
    const double t = ng_student_quantile(1 - alpha, v), root = sqrt((double)n), width = 8 / sqrt(2.0 * v), h = width / steps;
    const double from = 1 - width / 2 > 0 ? 1 - width / 2 : 0;
    double total = 0, sum = 0;
    for (int i = 0; i <= 2 * steps; i++) {
        double s = from + h * i, weight = i == 0 || i == 2 * steps ? 1 : i % 2 ? 4 : 2;
        if (s <= 0) {
            weight *= v == 1 ? 1 : 0;
            s = 0;
        } else weight *= ng_exp64((v - 1) * ng_log(s) - 0.5 * v * (s * s - 1));
        total += weight;
        sum += weight * ng_normal_cdf(shift * root - t * s);
    }
    return sum / total;
}

/* ---- the test -----------------------------------------------------------------------------------------------------*/
static int seeds_for(double shift, double alpha, double power) {
    if (!(shift > 0)) return 0;
    for (int n = 2; n <= 1000; n = n < 40 ? n + 1 : n + n / 20)
        if (ng_test_power(shift, n, alpha) >= power) return n;
    return 0;
}

static double shift_for(int n, double alpha, double power) {
    double low = 0, high = 1;
    while (ng_test_power(high, n, alpha) < power && high < 1e6)
        high *= 2;
    for (int i = 0; i < 40; i++) {
        double middle = 0.5 * (low + high);
        if (ng_test_power(middle, n, alpha) < power) low = middle;
        else high = middle;
    }
    return high;
}

void ng_gap_of(const double *gaps, int n, double delta, double alpha, double power, ng_gap *gap) {
    double sum = 0, squares = 0;
    *gap = (ng_gap){.n = n, .mean = NAN, .deviation = NAN, .low = NAN, .high = NAN, .p_not_worse = 1, .p_worse = 1,
                    .p_not_worse_holm = 1, .p_worse_holm = 1, .detectable = NAN};
    for (int i = 0; i < n; i++)
        sum += gaps[i];
    if (n > 0) gap->mean = sum / n;
    if (n < 2) return;
    for (int i = 0; i < n; i++)
        squares += (gaps[i] - gap->mean) * (gaps[i] - gap->mean);
    gap->deviation = sqrt(squares / (n - 1));
    const double error = gap->deviation / sqrt((double)n), half = ng_student_quantile(1 - alpha / 2, n - 1) * error;
    gap->low = gap->mean - half;
    gap->high = gap->mean + half;
    gap->detectable = shift_for(n, alpha, power) * gap->deviation;
    if (error > 0) {
        gap->p_not_worse = ng_student_cdf((gap->mean - delta) / error, n - 1);
        gap->p_worse = ng_student_cdf((delta - gap->mean) / error, n - 1);
        gap->seeds_needed = seeds_for(0.5 * delta / gap->deviation, alpha, power);
    } else { /* the same gap from every seed, zero for two equal recipes */
        gap->p_not_worse = gap->mean < delta ? 0 : 1;
        gap->p_worse = gap->mean > delta ? 0 : 1;
        gap->seeds_needed = 2;
    }
}

/* Holm 1979: p-values ascending, the k-th times (count - k), never less than the one before. */
static void correct(ng_gap *const *gaps, size_t count, size_t from, size_t to) {
#define MEMBER(gap, offset) (*(double *)((char *)(gap) + (offset)))
    double floor_ = 0;
    for (size_t rank = 0; rank < count; rank++) {
        size_t best = count;
        for (size_t i = 0; i < count; i++)
            if (MEMBER(gaps[i], to) < 0 && (best == count || MEMBER(gaps[i], from) < MEMBER(gaps[best], from))) best = i;
        double p = MEMBER(gaps[best], from) * (double)(count - rank);
        floor_ = p > floor_ ? p : floor_;
        MEMBER(gaps[best], to) = floor_ < 1 ? floor_ : 1;
    }
#undef MEMBER
}

void ng_holm(ng_gap *const *gaps, size_t count, double alpha) {
    for (size_t i = 0; i < count; i++)
        gaps[i]->p_not_worse_holm = gaps[i]->p_worse_holm = -1;
    correct(gaps, count, offsetof(ng_gap, p_not_worse), offsetof(ng_gap, p_not_worse_holm));
    correct(gaps, count, offsetof(ng_gap, p_worse), offsetof(ng_gap, p_worse_holm));
    for (size_t i = 0; i < count; i++)
        gaps[i]->verdict = gaps[i]->p_not_worse_holm <= alpha ? NG_GAP_PASS
                           : gaps[i]->p_worse_holm <= alpha   ? NG_GAP_FAIL
                                                              : NG_GAP_INCONCLUSIVE;
}

/* ---- divergence ---------------------------------------------------------------------------------------------------*/
enum { SMOOTH = 8, WINDOW = 16, LEAST_STEPS = 32 };

static double median_before(const double *norms, int step) {
    double sorted[WINDOW];
    for (int i = 0; i < WINDOW; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > norms[step - WINDOW + i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = norms[step - WINDOW + i];
    }
    return 0.5 * (sorted[WINDOW / 2 - 1] + sorted[WINDOW / 2]);
}

void ng_health_of(const double *losses, const double *norms, int steps, ng_health *health) {
    double sum = 0, least = INFINITY;
    *health = (ng_health){NG_CONVERGES, -1, 0};
    for (int i = WINDOW; i < steps; i++)
        health->gradient_outliers += isfinite(norms[i]) && norms[i] > 10 * median_before(norms, i);
    for (int i = 0; i < steps; i++) {
        if (!isfinite(losses[i])) {
            *health = (ng_health){NG_LOSS_NOT_FINITE, i, health->gradient_outliers};
            return;
        }
        sum += losses[i] - (i >= SMOOTH ? losses[i - SMOOTH] : 0);
        if (i < SMOOTH - 1) continue;
        double mean = sum / SMOOTH;
        least = mean < least ? mean : least;
        if (mean > 1.1 * losses[0] || mean > least + 0.5 * losses[0]) {
            *health = (ng_health){NG_LOSS_EXPLODES, i, health->gradient_outliers};
            return;
        }
    }
    if (steps >= LEAST_STEPS && sum / SMOOTH > 0.99 * losses[0]) *health = (ng_health){NG_LOSS_STALLS, steps - 1, health->gradient_outliers};
}
