/* The layers' references: two tiers of attention against each other, gradients against differences, rotations and averages that are known. */
#include "kernels/catalogue.h"
#include "kernels/common/fp64.h"
#include "reference/attention.h"
#include "reference/format.h"
#include "reference/fp64.h"
#include "reference/layer.h"
#include "reference/wide.h"
#include "suites/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double draw(uint64_t *state) { /* in [-1, 1) */
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*state >> 11) * 0x1p-52 - 1;
}
static double draw32(uint64_t *state) {
    const volatile float narrow = (float)draw(state);
    return (double)narrow;
}

enum { MOST = 48 * 24 };
typedef struct head {
    double q[MOST], k[MOST], v[MOST], g[MOST];
    ng_layer layer;
    ng_attention_head view;
} head;

static head *make(int64_t s, int64_t d, bool causal, ng_format_id compute, double size, uint64_t seed) {
    head *h = malloc(sizeof *h);
    cr_assert(h);
    cr_assert(s * d <= MOST);
    for (int64_t i = 0; i < s * d; i++) {
        h->q[i] = size * draw32(&seed);
        h->k[i] = size * draw32(&seed);
        h->v[i] = draw32(&seed);
        h->g[i] = draw32(&seed);
    }
    h->layer = (ng_layer){.compute = compute, .causal = causal, .exp_error = 2};
    h->view = (ng_attention_head){&h->layer, s, d, h->q, h->k, h->v, h->g};
    return h;
}

/* ---- the exponential ----------------------------------------------------------------------------------------------*/
static void test_exp(void) {
    enum { COUNT = 60000 };
    mpfr_t x, y;
    double worst = 0;
    uint64_t seed = 1;
    mpfr_inits2(120, x, y, (mpfr_ptr)0);
    for (int i = 0; i < COUNT; i++) {
        const double a = i % 3 == 0 ? 728 * draw(&seed) - 17 : i % 3 == 1 ? 8 * draw(&seed) : ldexp(draw(&seed), -i % 60), got = ng_exp64(a);
        mpfr_set_d(x, a, MPFR_RNDN);
        mpfr_exp(x, x, MPFR_RNDN);
        mpfr_set_d(y, got, MPFR_RNDN);
        mpfr_sub(y, y, x, MPFR_RNDN);
        const double error = fabs(mpfr_get_d(y, MPFR_RNDN)), exact = mpfr_get_d(x, MPFR_RNDN);
        cr_assert(error <= 2 * 0x1p-53 * exact + 0x1p-1074, "exp(%a) is %a, exact %a", a, got, exact);
        if (exact > 0x1p-1000) worst = fmax(worst, error / exact * 0x1p53);
    }
    cr_expect(worst > 0.5, "the largest error of %d is %g u: nothing was looked at", (int)COUNT, worst);
    cr_expect(ng_exp64(0) == 1 && ng_exp64(-INFINITY) == 0 && isinf(ng_exp64(INFINITY)) && isinf(ng_exp64(710)) && ng_exp64(-746) == 0 &&
              isnan(ng_exp64(NAN)));
    mpfr_clears(x, y, (mpfr_ptr)0);
}

