#include "suites/training_test.h"

#include "kernels/catalogue.h"
#include "suites/test.h"

#include <stdlib.h>
#include <string.h>

ng_catalogue ng_test_catalogue(void) {
    static const ng_kernel *kernels[4096];
    const size_t count = ng_builtin_kernels(kernels, sizeof kernels / sizeof *kernels);
    cr_assert(count <= sizeof kernels / sizeof *kernels);
    return (ng_catalogue){kernels, count};
}

void ng_bench_open(ng_bench *b, ng_backend backend, int threads, const ng_run_settings *settings, uint64_t seed) {
    const ng_catalogue catalogue = ng_test_catalogue();
    const ng_source_options options = {NULL, 1, (int32_t)settings->shape.vocabulary, 2, 4};
    ng_error error = {0};
    *b = (ng_bench){.settings = *settings};
    ng_status status = ng_engine_open(backend, 0, threads, &catalogue, &b->engine, &error);
    if (status && backend == NG_BACKEND_CUDA) cr_skip_test("%s", error.text);
    cr_assert_eq(status, NG_OK, "%s", error.text);
    cr_assert_eq(ng_source_create(&options, &b->source, NULL), NG_OK);
    cr_assert_eq(ng_layout_create(&b->settings.shape, &b->layout, NULL), NG_OK);
    cr_assert_eq(ng_seed_data_create(&b->settings, &b->layout, &b->source, seed, &b->data, NULL), NG_OK);
}

void ng_bench_close(ng_bench *b) {
    ng_seed_data_free(&b->data);
    ng_layout_free(&b->layout);
    ng_source_free(&b->source);
    ng_engine_close(&b->engine);
}

void ng_bench_begin(ng_bench *b, const char *name, ng_runner *r) {
    ng_error error = {0};
    ng_recipe_choice c;
    cr_assert_eq(ng_recipe_parse(name, &c, &error), NG_OK, "%s", error.text);
    cr_assert_eq(ng_runner_create(&b->engine, &c, &b->settings, r, &error), NG_OK, "%s: %s", name, error.text);
    cr_assert_eq(ng_runner_begin(r, &b->data, NULL, &error), NG_OK, "%s: %s", name, error.text);
}

void ng_bench_train(ng_bench *b, const char *name, int64_t stop, double *losses, float *weights) {
    ng_error error = {0};
    ng_curve curve = {0};
    ng_runner r;
    ng_bench_begin(b, name, &r);
    cr_assert_eq(ng_curve_create(&b->settings, &curve, &error), NG_OK);
    if (stop) {
        cr_assert_eq(ng_runner_advance(&r, stop, &curve, &error), NG_OK, "%s: %s", name, error.text);
        void *state = malloc(ng_runner_state_bytes(&r));
        cr_assert(state);
        cr_assert_eq(ng_runner_save(&r, state, &error), NG_OK);
        ng_runner_destroy(&r);
        ng_bench_begin(b, name, &r);
        cr_assert_eq(ng_runner_restore(&r, state, stop, &error), NG_OK);
        free(state);
    }
    cr_assert_eq(ng_runner_advance(&r, b->settings.steps, &curve, &error), NG_OK, "%s: %s", name, error.text);
    memcpy(losses, curve.losses, sizeof *losses * (size_t)b->settings.steps);
    cr_assert_eq(ng_runner_weights(&r, weights, &error), NG_OK);
    ng_curve_free(&curve);
    ng_runner_destroy(&r);
}
