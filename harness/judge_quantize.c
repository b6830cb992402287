/* Quantization and dequantization: codes, block scales and tensor scale must be the reference's, bit for bit. Tensors larger
 * than a piece are judged piece by piece, in whole blocks of rows, so that one of any size needs the memory of a piece; where
 * a scale spans the tensor, the kernel sees each piece as a tensor of its own, and the recipe error (from the reference's
 * codes) has the whole tensor's maximum. */
#include "harness/judge_internal.h"
#include "reference/scale_layout.h"
#include "reference/round.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Judged at once. On a GPU whole tensors as training has them, since a piece that fits the L2 cache says nothing of speed. */
static int64_t piece_elements(const ng_kernel *kernel) { return kernel->backend == NG_BACKEND_CUDA ? (int64_t)1 << 28 : 1 << 22; }

/* Rows of a piece: a multiple of 128, which every block's rows divide. */
static int64_t piece_rows(const ng_kernel *kernel, const ng_problem *problem) {
    int64_t rows = piece_elements(kernel) / (problem->n ? problem->n : 1) / 128 * 128;
    return rows < 128 ? 128 : rows;
}

static bool spans_tensor(const ng_quantization *q) { return q->tensor_scale || (!q->blocks.rows && !q->blocks.columns); }

static double host_amax(const ng_tensor *t) {
    double amax = 0;
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++) {
            double x = fabs(ng_get_value(t, i, j));
            if (!(x <= amax)) amax = x;
            if (isnan(x)) return x; /* which no later element takes back */
        }
    return amax;
}

/* Delayed scaling: a scale from an earlier, smaller maximum, so that some elements saturate. */
static float given_scale(const ng_quantization *q, double amax) {
    double scale = ng_formats[q->element].largest / (0.75 * amax);
    return scale > 0 && scale <= FLT_MAX ? (float)scale : 1;
}

/* ---- one piece ----------------------------------------------------------------------------------------------------*/
typedef struct piece {
    ng_judge *judge;
    const ng_case *one;
    const ng_quantization *q;
    const ng_tensor *source; /* [rows][columns], what the kernel gets */
    const ng_tensor *base;   /* what it quantizes: source, or its Hadamard transform, which is owned then */
    ng_tensor transformed;
    ng_tensor words;         /* stochastic rounding */
    float given;
    ng_quantized expected, expected_t;
    ng_session session;
    bool transposed; /* the session also has the OUT_T roles */
} piece;

static bool is_stochastic(const ng_quantization *q) { return q->cast.rounding == NG_R_STOCHASTIC; }

static ng_quantize_inputs inputs_of(const piece *p) {
    return (ng_quantize_inputs){.random = p->words.data ? &p->words : NULL,
                                .given_scale = p->q->rule == NG_SCALE_GIVEN ? &p->given : NULL};
}

static ng_status transpose(const ng_tensor *from, ng_tensor *to, ng_error *error) {
    ng_status status = ng_tensor_create(from->format, from->columns, from->rows, to, error);
    for (int64_t i = 0; !status && i < from->rows; i++)
        for (int64_t j = 0; j < from->columns; j++)
            ng_set_code(to, j, i, ng_get_code(from, i, j));
    return status;
}

/* What OUT_T stands for, before its quantization: owned. */
static ng_status turned_base(const piece *p, ng_tensor *turned, ng_error *error) {
    ng_tensor made = {0}, plain = {0};
    const ng_tensor *base;
    ng_status status = transpose(p->source, &plain, error);
    if (!status) status = ng_quantizer_input(&p->one->kernel->contract, true, &plain, p->judge->threads, &made, &base, error);
    if (!status) *turned = *base;
    if (status || base == &made) ng_tensor_free(&plain);
    if (status) ng_tensor_free(&made);
    return status;
}

static ng_status expect(piece *p, ng_error *error) {
    ng_quantize_inputs inputs = inputs_of(p);
    ng_tensor turned = {0};
    ng_status status = ng_quantize(p->q, p->base, &inputs, p->judge->threads, &p->expected, error);
    if (!status && p->transposed) status = turned_base(p, &turned, error);
    if (!status && p->transposed) status = ng_quantize(p->q, &turned, &inputs, p->judge->threads, &p->expected_t, error);
    ng_tensor_free(&turned);
    return status;
}

/* Whether OUT_T has a tensor scale of its own. */
static bool has_other_scale(const piece *p) { return p->transposed && p->q->tensor_scale && p->one->kernel->contract.hadamard.size; }

