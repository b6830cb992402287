/* What the tests of training share: a model, its language and a seed on one engine, and a run of it. */
#ifndef NG_SUITES_TRAINING_TEST_H
#define NG_SUITES_TRAINING_TEST_H

#include "suites/training/run.h"

typedef struct ng_bench {
    ng_engine engine;
    ng_run_settings settings;
    ng_source_text source;
    ng_layout layout;
    ng_seed_data data;
} ng_bench;

ng_catalogue ng_test_catalogue(void); /* the built-in kernels */

/* Skips the test where the backend is CUDA and there is no GPU. */
void ng_bench_open(ng_bench *bench, ng_backend backend, int threads, const ng_run_settings *settings, uint64_t seed);
void ng_bench_close(ng_bench *bench);

/* A runner of the recipe at its seed's first step. */
void ng_bench_begin(ng_bench *bench, const char *recipe, ng_runner *runner);
/* Losses [steps] and weights [layout.total] after all steps; stop > 0: by a run that ends there and one that goes on from its state. */
void ng_bench_train(ng_bench *bench, const char *recipe, int64_t stop, double *losses, float *weights);

#endif
