/* Our own exp, tail, log and powers against MPFR; the fast tiers of the references against their slow ones; lists of tensors
 * against one at a time. */
#include "suites/test.h"

#include "kernels/catalogue.h"
#include "kernels/common/activation.h"
#include "kernels/common/optimizer.h"
#include "reference/activation.h"
#include "reference/elementary.h"
#include "reference/optimizer.h"

#include <math.h>
#include <mpfr.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252u;
static uint32_t word(void) { /* xorshift64* (Vigna 2016) */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (uint32_t)((state * 2685821657736338717u) >> 32);
}
static double uniform(double from, double to) { return from + (to - from) * ((double)word() * 0x1p-32); }

/* ---- functions ----------------------------------------------------------------------------------------------------*/
/* What |y - exact| is beyond the absolute part, relative to exact. */
static double relative(double y, double exact, double absolute) {
    const double off = fabs(y - exact) - absolute;
    return off > 0 ? off / fabs(exact) : 0;
}

/* Every `stride`-th binary32 that can matter: below 2^-27 the results are 1, or that less the argument. With 1 as stride, every one. */
static void test_functions(void) {
    const char *asked = getenv("NG_STRIDE");
    const int64_t stride = asked && atoll(asked) > 0 ? atoll(asked) : 211;
    double exp_worst = 0, density_worst = 0, tail_worst = 0;
#pragma omp parallel for reduction(max : exp_worst, density_worst, tail_worst)
    for (int64_t bits = 0x32000000; bits < 0x43000000; bits += stride) {
        const float x = ng_float((uint32_t)bits);
        const double wide = (double)x;
        if (x < 88.72f) exp_worst = fmax(exp_worst, relative((double)ng_exp(x), ng_reference_exp(wide), 0x1p-149));
        exp_worst = fmax(exp_worst, relative((double)ng_exp(-x), ng_reference_exp(-wide), 0x1p-149));
        const float a = ng_normal_argument(x), density = ng_density(a);
        density_worst = fmax(density_worst, relative((double)density, ng_reference_exp(-wide * wide / 2), 0x1p-148));
        tail_worst = fmax(tail_worst, relative((double)ng_tail_of(a, density), ng_reference_tail(wide), 0x1p-145));
    }
    cr_expect(exp_worst + NG_ELEMENTARY_ERROR < NG_EXP_RELATIVE, "exp: 2^%.3f", log2(exp_worst));
    cr_expect(density_worst + NG_ELEMENTARY_ERROR < NG_DENSITY_RELATIVE, "density: 2^%.3f", log2(density_worst));
    cr_expect(tail_worst + NG_ELEMENTARY_ERROR < NG_TAIL_RELATIVE, "tail: 2^%.3f", log2(tail_worst));
}

static void test_special(void) {
    cr_expect(ng_exp(-INFINITY) == 0 && isinf(ng_exp(INFINITY)) && isnan(ng_exp(NAN)) && ng_exp(0) == 1 && ng_exp(-0.0f) == 1);
    cr_expect(isinf(ng_exp(88.73f)) && ng_exp(-104) == 0 && ng_exp(-103) > 0);
    cr_expect(ng_logistic(INFINITY) == 1 && ng_logistic(-INFINITY) == 0 && ng_logistic(0) == 0.5f && isnan(ng_logistic(NAN)));
    cr_expect(isnan(ng_activate(NG_GELU_ERF, NAN, 1)) && ng_activate(NG_GELU_ERF, 100, 1) == 100 && ng_activate(NG_GELU_ERF, -100, 1) == 0);
    cr_expect(ng_log(1) == 0 && isinf(ng_log((double)INFINITY)) && isnan(ng_log((double)NAN)));
}

