/* A sample of a product of full size, held to the CPU: data, quantization, exact product, bound, prediction. */
#include "harness/judge_whole.h"

#include <math.h>
#include <stdlib.h>

enum { SAMPLE_ROWS = 4, SAMPLE_COLUMNS = 32, MPFR_ROWS = 2, MPFR_COLUMNS = 8 };

typedef struct sample {
    int64_t row, rows, column, columns;
    ng_operand operand[NG_WHOLE_SIDES]; /* host, owned tensors */
    ng_tensor out, added;
} sample;

static void free_sample(sample *s) {
    for (int i = 0; i < NG_WHOLE_SIDES; i++) {
        ng_tensor_free(&s->operand[i].codes);
        ng_tensor_free(&s->operand[i].scales);
    }
    ng_tensor_free(&s->out);
    ng_tensor_free(&s->added);
}

/* Rows of an operand with the scales of each of them: blocks of one row. */
static ng_status fetch_operand(ng_whole *w, const ng_whole_half *d, int64_t row, int64_t rows, ng_operand *to, ng_error *error) {
    const ng_operand *from = &d->operand;
    int64_t down = ng_block_extent(from->blocks.rows, d->rows);
    ng_tensor all = {0};
    *to = (ng_operand){.blocks = {1, from->blocks.columns}, .tensor_scale = from->tensor_scale};
    ng_status status = ng_whole_fetch_rows(w, &from->codes, row, rows, &to->codes, error);
    if (status || !from->scales.data) return status;
    int64_t first = row / down, last = (row + rows - 1) / down;
    status = ng_whole_fetch_rows(w, &from->scales, first, last - first + 1, &all, error);
    if (!status) status = ng_tensor_create(all.format, rows, all.columns, &to->scales, error);
    for (int64_t i = 0; i < rows && !status; i++)
        for (int64_t j = 0; j < all.columns; j++)
            ng_set_code(&to->scales, i, j, ng_get_code(&all, (row + i) / down - first, j));
    ng_tensor_free(&all);
    return status;
}

static ng_status fetch_window(ng_whole *w, const ng_tensor *from, const sample *s, ng_tensor *to, ng_error *error) {
    ng_tensor rows = {0};
    bool one = from->rows == 1 && w->problem.m > 1; /* a bias */
    ng_status status = ng_whole_fetch_rows(w, from, one ? 0 : s->row, one ? 1 : s->rows, &rows, error);
    if (!status) status = ng_tensor_create(from->format, s->rows, s->columns, to, error);
    for (int64_t i = 0; i < s->rows && !status; i++)
        for (int64_t j = 0; j < s->columns; j++)
            ng_set_code(to, i, j, ng_get_code(&rows, one ? 0 : i, s->column + j));
    ng_tensor_free(&rows);
    return status;
}

static ng_status take_sample(ng_whole *w, int64_t row, int64_t rows, int64_t column, int64_t columns, sample *s, ng_error *error) {
    *s = (sample){.row = row, .rows = rows, .column = column, .columns = columns};
    ng_status status = fetch_operand(w, &w->sides[0], row, rows, &s->operand[0], error);
    if (!status) status = fetch_operand(w, &w->sides[1], column, columns, &s->operand[1], error);
    if (!status) status = fetch_window(w, &w->out, s, &s->out, error);
    if (!status && w->added.data) status = fetch_window(w, &w->added, s, &s->added, error);
    return status;
}

/* The CPU's bound and exact product of a sample, and its verdict. */
static ng_status judge_sample(ng_whole *w, const sample *s, bool mpfr, ng_error_figures *figures, ng_error *error) {
    const ng_tensor *added = s->added.data ? &s->added : NULL;
    ng_exact_product exact = {0};
    ng_power power;
    int threads = w->judge->threads;
    double *bound = malloc(sizeof *bound * (size_t)(s->rows * s->columns + 1));
    ng_status status = bound ? NG_OK : NG_NO_MEMORY;
    if (!status) status = (mpfr ? ng_exact_gemm_mpfr : ng_exact_gemm)(&s->operand[0], &s->operand[1], added, threads, &exact);
    for (int64_t i = 0; i < s->rows * s->columns && !status; i++)
        exact.high[i] += 0.0;
    if (!status) status = ng_gemm_bound(&w->contract.sum, &s->operand[0], &s->operand[1], added, &exact, threads, bound, NULL);
    ng_truth truth = {exact.high, exact.low, bound, NULL};
    if (!status) status = ng_measure(&s->out, &w->contract.cast, &truth, threads, figures, &power);
    ng_exact_product_free(&exact);
    free(bound);
    return status ? ng_fail(error, status, "the reference of a sample failed") : NG_OK;
}

