/* Norms: closed forms, the backward reference as the forward one's derivative, the two tiers on rows made to part them, the
 * order of sums where every other order gives other bits, and the CPU kernels' two instruction sets. */
#include "harness/judge.h"
#include "kernels/catalogue.h"
#include "reference/norm.h"
#include "reference/round.h"
#include "suites/test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

static const ng_cast nearest = {.rounding = NG_RN_EVEN, .nan = NG_NAN_CANONICAL};

static ng_tensor tensor_of(ng_format_id format, int64_t rows, int64_t columns) {
    ng_tensor t = {NULL, format, NG_HOST, rows, columns, ng_row_bytes(format, columns)};
    t.data = calloc((size_t)(rows * t.row_bytes) + 1, 1);
    cr_assert(t.data);
    return t;
}

static void set(const ng_tensor *t, int64_t i, int64_t j, double x) { ng_set_code(t, i, j, ng_round(t->format, x, &nearest, 0)); }

static double uniform(uint64_t seed, uint64_t index) { /* [-1, 1), splitmix64 */
    uint64_t z = seed * 0x9E3779B97F4A7C15u + (index + 1) * 0xD1342543DE82EF95u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1;
}

static ng_tensor random_tensor(ng_format_id format, int64_t rows, int64_t columns, uint64_t seed, double scale, double shift) {
    ng_tensor t = tensor_of(format, rows, columns);
    for (int64_t i = 0; i < rows * columns; i++)
        set(&t, i / columns, i % columns, uniform(seed, (uint64_t)i) * scale + shift);
    return t;
}

/* ---- closed forms -------------------------------------------------------------------------------------------------*/
/* 1, 2, 3, 4: mean 5/2, variance 5/4, rstd 2/sqrt(5); mean square 15/2, rstd sqrt(2/15). */
static const struct closed {
    ng_norm_kind kind;
    double mean, rstd, y[4];
} closed_forms[] = {
    {NG_LAYER_NORM, 0x1.4p+1, 0x1.c9f25c5bfedd9p-1, {-0x1.5775c544ff263p+0, -0x1.c9f25c5bfedd9p-2, 0x1.c9f25c5bfedd9p-2, 0x1.5775c544ff263p+0}},
    {NG_RMS_NORM, 0, 0x1.75e9746a0b098p-2, {0x1.75e9746a0b098p-2, 0x1.75e9746a0b098p-1, 0x1.186f174f88472p+0, 0x1.75e9746a0b098p+0}},
};

static void test_closed_forms(void) {
    ng_tensor x = tensor_of(NG_FP32, 1, 4), gamma = tensor_of(NG_FP32, 1, 4), beta = tensor_of(NG_FP32, 1, 4);
    const ng_norm_operands o = {.in = &x, .gamma = &gamma, .beta = &beta};
    for (int j = 0; j < 4; j++) {
        set(&x, 0, j, j + 1);
        set(&gamma, 0, j, 1);
    }
    for (size_t i = 0; i < COUNT(closed_forms); i++)
        for (int tier = NG_TIER_DOUBLE_DOUBLE; tier <= NG_TIER_MPFR; tier++) {
            const struct closed *c = &closed_forms[i];
            const ng_norm norm = {.kind = c->kind, .order = NG_NORM_LANES, .parameters = NG_FP32};
            ng_norm_truth t;
            cr_assert_eq(ng_norm_truth_create(1, 4, &t), NG_OK);
            cr_assert_eq(ng_norm_forward(&norm, &o, 0, 1, (ng_tier)tier, 1, &t), NG_OK);
            cr_expect(fabs(t.mean.high[0] - c->mean) <= t.mean.remainder[0] + 0x1p-52 && fabs(t.rstd.high[0] - c->rstd) <= t.rstd.remainder[0] + 0x1p-52, "tier %d: rstd %a", tier, t.rstd.high[0]);
            for (int j = 0; j < 4; j++)
                cr_expect(fabs(t.element.high[j] - c->y[j]) <= t.element.remainder[j] + 0x1p-52, "tier %d, element %d: %a", tier, j, t.element.high[j]);
            ng_norm_truth_free(&t);
        }
    free(x.data), free(gamma.data), free(beta.data);
}

