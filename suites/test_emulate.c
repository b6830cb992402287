/* The emulated tensor cores against the integer predictor, bit for bit: two derivations of one contract. Every named contract,
 * every pair of formats that it is defined for, operands chosen to defeat either.
 * NARROWGAUGE_LONG=1 runs at least 10^7 outputs of every contract. */
#include "suites/test.h"

#include "kernels/catalogue.h"
#include "kernels/contracts.h"
#include "kernels/cpu/mma_gemm.h"
#include "reference/gemm.h"

#include <fenv.h>
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- operands -----------------------------------------------------------------------------------------------------*/

typedef enum kind { CODES, MODERATE, POSITIVE, SUBNORMAL, SPREAD, LARGE, ZEROS, CANCELLING, SPECIALS, KINDS } kind;

static const char *const kind_names[KINDS] = {"every finite code", "moderate",   "positive",   "subnormal", "wide spread",
                                              "large",             "mostly zero", "cancelling", "NaN and infinities"};

static uint64_t next(uint64_t *state) { /* SplitMix64 */
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static uint64_t below(uint64_t *state, uint64_t n) { return next(state) % n; }

/* Sign, exponent field and mantissa of a format put together, tf32 in its place in a binary32. */
static uint64_t assemble(ng_format_id format, uint64_t sign, uint64_t exponent, uint64_t mantissa) {
    const ng_format *f = &ng_formats[format];
    uint64_t code = (sign << f->exponent_bits | exponent) << f->mantissa_bits | mantissa;
    return format == NG_TF32 ? code << 13 : code;
}

static uint64_t exponent_field(ng_format_id format, kind k, uint64_t *state) {
    const uint64_t fields = 1ull << ng_formats[format].exponent_bits, middle = (uint64_t)ng_formats[format].bias;
    switch (k) {
    case SUBNORMAL: return below(state, 8) ? 0 : 1;
    case SPREAD: return below(state, 2) ? below(state, fields) : below(state, 2) ? 0 : middle;
    case LARGE: return fields - 1 - below(state, 2);
    case CODES: return below(state, fields);
    default: return fields < 16 ? below(state, fields) : middle - 4 + below(state, 8);
    }
}

static uint64_t draw(ng_format_id format, kind k, uint64_t *state) {
    if (k == ZEROS && below(state, 8)) return assemble(format, below(state, 2), 0, 0);
    for (;;) {
        uint64_t exponent = exponent_field(format, k, state), sign = k == POSITIVE ? 0 : below(state, 2);
        if (k == SPECIALS && below(state, 40) == 0) exponent = (1ull << ng_formats[format].exponent_bits) - 1;
        uint64_t mantissa = below(state, 1ull << ng_formats[format].mantissa_bits);
        if (k == SPECIALS && below(state, 2)) mantissa = 0;
        uint64_t code = assemble(format, sign, exponent, mantissa);
        if (k == SPECIALS || isfinite(ng_decode(format, code))) return code;
    }
}

static uint64_t draw_scale(ng_format_id format, kind k, uint64_t *state) {
    if (format == NG_FP32) return (117 + below(state, 20)) << 23 | below(state, 1 << 23);
    if (format == NG_UE4M3) return k == SPECIALS ? below(state, 128) : below(state, 127);
    if (k == SPECIALS) return below(state, 8) ? 120 + below(state, 15) : 255;
    if (k == SPREAD || k == LARGE || k == SUBNORMAL) return k == LARGE ? 190 + below(state, 65) : k == SPREAD ? below(state, 255) : below(state, 70);
    return 120 + below(state, 15);
}

static bool new_tensor(ng_tensor *t, ng_format_id format, int64_t rows, int64_t columns) {
    *t = (ng_tensor){.format = format, .space = NG_HOST, .rows = rows, .columns = columns,
                     .row_bytes = ng_row_bytes(format, columns)};
    t->data = calloc((size_t)(rows * t->row_bytes), 1);
    return t->data;
}

static bool new_operand(const ng_quantization *q, int64_t rows, int64_t k, kind how, uint64_t seed, ng_operand *o) {
    *o = (ng_operand){.blocks = q->blocks, .tensor_scale = 1};
    if (!new_tensor(&o->codes, q->element, rows, k)) return false;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < k; j++)
            ng_set_code(&o->codes, i, j, draw(q->element, how, &seed));
    if (q->rule == NG_SCALE_ABSENT) return true;
    if (!new_tensor(&o->scales, q->scale, ng_block_count(q->blocks.rows, rows), ng_block_count(q->blocks.columns, k))) return false;
    for (int64_t i = 0; i < o->scales.rows; i++)
        for (int64_t j = 0; j < o->scales.columns; j++)
            ng_set_code(&o->scales, i, j, draw_scale(q->scale, how, &seed));
    if (q->tensor_scale) o->tensor_scale = 0x1.234568p-3f + 0x1p-9f * (float)below(&seed, 512);
    return true;
}

