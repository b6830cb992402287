/* Products. Kernel error: against the exact product of the quantized operands, held to the contract's bound, and bit for
 * bit to the prediction where the contract fixes the order. Recipe error: against the exact product of the operands before
 * quantization. In autocast mode the catalogue's own quantizers make the operands, and must make the reference's bits. */
#include "harness/judge_internal.h"
#include "harness/recipe.h"
#include "reference/round.h"
#include "reference/scale_layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDES = 2 };

typedef struct side {
    const ng_data_spec *spec;
    ng_quantization quantization;
    ng_format_id source_format;
    int64_t row0, rows; /* window of the operand's rows; all of K */
    const ng_tensor *source;
    const ng_quantized *quantized;
    ng_operand operand;         /* as the product takes it: quantized, its scales repeated where the product wants lower blocks */
    ng_tensor repeated;         /* those scales, owned; data NULL: none */
    const ng_kernel *quantizer; /* of a recipe */
    bool turned;                /* a recipe's column-wise quantization of what is stored [K][rows] */
    ng_tensor words;            /* [rows][K], stochastic rounding; owned */
    float given;                /* NG_SCALE_GIVEN */
    ng_key source_key, key;
    ng_role codes, scales, tensor_scale;
} side;

typedef struct product {
    ng_judge *judge;
    const ng_case *one;
    const ng_kernel *kernel;
    ng_contract contract; /* of the variant at hand */
    char algorithm[NG_ALGORITHM_BYTES];
    ng_problem problem; /* as launched */
    side sides[SIDES];
    ng_tensor initial; /* fp32 [m][n], what is added to the sum: what OUT holds, or the bias in each row; else data NULL */
    ng_tensor bias;    /* [1][n] of OUT's format; owned, as is initial then */
    ng_key initial_key;
    ng_session session, quantizers[SIDES], drawing[SIDES]; /* drawing: stochastic quantizers with words of their own */
    bool has_quantizer[SIDES];
    const ng_exact_product *exact, *recipe;
    ng_tensor predicted;
    double *bound, *expected, *running;
} product;

/* ---- operands -----------------------------------------------------------------------------------------------------*/
/* Plain formats are rounded from data that has more bits than they have; everything else starts from bf16, as training does. */
ng_format_id ng_source_format(const ng_quantization *q) {
    bool wide = ng_is_plain(q) && (q->element == NG_FP64 || q->element == NG_FP32 || q->element == NG_TF32 || q->element == NG_FP16);
    return wide ? NG_FP32 : NG_BF16;
}

static void choose_side(product *p, int s, const ng_quantization *contract, ng_format_id in, const ng_data_spec *spec,
                        int64_t row0, int64_t rows, int64_t all) {
    side *d = &p->sides[s];
    static const ng_role roles[SIDES][3] = {{NG_A, NG_A_SCALES, NG_A_TENSOR_SCALE}, {NG_B, NG_B_SCALES, NG_B_TENSOR_SCALE}};
    d->quantizer = p->one->quantizers[s];
    const ng_quantization *q = d->quantizer ? &d->quantizer->contract.quantization : contract;
    d->spec = spec;
    d->turned = d->quantizer && spec->transposed;
    d->quantization = *q;
    if (ng_is_plain(q)) {
        d->quantization.element = in;
        d->quantization.cast = (ng_cast){.rounding = NG_RN_EVEN, .saturate = ng_formats[in].specials != NG_IEEE};
    }
    d->source_format = ng_source_format(&d->quantization);
    d->row0 = rows ? row0 : 0;
    d->rows = rows ? rows : all;
    d->codes = roles[s][0];
    d->scales = roles[s][1];
    d->tensor_scale = roles[s][2];
}

static void add_quantization(ng_key *key, const ng_quantization *q) {
    ng_key_add(key, " q%d %d %ux%u %d %d %d %d %d %d %d %d", (int)q->element, (int)q->scale, q->blocks.rows, q->blocks.columns,
               (int)q->rule, q->tensor_scale, (int)q->four_over_six, (int)q->cast.rounding, (int)q->cast.stochastic,
               q->cast.random_bits, q->cast.saturate, (int)q->cast.nan);
}

static bool needs_tensor_amax(const ng_quantization *q) {
    return !ng_is_plain(q) && (q->tensor_scale || (!q->blocks.rows && !q->blocks.columns));
}

static void release_quantized(void *value) {
    ng_quantized_free(value);
    free(value);
}

