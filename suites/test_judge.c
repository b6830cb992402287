/* The judge judged: kernels with planted faults get the verdict and the reason that they deserve, right ones pass, figures are
 * those computed by hand, and no figure depends on the number of threads. */
#include "harness/expand.h"
#include "harness/judge.h"
#include "harness/verdict.h"
#include "reference/round.h"
#include "suites/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- subjects -----------------------------------------------------------------------------------------------------*/
typedef enum fault {
    RIGHT, WRONG_ELEMENT, ONE_ULP, ALL_NAN, ALL_ZERO, TRUNCATED, SWAPPED_ROWS, UNWRITTEN, BEYOND_END, BEFORE_START, IN_PADDING,
    CHANGED_INPUT, FLIPPED_BIT, THREAD_DEPENDENT, OTHER_ORDER, NEGATIVE_ZERO, GIVES_UP, BEYOND_WORKSPACE, FAULTS,
} fault;

static fault fault_of(const ng_kernel *kernel) { return *(const fault *)kernel->state; }

static const fault faults[FAULTS] = {
    RIGHT, WRONG_ELEMENT, ONE_ULP, ALL_NAN, ALL_ZERO, TRUNCATED, SWAPPED_ROWS, UNWRITTEN, BEYOND_END, BEFORE_START, IN_PADDING,
    CHANGED_INPUT, FLIPPED_BIT, THREAD_DEPENDENT, OTHER_ORDER, NEGATIVE_ZERO, GIVES_UP, BEYOND_WORKSPACE,
};

static int launches; /* of this process; each test has its own */

static ng_tensor out_of(const ng_launch *launch) { return launch->tensors[NG_OUT]; }

static void swap_rows(ng_tensor *out) {
    for (int64_t j = 0; j < out->columns && out->rows > 3; j++) {
        uint64_t code = ng_get_code(out, 1, j);
        ng_set_code(out, 1, j, ng_get_code(out, 3, j));
        ng_set_code(out, 3, j, code);
    }
}

/* What a fault does to a right result. */
static void spoil(const ng_kernel *kernel, const ng_launch *launch) {
    ng_tensor out = out_of(launch);
    ng_tensor *in = (ng_tensor *)&launch->tensors[kernel->op == NG_OP_GEMM ? NG_A : NG_IN];
    int64_t last = out.rows - 1, end = out.columns - 1, size = ng_row_bytes(out.format, 1);
    unsigned char *data = out.data, *input = in->data;
    switch (fault_of(kernel)) {
    case WRONG_ELEMENT: ng_set_code(&out, last, end, ng_get_code(&out, last, end) ^ 0x10); break;
    case ONE_ULP: ng_set_code(&out, last / 2, end, ng_get_code(&out, last / 2, end) + 1); break;
    case SWAPPED_ROWS: swap_rows(&out); break;
    case BEYOND_END: data[(out.rows - 1) * out.row_bytes + ng_row_bytes(out.format, out.columns)] ^= 1; break;
    case BEFORE_START: data[-size] ^= 1; break;
    case IN_PADDING: data[out.row_bytes - 1] ^= 1; break;
    case CHANGED_INPUT: input[0] ^= 1; break;
    case FLIPPED_BIT:
        if (launches % 10 == 9) data[0] ^= 1;
        break;
    case THREAD_DEPENDENT:
        if (launch->device->threads == 1) data[0] ^= 1;
        break;
    case NEGATIVE_ZERO:
        for (int64_t k = 0; k < out.rows * out.columns; k++)
            if (ng_get_value(&out, k / out.columns, k % out.columns) == 0) ng_set_code(&out, k / out.columns, k % out.columns, 0x8000);
        break;
    case BEYOND_WORKSPACE: ((unsigned char *)launch->workspace)[launch->workspace_bytes] ^= 1; break;
    default: break;
    }
}

static float chain(const ng_launch *launch, int64_t i, int64_t j, bool backwards) {
    int64_t k = launch->problem->k;
    float sum = 0;
    for (int64_t step = 0; step < k; step++) {
        int64_t at = backwards ? k - 1 - step : step;
        sum += (float)ng_get_value(&launch->tensors[NG_A], i, at) * (float)ng_get_value(&launch->tensors[NG_B], j, at);
    }
    return sum;
}

static ng_status launch_gemm(const ng_kernel *kernel, const ng_launch *launch) {
    ng_tensor out = out_of(launch);
    fault f = fault_of(kernel);
    ng_cast cast = {.rounding = f == TRUNCATED ? NG_R_ZERO : NG_RN_EVEN};
    launches++;
    if (f == GIVES_UP) {
        snprintf(launch->message, launch->message_bytes, "out of luck");
        return NG_DEVICE;
    }
    for (int64_t i = 0; i < out.rows; i++)
        for (int64_t j = 0; j < out.columns; j++) {
            if (f == UNWRITTEN && i == out.rows - 1 && j > out.columns / 2) continue;
            double value = f == ALL_NAN ? NAN : f == ALL_ZERO ? 0 : chain(launch, i, j, f == OTHER_ORDER);
            ng_set_code(&out, i, j, ng_round(out.format, value, &cast, 0));
        }
    spoil(kernel, launch);
    return NG_OK;
}