/* The reference's own functions, and log, against MPFR. */
static void test_elementary(void) {
    mpfr_t x, y, z;
    mpfr_inits2(120, x, y, z, (mpfr_ptr)0);
    for (int i = 0; i < 3000; i++) {
        const double a = uniform(-105, 89), b = uniform(0, i % 2 ? 35.9 : 6), c = ldexp(uniform(1, 2), (int)(word() % 60) - 20);
        mpfr_set_d(x, a, MPFR_RNDN);
        mpfr_exp(y, x, MPFR_RNDN);
        cr_expect(relative(ng_reference_exp(a), mpfr_get_d(y, MPFR_RNDN), 0) < NG_ELEMENTARY_ERROR, "exp(%a)", a);
        mpfr_set_d(x, b, MPFR_RNDN);
        mpfr_sqrt_ui(z, 2, MPFR_RNDN);
        mpfr_div(x, x, z, MPFR_RNDN);
        mpfr_erfc(y, x, MPFR_RNDN);
        cr_expect(relative(ng_reference_tail(b), mpfr_get_d(y, MPFR_RNDN) / 2, 0) < NG_ELEMENTARY_ERROR, "tail(%a)", b);
        mpfr_set_d(x, c, MPFR_RNDN);
        mpfr_log(y, x, MPFR_RNDN);
        cr_expect(relative(ng_reference_log(c), mpfr_get_d(y, MPFR_RNDN), 0x1p-50) < NG_ELEMENTARY_ERROR, "log(%a)", c);
        cr_expect(relative(ng_log(c), mpfr_get_d(y, MPFR_RNDN), 0) < 0x1p-45, "our log(%a)", c);
    }
    mpfr_clears(x, y, z, (mpfr_ptr)0);
}

static void test_powers(void) {
    static const double betas[] = {0.9, 0.999, 0.95, 0.5, 0.9999999, 0x1.ffcp-1};
    static const int64_t steps[] = {1, 2, 3, 7, 100, 1000, 2000, 123457, 999999, 1000000};
    mpfr_t x;
    mpfr_init2(x, 2200);
    for (size_t b = 0; b < sizeof betas / sizeof *betas; b++)
        for (size_t t = 0; t < sizeof steps / sizeof *steps; t++) {
            mpfr_set_d(x, betas[b], MPFR_RNDN);
            mpfr_pow_ui(x, x, (unsigned long)steps[t], MPFR_RNDN);
            mpfr_ui_sub(x, 1, x, MPFR_RNDN);
            const double exact = mpfr_get_d(x, MPFR_RNDN), ours = ng_one_minus_power(betas[b], steps[t]);
            cr_expect(ours == exact, "1 - %g^%lld: %a, exact %a", betas[b], (long long)steps[t], ours, exact);
        }
    mpfr_clear(x);
}

/* ---- references ---------------------------------------------------------------------------------------------------*/
static bool within(ng_running fast, double high, double low) { return fabs((fast.c - high) - low) <= fast.r || fast.c == high; }

static double some_input(int i) {
    const double sizes[] = {1, 10, 1e-3, 100, 1e-20, 1e15};
    return (double)(float)(uniform(-1, 1) * sizes[i % 6]);
}

static void test_activation_tiers(void) {
    for (int i = 0; i < 1500; i++) {
        const double x = some_input(i), u = some_input(i / 6), d = some_input(i / 36);
        for (int kind = 0; kind < 3; kind++) {
            ng_running fast[2];
            double high[2], low[2];
            high[0] = ng_reference_activation_mpfr((ng_activation_kind)kind, x, u, low);
            cr_expect(within(ng_reference_activation((ng_activation_kind)kind, x, u), high[0], low[0]), "kind %d of %a, %a", kind, x, u);
            ng_reference_activation_backward((ng_activation_kind)kind, x, u, d, fast);
            ng_reference_activation_backward_mpfr((ng_activation_kind)kind, x, u, d, high, low);
            cr_expect(within(fast[0], high[0], low[0]), "kind %d, dx of %a, %a, %a: %a, exact %a, remainder %a", kind, x, u, d, fast[0].c, high[0], fast[0].r);
            cr_expect(kind != NG_SWIGLU || within(fast[1], high[1], low[1]), "du of %a, %a, %a", x, u, d);
        }
    }
}

