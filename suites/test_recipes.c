/* What the recipes rest on: all 2^r words of stochastic rounding counted, its draws over many seeds, Philox; the Hadamard
 * transform, which leaves products as they are; NVFP4's codes and scales by a derivation of its own; and the recipes' table. */
#include "harness/judge_internal.h"
#include "harness/recipe.h"
#include "kernels/catalogue.h"
#include "kernels/common/e2m1.h"
#include "kernels/common/cast.h"
#include "kernels/common/philox.h"
#include "reference/hadamard.h"
#include "reference/round.h"
#include "suites/recipes.h"
#include "suites/test.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

static ng_catalogue catalogue(void) {
    static const ng_kernel *kernels[4096];
    size_t count = ng_builtin_kernels(kernels, COUNT(kernels));
    cr_assert(count <= COUNT(kernels));
    return (ng_catalogue){kernels, count};
}

static const ng_device cpu = {.backend = NG_BACKEND_CPU, .threads = 1};

static ng_tensor tensor(ng_format_id format, int64_t rows, int64_t columns) {
    ng_tensor t = {calloc((size_t)(rows * ng_row_bytes(format, columns)) + 8, 1), format, NG_HOST, rows, columns, ng_row_bytes(format, columns)};
    cr_assert(t.data);
    return t;
}

static void run(const ng_kernel *kernel, ng_launch *launch, ng_problem *problem, int64_t rows, int64_t columns) {
    char message[200] = "";
    problem->op = kernel->op, problem->m = rows, problem->n = columns;
    launch->problem = problem, launch->device = &cpu;
    launch->message = message, launch->message_bytes = sizeof message;
    cr_assert_null(kernel->supports(kernel, problem, &cpu), "%s", kernel->name);
    cr_assert_eq(kernel->launch(kernel, launch), NG_OK, "%s: %s", kernel->name, message);
}

/* ---- stochastic rounding ------------------------------------------------------------------------------------------*/
/* floor(2^r d), or its counterpart of the other forms, from the exact fraction d in binary64: d = k / 2^b with b <= 52 here. */
static double words_up(ng_stochastic form, int r, double d) {
    double scaled = ldexp(d, r), whole = floor(scaled), rest = scaled - whole;
    if (form == NG_SR_CARRY) return whole;
    if (form == NG_SR_HALF) return floor(scaled + 0.5); /* R >= 2^r - (2^r d) - 1/2 */
    return whole + (rest > 0.5 || (rest == 0.5 && fmod(whole, 2) == 1));
}

static void enumerate_kernel(const ng_kernel *kernel) {
    const ng_cast *cast = &kernel->contract.cast;
    const int64_t words = (int64_t)1 << cast->random_bits, values = cast->random_bits > 8 ? 12 : 256;
    ng_tensor in = tensor(kernel->in, values, words), given = tensor(NG_FP32, values, words), out = tensor(kernel->out, values, words);
    double steps = kernel->out == NG_BF16 ? 0x1p-7 : kernel->out == NG_E4M3 ? 0x1p-3 : kernel->out == NG_E5M2 ? 0x1p-2 : 0.5;
    double fraction[256];
    for (int64_t i = 0; i < values; i++) { /* in [1, 2): 1 + step (j + d) */
        uint32_t word = ng_word(77, (uint64_t)i);
        double unit = kernel->in == NG_BF16 ? ldexp(steps, 7) : 4096; /* bf16: d has what bits 7 leave */
        fraction[i] = floor((double)(word & 0xFFFF) / 65536 * unit) / unit;
        double x = 1 + steps * fraction[i];
        ng_cast exact = {.rounding = NG_RN_EVEN};
        for (int64_t j = 0; j < words; j++) {
            ng_set_code(&in, i, j, ng_round(kernel->in, word & 0x10000 ? -x : x, &exact, 0));
            ((uint32_t *)given.data)[i * words + j] = (uint32_t)j;
        }
    }
    ng_problem problem = {0};
    ng_launch launch = {0};
    launch.tensors[NG_IN] = in, launch.tensors[NG_RANDOM_WORDS] = given, launch.tensors[NG_OUT] = out;
    run(kernel, &launch, &problem, values, words);
    for (int64_t i = 0; i < values; i++) {
        int64_t up = 0;
        for (int64_t j = 0; j < words; j++)
            up += fabs(ng_get_value(&out, i, j)) > 1;
        cr_expect_eq((double)up, words_up(cast->stochastic, cast->random_bits, fraction[i]), "%s, fraction %a: %lld words go up", kernel->name,
                     fraction[i], (long long)up);
    }
    free(in.data), free(given.data), free(out.data);
}

