/* Whole products verified on a GPU: data made there against the CPU's, the certified product's figures against the CPU's, with and without
 * something planted; and the program itself, given a cuBLASLt that spoils one element of 4096 x 4096. Without a GPU each row is skipped. */
#include "harness/data_cuda.h"
#include "harness/buffers.h"
#include "harness/verdict.h"
#include "kernels/contracts.h"
#include "reference/exact_cuda.h"
#include "reference/gemm.h"
#include "suites/gpu_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* NG_PROGRAM, NG_BETWEEN: from meson.build. */
enum { THREADS = 2 };

static ng_tensor made(ng_format_id format, ng_distribution distribution, int64_t rows, int64_t columns, uint64_t seed) {
    const ng_data_spec spec = {.distribution = distribution, .seed = seed, .target = format, .whole_rows = rows, .whole_columns = columns};
    ng_tensor t = {0};
    ng_error error = {0};
    cr_assert(!ng_tensor_create(format, rows, columns, &t, &error), "%s", error.text);
    cr_assert(!ng_data_fill(&spec, 0, 0, &t, THREADS, &error), "%s", error.text);
    return t;
}

/* ---- data -----------------------------------------------------------------------------------------------------------*/
static void data_equal(void) {
    static const ng_format_id formats[] = {NG_FP32, NG_TF32, NG_BF16, NG_FP16};
    int compared = 0;
    ng_test_need_gpu(NULL, NULL);
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (int d = 0; d < NG_DISTRIBUTIONS; d++) {
            const ng_data_spec spec = {.distribution = (ng_distribution)d, .seed = 5, .target = formats[f], .whole_rows = 300, .whole_columns = 777};
            if (!ng_data_is_binary32(&spec)) continue;
            ng_tensor want = {0}, got = {0};
            ng_error error = {0};
            cr_assert(!ng_tensor_create(formats[f], 130, 501, &want, &error) && !ng_tensor_create(formats[f], 130, 501, &got, &error));
            cr_assert(!ng_data_fill(&spec, 17, 33, &want, THREADS, &error), "%s", error.text);
            ng_tensor gpu = ng_test_to_gpu(&got);
            ng_status status = ng_data_fill_cuda(&spec, 17, 33, &gpu, NULL, &error);
            if (status == NG_OK) {
                ng_test_cuda(cudaMemcpy(got.data, gpu.data, ng_test_bytes(&got), cudaMemcpyDeviceToHost));
                cr_expect(ng_tensor_equal(&want, &got), "format %d, distribution %d: the device's data differ", (int)formats[f], d);
                compared++;
            } else {
                cr_expect_eq(status, NG_UNSUPPORTED, "%s", error.text);
            }
            ng_tensor_free(&want);
            ng_tensor_free(&got);
            ng_test_cuda(cudaFree(gpu.data));
        }
    cr_assert(compared >= 20, "only %d compared", compared);
}

/* ---- the certified product ------------------------------------------------------------------------------------------*/
typedef struct problem {
    const char *name;
    ng_format_id format;
    int64_t m, n, k;
    ng_distribution distribution;
    const char *contract;
} problem;

static const problem problems[] = {
    {"bf16", NG_BF16, 96, 80, 520, NG_NORMAL, "cublaslt-hopper-bf16"},
    {"bf16 cancelling", NG_BF16, 65, 130, 777, NG_ILL_CONDITIONED, "cublaslt-hopper-bf16"},
    {"fp16", NG_FP16, 128, 64, 1040, NG_POSITIVE, "hopper-fp16"},
    {"tf32", NG_TF32, 33, 65, 97, NG_NORMAL, "hopper-tf32"},
    {"e4m3", NG_E4M3, 70, 66, 4096, NG_NORMAL, "cublaslt-hopper-fp8-promoted"},
};

typedef enum plant { NOTHING, BEYOND, NOT_A_NUMBER, PLANTS } plant;

