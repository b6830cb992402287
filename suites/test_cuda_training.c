/* Training on a GPU: a recorded step replayed, launched kernel by kernel, and gone on with after a restart give the same bits; binary64 gives the CPU's.
 * Without a GPU each row is skipped with the reason. */
#include "kernels/catalogue.h"
#include "suites/test.h"
#include "suites/training/run.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

typedef struct bench {
    ng_engine engine;
    ng_run_settings settings;
    ng_source_text source;
    ng_layout layout;
    ng_seed_data data;
} bench;

static void bench_open(bench *b, ng_backend backend, bool no_replay) {
    static const ng_kernel *kernels[4096];
    const ng_catalogue catalogue = {kernels, ng_builtin_kernels(kernels, COUNT(kernels))};
    const ng_source_options options = {NULL, 1, 64, 2, 6};
    ng_error error = {0};
    *b = (bench){.settings = {.shape = {2, 128, 4, 256, 64, 8, 64, false, true}, .steps = 6, .evaluations = 1, .rate = 0.003, .loss_weight = 1, .beta_1 = 0.9,
                              .beta_2 = 0.95, .epsilon = 1e-12, .decay = 0.1, .max_norm = 1, .no_replay = no_replay}};
    if (ng_engine_open(backend, 0, 2, &catalogue, &b->engine, &error)) cr_skip_test("%s", error.text);
    cr_assert_eq(ng_source_create(&options, &b->source, NULL), NG_OK);
    cr_assert_eq(ng_layout_create(&b->settings.shape, &b->layout, NULL), NG_OK);
    cr_assert_eq(ng_seed_data_create(&b->settings, &b->layout, &b->source, 5, &b->data, NULL), NG_OK);
}

static void bench_close(bench *b) {
    ng_seed_data_free(&b->data);
    ng_layout_free(&b->layout);
    ng_source_free(&b->source);
    ng_engine_close(&b->engine);
}

static void begin(bench *b, const char *name, ng_runner *r) {
    ng_error error = {0};
    ng_recipe_choice c;
    cr_assert_eq(ng_recipe_parse(name, &c, &error), NG_OK, "%s", error.text);
    cr_assert_eq(ng_runner_create(&b->engine, &c, &b->settings, r, &error), NG_OK, "%s: %s", name, error.text);
    cr_assert_eq(ng_runner_begin(r, &b->data, NULL, &error), NG_OK, "%s: %s", name, error.text);
}

/* Losses and weights after the steps, with a restart from the run's state after `stop` of them. */
static void train(bench *b, const char *name, int64_t stop, double *losses, float *weights) {
    ng_error error = {0};
    ng_curve curve = {0};
    ng_runner r;
    begin(b, name, &r);
    cr_assert_eq(ng_curve_create(&b->settings, &curve, &error), NG_OK);
    if (stop) {
        cr_assert_eq(ng_runner_advance(&r, stop, &curve, &error), NG_OK, "%s: %s", name, error.text);
        void *state = malloc(ng_runner_state_bytes(&r));
        cr_assert_eq(ng_runner_save(&r, state, &error), NG_OK);
        ng_runner_destroy(&r);
        begin(b, name, &r);
        cr_assert_eq(ng_runner_restore(&r, state, stop, &error), NG_OK);
        free(state);
    }
    cr_assert_eq(ng_runner_advance(&r, b->settings.steps, &curve, &error), NG_OK, "%s: %s", name, error.text);
    memcpy(losses, curve.losses, sizeof *losses * (size_t)b->settings.steps);
    cr_assert_eq(ng_runner_weights(&r, weights, &error), NG_OK);
    ng_curve_free(&curve);
    ng_runner_destroy(&r);
}

static void same_bits(void) {
    static const char *const names[] = {"fp32", "tf32", "bf16", "bf16:unfused", "fp16", "fp8-delayed", "fp8-current", "fp8-128", "mxfp8", "nvfp4"};
    bench replayed, launched;
    bench_open(&replayed, NG_BACKEND_CUDA, false);
    bench_open(&launched, NG_BACKEND_CUDA, true);
    const size_t bytes = sizeof(float) * (size_t)replayed.layout.total;
    float *a = malloc(bytes), *b = malloc(bytes);
    for (size_t i = 0; i < COUNT(names); i++) {
        double first[6], second[6];
        train(&replayed, names[i], 0, first, a);
        train(&launched, names[i], 3, second, b);
        cr_expect(!memcmp(first, second, sizeof first) && !memcmp(a, b, bytes), "%s: other bits", names[i]);
    }
    free(a);
    free(b);
    bench_close(&replayed);
    bench_close(&launched);
}

static void binary64(void) {
    bench gpu, cpu;
    bench_open(&gpu, NG_BACKEND_CUDA, false);
    bench_open(&cpu, NG_BACKEND_CPU, false);
    const size_t bytes = sizeof(float) * (size_t)gpu.layout.total;
    float *a = malloc(bytes), *b = malloc(bytes);
    double first[6], second[6];
    train(&gpu, "fp64", 0, first, a);
    train(&cpu, "fp64", 0, second, b);
    cr_expect(!memcmp(first, second, sizeof first) && !memcmp(a, b, bytes), "losses %a and %a", first[5], second[5]);
    free(a);
    free(b);
    bench_close(&gpu);
    bench_close(&cpu);
}

const ng_test ng_tests[] = {
    {"cuda training", "replayed, launched and restarted runs have the same bits", same_bits, 0},
    {"cuda training", "binary64 has the CPU's bits", binary64, 0},
};
const size_t ng_test_count = COUNT(ng_tests);
