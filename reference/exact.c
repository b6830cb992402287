/* The exact product at the speed of a few BLAS products.
 *
 * Row i of an operand is cut into slices x_1 u_1 + x_2 u_2 + ..., each x_p a row of integers under a power of two u_p
 * (Ozaki, Ogita, Oishi, Rump, Numer. Algorithms 59, 2012; here cut by norm, not by maximum). A slice is as wide as the
 * budget allows: |x_p| <= 2^(budget/2), |.| the Euclidean norm, and the budgets of both sides together are 106 half-bits.
 * By Cauchy-Schwarz every partial sum of a slice product is an integer of at most 2^53, so the BLAS makes it exactly. Most
 * data needs one slice a side, and then the product is one dgemm; rows and columns that need more are sorted to the front,
 * so that a further slice multiplies only those. What remains, a few doubles an element, is summed exactly in Shewchuk's
 * expansions (Discrete Comput. Geom. 18, 1997) and rounded once to high and once to low: no element has a remainder to
 * certify. binary64 operands, whose products need more than a double's range, go to MPFR. */
#include "reference/blas.h"
#include "reference/gemm.h"

#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    HALF_BITS = 106,      /* 2 * 53: widths are counted in half-bits, so that norms round up by at most a factor sqrt(2) */
    WIDTHS = 2400,        /* above the widest row: values within 2^-298 .. 2^256, norms another sqrt(k) wider */
    MIN_BUDGET = 20,
    MAX_SLICES = 64,
    PANEL_ROWS = 1024,
};
static const int64_t panel_bytes = INT64_C(384) << 20;

/* ---- expansions: sums of doubles whose bits do not overlap, smallest first -----------------------------------------*/
typedef struct expansion {
    int count;
    double *part;
} expansion;

static void two_sum(double a, double b, double *s, double *e) {
    *s = a + b;
    double t = *s - a;
    *e = (a - (*s - t)) + (b - t);
}

static void expansion_add(expansion *x, double value) {
    int kept = 0;
    for (int i = 0; i < x->count; i++) {
        double error;
        two_sum(value, x->part[i], &value, &error);
        if (error != 0) x->part[kept++] = error;
    }
    if (value != 0) x->part[kept++] = value;
    x->count = kept;
}

/* Takes the sum rounded to nearest even out of x. The parts from the top are added until one does not fit: the error of
 * that addition is at most half an ulp, and where it is exactly that, the sign of the next part breaks the tie. */
static double expansion_round(expansion *x) {
    if (x->count == 0) return 0;
    double sum = x->part[--x->count], error = 0;
    while (x->count && error == 0) {
        double top = sum;
        sum = top + x->part[--x->count];
        error = x->part[x->count] - (sum - top);
    }
    if (error != 0 && x->count && (x->part[x->count - 1] < 0) == (error < 0)) {
        double away = sum + 2 * error;
        if (away - sum == 2 * error) {
            sum = away;
            error = -error;
        }
    }
    if (error != 0) x->part[x->count++] = error;
    return sum;
}

/* into = x * factor, exact: no product of the formats' values and scales leaves the normal range, even in its last bit
 * (values and both scales of either side are multiples of 2^-447 below 2^384). */
static void expansion_scale(const expansion *x, double factor, expansion *into) {
    into->count = 0;
    for (int i = 0; i < x->count; i++) {
        double p = x->part[i] * factor;
        double e = fma(x->part[i], factor, -p);
        if (e != 0) expansion_add(into, e);
        expansion_add(into, p);
    }
}

/* ---- rows ---------------------------------------------------------------------------------------------------------*/
typedef struct special { /* a value that is no number, at column k */
    int64_t k;
    double value;
} special;

typedef struct side {
    const ng_operand *operand;
    int64_t rows, k;
    bool fold;          /* block scales are multiplied into the values, exactly; otherwise into factor */
    double *factor;     /* [rows] multiplies the whole row */
    bool powers_of_two; /* all of them are */
    int *width;         /* [rows] half-bits of norm / grid: 2^(width/2) bounds the norm in units of the row's grid */
    special *specials;  /* all rows' one after the other */
    int64_t *special_from; /* [rows + 1] */
} side;

/* The smallest h with x <= 2^(h/2), or one above it. */
static int half_bits(double x) {
    int e;
    double m = frexp(x, &e);
    return 2 * e - (m <= 0x1.6a09e667f3bccp-1);
}

