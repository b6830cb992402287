/* Training: the statistics against published quantiles, the language's entropy against its text, gradients against finite differences, the
 * same bits from the same seed and after a kill, and planted faults that a run or a step's gradients tell from the healthy recipe. */
#include "kernels/common/fp64.h"
#include "suites/test.h"
#include "suites/training/session.h"
#include "suites/training_test.h"

#include <cJSON.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

static const ng_kernel *named(const char *name) {
    const ng_catalogue c = ng_test_catalogue();
    for (size_t i = 0; i < c.count; i++)
        if (!strcmp(c.kernels[i]->name, name)) return c.kernels[i];
    cr_assert(false, "there is no kernel %s", name);
    return NULL;
}

static ng_engine engine(int threads) {
    ng_engine e;
    const ng_catalogue c = ng_test_catalogue();
    cr_assert_eq(ng_engine_open(NG_BACKEND_CPU, 0, threads, &c, &e, NULL), NG_OK);
    return e;
}

static ng_recipe_choice recipe(const char *text) {
    ng_error error = {0};
    ng_recipe_choice c;
    cr_assert_eq(ng_recipe_parse(text, &c, &error), NG_OK, "%s", error.text);
    return c;
}

/* ---- statistics ---------------------------------------------------------------------------------------------------*/
/* Abramowitz and Stegun, tables 26.10 and 26.1; F(1; 1) = 3/4 and F(1; 2) = 1/2 + 1/sqrt 12 in closed form. */
static void quantiles(void) {
    static const struct { double p; int degrees; double t; } rows[] = {
        {0.95, 1, 6.314}, {0.95, 3, 2.353}, {0.975, 3, 3.182}, {0.975, 10, 2.228}, {0.99, 5, 3.365}, {0.95, 120, 1.658}, {0.05, 3, -2.353}};
    for (size_t i = 0; i < COUNT(rows); i++)
        cr_expect_float_eq(ng_student_quantile(rows[i].p, rows[i].degrees), rows[i].t, 6e-4, "t(%g; %d) = %g", rows[i].p, rows[i].degrees,
                           ng_student_quantile(rows[i].p, rows[i].degrees));
    cr_expect_float_eq(ng_student_cdf(1, 1), 0.75, 1e-15);
    cr_expect_float_eq(ng_student_cdf(1, 2), 0.5 + 1 / sqrt(12.0), 1e-15);
    cr_expect_float_eq(ng_normal_cdf(1), 0.841344746068543, 1e-14);
    cr_expect_float_eq(ng_normal_cdf(-2), 0.022750131948179, 1e-14);
}

/* The power of a t test by simulation: gaps of known mean and deviation from a generator of the test's own. */
static double uniform(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}
static double normal(uint64_t *state) { /* sum of twelve uniforms */
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += uniform(state);
    return sum;
}
static void power(void) {
    enum { TRIALS = 1000, N = 6 };
    uint64_t state = 12345;
    int rejected = 0, false_passes = 0;
    for (int t = 0; t < TRIALS; t++) {
        double below[N], on[N];
        ng_gap gap, border;
        for (int i = 0; i < N; i++)
            below[i] = 0.01 * normal(&state) - 0.01, on[i] = 0.01 * normal(&state);
        ng_gap_of(below, N, 0, 0.05, 0.8, &gap);
        ng_gap_of(on, N, 0, 0.05, 0.8, &border);
        rejected += gap.p_not_worse <= 0.05;
        false_passes += border.p_not_worse <= 0.05;
    }
    const double expected = ng_test_power(1, N, 0.05);
    cr_expect(fabs((double)rejected / TRIALS - expected) < 4 * sqrt(0.25 / TRIALS), "%d of %d, expected %g", rejected, TRIALS, expected);
    cr_expect(fabs((double)false_passes / TRIALS - 0.05) < 4 * sqrt(0.05 * 0.95 / TRIALS), "%d false passes of %d", false_passes, TRIALS);
}