static ng_status launch_cast(const ng_kernel *kernel, const ng_launch *launch) {
    ng_tensor out = out_of(launch);
    fault f = fault_of(kernel);
    ng_cast cast = kernel->contract.cast;
    if (f == TRUNCATED) cast.rounding = NG_R_ZERO;
    launches++;
    for (int64_t i = 0; i < out.rows; i++)
        for (int64_t j = 0; j < out.columns; j++) {
            double value = f == ALL_NAN ? NAN : f == ALL_ZERO ? 0 : ng_get_value(&launch->tensors[NG_IN], i, j);
            if (!(f == UNWRITTEN && i == out.rows - 1)) ng_set_code(&out, i, j, ng_round(out.format, f == NEGATIVE_ZERO ? value + 0.0 : value, &cast, 0));
        }
    if (f != NEGATIVE_ZERO) spoil(kernel, launch);
    return NG_OK;
}

static ng_status launch_quantize(const ng_kernel *kernel, const ng_launch *launch) {
    ng_tensor out = out_of(launch), scales = launch->tensors[NG_OUT_SCALES];
    float tensor_scale;
    launches++;
    if (launch->tensors[NG_OUT_T].data) return NG_UNSUPPORTED;
    ng_status status = ng_reference_quantize(&kernel->contract.quantization, &launch->tensors[NG_IN], &(ng_quantize_inputs){0},
                                             NG_TIER_INTEGER, &out, &scales, &tensor_scale);
    if (launch->tensors[NG_OUT_TENSOR_SCALE].data) *(float *)launch->tensors[NG_OUT_TENSOR_SCALE].data = tensor_scale;
    if (fault_of(kernel) == WRONG_ELEMENT) ng_set_code(&scales, 0, 1, ng_get_code(&scales, 0, 1) + 1);
    else spoil(kernel, launch);
    return status;
}

static size_t workspace_of(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device) {
    (void)kernel, (void)problem, (void)device;
    return 100;
}

static const char *supports_small(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device) {
    (void)kernel, (void)device;
    return problem->m > 1000 ? "at most 1000 rows" : NULL;
}

static ng_kernel gemm_kernel(fault f, ng_format_id out, ng_sum_order order) {
    return (ng_kernel){.name = "gemm/bf16/test", .op = NG_OP_GEMM, .in = NG_BF16, .in_b = NG_BF16, .out = out,
                       .contract = {.a.element = NG_BF16, .b.element = NG_BF16, .sum.order = order, .determinism = NG_DETERMINISTIC},
                       .supports = supports_small, .workspace = workspace_of, .launch = launch_gemm, .state = &faults[f]};
}

static ng_kernel cast_kernel(fault f) {
    return (ng_kernel){.name = "cast/bf16->e4m3/test", .op = NG_OP_CAST, .in = NG_BF16, .in_b = NG_NO_FORMAT, .out = NG_E4M3,
                       .contract = {.cast.saturate = true}, .launch = launch_cast, .state = &faults[f]};
}

static ng_kernel quantize_kernel(fault f) {
    ng_quantization mxfp8 = {.element = NG_E4M3, .scale = NG_E8M0, .blocks = {1, 32}, .rule = NG_SCALE_MX_FLOOR, .cast.saturate = true};
    return (ng_kernel){.name = "quantize/bf16->mxfp8/test", .op = NG_OP_QUANTIZE, .in = NG_BF16, .in_b = NG_NO_FORMAT, .out = NG_E4M3,
                       .contract.quantization = mxfp8, .launch = launch_quantize, .state = &faults[f]};
}

/* A product in one or two parts of K, stored in the ways that training stores operands, with a bias: as its contract says, or not. */
typedef struct way {
    bool a_transposed, b_transposed, bias;                  /* of the contract */
    bool forgets_bias, takes_b_plain, second_unsplit, third; /* of the kernel */
} way;

static double element_of(const ng_tensor *t, bool transposed, int64_t i, int64_t k) {
    return transposed ? ng_get_value(t, k, i) : ng_get_value(t, i, k);
}

static ng_status launch_ways(const ng_kernel *kernel, const ng_launch *launch) {
    const way *w = kernel->state;
    ng_tensor out = out_of(launch);
    const ng_tensor *a = &launch->tensors[NG_A], *b = &launch->tensors[NG_B], *bias = &launch->tensors[NG_BIAS];
    const ng_cast nearest = {.rounding = NG_RN_EVEN};
    int64_t k = launch->problem->k, part = launch->variant && !w->second_unsplit ? (k / 4 + 1) / 2 * 4 : k;
    if (launch->variant > 1) return NG_UNSUPPORTED;
    for (int64_t i = 0; i < out.rows; i++)
        for (int64_t j = 0; j < out.columns; j++) {
            float sum = 0;
            for (int64_t from = 0; from < k; from += part) {
                float chain = 0;
                for (int64_t q = from; q < k && q < from + part; q++)
                    chain += (float)element_of(a, w->a_transposed, i, q) * (float)element_of(b, w->b_transposed && !w->takes_b_plain, j, q);
                sum = from ? sum + chain : chain;
            }
            if (w->bias && !w->forgets_bias) sum += (float)ng_get_value(bias, 0, j);
            ng_set_code(&out, i, j, ng_round(out.format, (double)sum, &nearest, 0));
        }
    return NG_OK;
}

