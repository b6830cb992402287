/* What a contract allows a kernel to differ from the exact product, before any datum is known but its magnitude.
 *
 * Notation: u = 2^-24, v = 2^-53, g(n) = n u / (1 - n u) (Higham, Accuracy and Stability, 3.1), h = 2^-150 half the
 * smallest binary32 number, c = sum t_k the exact result, H = sum |t_k|. Kernel names in the comments are ng_accumulation's.
 *
 *   sums    fl() changes a term that passes through n roundings by a factor within 1 +- g(n), and a result that falls
 *           below the normal range by h at most: additions there are exact, products and fused operations are not.
 *   steps   one tensor-core step, d = c + sum p_k: terms are truncated to multiples of 2^(E-F), d to p fraction bits:
 *             |error| <= (group + 1) 2^(E-F) + 2^-p max(|d|, 2^-126),  2^E <= max(P, |c|, 2^-126, 2^min_exponent)
 *           with P the largest raw power of a product. Truncation never makes a magnitude larger, so |d| <= sum of |t_k|
 *           so far; a chain of L steps is linear in its steps' errors, so these add up:
 *             |error| <= (group + 1) 2^-F (sum P + (L - 1) H + L (2^-126 + 2^min_exponent)) + 2^-p (L H + L 2^-126).
 *           sum P <= sum over groups of (largest power in a's row) (largest power in b's row).
 *   whole   roundings of the complete sum (scales after it, the tensor scale, accumulation) act on |c| + error, not on H.
 *
 * Everything computed here is a sum of products of non-negative doubles: n operations err by a factor within 1 +- 2^-52 n.
 * No path has 2^10, so a last factor 1 + 2^-40 makes the result an upper bound; nothing underflows (scales and values are
 * above 2^-894 together). H and sum P come from sgemm on integers rounded up, exact by Cauchy-Schwarz (blas.h), so that
 * the bounds too have the same bits on every machine. */
#include "reference/blas.h"
#include "reference/bound_core.h"
#include "reference/gemm.h"

#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define U NG_U
#define V 0x1p-53
#define OUTWARD NG_OUTWARD

typedef ng_bound_plan plan;
typedef ng_tensor_factor tensor_scale;

enum { PANEL_ROWS = 1024, PANEL_K = 16384 };

/* g(n) of roundings with that unit; infinite where n unit reaches 1. */
static double gamma_of(double n, double unit) { return n * unit < 1 ? n * unit / (1 - n * unit) * OUTWARD : HUGE_VAL; }

static int64_t ceil_div(int64_t x, int64_t y) { return x / y + (x % y != 0); }

static int ceil_log2(int64_t x) {
    int bits = 0;
    while (INT64_C(1) << bits < x)
        bits++;
    return bits;
}

static int64_t scale_extent(const ng_operand *x) {
    return x->scales.data ? ng_block_extent(x->blocks.columns, x->codes.columns) : INT64_MAX;
}

/* Significant bits of an operand as the products see it. */
static int significand_bits(const ng_operand *x, ng_scale_place place) {
    int bits = ng_formats[x->codes.format].mantissa_bits + 1;
    if (place == NG_SCALES_DEQUANTIZED && x->scales.data) bits += ng_formats[x->scales.format].mantissa_bits;
    if (place == NG_SCALES_DEQUANTIZED && x->scales.data && x->scales.format != NG_E8M0) bits++;
    return bits < 24 ? bits : 24;
}

/* Is fl(element * scale) rounded? */
static bool dequantization_rounds(const ng_operand *x, ng_scale_place place) {
    return place == NG_SCALES_DEQUANTIZED && x->scales.data && x->scales.format == NG_FP32;
}

static int lowest_exponent(const ng_operand *x, ng_scale_place place) {
    if (place == NG_SCALES_DEQUANTIZED && x->scales.data) return -149;
    return ng_formats[x->codes.format].emin - ng_formats[x->codes.format].mantissa_bits;
}

static bool scale_rounds(const ng_operand *x) { return x->scales.data && x->scales.format != NG_E8M0; }

/* Roundings of one term within a chain of `length` products, in the unit of the order. */
static double chain_roundings(const ng_accumulation *sum, int64_t length, bool exact_products) {
    if (length <= 0) return 0;
    int64_t leaf = sum->leaf && sum->leaf < length ? sum->leaf : length;
    if (sum->order == NG_SUM_PAIRWISE)
        return (double)(leaf - exact_products + ceil_log2(ceil_div(length, leaf)));
    return (double)(length - exact_products);
}