static void all_words(void) {
    ng_catalogue c = catalogue();
    int kernels = 0;
    for (size_t i = 0; i < c.count; i++)
        if (c.kernels[i]->op == NG_OP_CAST && c.kernels[i]->backend == NG_BACKEND_CPU && c.kernels[i]->contract.cast.rounding == NG_R_STOCHASTIC) {
            enumerate_kernel(c.kernels[i]);
            kernels++;
        }
    cr_expect(kernels >= 48, "%d kernels", kernels);
}

/* A right kernel over 1,000 seeds and many steps: no alarm. (Wrong ones are in suites/faults/random.c.) */
static void right_runs(void) {
    enum { ROWS = 64, COLUMNS = 128, RUNS = 1000 };
    static const char *const names[] = {"cast/bf16->e2m1/cpu/sr8-carry-sat", "cast/bf16->e4m3/cpu/sr8-unbiased-sat", "cast/bf16->e5m2/cpu/sr8-half-sat",
                                        "cast/fp32->bf16/cpu/sr16-carry-nosat"};
    ng_catalogue c = catalogue();
    for (int run_number = 0; run_number < RUNS; run_number++) {
        const ng_kernel *kernel = ng_find_kernel(&c, NG_OP_CAST, NG_BACKEND_CPU, names[run_number % 4]);
        cr_assert(kernel, "%s", names[run_number % 4]);
        ng_tensor in = tensor(kernel->in, ROWS, COLUMNS), out = tensor(kernel->out, ROWS, COLUMNS);
        const ng_cast exact = {.rounding = NG_RN_EVEN};
        for (int64_t k = 0; k < ROWS * COLUMNS; k++)
            ng_set_code(&in, k / COLUMNS, k % COLUMNS, ng_round(kernel->in, (double)(int32_t)ng_word((uint64_t)run_number, (uint64_t)k) * 0x1p-30, &exact, 0));
        ng_problem problem = {.seed = (uint64_t)run_number * 0x9E3779B9u, .offset = (uint64_t)(run_number / 3)};
        ng_launch launch = {0};
        ng_result result = {.verdict = NG_PASS};
        ng_error error = {0};
        double randomness;
        launch.tensors[NG_IN] = in, launch.tensors[NG_OUT] = out;
        run(kernel, &launch, &problem, ROWS, COLUMNS);
        cr_assert_eq(ng_check_draws(&in, &out, &kernel->contract.cast, &result, &randomness, &error), NG_OK);
        cr_expect_eq(result.verdict, NG_PASS, "seed %llu: %s", (unsigned long long)problem.seed, result.reason);
        cr_expect(result.stochastic.false_alarm < 1e-7 && result.stochastic.detectable > result.stochastic.alarm);
        free(in.data), free(out.data);
    }
}

/* Philox4x32-10's published answers (Random123, kat_vectors), by kernels' element numbering. */
static void philox_answers(void) {
    static const struct { uint64_t seed, offset, group; uint32_t words[4]; } known[] = {
        {0, 0, 0, {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}},
        {0x299F31D0A4093822, 0x0370734413198A2E, 0x85A308D3243F6A88, {0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}},
    };
    for (size_t i = 0; i < COUNT(known); i++)
        for (uint64_t lane = 0; lane < 4; lane++)
            cr_expect_eq(ng_philox4(known[i].seed, known[i].offset, known[i].group).word[lane], known[i].words[lane], "row %zu, lane %llu", i, (unsigned long long)lane);
    cr_expect_eq(ng_philox(0, 0, 2), 0xBC57AC4C);
}

/* The short form of e2m1's rounding, which the CUDA kernel uses, on every finite bf16, and all words of stochastic rounding. */
static void e2m1_in_short(void) {
    const ng_cast random = {NG_R_STOCHASTIC, NG_SR_CARRY, 8, true, NG_NAN_MAX}, nearest = {NG_RN_EVEN, NG_SR_CARRY, 0, true, NG_NAN_MAX};
    const ng_caster stochastic_caster = ng_caster_of(NG_E2M1, &random), caster = ng_caster_of(NG_E2M1, &nearest);
    int64_t wrong = 0;
    for (uint32_t code = 0; code < 0x10000; code++)
        for (uint32_t low = 0; low < 4; low++) { /* and what lies between them */
            uint32_t bits = code << 16 | (low ? ng_word(5, code * 4 + low) >> 16 : 0);
            if ((bits & NG_ABS_MASK) >= NG_INF_BITS) continue;
            wrong += ng_e2m1_nearest(ng_float(bits)) != ng_cast_code(&caster, NG_RN_EVEN, bits);
            for (uint32_t word = 0; word < 256; word += low ? 15 : 1)
                wrong += ng_e2m1_stochastic(ng_float(bits), word) != ng_cast_code_stochastic(&stochastic_caster, NG_SR_CARRY, 8, bits, word);
        }
    cr_expect_eq(wrong, 0);
}

