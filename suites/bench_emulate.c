/* Speed of bit-exact tensor cores on one CPU core: the emulated kernels (kernels/cpu/mma.c) and the integer predictor
 * (reference/predict.c), beside the core's own FMA rate. Exit status 1 where a floor is missed.
 * Run: meson test -C build --benchmark emulate */
#include "kernels/catalogue.h"
#include "reference/gemm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { M = 384, N = 384, K = 2048, RUNS = 5, FMA_CHAINS = 12, FMA_LANES = 8 };

/* Multiply-adds a second and core. A predictor without a floor is measured and reported only. */
static const struct row {
    const char *label, *kernel;
    double floor_avx2, floor_avx512, predictor_floor;
} table[] = {
    {"fp8 hopper-promoted", "gemm/e4m3/cpu/hopper-promoted/fp32-out", 1e9, 3e9, 1e9},
    {"fp8 hopper-fast", "gemm/e4m3/cpu/hopper-fast/fp32-out", 1e9, 3e9, 1e9},
    {"fp8 hopper 1x128 by 128x128", "gemm/e4m3-128/cpu/hopper/bf16-out", 1e9, 3e9, 1e9},
    {"fp8 hopper hybrid", "gemm/fp8-hybrid/cpu/hopper-promoted/bf16-out", 1e9, 3e9, 1e9},
    {"fp8 ada", "gemm/e4m3/cpu/ada/fp32-out", 1e9, 3e9, 1e9},
    {"fp8 blackwell", "gemm/e4m3/cpu/blackwell/fp32-out", 1e9, 3e9, 0},
    {"bf16 hopper", "gemm/bf16/cpu/hopper/fp32-out", 3e8, 3e8, 3e8},
    {"fp16 hopper", "gemm/fp16/cpu/hopper/fp32-out", 3e8, 3e8, 3e8},
    {"tf32 hopper", "gemm/tf32/cpu/hopper/fp32-out", 3e8, 3e8, 3e8},
    {"bf16 ampere", "gemm/bf16/cpu/ampere/fp32-out", 3e8, 3e8, 3e8},
    {"tf32 ampere", "gemm/tf32/cpu/ampere/fp32-out", 3e8, 3e8, 0},
    {"fp16 volta", "gemm/fp16/cpu/volta/fp32-out", 3e8, 3e8, 0},
    {"mxfp8 blackwell", "gemm/mxfp8/cpu/blackwell/fp32-out", 3e8, 3e8, 0},
    {"nvfp4 blackwell", "gemm/nvfp4/cpu/blackwell/fp32-out", 3e8, 3e8, 0},
};

/* CPU time: everything here runs on one thread, and other load on the machine should not count. */
static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Independent chains, enough to hide the latency of an FMA. */
typedef float lanes __attribute__((vector_size(4 * FMA_LANES)));
#if defined(__x86_64__)
#include <immintrin.h>
__attribute__((target("avx2,fma"))) static float fma_chains(int64_t rounds) {
    __m256 s[FMA_CHAINS];
    for (int c = 0; c < FMA_CHAINS; c++)
        s[c] = _mm256_set1_ps((float)c);
    const __m256 x = _mm256_set1_ps(0x1.fffp-1f), y = _mm256_set1_ps(0x1p-10f);
    for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 12
        for (int c = 0; c < FMA_CHAINS; c++)
            s[c] = _mm256_fmadd_ps(s[c], x, y);
    float total = 0;
    for (int c = 0; c < FMA_CHAINS; c++)
        total += _mm256_cvtss_f32(s[c]);
    return total;
}
#else
static float fma_chains(int64_t rounds) {
    lanes s[FMA_CHAINS] = {{0}};
    for (int64_t r = 0; r < rounds; r++)
        for (int c = 0; c < FMA_CHAINS; c++)
            s[c] = s[c] * 0x1.fffp-1f + 0x1p-10f;
    float total = 0;
    for (int c = 0; c < FMA_CHAINS; c++)
        total += s[c][0];
    return total;
}
#endif

static double fma_rate(void) {
    const int64_t rounds = 20000000;
    volatile float sink = fma_chains(rounds / 10);
    double start = now_s();
    sink = fma_chains(rounds);
    (void)sink;
    return (double)rounds * FMA_CHAINS * FMA_LANES / (now_s() - start);
}

static const ng_kernel *find(const char *name) {
    static const ng_kernel *kernels[4096];
    size_t count = ng_builtin_kernels(kernels, sizeof kernels / sizeof *kernels);
    for (size_t i = 0; i < count && i < sizeof kernels / sizeof *kernels; i++)
        if (!strcmp(kernels[i]->name, name)) return kernels[i];
    return NULL;
}

static bool new_tensor(ng_tensor *t, ng_format_id format, int64_t rows, int64_t columns) {
    *t = (ng_tensor){.format = format, .rows = rows, .columns = columns, .row_bytes = ng_row_bytes(format, columns)};
    t->data = calloc((size_t)(rows * t->row_bytes), 1);
    return t->data;
}