static void count_steps(const ng_accumulation *sum, plan *p, int64_t length) {
    const ng_mma *mma = &sum->mma;
    int64_t groups_a_step = mma->dot ? 1 : ceil_div(mma->k, mma->group ? mma->group : mma->k);
    int64_t steps = ceil_div(length, mma->k);
    int64_t chain = sum->promote_every && sum->promote_every < steps ? sum->promote_every : steps;
    p->chain_steps = (double)(chain * groups_a_step);
    p->all_steps = ((double)ceil_div(p->k, mma->k) + p->block_count + (sum->split_unknown ? p->parts : 0)) * (double)groups_a_step;
    p->step_terms = ldexp(mma->group + 1, -mma->fraction_bits);
    p->step_output = ldexp(1, -mma->output_bits);
    p->step_least = 0x1p-126 + ldexp(1, mma->min_exponent);
    p->group = mma->interleave || !mma->group ? mma->k : mma->group;
    /* A dot product of 16 fp4 numbers may be as large as 16 * 4 of its largest raw power (significands are below 2). */
    p->power_margin = mma->dot ? 8 : 1;
    if (mma->interleave) p->misaligned = (double)groups_a_step;
    if (PANEL_K % p->group) p->misaligned *= 2;
    if (sum->promote_every) p->after_steps += (double)(ceil_div(steps, sum->promote_every) - 1);
}

ng_status ng_bound_plan_of(const ng_accumulation *sum, const ng_operand *a, const ng_operand *b, plan *p) {
    *p = (plan){.order = sum->order, .place = sum->scales, .fused = sum->fused, .k = a->codes.columns, .misaligned = 1, .power_margin = 1, .group = 1, .block_count = 1};
    bool scaled = a->scales.data || b->scales.data, steps = sum->order == NG_SUM_MMA;
    ng_scale_place place = sum->scales;
    if (a->codes.format == NG_FP64 || b->codes.format == NG_FP64) return NG_UNSUPPORTED;
    if ((scaled && place == NG_SCALES_NONE) || (steps && !sum->mma.k)) return NG_UNSUPPORTED;
    if (scaled && place == NG_SCALES_IN_MMA && !(steps && sum->mma.scales_inside)) return NG_UNSUPPORTED;

    int64_t part = p->k, parts = 1, length;
    if (sum->split_unknown) parts = sum->split_k; /* a chain may still be as long as K */
    else if (sum->split_k > 1 && sum->split_tile && p->k) {
        part = ceil_div(ceil_div(p->k, sum->split_tile), sum->split_k) * sum->split_tile;
        parts = ceil_div(p->k, part);
    }
    length = part;
    p->parts = (double)parts;
    bool exact = significand_bits(a, place) + significand_bits(b, place) <= 24;
    double after = (double)(parts - 1);
    p->blocks = place == NG_SCALES_BLOCK_SEQUENTIAL || place == NG_SCALES_BLOCK_FMA_PRODUCT ||
                place == NG_SCALES_BLOCK_FMA_SECOND;
    if (p->blocks) {
        int64_t extent = scale_extent(a) < scale_extent(b) ? scale_extent(a) : scale_extent(b);
        if (extent < length) length = extent;
        int64_t blocks = length ? ceil_div(part, length) + (part < p->k) : 0; /* a part may cut a block in two */
        after += (double)(blocks + 1); /* two by scales and blocks - 1 additions, or one by scales and as many fma */
        p->block_count = (double)(length ? ceil_div(p->k, length) + parts : 1);
    }
    if (ng_bound_is_after(place)) p->scale_roundings = scale_rounds(a) + scale_rounds(b);
    p->scale_term = gamma_of(p->scale_roundings, U);
    if (sum->rounds_to != NG_FP64) {
        const ng_format *f = &ng_formats[sum->rounds_to];
        p->rounds_unit = ldexp(1, -f->mantissa_bits - 1);
        p->rounds_least = ldexp(1, f->emin - f->mantissa_bits - 1);
    }
    p->after_steps = after;
    if (steps) count_steps(sum, p, length);
    if (steps && (sum->split_unknown || part % p->group || (p->blocks && length % p->group))) p->misaligned *= 2;

    double n = (steps ? 0 : chain_roundings(sum, length, exact)) + dequantization_rounds(a, place) +
               dequantization_rounds(b, place);
    if (sum->order == NG_SUM_FP64) { /* the chain in binary64; what follows it in binary32, a conversion before */
        double chain = gamma_of((double)length, V), rest = gamma_of(n - chain_roundings(sum, length, exact) + after + 1, U);
        bool converted = after > 0 || dequantization_rounds(a, place) || dequantization_rounds(b, place);
        p->term = converted ? chain + rest + chain * rest : chain;
    } else {
        p->term = gamma_of(n + p->after_steps, U);
    }
    p->products_underflow = !steps && sum->order != NG_SUM_FP64 &&
                            lowest_exponent(a, place) + lowest_exponent(b, place) < -149;
    return NG_OK;
}