/* The number of seeds asked for is the least that has the power; the smallest visible gap is where the power is met. */
static void seeds(void) {
    const double gaps[] = {0.011, -0.004, 0.002, 0.007, -0.001};
    ng_gap g;
    ng_gap_of(gaps, COUNT(gaps), 0.02, 0.05, 0.8, &g);
    const double shift = 0.5 * 0.02 / g.deviation;
    cr_expect(g.seeds_needed > 2 && ng_test_power(shift, g.seeds_needed, 0.05) >= 0.8 && ng_test_power(shift, g.seeds_needed - 1, 0.05) < 0.8, "%d seeds", g.seeds_needed);
    cr_expect_float_eq(ng_test_power(g.detectable / g.deviation, COUNT(gaps), 0.05), 0.8, 1e-6);
    /* squares sum to 0.000191 */
    cr_expect_float_eq(g.mean, 0.003, 1e-15);
    cr_expect_float_eq(g.deviation * g.deviation, (0.000191 - 5 * 0.003 * 0.003) / 4, 1e-15);
    cr_expect(g.p_not_worse < 0.005 && g.p_worse > 0.99);
}

/* Holm's procedure on p-values 0.01, 0.04, 0.03: corrected 0.03, 0.06, 0.06 (each the largest so far of p times what is left). */
static void holm(void) {
    ng_gap a = {.p_not_worse = 0.01, .p_worse = 1}, b = {.p_not_worse = 0.04, .p_worse = 1}, c = {.p_not_worse = 0.03, .p_worse = 1};
    ng_gap *const all[] = {&a, &b, &c};
    ng_holm(all, 3, 0.05);
    cr_expect_float_eq(a.p_not_worse_holm, 0.03, 1e-15);
    cr_expect_float_eq(b.p_not_worse_holm, 0.06, 1e-15);
    cr_expect_float_eq(c.p_not_worse_holm, 0.06, 1e-15);
    cr_expect(a.verdict == NG_GAP_PASS && b.verdict == NG_GAP_INCONCLUSIVE && c.verdict == NG_GAP_INCONCLUSIVE);
}

static void divergence(void) {
    double falling[64], exploding[64], flat[64], norms[64];
    ng_health h;
    for (int i = 0; i < 64; i++)
        falling[i] = 4 - 0.03 * i, exploding[i] = i < 40 ? 4 - 0.03 * i : 9, flat[i] = 4, norms[i] = i == 50 ? 100 : 1;
    ng_health_of(falling, norms, 64, &h);
    cr_expect(h.divergence == NG_CONVERGES && h.gradient_outliers == 1);
    ng_health_of(exploding, norms, 64, &h);
    cr_expect(h.divergence == NG_LOSS_EXPLODES && h.step >= 40);
    ng_health_of(flat, norms, 64, &h);
    cr_expect(h.divergence == NG_LOSS_STALLS);
    falling[7] = NAN;
    ng_health_of(falling, norms, 64, &h);
    cr_expect(h.divergence == NG_LOSS_NOT_FINITE && h.step == 7);
}

/* ---- the language -------------------------------------------------------------------------------------------------*/
static double surprise(const ng_source_text *s, int32_t before, int32_t last, int32_t next) {
    const int64_t context = last * s->classes + before % s->classes;
    for (int32_t i = 0; i < s->successors; i++) {
        const uint32_t *up_to = s->up_to + context * s->successors;
        if (s->next[context * s->successors + i] == next) return -ng_log((double)(up_to[i] - (i ? up_to[i - 1] : 0)) / 65536);
    }
    return INFINITY;
}