/* ---- running error analysis ---------------------------------------------------------------------------------------*/
/* Binary64 itself, as a kernel: each operation's result is within its bound, and now and then beyond half of it. */
static void test_wide(void) {
    const ng_unit unit = ng_unit_of(NG_FP64, 2);
    ng_wide *w = ng_wide_create(3);
    uint64_t seed = 7;
    double closest = 0;
    cr_assert(w);
    for (int i = 0; i < 20000; i++) {
        const double a = ldexp(draw(&seed), i % 9), b = ldexp(draw(&seed), -i % 7), c = fabs(draw(&seed)) + 0.1;
        /* exp(sqrt(c) - a b) / c + b */
        volatile double y = sqrt(c);
        y = y - a * b;
        y = ng_exp64(y);
        y = y / c;
        y = y + b;
        ng_wide_set(&w[0], a);
        ng_wide_set(&w[1], b);
        ng_wide_mul(&unit, &w[0], &w[1], &w[0]);
        ng_wide_set(&w[2], c);
        ng_wide_sqrt(&unit, &w[2], &w[2]);
        ng_wide_sub(&unit, &w[2], &w[0], &w[0]);
        ng_wide_exp(&unit, &w[0], &w[0]);
        ng_wide_set(&w[2], c);
        ng_wide_div(&unit, &w[0], &w[2], &w[0]);
        ng_wide_add(&unit, &w[0], &w[1], &w[0]);
        double low, bound;
        const double high = ng_wide_get(&w[0], &low, &bound), error = fabs((y - high) - low);
        cr_assert(error <= bound, "case %d: %a is off %a by %g, at most %g", i, y, high, error, bound);
        closest = fmax(closest, error / bound);
    }
    cr_expect(closest > 0.3, "no error came closer to its bound than %g", closest);
    ng_wide_free(w, 3);
}

/* ---- attention ----------------------------------------------------------------------------------------------------*/
static void compare_tiers(const head *h, bool backward, double *tightest) {
    const int64_t count = (backward ? 3 : 1) * h->view.s * h->view.d;
    double *all = malloc(sizeof *all * (size_t)(5 * count));
    cr_assert(all);
    double *value = all, *bound = all + count, *high = all + 2 * count, *low = all + 3 * count, *running = all + 4 * count;
    cr_assert(ng_attention_fast(&h->view, backward, value, bound) == NG_OK);
    cr_assert(ng_attention_mpfr(&h->view, backward, high, low, running) == NG_OK);
    for (int64_t i = 0; i < count; i++) {
        cr_assert(bound[i] > 0 && isfinite(bound[i]) && isfinite(running[i]));
        cr_assert(fabs((value[i] - high[i]) - low[i]) <= NG_ATTENTION_REMAINDER * bound[i],
                  "element %lld: %a, by MPFR %a: further than a part of the bound %g", (long long)i, value[i], high[i], bound[i]);
        /* two derivations of one bound: neither is far from the other */
        cr_assert(bound[i] < 8 * running[i] + 0x1p-140 && running[i] < 8 * bound[i] + 0x1p-140, "element %lld: bounds %g and %g", (long long)i,
                  bound[i], running[i]);
        *tightest = fmin(*tightest, bound[i] / running[i]);
    }
    free(all);
}

static void test_tiers(void) {
    static const struct {
        int64_t s, d;
        double size;
    } cases[] = {{1, 1, 1}, {7, 5, 1}, {24, 16, 2}, {33, 8, 6}, {12, 3, 20}};
    double tightest = INFINITY;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int causal = 0; causal < 2; causal++)
            for (int backward = 0; backward < 2; backward++) {
                head *h = make(cases[i].s, cases[i].d, causal, NG_FP32, cases[i].size, i + 11);
                compare_tiers(h, backward, &tightest);
                free(h);
            }
    cr_expect(tightest > 0.05 && tightest < 8, "bounds in closed form over running ones: %g", tightest);
}

/* sum g o */
static double value_of(const head *h) {
    double *all = malloc(sizeof *all * (size_t)(3 * h->view.s * h->view.d)), sum = 0;
    cr_assert(all);
    const int64_t count = h->view.s * h->view.d;
    cr_assert(ng_attention_mpfr(&h->view, false, all, all + count, all + 2 * count) == NG_OK);
    for (int64_t i = 0; i < count; i++)
        sum += h->view.g[i] * all[i];
    free(all);
    return sum;
}

