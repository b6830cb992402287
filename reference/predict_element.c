/* One element of a product in a contract's order, one term after the other: the reference of the fast path.
 *
 * Bounds. Every order here is linear in its partial sums: s_t = s_(t-1) + p_t + e_t, so the whole error is the sum of the
 * e_t, each bounded from the numbers at hand (one binary32 rounding: u |result|; one tensor-core step: predict_step.c).
 * A scale multiplies what came before it. Only nonnegative terms are added, each operation adding a relative error of
 * 2^-53 at most, which ng_store makes good with room to spare. */
#include "reference/predict.h"

#include "reference/k_order.h"

#include "reference/round.h"

#include <stdlib.h>

/* ---- operands -----------------------------------------------------------------------------------------------------*/
ng_status ng_operand_row_create(const ng_predictor *p, ng_operand_row *row)
{
    *row = (ng_operand_row){0};
    size_t count = (size_t)p->k + 1;
    bool mma = p->sum->order == NG_SUM_MMA;
    if (mma) row->factors = malloc(count * sizeof *row->factors);
    else row->values = malloc(count * sizeof *row->values);
    if (mma && p->sum->mma.scales_inside) row->scale_factors = malloc(count * sizeof *row->scale_factors);
    if ((mma ? (void *)row->factors : (void *)row->values) == NULL ||
        (mma && p->sum->mma.scales_inside && !row->scale_factors)) {
        ng_operand_row_free(row);
        return NG_NO_MEMORY;
    }
    return NG_OK;
}

void ng_operand_row_free(ng_operand_row *row)
{
    free(row->factors);
    free(row->scale_factors);
    free(row->values);
    *row = (ng_operand_row){0};
}

static bool has_scales(const ng_operand *operand)
{
    return operand->scales.data != NULL;
}

static int64_t scale_row(const ng_operand *operand, int64_t row)
{
    return row / ng_block_extent(operand->blocks.rows, operand->codes.rows);
}

static int64_t scale_column(const ng_operand *operand, int64_t k)
{
    return k / ng_block_extent(operand->blocks.columns, operand->codes.columns);
}

double ng_scale_at(const ng_operand *operand, int64_t row, int64_t k)
{
    if (!has_scales(operand)) return 1;
    return ng_get_value(&operand->scales, scale_row(operand, row), scale_column(operand, k));
}

/* |a b - fl(a) fl(b)| <= (2u + u^2) |fl(a) fl(b)| for each product, plus 2^-150 for results below 2^-126; summed over K by
 * Cauchy and Schwarz. The last factor covers the roundings of the norms and of this formula. */
static double dequantization_bound(const ng_predictor *p, ng_row_rounding a, ng_row_rounding b)
{
    double u = 0x1p-24, ua = a.inexact ? u : 0, ub = b.inexact ? u : 0;
    double tiny = a.inexact || b.inexact ? 0x1p-150 * sqrt((double)p->k) * (a.norm + b.norm) + (double)p->k * 0x1p-300 : 0;
    return ((ua + ub + ua * ub) * a.norm * b.norm + tiny) * (1 + (double)(p->k + 16) * 0x1p-50);
}

/* Elements of a dequantized row: fl(element * scale), and for tensor cores a bf16 that holds it exactly. */
static ng_status load_dequantized(const ng_predictor *p, const ng_operand *operand, int64_t row, ng_operand_row *out)
{
    static const ng_cast nearest = {.rounding = NG_RN_EVEN};
    double squares = 0;
    for (int64_t k = 0; k < p->k; k++) {
        double exact = ng_get_value(&operand->codes, row, k) * ng_scale_at(operand, row, k), value = (double)(float)exact;
        out->rounding.inexact |= exact < value || exact > value;
        squares += value * value;
        if (p->sum->order != NG_SUM_MMA) {
            out->values[k] = value;
            continue;
        }
        uint64_t code = ng_round(NG_BF16, value, &nearest, 0);
        if (!isnan(value) && ng_decode(NG_BF16, code) != value) return NG_UNSUPPORTED;
        out->factors[ng_k_position(p->sum->k_order, k)] = ng_factor_of(NG_BF16, code);
    }
    out->rounding.norm = sqrt(squares);
    return NG_OK;
}

static void load_scale_factors(const ng_predictor *p, const ng_operand *operand, int64_t row, ng_operand_row *out)
{
    static const ng_factor one = {.significand = 1};
    int64_t i = has_scales(operand) ? scale_row(operand, row) : 0;
    int64_t extent = ng_block_extent(operand->blocks.columns, operand->codes.columns);
    ng_factor f = one;
    for (int64_t k = 0; k < p->k; k++) {
        if (has_scales(operand) && k % extent == 0)
            f = ng_factor_of(operand->scales.format, ng_get_code(&operand->scales, i, k / extent));
        out->scale_factors[k] = f;
        out->has_nan |= f.kind == NG_NOT_A_NUMBER;
    }
}