static ng_status outputs(piece *p, const ng_operand *o, ng_role codes, ng_role scales, ng_error *error) {
    ng_status status = ng_session_output(&p->session, codes, o->codes.format, o->codes.rows, o->codes.columns, error);
    if (status || !o->scales.data) return status;
    int64_t rows, columns;
    ng_layout_extents(p->q->layout, o->scales.rows, o->scales.columns, &rows, &columns);
    return ng_session_output(&p->session, scales, o->scales.format, rows, columns, error);
}

static ng_status fill_session(piece *p, ng_error *error) {
    ng_tensor given = {&p->given, NG_FP32, NG_HOST, 1, 1, sizeof p->given};
    ng_status status = ng_session_input(&p->session, NG_IN, p->source, error);
    if (!status && p->words.data) status = ng_session_input(&p->session, NG_RANDOM_WORDS, &p->words, error);
    if (!status && p->q->rule == NG_SCALE_GIVEN) status = ng_session_input(&p->session, NG_SCALE_GIVEN_IN, &given, error);
    if (!status) status = outputs(p, &p->expected.operand, NG_OUT, NG_OUT_SCALES, error);
    if (!status && p->q->tensor_scale) status = ng_session_output(&p->session, NG_OUT_TENSOR_SCALE, NG_FP32, 1, 1, error);
    if (!status && p->transposed) status = outputs(p, &p->expected_t.operand, NG_OUT_T, NG_OUT_T_SCALES, error);
    if (!status && has_other_scale(p)) status = ng_session_output(&p->session, NG_OUT_T_TENSOR_SCALE, NG_FP32, 1, 1, error);
    return status;
}

static ng_status compare_role(piece *p, ng_role role, const ng_tensor *want, int64_t row0, ng_tally *tally, ng_result *result) {
    const ng_tensor *got = &p->session.first[role];
    ng_error_figures figures;
    ng_power power;
    ng_tally all;
    if (!want->data) return NG_OK;
    ng_observe(p->judge, p->one, role, got, want, NULL);
    ng_tally_begin(&all);
    ng_status status = ng_tally_add_codes(&all, got, want, false, row0, p->judge->threads);
    ng_tally_publish(&all, want->rows * want->columns, &figures, &power);
    if (!status) ng_accuse_figures(result, ng_role_names[role], &figures);
    if (role == NG_OUT && !p->transposed && !status) return ng_tally_add_codes(tally, got, want, false, row0, p->judge->threads);
    tally->beyond += figures.beyond_bound;
    tally->nonfinite += figures.nonfinite_mismatch;
    tally->bounded += power.bounded;
    tally->zero_rejected += power.zero_rejected;
    if (figures.bound_ratio > tally->ratio) tally->ratio = figures.bound_ratio;
    return status;
}

/* Scales as the layout has them, padding included. */
static ng_status compare_scales(piece *p, ng_role role, const ng_tensor *plain, int64_t row0, ng_tally *tally, ng_result *result) {
    ng_tensor arranged;
    ng_error error = {0};
    int64_t rows, columns;
    if (p->q->layout == NG_LAYOUT_PLAIN || !plain->data) return compare_role(p, role, plain, row0, tally, result);
    ng_layout_extents(p->q->layout, plain->rows, plain->columns, &rows, &columns);
    ng_status status = ng_tensor_create(plain->format, rows, columns, &arranged, &error);
    if (status) return status;
    ng_layout_arrange(p->q->layout, plain, &arranged);
    status = compare_role(p, role, &arranged, row0, tally, result);
    ng_tensor_free(&arranged);
    return status;
}

static ng_status compare_piece(piece *p, int64_t row0, ng_tally *tally, ng_result *result) {
    const ng_operand *o = &p->expected.operand, *t = &p->expected_t.operand;
    float tensor_scale = o->tensor_scale, other_scale = t->tensor_scale;
    ng_tensor one = {p->q->tensor_scale ? &tensor_scale : NULL, NG_FP32, NG_HOST, 1, 1, sizeof tensor_scale};
    ng_tensor other = {has_other_scale(p) ? &other_scale : NULL, NG_FP32, NG_HOST, 1, 1, sizeof other_scale};
    ng_status status = compare_role(p, NG_OUT_TENSOR_SCALE, &one, row0, tally, result);
    if (!status) status = compare_role(p, NG_OUT_T_TENSOR_SCALE, &other, row0, tally, result);
    if (!status) status = compare_scales(p, NG_OUT_SCALES, &o->scales, row0, tally, result);
    if (!status) status = compare_role(p, NG_OUT, &o->codes, row0, tally, result);
    if (!status && p->transposed) status = compare_scales(p, NG_OUT_T_SCALES, &t->scales, 0, tally, result);
    if (!status && p->transposed) status = compare_role(p, NG_OUT_T, &t->codes, 0, tally, result);
    return status;
}