/* OUT is the exact product rounded, with something planted in its middle; the two derivations must say the same of it. */
static void witness_one(const problem *p, plant planted) {
    const ng_named_contract *contract = ng_contract_by_name(p->contract);
    const ng_cast cast = {.rounding = NG_RN_EVEN};
    const int64_t middle = p->m / 2, column = p->n / 3, count = p->m * p->n;
    cr_assert(contract);
    ng_operand a = {.tensor_scale = 1}, b = a;
    ng_error error = {0};
    a.codes = made(p->format, p->distribution, p->m, p->k, 1);
    b.codes = made(p->format, p->distribution, p->n, p->k, 2);
    ng_exact_product exact = {0};
    cr_assert(!ng_exact_gemm(&a, &b, NULL, THREADS, &exact));
    double *bound = malloc(sizeof *bound * (size_t)count);
    ng_tensor out = {0};
    cr_assert(bound && !ng_tensor_create(NG_FP32, p->m, p->n, &out, &error));
    cr_assert(!ng_gemm_bound(&contract->sum, &a, &b, NULL, &exact, THREADS, bound, NULL));
    for (int64_t i = 0; i < count; i++) {
        float value = (float)exact.high[i];
        if (i == middle * p->n + column && planted == BEYOND) value += (float)(1.01 * bound[i]) + 0x1p-20f * fabsf(value);
        if (i == middle * p->n + column && planted == NOT_A_NUMBER) value = NAN;
        ((float *)out.data)[i] = value;
    }
    ng_error_figures cpu;
    ng_power power;
    ng_truth truth = {exact.high, exact.low, bound, NULL};
    cr_assert(!ng_measure(&out, &cast, &truth, THREADS, &cpu, &power));
    ng_operand da = a, db = b;
    da.codes = ng_test_to_gpu(&a.codes), db.codes = ng_test_to_gpu(&b.codes);
    ng_tensor gpu_out = ng_test_to_gpu(&out);
    ng_witness gpu;
    char message[256] = "";
    ng_status status = ng_witness_gemm_cuda(&contract->sum, &da, &db, NULL, &gpu_out, NULL, &gpu, message, sizeof message);
    cr_assert(status == NG_OK, "%s: %d %s", p->name, status, message);
    cr_expect_eq(gpu.checked, count, "%s: %lld of %lld elements", p->name, (long long)gpu.checked, (long long)count);
    cr_expect_eq(gpu.beyond, cpu.beyond_bound, "%s, planted %d: %lld beyond, the CPU %lld", p->name, (int)planted, (long long)gpu.beyond, (long long)cpu.beyond_bound);
    cr_expect_eq(gpu.beyond, planted == BEYOND, "%s, planted %d: %lld beyond", p->name, (int)planted, (long long)gpu.beyond);
    cr_expect_eq(gpu.nonfinite, planted == NOT_A_NUMBER, "%s, planted %d: %lld not finite", p->name, (int)planted, (long long)gpu.nonfinite);
    if (planted == BEYOND) cr_expect(gpu.worst_row == middle && gpu.worst_column == column, "%s: the worst at (%lld, %lld)", p->name, (long long)gpu.worst_row, (long long)gpu.worst_column);
    cr_expect(fabs(gpu.max_abs - cpu.max_abs) <= 0x1p-20 * cpu.max_abs + 0x1p-40, "%s, planted %d: largest error %g, the CPU's %g", p->name, (int)planted, gpu.max_abs, cpu.max_abs);
    ng_tensor_free(&a.codes), ng_tensor_free(&b.codes), ng_tensor_free(&out);
    ng_exact_product_free(&exact);
    free(bound);
    ng_test_cuda(cudaFree(da.codes.data)), ng_test_cuda(cudaFree(db.codes.data)), ng_test_cuda(cudaFree(gpu_out.data));
}

static void witness(void) {
    ng_test_need_gpu(NULL, NULL);
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        for (int planted = 0; planted < PLANTS; planted++)
            witness_one(&problems[i], (plant)planted);
}

/* ---- a library that spoils one element ------------------------------------------------------------------------------*/
static char said[1 << 16];

static int sh(const char *spoil, const char *filter) {
    char command[2048];
    snprintf(command, sizeof command, "exec 2>&1; NARROWGAUGE_SPOIL='%s' NARROWGAUGE_CUBLASLT='%s' '%s' run --backend cuda --level nightly --filter '%s' --no-speed --quiet --no-retry --goldens none",
             spoil, NG_BETWEEN, NG_PROGRAM, filter);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    size_t used = fread(said, 1, sizeof said - 1, pipe);
    said[used] = 0;
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void spoiled(void) {
    /* What an e4m3 product's bound lets pass, in an element far below its sum of magnitudes, only the prediction finds. */
    static const char one[] = "1 of 16777216 elements";
    static const struct { const char *spoil; int exit; const char *bf16, *e4m3; } rows[] = {
        {"", 0, "", ""},
        {"flip", 1, one, one},
        {"wrong", 1, "beyond it", one},
        {"large", 1, "beyond it", "beyond it"},
        {"nan", 1, "NaN", "NaN"},
        {"zero", 1, "beyond it", one},
        {"unwritten", 1, "unwritten", "unwritten"},
        {"outside", 1, "outside OUT", "outside OUT"},
        {"unstable", 1, "second launch gave other bits", "second launch gave other bits"},
    };
    static const char *const filters[] = {"gemm/bf16/cublaslt/bf16-out/4096x4096x4096/normal/pre*", "gemm/e4m3/cublaslt/promoted/bf16-out/4096x4096x4096/normal/pre*"};
    ng_test_need_gpu(NULL, NULL);
    for (size_t f = 0; f < sizeof filters / sizeof *filters; f++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            const char *says = f ? rows[i].e4m3 : rows[i].bf16;
            int status = sh(rows[i].spoil, filters[f]);
            cr_expect_eq(status, rows[i].exit, "%s, spoiled by '%s': exit %d: %.2000s", filters[f], rows[i].spoil, status, said);
            cr_expect(strstr(said, says), "%s, spoiled by '%s': does not say '%s': %.2000s", filters[f], rows[i].spoil, says, said);
        }
}

const ng_test ng_tests[] = {
    {"cuda_whole", "data made on the device", data_equal, 300},
    {"cuda_whole", "figures of the certified product", witness, 300},
    {"cuda_whole", "a library that spoils one element", spoiled, 300},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