/* An upper bound of the norm from a recursive sum of squares: k roundings of the sum, one of each square and the root. */
static double norm_above(double squares, int64_t k) { return sqrt(squares) * (1 + (double)(k + 8) * 0x1p-52); }

/* Row values with the folded scales, infinities and NaNs included. scale: room for a row of scales. */
static void decode_row(const side *s, int64_t row, double *values, double *scale) {
    const ng_operand *x = s->operand;
    ng_decode_row(&x->codes, row, 0, s->k, values);
    if (s->fold) {
        int64_t extent = ng_block_extent(x->blocks.columns, s->k), blocks = ng_block_count(x->blocks.columns, s->k);
        ng_decode_row(&x->scales, row / ng_block_extent(x->blocks.rows, s->rows), 0, blocks, scale);
        for (int64_t block = 0; block < blocks; block++) {
            int64_t end = (block + 1) * extent < s->k ? (block + 1) * extent : s->k;
            for (int64_t k = block * extent; k < end; k++)
                values[k] *= scale[block];
        }
    }
    if (!isfinite(s->factor[row])) /* every value is an infinity or NaN then, and listed */
        for (int64_t k = 0; k < s->k; k++)
            values[k] *= s->factor[row];
}

static double one_value(const side *s, int64_t row, int64_t k) {
    const ng_operand *x = s->operand;
    double value = ng_get_value(&x->codes, row, k);
    if (s->fold)
        value *= ng_get_value(&x->scales, row / ng_block_extent(x->blocks.rows, s->rows),
                              k / ng_block_extent(x->blocks.columns, s->k));
    return isfinite(s->factor[row]) ? value : value * s->factor[row];
}

static int64_t count_specials(const double *values, int64_t count) {
    int64_t specials = 0;
    for (int64_t k = 0; k < count; k++)
        specials += !(fabs(values[k]) <= 0x1.fffffffffffffp+1023);
    return specials;
}

static void clear_specials(double *values, int64_t count) {
    for (int64_t k = 0; k < count; k++)
        if (!isfinite(values[k])) values[k] = 0;
}

/* The lowest set bit of x as a double: x less x without that bit. A power of two is its own; 0 has none. */
static inline double lowest_bit(double x) {
    uint64_t bits, rest;
    memcpy(&bits, &x, sizeof bits);
    rest = bits << 12 ? bits & (bits - 1) : 0;
    double without;
    memcpy(&without, &rest, sizeof without);
    double bit = fabs(x - without);
    return x != 0 ? bit : HUGE_VAL;
}

/* The row's grid (largest power of two that divides every value) and norm, in half-bits of the second by the first. */
static void measure(const double *values, int64_t count, double *grid, double *norm) {
    double least = HUGE_VAL, squares = 0;
    for (int64_t k = 0; k < count; k++) {
        double bit = lowest_bit(values[k]);
        least = bit < least ? bit : least;
    }
    for (int64_t k = 0; k < count; k++)
        squares += values[k] * values[k];
    *grid = least;
    *norm = norm_above(squares, count);
}

static void side_free(side *s) {
    free(s->factor);
    free(s->width);
    free(s->specials);
    free(s->special_from);
}

static bool power_of_two(double x) {
    int e;
    return fabs(frexp(x, &e)) == 0.5;
}

/* How a row is scaled as a whole. A single binary32 scale a row stays out of the values: they would gain 24 bits. */
static void row_factors(side *s) {
    const ng_operand *x = s->operand;
    bool whole = x->scales.data && x->scales.format == NG_FP32 && ng_block_count(x->blocks.columns, s->k) <= 1;
    s->fold = x->scales.data && !whole;
    s->powers_of_two = true;
    for (int64_t i = 0; i < s->rows; i++) {
        double scale = whole && s->k ? ng_get_value(&x->scales, i / ng_block_extent(x->blocks.rows, s->rows), 0) : 1.0;
        s->factor[i] = scale * (double)x->tensor_scale;
        s->powers_of_two = s->powers_of_two && power_of_two(s->factor[i]);
    }
}

