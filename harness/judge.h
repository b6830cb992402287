/* From a case to a result: data, launch, reference, prediction, verdict. One driver an operation; the table in judge.c. */
#ifndef NG_HARNESS_JUDGE_H
#define NG_HARNESS_JUDGE_H

#include "harness/result.h"

typedef struct ng_catalogue { /* every kernel that this run knows: the program's own, then plug-ins' */
    const ng_kernel *const *kernels;
    size_t count;
} ng_catalogue;

/* A tensor that a kernel wrote, beside what it should hold, for whoever measures by other rules. */
typedef struct ng_observation {
    const ng_case *one;
    ng_role role;
    const ng_tensor *computed; /* of the first launch, in host memory */
    const ng_tensor *expected; /* the same shape and format; NULL: see exact */
    const double *exact;       /* [rows][columns], before its rounding into the format */
} ng_observation;

typedef struct ng_settings {
    uint64_t seed;
    int threads;             /* CPU threads; 0: all */
    bool full;               /* check whole products even where a sample would do */
    bool timing;             /* measure speed (>= 30 samples or time_limit_s a case) */
    double time_limit_s;     /* a case's budget for timing */
    double timeout_s;        /* a case's limit; 0: none */
    bool variants;           /* all of a kernel's algorithms, not the first alone */
    bool warm_cache;         /* do not rotate buffers */
    const char *save_directory; /* operands and outputs of failing (or all) cases go here; NULL: nowhere */
    bool save_always;
    int device;              /* CUDA ordinal */
    bool verify_on_cpu;      /* never let the GPU be its own witness */
    const struct ng_runtime *runtime; /* of the GPU; NULL: the one that the program was built with */
    /* Called with every tensor that is compared with a reference, in the process that judges; NULL: nobody. */
    void (*observe)(void *context, const ng_observation *observation);
    void *observer;
} ng_settings;

/* What cases of one process share: settings, catalogue, caches (tensor maxima, exact products of the last operands),
 * measured ceilings. Created once a process; freed at its end. */
typedef struct ng_judge ng_judge;

ng_status ng_judge_create(const ng_settings *settings, const ng_catalogue *catalogue, ng_judge **judge, ng_error *error);
void ng_judge_free(ng_judge *judge);

/* Runs one case. Returns NG_OK with result->verdict set whenever a verdict could be given (fail and skip included);
 * anything else means that the harness itself failed, with the reason in *error. */
ng_status ng_judge_case(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);

#endif