/* The mean surprise of 400,000 symbols under the distribution that they are drawn from is the entropy, to its standard error. */
static void entropy(void) {
    enum { BATCH = 400, SEQUENCE = 1000 };
    const ng_source_options options = {NULL, 1, 64, 2, 6};
    ng_source_text s;
    cr_assert_eq(ng_source_create(&options, &s, NULL), NG_OK);
    int32_t *tokens = malloc(sizeof *tokens * BATCH * SEQUENCE), *targets = malloc(sizeof *targets * BATCH * SEQUENCE);
    double sum = 0, squares = 0, rows = 0;
    ng_source_batch(&s, 3, 0, false, BATCH, SEQUENCE, tokens, targets);
    for (int r = 0; r < BATCH; r++) {
        double row = 0;
        for (int i = 1; i < SEQUENCE; i++)
            row += surprise(&s, tokens[r * SEQUENCE + i - 1], tokens[r * SEQUENCE + i], targets[r * SEQUENCE + i]) / (SEQUENCE - 1);
        sum += row, squares += row * row, rows++;
    }
    const double mean = sum / rows, error = sqrt((squares / rows - mean * mean) / rows);
    cr_expect(fabs(mean - s.entropy) < 4 * error && error < 0.01, "%g +- %g, computed %g", mean, error, s.entropy);
    cr_expect(s.first_entropy > s.entropy && ng_source_floor(&s, 32) > s.entropy && ng_source_floor(&s, 32) < s.first_entropy);
    free(tokens);
    free(targets);
    ng_source_free(&s);
}

/* ---- gradients ----------------------------------------------------------------------------------------------------*/
static const ng_run_settings tiny = {.shape = {2, 32, 2, 64, 8, 4, 16, false, false}, .steps = 4, .evaluations = 1, .rate = 0.01, .loss_weight = 1,
                                     .beta_1 = 0.9, .beta_2 = 0.95, .epsilon = 1e-12, .decay = 0.1, .max_norm = 1};

static double loss_of(ng_runner *r) {
    double mean;
    ng_error error = {0};
    cr_assert_eq(ng_runner_evaluate(r, &mean, &error), NG_OK, "%s", error.text);
    return mean;
}

/* The largest difference between gradient and central difference of the loss, relative to the gradient's largest element of that parameter,
 * over four elements of each. The gradient is of the evaluation batch. */
static double worst_difference(ng_bench *b, const char **where) {
    ng_runner r;
    ng_bench_begin(b, "fp64", &r);
    double *g = malloc(sizeof *g * (size_t)b->layout.total), worst = 0;
    cr_assert_eq(ng_runner_gradient(&r, b->settings.steps, 1, g, NULL), NG_OK);
    for (size_t j = 0; j < b->layout.count; j++) {
        const ng_parameter *p = &r.model.layout.parameters[j];
        double most = 0, *weights = p->master.data;
        for (int64_t i = 0; i < p->rows * p->columns; i++)
            most = fabs(g[p->at + i]) > most ? fabs(g[p->at + i]) : most;
        for (int k = 0; k < 4; k++) {
            const int64_t i = (k * 7919 + 13) % (p->rows * p->columns);
            const double kept = weights[i], h = 1e-5;
            weights[i] = kept + h;
            const double above = loss_of(&r);
            weights[i] = kept - h;
            const double below = loss_of(&r), difference = fabs((above - below) / (2 * h) - g[p->at + i]) / most;
            weights[i] = kept;
            if (!(difference <= worst)) worst = difference, *where = b->layout.parameters[j].name;
        }
    }
    free(g);
    ng_runner_destroy(&r);
    return worst;
}

static void finite_differences(void) {
    for (int llama = 0; llama < 2; llama++) {
        ng_bench b;
        const char *where = "";
        ng_run_settings s = tiny;
        s.shape.rms = s.shape.swiglu = llama;
        ng_bench_open(&b, NG_BACKEND_CPU, 1, &s, 5);
        const double right = worst_difference(&b, &where);
        cr_expect(right < 1e-7, "%s: off by %g", where, right);
        const ng_substitution turned = {"rope/fp64/cpu/inverse", named("rope/fp64/cpu/forward")};
        b.engine.substitutions = &turned;
        b.engine.substitution_count = 1;
        const double wrong = worst_difference(&b, &where);
        cr_expect(wrong > 1e-3, "a rotation turned the wrong way passes: off by %g", wrong);
        ng_bench_close(&b);
    }
}