/* ---- the derivative -----------------------------------------------------------------------------------------------*/
enum { ROWS = 3, COLUMNS = 7 };

typedef struct derivative {
    ng_norm norm;
    ng_tensor x, gamma, beta, dy, mean, rstd, y;
} derivative;

static derivative make_problem(ng_norm norm) {
    derivative p = {norm, random_tensor(NG_FP64, ROWS, COLUMNS, 1, 2, 0.5), random_tensor(NG_FP64, 1, COLUMNS, 2, 0.4, norm.zero_centered ? 0 : 1), random_tensor(NG_FP64, 1, COLUMNS, 3, 1, 0),
                 random_tensor(NG_FP64, ROWS, COLUMNS, 4, 1, 0), tensor_of(NG_FP64, ROWS, 1), tensor_of(NG_FP64, ROWS, 1), tensor_of(NG_FP64, ROWS, COLUMNS)};
    return p;
}

static void free_problem(derivative *p) {
    ng_tensor *const all[] = {&p->x, &p->gamma, &p->beta, &p->dy, &p->mean, &p->rstd, &p->y};
    for (size_t i = 0; i < COUNT(all); i++)
        free(all[i]->data);
}

/* sum over elements of dy y, exact to many digits; keeps the statistics and y. */
static double objective(derivative *p) {
    const ng_norm_operands o = {.in = &p->x, .gamma = &p->gamma, .beta = &p->beta, .epsilon = 1e-5};
    ng_norm forward = p->norm;
    ng_norm_truth t;
    double sum = 0;
    forward.from_output = false;
    cr_assert_eq(ng_norm_truth_create(ROWS, COLUMNS, &t), NG_OK);
    cr_assert_eq(ng_norm_forward(&forward, &o, 0, ROWS, NG_TIER_MPFR, 1, &t), NG_OK);
    for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
        sum += t.element.high[i] * ng_get_value(&p->dy, i / COLUMNS, i % COLUMNS);
        set(&p->y, i / COLUMNS, i % COLUMNS, t.element.high[i]);
    }
    for (int64_t i = 0; i < ROWS; i++) {
        set(&p->mean, i, 0, t.mean.high[i]);
        set(&p->rstd, i, 0, t.rstd.high[i]);
    }
    ng_norm_truth_free(&t);
    return sum;
}

/* Central difference in one number: off by O(step^2) and by 2^-52 / step. */
static double slope(derivative *p, const ng_tensor *of, int64_t i, int64_t j) {
    const double step = 0x1p-17, at = ng_get_value(of, i, j);
    set(of, i, j, at + step);
    double above = objective(p);
    set(of, i, j, at - step);
    double below = objective(p);
    set(of, i, j, at);
    return (above - below) / (2 * step);
}

static void check_derivative(ng_norm norm) {
    derivative p = make_problem(norm);
    const ng_norm_operands o = {.in = norm.from_output ? &p.y : &p.x, .gamma = &p.gamma, .beta = &p.beta, .gradient = &p.dy, .mean = &p.mean, .rstd = &p.rstd, .epsilon = 1e-5};
    ng_norm_truth dx, sums;
    objective(&p);
    cr_assert_eq(ng_norm_truth_create(ROWS, COLUMNS, &dx), NG_OK);
    cr_assert_eq(ng_norm_truth_create(1, COLUMNS, &sums), NG_OK);
    cr_assert_eq(ng_norm_backward(&norm, &o, 0, ROWS, NG_TIER_DOUBLE_DOUBLE, 1, &dx), NG_OK);
    for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
        double want = slope(&p, &p.x, i / COLUMNS, i % COLUMNS);
        cr_expect(fabs(dx.element.high[i] - want) < 1e-8, "dx %lld: %.12g, slope %.12g", (long long)i, dx.element.high[i], want);
    }
    for (int which = 0; which < (norm.kind == NG_LAYER_NORM ? 2 : 1); which++) {
        objective(&p);
        cr_assert_eq(ng_norm_sums(&norm, &o, which, NG_TIER_DOUBLE_DOUBLE, 1, &sums), NG_OK);
        for (int64_t j = 0; j < COLUMNS; j++) {
            double want = slope(&p, which ? &p.beta : &p.gamma, 0, j);
            cr_expect(fabs(sums.element.high[j] - want) < 1e-8, "sum %d of column %lld: %.12g, slope %.12g", which, (long long)j, sums.element.high[j], want);
        }
    }
    ng_norm_truth_free(&dx);
    ng_norm_truth_free(&sums);
    free_problem(&p);
}

