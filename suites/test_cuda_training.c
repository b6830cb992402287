/* Training on a GPU: a recorded step replayed, launched kernel by kernel, and gone on with after a restart give the same bits; binary64 gives the CPU's.
 * Without a GPU each row is skipped with the reason. */
#include "suites/test.h"
#include "suites/training_test.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

static void open_bench(ng_bench *b, ng_backend backend, bool no_replay) {
    const ng_run_settings settings = {.shape = {2, 128, 4, 256, 64, 8, 64, false, true}, .steps = 6, .evaluations = 1, .rate = 0.003, .loss_weight = 1, .beta_1 = 0.9,
                                      .beta_2 = 0.95, .epsilon = 1e-12, .decay = 0.1, .max_norm = 1, .no_replay = no_replay};
    ng_bench_open(b, backend, 2, &settings, 5);
}

static void same_bits(void) {
    static const char *const names[] = {"fp32", "tf32", "bf16", "bf16:unfused", "fp16", "fp8-delayed", "fp8-current", "fp8-128", "mxfp8", "nvfp4"};
    ng_bench replayed, launched;
    open_bench(&replayed, NG_BACKEND_CUDA, false);
    open_bench(&launched, NG_BACKEND_CUDA, true);
    const size_t bytes = sizeof(float) * (size_t)replayed.layout.total;
    float *a = malloc(bytes), *b = malloc(bytes);
    for (size_t i = 0; i < COUNT(names); i++) {
        double first[6], second[6];
        ng_bench_train(&replayed, names[i], 0, first, a);
        ng_bench_train(&launched, names[i], 3, second, b);
        cr_expect(!memcmp(first, second, sizeof first) && !memcmp(a, b, bytes), "%s: other bits", names[i]);
    }
    free(a);
    free(b);
    ng_bench_close(&replayed);
    ng_bench_close(&launched);
}

static void binary64(void) {
    ng_bench gpu, cpu;
    open_bench(&gpu, NG_BACKEND_CUDA, false);
    open_bench(&cpu, NG_BACKEND_CPU, false);
    const size_t bytes = sizeof(float) * (size_t)gpu.layout.total;
    float *a = malloc(bytes), *b = malloc(bytes);
    double first[6], second[6];
    ng_bench_train(&gpu, "fp64", 0, first, a);
    ng_bench_train(&cpu, "fp64", 0, second, b);
    cr_expect(!memcmp(first, second, sizeof first) && !memcmp(a, b, bytes), "losses %a and %a", first[5], second[5]);
    free(a);
    free(b);
    ng_bench_close(&gpu);
    ng_bench_close(&cpu);
}

const ng_test ng_tests[] = {
    {"cuda training", "replayed, launched and restarted runs have the same bits", same_bits, 0},
    {"cuda training", "binary64 has the CPU's bits", binary64, 0},
};
const size_t ng_test_count = COUNT(ng_tests);