/* The gradient of sum g o by central differences of the forward reference: error of order step^2. */
static void test_differences(void) {
    const double step = 0x1p-14;
    for (int causal = 0; causal < 2; causal++) {
        head *h = make(5, 3, causal, NG_FP64, 2, 5);
        const int64_t count = h->view.s * h->view.d;
        double gradient[45], low[45], bound[45];
        cr_assert(ng_attention_mpfr(&h->view, true, gradient, low, bound) == NG_OK);
        double *const inputs[3] = {h->q, h->k, h->v};
        for (int64_t at = 0; at < 3 * count; at++) {
            double *x = &inputs[at / count][at % count];
            const double before = *x;
            *x = before + step;
            const double up = value_of(h);
            *x = before - step;
            const double down = value_of(h);
            *x = before;
            const double difference = (up - down) / (2 * step);
            cr_assert(fabs(difference - gradient[at]) < 1e-7, "%s[%lld]: %.12g, by differences %.12g",
                      (const char *[]){"dq", "dk", "dv"}[at / count], (long long)(at % count), gradient[at], difference);
        }
        free(h);
    }
}

/* Queries of 0 see all keys alike; one token sees itself; a key far above the others is all that is seen. */
static void test_known(void) {
    double value[MOST], bound[MOST], back[3 * MOST], back_bound[3 * MOST];
    head *h = make(9, 4, true, NG_FP32, 1, 3);
    for (int i = 0; i < 36; i++)
        h->q[i] = 0;
    cr_assert(ng_attention_fast(&h->view, false, value, bound) == NG_OK);
    for (int64_t i = 0; i < 9; i++)
        for (int64_t c = 0; c < 4; c++) {
            double mean = 0;
            for (int64_t j = 0; j <= i; j++)
                mean += h->v[j * 4 + c];
            cr_expect(fabs(value[i * 4 + c] - mean / (double)(i + 1)) < 1e-13);
        }
    for (int i = 0; i < 36; i++)
        h->q[i] = i % 4 == 0, h->k[i] = i % 4 == 0 ? (i / 4 == 2 ? 400 : -400) : 0;
    cr_assert(ng_attention_fast(&h->view, false, value, bound) == NG_OK);
    for (int i = 8; i < 36; i++)
        cr_expect(value[i] == h->v[8 + i % 4] && bound[i] < 0x1p-11, "%d: %a, bound %g", i, value[i], bound[i]);
    h->view.s = 1;
    cr_assert(ng_attention_fast(&h->view, false, value, bound) == NG_OK);
    cr_assert(ng_attention_fast(&h->view, true, back, back_bound) == NG_OK);
    for (int c = 0; c < 4; c++)
        cr_expect(value[c] == h->v[c] && back[c] == 0 && back[4 + c] == 0 && back[8 + c] == h->g[c]);
    free(h);
}

/* A NaN stays with the queries that see it; scores that overflow promise nothing. */
static void test_nonfinite(void) {
    double value[MOST], bound[MOST], high[MOST], low[MOST], running[MOST];
    head *h = make(8, 4, true, NG_FP32, 1, 3);
    h->k[5 * 4 + 1] = NAN;
    h->v[3 * 4] = INFINITY;
    cr_assert(ng_attention_fast(&h->view, false, value, bound) == NG_OK);
    cr_assert(ng_attention_mpfr(&h->view, false, high, low, running) == NG_OK);
    for (int i = 0; i < 32; i++) {
        cr_expect(isnan(value[i]) == (i >= 20) && (isinf(value[i]) != 0) == (i / 4 >= 3 && i < 20 && i % 4 == 0), "%d: %g", i, value[i]);
        cr_expect(isnan(high[i]) == isnan(value[i]) && isinf(high[i]) == isinf(value[i]));
        cr_expect(isfinite(value[i]) || bound[i] == 0);
    }
    h->k[5 * 4 + 1] = h->q[6 * 4 + 1] = 0x1p70;
    cr_assert(ng_attention_fast(&h->view, false, value, bound) == NG_OK);
    cr_expect(isinf(bound[6 * 4 + 1]) && isfinite(bound[2 * 4]));
    free(h);
}