/* Every second product nearly undoes the one before it. */
static void cancel(const ng_operand *a, const ng_operand *b, uint64_t seed) {
    for (int64_t j = 1; j < a->codes.columns; j += 2) {
        for (int64_t i = 0; i < a->codes.rows; i++)
            if (below(&seed, 16)) ng_set_code(&a->codes, i, j, ng_get_code(&a->codes, i, j - 1));
        const ng_format_id format = b->codes.format;
        for (int64_t i = 0; i < b->codes.rows; i++)
            if (below(&seed, 16))
                ng_set_code(&b->codes, i, j, ng_get_code(&b->codes, i, j - 1) ^ assemble(format, 1, 0, 0));
    }
}

static void free_operand(ng_operand *o) {
    free(o->codes.data);
    free(o->scales.data);
}

/* ---- kernels made from contracts ----------------------------------------------------------------------------------*/

static ng_quantization quantization_of(const ng_accumulation *sum, ng_format_id element, bool outer_vector, bool is_b) {
    ng_quantization q = {.element = element, .scale = NG_FP32, .rule = NG_SCALE_MAX_OVER_AMAX};
    switch (sum->scales) {
    case NG_SCALES_AFTER: q.blocks.rows = outer_vector; break;
    case NG_SCALES_BLOCK_FMA_PRODUCT: q.blocks = is_b ? (ng_blocks){128, 128} : (ng_blocks){1, 128}; break;
    case NG_SCALES_BLOCK_FMA_SECOND: q.blocks = (ng_blocks){1, 128}; break;
    case NG_SCALES_IN_MMA:
        q.blocks = (ng_blocks){1, sum->mma.scale_block};
        q.tensor_scale = sum->mma.scale_block == 16;
        q.scale = q.tensor_scale ? NG_UE4M3 : NG_E8M0;
        q.rule = q.tensor_scale ? NG_SCALE_NVFP4_PAPER : NG_SCALE_MX_ROUND_UP;
        break;
    default: q.rule = NG_SCALE_ABSENT;
    }
    return q;
}

static ng_kernel kernel_of(const ng_named_contract *named, ng_format_id a, ng_format_id b, ng_format_id out, unsigned split_k) {
    bool outer = strstr(named->name, "outer-vector");
    ng_kernel kernel = {.name = named->name, .op = NG_OP_GEMM, .backend = NG_BACKEND_CPU, .in = a, .in_b = b, .out = out,
                        .contract = {.cast = {.rounding = NG_RN_EVEN}, .sum = named->sum},
                        .supports = ng_mma_supports, .launch = ng_mma_launch};
    kernel.contract.a = quantization_of(&named->sum, a, outer, false);
    kernel.contract.b = quantization_of(&named->sum, b, outer, true);
    kernel.contract.sum.split_k = (uint16_t)split_k;
    return kernel;
}