static const ng_role tensor_scale_roles[2] = {NG_OUT_TENSOR_SCALE, NG_OUT_T_TENSOR_SCALE};
static ng_role tensor_scale_role(const side *d, const ng_kernel *quantizer) {
    return tensor_scale_roles[d->turned && quantizer->contract.hadamard.size];
}

/* Delayed scaling: the scale that the same tensor of an earlier step gave; of a file there is only the one step. */
static ng_status earlier_scale(product *p, side *d, ng_error *error) {
    ng_data_spec spec = *d->spec;
    double amax, largest = ng_formats[d->quantization.element].largest;
    if (spec.distribution != NG_FILE_TENSOR) spec.seed ^= 0x9E3779B97F4A7C15u;
    ng_status status = ng_source_amax(p->judge, &spec, d->source_format, &amax, error);
    if (status) return status;
    double scale = largest / amax;
    d->given = scale > 0 && scale <= 0x1p127 ? (float)scale : 1.0f;
    return NG_OK;
}

/* What the quantizer of a recipe gets besides its tensor. */
static ng_status recipe_inputs(product *p, side *d, ng_quantize_inputs *inputs, ng_error *error) {
    ng_status status = NG_OK;
    if (d->quantization.rule == NG_SCALE_GIVEN) {
        status = earlier_scale(p, d, error);
        inputs->given_scale = &d->given;
        ng_key_add(&d->key, " given %a", (double)d->given);
    }
    if (status || d->quantization.cast.rounding != NG_R_STOCHASTIC) return status;
    uint64_t seed = p->problem.seed + (uint64_t)(d - p->sides);
    status = ng_tensor_create(NG_FP32, d->rows, p->problem.k, &d->words, error);
    for (int64_t i = 0; !status && i < d->rows * p->problem.k; i++)
        ((uint32_t *)d->words.data)[i] = ng_word(seed, (uint64_t)i);
    inputs->random = &d->words;
    ng_key_add(&d->key, " words %llu", (unsigned long long)seed);
    return status;
}

/* Scales of square blocks, for a product that wants them one row high: each stands for every row of its block. */
static ng_status repeat_scales(side *d, const ng_quantization *wanted, ng_error *error) {
    const ng_operand *o = &d->quantized->operand;
    d->operand = *o;
    if (!d->quantizer || !o->scales.data || o->blocks.rows == wanted->blocks.rows || wanted->blocks.rows != 1) return NG_OK;
    ng_status status = ng_tensor_create(o->scales.format, o->codes.rows, o->scales.columns, &d->repeated, error);
    if (status) return status;
    for (int64_t i = 0; i < o->codes.rows; i++)
        for (int64_t j = 0; j < o->scales.columns; j++)
            ng_set_code(&d->repeated, i, j, ng_get_code(&o->scales, i / ng_block_extent(o->blocks.rows, o->codes.rows), j));
    d->operand.scales = d->repeated;
    d->operand.blocks.rows = 1;
    return NG_OK;
}

/* A sampled window is quantized as the part of the whole tensor that it is; autocast kernels see the window alone. */
static ng_status quantize_side(product *p, side *d, ng_error *error) {
    ng_judge *judge = p->judge;
    bool whole = d->rows == (d->spec->transposed ? d->spec->whole_columns : d->spec->whole_rows);
    bool outside = needs_tensor_amax(&d->quantization) && !whole && p->one->mode != NG_AUTOCAST;
    ng_quantize_inputs inputs = {0};
    ng_tensor transformed = {0};
    const ng_tensor *base;
    double amax;
    d->key = d->source_key;
    add_quantization(&d->key, &d->quantization);
    ng_key_add(&d->key, outside ? " whole" : "");
    const ng_hadamard *h = d->quantizer ? &d->quantizer->contract.hadamard : NULL;
    if (h && h->size) ng_key_add(&d->key, " h%d/%d %d", h->size, h->shift, d->turned || !h->transposed_only);
    ng_status status = d->quantizer ? recipe_inputs(p, d, &inputs, error) : NG_OK;
    if (status || (d->quantized = ng_cache_find(&judge->cache, &d->key))) return status;
    if (outside) {
        status = ng_source_amax(judge, d->spec, d->source_format, &amax, error);
        if (status) return status;
        inputs.tensor_amax = &amax;
    }
    ng_quantized *made = calloc(1, sizeof *made);
    if (!made) return ng_fail(error, NG_NO_MEMORY, "no memory for operands");
    base = d->source;
    if (d->quantizer) status = ng_quantizer_input(&d->quantizer->contract, d->turned, d->source, judge->threads, &transformed, &base, error);
    if (!status) status = ng_quantize(&d->quantization, base, &inputs, judge->threads, made, error);
    ng_tensor_free(&transformed);
    if (status) {
        free(made);
        return status;
    }
    d->quantized = made;
    size_t bytes = (size_t)(made->operand.codes.rows * made->operand.codes.row_bytes + made->operand.scales.rows * made->operand.scales.row_bytes);
    return ng_cache_put(&judge->cache, &d->key, made, release_quantized, bytes, error);
}