/* ---- rotary position ----------------------------------------------------------------------------------------------*/
static void test_rope(void) {
    ng_tensor t[2];
    for (int i = 0; i < 2; i++) {
        t[i] = (ng_tensor){calloc(64 * 4, 8), NG_FP64, NG_HOST, 64, 4, 4 * 8};
        cr_assert(t[i].data);
    }
    ng_rope_tables(&t[0], &t[1]);
    const double *c = t[0].data, *s = t[1].data;
    cr_expect(c[0] == 1 && c[3] == 1 && s[0] == 0 && s[3] == 0);
    cr_expect(c[4] == 0x1.14a280fb5068cp-1 && s[4] == 0x1.aed548f090ceep-1, "cos 1 and sin 1 are %a and %a", c[4], s[4]); /* 0.5403..., 0.8414... */
    cr_expect(fabs(s[4 * 30 + 2] - sin(30 * 0.01)) < 1e-15, "position 30, half 4: angle 30 * 10000^(-2/4)");
    const ng_layer forward = {.compute = NG_FP64}, inverse = {.compute = NG_FP64, .inverse = true};
    const ng_cast cast = {.rounding = NG_RN_EVEN};
    for (int i = 0; i < 64 * 4; i++) {
        ng_layer_value turned[2], back[2];
        ng_reference_rotate(&forward, NG_FP64, &cast, 0.75, -0.3, c[i], s[i], turned);
        ng_reference_rotate(&inverse, NG_FP64, &cast, turned[0].high, turned[1].high, c[i], s[i], back);
        cr_expect(fabs(back[0].high - 0.75) < 1e-15 && fabs(back[1].high + 0.3) < 1e-15);
    }
    free(t[0].data);
    free(t[1].data);
}

/* ---- the references in binary64 -----------------------------------------------------------------------------------*/
enum { WIDTH = 7 };
static const double nudge = 0x1p-14;

/* What the forward reference makes of x, weighed by d. */
typedef double weighed(const ng_contract *contract, const double *x, const double *other, const double *d);

static double weighed_norm(const ng_contract *contract, const double *x, const double *gamma, const double *d) {
    static const double beta[WIDTH] = {0};
    ng_triple y[WIDTH], statistics[2];
    double sum = 0;
    cr_assert(ng_fp64_norm(contract, x, gamma, beta, WIDTH, 1e-5, y, statistics) == NG_OK);
    for (int i = 0; i < WIDTH; i++)
        sum += d[i] * y[i].high;
    return sum;
}
static double weighed_activation(const ng_contract *contract, const double *x, const double *u, const double *d) {
    ng_triple y[WIDTH];
    double sum = 0;
    cr_assert(ng_fp64_activation(contract, x, u, WIDTH, y) == NG_OK);
    for (int i = 0; i < WIDTH; i++)
        sum += d[i] * y[i].high;
    return sum;
}
static double weighed_loss(const ng_contract *contract, const double *x, const double *unused, const double *d) {
    ng_triple out[3];
    (void)unused;
    cr_assert(ng_fp64_loss(contract, x, WIDTH, 2, out) == NG_OK);
    return d[0] * out[0].high;
}

static void expect_differences(const char *what, weighed *forward, const ng_contract *contract, const double *x, const double *other,
                               const double *d, int of_other, const ng_triple *gradient) {
    for (int i = 0; i < WIDTH; i++) {
        double up[WIDTH], down[WIDTH];
        for (int j = 0; j < WIDTH; j++) {
            const double at = of_other ? other[j] : x[j];
            up[j] = at + (i == j ? nudge : 0);
            down[j] = at - (i == j ? nudge : 0);
        }
        const double difference = (of_other ? forward(contract, x, up, d) - forward(contract, x, down, d)
                                            : forward(contract, up, other, d) - forward(contract, down, other, d)) /
                                  (2 * nudge);
        cr_expect(fabs(difference - gradient[i].high) < 2e-7, "%s[%d]: %.12g, by differences %.12g", what, i, gradient[i].high, difference);
    }
}