ng_status ng_operand_row_load(const ng_predictor *p, const ng_operand *operand, int64_t row, ng_operand_row *out)
{
    ng_status status = NG_OK;
    out->has_nan = out->has_infinity = false;
    out->rounding = (ng_row_rounding){0, false};
    if (p->sum->scales == NG_SCALES_DEQUANTIZED) status = load_dequantized(p, operand, row, out);
    else if (p->sum->order != NG_SUM_MMA) ng_decode_row(&operand->codes, row, 0, p->k, out->values);
    else
        for (int64_t k = 0; k < p->k; k++)
            out->factors[k] = ng_operand_factor(&p->sum->mma, operand->codes.format, ng_get_code(&operand->codes, row, k));
    if (status != NG_OK || p->sum->order != NG_SUM_MMA) return status;
    if (p->sum->mma.scales_inside) load_scale_factors(p, operand, row, out);
    for (int64_t k = 0; k < p->k; k++) {
        out->has_nan |= out->factors[k].kind == NG_NOT_A_NUMBER;
        out->has_infinity |= out->factors[k].kind == NG_INFINITE;
    }
    return NG_OK;
}

/* ---- inner sums over [from, to) -----------------------------------------------------------------------------------*/
static ng_running chain(const ng_predictor *p, const double *a, const double *b, int64_t from, int64_t to)
{
    ng_running s = {0, 0};
    for (int64_t k = from; k < to; k++) {
        double x = a[k] * b[k]; /* exact: at most 48 bits */
        if (!p->sum->fused) {
            double rounded = (double)(float)x;
            s.bound += ng_rounding_bound(rounded == x, rounded);
            x = rounded;
        }
        ng_running next = ng_fl_sum(s.value, x);
        s = (ng_running){next.value, s.bound + next.bound};
    }
    return s;
}

static ng_running pairwise(const ng_predictor *p, const double *a, const double *b, int64_t from, int64_t to)
{
    int64_t leaf = p->sum->leaf, leaves = (to - from + leaf - 1) / leaf;
    if (leaves <= 1) return chain(p, a, b, from, to);
    int64_t half = 1; /* neighbours first, an odd one passing up: the left part is the largest power of two below */
    while (half * 2 < leaves) half *= 2;
    ng_running left = pairwise(p, a, b, from, from + half * leaf), right = pairwise(p, a, b, from + half * leaf, to);
    ng_running s = ng_fl_sum(left.value, right.value);
    s.bound += left.bound + right.bound;
    return s;
}

static ng_running chain_fp64(const ng_predictor *p, const double *a, const double *b, int64_t from, int64_t to)
{
    ng_running s = {0, 0};
    bool wide = p->a_format == NG_FP64 || p->b_format == NG_FP64; /* otherwise products are exact */
    for (int64_t k = from; k < to; k++) {
        double x = a[k] * b[k];
        bool exact = !wide || fma(a[k], b[k], -x) == 0;
        if (wide && p->sum->fused) s.value = fma(a[k], b[k], s.value), exact = false, x = 0;
        else if (!exact) s.bound += 0x1p-53 * fabs(x) + 0x1p-1074;
        double t = s.value + x;
        exact = exact && ng_sum_residual(s.value, x, t) == 0;
        s.bound += exact ? 0 : 0x1p-53 * fabs(t) + 0x1p-1074;
        s.value = t;
    }
    return s;
}

static const ng_factor zero_factor = {0}, one_factor = {.significand = 1};

static void load_step(const ng_factor *row, int64_t from, int64_t to, int k, ng_factor pad, ng_factor *step)
{
    for (int i = 0; i < k; i++)
        step[i] = from + i < to ? row[from + i] : pad;
}

static float one_step(const ng_predictor *p, const ng_operand_row *a, const ng_operand_row *b, int64_t from, int64_t to,
                      float c, double *bound)
{
    const ng_mma *mma = &p->sum->mma;
    ng_factor fa[NG_MAX_STEP], fb[NG_MAX_STEP], sa[NG_MAX_STEP], sb[NG_MAX_STEP];
    load_step(a->factors, from, to, mma->k, zero_factor, fa);
    load_step(b->factors, from, to, mma->k, zero_factor, fb);
    if (mma->scales_inside) {
        load_step(a->scale_factors, from, to, mma->k, one_factor, sa);
        load_step(b->scale_factors, from, to, mma->k, one_factor, sb);
    }
    return ng_factor_step(mma, p->fraction, p->scale_fraction, fa, fb, mma->scales_inside ? sa : NULL,
                          mma->scales_inside ? sb : NULL, c, bound);
}

static ng_running steps(const ng_predictor *p, const ng_operand_row *a, const ng_operand_row *b, int64_t from, int64_t to)
{
    const ng_mma *mma = &p->sum->mma;
    ng_running main = {0, 0};
    float c = 0;
    int since = 0;
    for (int64_t k = from; k < to; k += mma->k) {
        c = one_step(p, a, b, k, to, c, &main.bound);
        if (!p->promoted || (++since < p->sum->promote_every && k + mma->k < to)) continue;
        ng_running s = ng_fl_sum(main.value, (double)c);
        main = (ng_running){s.value, main.bound + s.bound};
        c = 0;
        since = 0;
    }
    if (!p->promoted) main.value = (double)c;
    return main;
}