static ng_status list_specials(side *s, double *values, double *scale) {
    int64_t total = 0;
    for (int64_t i = 0; i < s->rows; i++) {
        int64_t count = s->special_from[i];
        s->special_from[i] = total;
        total += count;
    }
    s->special_from[s->rows] = total;
    if (!total) return NG_OK;
    s->specials = malloc((size_t)total * sizeof *s->specials);
    if (!s->specials) return NG_NO_MEMORY;
    for (int64_t i = 0; i < s->rows; i++) {
        int64_t next = s->special_from[i];
        if (next == s->special_from[i + 1]) continue;
        decode_row(s, i, values, scale);
        for (int64_t k = 0; k < s->k; k++)
            if (!isfinite(values[k])) s->specials[next++] = (special){k, values[k]};
    }
    return NG_OK;
}

static ng_status side_create(const ng_operand *operand, int threads, side *s) {
    ng_status status = NG_NO_MEMORY;
    *s = (side){.operand = operand, .rows = operand->codes.rows, .k = operand->codes.columns};
    s->factor = malloc((size_t)(s->rows + 1) * sizeof *s->factor);
    s->width = malloc((size_t)(s->rows + 1) * sizeof *s->width);
    s->special_from = calloc((size_t)(s->rows + 1), sizeof *s->special_from);
    double *room = malloc((size_t)threads * 2 * (size_t)(s->k + 1) * sizeof *room);
    if (!s->factor || !s->width || !s->special_from || !room) goto done;
    row_factors(s);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < s->rows; i++) {
        double *values = room + omp_get_thread_num() * 2 * (s->k + 1), grid, norm;
        decode_row(s, i, values, values + s->k + 1);
        s->special_from[i] = count_specials(values, s->k);
        if (s->special_from[i]) clear_specials(values, s->k);
        measure(values, s->k, &grid, &norm);
        s->width[i] = norm > 0 ? half_bits(norm) - (half_bits(grid) - 1) : 0; /* half_bits(2^g) is 2g + 1 */
    }
    status = list_specials(s, room, room + s->k + 1);
done:
    free(room);
    return status;
}

/* ---- slices -------------------------------------------------------------------------------------------------------*/
/* How many slices a row of that width takes at most. The first has a unit within width - budget + 1 half-bits of the grid
 * and leaves |rest| < sqrt(k) units; each further one takes the budget less that, less one half-bit for its unit's
 * rounding to a power of two and one for the norm's rounding upward. */
static int slices_needed(int width, int budget, int64_t k) {
    if (width <= budget) return 1;
    int gain = budget - half_bits(norm_above((double)k, k)) - 2;
    if (gain <= 0) return MAX_SLICES + 1;
    return 1 + (width - budget + gain) / gain;
}

static double mean_slices(const int64_t *rows_of_width, int64_t rows, int budget, int64_t k) {
    double sum = 0;
    for (int w = 0; w < WIDTHS; w++) {
        int slices = rows_of_width[w] ? slices_needed(w, budget, k) : 0;
        if (slices > MAX_SLICES) return HUGE_VAL;
        sum += (double)slices * (double)rows_of_width[w];
    }
    return sum / (double)(rows ? rows : 1);
}

/* How the 106 half-bits are best shared between the sides: the share of a with the fewest slice products. 0: none will do. */
static int best_budget(const side *a, const side *b) {
    int64_t of_a[WIDTHS] = {0}, of_b[WIDTHS] = {0};
    for (int64_t i = 0; i < a->rows; i++)
        of_a[a->width[i]]++;
    for (int64_t i = 0; i < b->rows; i++)
        of_b[b->width[i]]++;
    int best = 0;
    double least = HUGE_VAL;
    for (int budget = MIN_BUDGET; budget <= HALF_BITS - MIN_BUDGET; budget++) {
        double cost = mean_slices(of_a, a->rows, budget, a->k) * mean_slices(of_b, b->rows, HALF_BITS - budget, a->k);
        if (cost < least || (cost == least && abs(2 * budget - HALF_BITS) < abs(2 * best - HALF_BITS))) {
            least = cost;
            best = budget;
        }
    }
    return best;
}

/* Some rows of a side, cut. Rows with more slices stand first; slice p is that of the first rows[p] of them. */
typedef struct slices {
    int count;
    int64_t total, k;             /* rows */
    int64_t rows[MAX_SLICES];
    int64_t *row;                 /* [total] their numbers in the side */
    double *integers[MAX_SLICES]; /* [rows[p]][k] */
    double *unit[MAX_SLICES];     /* [rows[p]] */
} slices;