/* Stochastic rounding takes the systematic part out of the gradient quantizer's error; nearest keeps it. */
static void bias_of_gradients(void) {
    static const struct { const char *name; double least, most; } others[] = {
        {"fp8-delayed", 0.02, 0.12}, {"fp8-current", 0.02, 0.12}, {"fp8-128", 0.01, 0.06}, {"mxfp8", 0.01, 0.06}, {"nvfp4:no-hadamard,no-sr", 0.06, 0.2}};
    ng_bench b;
    ng_error error = {0};
    ng_run_settings s = tiny;
    s.shape = (ng_model_shape){2, 64, 4, 256, 32, 4, 64, false, false};
    ng_bench_open(&b, NG_BACKEND_CPU, 2, &s, 1);
    ng_gradient_figures *f = calloc(b.layout.count + 1, sizeof *f), with, without;
    ng_runner random, nearest, exact;
    ng_bench_begin(&b, "nvfp4", &random);
    ng_bench_begin(&b, "nvfp4:no-sr", &nearest);
    ng_bench_begin(&b, "nvfp4:exact-gradients", &exact);
    cr_assert_eq(ng_gradients_compare(&random, &exact, &b.data, NULL, 4, 12, f, &error), NG_OK, "%s", error.text);
    with = f[b.layout.count];
    cr_assert_eq(ng_gradients_compare(&nearest, &exact, &b.data, NULL, 4, 1, f, &error), NG_OK, "%s", error.text);
    without = f[b.layout.count];
    for (size_t i = 0; i < COUNT(others); i++) { /* what rounding to nearest leaves is of its format's size */
        char name[64];
        ng_runner own, reference;
        snprintf(name, sizeof name, "%s%cexact-gradients", others[i].name, strchr(others[i].name, ':') ? ',' : ':');
        ng_bench_begin(&b, others[i].name, &own);
        ng_bench_begin(&b, name, &reference);
        cr_assert_eq(ng_gradients_compare(&own, &reference, &b.data, NULL, 2, 1, f, &error), NG_OK, "%s", error.text);
        cr_expect(f[b.layout.count].bias > others[i].least && f[b.layout.count].bias < others[i].most, "%s: %g", others[i].name, f[b.layout.count].bias);
        ng_runner_destroy(&own);
        ng_runner_destroy(&reference);
    }
    cr_expect(with.bias_high < 0.05 && without.bias_low > 0.08, "with %g [%g, %g], without %g [%g, %g]", with.bias, with.bias_low, with.bias_high,
              without.bias, without.bias_low, without.bias_high);
    ng_runner_destroy(&random);
    ng_runner_destroy(&nearest);
    ng_runner_destroy(&exact);
    free(f);
    ng_bench_close(&b);
}

/* ---- bits ---------------------------------------------------------------------------------------------------------*/
static void same_bits(void) {
    static const char *const names[] = {"fp64", "tf32", "fp16", "fp8-delayed", "fp8-128", "mxfp8", "nvfp4", "nvfp4:bf16-layers=first1last0", "fp8-current:fast-accum"};
    ng_run_settings s = tiny;
    s.shape = (ng_model_shape){2, 128, 4, 256, 32, 8, 64, false, true}; /* large enough that kernels share the work */
    ng_bench one, two, other;
    ng_bench_open(&one, NG_BACKEND_CPU, 1, &s, 9);
    ng_bench_open(&two, NG_BACKEND_CPU, 2, &s, 9);
    ng_bench_open(&other, NG_BACKEND_CPU, 2, &s, 10);
    const size_t bytes = sizeof(float) * (size_t)one.layout.total;
    float *a = malloc(bytes), *c = malloc(bytes);
    for (size_t i = 0; i < COUNT(names); i++) {
        double first[4], again[4], different[4];
        ng_bench_train(&one, names[i], 0, first, a);
        ng_bench_train(&two, names[i], 2, again, c);
        cr_expect(!memcmp(first, again, sizeof first) && !memcmp(a, c, bytes), "%s: other bits on two threads and after a restart", names[i]);
        ng_bench_train(&other, names[i], 0, different, c);
        cr_expect(memcmp(first, different, sizeof first) && memcmp(a, c, bytes), "%s: another seed's bits", names[i]);
    }
    free(a);
    free(c);
    ng_bench_close(&one);
    ng_bench_close(&two);
    ng_bench_close(&other);
}