/* ---- magnitudes ------------------------------------------------------------------------------------------------------*/
typedef struct magnitudes {
    const ng_operand *operand;
    const plan *plan;
    ng_row_sizes *rows; /* [rows] */
} magnitudes;

typedef enum vector_kind { VALUES, POWERS } vector_kind;

static void magnitudes_free(magnitudes *x) { free(x->rows); }

/* 2^max(e, emin) of a number, 0 for 0: the power of two that alignment goes by. */
static double raw_power(double magnitude, double least_normal) {
    uint64_t bits;
    memcpy(&bits, &magnitude, sizeof bits);
    bits &= UINT64_C(0x7FF) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return magnitude == 0 ? 0 : power > least_normal ? power : least_normal;
}

/* |element| and |scale| of k in [from, from + count); what is not finite is 0. */
static void decode(const ng_operand *x, int64_t row, int64_t from, int64_t count, double *element, double *scale) {
    ng_decode_row(&x->codes, row, from, count, element);
    for (int64_t k = 0; k < count; k++)
        element[k] = isfinite(element[k]) ? fabs(element[k]) : 0;
    int64_t extent = scale_extent(x), scale_row = row / ng_block_extent(x->blocks.rows, x->codes.rows);
    for (int64_t k = 0; k < count;) {
        int64_t end = x->scales.data ? ((from + k) / extent + 1) * extent - from : count;
        double s = x->scales.data ? fabs(ng_get_value(&x->scales, scale_row, (from + k) / extent)) : 1;
        for (end = end < count ? end : count; k < end; k++)
            scale[k] = isfinite(s) ? s : 0;
    }
}

/* VALUES: |element * scale|, count of them. POWERS: the largest raw power of each group, scaled; ceil(count / group).
 * scale: room for count. Returns how many. */
static int64_t row_vector(const magnitudes *x, vector_kind kind, int64_t row, int64_t from, int64_t count, double *out,
                          double *scale) {
    const plan *p = x->plan;
    decode(x->operand, row, from, count, out, scale);
    if (kind == VALUES) {
        for (int64_t k = 0; k < count; k++)
            out[k] *= scale[k];
        return count;
    }
    bool dequantized = p->place == NG_SCALES_DEQUANTIZED;
    double least_normal = dequantized ? 0x1p-126 : ldexp(1, ng_formats[x->operand->codes.format].emin);
    bool has_exponent = p->place == NG_SCALES_IN_MMA && x->operand->scales.data; /* floored at its format's */
    double least_scale = has_exponent ? ldexp(1, ng_formats[x->operand->scales.format].emin) : 0;
    for (int64_t k = 0; k < count; k++) {
        double s = scale[k] > 0 && scale[k] < least_scale ? least_scale : scale[k];
        out[k] = dequantized ? raw_power(out[k] * s * (1 + U), least_normal) : raw_power(out[k], least_normal) * s;
    }
    int64_t groups = ceil_div(count, p->group);
    for (int64_t g = 0; g < groups; g++) {
        double most = 0;
        for (int64_t k = g * p->group; k < (g + 1) * p->group && k < count; k++)
            most = out[k] > most ? out[k] : most;
        out[g] = most * p->power_margin;
    }
    return groups;
}