static int two_or_three(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device) {
    (void)problem, (void)device;
    return ((const way *)kernel->state)->third ? 3 : 2;
}

static ng_status describe_ways(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device, int variant, ng_contract *contract,
                               char *text, size_t bytes) {
    (void)problem, (void)device;
    if (variant > 1) return NG_UNSUPPORTED;
    *contract = kernel->contract;
    contract->sum.split_k = variant ? 2 : 1;
    contract->sum.split_tile = 4;
    snprintf(text, bytes, variant ? "in two parts" : "in one");
    return NG_OK;
}

static ng_kernel ways_kernel(const way *w) {
    return (ng_kernel){.name = "gemm/bf16/test", .op = NG_OP_GEMM, .in = NG_BF16, .in_b = NG_BF16, .out = NG_FP32,
                       .contract = {.a.element = NG_BF16, .b.element = NG_BF16, .sum.order = NG_SUM_CHAIN, .bias = w->bias,
                                    .a_transposed = w->a_transposed, .b_transposed = w->b_transposed},
                       .launch = launch_ways, .variants = two_or_three, .describe = describe_ways, .state = w};
}

/* ---- judging one --------------------------------------------------------------------------------------------------*/
static void judge_with(const ng_settings *settings, const ng_case *one, ng_result *result) {
    ng_catalogue catalogue = {&one->kernel, 1};
    ng_judge *judge = NULL;
    ng_error error = {0};
    cr_assert_eq(ng_judge_create(settings, &catalogue, &judge, &error), NG_OK, "%s", error.text);
    cr_assert_eq(ng_judge_case(judge, one, result, &error), NG_OK, "%s", error.text);
    ng_judge_free(judge);
}

static void judge(const ng_case *one, ng_result *result) { judge_with(&(ng_settings){.threads = 2}, one, result); }

static ng_case product_case(const ng_kernel *kernel, int64_t m, int64_t n, int64_t k, ng_distribution d) {
    ng_case one = {.kernel = kernel, .problem = {.op = NG_OP_GEMM, .m = m, .n = n, .k = k}};
    one.data = (ng_data_spec){.distribution = d, .seed = 7, .stream = 0, .target = NG_BF16, .whole_rows = m, .whole_columns = k};
    one.data_b = (ng_data_spec){.distribution = d, .seed = 7, .stream = 1, .target = NG_BF16, .whole_rows = n, .whole_columns = k};
    snprintf(one.id, sizeof one.id, "%s", kernel->name);
    return one;
}

static ng_case plain_case(const ng_kernel *kernel, int64_t m, int64_t n, ng_distribution d) {
    ng_case one = {.kernel = kernel, .problem = {.op = kernel->op, .m = m, .n = n}};
    one.data = (ng_data_spec){.distribution = d, .seed = 7, .target = kernel->out, .whole_rows = m, .whole_columns = n};
    snprintf(one.id, sizeof one.id, "%s", kernel->name);
    return one;
}

typedef struct expectation {
    fault fault;
    ng_verdict verdict;
    const char *reason; /* part of it */
} expectation;

static void check(const expectation *e, const ng_result *result) {
    cr_expect_eq(result->verdict, e->verdict, "fault %d: %s (%s)", e->fault, ng_verdict_names[result->verdict], result->reason);
    cr_expect_not_null(strstr(result->reason, e->reason), "fault %d: \"%s\" lacks \"%s\"", e->fault, result->reason, e->reason);
}