static ng_status make_side(product *p, side *d, ng_error *error) {
    ng_status status = ng_source(p->judge, d->spec, d->source_format, d->row0, 0, d->rows, p->problem.k, &d->source, &d->source_key, error);
    if (!status) status = quantize_side(p, d, error);
    return status ? status : repeat_scales(d, d == p->sides ? &p->contract.a : &p->contract.b, error);
}

/* The bias, and the same in every row for the reference. */
static ng_status make_bias(product *p, const ng_data_spec *spec, ng_error *error) {
    const ng_tensor *made;
    ng_status status = ng_source(p->judge, spec, p->kernel->out, 0, p->sides[1].row0, 1, p->problem.n, &made, &p->initial_key, error);
    if (!status) status = ng_tensor_create(p->kernel->out, 1, p->problem.n, &p->bias, error);
    if (!status) status = ng_tensor_create(NG_FP32, p->problem.m, p->problem.n, &p->initial, error);
    if (status) return status;
    ng_tensor_copy(made, &p->bias);
    for (int64_t i = 0; i < p->problem.m; i++)
        for (int64_t j = 0; j < p->problem.n; j++)
            ((float *)p->initial.data)[i * p->problem.n + j] = (float)ng_get_value(&p->bias, 0, j);
    ng_key_add(&p->initial_key, " bias");
    return NG_OK;
}

static ng_status make_initial(product *p, ng_error *error) {
    const ng_data_spec *a = p->sides[0].spec;
    ng_data_spec spec = {.distribution = a->distribution == NG_INTEGERS ? NG_INTEGERS : NG_NORMAL, .seed = a->seed, .stream = 3,
                         .target = a->target, .whole_rows = p->one->problem.m, .whole_columns = p->one->problem.n};
    const ng_tensor *made;
    if (p->contract.bias) return make_bias(p, &spec, error);
    if (!p->contract.accumulate_into) return NG_OK;
    ng_status status = ng_source(p->judge, &spec, p->kernel->out, p->sides[0].row0, p->sides[1].row0, p->problem.m, p->problem.n,
                                 &made, &p->initial_key, error);
    if (!status) p->initial = *made;
    return status;
}

static const ng_tensor *initial_of(const product *p) { return p->initial.data ? &p->initial : NULL; }

/* ---- sessions -----------------------------------------------------------------------------------------------------*/
static ng_status tensor_scale_input(ng_session *session, ng_role role, float value, ng_error *error) {
    ng_tensor one = {&value, NG_FP32, NG_HOST, 1, 1, sizeof value};
    return ng_session_input(session, role, &one, error);
}

/* Scales as the kernel wants them. */
static ng_status scales_input(ng_session *session, ng_role role, ng_scale_layout layout, const ng_tensor *plain, ng_error *error) {
    ng_tensor arranged;
    int64_t rows, columns;
    if (layout == NG_LAYOUT_PLAIN) return ng_session_input(session, role, plain, error);
    ng_layout_extents(layout, plain->rows, plain->columns, &rows, &columns);
    ng_status status = ng_tensor_create(plain->format, rows, columns, &arranged, error);
    if (status) return status;
    ng_layout_arrange(layout, plain, &arranged);
    status = ng_session_input_dense(session, role, &arranged, error);
    ng_tensor_free(&arranged);
    return status;
}

static ng_status codes_input(ng_session *session, ng_role role, bool transposed, const ng_tensor *codes, ng_error *error) {
    ng_tensor turned;
    if (!transposed) return ng_session_input(session, role, codes, error);
    ng_status status = ng_tensor_create(codes->format, codes->columns, codes->rows, &turned, error);
    if (status) return status;
    for (int64_t i = 0; i < codes->rows; i++)
        for (int64_t j = 0; j < codes->columns; j++)
            ng_set_code(&turned, j, i, ng_get_code(codes, i, j));
    status = ng_session_input(session, role, &turned, error);
    ng_tensor_free(&turned);
    return status;
}