static void test_derivatives(void) {
    for (int kind = 0; kind < 2; kind++)
        for (int zero = 0; zero < 2; zero++)
            for (int output = 0; output < 2; output++)
                check_derivative((ng_norm){.kind = (ng_norm_kind)kind, .order = NG_NORM_LANES, .parameters = NG_FP32, .zero_centered = zero, .from_output = output});
}

/* ---- tiers --------------------------------------------------------------------------------------------------------*/
static const struct hard {
    double scale, shift, epsilon;
} hard_rows[] = {{1, 0, 1e-5}, {1, 1e4, 1e-5}, {1e-3, 1e7, 1e-5}, {0, 3.7, 1e-5}, {0, 3.7, 0}, {1e-40, 0, 1e-5}, {1e-40, 0, 0}, {1e30, 0, 1e-5}, {1, 0x1p24, 0}};

static void compare_tiers(const ng_norm *norm, const ng_norm_operands *o, const char *what, size_t row) {
    int64_t n = o->in->columns;
    ng_norm_truth fast, slow;
    cr_assert(!ng_norm_truth_create(1, n, &fast) && !ng_norm_truth_create(1, n, &slow));
    bool forward = !o->gradient;
    cr_assert_eq((forward ? ng_norm_forward : ng_norm_backward)(norm, o, 0, 1, NG_TIER_DOUBLE_DOUBLE, 1, &fast), NG_OK);
    cr_assert_eq((forward ? ng_norm_forward : ng_norm_backward)(norm, o, 0, 1, NG_TIER_MPFR, 1, &slow), NG_OK);
    for (int64_t j = 0; j < n; j++) {
        double off = (fast.element.high[j] - slow.element.high[j]) + (fast.element.low[j] - slow.element.low[j]);
        bool both = isnan(fast.element.high[j]) && isnan(slow.element.high[j]);
        cr_expect(both || fabs(off) <= fast.element.remainder[j], "%s, row %zu, n %lld, kind %d [%lld]: %a and %a, remainder %a", what, row, (long long)n, (int)norm->kind, (long long)j, fast.element.high[j], slow.element.high[j], fast.element.remainder[j]);
        cr_expect(fast.element.remainder[j] <= 0x1p-12 * fast.element.bound[j] || !isfinite(fast.element.bound[j]) || both, "%s, row %zu: the remainder is not small beside the bound", what, row);
    }
    ng_norm_truth_free(&fast);
    ng_norm_truth_free(&slow);
}

static void test_tiers(void) {
    static const int64_t widths[] = {1, 2, 9, 161, 1025};
    for (size_t r = 0; r < COUNT(hard_rows); r++)
        for (size_t c = 0; c < COUNT(widths); c++)
            for (int kind = 0; kind < 2; kind++) {
                int64_t n = widths[c];
                ng_tensor x = random_tensor(NG_FP32, 1, n, r + 1, hard_rows[r].scale, hard_rows[r].shift), gamma = random_tensor(NG_FP32, 1, n, 7, 1, 1);
                ng_tensor beta = random_tensor(NG_FP32, 1, n, 8, 1, 0), dy = random_tensor(NG_FP32, 1, n, 9, 1, 0), mean = tensor_of(NG_FP32, 1, 1), rstd = tensor_of(NG_FP32, 1, 1);
                const ng_norm norm = {.kind = (ng_norm_kind)kind, .order = NG_NORM_LANES, .parameters = NG_FP32};
                ng_norm_operands o = {.in = &x, .gamma = &gamma, .beta = &beta, .mean = &mean, .rstd = &rstd, .epsilon = hard_rows[r].epsilon};
                compare_tiers(&norm, &o, "forward", r);
                set(&mean, 0, 0, hard_rows[r].shift);
                set(&rstd, 0, 0, 1.7);
                o.gradient = &dy;
                compare_tiers(&norm, &o, "backward", r);
                free(x.data), free(gamma.data), free(beta.data), free(dy.data), free(mean.data), free(rstd.data);
            }
}