static void end_piece(piece *p) {
    ng_session_end(&p->session);
    ng_quantized_free(&p->expected);
    ng_quantized_free(&p->expected_t);
    ng_tensor_free(&p->words);
    ng_tensor_free(&p->transformed);
}

/* Prepares a session on this source and launches. */
static ng_status run_piece(piece *p, bool quiet, ng_result *result, bool *launched, ng_error *error) {
    ng_problem problem = p->one->problem;
    problem.m = p->source->rows;
    problem.n = p->source->columns;
    *launched = false;
    ng_status status = ng_quantizer_input(&p->one->kernel->contract, false, p->source, p->judge->threads, &p->transformed, &p->base, error);
    if (status) return status;
    if (p->q->rule == NG_SCALE_GIVEN) p->given = given_scale(p->q, host_amax(p->source));
    if (!ng_session_begin(&p->session, p->judge, p->one->kernel, &problem, result)) return NG_OK;
    if (is_stochastic(p->q)) {
        status = ng_tensor_create(NG_FP32, p->source->rows, p->source->columns, &p->words, error);
        for (int64_t i = 0; !status && i < p->source->rows * p->source->columns; i++)
            ((uint32_t *)p->words.data)[i] = ng_word(p->one->problem.seed, (uint64_t)i);
    }
    if (!status) status = expect(p, error);
    if (!status) status = fill_session(p, error);
    if (!status) status = ng_session_run(&p->session, p->one->repeats, quiet, result, launched, error);
    return status;
}

/* ---- what the reference itself is held to -------------------------------------------------------------------------*/
enum { WITNESSES = 8, WITNESS_COLUMNS = 128 };

/* A seeded few windows of whole blocks through MPFR, which must give the integer tier's codes. */
static ng_status check_reference(const piece *p, ng_result *result, int64_t *by_mpfr, ng_error *error) {
    const ng_operand *o = &p->expected.operand;
    int64_t rows = p->q->blocks.rows ? p->q->blocks.rows : 1, columns = p->q->blocks.columns;
    bool whole_row = !columns && p->q->blocks.rows;
    double amax = spans_tensor(p->q) ? host_amax(p->base) : 0;
    ng_status status = NG_OK;
    if (!columns) columns = whole_row ? p->source->columns : WITNESS_COLUMNS;
    if (is_stochastic(p->q) || p->q->rule == NG_SCALE_GIVEN || !p->source->rows || !p->source->columns) return NG_OK;
    int64_t most = rows * columns > 1024 ? 1 : WITNESSES;
    for (int64_t w = 0; w < most && !status; w++) {
        int64_t i = (int64_t)(ng_word(p->one->data.seed, (uint64_t)(2 * w)) % (uint64_t)ng_block_count((uint32_t)rows, p->source->rows)) * rows;
        int64_t j = (int64_t)(ng_word(p->one->data.seed, (uint64_t)(2 * w + 1)) % (uint64_t)((p->source->columns - 1) / columns + 1)) * columns;
        int64_t height = rows < p->source->rows - i ? rows : p->source->rows - i;
        int64_t width = columns < p->source->columns - j ? columns : p->source->columns - j;
        ng_quantize_inputs inputs = {.tensor_amax = spans_tensor(p->q) ? &amax : NULL};
        ng_quantized mpfr = {.operand = {.blocks = p->q->blocks}};
        ng_tensor window = {0};
        float tensor_scale = 1;
        status = ng_tensor_create(p->base->format, height, width, &window, error);
        if (!status) status = ng_tensor_create(p->q->element, height, width, &mpfr.operand.codes, error);
        if (!status) status = ng_tensor_create(p->q->scale, ng_block_count(p->q->blocks.rows, height), ng_block_count(p->q->blocks.columns, width), &mpfr.operand.scales, error);
        for (int64_t k = 0; !status && k < height * width; k++)
            ng_set_code(&window, k / width, k % width, ng_get_code(p->base, i + k / width, j + k % width));
        if (!status) {
            status = ng_reference_quantize(p->q, &window, &inputs, NG_TIER_MPFR, &mpfr.operand.codes, &mpfr.operand.scales, &tensor_scale);
            if (status) ng_fail(error, status, "the MPFR reference could not quantize a %lld x %lld window", (long long)height, (long long)width);
        }
        int64_t differ = tensor_scale != o->tensor_scale && !(isnan(tensor_scale) && isnan(o->tensor_scale));
        for (int64_t k = 0; !status && k < height * width; k++)
            differ += ng_get_code(&mpfr.operand.codes, k / width, k % width) != ng_get_code(&o->codes, i + k / width, j + k % width);
        if (!status && differ)
            ng_accuse(result, NG_FAIL, "the two tiers of the reference differ in %lld codes of the block at [%lld][%lld]", (long long)differ, (long long)i, (long long)j);
        *by_mpfr += status ? 0 : height * width;
        ng_quantized_free(&mpfr);
        ng_tensor_free(&window);
    }
    return status;
}