ng_status ng_whole_settle(ng_whole *w, const ng_witness *from, ng_result *result, ng_error *error) {
    ng_status status = NG_OK;
    int64_t settled = 0;
    for (int64_t i = 0; i < from->undecided && i < NG_UNDECIDED && !status; i++, settled++) {
        ng_error_figures figures;
        sample s;
        status = take_sample(w, from->places[i] / w->problem.n, 1, from->places[i] % w->problem.n, 1, &s, error);
        if (!status) status = judge_sample(w, &s, true, &figures, error);
        if (!status) ng_accuse_figures(result, "an element that MPFR decides: OUT", &figures);
        free_sample(&s);
    }
    result->error.by_tier[NG_TIER_CERTIFIED] -= settled;
    result->error.by_tier[NG_TIER_MPFR] += settled;
    if (from->undecided > settled)
        ng_accuse(result, NG_FAIL, "%lld elements are within the certified error of their bound: too many to decide one by one", (long long)from->undecided);
    return status;
}

static void differs(ng_result *result, const char *what) { ng_accuse(result, NG_FAIL, "on the sample that the CPU checks, %s", what); }

/* The device's data and quantization against the reference's, in the sampled rows. */
static ng_status check_operand(ng_whole *w, const ng_whole_half *d, const ng_operand *taken, int64_t row, ng_result *result, ng_error *error) {
    ng_tensor source = {0}, here = {0};
    int64_t rows = taken->codes.rows;
    ng_status status = ng_tensor_create(d->source_format, rows, w->problem.k, &source, error);
    if (!status) status = ng_data_fill(d->spec, row, 0, &source, w->judge->threads, error);
    if (!status) status = ng_whole_fetch_rows(w, &d->source, row, rows, &here, error);
    if (!status && !ng_tensor_equal(&source, &here)) differs(result, "the device's data are not what the CPU makes");
    bool whole_rows = !d->plain && d->q.blocks.rows == 1 && d->q.cast.rounding == NG_RN_EVEN && !w->one->recipe;
    if (!status && whole_rows) {
        ng_quantized want = {0};
        double amax = 0;
        ng_quantize_inputs inputs = {.tensor_amax = d->q.tensor_scale ? &amax : NULL};
        if (d->q.tensor_scale) status = ng_source_amax(w->judge, d->spec, NG_BF16, &amax, error);
        if (!status) status = ng_quantize(&d->q, &source, &inputs, w->judge->threads, &want, error);
        if (!status && (!ng_tensor_equal(&want.operand.codes, &taken->codes) || !ng_tensor_equal(&want.operand.scales, &taken->scales)))
            differs(result, "an operand is not quantized as the reference does it");
        if (!status) ng_quantized_free(&want);
    }
    ng_tensor_free(&source);
    ng_tensor_free(&here);
    return status;
}

/* What two sums in binary64 of the sample's products may differ by: K + 4 roundings of at most the largest sum |a b|. */
static ng_status certified_error(ng_whole *w, const sample *s, double *error_of_sums, ng_error *error) {
    int64_t k = w->problem.k;
    double *a = malloc(sizeof *a * (size_t)(2 * k + 1)), *b = a ? a + k : NULL, most = 0;
    if (!a) return ng_fail(error, NG_NO_MEMORY, "no memory for a sample");
    for (int64_t i = 0; i < s->rows; i++) {
        ng_operand_row(&s->operand[0], i, a);
        for (int64_t j = 0; j < s->columns; j++) {
            double sum = 0;
            ng_operand_row(&s->operand[1], j, b);
            for (int64_t q = 0; q < k; q++)
                sum += fabs(a[q] * b[q]);
            if (s->added.data) sum += fabs(ng_get_value(&s->added, i, j));
            if (sum > most) most = sum;
        }
    }
    free(a);
    *error_of_sums = most * (double)(k + 4) * 0x1p-53 * (1 + 0x1p-20);
    return NG_OK;
}