static void test_loss_tiers(void) {
    double x[300], low[2];
    for (int i = 0; i < 40; i++) {
        const int columns = 1 + (int)(word() % 300), label = (int)(word() % (uint32_t)columns);
        for (int j = 0; j < columns; j++)
            x[j] = (double)(float)(uniform(-1, 1) * (i % 3 ? 4 : 60));
        const ng_loss_result fast = ng_reference_loss(x, columns, label), slow = ng_reference_loss_mpfr(x, columns, label, low);
        cr_expect(within(fast.sum, slow.sum.c, low[0]) && within(fast.loss, slow.loss.c, low[1]), "row %d", i);
        const ng_running g = ng_reference_loss_gradient(x[0], fast.max, fast.sum.c, label == 0, 0.5);
        const double high = ng_reference_loss_gradient_mpfr(x[0], fast.max, fast.sum.c, label == 0, 0.5, low);
        cr_expect(within(g, high, low[0]), "gradient of row %d", i);
    }
}

static const double usual[NG_SCALARS] = {[NG_LEARNING_RATE] = 1e-3, [NG_BETA1] = 0.9, [NG_BETA2] = 0.999, [NG_EPSILON] = 1e-8, [NG_WEIGHT_DECAY] = 0.1};

/* The tiers agree, and the kernel's arithmetic, the prediction and the bounds do. */
static void test_adam_tiers(void) {
    for (int i = 0; i < 3000; i++) {
        const ng_optimizer o = {.kind = (ng_optimizer_kind)(i % 3), .bias_correction = i % 7 != 0};
        const double step = i % 5 ? 1 + word() % 1000000 : 1, g = some_input(i), p = some_input(i + 1) * 0x1p-10, m = i % 5 ? some_input(i) * 0.1 : 0, v = i % 5 ? g * g * 0.3 : 0;
        ng_adam_reference f;
        double low[3];
        ng_adam_reference_begin(&o, usual, step, &f);
        const float before[3] = {(float)p, (float)m, (float)v};
        const ng_adam_result fast = ng_adam_reference_step(&f, g, (double)before[0], (double)before[1], (double)before[2]);
        const ng_adam_result slow = ng_adam_reference_mpfr(&f, g, (double)before[0], (double)before[1], (double)before[2], low);
        cr_expect(within(fast.p, slow.p.c, low[0]) && within(fast.m, slow.m.c, low[1]) && within(fast.v, slow.v.c, low[2]), "step %g of %a", step, g);
        const ng_adam_factors factors = ng_adam_factors_of(usual, o.bias_correction, (int64_t)step);
        float ours[3] = {before[0], before[1], before[2]}, predicted[3] = {before[0], before[1], before[2]};
        ng_adam(o.kind, &factors, (float)g, &ours[0], &ours[1], &ours[2]);
        ng_adam_predict(&f, (float)g, &predicted[0], &predicted[1], &predicted[2]);
        cr_expect(!memcmp(ours, predicted, sizeof ours), "step %g of %a: %a %a %a, predicted %a %a %a", step, g, (double)ours[0], (double)ours[1], (double)ours[2], (double)predicted[0], (double)predicted[1], (double)predicted[2]);
        cr_expect(!(fabs((double)ours[0] - slow.p.c - low[0]) > slow.p.e), "p of step %g beyond its bound", step);
    }
}

/* ---- lists --------------------------------------------------------------------------------------------------------*/
static const ng_kernel *find(const char *name) {
    static const ng_kernel *kernels[4096];
    const size_t count = ng_builtin_kernels(kernels, 4096);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(kernels[i]->name, name)) return kernels[i];
    cr_assert(false, "no kernel %s", name);
    return NULL;
}

enum { TENSORS = 3000, MOST = 90 };
typedef struct adam_state {
    float p[TENSORS * MOST], g[TENSORS * MOST], m[TENSORS * MOST], v[TENSORS * MOST];
} adam_state;

static void fill(adam_state *s) {
    state = 12345;
    for (int i = 0; i < TENSORS * MOST; i++) {
        s->p[i] = (float)uniform(-1, 1);
        s->g[i] = (float)uniform(-1, 1);
        s->m[i] = (float)uniform(-0.1, 0.1);
        s->v[i] = (float)uniform(0, 0.1);
    }
}