/* ---- Hadamard -----------------------------------------------------------------------------------------------------*/
static const ng_kernel *hadamard(const ng_catalogue *c, const char *words) {
    char name[64];
    snprintf(name, sizeof name, "hadamard/bf16->fp32/*/%s", words);
    const ng_kernel *kernel = ng_find_kernel(c, NG_OP_HADAMARD, NG_BACKEND_CPU, name);
    cr_assert(kernel, "%s", name);
    return kernel;
}

/* Integers up to 8 in magnitude: every sum is exact in binary32, so the products must be equal, bit for bit. Extents that no group
 * divides: what is left over stays as it is. */
static void product_is_kept(void) {
    static const struct { const char *a, *b; } pairs[] = {
        {"4-over-2", "4-over-2"}, {"16-over-4", "16-over-4"}, {"32-over-4", "32-over-8"}, {"128-over-8", "128-over-16"}};
    enum { M = 5, N = 7, K = 300 };
    ng_catalogue c = catalogue();
    for (size_t p = 0; p < COUNT(pairs); p++) {
        const ng_kernel *kernels[2] = {hadamard(&c, pairs[p].a), hadamard(&c, pairs[p].b)};
        ng_operand before[2], after[2];
        ng_exact_product want = {0}, got = {0};
        const ng_cast exact = {.rounding = NG_RN_EVEN};
        for (int s = 0; s < 2; s++) {
            int64_t rows = s ? N : M;
            before[s] = (ng_operand){.codes = tensor(NG_BF16, rows, K), .tensor_scale = 1};
            after[s] = (ng_operand){.codes = tensor(NG_FP32, rows, K), .tensor_scale = 1};
            for (int64_t k = 0; k < rows * K; k++)
                ng_set_code(&before[s].codes, k / K, k % K, ng_round(NG_BF16, (double)(ng_word(p * 2 + (size_t)s, (uint64_t)k) % 17) - 8, &exact, 0));
            ng_problem problem = {0};
            ng_launch launch = {0};
            launch.tensors[NG_IN] = before[s].codes, launch.tensors[NG_OUT] = after[s].codes;
            run(kernels[s], &launch, &problem, rows, K);
        }
        cr_assert_eq(kernels[0]->contract.hadamard.shift + kernels[1]->contract.hadamard.shift, __builtin_ctz(kernels[0]->contract.hadamard.size));
        cr_assert_eq(ng_exact_gemm(&before[0], &before[1], NULL, 1, &want), NG_OK);
        cr_assert_eq(ng_exact_gemm(&after[0], &after[1], NULL, 1, &got), NG_OK);
        for (int64_t k = 0; k < M * N; k++)
            cr_expect(got.high[k] == want.high[k] && got.low[k] == 0 && want.low[k] == 0, "%s: %a, before %a", pairs[p].a, got.high[k], want.high[k]);
        ng_exact_product_free(&want), ng_exact_product_free(&got);
        for (int s = 0; s < 2; s++)
            free(before[s].codes.data), free(after[s].codes.data);
    }
}

/* Columns of H diag(s) of unit vectors: entries by the definition, and the whole orthogonal. */
static void matrix_is_sylvesters(void) {
    ng_catalogue c = catalogue();
    const ng_kernel *kernel = hadamard(&c, "16-over-1");
    ng_tensor in = tensor(NG_BF16, 16, 16), out = tensor(NG_FP32, 16, 16);
    static const int signs[16] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1}; /* TransformerEngine's */
    for (int i = 0; i < 16; i++)
        ng_set_code(&in, i, i, 0x3F80);
    ng_problem problem = {0};
    ng_launch launch = {0};
    launch.tensors[NG_IN] = in, launch.tensors[NG_OUT] = out;
    run(kernel, &launch, &problem, 16, 16);
    for (int j = 0; j < 16; j++)
        for (int i = 0; i < 16; i++)
            cr_expect_eq(ng_get_value(&out, j, i), signs[j] * (__builtin_popcount((unsigned)(i & j)) % 2 ? -1 : 1), "H[%d][%d]", i, j);
    free(in.data), free(out.data);
}