/* The witness over the same window must come to the CPU's figures; MPFR to those of the exact product. */
static ng_status check_figures(ng_whole *w, const sample *s, ng_result *result, ng_error *error) {
    ng_error_figures cpu, slow;
    ng_witness gpu;
    sample small;
    double apart = 0;
    ng_status status = judge_sample(w, s, false, &cpu, error);
    if (!status) status = certified_error(w, s, &apart, error);
    ng_operand a = w->sides[0].operand, b = w->sides[1].operand;
    ng_tensor out = {0}, added = {0}, scales[NG_WHOLE_SIDES] = {{0}};
    ng_operand *side[NG_WHOLE_SIDES] = {&a, &b};
    for (int i = 0; i < NG_WHOLE_SIDES && !status; i++) { /* the sample's own tensors, on the device */
        status = ng_whole_upload(w, &s->operand[i].codes, &side[i]->codes, error);
        if (!status && s->operand[i].scales.data) status = ng_whole_upload(w, &s->operand[i].scales, &scales[i], error);
        side[i]->scales = scales[i];
        side[i]->blocks = s->operand[i].blocks;
    }
    if (!status) status = ng_whole_upload(w, &s->out, &out, error);
    if (!status && s->added.data) status = ng_whole_upload(w, &s->added, &added, error);
    if (status) return status;
    status = ng_witness_gemm_cuda(&w->contract.sum, &a, &b, s->added.data ? &added : NULL, &out, w->gpu->stream, &gpu, w->message, sizeof w->message);
    if (status) return ng_whole_on_device(w, status, error);
    bool same = fabs(gpu.max_abs - cpu.max_abs) <= apart && gpu.nonfinite == cpu.nonfinite_mismatch &&
                gpu.beyond == cpu.beyond_bound;
    if (!same) ng_accuse(result, NG_FAIL, "on the sample that the CPU checks, the GPU's witness finds a largest error of %g and %lld beyond, the CPU %g and %lld",
                         gpu.max_abs, (long long)gpu.beyond, cpu.max_abs, (long long)cpu.beyond_bound);
    status = take_sample(w, s->row, s->rows < MPFR_ROWS ? s->rows : MPFR_ROWS, s->column, s->columns < MPFR_COLUMNS ? s->columns : MPFR_COLUMNS, &small, error);
    if (!status) status = judge_sample(w, &small, true, &slow, error);
    if (!status) status = judge_sample(w, &small, false, &cpu, error);
    if (!status && !(fabs(slow.max_abs - cpu.max_abs) <= 0x1p-90 * cpu.max_abs)) differs(result, "the exact product is not MPFR's");
    free_sample(&small);
    return status;
}

static ng_status check_prediction(ng_whole *w, const sample *s, ng_result *result, ng_error *error) {
    ng_tensor want = {0}, here = {0};
    if (!result->prediction.present) return NG_OK;
    ng_status status = ng_tensor_create(w->kernel->out, s->rows, s->columns, &want, error);
    if (!status) status = fetch_window(w, &w->predicted, s, &here, error);
    if (!status && !ng_predict_gemm(&w->contract.sum, &w->contract.cast, &s->operand[0], &s->operand[1], s->added.data ? &s->added : NULL,
                                    w->judge->threads, &want, NULL) && !ng_tensor_equal(&want, &here))
        differs(result, "the GPU's prediction is not the CPU's");
    ng_tensor_free(&want);
    ng_tensor_free(&here);
    return status;
}

ng_status ng_whole_check_sample(ng_whole *w, ng_result *result, ng_error *error) {
    uint64_t seed = w->one->data.seed;
    int64_t rows = w->problem.m < SAMPLE_ROWS ? w->problem.m : SAMPLE_ROWS, columns = w->problem.n < SAMPLE_COLUMNS ? w->problem.n : SAMPLE_COLUMNS;
    int64_t row = (int64_t)(ng_word(seed, 1) % (uint64_t)(w->problem.m - rows + 1)), column = (int64_t)(ng_word(seed, 2) % (uint64_t)(w->problem.n - columns + 1));
    sample s;
    ng_status status = take_sample(w, row, rows, column, columns, &s, error);
    if (!status) status = check_operand(w, &w->sides[0], &s.operand[0], row, result, error);
    if (!status) status = check_operand(w, &w->sides[1], &s.operand[1], column, result, error);
    if (!status) status = check_figures(w, &s, result, error);
    if (!status) status = check_prediction(w, &s, result, error);
    free_sample(&s);
    return status;
}