static void slices_free(slices *x) {
    for (int p = 0; p < x->count; p++) {
        free(x->integers[p]);
        free(x->unit[p]);
    }
    free(x->row);
    memset(x, 0, sizeof *x);
}

/* Slices that the rows [from, from + total) need: how many have more than p of them (in x->rows), and how many at most. */
static void count_slices(const side *s, int64_t from, int64_t total, int budget, slices *x) {
    *x = (slices){.total = total, .k = s->k};
    for (int64_t i = 0; i < total; i++) {
        int needed = slices_needed(s->width[from + i], budget, s->k);
        if (needed > x->count) x->count = needed;
        for (int p = 0; p < needed; p++)
            x->rows[p]++;
    }
}

static void sort_rows(const side *s, int64_t from, int budget, slices *x) {
    int64_t next = 0;
    for (int needed = x->count; needed >= 1; needed--)
        for (int64_t i = from; i < from + x->total; i++)
            if (slices_needed(s->width[i], budget, s->k) == needed) x->row[next++] = i;
}

/* Cuts one row's values into its slices. A slice is the integer part of the rest in its unit, so that the rest stays exact.
 * False: something is left, which slices_needed excludes. */
static bool cut_row(double *values, int64_t place, int budget, slices *x) {
    bool whole = false;
    for (int p = 0; p < x->count && place < x->rows[p]; p++) {
        double grid, norm, *integers = x->integers[p] + place * x->k;
        measure(values, x->k, &grid, &norm);
        if (whole || !(norm > 0)) {
            memset(integers, 0, (size_t)x->k * sizeof *integers);
            x->unit[p][place] = 1;
            whole = true;
            continue;
        }
        int excess = half_bits(norm) - budget; /* unit >= 2^(excess/2) */
        double unit = ldexp(1, excess > 0 ? (excess + 1) / 2 : -(-excess / 2));
        whole = unit <= grid;
        if (whole) unit = grid;
        double inverse = 1 / unit;
        if (whole)
            for (int64_t k = 0; k < x->k; k++)
                integers[k] = values[k] * inverse;
        else
            for (int64_t k = 0; k < x->k; k++)
                integers[k] = (double)(int64_t)(values[k] * inverse);
        for (int64_t k = 0; !whole && k < x->k; k++)
            values[k] -= integers[k] * unit;
        x->unit[p][place] = unit;
    }
    return whole;
}

/* x comes from count_slices. */
static ng_status cut(const side *s, int64_t from, int budget, int threads, slices *x) {
    ng_status status = NG_NO_MEMORY;
    double *room = malloc((size_t)threads * 2 * (size_t)(s->k + 1) * sizeof *room);
    x->row = malloc((size_t)(x->total + 1) * sizeof *x->row);
    if (!room || !x->row) goto done;
    for (int p = 0; p < x->count; p++) {
        x->integers[p] = malloc((size_t)(x->rows[p] * s->k + 1) * sizeof(double));
        x->unit[p] = malloc((size_t)(x->rows[p] + 1) * sizeof(double));
        if (!x->integers[p] || !x->unit[p]) goto done;
    }
    sort_rows(s, from, budget, x);
    bool complete = true;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(&& : complete)
    for (int64_t place = 0; place < x->total; place++) {
        double *values = room + omp_get_thread_num() * 2 * (s->k + 1);
        int64_t row = x->row[place];
        decode_row(s, row, values, values + s->k + 1);
        if (s->special_from[row + 1] > s->special_from[row]) clear_specials(values, s->k);
        complete = cut_row(values, place, budget, x) && complete;
    }
    status = complete ? NG_OK : NG_INTERNAL;
done:
    free(room);
    return status;
}

/* ---- elements -----------------------------------------------------------------------------------------------------*/
typedef struct panel {
    const side *a, *b;
    const ng_tensor *initial;
    slices left, right;
    double *products; /* slice products [p][q][rows[p]][rows[q]], one after the other */
    int64_t from[MAX_SLICES][MAX_SLICES];
    ng_exact_product *out;
} panel;

static bool exactly_one_factor(double fa, double fb, double *factor) {
    *factor = fa * fb;
    return fma(fa, fb, -*factor) == 0;
}