static void test_fp64_gradients(void) {
    double x[WIDTH], other[WIDTH], d[WIDTH];
    ng_triple dx[WIDTH], du[WIDTH], y[WIDTH], statistics[2], out[3], column[2];
    uint64_t seed = 21;
    for (int i = 0; i < WIDTH; i++)
        x[i] = 2 * draw(&seed), other[i] = draw(&seed), d[i] = draw(&seed);
    for (int kind = NG_LAYER_NORM; kind <= NG_RMS_NORM; kind++) {
        const ng_contract c = {.norm = {.kind = (ng_norm_kind)kind, .zero_centered = kind == NG_RMS_NORM}};
        cr_assert(ng_fp64_norm(&c, x, other, d, WIDTH, 1e-5, y, statistics) == NG_OK);
        cr_assert(ng_fp64_norm_backward(&c, x, d, other, WIDTH, statistics[0].high, statistics[1].high, dx) == NG_OK);
        expect_differences("norm's dx", weighed_norm, &c, x, other, d, 0, dx);
        for (int i = 0; i < WIDTH; i++) { /* of one row: d times the normalised element */
            cr_assert(ng_fp64_norm_column(&c, x + i, d + i, &statistics[0].high, &statistics[1].high, 1, column) == NG_OK);
            du[i] = column[0];
            cr_expect(column[1].high == d[i]);
        }
        expect_differences("dgamma", weighed_norm, &c, x, other, d, 1, du);
    }
    for (int kind = NG_SWIGLU; kind <= NG_GELU_TANH; kind++) {
        const ng_contract c = {.activation = {(ng_activation_kind)kind}, .layer = {.exp_error = 2}};
        cr_assert(ng_fp64_activation_backward(&c, x, other, d, WIDTH, dx, du) == NG_OK);
        expect_differences("activation's dx", weighed_activation, &c, x, other, d, 0, dx);
        if (kind == NG_SWIGLU) expect_differences("du", weighed_activation, &c, x, other, d, 1, du);
    }
    const ng_contract c = {.layer = {.exp_error = 2}};
    cr_assert(ng_fp64_loss(&c, x, WIDTH, 2, out) == NG_OK);
    cr_assert(ng_fp64_loss_backward(&c, x, WIDTH, 2, out[1].high, out[2].high, d[0], dx) == NG_OK);
    expect_differences("the loss's dx", weighed_loss, &c, x, other, d, 0, dx);
}

/* The first step of AdamW from nothing: m = (1 - b1) g, v = (1 - b2) g^2, so that p moves by a g / (|g| + e) after its decay. */
static void test_fp64_adamw(void) {
    const double scalars[NG_SCALARS] = {
        [NG_LEARNING_RATE] = 0.01, [NG_BETA1] = 0.9, [NG_BETA2] = 0.999, [NG_EPSILON] = 1e-8, [NG_WEIGHT_DECAY] = 0.1, [NG_STEP] = 1};
    const double p[3] = {1, -2, 0.5}, g[3] = {0.3, -4, 1e-7}, zero[3] = {0};
    ng_triple all[9], *out[3] = {all, all + 3, all + 6};
    cr_assert(ng_fp64_adamw(scalars, p, g, zero, zero, 3, out) == NG_OK);
    for (int i = 0; i < 3; i++) {
        const double want = p[i] * (1 - 0.001) - 0.01 * g[i] / (fabs(g[i]) + 1e-8);
        cr_expect(fabs(out[0][i].high - want) < 1e-15 && fabs(out[1][i].high - 0.1 * g[i]) < 1e-15 &&
                      fabs(out[2][i].high - 0.001 * g[i] * g[i]) < 1e-15,
                  "%d: %.17g, expected %.17g", i, out[0][i].high, want);
    }
    ng_triple norm, clipped[3];
    cr_assert(ng_fp64_norm2((const double[]){3, 4, 12}, 3, &norm) == NG_OK && norm.high == 13);
    cr_assert(ng_fp64_clip((const double[]){3, 4, 12}, 3, 13, 20, clipped) == NG_OK && clipped[0].high == 3 && clipped[2].high == 12);
    cr_assert(ng_fp64_clip((const double[]){3, 4, 12}, 3, 13, 6.5, clipped) == NG_OK && fabs(clipped[0].high - 1.5) < 1e-6 &&
              fabs(clipped[2].high - 6) < 1e-6);
}