static ng_status fill_session(product *p, ng_error *error) {
    ng_status status = NG_OK;
    for (int s = 0; s < SIDES && !status; s++) {
        const side *d = &p->sides[s];
        const ng_operand *o = &d->operand;
        const ng_quantization *wanted = s ? &p->contract.b : &p->contract.a;
        status = codes_input(&p->session, d->codes, s ? p->contract.b_transposed : p->contract.a_transposed, &o->codes, error);
        if (!status && o->scales.data) status = scales_input(&p->session, d->scales, wanted->layout, &o->scales, error);
        if (!status && d->quantization.tensor_scale) status = tensor_scale_input(&p->session, d->tensor_scale, o->tensor_scale, error);
    }
    if (!status && p->bias.data) status = ng_session_input(&p->session, NG_BIAS, &p->bias, error);
    if (!status) status = ng_session_output(&p->session, NG_OUT, p->kernel->out, p->problem.m, p->problem.n, error);
    if (p->contract.accumulate_into) p->session.initial[NG_OUT] = initial_of(p);
    return status;
}

/* ---- autocast -----------------------------------------------------------------------------------------------------*/
static void accuse_operand(const product *p, int s, ng_role role, const ng_tensor *want, ng_result *result) {
    const ng_session *q = &p->quantizers[s];
    ng_error_figures figures;
    ng_power power;
    if (ng_tensor_equal(&q->first[role], want) || ng_measure_codes(&q->first[role], want, false, p->judge->threads, &figures, &power)) return;
    ng_accuse(result, NG_FAIL, "operand %c quantized by %s differs from the reference in %lld of %lld %s", 'a' + s, q->kernel->name,
              (long long)(figures.beyond_bound + figures.nonfinite_mismatch), (long long)figures.checked, ng_role_names[role]);
}

/* Prepares q on the operand, which a gradient of weights takes column-wise from what is stored [K][rows]. words: those that the
 * reference used, where it rounded stochastically. */
static ng_status fill_quantizer(product *p, int s, ng_session *q, bool with_words, ng_error *error) {
    const side *d = &p->sides[s];
    const ng_operand *o = &d->quantized->operand;
    const bool turned = d->turned;
    float given = d->given;
    ng_tensor one = {&given, NG_FP32, NG_HOST, 1, 1, sizeof given};
    int64_t scale_rows, scale_columns;
    ng_layout_extents(d->quantization.layout, o->scales.rows, o->scales.columns, &scale_rows, &scale_columns);
    ng_status status = codes_input(q, NG_IN, turned, d->source, error);
    if (!status && with_words) status = codes_input(q, NG_RANDOM_WORDS, turned, &d->words, error);
    if (!status && d->quantization.rule == NG_SCALE_GIVEN) status = ng_session_input(q, NG_SCALE_GIVEN_IN, &one, error);
    if (!status) status = ng_session_output(q, turned ? NG_OUT_T : NG_OUT, o->codes.format, o->codes.rows, o->codes.columns, error);
    if (!status) status = ng_session_output(q, turned ? NG_OUT_T_SCALES : NG_OUT_SCALES, o->scales.format, scale_rows, scale_columns, error);
    if (!status && d->quantization.tensor_scale) status = ng_session_output(q, tensor_scale_role(d, q->kernel), NG_FP32, 1, 1, error);
    return status;
}

static ng_status compare_quantizer(product *p, int s, ng_result *result, ng_error *error) {
    const side *d = &p->sides[s];
    const ng_operand *o = &d->quantized->operand;
    float tensor_scale = o->tensor_scale;
    ng_tensor one = {&tensor_scale, NG_FP32, NG_HOST, 1, 1, sizeof tensor_scale}, scales = {0};
    int64_t rows, columns;
    ng_layout_extents(d->quantization.layout, o->scales.rows, o->scales.columns, &rows, &columns);
    ng_status status = ng_tensor_create(o->scales.format, rows, columns, &scales, error);
    if (status) return status;
    ng_layout_arrange(d->quantization.layout, &o->scales, &scales);
    accuse_operand(p, s, d->turned ? NG_OUT_T : NG_OUT, &o->codes, result);
    accuse_operand(p, s, d->turned ? NG_OUT_T_SCALES : NG_OUT_SCALES, &scales, result);
    if (d->quantization.tensor_scale) accuse_operand(p, s, tensor_scale_role(d, p->quantizers[s].kernel), &one, result);
    ng_tensor_free(&scales);
    return NG_OK;
}

