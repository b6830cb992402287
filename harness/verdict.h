/* From numbers to a verdict: error figures of a computed tensor against the exact result and its bound, and what they mean.
 *
 * Accuracy rule. With c the exact value, B the bound on the sum before the result's cast, a computed y passes iff
 * cast(c - B) <= y <= cast(c + B) (ng_accepted_interval). Writing [L, H] for that interval, bound_ratio is
 *     |y - c| / (edge - c) on y's side of c,
 * where the upper edge is the real number at which rejection begins: the midpoint of H and the next number of the format
 * under rounding to nearest, that next number under any other rounding (the lower edge likewise). It grows with |y - c|,
 * is at most 1/2 for a correctly rounded result where B = 0, and is >= 1 iff y is rejected: the comparison decides, and the
 * quotient, computed in binary64, is kept on its side of 1. Where bits must agree (B has no meaning), it is 0 for equal
 * codes, else the distance in units of the last place, at least 1.
 *
 * Results that differ in kind (NaN, infinity, the sign of a zero whose sign is certain) are counted apart and always fail.
 * Elements whose bound is infinite (an intermediate overflow is possible) are counted, and can't fail.
 *
 * Sums run over fixed chunks of rows that are added in order: figures don't depend on the number of threads. */
#ifndef NG_HARNESS_VERDICT_H
#define NG_HARNESS_VERDICT_H

#include "harness/result.h"

typedef struct ng_truth {
    const double *high, *low; /* [rows][columns] exact value; low NULL: 0 */
    const double *bound;      /* [rows][columns] or NULL: none, figures only */
    const double *expected;   /* the expected bound, NaN where none; or NULL */
} ng_truth;

/* What a comparison could have found. */
typedef struct ng_power {
    int64_t bounded;       /* elements that had a finite bound, or had to agree bit for bit */
    int64_t zero_rejected; /* elements for which a zero would have been rejected */
} ng_power;

/* Figures of the computed host tensor. NG_NO_MEMORY is the only failure. */
ng_status ng_measure(const ng_tensor *computed, const ng_cast *cast, const ng_truth *truth, int threads,
                     ng_error_figures *figures, ng_power *power);

/* Figures where the codes must agree. Same shape and format. Any NaN stands for any other iff nan_is_nan. */
ng_status ng_measure_codes(const ng_tensor *computed, const ng_tensor *expected, bool nan_is_nan, int threads,
                           ng_error_figures *figures, ng_power *power);

/* The same over a tensor that is looked at piece by piece: begin, add each piece (its first row is row0 of the whole), then
 * publish. Pieces are rows of one width. */
typedef struct ng_tally {
    double max_abs, max_rel, max_ulp, ratio, expected_ratio;
    double sum_e2, sum_c2, sum_signed, sum_abs;
    double worst_key; /* what `worst` is the place of: the ratio where there is one, else |error|; -1: nothing yet */
    double worst_computed, worst_exact, worst_bound;
    int64_t worst_row, worst_column, nonfinite, beyond, bounded, zero_rejected, checked;
    bool has_bound;
} ng_tally;

void ng_tally_begin(ng_tally *tally);
ng_status ng_tally_add(ng_tally *tally, const ng_tensor *computed, const ng_cast *cast, const ng_truth *truth,
                       int64_t row0, int threads);
ng_status ng_tally_add_codes(ng_tally *tally, const ng_tensor *computed, const ng_tensor *expected, bool nan_is_nan,
                             int64_t row0, int threads);
void ng_tally_publish(const ng_tally *tally, int64_t elements, ng_error_figures *figures, ng_power *power);

/* Lowers the verdict (pass > vacuous > moved > fail) and appends the reason. */
void ng_accuse(ng_result *result, ng_verdict verdict, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Accuses where the figures say so; `what` names the tensor. */
void ng_accuse_figures(ng_result *result, const char *what, const ng_error_figures *figures);

/* A comparison that could not have failed: nothing compared, every bound infinite, or zeros everywhere accepted. Only where no other
 * comparison of the case (a prediction) could have. */
void ng_accuse_powerless(ng_result *result, const ng_error_figures *figures, const ng_power *power);

#endif
