/* Whether a recipe is worse than its baseline by more than delta, from paired runs: same seed, same initial weights, same batches.
 *
 * x_i is seed i's relative gap (loss of the recipe - loss of the baseline) / loss of the baseline. With n seeds, mean m and standard
 * deviation s, t = (m - delta) / (s / sqrt n) is tested one-sidedly against Student's t with n - 1 degrees of freedom:
 *     H0: the true gap is delta or more. Rejected: not worse, `pass`.
 *     The mirrored test (the true gap is delta or less) rejected: worse, `fail`. Neither: `inconclusive`.
 * Holm's step-down keeps the probability of one false `pass` among all recipes of a run below alpha; the same for `fail`.
 * Everything here is our own arithmetic: the same bits on every machine. */
#ifndef NG_SUITES_TRAINING_STATISTICS_H
#define NG_SUITES_TRAINING_STATISTICS_H

#include <stddef.h>

/* P(T <= t), T Student's with `degrees` >= 1 (Abramowitz and Stegun 26.7.3, 26.7.4); its inverse, 0 < p < 1. */
double ng_student_cdf(double t, int degrees);
double ng_student_quantile(double p, int degrees);
/* P(Z <= z) of the standard normal (Marsaglia 2004); its inverse. */
double ng_normal_cdf(double z);

typedef enum ng_gap_verdict { NG_GAP_INCONCLUSIVE, NG_GAP_PASS, NG_GAP_FAIL } ng_gap_verdict;
extern const char *const ng_gap_verdict_names[3];

typedef struct ng_gap {
    int n;                /* pairs with a finite loss on both sides */
    double mean, deviation;
    double low, high;     /* two-sided interval of confidence 1 - alpha */
    double p_not_worse;   /* one-sided p-value of H0 "gap >= delta": small is good */
    double p_worse;       /* one-sided p-value of "gap <= delta": small is bad */
    double p_not_worse_holm, p_worse_holm; /* corrected, set by ng_holm */
    double detectable;    /* the smallest excess over delta, or the largest below it, that n seeds tell with the stated power */
    int seeds_needed;     /* for that power if the true gap is half of delta and the spread is s; 0: more than 1000 */
    ng_gap_verdict verdict;
} ng_gap;

/* Of pairs [n]; n < 2 gives NaN intervals and `inconclusive`. */
void ng_gap_of(const double *gaps, int n, double delta, double alpha, double power, ng_gap *gap);

/* Holm's correction over the recipes of a run, [count], and the verdicts. */
void ng_holm(ng_gap *const *gaps, size_t count, double alpha);

/* The power of the one-sided t test of level alpha when the true mean is `shift` standard deviations from the tested one: the noncentral t
 * distribution, integrated numerically over the sample's deviation. */
double ng_test_power(double shift, int n, double alpha);

/* ---- divergence ---------------------------------------------------------------------------------------------------*/
typedef enum ng_divergence { NG_CONVERGES, NG_LOSS_NOT_FINITE, NG_LOSS_EXPLODES, NG_LOSS_STALLS } ng_divergence;
extern const char *const ng_divergence_names[4];

typedef struct ng_health {
    ng_divergence divergence;
    int step;               /* where it shows; -1 */
    int gradient_outliers;  /* steps whose gradient norm is more than 10 times the median of the 16 before */
} ng_health;

/* Of a run's losses and gradient norms [steps]. Explodes: the mean of 8 losses in a row is above the first loss by 10 %, or above the least
 * such mean so far by half of the first loss. Stalls: after 32 steps or more, the last 8 are not below the first loss by 1 %. */
void ng_health_of(const double *losses, const double *norms, int steps, ng_health *health);

#endif