/* Quantized by the kernel, with the reference's words; where it rounds stochastically, another session is the one to be timed, which
 * draws its own words as training does. */
static ng_status run_quantizer(product *p, int s, ng_result *result, ng_error *error) {
    const side *d = &p->sides[s];
    ng_session *q = &p->quantizers[s], *own = &p->drawing[s];
    ng_problem problem = {.op = NG_OP_QUANTIZE, .m = d->turned ? p->problem.k : d->rows, .n = d->turned ? d->rows : p->problem.k,
                          .seed = p->problem.seed + (uint64_t)s};
    bool launched, random = d->words.data != NULL;
    if (ng_is_plain(&d->quantization)) return NG_OK;
    const ng_kernel *kernel = d->quantizer ? d->quantizer : ng_find_quantizer(&p->judge->catalogue, p->kernel->backend, d->source_format, &d->quantization);
    const char *misfit = d->quantizer ? ng_operand_misfit(&d->quantization, s ? &p->contract.b : &p->contract.a) : NULL;
    if (!kernel || misfit) {
        result->verdict = NG_SKIP;
        snprintf(result->reason, sizeof result->reason, misfit ? "operand %c: %s" : "no kernel of the catalogue quantizes operand %c as the contract says", 'a' + s, misfit);
        return NG_OK;
    }
    p->has_quantizer[s] = true;
    if (!ng_session_begin(q, p->judge, kernel, &problem, result)) return NG_OK;
    ng_status status = fill_quantizer(p, s, q, random, error);
    if (!status) status = ng_session_run(q, 0, false, result, &launched, error);
    if (!status && launched) status = compare_quantizer(p, s, result, error);
    if (status || !random || !ng_session_begin(own, p->judge, kernel, &problem, result)) return status;
    status = fill_quantizer(p, s, own, false, error);
    return status ? status : ng_session_run(own, 0, false, result, &launched, error);
}

/* ---- truth --------------------------------------------------------------------------------------------------------*/
static void release_exact(void *value) {
    ng_exact_product_free(value);
    free(value);
}

static ng_status exact_product(product *p, const ng_operand *a, const ng_operand *b, const ng_key *a_key, const ng_key *b_key,
                               const ng_exact_product **exact, ng_error *error) {
    ng_judge *judge = p->judge;
    ng_key key;
    ng_key_set(&key, "exact %s | %s | %s", a_key->text, b_key->text, p->initial.data ? p->initial_key.text : "");
    if ((*exact = ng_cache_find(&judge->cache, &key))) return NG_OK;
    if (!judge->blas_known) {
        if (ng_blas_self_test())
            return ng_fail(error, NG_INTERNAL, "cblas_dgemm is not exact on integers here: the reference cannot be believed; try another BLAS");
        judge->blas_known = true;
    }
    ng_exact_product *made = calloc(1, sizeof *made);
    if (!made) return ng_fail(error, NG_NO_MEMORY, "no memory for the exact product");
    ng_status status = ng_exact_gemm(a, b, initial_of(p), judge->threads, made);
    if (status) {
        free(made);
        return ng_fail(error, status, "the exact product of %lld x %lld x %lld failed", (long long)p->problem.m,
                       (long long)p->problem.n, (long long)p->problem.k);
    }
    *exact = made;
    for (int64_t i = 0; i < made->m * made->n; i++)
        made->high[i] += 0.0; /* sums start from +0: no -0 */
    return ng_cache_put(&judge->cache, &key, made, release_exact, (size_t)(made->m * made->n) * 16, error);
}

/* The largest magnitude of the values, and the largest power of two that divides them all. */
static void grid_of(const ng_operand *o, double *largest, double *grid) {
    *largest = 0;
    *grid = INFINITY;
    for (int64_t i = 0; i < o->codes.rows; i++)
        for (int64_t j = 0; j < o->codes.columns; j++) {
            double x = fabs(ng_get_value(&o->codes, i, j));
            int e;
            if (x == 0) continue;
            if (!isfinite(x)) {
                *largest = INFINITY;
                return;
            }
            if (x > *largest) *largest = x;
            double m = frexp(x, &e) * 0x1p53;
            double lowest = ldexp(1, e - 53 + __builtin_ctzll((unsigned long long)m));
            if (lowest < *grid) *grid = lowest;
        }
}

/* Whether no order can round: every product is a multiple of g = ga gb, and every partial sum at most K |a| |b| <= 2^bits g
 * in magnitude, so it is a binary32 (for a tensor core: nothing reaches below the alignment, nor out of p bits). Then B = 0. */