/* ---- recipe error -------------------------------------------------------------------------------------------------*/
typedef struct recipe {
    ng_tally tally;
    double saturated, flushed, worst_loss; /* worst block: the largest sum e^2 / sum x^2 */
    int64_t worst[2];
} recipe;

static void worst_block(const ng_operand *o, const double *exact, const ng_tensor *values, int64_t row0, recipe *r) {
    int64_t rows = o->codes.rows, columns = o->codes.columns;
    int64_t height = ng_block_extent(o->blocks.rows, rows), width = ng_block_extent(o->blocks.columns, columns);
    for (int64_t i = 0; i < rows; i += height)
        for (int64_t j = 0; j < columns; j += width) {
            double e2 = 0, x2 = 0;
            for (int64_t k = i; k < rows && k < i + height; k++)
                for (int64_t l = j; l < columns && l < j + width; l++) {
                    double x = exact[k * columns + l], e = ((const double *)values->data)[k * columns + l] - x;
                    e2 += e * e;
                    x2 += x * x;
                }
            if (x2 > 0 && e2 > r->worst_loss * x2) {
                r->worst_loss = e2 / x2;
                r->worst[0] = row0 + i;
                r->worst[1] = j;
            }
        }
}

static ng_status add_recipe(ng_judge *judge, const ng_tensor *source, const ng_quantized *quantized, int64_t row0, recipe *r, ng_error *error) {
    static const ng_cast cast = {.rounding = NG_RN_EVEN};
    const ng_operand *o = &quantized->operand;
    int64_t columns = source->columns;
    ng_tensor values = {0};
    double *exact = malloc(sizeof *exact * (size_t)(source->rows * columns + 1));
    ng_status status = ng_tensor_create(NG_FP64, source->rows, columns, &values, error);
    if (!exact) status = ng_fail(error, NG_NO_MEMORY, "no memory for source values");
    if (status) goto done;
#pragma omp parallel for num_threads(judge->threads)
    for (int64_t i = 0; i < source->rows; i++) {
        ng_operand_row(o, i, (double *)values.data + i * columns);
        ng_decode_row(source, i, 0, columns, exact + i * columns);
    }
    ng_truth truth = {exact, NULL, NULL, NULL};
    status = ng_tally_add(&r->tally, &values, &cast, &truth, row0, judge->threads);
    worst_block(o, exact, &values, row0, r);
    r->saturated += quantized->saturated;
    r->flushed += quantized->flushed;
done:
    free(exact);
    ng_tensor_free(&values);
    return status;
}

/* recipe_error.worst is the first element of the block that lost most, relative to its own size. */
static void publish_recipe(const recipe *r, int64_t elements, ng_result *result) {
    ng_tally_publish(&r->tally, elements, &result->recipe_error, NULL);
    result->recipe_error.max_ulp = NAN; /* the values have no common format */
    result->recipe_error.worst[0] = r->worst[0];
    result->recipe_error.worst[1] = r->worst[1];
    result->saturated = r->saturated / (double)elements;
    result->flushed = r->flushed / (double)elements;
    if (result->recipe_error.nonfinite_mismatch && result->verdict == NG_PASS)
        snprintf(result->reason, sizeof result->reason, "%lld elements are NaN or infinite before or after quantization; the other figures leave them out",
                 (long long)result->recipe_error.nonfinite_mismatch);
}

/* ---- the driver ---------------------------------------------------------------------------------------------------*/
static ng_status recipe_of_piece(piece *p, const double *whole_amax, int64_t row0, recipe *r, ng_error *error) {
    if (!whole_amax) return add_recipe(p->judge, p->base, &p->expected, row0, r, error);
    ng_quantize_inputs inputs = inputs_of(p);
    ng_quantized whole;
    inputs.tensor_amax = whole_amax;
    ng_status status = ng_quantize(p->q, p->source, &inputs, p->judge->threads, &whole, error);
    if (status) return status;
    status = add_recipe(p->judge, p->source, &whole, row0, r, error);
    ng_quantized_free(&whole);
    return status;
}