/* ---- sessions -----------------------------------------------------------------------------------------------------*/
static ng_training *session(const char *const *names, size_t count, double loss_weight, const ng_substitution *substitutions, size_t substitution_count) {
    ng_error error = {0};
    const ng_source_options options = {NULL, 1, 64, 2, 6};
    ng_training *s = calloc(1, sizeof *s);
    s->settings = (ng_run_settings){.shape = {1, 64, 4, 128, 32, 4, 64, false, false}, .steps = 40, .evaluations = 4, .rate = 0.006, .loss_weight = loss_weight,
                                    .beta_1 = 0.9, .beta_2 = 0.95, .epsilon = 1e-12, .decay = 0.1, .max_norm = 1};
    cr_assert_eq(ng_source_create(&options, &s->source, NULL), NG_OK);
    cr_assert_eq(ng_layout_create(&s->settings.shape, &s->layout, NULL), NG_OK);
    s->engine = engine(2);
    s->engine.substitutions = substitutions;
    s->engine.substitution_count = substitution_count;
    s->recipe_count = count;
    s->seed_count = s->seed_capacity = 4;
    s->first_seed = 1;
    s->alpha = 0.05;
    s->power = 0.8;
    s->recipes = calloc(count, sizeof *s->recipes);
    s->curves = calloc(count * s->seed_count, sizeof *s->curves);
    s->weights = calloc(s->seed_count, sizeof *s->weights);
    for (size_t i = 0; i < count; i++)
        s->recipes[i].choice = recipe(names[i]), s->recipes[i].delta = s->recipes[i].choice.recipe->delta;
    for (size_t i = 0; i < count * s->seed_count; i++)
        cr_assert_eq(ng_curve_create(&s->settings, &s->curves[i], NULL), NG_OK);
    cr_assert_eq(ng_training_run(s, &(ng_training_events){0}, &error), NG_OK, "%s", error.text);
    ng_training_judge(s);
    return s;
}

static void dispose(ng_training *s) {
    ng_training_free(s);
    free(s);
}

/* Gradients of a loss of small weight vanish in fp16 unless they are scaled; the scaled run and bf16 do not notice. */
static void small_gradients(void) {
    static const char *const names[] = {"fp32", "fp16", "fp16:unscaled", "bf16"};
    ng_training *s = session(names, COUNT(names), 0x1p-16, NULL, 0);
    cr_expect(s->recipes[1].verdict != NG_GAP_FAIL && s->recipes[3].verdict != NG_GAP_FAIL);
    cr_expect_eq(s->recipes[2].verdict, NG_GAP_FAIL, "fp16 without scaling: gap %g", s->recipes[2].final.mean);
    cr_expect(NG_CURVE_OF(s, 0, 1)->scale > 0, "a loss scale");
    dispose(s);
}

/* A quantizer that returns zeros (as NVIDIA/TransformerEngine issue 3281). */
static ng_status zeros(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_kernel *right = kernel->state;
    ng_status status = right->launch(right, launch);
    const ng_role roles[] = {NG_OUT, NG_OUT_T};
    for (int i = 0; i < 2 && !status; i++)
        if (launch->tensors[roles[i]].data) memset(launch->tensors[roles[i]].data, 0, (size_t)(launch->tensors[roles[i]].rows * launch->tensors[roles[i]].row_bytes));
    return status;
}