/* The element at (row, column) of the sorted panel, from its slice products. */
static void general_element(const panel *x, int64_t row, int64_t column, expansion *sum, expansion *scaled, double *high,
                            double *low) {
    int64_t i = x->left.row[row], j = x->right.row[column];
    sum->count = 0;
    for (int p = 0; p < x->left.count && row < x->left.rows[p]; p++)
        for (int q = 0; q < x->right.count && column < x->right.rows[q]; q++) {
            double product = x->products[x->from[p][q] + row * x->right.rows[q] + column];
            if (product != 0) expansion_add(sum, product * x->left.unit[p][row] * x->right.unit[q][column]);
        }
    double factor, fa = x->a->factor[i], fb = x->b->factor[j];
    fa = isfinite(fa) ? fa : 1;
    fb = isfinite(fb) ? fb : 1;
    if (exactly_one_factor(fa, fb, &factor)) {
        expansion_scale(sum, factor, scaled);
    } else {
        expansion_scale(sum, fa, scaled);
        expansion_scale(scaled, fb, sum);
        expansion *swap = scaled;
        scaled = sum;
        sum = swap;
    }
    double initial = x->initial ? ng_get_value(x->initial, i, j) : 0;
    if (initial != 0 && isfinite(initial)) expansion_add(scaled, initial);
    *high = expansion_round(scaled) + 0.0;
    *low = expansion_round(scaled) + 0.0;
}

/* Elements of a row from `column` on, one slice a side and factors that are powers of two: the one product is the element. */
static void unscaled_elements(const panel *x, int64_t row, int64_t column) {
    int64_t i = x->left.row[row], n = x->right.total;
    double scale = x->left.unit[0][row] * x->a->factor[i];
    double *high = x->out->high + i * x->out->n, *low = x->out->low + i * x->out->n;
    const double *product = x->products + x->from[0][0] + row * n;
    for (int64_t c = column; c < n; c++) {
        int64_t j = x->right.row[c];
        high[j] = product[c] * (scale * (x->right.unit[0][c] * x->b->factor[j])) + 0.0;
        low[j] = 0;
    }
}

/* The same under factors whose product is one double: the error of the last multiplication is exact. */
static void scaled_elements(const panel *x, int64_t row, int64_t column) {
    int64_t i = x->left.row[row], n = x->right.total;
    double *high = x->out->high + i * x->out->n, *low = x->out->low + i * x->out->n;
    const double *product = x->products + x->from[0][0] + row * n;
    for (int64_t c = column; c < n; c++) {
        int64_t j = x->right.row[c];
        double factor = x->a->factor[i] * x->b->factor[j];
        double value = product[c] * x->left.unit[0][row] * x->right.unit[0][c];
        high[j] = value * factor + 0.0;
        low[j] = fma(value, factor, -high[j]) + 0.0;
    }
}

typedef enum row_kind { UNSCALED, SCALED, GENERAL } row_kind;

/* What serves for all of a row's elements that are single products. */
static row_kind kind_of_row(const panel *x, int64_t row) {
    double factor, fa = x->a->factor[x->left.row[row]];
    row_kind kind = x->initial || row < (x->left.count > 1 ? x->left.rows[1] : 0) || !isfinite(fa) ? GENERAL : UNSCALED;
    if (x->a->powers_of_two && x->b->powers_of_two) return kind;
    for (int64_t c = 0; c < x->right.total && kind != GENERAL; c++) {
        double fb = x->b->factor[x->right.row[c]];
        kind = isfinite(fb) && exactly_one_factor(fa, fb, &factor) ? SCALED : GENERAL;
    }
    return kind;
}

static void row_elements(const panel *x, int64_t row, expansion *sum, expansion *scaled, int64_t *by_tier) {
    int64_t n = x->right.total, general = x->right.count > 1 ? x->right.rows[1] : 0, i = x->left.row[row];
    row_kind kind = kind_of_row(x, row);
    if (kind == GENERAL) general = n;
    for (int64_t c = 0; c < general; c++) {
        int64_t e = i * x->out->n + x->right.row[c];
        general_element(x, row, c, sum, scaled, &x->out->high[e], &x->out->low[e]);
    }
    if (kind == UNSCALED) unscaled_elements(x, row, general);
    if (kind == SCALED) scaled_elements(x, row, general);
    by_tier[NG_TIER_INTEGER] += kind == UNSCALED ? n - general : 0;
    by_tier[NG_TIER_SPLIT] += kind == UNSCALED ? general : n;
}