/* ---- random words that the kernel draws itself ---------------------------------------------------------------------- */
/* Elements: every probability takes a dozen quantizations. Of more than most_compared only the probabilities are looked at. */
static const int64_t most_drawn = 1 << 20, most_compared = 1 << 15;

static ng_status quantize_with(const piece *p, const ng_tensor *source, const uint32_t *random, ng_quantized *quantized, ng_error *error) {
    ng_tensor words = {(void *)random, NG_FP32, NG_HOST, source->rows, source->columns, source->columns * 4};
    ng_quantize_inputs inputs = {.random = &words, .given_scale = p->q->rule == NG_SCALE_GIVEN ? &p->given : NULL};
    return ng_quantize(p->q, source, &inputs, p->judge->threads, quantized, error);
}

static uint64_t code_at(const ng_tensor *t, int64_t k) { return ng_get_code(t, k / t->columns, k % t->columns); }

/* Draws from the codes alone, whatever the scales: an element's result is one of two, and changes at one random integer T,
 * found by bisection with the reference. P(the second) = (2^r - T) / 2^r. Codes that are neither are counted. */
static ng_status draws_of(const piece *p, const ng_tensor *source, const ng_tensor *codes, ng_draw *draws, int64_t *impossible, ng_error *error) {
    const uint32_t all = 1u << p->q->cast.random_bits;
    int64_t count = source->rows * source->columns;
    ng_quantized first = {0}, last = {0}, middle = {0};
    uint32_t *low = calloc((size_t)count * 3 + 1, sizeof *low), *high = low + count, *word = high + count;
    ng_status status = low ? quantize_with(p, source, low, &first, error) : ng_fail(error, NG_NO_MEMORY, "no memory to look at random draws");
    for (int64_t k = 0; !status && k < count; k++) {
        high[k] = all;
        word[k] = all - 1;
    }
    if (!status) status = quantize_with(p, source, word, &last, error);
    for (uint32_t width = all; !status && width > 1; width /= 2) {
        for (int64_t k = 0; k < count; k++)
            word[k] = (low[k] + high[k]) / 2;
        status = quantize_with(p, source, word, &middle, error);
        for (int64_t k = 0; !status && k < count; k++)
            *(code_at(&middle.operand.codes, k) == code_at(&first.operand.codes, k) ? &low[k] : &high[k]) = word[k];
        ng_quantized_free(&middle);
    }
    for (int64_t k = 0; !status && k < count; k++) {
        uint64_t down = code_at(&first.operand.codes, k), up = code_at(&last.operand.codes, k), got = code_at(codes, k);
        double probability = (double)(all - high[k]) / all;
        *impossible += got != down && got != up;
        draws[k] = up == down ? (ng_draw){0, 0} : (ng_draw){(float)((got != down) - probability), (float)(probability * (1 - probability))};
    }
    ng_quantized_free(&first);
    ng_quantized_free(&last);
    free(low);
    return status;
}

/* One launch without words; with both copies if the piece is transposed, which a kernel may decline. */
static ng_status launch_own(piece *p, uint64_t seed, uint64_t offset, ng_result *result, bool *launched, ng_error *error) {
    ng_problem problem = p->one->problem;
    problem.m = p->source->rows;
    problem.n = p->source->columns;
    problem.seed = seed;
    problem.offset = offset;
    *launched = false;
    if (!ng_session_begin(&p->session, p->judge, p->one->kernel, &problem, result)) return NG_OK;
    ng_status status = fill_session(p, error);
    return status ? status : ng_session_run(&p->session, 0, p->transposed, result, launched, error);
}

/* The draws of another seed or of another step must be others. */
static ng_status compare_with_other(const piece *with, const piece *own, uint64_t seed, uint64_t later, const char *what, double randomness,
                                    const ng_draw *draws, ng_draw *others, ng_result *result, ng_error *error) {
    piece other = {.judge = with->judge, .one = with->one, .q = with->q, .source = with->source, .base = with->base, .given = with->given, .expected = with->expected};
    int64_t impossible = 0;
    bool launched;
    ng_status status = launch_own(&other, seed, with->one->problem.offset + later, result, &launched, error);
    if (status || !launched) goto done;
    if (randomness > 64 && ng_tensor_equal(&own->session.first[NG_OUT], &other.session.first[NG_OUT])) {
        ng_accuse(result, NG_FAIL, "%s gives the same bits: the random words do not depend on it", what);
        goto done;
    }
    status = draws_of(with, with->base, &other.session.first[NG_OUT], others, &impossible, error);
    if (!status) ng_check_draw_lists(draws, others, with->source->rows * with->source->columns, what, result);
done:
    ng_session_end(&other.session);
    return status;
}