/* ---- planted faults -----------------------------------------------------------------------------------------------*/
static void product_faults(void) {
    static const expectation rows[] = {
        {RIGHT, NG_PASS, ""},
        {WRONG_ELEMENT, NG_FAIL, "OUT[8][12]"},
        {ALL_NAN, NG_FAIL, "differ in NaN"},
        {ALL_ZERO, NG_FAIL, "beyond it"},
        {TRUNCATED, NG_FAIL, "beyond it"},
        {SWAPPED_ROWS, NG_FAIL, "beyond it"},
        {UNWRITTEN, NG_FAIL, "6 elements of OUT were never written, the first at [8][7]"},
        {BEYOND_END, NG_FAIL, "wrote outside OUT"},
        {BEFORE_START, NG_FAIL, "wrote outside OUT"},
        {IN_PADDING, NG_FAIL, "wrote outside OUT"},
        {CHANGED_INPUT, NG_FAIL, "changed its input A"},
        {GIVES_UP, NG_FAIL, "out of luck"},
        {BEYOND_WORKSPACE, NG_FAIL, "outside its workspace of 100 bytes"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ng_kernel kernel = gemm_kernel(rows[r].fault, NG_BF16, NG_SUM_CHAIN);
        ng_case one = product_case(&kernel, 9, 13, 65, NG_NORMAL);
        ng_result result;
        judge(&one, &result);
        check(&rows[r], &result);
    }
}

/* Inside the bound, yet not the bits that the contract fixes: the arithmetic moved, the accuracy did not suffer. */
static void other_order_moves(void) {
    ng_kernel kernel = gemm_kernel(OTHER_ORDER, NG_FP32, NG_SUM_CHAIN);
    ng_case one = product_case(&kernel, 9, 13, 65, NG_NORMAL);
    ng_result result;
    judge(&one, &result);
    cr_expect_neq(result.verdict, NG_PASS);
    cr_expect(result.prediction.present && result.prediction.differ > 50, "%lld differ", (long long)result.prediction.differ);
    ng_kernel small = gemm_kernel(OTHER_ORDER, NG_FP32, NG_SUM_CHAIN);
    one = product_case(&small, 4, 4, 8, NG_POSITIVE);
    judge(&one, &result);
    cr_expect(result.prediction.differ > 0);
    cr_expect(result.verdict == (result.error.beyond_bound ? NG_FAIL : NG_MOVED), "%s", result.reason);
    /* without a promise of an order, it is right */
    ng_kernel any = gemm_kernel(OTHER_ORDER, NG_FP32, NG_SUM_ANY);
    one = product_case(&any, 9, 13, 65, NG_NORMAL);
    judge(&one, &result);
    cr_expect_eq(result.verdict, NG_PASS, "%s", result.reason);
    cr_expect(!result.prediction.present);
}

/* One last bit of one element of an fp32 result: far inside any bound of unknown order, but not as predicted. */
static void one_bit_is_found(void) {
    ng_kernel kernel = gemm_kernel(ONE_ULP, NG_FP32, NG_SUM_CHAIN);
    ng_case one = product_case(&kernel, 33, 17, 40, NG_NORMAL);
    ng_result result;
    judge(&one, &result);
    cr_expect(result.verdict == NG_MOVED || result.verdict == NG_FAIL);
    cr_expect_eq(result.prediction.differ, 1);
    cr_expect(result.prediction.first[0] == 16 && result.prediction.first[1] == 16);
}

/* Each algorithm is held to the contract that it describes itself, on operands stored as the contract says. */
static void variants_and_ways(void) {
    static const struct {
        way way;
        ng_verdict verdict;
        const char *reason;
    } rows[] = {
        {{false, false, false, .third = false}, NG_PASS, ""},
        {{false, true, false, .third = false}, NG_PASS, ""},
        {{true, true, true, .third = true}, NG_PASS, ""},
        {{false, false, true, .forgets_bias = true}, NG_FAIL, "beyond it"},
        {{false, true, false, .takes_b_plain = true}, NG_FAIL, "beyond it"},
        {{false, false, false, .second_unsplit = true}, NG_MOVED, "variant 1 (in two parts): "},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ng_kernel kernel = ways_kernel(&rows[r].way);
        ng_case one = product_case(&kernel, 12, 12, 12, NG_NORMAL); /* square: a tensor taken for its transpose stays inside */
        ng_result result;
        judge_with(&(ng_settings){.threads = 2, .variants = true}, &one, &result);
        bool as_expected = result.verdict == rows[r].verdict || (rows[r].verdict == NG_MOVED && result.verdict == NG_FAIL);
        cr_expect(as_expected, "row %zu: %s (%s)", r, ng_verdict_names[result.verdict], result.reason);
        cr_expect_not_null(strstr(result.reason, rows[r].reason), "row %zu: \"%s\"", r, result.reason);
        cr_assert_eq(result.variant_count, 2, "row %zu: %d variants", r, result.variant_count);
        cr_expect_str_eq(result.variants[1].algorithm, "in two parts");
        cr_expect(r > 2 || (result.variants[0].differ == 0 && result.variants[1].differ == 0), "row %zu", r);
        cr_expect(r > 2 || strcmp(result.variants[0].digest, result.variants[1].digest), "row %zu: one part and two give the same bits", r);
        judge_with(&(ng_settings){.threads = 2}, &one, &result);
        cr_expect_eq(result.variant_count, 1, "variants that nobody asked for");
    }
}

/* A NaN stays a tensor's maximum whatever follows it: the reference's two tiers are told the same one, and no quantizer is accused. */
static void nan_before_the_end(void) {
    for (uint64_t seed = 1; seed <= 40; seed++) {
        ng_quantization nvfp4 = {.element = NG_E2M1, .scale = NG_UE4M3, .blocks = {1, 16}, .rule = NG_SCALE_NVFP4_TE, .tensor_scale = true,
                                 .cast = {.saturate = true, .nan = NG_NAN_MAX}};
        ng_kernel kernel = quantize_kernel(RIGHT);
        kernel.name = "quantize/bf16->nvfp4/test";
        kernel.out = NG_E2M1;
        kernel.contract.quantization = nvfp4;
        ng_case one = plain_case(&kernel, 32, 256, NG_NONFINITE);
        ng_result result;
        one.data.seed = seed;
        judge(&one, &result);
        cr_expect_eq(result.verdict, NG_PASS, "seed %lu: %s", (unsigned long)seed, result.reason);
    }
}

static void bits_that_change(void) {
    ng_kernel kernel = gemm_kernel(FLIPPED_BIT, NG_BF16, NG_SUM_CHAIN);
    ng_case one = product_case(&kernel, 8, 8, 16, NG_NORMAL);
    ng_result result;
    one.repeats = 30;
    judge(&one, &result);
    check(&(expectation){FLIPPED_BIT, NG_FAIL, "gave other bits than the first"}, &result);
    cr_expect(result.nondeterministic);
    /* a kernel that promises nothing is only noted */
    kernel.contract.determinism = NG_NONDETERMINISTIC;
    launches = 0;
    judge(&one, &result);
    cr_expect_eq(result.verdict, NG_PASS, "%s", result.reason);
    cr_expect(result.nondeterministic);
    kernel = gemm_kernel(THREAD_DEPENDENT, NG_BF16, NG_SUM_CHAIN);
    one.repeats = 4;
    judge(&one, &result);
    cr_expect_eq(result.verdict, NG_FAIL);
    cr_expect(result.nondeterministic);
}

static void cast_faults(void) {
    static const expectation rows[] = {
        {RIGHT, NG_PASS, ""},           {WRONG_ELEMENT, NG_FAIL, "OUT[8][12]"}, {ONE_ULP, NG_FAIL, "beyond it"},
        {ALL_NAN, NG_FAIL, "NaN"},      {ALL_ZERO, NG_FAIL, "beyond it"},       {TRUNCATED, NG_FAIL, "beyond it"},
        {UNWRITTEN, NG_FAIL, "never written"}, {CHANGED_INPUT, NG_FAIL, "changed its input IN"},
        {SWAPPED_ROWS, NG_FAIL, "beyond it"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ng_kernel kernel = cast_kernel(rows[r].fault);
        ng_case one = plain_case(&kernel, 9, 13, NG_NORMAL);
        ng_result result;
        judge(&one, &result);
        check(&rows[r], &result);
    }
}

/* Every input: the lost sign of -0 is one code of 65,536. */
static void every_input(void) {
    static const expectation rows[] = {{RIGHT, NG_PASS, ""}, {NEGATIVE_ZERO, NG_FAIL, "OUT[128][0] is 0, exact -0: 1 elements"}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ng_kernel kernel = cast_kernel(rows[r].fault);
        ng_case one = plain_case(&kernel, 0, 0, NG_NORMAL);
        ng_result result;
        one.exhaustive = true;
        judge(&one, &result);
        check(&rows[r], &result);
        cr_expect_eq(result.error.checked, 65536);
    }
}

static void quantize_faults(void) {
    static const expectation rows[] = {
        {RIGHT, NG_PASS, ""}, {WRONG_ELEMENT, NG_FAIL, "OUT_SCALES[0][1]"}, {ONE_ULP, NG_FAIL, "OUT[4][96]"}, {BEYOND_END, NG_FAIL, "outside OUT"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ng_kernel kernel = quantize_kernel(rows[r].fault);
        ng_case one = plain_case(&kernel, 9, 97, NG_NORMAL);
        ng_result result;
        judge(&one, &result);
        check(&rows[r], &result);
        if (rows[r].fault == BEYOND_END) continue; /* what it wrote is not looked at */
        cr_expect(result.error.by_tier[NG_TIER_MPFR] > 0);
        cr_expect(result.recipe_error.sqnr_db > 25 && result.recipe_error.sqnr_db < 40, "%g dB", result.recipe_error.sqnr_db);
    }
}

/* ---- verdicts that are no pass ------------------------------------------------------------------------------------*/
/* A bound wider than every exact value, and no prediction: zeros would have passed. */
static void powerless_is_vacuous(void) {
    ng_kernel kernel = gemm_kernel(RIGHT, NG_FP32, NG_SUM_ANY);
    ng_case one = product_case(&kernel, 1, 1, 64, NG_ILL_CONDITIONED);
    ng_result result;
    one.data.parameter = one.data_b.parameter = 1e12;
    judge(&one, &result);
    check(&(expectation){RIGHT, NG_VACUOUS, "a result of zeros would have passed"}, &result);
    /* the same with an order to predict can fail */
    kernel = gemm_kernel(RIGHT, NG_FP32, NG_SUM_CHAIN);
    judge(&one, &result);
    cr_expect_eq(result.verdict, NG_PASS, "%s", result.reason);
}

static void skips(void) {
    ng_kernel kernel = gemm_kernel(RIGHT, NG_FP32, NG_SUM_CHAIN);
    ng_case one = product_case(&kernel, 1001, 8, 8, NG_NORMAL);
    ng_result result;
    judge(&one, &result);
    check(&(expectation){RIGHT, NG_SKIP, "at most 1000 rows"}, &result);
    /* quantized operands that no kernel of the catalogue makes */
    kernel = gemm_kernel(RIGHT, NG_FP32, NG_SUM_CHAIN);
    kernel.in = NG_E4M3;
    kernel.contract.a = (ng_quantization){.element = NG_E4M3, .scale = NG_E8M0, .blocks = {1, 32}, .rule = NG_SCALE_MX_FLOOR, .cast.saturate = true};
    one = product_case(&kernel, 8, 8, 32, NG_NORMAL);
    one.mode = NG_AUTOCAST;
    judge(&one, &result);
    check(&(expectation){RIGHT, NG_SKIP, "quantizes operand a"}, &result);
}

/* Sums of integers are exact in any order: the bound is 0, whoever adds them. */
static void integers_are_exact(void) {
    ng_kernel kernel = gemm_kernel(OTHER_ORDER, NG_FP32, NG_SUM_ANY);
    ng_case one = product_case(&kernel, 9, 13, 65, NG_INTEGERS);
    ng_result result;
    judge(&one, &result);
    cr_expect_eq(result.verdict, NG_PASS, "%s", result.reason);
    cr_expect_eq(result.error.max_abs, 0);
    kernel = gemm_kernel(ONE_ULP, NG_FP32, NG_SUM_ANY);
    judge(&one, &result);
    cr_expect_eq(result.verdict, NG_FAIL, "one last bit of an exact sum: %s", ng_verdict_names[result.verdict]);
}

/* ---- figures ------------------------------------------------------------------------------------------------------*/
/* bf16 has a last place of 2^-7 at 1, 2^-6 at 2, 2^-5 at 4.
 *   c = 2 + 2^-8, y = 2, B = 2^-8: the interval begins at RN(2) = 2, rejection below it at 2 - 2^-8, 2^-7 away from c: ratio 1/2.
 *   c = -4, y = -4 - 2^-5, B = 2^-7: the interval ends at RN(-4 - 2^-7) = -4, rejection begins at -4 - 2^-6: ratio 2. */
static void figures_by_hand(void) {
    static const double exact[] = {0x1p+0, 0x1.008p+1, -0x1p+2}, bound[] = {0, 0x1p-8, 0x1p-7};
    static const double got[] = {0x1p+0, 0x1p+1, -0x1.02p+2};
    static const ng_cast cast = {.rounding = NG_RN_EVEN};
    uint16_t codes[3];
    ng_tensor out = {codes, NG_BF16, NG_HOST, 1, 3, sizeof codes};
    ng_error_figures f;
    ng_power power;
    for (int j = 0; j < 3; j++)
        ng_set_code(&out, 0, j, ng_round(NG_BF16, got[j], &cast, 0));
    cr_assert_eq(ng_measure(&out, &cast, &(ng_truth){exact, NULL, bound, NULL}, 2, &f, &power), NG_OK);
    cr_expect_eq(f.max_abs, 0x1p-5);
    cr_expect_eq(f.max_rel, 0x1p-7);
    cr_expect_eq(f.max_ulp, 1.0);
    cr_expect_eq(f.bound_ratio, 2.0, "%a", f.bound_ratio);
    cr_expect(f.beyond_bound == 1 && f.worst[0] == 0 && f.worst[1] == 2 && f.checked == 3 && !f.nonfinite_mismatch);
    cr_expect_eq(f.worst_computed, -0x1.02p+2);
    double e2 = 0x1p-16 + 0x1p-10, c2 = 1 + 0x1.008p+1 * 0x1.008p+1 + 16;
    cr_expect_eq(f.rms_rel, sqrt(e2 / c2));
    cr_expect_eq(f.sqnr_db, 10 * log10(c2 / e2));
    cr_expect_eq(f.bias, (0x1p-5 - 0x1p-8) / (7 + 0x1p-8)); /* away from zero: positive */
    cr_expect(power.bounded == 3 && power.zero_rejected == 3);
    ng_set_code(&out, 0, 2, ng_round(NG_BF16, -4, &cast, 0));
    cr_assert_eq(ng_measure(&out, &cast, &(ng_truth){exact, NULL, bound, NULL}, 1, &f, &power), NG_OK);
    cr_expect_eq(f.bound_ratio, 0.5, "%a", f.bound_ratio);
}

/* Kinds: NaN for a number, a number for NaN, an infinity of the wrong sign, a zero of the wrong sign; and what agrees. */
static void kinds(void) {
    static const struct row {
        double exact, bound, got;
        bool agrees;
    } rows[] = {
        {1, 1, NAN, false}, {NAN, 0, 1, false}, {NAN, 0, NAN, true}, {INFINITY, 0, INFINITY, true}, {INFINITY, 0, -INFINITY, false},
        {INFINITY, 0, 1e38, false}, {0, 0, -0.0, false}, {0, 0, 0, true}, {-0x1p-140, 0, 0, false}, {-0x1p-140, 0, -0.0, true},
        {-0x1p-140, 0x1p-130, 0, true}, {0x1.ffp+127, 0x1p+127, INFINITY, true}, {1, INFINITY, NAN, true}, {1, 0, INFINITY, false},
    };
    static const ng_cast cast = {.rounding = NG_RN_EVEN};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        uint16_t code;
        ng_tensor out = {&code, NG_BF16, NG_HOST, 1, 1, sizeof code};
        ng_error_figures f;
        ng_power power;
        ng_set_code(&out, 0, 0, ng_round(NG_BF16, rows[r].got, &cast, 0));
        cr_assert_eq(ng_measure(&out, &cast, &(ng_truth){&rows[r].exact, NULL, &rows[r].bound, NULL}, 1, &f, &power), NG_OK);
        cr_expect_eq(f.nonfinite_mismatch + f.beyond_bound, !rows[r].agrees, "row %zu: exact %g, got %g", r, rows[r].exact, rows[r].got);
    }
}

static bool same_figures(const ng_error_figures *a, const ng_error_figures *b) {
    const double *x[] = {&a->max_abs, &a->max_rel, &a->max_ulp, &a->rms_rel, &a->bias, &a->sqnr_db, &a->bound_ratio, &a->worst_exact};
    const double *y[] = {&b->max_abs, &b->max_rel, &b->max_ulp, &b->rms_rel, &b->bias, &b->sqnr_db, &b->bound_ratio, &b->worst_exact};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        if (memcmp(x[i], y[i], sizeof(double))) return false;
    return a->worst[0] == b->worst[0] && a->worst[1] == b->worst[1];
}

static void threads_do_not_matter(void) {
    ng_kernel kernel = gemm_kernel(RIGHT, NG_FP32, NG_SUM_CHAIN), cast = cast_kernel(RIGHT);
    ng_case cases[] = {product_case(&kernel, 300, 300, 3, NG_NORMAL), plain_case(&cast, 517, 311, NG_NORMAL)};
    for (size_t c = 0; c < 2; c++) {
        ng_result one, two;
        judge_with(&(ng_settings){.threads = 1}, &cases[c], &one);
        judge_with(&(ng_settings){.threads = 2}, &cases[c], &two);
        cr_expect_eq(one.verdict, NG_PASS, "%s", one.reason);
        cr_expect(same_figures(&one.error, &two.error) && same_figures(&one.recipe_error, &two.recipe_error));
        cr_expect_str_eq(one.digest, two.digest);
    }
}

static void timing_has_quartiles(void) {
    ng_kernel kernel = cast_kernel(RIGHT);
    ng_case one = plain_case(&kernel, 32, 32, NG_NORMAL);
    ng_result r;
    judge_with(&(ng_settings){.threads = 1, .timing = true, .time_limit_s = 0.5}, &one, &r);
    cr_expect(r.speed.present && r.speed.samples >= 30, "%d samples", r.speed.samples);
    cr_expect(0 < r.speed.q1_s && r.speed.q1_s <= r.speed.median_s && r.speed.median_s <= r.speed.q3_s);
    cr_expect_eq(r.speed.bytes, 32 * 32 * 3);
    cr_expect(r.speed.roofline > 0 && r.speed.rate > 0);
}

/* ---- expansion ----------------------------------------------------------------------------------------------------*/
static const ng_distribution normal_and_ties[] = {NG_NORMAL, NG_TIES, NG_DISTRIBUTIONS}, normal[] = {NG_NORMAL, NG_DISTRIBUTIONS};

static const ng_case_row rows_of_test[] = {
    {"formats", NG_OP_CAST, "cast/*", "tails", 9, 13, 0, normal_and_ties, NG_PREQUANTIZED, .level = NG_SMOKE},
    {"formats", NG_OP_CAST, "cast/*", "tails", 9, 13, 0, normal, NG_PREQUANTIZED, .level = NG_CI, .repeats = 9},
    {"sweep16", NG_OP_CAST, "cast/*", NULL, 0, 0, 0, NULL, NG_PREQUANTIZED, .level = NG_CI},
    {"gemm", NG_OP_GEMM, "gemm/*", "layer", 4, 6, 8, normal, NG_PREQUANTIZED, .level = NG_SMOKE, .phases = 1u << NG_DGRAD | 1u << NG_WGRAD},
};

static ng_status expand(ng_selection selection, ng_case_list *list, ng_error *error) {
    static ng_kernel kernels[2];
    static const ng_kernel *const known[] = {&kernels[0], &kernels[1]};
    kernels[0] = cast_kernel(RIGHT);
    kernels[1] = gemm_kernel(RIGHT, NG_FP32, NG_SUM_CHAIN);
    selection.rows = rows_of_test;
    selection.row_count = sizeof rows_of_test / sizeof *rows_of_test;
    return ng_expand(&selection, &(ng_catalogue){known, 2}, list, error);
}

static void ids_and_levels(void) {
    static const char *const ids[] = {
        "cast/bf16->e4m3/test/tails/9x13/normal", "cast/bf16->e4m3/test/tails/9x13/ties", "sweep16/cast/bf16->e4m3/test",
        "gemm/bf16/test/dgrad/layer/4x8x6/normal/prequantized", "gemm/bf16/test/wgrad/layer/6x8x4/normal/prequantized",
    };
    ng_case_list list;
    ng_error error = {0};
    cr_assert_eq(expand((ng_selection){.level = NG_CI, .seed = 1}, &list, &error), NG_OK, "%s", error.text);
    cr_assert_eq(list.count, 5);
    for (size_t i = 0; i < list.count; i++)
        cr_expect_str_eq(list.cases[i].id, ids[i]);
    cr_expect(list.cases[0].level == NG_SMOKE && list.cases[0].repeats == 9); /* two rows ask for it */
    /* wgrad: dy^T [6][4] and x^T [8][4] of dy [4][6], x [4][8] */
    const ng_case *wgrad = &list.cases[4];
    cr_expect(wgrad->data.stream == 2 && wgrad->data.transposed && wgrad->data.whole_rows == 4 && wgrad->data.whole_columns == 6);
    cr_expect(wgrad->data_b.stream == 0 && wgrad->data_b.transposed && wgrad->data_b.whole_rows == 4 && wgrad->data_b.whole_columns == 8);
    ng_case_list_free(&list);
    cr_assert_eq(expand((ng_selection){.level = NG_SMOKE, .seed = 1}, &list, &error), NG_OK);
    cr_expect_eq(list.count, 4);
    ng_case_list_free(&list);
}

static void filters_that_match_nothing(void) {
    static const char *const unknown[] = {"cast/bf16->e4m4/test/*"}, *const later[] = {"sweep16/*"};
    ng_case_list list;
    ng_error error = {0};
    cr_expect_eq(expand((ng_selection){.level = NG_CI, .filters = unknown, .filter_count = 1}, &list, &error), NG_BAD_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "the nearest: cast/bf16->e4m3/test/tails"), "%s", error.text);
    cr_expect_eq(expand((ng_selection){.level = NG_SMOKE, .filters = later, .filter_count = 1}, &list, &error), NG_BAD_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "add --level ci"), "%s", error.text);
}