/* ---- order --------------------------------------------------------------------------------------------------------*/
/* 2^24 and ones: 2^24 + 1 is 2^24, 2^24 + 2 is itself. What the mean is tells which ones met before they met 2^24. */
static const struct order {
    int64_t n, ones[3];
    double sum;
} orders[] = {
    {512, {256, 256, 256}, 0x1p24},   /* the same chain: each is lost */
    {512, {4, 2, 6}, 0x1p24 + 2},     /* halving eight: 4 meets 0 and is lost, 2 and 6 meet each other */
    {512, {1, 2, 3}, 0x1p24 + 2},     /* 2 is lost; 1 and 3 meet */
    {512, {128, 64, 192}, 0x1p24 + 2}, /* lanes 16, 8 and 24 of a warp: 16 is lost */
    {512, {8, 16, 24}, 0x1p24 + 2},   /* lanes 1, 2 and 3: 2 is lost */
    {4096, {512, 256, 768}, 0x1p24 + 2}, /* warps 2, 1 and 3 of 128 lanes: 2 is lost */
    {4096, {1024, 2048, 3072}, 0x1p24}, /* one chain again: 8 x 128 */
    {16384, {2048, 1024, 3072}, 0x1p24 + 2}, /* warps 8, 4 and 12 of 512 lanes */
    /* where neighbours first would give 2^24 + 2 */
    {512, {4, 2, 3}, 0x1p24},
    {512, {128, 64, 96}, 0x1p24},
    {16384, {2048, 1024, 1536}, 0x1p24},
};

static const ng_kernel *kernel_named(const char *name) {
    static const ng_kernel *kernels[8192];
    size_t count = ng_builtin_kernels(kernels, COUNT(kernels));
    cr_assert(count <= COUNT(kernels));
    for (size_t i = 0; i < count; i++)
        if (!strcmp(kernels[i]->name, name)) return kernels[i];
    cr_assert_fail("no kernel %s", name);
    return NULL;
}

static void test_order(void) {
    const ng_kernel *kernel = kernel_named("layernorm/fp32->fp32/cpu/fp32-params");
    for (size_t i = 0; i < COUNT(orders); i++) {
        int64_t n = orders[i].n;
        ng_tensor x = tensor_of(NG_FP32, 1, n), gamma = tensor_of(NG_FP32, 1, n), beta = tensor_of(NG_FP32, 1, n), y = tensor_of(NG_FP32, 1, n);
        ng_tensor mean = tensor_of(NG_FP32, 1, 1), rstd = tensor_of(NG_FP32, 1, 1);
        set(&x, 0, 0, 0x1p24);
        for (int k = 0; k < 3; k++)
            set(&x, 0, orders[i].ones[k], 1);
        const ng_norm_operands o = {.in = &x, .gamma = &gamma, .beta = &beta, .epsilon = 1e-5};
        cr_assert_eq(ng_predict_norm_forward(&kernel->contract.norm, &o, 1, &y, &mean, &rstd), NG_OK);
        cr_expect_eq(ng_get_value(&mean, 0, 0) * (double)n, orders[i].sum, "row %zu: predicted %a", i, ng_get_value(&mean, 0, 0) * (double)n);
        const ng_problem problem = {.op = NG_OP_NORM_FORWARD, .m = 1, .n = n, .scalars = {[NG_EPSILON] = 1e-5}};
        const ng_device device = {.threads = 1};
        const ng_launch launch = {.problem = &problem, .device = &device, .tensors = {[NG_IN] = x, [NG_PARAMETER] = gamma, [NG_PARAMETER_2] = beta, [NG_OUT] = y, [NG_MEAN] = mean, [NG_RSTD] = rstd}};
        cr_assert_eq(kernel->launch(kernel, &launch), NG_OK);
        cr_expect_eq(ng_get_value(&mean, 0, 0) * (double)n, orders[i].sum, "row %zu: computed %a", i, ng_get_value(&mean, 0, 0) * (double)n);
        free(x.data), free(gamma.data), free(beta.data), free(y.data), free(mean.data), free(rstd.data);
    }
}