static ng_status magnitudes_create(const ng_operand *operand, const plan *p, int threads, magnitudes *x) {
    ng_status status = NG_NO_MEMORY;
    int64_t rows = operand->codes.rows, k = operand->codes.columns;
    *x = (magnitudes){operand, p, malloc((size_t)(rows + 1) * sizeof *x->rows)};
    double *room = malloc((size_t)threads * 2 * (size_t)(k + 1) * sizeof *room);
    if (!x->rows || !room) goto done;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        double *element = room + omp_get_thread_num() * 2 * (k + 1), *scale = element + k + 1;
        double most = 0, least = HUGE_VAL, most_element = 0, most_scale = k ? 0 : 1, least_scale = HUGE_VAL;
        decode(operand, i, 0, k, element, scale);
        for (int64_t q = 0; q < k; q++) {
            double value = element[q] * scale[q];
            most = value > most ? value : most;
            least = value > 0 && value < least ? value : least;
            most_element = element[q] > most_element ? element[q] : most_element;
            most_scale = scale[q] > most_scale ? scale[q] : most_scale;
            least_scale = scale[q] > 0 && scale[q] < least_scale ? scale[q] : least_scale;
        }
        x->rows[i] = (ng_row_sizes){most, least, most_element, most_scale, least_scale};
    }
    status = NG_OK;
done:
    free(room);
    return status;
}

/* ---- sum of products of magnitudes, from above -------------------------------------------------------------------------
 * A row of non-negative numbers as integers q_k >= v_k / unit with |q| <= 2^12: |q| <= |v| / unit + sqrt(k). Rounding up
 * costs half a unit a number on average: 2 to 4 % of the sum on both sides together for normal data. */
typedef struct integers {
    float *q;     /* [rows][length] */
    double *unit; /* [rows] */
    int64_t length;
} integers;

static void integers_free(integers *x) {
    free(x->q);
    free(x->unit);
    *x = (integers){0};
}

static void round_up(const double *v, int64_t count, float *q, double *unit) {
    double squares = 0;
    for (int64_t k = 0; k < count; k++)
        squares += v[k] * v[k];
    *unit = sqrt(squares) * OUTWARD / (4095 - sqrt((double)count));
    double inverse = squares > 0 ? OUTWARD / *unit : 0;
    for (int64_t k = 0; k < count; k++) {
        double scaled = v[k] * inverse;
        int32_t whole = (int32_t)scaled;
        q[k] = (float)(whole + (whole < scaled));
    }
}

static ng_status make_integers(const magnitudes *x, vector_kind kind, int64_t first, int64_t rows, int64_t from, int64_t count,
                               int threads, integers *out) {
    ng_status status = NG_NO_MEMORY;
    int64_t length = kind == VALUES ? count : ceil_div(count, x->plan->group);
    *out = (integers){malloc((size_t)(rows * length + 1) * sizeof(float)), malloc((size_t)(rows + 1) * sizeof(double)), length};
    double *room = malloc((size_t)threads * 2 * (size_t)(count + 1) * sizeof *room);
    if (!out->q || !out->unit || !room) goto done;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        double *v = room + omp_get_thread_num() * 2 * (count + 1);
        row_vector(x, kind, first + i, from, count, v, v + count + 1);
        round_up(v, length, out->q + i * length, &out->unit[i]);
    }
    status = NG_OK;
done:
    free(room);
    return status;
}

/* sums[m][n] += weight * sum over k of a's vector times b's, from above. PANEL_K is a multiple of every group. */
static ng_status add_products(const magnitudes *a, const magnitudes *b, vector_kind kind, double weight, int threads,
                              double *sums) {
    ng_status status = NG_OK;
    int64_t m = a->operand->codes.rows, n = b->operand->codes.rows, k = a->plan->k;
    float *products = malloc((size_t)((m < PANEL_ROWS ? m : PANEL_ROWS) * n + 1) * sizeof *products);
    integers left = {0}, right = {0};
    if (!products) return NG_NO_MEMORY;
    for (int64_t from = 0; from < k && status == NG_OK; from += PANEL_K) {
        int64_t count = k - from < PANEL_K ? k - from : PANEL_K;
        status = make_integers(b, kind, 0, n, from, count, threads, &right);
        for (int64_t first = 0; first < m && status == NG_OK; first += PANEL_ROWS) {
            int64_t rows = m - first < PANEL_ROWS ? m - first : PANEL_ROWS;
            status = make_integers(a, kind, first, rows, from, count, threads, &left);
            if (status == NG_OK && n) {
                ng_blas_sgemm(rows, n, left.length, left.q, right.q, products);
#pragma omp parallel for num_threads(threads) schedule(static)
                for (int64_t i = 0; i < rows; i++)
                    for (int64_t j = 0; j < n; j++)
                        sums[(first + i) * n + j] +=
                            weight * left.unit[i] * right.unit[j] * (double)products[i * n + j];
            }
            integers_free(&left);
        }
        integers_free(&right);
    }
    free(products);
    return status;
}