/* ---- recipes ------------------------------------------------------------------------------------------------------*/
/* Every name leads to a kernel of the CPU, and each product takes what its quantizers make. */
static void recipes_resolve(void) {
    ng_catalogue c = catalogue();
    for (size_t i = 0; i < ng_suite_recipes.count; i++)
        for (int phase = NG_FPROP; phase < NG_PHASES; phase++) {
            const ng_recipe *r = &ng_suite_recipes.recipes[i];
            const ng_recipe_product *p = &r->phases[phase];
            const ng_kernel *gemm = ng_find_kernel(&c, NG_OP_GEMM, NG_BACKEND_CPU, p->gemm[NG_BACKEND_CPU]);
            cr_assert(gemm, "%s: %s", r->name, p->gemm[NG_BACKEND_CPU]);
            for (int s = 0; s < 2; s++) {
                const char *name = s ? p->b : p->a;
                const ng_kernel *q = name ? ng_find_kernel(&c, NG_OP_QUANTIZE, NG_BACKEND_CPU, name) : NULL;
                cr_assert(q || !name, "%s: %s", r->name, name);
                const char *misfit = q ? ng_operand_misfit(&q->contract.quantization, s ? &gemm->contract.b : &gemm->contract.a) : NULL;
                cr_expect_null(misfit, "%s, phase %d, operand %d: %s", r->name, phase, s, misfit);
            }
        }
}

/* Stochastic rounding and the transform are for gradients' operands alone; a pair of operands has one vector of signs. */
static void gradient_path_only(void) {
    ng_catalogue c = catalogue();
    for (size_t i = 0; i < ng_suite_recipes.count; i++)
        for (int phase = NG_FPROP; phase < NG_PHASES; phase++) {
            const ng_recipe *r = &ng_suite_recipes.recipes[i];
            const ng_recipe_product *p = &r->phases[phase];
            const ng_kernel *a = p->a ? ng_find_kernel(&c, NG_OP_QUANTIZE, NG_BACKEND_CPU, p->a) : NULL;
            const ng_kernel *b = p->b ? ng_find_kernel(&c, NG_OP_QUANTIZE, NG_BACKEND_CPU, p->b) : NULL;
            if (!a || !b) continue;
            const ng_hadamard *ha = &a->contract.hadamard, *hb = &b->contract.hadamard;
            cr_expect(b->contract.cast.rounding != NG_R_STOCHASTIC, "%s: weights and activations", r->name);
            cr_expect(phase != NG_FPROP || a->contract.cast.rounding != NG_R_STOCHASTIC, "%s: fprop", r->name);
            cr_expect(phase == NG_WGRAD || (!ha->size && !hb->size), "%s: the transform is of wgrad", r->name);
            cr_expect_eq(ha->size, hb->size, "%s", r->name);
            cr_expect_eq(memcmp(ha->signs, hb->signs, sizeof ha->signs), 0, "%s", r->name);
            if (ha->size) cr_expect_eq(ha->shift + hb->shift, __builtin_ctz(ha->size), "%s", r->name);
        }
}

/* ---- bad input ----------------------------------------------------------------------------------------------------*/
static ng_status launch_quietly(const ng_kernel *kernel, ng_launch *launch, int64_t rows, int64_t columns) {
    char message[200] = "";
    ng_problem problem = {.op = kernel->op, .m = rows, .n = columns, .seed = UINT64_MAX};
    launch->problem = &problem, launch->device = &cpu;
    launch->message = message, launch->message_bytes = sizeof message;
    ng_status status = kernel->launch(kernel, launch);
    cr_expect(status == NG_OK || *message, "%s refuses without a word", kernel->name);
    return status;
}