static ng_status launch(const ng_kernel *kernel, const ng_operand *a, const ng_operand *b, ng_tensor *out, int threads,
                        bool portable) {
    ng_problem problem = {.op = NG_OP_GEMM, .m = a->codes.rows, .n = b->codes.rows, .k = a->codes.columns};
    ng_device device = {.backend = NG_BACKEND_CPU, .threads = threads, .portable = portable};
    float a_scale = a->tensor_scale, b_scale = b->tensor_scale;
    ng_launch call = {.problem = &problem, .device = &device};
    call.tensors[NG_A] = a->codes;
    call.tensors[NG_A_SCALES] = a->scales;
    call.tensors[NG_A_TENSOR_SCALE] = (ng_tensor){&a_scale, NG_FP32, NG_HOST, 1, 1, 4};
    call.tensors[NG_B] = b->codes;
    call.tensors[NG_B_SCALES] = b->scales;
    call.tensors[NG_B_TENSOR_SCALE] = (ng_tensor){&b_scale, NG_FP32, NG_HOST, 1, 1, 4};
    call.tensors[NG_OUT] = *out;
    return kernel->launch(kernel, &call);
}

typedef struct problem {
    int64_t m, n, k;
    kind how;
    uint64_t seed;
    int threads;
    bool portable;
} problem;

/* Runs both derivations and counts the outputs that differ. -1: one of them could not be run. */
static int64_t differences(const ng_kernel *kernel, const problem *p, const ng_accumulation *predicted_sum, char *first,
                           size_t first_bytes) {
    ng_operand a = {0}, b = {0};
    ng_tensor got = {0}, expected = {0};
    int64_t differ = -1;
    if (!new_operand(&kernel->contract.a, p->m, p->k, p->how, p->seed, &a) ||
        !new_operand(&kernel->contract.b, p->n, p->k, p->how, p->seed + 1, &b) ||
        !new_tensor(&got, kernel->out, p->m, p->n) || !new_tensor(&expected, kernel->out, p->m, p->n))
        goto done;
    if (p->how == CANCELLING) cancel(&a, &b, p->seed + 2);
    if (launch(kernel, &a, &b, &got, p->threads, p->portable)) goto done;
    if (ng_predict_gemm(predicted_sum, &kernel->contract.cast, &a, &b, NULL, 2, &expected, NULL)) goto done;
    differ = 0;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            uint64_t x = ng_get_code(&got, i, j), y = ng_get_code(&expected, i, j);
            if (x == y) continue;
            if (differ++ == 0)
                snprintf(first, first_bytes, "[%" PRId64 "][%" PRId64 "] emulated %" PRIx64 ", predicted %" PRIx64, i, j, x, y);
        }
done:
    free_operand(&a);
    free_operand(&b);
    free(got.data);
    free(expected.data);
    return differ;
}

static void expect_agreement(const ng_kernel *kernel, const problem *p) {
    char first[160] = "";
    int64_t differ = differences(kernel, p, &kernel->contract.sum, first, sizeof first);
    cr_expect(differ == 0,
              "%s %s x %s -> %s, split %d, %" PRId64 "x%" PRId64 "x%" PRId64 " %s, seed %" PRIu64 "%s: %" PRId64 " differ, %s",
              kernel->name, ng_formats[kernel->in].name, ng_formats[kernel->in_b].name, ng_formats[kernel->out].name,
              kernel->contract.sum.split_k, p->m, p->n, p->k, kind_names[p->how], p->seed, p->portable ? ", portable" : "",
              differ, first);
}

/* ---- the facts ----------------------------------------------------------------------------------------------------*/