/* ---- paths --------------------------------------------------------------------------------------------------------*/
enum { M = 300, N = 161 };

typedef struct run {
    ng_tensor tensors[NG_ROLES];
} run;

static run launch_once(const ng_kernel *kernel, int threads, bool portable) {
    const ng_norm *norm = &kernel->contract.norm;
    const ng_quantization *q = &kernel->contract.quantization;
    const ng_problem problem = {.op = kernel->op, .m = M, .n = N, .scalars = {[NG_EPSILON] = 1e-5}};
    const ng_device device = {.threads = threads, .portable = portable};
    const ng_format_id statistics = kernel->in == NG_FP64 ? NG_FP64 : NG_FP32;
    bool forward = kernel->op == NG_OP_NORM_FORWARD, quantized = forward && q->rule != NG_SCALE_ABSENT;
    char message[128] = "";
    run r = {{{0}}};
    ng_tensor *t = r.tensors;
    t[NG_IN] = random_tensor(kernel->in, M, N, 1, 2, 0.3);
    t[NG_IN_2] = random_tensor(kernel->in, M, N, 2, 1, 0);
    t[NG_GRADIENT] = random_tensor(kernel->in, M, N, 3, 1, 0);
    t[NG_PARAMETER] = random_tensor(norm->parameters, 1, N, 4, 0.5, 1);
    t[NG_PARAMETER_2] = random_tensor(norm->parameters, 1, N, 5, 0.5, 0);
    t[NG_MEAN] = random_tensor(statistics, M, 1, 6, 0.1, 0.3);
    t[NG_RSTD] = random_tensor(statistics, M, 1, 7, 0.1, 0.9);
    t[NG_SCALE_GIVEN_IN] = random_tensor(NG_FP32, 1, 1, 8, 0, 3);
    t[NG_OUT] = tensor_of(kernel->out, M, N);
    t[NG_OUT_2] = forward ? tensor_of(kernel->in, M, N) : tensor_of(norm->parameters, 1, N);
    t[NG_OUT_3] = tensor_of(norm->parameters, 1, N);
    if (quantized) t[NG_OUT_SCALES] = tensor_of(q->scale, ng_block_count(q->blocks.rows, M), ng_block_count(q->blocks.columns, N));
    t[NG_OUT_TENSOR_SCALE] = tensor_of(NG_FP32, 1, 1);
    ng_launch launch = {.problem = &problem, .device = &device, .message = message, .message_bytes = sizeof message};
    memcpy(launch.tensors, r.tensors, sizeof launch.tensors);
    cr_assert_eq(kernel->launch(kernel, &launch), NG_OK, "%s: %s", kernel->name, message);
    return r;
}

static void free_run(run *r) {
    for (int role = 0; role < NG_ROLES; role++)
        free(r->tensors[role].data);
}

/* Plain C and AVX2, one thread and three: one set of bits. */
static void test_paths(void) {
    static const ng_kernel *kernels[8192];
    size_t count = ng_builtin_kernels(kernels, COUNT(kernels)), compared = 0;
    for (size_t i = 0; i < count; i++) {
        const ng_kernel *kernel = kernels[i];
        if ((kernel->op != NG_OP_NORM_FORWARD && kernel->op != NG_OP_NORM_BACKWARD) || kernel->backend != NG_BACKEND_CPU) continue;
        run one = launch_once(kernel, 1, false), other = launch_once(kernel, 3, true);
        for (int role = 0; role < NG_ROLES; role++) {
            const ng_tensor *a = &one.tensors[role], *b = &other.tensors[role];
            cr_expect(!a->data || !memcmp(a->data, b->data, (size_t)(a->rows * a->row_bytes)), "%s: role %d differs", kernel->name, role);
        }
        free_run(&one);
        free_run(&other);
        compared++;
    }
    cr_expect(compared >= 50, "only %zu norms", compared);
}