static void big_shapes_are_sampled(void) {
    ng_case_list list;
    ng_error error = {0};
    cr_assert_eq(expand((ng_selection){.seed = 3, .shape = {4100, 4096, 4096}}, &list, &error), NG_OK, "%s", error.text);
    cr_assert_eq(list.count, 1);
    const ng_sample *s = &list.cases[0].sample;
    cr_expect(s->row % 128 == 0 && s->column % 128 == 0 && s->rows <= 128 && s->rows > 0 && s->columns == 128 && s->row + s->rows <= 4100);
    ng_case_list_free(&list);
    cr_assert_eq(expand((ng_selection){.seed = 3, .shape = {4100, 4096, 4096}, .full = true}, &list, &error), NG_OK);
    cr_expect_eq(list.cases[0].sample.rows, 0);
    ng_case_list_free(&list);
}

/* What a GPU makes itself it verifies whole; other data, and --verify cpu, would keep a CPU busy for hours. */
static void data_made_on_a_gpu(void) {
    static const ng_distribution whole[] = {NG_NORMAL, NG_OUTLIERS, NG_NONFINITE, NG_INTEGERS}, sampled[] = {NG_TIES, NG_ILL_CONDITIONED, NG_NEAR_OVERFLOW, NG_FILE_TENSOR};
    for (int i = 0; i < 4; i++) {
        cr_expect(ng_data_is_binary32(&(ng_data_spec){.distribution = whole[i]}), "%s", ng_distribution_names[whole[i]]);
        cr_expect_not(ng_data_is_binary32(&(ng_data_spec){.distribution = sampled[i]}), "%s", ng_distribution_names[sampled[i]]);
    }
}