/* Codes of moderate numbers of either sign, scales near 1. */
static bool new_operand(const ng_quantization *q, int64_t rows, uint32_t seed, ng_operand *o) {
    *o = (ng_operand){.blocks = q->blocks, .tensor_scale = 1};
    if (!new_tensor(&o->codes, q->element, rows, K)) return false;
    const ng_format *f = &ng_formats[q->element];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < K; k++) {
            seed = seed * 1664525 + 1013904223;
            uint64_t field = f->exponent_bits < 4 ? seed >> 8 & 3 : (uint64_t)f->bias - 3 + (seed >> 8 & 3);
            uint64_t mantissa = (seed >> 12) & ((1u << f->mantissa_bits) - 1);
            uint64_t code = ((uint64_t)(seed >> 31) << f->exponent_bits | field) << f->mantissa_bits | mantissa;
            ng_set_code(&o->codes, i, k, q->element == NG_TF32 ? code << 13 : code);
        }
    if (q->rule == NG_SCALE_ABSENT) return true;
    if (!new_tensor(&o->scales, q->scale, ng_block_count(q->blocks.rows, rows), ng_block_count(q->blocks.columns, K))) return false;
    for (int64_t i = 0; i < o->scales.rows; i++)
        for (int64_t j = 0; j < o->scales.columns; j++)
            ng_set_code(&o->scales, i, j, q->scale == NG_FP32 ? 0x3F912345 : q->scale == NG_E8M0 ? 126 + (i + j) % 4 : 0x35 + (i + j) % 8);
    return true;
}

static ng_status emulate(const ng_kernel *kernel, const ng_operand *a, const ng_operand *b, const ng_tensor *out) {
    ng_problem problem = {.op = NG_OP_GEMM, .m = M, .n = N, .k = K};
    ng_device device = {.backend = NG_BACKEND_CPU, .threads = 1};
    float one = 1;
    ng_launch launch = {.problem = &problem, .device = &device};
    launch.tensors[NG_A] = a->codes, launch.tensors[NG_A_SCALES] = a->scales;
    launch.tensors[NG_B] = b->codes, launch.tensors[NG_B_SCALES] = b->scales;
    launch.tensors[NG_A_TENSOR_SCALE] = launch.tensors[NG_B_TENSOR_SCALE] = (ng_tensor){&one, NG_FP32, NG_HOST, 1, 1, 4};
    launch.tensors[NG_OUT] = *out;
    return kernel->launch(kernel, &launch);
}

/* The best of RUNS; a negative rate: it could not be run. */
static double rate_of(const ng_kernel *kernel, bool predictor, const ng_operand *a, const ng_operand *b, ng_tensor *out) {
    double best = INFINITY;
    for (int run = 0; run < RUNS; run++) {
        double start = now_s();
        ng_status status = predictor ? ng_predict_gemm(&kernel->contract.sum, &kernel->contract.cast, a, b, NULL, 1, out, NULL)
                                     : emulate(kernel, a, b, out);
        if (status) return -1;
        best = fmin(best, now_s() - start);
        if (best > 1) break;
    }
    return (double)M * N * K / best;
}

static bool report(const char *what, const char *label, double rate, double floor, double fma) {
    printf("%s %s: %.2g multiply-adds/s/core ", what, label, rate);
    if (floor > 0) printf("(floor %.2g)", floor);
    else printf("(no floor)");
    printf(", machine FMA %.2g/s%s\n", fma, rate < floor ? "  MISSED" : "");
    fflush(stdout);
    return rate >= floor;
}

static bool measure(const struct row *row, bool avx2, bool avx512, double fma) {
    const ng_kernel *kernel = find(row->kernel);
    if (!kernel) {
        printf("%s: no such kernel\n", row->kernel);
        return false;
    }
    ng_operand a = {0}, b = {0};
    ng_tensor out[2] = {{0}};
    bool good = false;
    if (!new_operand(&kernel->contract.a, M, 1, &a) || !new_operand(&kernel->contract.b, N, 2, &b) ||
        !new_tensor(&out[0], kernel->out, M, N) || !new_tensor(&out[1], kernel->out, M, N)) {
        printf("%s: no memory\n", row->kernel);
        goto done;
    }
    double floor = avx512 ? row->floor_avx512 : avx2 ? row->floor_avx2 : 0;
    good = report("emulate", row->label, rate_of(kernel, false, &a, &b, &out[0]), floor, fma);
    good &= report("predict", row->label, rate_of(kernel, true, &a, &b, &out[1]), avx2 ? row->predictor_floor : 0, fma);
    if (memcmp(out[0].data, out[1].data, (size_t)(M * out[0].row_bytes))) {
        printf("%s: emulation and prediction differ\n", row->kernel);
        good = false;
    }
done:
    free(a.codes.data);
    free(a.scales.data);
    free(b.codes.data);
    free(b.scales.data);
    free(out[0].data);
    free(out[1].data);
    return good;
}

int main(void) {
    bool avx2 = false, avx512 = false, good = true;
#if defined(__x86_64__)
    avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (!avx2) {
        printf("no AVX2 on this machine: no floor applies, nothing measured\n");
        return 77; /* meson: skipped */
    }
#endif
    double fma = fma_rate();
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        good &= measure(&table[i], avx2, avx512, fma);
    return good ? 0 : 1;
}