/* ---- paths of the CPU kernels -----------------------------------------------------------------------------------------*/
/* Ordinary numbers of any format; fp32 storage of integers gets its own. */
static ng_tensor filled(ng_format_id format, int64_t rows, int64_t columns, uint64_t seed) {
    ng_tensor t = {NULL, format, NG_HOST, rows, columns, ng_row_bytes(format, columns)};
    t.data = calloc((size_t)rows, (size_t)t.row_bytes);
    cr_assert(t.data);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const double x = draw(&seed) * 2;
            const float narrow = (float)x;
            uint32_t bits;
            memcpy(&bits, &narrow, sizeof bits);
            if (format == NG_FP64) ((double *)t.data)[i * columns + j] = x;
            else if (format == NG_FP16) ng_set_code(&t, i, j, (bits >> 16 & 0x8000) | (0x3000 + (bits >> 13) % 0xC00));
            else ng_set_code(&t, i, j, format == NG_BF16 ? bits >> 16 : format == NG_TF32 ? bits & 0xFFFFE000 : bits);
        }
    return t;
}

enum { TOKENS = 130, SEQUENCE = 65, HEADS = 5, HEAD = 54, VOCABULARY = 9 }; /* enough for a team of threads, and a second strip of columns */

static bool is_layer(const ng_kernel *k) { return k->op >= NG_OP_ATTENTION_FORWARD && k->op <= NG_OP_EMBEDDING_BACKWARD; }

/* The output of one launch of the kernel on tensors that its name decides. */
static ng_tensor run_once(const ng_kernel *k, bool portable, int threads) {
    const int64_t width = HEADS * HEAD, out_rows = k->op == NG_OP_EMBEDDING_BACKWARD ? VOCABULARY : k->op == NG_OP_TRANSPOSE ? width : TOKENS;
    const int64_t out_columns = k->op == NG_OP_TRANSPOSE ? TOKENS : k->op == NG_OP_ATTENTION_BACKWARD || k->op == NG_OP_ROPE ? 3 * width : width;
    const bool wide = k->op == NG_OP_ATTENTION_FORWARD || k->op == NG_OP_ATTENTION_BACKWARD || k->op == NG_OP_ROPE, rope = k->op == NG_OP_ROPE;
    const ng_device device = {.threads = threads, .portable = portable};
    const ng_problem p = {.op = k->op, .m = TOKENS, .n = width, .k = VOCABULARY, .scalars = {[NG_HEADS] = HEADS, [NG_SEQUENCE] = SEQUENCE}};
    char message[200] = "";
    ng_launch l = {.problem = &p, .device = &device, .message = message, .message_bytes = sizeof message};
    l.tensors[NG_IN] = filled(k->in, TOKENS, wide ? 3 * width : width, 1);
    l.tensors[NG_IN_2] = filled(k->in, TOKENS, width, 2);
    l.tensors[NG_GRADIENT] = filled(k->in, TOKENS, width, 3);
    l.tensors[NG_PARAMETER] = rope ? filled(k->contract.layer.compute, SEQUENCE, HEAD / 2, 4) : filled(k->in, VOCABULARY, width, 4);
    l.tensors[NG_PARAMETER_2] = filled(k->contract.layer.compute, SEQUENCE, HEAD / 2, 5);
    l.tensors[NG_TOKENS] = filled(NG_FP32, TOKENS, 1, 6);
    for (int i = 0; i < TOKENS; i++)
        ((int32_t *)l.tensors[NG_TOKENS].data)[i] = i * i % VOCABULARY;
    const ng_role out = k->op == NG_OP_TRANSPOSE ? NG_OUT_T : NG_OUT;
    l.tensors[out] = filled(k->out, out_rows, out_columns, 7);
    cr_assert(k->launch(k, &l) == NG_OK, "%s: %s", k->name, message);
    for (int role = 0; role < NG_ROLES; role++)
        if (role != (int)out) free(l.tensors[role].data);
    return l.tensors[out];
}