/* A product that reads e5m2 gradients as e4m3 (as NVIDIA/TransformerEngine issue 3342). */
static ng_status misread(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_kernel *other = kernel->state;
    ng_launch changed = *launch;
    changed.tensors[NG_A].format = NG_E4M3;
    return other->launch(other, &changed);
}

static void planted_faults(void) {
    static const char *const names[] = {"fp32", "fp8-current"};
    static const char *const products[] = {"bf16", "fp32"};
    ng_kernel zero = *named("quantize/bf16->e5m2/cpu/max-over-amax"), wrong[2];
    ng_substitution faults[] = {{"quantize/bf16->e5m2/cpu/max-over-amax", &zero}, {"gemm/e5m2-e4m3/*bf16-out", &wrong[0]}, {"gemm/e5m2-e4m3/*fp32-out", &wrong[1]}};
    zero.state = named("quantize/bf16->e5m2/cpu/max-over-amax");
    zero.launch = zeros;
    for (int i = 0; i < 2; i++) {
        char name[80];
        snprintf(name, sizeof name, "gemm/e5m2-e4m3/cpu/fp32-chain/%s-out", products[i]);
        wrong[i] = *named(name);
        snprintf(name, sizeof name, "gemm/e4m3/cpu/fp32-chain/%s-out", products[i]);
        wrong[i].state = named(name);
        wrong[i].launch = misread;
    }
    ng_training *healthy = session(names, COUNT(names), 1, NULL, 0), *none = session(names, COUNT(names), 1, faults, 1), *other = session(names, COUNT(names), 1, faults + 1, 2);
    cr_expect_neq(healthy->recipes[1].verdict, NG_GAP_FAIL, "gap %g", healthy->recipes[1].final.mean);
    cr_expect_eq(none->recipes[1].verdict, NG_GAP_FAIL, "zeros: gap %g", none->recipes[1].final.mean);
    cr_expect_eq(other->recipes[1].verdict, NG_GAP_FAIL, "e5m2 as e4m3: gap %g [%g, %g]", other->recipes[1].final.mean, other->recipes[1].final.low, other->recipes[1].final.high);
    dispose(healthy);
    dispose(none);
    dispose(other);
}

/* ---- the program --------------------------------------------------------------------------------------------------*/
static const char *const arguments = "train --recipe nvfp4 --recipe fp8-delayed --recipe fp16 --baseline fp32 --seeds 2 --steps 12 --layers 1 --width 32 --heads 2 "
                                     "--sequence 16 --batch 4 --vocabulary 32 --quiet --threads 1";

static pid_t start(const char *more) {
    char line[2048], *words[96] = {NULL};
    int count = 0;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid) return pid;
    snprintf(line, sizeof line, "%s %s", arguments, more);
    words[count++] = (char *)NG_PROGRAM;
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
        words[count++] = word;
    if (!freopen("/dev/null", "w", stderr)) _exit(99);
    execv(NG_PROGRAM, words);
    _exit(99);
}