/* Empty tensors are unsupported, missing ones refused; data at odd addresses give the same bits. */
static void bad_input(void) {
    ng_catalogue c = catalogue();
    for (size_t i = 0; i < c.count; i++) {
        const ng_kernel *kernel = c.kernels[i];
        if (kernel->backend != NG_BACKEND_CPU || (kernel->op != NG_OP_HADAMARD && !kernel->contract.hadamard.size)) continue;
        ng_problem empty = {.op = kernel->op, .m = 0, .n = 16};
        cr_expect_not_null(kernel->supports(kernel, &empty, &cpu), "%s", kernel->name);
        ng_launch nothing = {0};
        cr_expect_eq(launch_quietly(kernel, &nothing, 4, 48), NG_BAD_ARGUMENT, "%s", kernel->name);
        const ng_quantization *q = &kernel->contract.quantization;
        unsigned char *memory = calloc(3, 65536);
        ng_tensor even = tensor(kernel->in, 4, 48), odd = even;
        odd.data = memory + 1;
        ng_tensor outs[2][3];
        for (int64_t k = 0; k < 4 * 48; k++)
            ng_set_code(&even, k / 48, k % 48, ng_word(3, (uint64_t)k) & 0xBFFF);
        memcpy(odd.data, even.data, (size_t)(4 * even.row_bytes));
        for (int o = 0; o < 2; o++) {
            ng_launch launch = {0};
            launch.tensors[NG_IN] = o ? odd : even;
            outs[o][0] = launch.tensors[NG_OUT] = tensor(kernel->out, 4, 48);
            outs[o][1] = tensor(kernel->op == NG_OP_QUANTIZE ? q->scale : NG_FP32, 4, kernel->op == NG_OP_QUANTIZE ? ng_block_count(q->blocks.columns, 48) : 1);
            outs[o][2] = tensor(NG_FP32, 1, 1);
            if (o) outs[1][0].data = launch.tensors[NG_OUT].data = memory + 65536 + 3;
            launch.tensors[NG_OUT_SCALES] = outs[o][1], launch.tensors[NG_OUT_TENSOR_SCALE] = outs[o][2];
            cr_expect_eq(launch_quietly(kernel, &launch, 4, 48), NG_OK, "%s", kernel->name);
        }
        for (int t = 0; t < 3; t++)
            cr_expect_eq(memcmp(outs[0][t].data, outs[1][t].data, (size_t)(outs[0][t].rows * outs[0][t].row_bytes)), 0, "%s, output %d", kernel->name, t);
        for (int t = 0; t < 3; t++) {
            free(outs[0][t].data);
            if (t) free(outs[1][t].data);
        }
        free(even.data);
        free(memory);
    }
}

/* ---- the command --------------------------------------------------------------------------------------------------*/
static int command(const char *arguments, char *output, size_t capacity) {
    char line[1024];
    snprintf(line, sizeof line, "'%s' run --backend cpu --goldens none %s 2>&1", NG_PROGRAM, arguments);
    FILE *pipe = popen(line, "r");
    cr_assert(pipe);
    size_t used = fread(output, 1, capacity - 1, pipe);
    output[used] = 0;
    return WEXITSTATUS(pclose(pipe));
}

static void options(void) {
    static const struct { const char *arguments; int status; const char *says; } runs[] = {
        {"--recipe bf16", 2, "--recipe needs --model"},
        {"--budget 20", 2, "--budget needs --model"},
        {"--shape 8x8x8 --budget twenty", 2, "expected decibels"},
        {"--shape 8x8x8 --budget -3", 2, "expected decibels"},
        {"--shape 8x8x8 --recipe nvfp5", 2, "no recipe fits"},
        {"--shape 8x8x8 --recipe bf16 --mode autocast", 2, "a recipe says itself"},
        {"--shape 48x64x96 --recipe nvfp4 --no-speed", 0, "nvfp4 "},
        {"--shape 48x64x96 --recipe bf16,mxfp8,nvfp4-plain --budget 10", 0, "within 10 dB, cpu"},
        {"--shape 48x64x96 --recipe bf16,mxfp8 --budget 99", 0, "none keeps the budget"},
    };
    char output[16384];
    for (size_t i = 0; i < COUNT(runs); i++) {
        int status = command(runs[i].arguments, output, sizeof output);
        cr_expect_eq(status, runs[i].status, "%s: %d, %s", runs[i].arguments, status, output);
        cr_expect_not_null(strstr(output, runs[i].says), "%s: %s", runs[i].arguments, output);
    }
}

const ng_test ng_tests[] = {
    {"stochastic", "all 2^r words of every cast kernel, counted from the exact fraction", all_words, 0},
    {"stochastic", "1,000 right runs raise no alarm", right_runs, 0},
    {"stochastic", "Philox's published answers", philox_answers, 0},
    {"hadamard", "both operands transformed have the exact product of before", product_is_kept, 0},
    {"hadamard", "the matrix is Sylvester's with TransformerEngine's signs", matrix_is_sylvesters, 0},
    {"recipes", "every name leads to a kernel, every product takes its operands", recipes_resolve, 0},
    {"recipes", "stochastic rounding and the transform are the gradients' alone", gradient_path_only, 0},
    {"recipes", "empty, missing and misaligned tensors", bad_input, 0},
    {"stochastic", "e2m1 in a few operations is e2m1", e2m1_in_short, 0},
    {"recipes", "--recipe and --budget", options, 0},
};
const size_t ng_test_count = COUNT(ng_tests);