/* ---- elements ----------------------------------------------------------------------------------------------------------*/
tensor_scale ng_tensor_factor_of(float da, float db) {
    double exact = fabs((double)da * (double)db);
    int e;
    tensor_scale t = {exact, U, frexp((double)(float)exact, &e) != 0.5};
    if ((double)(float)exact == exact) t.error = 0;
    else if (exact < 0x1p-126 || exact > NG_BINARY32_LARGEST) t.error = HUGE_VAL;
    return t;
}

/* ---- the expected bound --------------------------------------------------------------------------------------------------
 * A chain's error is sum d_k s_k, |d_k| <= u. If each d_k has mean 0 given those before it, this is a martingale, and by
 * Azuma's inequality it stays below lambda u sqrt(sum s_k^2) but for a probability 2 exp(-lambda^2 / 2); 10^-9 over all m n
 * elements asks for lambda^2 = 2 ln(2 * 10^9 m n), here 2 ln 2 times the next whole binary logarithm. The computed partial
 * sums are within g(k) H of the exact ones, and so is the root of the sum of their squares within g(k) H sqrt(k). */
enum { COLUMNS = 64 };
static const double expected_work = 0x1p30; /* m n k; beyond, it is not cheap */

static bool expectation_applies(const plan *p, const ng_operand *a, const ng_operand *b, int64_t m, int64_t n) {
    bool one_chain = p->order == NG_SUM_CHAIN && !p->blocks && p->parts <= 1;
    return one_chain && !dequantization_rounds(a, p->place) && !dequantization_rounds(b, p->place) &&
           (double)m * (double)n * (double)p->k <= expected_work;
}

static double lambda_of(int64_t m, int64_t n) {
    int bits;
    frexp(2e9 * (double)m * (double)n, &bits);
    return sqrt(2 * 0x1.62e42fefa39fp-1 * bits) * OUTWARD;
}

static void signed_row(const ng_operand *x, int64_t row, double *values) {
    ng_decode_row(&x->codes, row, 0, x->codes.columns, values);
    if (!x->scales.data) return;
    int64_t extent = scale_extent(x), scale_row = row / ng_block_extent(x->blocks.rows, x->codes.rows);
    for (int64_t k = 0; k < x->codes.columns; k++)
        values[k] *= ng_get_value(&x->scales, scale_row, k / extent);
}

/* squares[j] = sum over k of s_k^2, of rounded products their squares too. b: [k][COLUMNS]. */
static void partial_sums(const double *a, const double *b, int64_t k, bool exact_products, bool rounded_products,
                         double *squares) {
    double s[COLUMNS] = {0};
    for (int64_t q = 0; q < k; q++)
        for (int j = 0; j < COLUMNS; j++) {
            double term = a[q] * b[q * COLUMNS + j];
            s[j] += term;
            squares[j] += (q || !exact_products ? s[j] * s[j] : 0) + (rounded_products ? term * term : 0);
        }
}

static ng_status sums_of_squares(const plan *p, const ng_operand *a, const ng_operand *b, int threads, double *squares) {
    int64_t m = a->codes.rows, n = b->codes.rows, k = p->k;
    bool exact = significand_bits(a, p->place) + significand_bits(b, p->place) <= 24;
    double *room = malloc((size_t)threads * (COLUMNS + 2) * (size_t)(k + 1) * sizeof *room);
    if (!room) return NG_NO_MEMORY;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t first = 0; first < n; first += COLUMNS) {
        double *columns = room + omp_get_thread_num() * (COLUMNS + 2) * (k + 1), *row = columns + COLUMNS * (k + 1);
        int64_t count = n - first < COLUMNS ? n - first : COLUMNS;
        memset(columns, 0, (size_t)(COLUMNS * k) * sizeof *columns);
        for (int64_t j = 0; j < count; j++) {
            signed_row(b, first + j, row);
            for (int64_t q = 0; q < k; q++)
                columns[q * COLUMNS + j] = row[q];
        }
        for (int64_t i = 0; i < m; i++) {
            double sums[COLUMNS] = {0};
            signed_row(a, i, row);
            partial_sums(row, columns, k, exact, !exact && !p->fused, sums);
            memcpy(squares + i * n + first, sums, (size_t)count * sizeof *sums);
        }
    }
    free(room);
    return NG_OK;
}