static int run(const char *more) {
    int status = 0;
    const pid_t pid = start(more);
    cr_assert(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Every loss and norm of a record, as text. */
static char *curves_of(const char *path) {
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s is not there", path);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    cJSON *record = cJSON_Parse(text), *curves = cJSON_CreateArray(), *one, *seed;
    cr_assert(record);
    cJSON_ArrayForEach(one, cJSON_GetObjectItem(record, "training"))
        cJSON_ArrayForEach(seed, cJSON_GetObjectItem(one, "seeds")) {
            cJSON_AddItemToArray(curves, cJSON_Duplicate(cJSON_GetObjectItem(seed, "losses"), true));
            cJSON_AddItemToArray(curves, cJSON_Duplicate(cJSON_GetObjectItem(seed, "norms"), true));
            cJSON_AddItemToArray(curves, cJSON_Duplicate(cJSON_GetObjectItem(seed, "final_loss"), true));
        }
    char *printed = cJSON_PrintUnformatted(curves);
    cJSON_Delete(record);
    cJSON_Delete(curves);
    return printed;
}

static void killed(void) {
    char directory[] = "/tmp/ngtrainXXXXXX", more[256], path[64];
    cr_assert(mkdtemp(directory));
    snprintf(more, sizeof more, "--json %s/whole", directory);
    cr_expect_leq(run(more), 1);
    int kills = 0, status = 0;
    for (int attempt = 0; attempt < 200; attempt++) { /* a little longer each time, until one reaches the end */
        snprintf(more, sizeof more, "--checkpoint %s/c --checkpoint-every 1 --resume --json %s/parts", directory, directory);
        const pid_t pid = start(more);
        usleep(30000 + 7000 * (useconds_t)attempt);
        if (waitpid(pid, &status, WNOHANG) == pid) break;
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        if (!WIFSIGNALED(status)) break;
        kills++;
    }
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) <= 1 && kills > 1, "killed %d times, status %d", kills, status);
    snprintf(path, sizeof path, "%s/whole", directory);
    char *whole = curves_of(path);
    snprintf(path, sizeof path, "%s/parts", directory);
    char *parts = curves_of(path);
    cr_expect_str_eq(whole, parts, "after %d kills the curves are others", kills);
    free(whole);
    free(parts);

    snprintf(path, sizeof path, "%s/c", directory);
    snprintf(more, sizeof more, "--checkpoint %s --resume --rate 0.5", path);
    cr_expect_eq(run(more), 2, "a checkpoint of other options is taken");
    snprintf(more, sizeof more, "--checkpoint %s", path);
    cr_expect_eq(run(more), 2, "a checkpoint is written over");
    cr_expect_eq(run("--checkpoint /nowhere/c"), 2);
    FILE *file = fopen(path, "r+");
    cr_assert(file && !fseek(file, 200, SEEK_SET));
    fputc(0x55, file);
    fclose(file);
    snprintf(more, sizeof more, "--checkpoint %s --resume", path);
    cr_expect_eq(run(more), 2, "a damaged checkpoint is taken");
    snprintf(more, sizeof more, "rm -r %s", directory);
    cr_expect_eq(system(more), 0);
}

static void words(void) {
    static const char *const wrong[] = {"--recipe nothing", "--recipe fp32:no-sr", "--recipe nvfp4:no-such", "--kernel x", "--kernel a=b", "--width 40",
                                        "--resume", "--corpus /nowhere", "--recipe nvfp4:bf16-layers=first1"};
    for (size_t i = 0; i < COUNT(wrong); i++)
        cr_expect_eq(run(wrong[i]), 2, "%s", wrong[i]);
}

const ng_test ng_tests[] = {
    {"training", "quantiles of Student's t and of the normal distribution", quantiles, 0},
    {"training", "power and false passes by simulation", power, 0},
    {"training", "Holm's correction", holm, 0},
    {"training", "divergence", divergence, 0},
    {"training", "the language's entropy is its text's", entropy, 0},
    {"training", "gradients are finite differences, and a wrong rotation is not", finite_differences, 0},
    {"training", "nvfp4's gradients are biased without stochastic rounding", bias_of_gradients, 120},
    {"training", "same bits on one thread and two, and after a restart", same_bits, 120},
    {"training", "fp16 without loss scaling fails on small gradients", small_gradients, 120},
    {"training", "gradients of zeros and e5m2 read as e4m3 fail", planted_faults, 120},
    {"training", "killed runs go on to the same bits", killed, 120},
    {"training", "what is wrong on the command line", words, 0},
    {"training", "seeds asked for and gaps seen have the stated power", seeds, 0},
};
const size_t ng_test_count = COUNT(ng_tests);
