/* Steps in a series of measurements in time order: where its level changed, with a proved rate of false alarms. */
#ifndef NG_HARNESS_STEPS_H
#define NG_HARNESS_STEPS_H

#include "harness/error.h"

#include <stddef.h>

typedef struct ng_step {
    size_t at;            /* the first value of the new level */
    double before, after; /* medians of the stretches on either side, up to the next steps */
    double p;             /* of such a split of a stretch without a step, at most; before the correction for many looks */
} ng_step;

/* Finds steps in values[0 .. count), finite numbers. A stretch whose values are exchangeable (in any order equally likely) is
 * accused of a step with a probability of at most `false_alarms`, over all stretches of the series together, wherever true steps
 * may be. Steps of less than `least` (0.02: 2 per cent of the level) are left out. The steps are to be freed, in time order. */
ng_status ng_find_steps(const double *values, size_t count, double false_alarms, double least, ng_step **steps, size_t *step_count,
                        ng_error *error);

/* An upper bound on P(|U - m k / 2| >= distance) for Mann and Whitney's U of m and k exchangeable values. */
double ng_rank_sum_tail(size_t m, size_t k, double distance);

#endif