/* 3000 tensors in one launch, each alone, and by plain C and one thread: the same bits, and nothing between them changed. */
static void test_list(void) {
    static const ng_role roles[4] = {NG_PARAMETER, NG_GRADIENT, NG_MOMENT_1, NG_MOMENT_2};
    static adam_state together, alone;
    static ng_tensor lists[4][TENSORS];
    const ng_kernel *kernel = find("adamw/fp32/cpu/torch");
    ng_problem problem = {.op = NG_OP_OPTIMIZER, .m = 1, .n = TENSORS * MOST, .k = TENSORS};
    ng_device device = {.backend = NG_BACKEND_CPU, .threads = 2};
    memcpy(problem.scalars, usual, sizeof usual);
    problem.scalars[NG_STEP] = 5;
    fill(&together);
    fill(&alone);
    ng_launch all = {.problem = &problem, .device = &device, .list_count = TENSORS};
    for (int r = 0; r < 4; r++) {
        float *const data[4] = {together.p, together.g, together.m, together.v};
        for (int i = 0; i < TENSORS; i++)
            lists[r][i] = (ng_tensor){data[r] + i * MOST, NG_FP32, NG_HOST, 1, 1 + i % MOST, 4 * MOST};
        all.lists[roles[r]] = lists[r];
    }
    cr_assert_eq(kernel->launch(kernel, &all), NG_OK);
    device.portable = true;
    device.threads = 1;
    for (int i = 0; i < TENSORS; i++) {
        float *const data[4] = {alone.p, alone.g, alone.m, alone.v};
        ng_launch one = {.problem = &problem, .device = &device};
        for (int r = 0; r < 4; r++)
            one.tensors[roles[r]] = (ng_tensor){data[r] + i * MOST, NG_FP32, NG_HOST, 1, 1 + i % MOST, 4 * MOST};
        cr_assert_eq(kernel->launch(kernel, &one), NG_OK);
    }
    cr_expect(!memcmp(&together, &alone, sizeof together));
    float found = 1;
    all.tensors[NG_FOUND_INF] = (ng_tensor){&found, NG_FP32, NG_HOST, 1, 1, 4};
    cr_assert_eq(kernel->launch(kernel, &all), NG_OK);
    cr_expect(!memcmp(&together, &alone, sizeof together), "a skipped step changed something");
    lists[2][7].columns++;
    found = 0;
    cr_expect_eq(kernel->launch(kernel, &all), NG_BAD_ARGUMENT, "a moment of another shape was taken");
}

/* A parameter and its remainder are the master, whatever it is. */
static void test_remainder(void) {
    for (int64_t bits = 0; bits < (int64_t)1 << 32; bits += 9973) {
        const uint32_t parameter = ng_master_parameter((uint32_t)bits) & 0xFFFFu, rest = (uint32_t)bits & 0xFFFFu;
        if (ng_bits(ng_master_join(parameter, rest)) != (uint32_t)bits) cr_assert(false, "%08x becomes %08x", (unsigned)bits, ng_bits(ng_master_join(parameter, rest)));
    }
}

const ng_test ng_tests[] = {
    {"neighbours", "exp, density and tail within their stated errors", test_functions, 300},
    {"neighbours", "special arguments", test_special, 0},
    {"neighbours", "the reference's functions and our log against MPFR", test_elementary, 0},
    {"neighbours", "1 - beta^t correctly rounded to a million steps", test_powers, 0},
    {"neighbours", "activations: the fast tier within its remainder of MPFR", test_activation_tiers, 0},
    {"neighbours", "cross-entropy: the fast tier within its remainder of MPFR", test_loss_tiers, 0},
    {"neighbours", "Adam: tiers, prediction, kernel arithmetic and bounds agree", test_adam_tiers, 0},
    {"neighbours", "a list of 3000 tensors equals one at a time", test_list, 0},
    {"neighbours", "a parameter and its remainder are the master", test_remainder, 0},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