static ng_running inner_sum(const ng_predictor *p, const ng_operand_row *a, const ng_operand_row *b, int64_t from,
                            int64_t to)
{
    switch (p->sum->order) {
    case NG_SUM_MMA: return steps(p, a, b, from, to);
    case NG_SUM_FP64: return chain_fp64(p, a->values, b->values, from, to);
    case NG_SUM_PAIRWISE: return pairwise(p, a->values, b->values, from, to);
    case NG_SUM_CHAIN:
    case NG_SUM_ANY: break;
    }
    return chain(p, a->values, b->values, from, to);
}

/* ---- composition --------------------------------------------------------------------------------------------------*/
static ng_running scaled(ng_running s, double scale)
{
    ng_running t = ng_fl_product(s.value, scale);
    return (ng_running){t.value, s.bound * fabs(scale) + t.bound};
}

static ng_running plus(ng_running x, ng_running y)
{
    ng_running t = ng_fl_sum(x.value, y.value);
    return (ng_running){t.value, x.bound + y.bound + t.bound};
}

/* main = fma(s, scale, main), the product exact in binary64. */
static ng_running fused(ng_running s, double scale, ng_running main)
{
    ng_running t = ng_fl_sum(s.value * scale, main.value);
    return (ng_running){t.value, s.bound * fabs(scale) + main.bound + t.bound};
}

/* The scales in the order that they enter. */
static void ordered_scales(const ng_predictor *p, int64_t i, int64_t j, int64_t k, double *first, double *second)
{
    double sa = ng_scale_at(p->a, i, k), sb = ng_scale_at(p->b, j, k);
    *first = p->sum->scales_swapped ? sb : sa;
    *second = p->sum->scales_swapped ? sa : sb;
}

ng_running ng_apply_scales(const ng_predictor *p, ng_running sum, int64_t i, int64_t j, int64_t k, ng_running main)
{
    double sa, sb;
    ordered_scales(p, i, j, k, &sa, &sb);
    if (p->sum->scales == NG_SCALES_BLOCK_SEQUENTIAL) return plus(main, scaled(scaled(sum, sa), sb));
    if (p->sum->scales == NG_SCALES_BLOCK_FMA_SECOND) return fused(scaled(sum, sb), sa, main);
    double both = (double)(float)(sa * sb);
    ng_running t = fused(sum, both, main);
    t.bound += fabs(sum.value) * fabs(sa * sb - both) + sum.bound * fabs(sa * sb - both);
    return t;
}

ng_running ng_finish(const ng_predictor *p, ng_running sum, ng_row_rounding a, ng_row_rounding b, int64_t i, int64_t j)
{
    if (a.inexact || b.inexact) sum.bound += dequantization_bound(p, a, b);
    double sa, sb;
    ordered_scales(p, i, j, 0, &sa, &sb); /* 1 where there are none, which changes nothing */
    if (p->sum->scales == NG_SCALES_AFTER) sum = scaled(scaled(sum, sa), sb);
    if (p->sum->scales == NG_SCALES_AFTER_AT_ONCE) {
        double both = (double)(float)(sa * sb), lost = fabs(sa * sb - both);
        lost *= fabs(sum.value) + sum.bound;
        sum = scaled(sum, both);
        sum.bound += lost;
    }
    if (p->tensor_scale < 1 || p->tensor_scale > 1 || isnan(p->tensor_scale) || p->tensor_scale_error > 0) {
        double lost = (fabs(sum.value) + sum.bound) * p->tensor_scale_error;
        sum = scaled(sum, (double)p->tensor_scale);
        sum.bound += lost;
    }
    if (p->initial) sum = plus(sum, (ng_running){ng_get_value(p->initial, i, j), 0});
    return sum;
}

/* One part of split-K. */
static ng_running part_sum(const ng_predictor *p, const ng_operand_row *a, const ng_operand_row *b, int64_t i, int64_t j,
                           int64_t from, int64_t to)
{
    if (!p->block) return inner_sum(p, a, b, from, to);
    ng_running main = {0, 0};
    for (int64_t k = from; k < to;) {
        int64_t end = (k / p->block + 1) * p->block;
        if (end > to) end = to;
        main = ng_apply_scales(p, inner_sum(p, a, b, k, end), i, j, k, main);
        k = end;
    }
    return main;
}

ng_running ng_predict_element(const ng_predictor *p, const ng_operand_row *a, const ng_operand_row *b, int64_t i, int64_t j)
{
    ng_running sum = {0, 0};
    for (int64_t from = 0; from < p->k; from += p->part) {
        int64_t to = from + p->part < p->k ? from + p->part : p->k;
        ng_running s = part_sum(p, a, b, i, j, from, to);
        sum = from ? plus(sum, s) : s;
    }
    return ng_finish(p, sum, a->rounding, b->rounding, i, j);
}