/* What does not depend on the words must not change with them; what does must look random, and change with the seed. */
static ng_status judge_draws(const piece *with, uint64_t seed, ng_draw *draws, ng_draw *others, ng_result *result, ng_error *error) {
    piece own = {.judge = with->judge, .one = with->one, .q = with->q, .source = with->source, .base = with->base, .given = with->given, .expected = with->expected};
    int64_t impossible = 0;
    double randomness = 0;
    bool launched;
    ng_status status = launch_own(&own, seed, with->one->problem.offset, result, &launched, error);
    if (status || !launched) goto done;
    if (with->expected.operand.scales.data && !ng_tensor_equal(&own.session.first[NG_OUT_SCALES], &with->expected.operand.scales))
        ng_accuse(result, NG_FAIL, "scales change with the random words");
    status = draws_of(with, with->base, &own.session.first[NG_OUT], draws, &impossible, error);
    if (status) goto done;
    if (impossible) ng_accuse(result, NG_FAIL, "%lld elements went where no random word leads", (long long)impossible);
    ng_check_draw_list(draws, with->source->rows * with->source->columns, with->source->columns, result, &randomness);
    if (with->source->rows * with->source->columns > most_compared) goto done;
    status = compare_with_other(with, &own, seed ^ 0x5DEECE66Du, 0, "another seed", randomness, draws, others, result, error);
    if (!status) status = compare_with_other(with, &own, seed, 1, "the next offset", randomness, draws, others, result, error);
done:
    ng_session_end(&own.session);
    return status;
}

/* A gradient's row-wise and column-wise copies must not err alike: both are used, and their errors would add up. */
static ng_status judge_both_copies(const piece *with, uint64_t seed, ng_draw *draws, ng_draw *draws_t, ng_result *result, ng_error *error) {
    piece own = {.judge = with->judge, .one = with->one, .q = with->q, .source = with->source, .base = with->base, .given = with->given,
                 .expected = with->expected, .transposed = true};
    ng_tensor turned = {0};
    int64_t impossible = 0, rows = with->source->rows, columns = with->source->columns;
    double randomness;
    bool launched;
    uint32_t *zeros = calloc((size_t)(rows * columns) + 1, sizeof *zeros);
    ng_status status = zeros ? turned_base(with, &turned, error) : ng_fail(error, NG_NO_MEMORY, "no memory to look at random draws");
    if (!status) status = quantize_with(with, &turned, zeros, &own.expected_t, error);
    if (!status) status = launch_own(&own, seed, with->one->problem.offset, result, &launched, error);
    if (status || !launched) goto done;
    status = draws_of(with, with->base, &own.session.first[NG_OUT], draws, &impossible, error);
    if (!status) status = draws_of(with, &turned, &own.session.first[NG_OUT_T], draws_t, &impossible, error);
    if (status) goto done;
    if (impossible) ng_accuse(result, NG_FAIL, "%lld elements of both copies went where no random word leads", (long long)impossible);
    ng_check_draw_list(draws_t, rows * columns, rows, result, &randomness);
    ng_check_draw_pairs(draws, draws_t, rows, columns, result);
done:
    ng_session_end(&own.session);
    ng_quantized_free(&own.expected_t);
    ng_tensor_free(&turned);
    free(zeros);
    return status;
}

/* 4over6 chooses scales by the errors of elements that the words round: no element's result is a function of its word alone. */
static ng_status own_words(const piece *p, ng_result *result, ng_error *error) {
    int64_t count = p->source->rows * p->source->columns;
    if (p->q->four_over_six != NG_4OVER6_OFF || count > most_drawn) return NG_OK;
    ng_draw *draws = calloc((size_t)count * 2 + 1, sizeof *draws);
    if (!draws) return ng_fail(error, NG_NO_MEMORY, "no memory to look at random draws");
    ng_status status = judge_draws(p, p->one->problem.seed, draws, draws + count, result, error);
    if (!status && count <= most_compared) status = judge_both_copies(p, p->one->problem.seed, draws, draws + count, result, error);
    free(draws);
    return status;
}