static const struct { int64_t m, n, k; } shapes[] = {
    {33, 47, 1}, {20, 24, 31}, {17, 66, 100}, {34, 33, 129}, {5, 16, 1000}, {2, 3, 5000},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static bool is_long(void) {
    const char *value = getenv("NARROWGAUGE_LONG");
    return value && *value && strcmp(value, "0");
}

static unsigned split_of(const ng_named_contract *named, int round) {
    static const uint16_t parts[] = {0, 2, 3, 7};
    return named->sum.split_tile ? parts[round % 4] : 0;
}

static void check_contract(const ng_named_contract *named, int first_shape) {
    int round = first_shape;
    for (const ng_format_id *a = named->in; *a != NG_NO_FORMAT; a++)
        for (const ng_format_id *b = named->in; *b != NG_NO_FORMAT; b++)
            for (int how = 0; how < KINDS; how++, round++) {
                ng_kernel kernel = kernel_of(named, *a, *b, round % 3 ? NG_FP32 : NG_BF16, split_of(named, round));
                problem p = {shapes[round % SHAPES].m, shapes[round % SHAPES].n, shapes[round % SHAPES].k, (kind)how,
                             (uint64_t)round * 1000 + 17, 1 + round % 2, round % 5 == 0};
                expect_agreement(&kernel, &p);
            }
}

static void agree_with_predictor(void) {
    for (size_t c = 0; c < ng_named_contract_count; c++) {
        const ng_format_id *in = ng_named_contracts[c].in;
        const int shapes_each = in[1] == NG_NO_FORMAT ? SHAPES : in[2] == NG_NO_FORMAT ? 3 : 1;
        for (int shape = 0; shape < shapes_each; shape++)
            check_contract(&ng_named_contracts[c], (int)c + shape);
    }
}

/* At least 10^7 outputs of one contract, K mostly short so that steps, not sums, are many. */
static void ten_million(const ng_named_contract *named, uint64_t seed) {
    int64_t outputs = 0;
    int formats = 0;
    while (named->in[formats] != NG_NO_FORMAT)
        formats++;
    for (int round = 0; outputs < 10000000; round++) {
        ng_kernel kernel = kernel_of(named, named->in[round % formats], named->in[round / formats % formats],
                                     round % 4 ? NG_FP32 : NG_BF16, split_of(named, round));
        problem p = {.m = 401, .n = 499, .k = 1 + round * 37 % 300, .how = (kind)(round % (KINDS - 1)),
                     .seed = (uint64_t)round * 7919 + seed, .threads = 2, .portable = round % 8 == 7};
        if (round % 16 == 15) p.m = 67, p.n = 71, p.how = SPECIALS;
        expect_agreement(&kernel, &p);
        outputs += p.m * p.n;
    }
}

static void agree_over_ten_million(void) {
    if (!is_long()) cr_skip_test("set NARROWGAUGE_LONG=1: minutes");
    for (size_t c = 0; c < ng_named_contract_count; c++)
        ten_million(&ng_named_contracts[c], c);
}

static bool same_step(const ng_mma *x, const ng_mma *y) {
    return x->k == y->k && x->group == y->group && x->interleave == y->interleave && x->fraction_bits == y->fraction_bits &&
           x->output_bits == y->output_bits && x->min_exponent == y->min_exponent && x->dot == y->dot &&
           x->scales_inside == y->scales_inside && x->scale_block == y->scale_block;
}

/* The catalogue's kernels are the named contracts' arithmetic, with their own quantizations and outputs. */
static void catalogue_agrees(void) {
    const ng_kernel *kernels[4096];
    size_t count = ng_builtin_kernels(kernels, sizeof kernels / sizeof *kernels), emulated = 0;
    cr_assert(count <= sizeof kernels / sizeof *kernels);
    for (size_t i = 0; i < count; i++) {
        const ng_kernel *kernel = kernels[i];
        if (kernel->op != NG_OP_GEMM || kernel->backend != NG_BACKEND_CPU || kernel->contract.sum.order != NG_SUM_MMA) continue;
        emulated++;
        const ng_named_contract *named = ng_contract_by_name(kernel->contract.sum.mma.name);
        cr_expect(named && same_step(&named->sum.mma, &kernel->contract.sum.mma), "%s: its step is not the named contract's",
                  kernel->name);
        problem p = {.m = 19, .n = 37, .k = 300, .how = MODERATE, .seed = i, .threads = 2};
        expect_agreement(kernel, &p);
    }
    cr_assert(emulated >= 70, "only %zu emulated kernels are listed", emulated);
}

/* The comparison has power: with F one higher or lower, or groups split, the derivations part. Data of one binade each show
 * it best; the nvfp4 unit's 35 bits show only where large terms have cancelled. */
static void wrong_model_is_caught(void) {
    static const struct { const char *name; kind how; } cases[] = {
        {"hopper-wgmma-fp8", CODES},          {"hopper-bf16", MODERATE},       {"ampere-fp16", MODERATE},
        {"ada-tf32", MODERATE},               {"volta-fp16", MODERATE},        {"blackwell-mxf8f6f4", CODES},
        {"blackwell-mxf4nvf4", CANCELLING},   {"cublaslt-hopper-fp8-1x128-1x128", CODES},
        {"cublaslt-hopper-bf16", MODERATE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ng_named_contract *named = ng_contract_by_name(cases[i].name);
        ng_kernel kernel = kernel_of(named, named->in[0], named->in[0], NG_FP32, named->sum.split_tile ? 3 : 0);
        problem p = {.m = 40, .n = 40, .k = 640, .how = cases[i].how, .seed = i, .threads = 1};
        if (named->sum.mma.dot) p.m = p.n = 160;
        ng_accumulation wrong[6];
        for (int w = 0; w < 6; w++)
            wrong[w] = kernel.contract.sum;
        wrong[0].mma.fraction_bits++;
        wrong[1].mma.fraction_bits--;
        wrong[2].mma.output_bits--;
        wrong[3].mma.group /= 2;
        wrong[4].promote_every = (uint16_t)(wrong[4].promote_every ? 0 : 4);
        wrong[5].split_k = (uint16_t)(named->sum.split_tile ? 4 : 2), wrong[5].split_tile = 64;
        for (int w = 0; w < 6; w++) {
            if ((w == 3 && named->sum.mma.dot) || (w >= 4 && named->sum.scales == NG_SCALES_BLOCK_FMA_SECOND)) continue;
            char first[160] = "";
            cr_expect(differences(&kernel, &p, &wrong[w], first, sizeof first) > 0, "%s: wrong model %d is not noticed",
                      named->name, w);
        }
    }
}

static bool same_bits(const ng_tensor *x, const ng_tensor *y) { return !memcmp(x->data, y->data, (size_t)(x->rows * x->row_bytes)); }

/* Threads and instruction sets do not matter, nor does the caller's rounding mode, which is given back on every thread. */
static void same_bits_everywhere(void) {
    for (size_t c = 0; c < ng_named_contract_count; c++) {
        const ng_named_contract *named = &ng_named_contracts[c];
        ng_kernel kernel = kernel_of(named, named->in[0], named->in[0], NG_FP32, 0);
        ng_operand a = {0}, b = {0};
        ng_tensor out[4] = {{0}};
        cr_assert(new_operand(&kernel.contract.a, 70, 200, SPECIALS, c, &a));
        cr_assert(new_operand(&kernel.contract.b, 90, 200, CODES, c + 99, &b));
        for (int v = 0; v < 4; v++)
            cr_assert(new_tensor(&out[v], NG_FP32, 70, 90));
        cr_expect_eq(launch(&kernel, &a, &b, &out[0], 1, false), NG_OK);
        cr_expect_eq(launch(&kernel, &a, &b, &out[1], 3, false), NG_OK);
        cr_expect_eq(launch(&kernel, &a, &b, &out[2], 2, true), NG_OK);
        fesetround(FE_UPWARD);
        ng_status status = launch(&kernel, &a, &b, &out[3], 2, false);
        int after = fegetround();
        fesetround(FE_TONEAREST);
        cr_expect_eq(status, NG_OK);
        cr_expect_eq(after, FE_UPWARD, "%s: the caller's rounding mode is not restored", named->name);
        int changed = 0;
#pragma omp parallel num_threads(3) reduction(+ : changed)
        changed += fegetround() != FE_TONEAREST;
        cr_expect_eq(changed, 0, "%s: threads are left in another rounding mode", named->name);
        for (int v = 1; v < 4; v++)
            cr_expect(same_bits(&out[0], &out[v]), "%s: variant %d differs", named->name, v);
        free_operand(&a);
        free_operand(&b);
        for (int v = 0; v < 4; v++)
            free(out[v].data);
    }
}

/* Hopper's fp8 unit keeps 13 fraction bits below the largest product: beside 1, 2^-13 survives and 2^-14 is lost; and a chain
 * of K = 4096 positive products loses several per cent where promotion every 128 loses hundredths of one. */
static void fp8_truncates_at_thirteen_bits(void) {
    static const struct { uint8_t b1; float sum; } rows[] = {
        {0x02, 1 + 0x1p-13f}, /* a = 2^-5: 2^-5 * 2^-8 */
        {0x01, 1},            /*           2^-5 * 2^-9 */
    };
    ng_kernel kernel = kernel_of(ng_contract_by_name("hopper-wgmma-fp8"), NG_E4M3, NG_E4M3, NG_FP32, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t a_codes[2] = {0x38, 0x10}, b_codes[2] = {0x38, rows[i].b1}; /* 1, 2^-5; 1, b1 */
        float sum = 0;
        ng_operand a = {.codes = {a_codes, NG_E4M3, NG_HOST, 1, 2, 2}, .tensor_scale = 1};
        ng_operand b = {.codes = {b_codes, NG_E4M3, NG_HOST, 1, 2, 2}, .tensor_scale = 1};
        ng_tensor out = {&sum, NG_FP32, NG_HOST, 1, 1, 4};
        cr_assert_eq(launch(&kernel, &a, &b, &out, 1, false), NG_OK);
        cr_expect_eq(sum, rows[i].sum, "row %zu: %a", i, (double)sum);
    }
}

static double relative_bias(const char *contract) {
    enum { M = 32, N = 32, K = 4096 };
    ng_kernel kernel = kernel_of(ng_contract_by_name(contract), NG_E4M3, NG_E4M3, NG_FP32, 0);
    kernel.contract.a.rule = kernel.contract.b.rule = NG_SCALE_ABSENT;
    ng_operand a = {0}, b = {0};
    ng_tensor out = {0};
    uint64_t seed = 5;
    cr_assert(new_operand(&kernel.contract.a, M, K, ZEROS, 1, &a) && new_operand(&kernel.contract.b, N, K, ZEROS, 2, &b));
    cr_assert(new_tensor(&out, NG_FP32, M, N));
    const ng_operand *const both[2] = {&a, &b};
    for (int o = 0; o < 2; o++)
        for (int64_t i = 0; i < M; i++)
            for (int64_t k = 0; k < K; k++) { /* uniform in [0, 1): a code of its binade, by inversion */
                double x = (double)(next(&seed) >> 11) * 0x1p-53;
                uint64_t code = 0;
                while (code < 0x38 && ng_decode(NG_E4M3, code + 1) <= x)
                    code++;
                ng_set_code(&both[o]->codes, i, k, code);
            }
    cr_assert_eq(launch(&kernel, &a, &b, &out, 2, false), NG_OK);
    double error = 0, total = 0;
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double exact = 0; /* multiples of 2^-18 below 2^12 */
            for (int64_t k = 0; k < K; k++)
                exact += ng_get_value(&a.codes, i, k) * ng_get_value(&b.codes, j, k);
            error += ng_get_value(&out, i, j) - exact;
            total += exact;
        }
    free_operand(&a);
    free_operand(&b);
    free(out.data);
    return error / total;
}

static void fp8_chains_are_biased(void) {
    double fast = relative_bias("cublaslt-hopper-fp8-fast"), promoted = relative_bias("cublaslt-hopper-fp8-promoted");
    cr_expect(fast < -0.05 && fast > -0.08, "one chain: %+.4f %%", 100 * fast);
    cr_expect(promoted < -0.0003 && promoted > -0.0008, "promoted every 128: %+.4f %%", 100 * promoted);
}

const ng_test ng_tests[] = {
    {"emulate", "agrees with the integer predictor for every contract", agree_with_predictor, 600},
    {"emulate", "agrees over ten million outputs of every contract", agree_over_ten_million, 7200},
    {"emulate", "the catalogue's kernels follow the named contracts", catalogue_agrees, 300},
    {"emulate", "a wrong model is caught", wrong_model_is_caught, 300},
    {"emulate", "same bits for any threads, instruction set and rounding mode", same_bits_everywhere, 300},
    {"emulate", "fp8 truncates at thirteen bits", fp8_truncates_at_thirteen_bits, 10},
    {"emulate", "fp8 chains are biased, promotion mends it", fp8_chains_are_biased, 300},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
