#include "harness/timing.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double ng_now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The q-quantile of sorted samples, linear between neighbours. */
static double quantile(const double *sorted, int count, double q) {
    double place = q * (count - 1);
    int i = (int)place;
    if (i + 1 >= count) return sorted[count - 1];
    return sorted[i] + (place - i) * (sorted[i + 1] - sorted[i]);
}

void ng_timing_publish(double *samples, int count, ng_timing *timing) {
    qsort(samples, (size_t)count, sizeof *samples, ascending);
    timing->q1_s = quantile(samples, count, 0.25);
    timing->median_s = quantile(samples, count, 0.5);
    timing->q3_s = quantile(samples, count, 0.75);
    timing->samples = count;
}

ng_status ng_time(ng_timed run, void *context, int parts, double limit_s, ng_timing *timing, ng_error *error) {
    double part_s[NG_TIMING_PARTS] = {0};
    memset(timing, 0, sizeof *timing);
    double(*samples)[NG_TIMING_SAMPLES] = malloc(sizeof(double[NG_TIMING_SAMPLES]) * (size_t)(parts + 1));
    if (!samples) return ng_fail(error, NG_NO_MEMORY, "no memory for timing samples");
    ng_status status = run(context, 0, part_s); /* warm-up: page faults, caches, clock */
    double start = ng_now_s();
    int n = 0;
    while (!status && n < NG_TIMING_SAMPLES) {
        double from = ng_now_s();
        if (n >= 3 && from - start > limit_s) break;
        status = run(context, n + 1, part_s);
        samples[parts][n] = ng_now_s() - from;
        for (int p = 0; p < parts; p++)
            samples[p][n] = part_s[p];
        n++;
    }
    if (!status) {
        for (int p = 0; p < parts; p++) {
            qsort(samples[p], (size_t)n, sizeof(double), ascending);
            timing->part_s[p] = quantile(samples[p], n, 0.5);
        }
        ng_timing_publish(samples[parts], n, timing);
    }
    free(samples);
    return status;
}

/* ---- ceilings -----------------------------------------------------------------------------------------------------*/
enum { COPY_BYTES = 1 << 26, CHAINS = 12, LANES = 8, STEPS = 1 << 18 };

static double copy_rate(int threads, char *from, char *to) {
    double best = INFINITY;
    for (int round = 0; round < 3; round++) {
        double start = ng_now_s();
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int part = 0; part < threads; part++) {
            size_t begin = (size_t)COPY_BYTES / (size_t)threads * (size_t)part;
            memcpy(to + begin, from + begin, (size_t)COPY_BYTES / (size_t)threads);
        }
        double took = ng_now_s() - start;
        if (took < best) best = took;
    }
    return 2.0 * COPY_BYTES / best;
}

typedef float lanes __attribute__((vector_size(4 * LANES)));

/* CHAINS independent chains hide the latency of the unit; the operands keep every value near 1. */
#define FMA_BODY(STEP)                                                                                                 \
    lanes x[CHAINS];                                                                                                   \
    for (int c = 0; c < CHAINS; c++)                                                                                   \
        x[c] = (lanes){0} + (float)c;                                                                                  \
    lanes a = (lanes){0} + 0.5f, b = (lanes){0} + 0.25f;                                                               \
    for (int i = 0; i < STEPS; i++) {                                                                                  \
        for (int c = 0; c < CHAINS; c++)                                                                               \
            x[c] = STEP(x[c], a, b);                                                                                   \
        __asm__ volatile("" : "+m"(*keep));                                                                           \
    }                                                                                                                  \
    for (int c = 0; c < CHAINS; c++)                                                                                   \
        *keep += x[c][0];

#define MUL_ADD(X, A, B) ((X) * (A) + (B))
static void fma_portable(float *keep) { FMA_BODY(MUL_ADD) }

#if defined __x86_64__
#include <immintrin.h>
#define FMA_AVX2(X, A, B) ((lanes)_mm256_fmadd_ps((__m256)(X), (__m256)(A), (__m256)(B)))
__attribute__((target("avx2,fma"))) static void fma_avx2(float *keep) { FMA_BODY(FMA_AVX2) }
#endif

static double fma_rate(int threads) {
    void (*run)(float *) = fma_portable;
#if defined __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) run = fma_avx2;
#endif
    double best = INFINITY;
    for (int round = 0; round < 3; round++) {
        double start = ng_now_s();
#pragma omp parallel num_threads(threads)
        {
            float keep = 0;
            run(&keep);
        }
        double took = ng_now_s() - start;
        if (took < best) best = took;
    }
    return 2.0 * LANES * CHAINS * (double)STEPS * threads / best;
}

ng_status ng_measure_ceilings(int threads, ng_ceilings *ceilings, ng_error *error) {
    char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
    ng_status status = NG_OK;
    if (!from || !to) {
        status = ng_fail(error, NG_NO_MEMORY, "no memory to measure the copy bandwidth");
        goto done;
    }
    memset(from, 1, COPY_BYTES);
    memset(to, 2, COPY_BYTES);
    ceilings->copy_bytes_s = copy_rate(threads, from, to);
    ceilings->fma_flop_s = fma_rate(threads);
done:
    free(from);
    free(to);
    return status;
}
