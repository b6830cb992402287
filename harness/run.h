/* Runs a list of cases in worker processes: each gets a verdict, whatever it does to its process. */
#ifndef NG_HARNESS_RUN_H
#define NG_HARNESS_RUN_H

#include "harness/expectation.h"
#include "harness/golden.h"
#include "harness/worker.h"

/* What the caller hears: before a case begins, and with its result. Anything but NG_OK from `finished` ends the run. */
typedef struct ng_run_events {
    void *context;
    void (*started)(void *context, size_t index);
    ng_status (*finished)(void *context, size_t index, const ng_result *result, ng_error *error);
    void (*remark)(void *context, const char *text); /* what belongs to no case */
} ng_run_events;

typedef struct ng_run_plan {
    const ng_case_list *list;
    const ng_settings *settings;
    const ng_catalogue *catalogue;
    const ng_judge_functions *judge;
    const bool *done; /* [list->count]: cases that have a verdict already; NULL: none */
    const ng_goldens *goldens;           /* NULL: none */
    const ng_expectations *expectations; /* NULL: none */
    /* Failures that nothing expects are run again in a fresh process: one that then passes is a flake. At most NG_MOST_RETRIES
     * of a run: where more fail, chance is not to blame. */
    bool retry;
} ng_run_plan;
enum { NG_MOST_RETRIES = 20 };

/* Runs what is not done, in the list's order. interrupted: the signal that ended the run early, 0 if it went to its end.
 * The calling process must have no other threads; its signal mask is as before afterwards. */
ng_status ng_run_cases(const ng_run_plan *plan, const ng_run_events *events, int *interrupted, ng_error *error);

#endif