/* The transposed outputs, where the kernel gives them: its own launch, with all roles. */
static ng_status also_transposed(const piece *p, ng_tally *tally, ng_result *result, ng_error *error) {
    piece both = {.judge = p->judge, .one = p->one, .q = p->q, .source = p->source, .transposed = true};
    bool launched;
    if (is_stochastic(p->q)) return NG_OK; /* which word belongs to a transposed element is not part of the contract */
    ng_status status = run_piece(&both, true, result, &launched, error);
    if (!status && launched) status = compare_piece(&both, 0, tally, result);
    end_piece(&both);
    return status;
}

typedef struct run {
    ng_tally tally;
    recipe recipe;
    int64_t by_mpfr;
    bool launched;
} run;

static ng_status judge_piece(ng_judge *judge, const ng_case *one, const ng_tensor *source, int64_t row0, const double *whole_amax,
                             run *r, ng_result *result, ng_error *error) {
    piece p = {.judge = judge, .one = one, .q = &one->kernel->contract.quantization, .source = source};
    bool alone = source->rows == one->problem.m;
    ng_session *timed = &p.session;
    double start = ng_now_s();
    ng_status status = run_piece(&p, false, result, &r->launched, error);
    if (status || !r->launched) goto done;
    status = compare_piece(&p, row0, &r->tally, result);
    if (!status && alone) status = also_transposed(&p, &r->tally, result, error);
    if (!status && is_stochastic(p.q) && alone) status = own_words(&p, result, error);
    if (!status && row0 == 0) status = check_reference(&p, result, &r->by_mpfr, error);
    if (!status) status = recipe_of_piece(&p, whole_amax, row0, &r->recipe, error);
    result->verify_s += ng_now_s() - start;
    if (!status && row0 == 0) {
        ng_session_digest(&p.session, result);
        status = ng_session_time(&timed, NULL, 1, one->level, 0, result, error);
        if (!status) status = ng_save_session(&p.session, one, result, error);
    }
done:
    end_piece(&p);
    return status;
}

ng_status ng_judge_quantize(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    const ng_problem *problem = &one->problem;
    const ng_quantization *q = &one->kernel->contract.quantization;
    int64_t rows = problem->m, step = rows * problem->n > piece_elements(one->kernel) ? piece_rows(one->kernel, problem) : rows;
    double amax, *whole_amax = NULL;
    run r = {.launched = true};
    ng_status status = NG_OK;
    ng_tally_begin(&r.tally);
    ng_tally_begin(&r.recipe.tally);
    if (step < rows && spans_tensor(q) && !one->kernel->contract.hadamard.size) { /* the transform's maximum is not the source's: a piece's own then */
        status = ng_source_amax(judge, &one->data, one->kernel->in, &amax, error);
        whole_amax = &amax;
    }
    for (int64_t row0 = 0; row0 < rows && !status && r.launched; row0 += step) {
        const ng_tensor *source;
        ng_key key;
        status = ng_source(judge, &one->data, one->kernel->in, row0, 0, step < rows - row0 ? step : rows - row0, problem->n,
                           &source, &key, error);
        if (!status) status = judge_piece(judge, one, source, row0, whole_amax, &r, result, error);
        judge->cache.now += step < rows; /* a piece may be forgotten when the next one comes */
    }
    if (status || !r.launched) return status;
    ng_power power;
    ng_tally_publish(&r.tally, rows * problem->n, &result->error, &power);
    result->error.by_tier[NG_TIER_INTEGER] = result->error.checked - r.by_mpfr;
    result->error.by_tier[NG_TIER_MPFR] = r.by_mpfr;
    publish_recipe(&r.recipe, rows * problem->n, result);
    ng_accuse_powerless(result, &result->error, &power);
    return NG_OK;
}

/* ---- dequantization -----------------------------------------------------------------------------------------------*/
/* An fp32 scale that brings one of the block's elements next to a midpoint of bf16: a product that is rounded twice, or
 * rounded from a rounded scale, falls on the wrong side. */
static float scale_beside_tie(const ng_operand *o, int64_t i, int64_t j, uint32_t word) {
    int64_t row = i * ng_block_extent(o->blocks.rows, o->codes.rows), column = j * ng_block_extent(o->blocks.columns, o->codes.columns);
    double element = fabs(ng_get_value(&o->codes, row, column));
    double tie = ldexp(257 + 2 * (double)(word & 127), -8 + (int)(word >> 8 & 15));
    return element > 0 && isfinite(element) ? (float)(tie / element) : (float)tie;
}