static void test_paths(void) {
    static const ng_kernel *kernels[8192];
    const size_t count = ng_builtin_kernels(kernels, sizeof kernels / sizeof *kernels);
    size_t looked_at = 0;
    for (size_t i = 0; i < count; i++) {
        if (kernels[i]->backend != NG_BACKEND_CPU || !is_layer(kernels[i])) continue;
        const ng_tensor usual = run_once(kernels[i], false, 1);
        for (int other = 0; other < 2; other++) {
            const ng_tensor t = run_once(kernels[i], other == 0, 1 + 2 * other);
            cr_expect(!memcmp(t.data, usual.data, (size_t)(t.rows * t.row_bytes)), "%s: %s changes bits", kernels[i]->name,
                      other ? "three threads" : "plain C");
            free(t.data);
        }
        looked_at++;
        free(usual.data);
    }
    cr_expect(looked_at >= 33, "%zu kernels", looked_at);
}

/* A launch that makes no sense says so. */
static void test_refusals(void) {
    static const ng_kernel *kernels[8192];
    const size_t count = ng_builtin_kernels(kernels, sizeof kernels / sizeof *kernels);
    const ng_device device = {.threads = 1};
    for (size_t i = 0; i < count; i++) {
        const ng_kernel *k = kernels[i];
        if (k->backend != NG_BACKEND_CPU || k->in != NG_FP32) continue;
        const bool attention = k->op == NG_OP_ATTENTION_FORWARD || k->op == NG_OP_ATTENTION_BACKWARD;
        const double bad[][2] = {{0, 13}, {5, 13}, {2, 0}, {2, 12}, {1e300, 13}, {NAN, 13}};
        for (size_t b = 0; attention && b < sizeof bad / sizeof *bad; b++) {
            const ng_problem p = {.op = k->op, .m = 26, .n = 12, .scalars = {[NG_HEADS] = bad[b][0], [NG_SEQUENCE] = bad[b][1]}};
            cr_expect(k->supports(k, &p, &device) != NULL, "%s takes %g heads, sequences of %g", k->name, bad[b][0], bad[b][1]);
        }
        if (k->op != NG_OP_EMBEDDING_FORWARD) continue;
        const ng_problem p = {.op = k->op, .m = 1, .n = 1, .k = 3};
        for (int32_t token = -1; token < 4; token += 4) {
            float table[3] = {1, 2, 3}, out = 0;
            char message[200] = "";
            int32_t tokens[1] = {token};
            ng_launch l = {.problem = &p, .device = &device, .message = message, .message_bytes = sizeof message};
            l.tensors[NG_TOKENS] = (ng_tensor){tokens, NG_FP32, NG_HOST, 1, 1, 4};
            l.tensors[NG_PARAMETER] = (ng_tensor){table, NG_FP32, NG_HOST, 3, 1, 4};
            l.tensors[NG_OUT] = (ng_tensor){&out, NG_FP32, NG_HOST, 1, 1, 4};
            cr_expect(k->launch(k, &l) == NG_BAD_ARGUMENT && strstr(message, "token"), "token %d: %s", token, message);
        }
    }
}

const ng_test ng_tests[] = {
    {"layers", "exp in binary64 is within 2 u", test_exp, 0},
    {"layers", "a running analysis covers binary64's own errors", test_wide, 0},
    {"layers", "attention's tiers and their bounds agree", test_tiers, 0},
    {"layers", "attention's gradients are those of differences", test_differences, 0},
    {"layers", "attention of queries that see all alike, one token, one key", test_known, 0},
    {"layers", "what is not finite stays where it is seen", test_nonfinite, 0},
    {"layers", "rotations that are known", test_rope, 0},
    {"layers", "gradients of the binary64 references are those of differences", test_fp64_gradients, 0},
    {"layers", "AdamW's first step, a norm, a clipped gradient", test_fp64_adamw, 0},
    {"layers", "plain C and other numbers of threads give the same bits", test_paths, 0},
    {"layers", "heads that don't divide the width, tokens beyond the vocabulary", test_refusals, 0},
};
const size_t ng_test_count = sizeof ng_tests / sizeof *ng_tests;