/* ---- another order ------------------------------------------------------------------------------------------------*/
/* LayerNorm fp32 by serial sums, in two passes or, where the kernel has a state, in one. */
static ng_status serial(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_tensor *t = launch->tensors;
    const int64_t n = launch->problem->n;
    for (int64_t i = 0; i < launch->problem->m; i++) {
        float sum = 0, squares = 0, all = 0, e = (float)launch->problem->scalars[NG_EPSILON];
        for (int64_t j = 0; j < n; j++)
            sum += (float)ng_get_value(&t[NG_IN], i, j);
        float mean = sum / (float)n;
        for (int64_t j = 0; j < n; j++) {
            float x = (float)ng_get_value(&t[NG_IN], i, j);
            squares += (x - mean) * (x - mean);
            all += x * x;
        }
        float rstd = 1 / sqrtf((kernel->state ? all / (float)n - mean * mean : squares / (float)n) + e);
        set(&t[NG_MEAN], i, 0, (double)mean);
        set(&t[NG_RSTD], i, 0, (double)rstd);
        for (int64_t j = 0; j < n; j++)
            set(&t[NG_OUT], i, j, (double)(((float)ng_get_value(&t[NG_IN], i, j) - mean) * rstd * (float)ng_get_value(&t[NG_PARAMETER], 0, j) + (float)ng_get_value(&t[NG_PARAMETER_2], 0, j)));
    }
    return NG_OK;
}

static const struct verdict_row {
    ng_norm_order order;
    bool one_pass;
    ng_distribution data;
    ng_verdict verdict;
} verdict_rows[] = {
    {NG_NORM_ANY, false, NG_NORMAL, NG_PASS},      {NG_NORM_ANY, false, NG_LARGE_MEAN, NG_PASS}, {NG_NORM_ANY, false, NG_CONSTANT, NG_PASS},
    {NG_NORM_ANY, true, NG_LARGE_MEAN, NG_FAIL},   {NG_NORM_LANES, true, NG_LARGE_MEAN, NG_FAIL}, {NG_NORM_LANES, false, NG_UNIFORM, NG_MOVED},
};

/* A kernel that promises no order is held to the bound alone, which a right one keeps and a variance in one pass does not. */
static void test_any_order(void) {
    static const char in_one_pass = 1;
    ng_kernel kernel = *kernel_named("layernorm/fp32->fp32/cpu/fp32-params");
    const ng_kernel *pointer = &kernel;
    const ng_catalogue catalogue = {&pointer, 1};
    const ng_settings settings = {.seed = 1, .threads = 1};
    kernel.launch = serial;
    for (size_t i = 0; i < COUNT(verdict_rows); i++) {
        const struct verdict_row *v = &verdict_rows[i];
        ng_case one = {.id = "any order", .kernel = &kernel, .problem = {.op = NG_OP_NORM_FORWARD, .m = 33, .n = 161, .scalars = {[NG_EPSILON] = 1e-5}},
                       .data = {.distribution = v->data, .seed = 3, .target = NG_FP32, .whole_rows = 33, .whole_columns = 161}, .level = NG_CI, .suite = "norms"};
        ng_judge *judge;
        ng_result result;
        ng_error error = {0};
        kernel.contract.norm.order = v->order;
        kernel.state = v->one_pass ? &in_one_pass : NULL;
        cr_assert_eq(ng_judge_create(&settings, &catalogue, &judge, &error), NG_OK, "%s", error.text);
        cr_assert_eq(ng_judge_case(judge, &one, &result, &error), NG_OK, "%s", error.text);
        cr_expect_eq(result.verdict, v->verdict, "row %zu: %s, %s", i, ng_verdict_names[result.verdict], result.reason);
        cr_expect_eq(result.prediction.present, v->order == NG_NORM_LANES);
        ng_judge_free(judge);
    }
}

const ng_test ng_tests[] = {
    {"norms", "closed forms, both tiers", test_closed_forms, 0},
    {"norms", "backward is the derivative of forward", test_derivatives, 0},
    {"norms", "two tiers agree within their remainder on hard rows", test_tiers, 0},
    {"norms", "sums come in the contract's order, predicted and computed", test_order, 0},
    {"norms", "plain C and AVX2, one thread and three: the same bits", test_paths, 0},
    {"norms", "no order promised: the bound alone, and it tells one pass from two", test_any_order, 0},
};
const size_t ng_test_count = COUNT(ng_tests);