static bool sums_are_exact(const product *p) {
    const ng_accumulation *sum = &p->contract.sum;
    const ng_operand *a = &p->sides[0].operand, *b = &p->sides[1].operand;
    double largest[SIDES], grid[SIDES];
    if (sum->scales != NG_SCALES_NONE || a->scales.data || b->scales.data || p->initial.data) return false;
    if (a->tensor_scale != 1 || b->tensor_scale != 1) return false;
    int bits = sum->order == NG_SUM_MMA ? (sum->mma.fraction_bits < sum->mma.output_bits ? sum->mma.fraction_bits : sum->mma.output_bits) : 24;
    grid_of(a, &largest[0], &grid[0]);
    grid_of(b, &largest[1], &grid[1]);
    double g = grid[0] * grid[1], most = (double)p->problem.k * largest[0] * largest[1];
    return g >= 0x1p-126 && isfinite(g) && most <= ldexp(g, bits) && most < 0x1p126;
}

/* The expected bound assumes errors of either sign, independent in the mean (Azuma): not so for these. */
static bool expected_applies(const product *p) {
    ng_distribution d = p->sides[0].spec->distribution;
    return p->contract.sum.order != NG_SUM_MMA && d != NG_TIES && d != NG_INTEGERS && d != NG_POSITIVE && d != NG_CONSTANT;
}

static void drop_bound(product *p) {
    ng_tensor_free(&p->predicted);
    free(p->bound);
    free(p->expected);
    free(p->running);
    p->bound = p->expected = p->running = NULL;
}

static ng_status make_bound(product *p, ng_error *error) {
    size_t count = (size_t)(p->problem.m * p->problem.n);
    const ng_contract *c = &p->contract;
    const ng_operand *a = &p->sides[0].operand, *b = &p->sides[1].operand;
    p->bound = malloc(sizeof(double) * (count + 1));
    p->running = malloc(sizeof(double) * (count + 1));
    p->expected = expected_applies(p) ? malloc(sizeof(double) * (count + 1)) : NULL;
    if (!p->bound || !p->running || (expected_applies(p) && !p->expected)) return ng_fail(error, NG_NO_MEMORY, "no memory for bounds");
    ng_status status = ng_gemm_bound(&c->sum, a, b, initial_of(p), p->exact, p->judge->threads, p->bound, p->expected);
    if (status) return ng_fail(error, status, "no bound follows from the contract of %s", p->kernel->name);
    if (sums_are_exact(p)) memset(p->bound, 0, sizeof(double) * count);
    status = ng_tensor_create(p->kernel->out, p->problem.m, p->problem.n, &p->predicted, error);
    if (status) return status;
    status = ng_predict_gemm(&c->sum, &c->cast, a, b, initial_of(p), p->judge->threads, &p->predicted, p->running);
    if (status == NG_UNSUPPORTED) {
        ng_tensor_free(&p->predicted);
        return NG_OK;
    }
    if (status) return ng_fail(error, status, "the prediction of %s failed", p->kernel->name);
    for (size_t i = 0; i < count; i++) /* both hold for a kernel that keeps its contract */
        if (p->running[i] < p->bound[i]) p->bound[i] = p->running[i];
    return NG_OK;
}

void ng_describe_sum(const ng_accumulation *sum, char *text, size_t bytes) {
    static const char *const orders[] = {[NG_SUM_ANY] = "any order", [NG_SUM_CHAIN] = "fp32 chain", [NG_SUM_PAIRWISE] = "fp32 pairwise",
                                         [NG_SUM_MMA] = "tensor core", [NG_SUM_FP64] = "fp64 chain"};
    int used = snprintf(text, bytes, "%s", sum->order == NG_SUM_MMA && sum->mma.name ? sum->mma.name : orders[sum->order]);
    if (sum->order == NG_SUM_MMA && sum->promote_every && (size_t)used < bytes)
        used += snprintf(text + used, bytes - (size_t)used, ", promoted every %d", sum->promote_every * sum->mma.k);
    if (sum->order == NG_SUM_PAIRWISE && (size_t)used < bytes)
        used += snprintf(text + used, bytes - (size_t)used, ", leaves of %d", sum->leaf);
    if (sum->split_k > 1 && (size_t)used < bytes) used += snprintf(text + used, bytes - (size_t)used, ", K split by %d", sum->split_k);
    if (sum->k_order == NG_K_QUADS && (size_t)used < bytes) snprintf(text + used, bytes - (size_t)used, ", K in quads");
}