const ng_test ng_tests[] = {
    {"judge", "products with planted faults", product_faults, 0},
    {"judge", "another order of summation is moved, or right where none is promised", other_order_moves, 0},
    {"judge", "one last bit of one element is found and named", one_bit_is_found, 0},
    {"judge", "bits that change between launches or with the number of threads", bits_that_change, 0},
    {"judge", "casts with planted faults", cast_faults, 0},
    {"judge", "every 16-bit input, and the lost sign of -0", every_input, 0},
    {"judge", "quantizers with planted faults", quantize_faults, 0},
    {"judge", "a comparison that zeros would pass is vacuous", powerless_is_vacuous, 0},
    {"judge", "unsupported problems and missing quantizers are skips", skips, 0},
    {"judge", "exact sums have no bound to hide in", integers_are_exact, 0},
    {"judge", "figures of three elements, by hand", figures_by_hand, 0},
    {"judge", "NaN, infinities and signs of zeros are results", kinds, 0},
    {"judge", "figures and digests with 1 and 2 threads", threads_do_not_matter, 0},
    {"judge", "medians, quartiles and rooflines", timing_has_quartiles, 0},
    {"expand", "ids, levels and the operands of phases", ids_and_levels, 0},
    {"expand", "filters that match nothing name the nearest ids, or the level", filters_that_match_nothing, 0},
    {"expand", "large products are sampled in aligned blocks", big_shapes_are_sampled, 0},
    {"judge", "variants, transposed operands and biases, each as its contract says", variants_and_ways, 0},
    {"judge", "a NaN before the end of a tensor", nan_before_the_end, 0},
    {"judge", "data that a GPU makes itself", data_made_on_a_gpu, 0},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