/* ---- infinities and NaNs --------------------------------------------------------------------------------------------
 * They were 0 so far. An element with one among its terms is their IEEE sum: the finite terms do not matter. */
static double special_sum(const side *one, int64_t i, const side *other, int64_t j) {
    double sum = 0;
    for (int64_t s = one->special_from[i]; s < one->special_from[i + 1] && !isnan(sum); s++)
        sum += one->specials[s].value * one_value(other, j, one->specials[s].k);
    return sum;
}

static void special_element(const side *a, const side *b, const ng_tensor *initial, int64_t i, int64_t j,
                            ng_exact_product *out) {
    bool among_terms = a->special_from[i] < a->special_from[i + 1] || b->special_from[j] < b->special_from[j + 1];
    double added = initial ? ng_get_value(initial, i, j) : 0, sum = 0;
    if (!among_terms && isfinite(added)) return;
    if (among_terms) {
        sum = special_sum(a, i, b, j) + special_sum(b, j, a, i);
        if (isfinite(a->factor[i])) sum *= a->factor[i];
        if (isfinite(b->factor[j])) sum *= b->factor[j];
    }
    sum += isfinite(added) ? 0 : added;
    out->high[i * out->n + j] = isnan(sum) ? (double)NAN : sum;
    out->low[i * out->n + j] = 0;
}

static bool any_special(const side *s) { return s->special_from[s->rows] > 0; }

static void special_elements(const side *a, const side *b, const ng_tensor *initial, int threads, ng_exact_product *out) {
    if (!initial && !any_special(a) && !any_special(b)) return;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t i = 0; i < out->m; i++)
        for (int64_t j = 0; j < out->n; j++)
            special_element(a, b, initial, i, j, out);
}

/* ---- the product ----------------------------------------------------------------------------------------------------*/
static bool all_zero(const double *x, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (x[i] != 0) return false;
    return true;
}

static ng_status multiply(panel *x) {
    int64_t total = 0;
    for (int p = 0; p < x->left.count; p++)
        for (int q = 0; q < x->right.count; q++) {
            x->from[p][q] = total;
            total += x->left.rows[p] * x->right.rows[q];
        }
    x->products = malloc((size_t)(total + 1) * sizeof *x->products);
    if (!x->products) return NG_NO_MEMORY;
    int64_t k = x->left.k;
    for (int p = 0; p < x->left.count; p++)
        for (int q = 0; q < x->right.count; q++) {
            int64_t rows = x->left.rows[p], columns = x->right.rows[q];
            double *product = x->products + x->from[p][q];
            if (all_zero(x->left.integers[p], rows * k) || all_zero(x->right.integers[q], columns * k))
                memset(product, 0, (size_t)(rows * columns) * sizeof *product);
            else
                ng_blas_dgemm(rows, columns, k, x->left.integers[p], x->right.integers[q], product);
        }
    return NG_OK;
}

static ng_status collect(panel *x, int threads) {
    /* A term and its error under each of two factors, and the initial value. */
    size_t room = 4 * (size_t)x->left.count * (size_t)x->right.count + 4;
    double *parts = malloc((size_t)threads * 2 * room * sizeof *parts);
    if (!parts) return NG_NO_MEMORY;
    int64_t integer = 0, split = 0;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 8) reduction(+ : integer, split)
    for (int64_t row = 0; row < x->left.total; row++) {
        expansion sum = {0, parts + (size_t)omp_get_thread_num() * 2 * room}, scaled = {0, sum.part + room};
        int64_t by_tier[NG_TIERS] = {0};
        row_elements(x, row, &sum, &scaled, by_tier);
        integer += by_tier[NG_TIER_INTEGER];
        split += by_tier[NG_TIER_SPLIT];
    }
    x->out->elements_by_tier[NG_TIER_INTEGER] += integer;
    x->out->elements_by_tier[NG_TIER_SPLIT] += split;
    free(parts);
    return NG_OK;
}