/* squares: of the partial sums, without the tensor scale. Roundings of the whole sum are added at their most. */
static double expected_of(const plan *p, const tensor_scale *t, double lambda, double squares, bool accumulate,
                          const ng_bound_element *x) {
    double k = (double)p->k, error = lambda * U * (sqrt(squares) + p->term * x->h * sqrt(2 * k)) * t->value;
    error += (p->scale_roundings * U + t->error + t->roundings * U) * (x->exact + error) * (t->value != 1 || p->scale_roundings);
    if (accumulate) error += U * (x->result + error);
    return error * OUTWARD;
}

static bool valid(const ng_accumulation *sum, const ng_operand *a, const ng_operand *b, const ng_tensor *initial,
                  const ng_exact_product *exact) {
    if (!sum || !a || !b || !exact || a->codes.columns != b->codes.columns || a->codes.columns > INT_MAX) return false;
    if (a->codes.space != NG_HOST || b->codes.space != NG_HOST) return false;
    if (exact->m != a->codes.rows || exact->n != b->codes.rows) return false;
    return !initial || (initial->space == NG_HOST && initial->rows == exact->m && initial->columns == exact->n);
}

ng_status ng_gemm_bound(const ng_accumulation *sum, const ng_operand *a, const ng_operand *b, const ng_tensor *initial,
                        const ng_exact_product *exact, int threads, double *bound, double *expected) {
    if (!bound || !valid(sum, a, b, initial, exact)) return NG_BAD_ARGUMENT;
    int64_t m = exact->m, n = exact->n;
    threads = ng_useful_threads(threads, m, n, a->codes.columns);
    plan p;
    ng_status status = ng_bound_plan_of(sum, a, b, &p);
    if (status != NG_OK) return status;
    int blas_threads = ng_blas_set_threads(threads);
    magnitudes left = {0}, right = {0};
    bool steps = sum->order == NG_SUM_MMA;
    double *powers = steps ? calloc((size_t)(m * n + 1), sizeof *powers) : NULL;
    status = steps && !powers ? NG_NO_MEMORY : magnitudes_create(a, &p, threads, &left);
    if (status == NG_OK) status = magnitudes_create(b, &p, threads, &right);
    memset(bound, 0, (size_t)(m * n) * sizeof *bound);
    if (status == NG_OK) status = add_products(&left, &right, VALUES, OUTWARD, threads, bound);
    if (status == NG_OK && steps) status = add_products(&left, &right, POWERS, OUTWARD, threads, powers);
    if (status != NG_OK) goto done;

    bool expects = expected && expectation_applies(&p, a, b, m, n);
    double lambda = expects ? lambda_of(m, n) : 0;
    if (expects) status = sums_of_squares(&p, a, b, threads, expected);
    if (status != NG_OK) goto done;
    tensor_scale t = ng_tensor_factor_of(a->tensor_scale, b->tensor_scale);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t e = 0; e < m * n; e++) {
        double added = initial ? ng_get_value(initial, e / n, e % n) : 0, high = exact->high[e];
        if (!isfinite(high)) {
            bound[e] = 0;
            if (expected) expected[e] = (double)NAN;
            continue;
        }
        double low = fabs(exact->low[e]);
        ng_bound_element x = {.h = bound[e], .powers = steps ? powers[e] : 0, .initial = fabs(added),
                     .exact = fabs(high - added) + low, .result = fabs(high) + low};
        bound[e] = ng_bound_of(&p, &left.rows[e / n], &right.rows[e % n], &t, initial != NULL, &x);
        if (expected) expected[e] = expects ? expected_of(&p, &t, lambda, expected[e], initial != NULL, &x) : (double)NAN;
    }
done:
    magnitudes_free(&left);
    magnitudes_free(&right);
    free(powers);
    ng_blas_set_threads(blas_threads);
    return status;
}