/* NaN bits are part of a tensor core's model; of a chain of host additions, they are not. */
static void compare_prediction(product *p, ng_power *power, ng_result *result, ng_error_figures *figures) {
    const ng_accumulation *sum = &p->contract.sum;
    ng_prediction *prediction = &result->prediction;
    if (!p->predicted.data) return;
    if (ng_measure_codes(&p->session.first[NG_OUT], &p->predicted, sum->order != NG_SUM_MMA, p->judge->threads, figures, power)) return;
    prediction->present = true;
    prediction->elements = figures->checked;
    prediction->differ = figures->beyond_bound + figures->nonfinite_mismatch;
    prediction->first[0] = figures->worst[0] + p->sides[0].row0;
    prediction->first[1] = figures->worst[1] + p->sides[1].row0;
    ng_describe_sum(sum, prediction->model, sizeof prediction->model);
    if (prediction->differ)
        ng_accuse(result, NG_MOVED, "%lld of %lld elements differ from the bits that the contract fixes (%s), first or worst OUT[%lld][%lld]: %.9g, predicted %.9g",
                  (long long)prediction->differ, (long long)prediction->elements, prediction->model, (long long)prediction->first[0],
                  (long long)prediction->first[1], figures->worst_computed, figures->worst_exact);
}

static void place_figures(const product *p, const ng_exact_product *exact, ng_error_figures *figures) {
    figures->elements = p->one->problem.m * p->one->problem.n;
    figures->worst[0] += p->sides[0].row0;
    figures->worst[1] += p->sides[1].row0;
    memcpy(figures->by_tier, exact->elements_by_tier, sizeof figures->by_tier);
}

static ng_status measure(product *p, ng_result *result, ng_error *error) {
    const ng_cast *cast = &p->contract.cast;
    const ng_tensor *out = &p->session.first[NG_OUT];
    ng_truth truth = {p->exact->high, p->exact->low, p->bound, p->expected};
    ng_truth before = {p->recipe->high, p->recipe->low, NULL, NULL};
    ng_power power, prediction_power = {0, 0};
    ng_error_figures prediction_figures;
    ng_observe(p->judge, p->one, NG_OUT, out, NULL, p->exact->high);
    ng_status status = ng_measure(out, cast, &truth, p->judge->threads, &result->error, &power);
    if (!status) status = ng_measure(out, cast, &before, p->judge->threads, &result->recipe_error, NULL);
    if (status) return ng_fail(error, status, "no memory for error figures");
    place_figures(p, p->exact, &result->error);
    place_figures(p, p->recipe, &result->recipe_error);
    ng_accuse_figures(result, "OUT", &result->error);
    compare_prediction(p, &prediction_power, result, &prediction_figures);
    if (!prediction_power.zero_rejected) ng_accuse_powerless(result, &result->error, &power);
    double elements = (double)p->problem.k * (double)(p->sides[0].rows + p->sides[1].rows);
    result->saturated = (p->sides[0].quantized->saturated + p->sides[1].quantized->saturated) / elements;
    result->flushed = (p->sides[0].quantized->flushed + p->sides[1].quantized->flushed) / elements;
    return NG_OK;
}

static ng_status make_truth(product *p, ng_error *error) {
    side *a = &p->sides[0], *b = &p->sides[1];
    ng_operand before[SIDES] = {{.codes = *a->source, .tensor_scale = 1}, {.codes = *b->source, .tensor_scale = 1}};
    bool same = ng_is_plain(&a->quantization) && ng_is_plain(&b->quantization) && a->quantization.element == a->source_format &&
                b->quantization.element == b->source_format;
    ng_status status = exact_product(p, &a->operand, &b->operand, &a->key, &b->key, &p->exact, error);
    if (same) p->recipe = p->exact;
    else if (!status) status = exact_product(p, &before[0], &before[1], &a->source_key, &b->source_key, &p->recipe, error);
    if (!status) status = make_bound(p, error);
    return status;
}

static ng_status time_product(product *p, ng_result *result, ng_error *error) {
    ng_session *const all[] = {p->sides[0].words.data ? &p->drawing[0] : &p->quantizers[0],
                               p->sides[1].words.data ? &p->drawing[1] : &p->quantizers[1], &p->session};
    static const char *const names[] = {"quantize a", "quantize b", "gemm"};
    double flop = 2.0 * (double)p->problem.m * (double)p->problem.n * (double)p->problem.k;
    ng_session *sessions[3];
    const char *used[3];
    int count = 0;
    for (int s = 0; s < 3; s++)
        if (s == SIDES || p->has_quantizer[s]) {
            sessions[count] = all[s];
            used[count++] = names[s];
        }
    return ng_session_time(sessions, count > 1 ? used : NULL, count, p->one->level, flop, result, error);
}