/* Not what a quantizer would write, but every code there is: scales that decode to 2^-127, NaN and subnormals included. */
static void any_codes(ng_quantized *quantized, uint64_t seed) {
    ng_operand *o = &quantized->operand;
    uint32_t codes = ng_format_codes(o->codes.format), scales = o->scales.data ? ng_format_codes(o->scales.format) : 0;
    for (int64_t i = 0; i < o->codes.rows; i++)
        for (int64_t j = 0; j < o->codes.columns; j++)
            if (codes) ng_set_code(&o->codes, i, j, ng_word(seed, (uint64_t)(i * o->codes.columns + j)) % codes);
    for (int64_t i = 0; o->scales.data && o->scales.format == NG_FP32 && i < o->scales.rows; i++)
        for (int64_t j = 0; j < o->scales.columns; j++)
            ((float *)((char *)o->scales.data + i * o->scales.row_bytes))[j] =
                scale_beside_tie(o, i, j, ng_word(seed, (uint64_t)(i * o->scales.columns + j) + 7919));
    for (int64_t i = 0; scales && i < o->scales.rows; i++)
        for (int64_t j = 0; j < o->scales.columns; j++) {
            uint32_t count = o->scales.format == NG_UE4M3 ? 128 : scales;
            ng_set_code(&o->scales, i, j, (uint64_t)((i * o->scales.columns + j) * 37 + 255) % count);
        }
}

static ng_status dequantize_session(ng_session *session, const ng_case *one, const ng_operand *o, ng_error *error) {
    float tensor_scale = o->tensor_scale;
    ng_tensor single = {&tensor_scale, NG_FP32, NG_HOST, 1, 1, sizeof tensor_scale};
    ng_status status = ng_session_input(session, NG_IN, &o->codes, error);
    if (!status && o->scales.data) status = ng_session_input(session, NG_IN_SCALES, &o->scales, error);
    if (!status && one->kernel->contract.quantization.tensor_scale) status = ng_session_input(session, NG_IN_TENSOR_SCALE, &single, error);
    if (!status) status = ng_session_output(session, NG_OUT, one->kernel->out, o->codes.rows, o->codes.columns, error);
    return status;
}

ng_status ng_judge_dequantize(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    const ng_contract *contract = &one->kernel->contract;
    ng_distribution d = one->data.distribution;
    ng_quantized in = {0};
    ng_tensor expected = {0};
    ng_session session = {0};
    const ng_tensor *source;
    ng_power power;
    ng_key key;
    float given = 1;
    bool launched = false;
    ng_status status = ng_source(judge, &one->data, NG_BF16, 0, 0, one->problem.m, one->problem.n, &source, &key, error);
    if (status) return status;
    given = given_scale(&contract->quantization, host_amax(source));
    ng_quantization deterministic = contract->quantization;
    if (is_stochastic(&deterministic)) deterministic.cast.rounding = NG_RN_EVEN;
    ng_quantize_inputs inputs = {.given_scale = deterministic.rule == NG_SCALE_GIVEN ? &given : NULL};
    status = ng_quantize(&deterministic, source, &inputs, judge->threads, &in, error);
    if (status) return status;
    if (d == NG_NONFINITE || d == NG_SUBNORMAL || d == NG_NEAR_OVERFLOW) any_codes(&in, one->data.seed);
    if (!ng_session_begin(&session, judge, one->kernel, &one->problem, result)) goto done;
    status = dequantize_session(&session, one, &in.operand, error);
    if (!status) status = ng_session_run(&session, one->repeats, false, result, &launched, error);
    if (status || !launched) goto done;
    double start = ng_now_s();
    status = ng_tensor_create(one->kernel->out, one->problem.m, one->problem.n, &expected, error);
    if (!status) {
        status = ng_reference_dequantize(&in.operand, &contract->cast, NG_TIER_INTEGER, &expected);
        if (status) ng_fail(error, status, "the reference could not dequantize");
    }
    if (!status) ng_observe(judge, one, NG_OUT, &session.first[NG_OUT], &expected, NULL);
    if (!status) status = ng_measure_codes(&session.first[NG_OUT], &expected, false, judge->threads, &result->error, &power);
    if (status) goto done;
    result->error.by_tier[NG_TIER_INTEGER] = result->error.checked;
    ng_accuse_figures(result, "OUT", &result->error);
    ng_accuse_powerless(result, &result->error, &power);
    status = ng_session_conclude(&session, one, start, 0, result, error);
done:
    ng_session_end(&session);
    ng_quantized_free(&in);
    ng_tensor_free(&expected);
    return status;
}