/* Rows of a panel: at most `most`, and fewer where their slices or their products would not fit. */
static int64_t panel_rows(const side *s, int64_t from, int64_t most, int budget, int64_t bytes_a_product_row, slices *x) {
    int64_t rows = s->rows - from < most ? s->rows - from : most;
    for (;; rows = (rows + 1) / 2) {
        count_slices(s, from, rows, budget, x);
        int64_t slice_rows = 0;
        for (int p = 0; p < x->count; p++)
            slice_rows += x->rows[p];
        if (rows <= 1 || slice_rows * (8 * s->k + bytes_a_product_row) <= panel_bytes) return rows;
    }
}

static ng_status product_of_sides(panel *x, int threads) {
    ng_status status = NG_OK;
    const side *a = x->a, *b = x->b;
    int budget = best_budget(a, b);
    if (!budget) return NG_INTERNAL;
    for (int64_t j = 0, columns; j < b->rows && status == NG_OK; j += columns) {
        columns = panel_rows(b, j, b->rows, HALF_BITS - budget, 0, &x->right);
        status = cut(b, j, HALF_BITS - budget, threads, &x->right);
        int64_t product_columns = 0;
        for (int q = 0; q < x->right.count; q++)
            product_columns += x->right.rows[q];
        for (int64_t i = 0, rows; i < a->rows && status == NG_OK; i += rows) {
            rows = panel_rows(a, i, PANEL_ROWS, budget, 8 * product_columns, &x->left);
            status = cut(a, i, budget, threads, &x->left);
            if (status == NG_OK) status = multiply(x);
            if (status == NG_OK) status = collect(x, threads);
            free(x->products);
            x->products = NULL;
            slices_free(&x->left);
        }
        slices_free(&x->right);
    }
    return status;
}

static bool valid_operand(const ng_operand *x) {
    if (!x || x->codes.space != NG_HOST || x->codes.format < 0 || x->codes.format >= NG_FORMATS) return false;
    if (x->codes.rows < 0 || x->codes.columns < 0 || x->codes.rows > INT_MAX || x->codes.columns > INT_MAX) return false;
    if (!x->scales.data) return true;
    return x->scales.space == NG_HOST && x->scales.rows >= ng_block_count(x->blocks.rows, x->codes.rows) &&
           x->scales.columns >= ng_block_count(x->blocks.columns, x->codes.columns);
}

static bool valid(const ng_operand *a, const ng_operand *b, const ng_tensor *initial) {
    if (!valid_operand(a) || !valid_operand(b) || a->codes.columns != b->codes.columns) return false;
    if (a->codes.rows * b->codes.rows >= INT64_MAX / 16) return false;
    return !initial || (initial->space == NG_HOST && initial->rows == a->codes.rows && initial->columns == b->codes.rows);
}

static bool is_double(const ng_operand *x) {
    return x->codes.format == NG_FP64 || (x->scales.data && x->scales.format == NG_FP64);
}

ng_status ng_exact_gemm(const ng_operand *a, const ng_operand *b, const ng_tensor *initial, int threads,
                        ng_exact_product *product) {
    if (!product || !valid(a, b, initial)) return NG_BAD_ARGUMENT;
    if (is_double(a) || is_double(b)) return ng_exact_gemm_mpfr(a, b, initial, threads, product);
    int64_t m = a->codes.rows, n = b->codes.rows;
    threads = ng_useful_threads(threads, m, n, a->codes.columns);
    int blas_threads = ng_blas_set_threads(threads);
    ng_status status = NG_NO_MEMORY;
    side left = {0}, right = {0};
    *product = (ng_exact_product){.m = m, .n = n};
    product->high = malloc((size_t)(m * n + 1) * sizeof(double));
    product->low = malloc((size_t)(m * n + 1) * sizeof(double));
    if (!product->high || !product->low) goto done;
    status = side_create(a, threads, &left);
    if (status == NG_OK) status = side_create(b, threads, &right);
    if (status != NG_OK) goto done;
    panel x = {.a = &left, .b = &right, .initial = initial, .out = product};
    status = product_of_sides(&x, threads);
    if (status == NG_OK) special_elements(&left, &right, initial, threads, product);
done:
    side_free(&left);
    side_free(&right);
    ng_blas_set_threads(blas_threads);
    if (status != NG_OK) ng_exact_product_free(product);
    return status;
}

void ng_exact_product_free(ng_exact_product *product) {
    free(product->high);
    free(product->low);
    *product = (ng_exact_product){0};
}