static void release(product *p) {
    ng_session_end(&p->session);
    for (int s = 0; s < SIDES; s++) {
        ng_session_end(&p->quantizers[s]);
        ng_session_end(&p->drawing[s]);
        ng_tensor_free(&p->sides[s].words);
        ng_tensor_free(&p->sides[s].repeated);
    }
    drop_bound(p);
    if (p->bias.data) ng_tensor_free(&p->initial);
    ng_tensor_free(&p->bias);
}

/* ---- variants -----------------------------------------------------------------------------------------------------*/
static ng_status take_variant(product *p, int variant) {
    p->session.variant = variant;
    return ng_take_variant(p->kernel, &p->problem, &p->session.device, variant, &p->contract, p->algorithm);
}

/* Another algorithm on the same operands: the sum of its own contract, the same exact product. */
static ng_status judge_variant(void *context, int variant, const ng_result *first, ng_result *own, ng_error *error) {
    product *p = context;
    const ng_accumulation before = p->contract.sum;
    ng_status status = take_variant(p, variant);
    (void)first;
    if (!status && memcmp(&before, &p->contract.sum, sizeof before)) {
        drop_bound(p);
        status = make_bound(p, error);
    }
    if (status) return status;
    if (!ng_session_launch(&p->session, 0, false, true, own)) return ng_session_broken(&p->session, error);
    ng_tensor_copy(&p->session.roles[NG_OUT].tensor, &p->session.first[NG_OUT]);
    ng_session_digest(&p->session, own);
    status = measure(p, own, error);
    return status ? status : time_product(p, own, error);
}

static ng_status judge_product(product *p, ng_result *result, ng_error *error) {
    bool launched;
    ng_status status = NG_OK;
    if (!ng_session_begin(&p->session, p->judge, p->kernel, &p->problem, result)) return NG_OK;
    status = take_variant(p, 0);
    if (status) return ng_fail(error, NG_INTERNAL, "%s supports the problem and cannot describe it", p->kernel->name);
    for (int s = 0; s < SIDES && !status; s++)
        status = make_side(p, &p->sides[s], error);
    if (!status) status = make_initial(p, error);
    for (int s = 0; s < SIDES && !status && p->one->mode == NG_AUTOCAST && result->verdict != NG_SKIP; s++)
        status = run_quantizer(p, s, result, error);
    if (status || result->verdict == NG_SKIP) return status;
    status = fill_session(p, error);
    if (!status) status = ng_session_run(&p->session, p->one->repeats, false, result, &launched, error);
    if (status || !launched) return status;
    ng_session_digest(&p->session, result);
    double start = ng_now_s();
    status = make_truth(p, error);
    if (!status) status = measure(p, result, error);
    result->verify_s = ng_now_s() - start;
    if (!status) status = time_product(p, result, error);
    if (!status) status = ng_save_session(&p->session, p->one, result, error);
    snprintf(result->speed.algorithm, sizeof result->speed.algorithm, "%s", p->algorithm);
    if (status) return status;
    return ng_each_variant(p->judge, p->one, &p->problem, &p->session.device, p->algorithm, judge_variant, p, result, error);
}

ng_status ng_judge_gemm(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
#ifdef NG_HAVE_CUDA
    if (ng_judges_whole(judge, one)) return ng_judge_whole(judge, one, result, error);
#endif
    product *p = calloc(1, sizeof *p);
    if (!p) return ng_fail(error, NG_NO_MEMORY, "no memory for a product");
    const ng_kernel *kernel = one->kernel;
    p->judge = judge;
    p->one = one;
    p->kernel = kernel;
    p->problem = one->problem;
    choose_side(p, 0, &kernel->contract.a, kernel->in, &one->data, one->sample.row, one->sample.rows, one->problem.m);
    choose_side(p, 1, &kernel->contract.b, kernel->in_b < NG_FORMATS ? kernel->in_b : kernel->in, &one->data_b, one->sample.column, one->sample.columns, one->problem.n);
    p->problem.m = p->sides[0].rows;
    p->problem.n = p->sides[1].rows;
    ng_status status = judge_product(p, result, error);
    release(p);
    free(p);
    return status;
}
