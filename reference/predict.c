/* The bits that a contract fixes. This file: what is supported, the fast path's plan and tiles, the result's cast.
 *
 * The fast path cuts K into pieces short enough that a piece of B for NG_LANES columns stays in the first-level cache,
 * and runs each piece for a tile of rows; between pieces stand the promotions, scales and parts of the contract. All that
 * is computed here is binary32 arithmetic on binary64 numbers, so that a sum of two of them, rounded to binary64 and then
 * to binary32, was rounded once (53 >= 2 * 24 + 2: Figueroa, When is double rounding innocuous?, SIGNUM 30, 1995). */
#include "reference/k_order.h"
#include "reference/predict.h"

#include "reference/round.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
    PIECE = 128,        /* K elements in a piece, where the contract does not ask for fewer */
    TILE_ROWS = 64,
    STACK_LEVELS = 40,  /* pairwise: partial sums waiting for a neighbour */
};
static const size_t panel_bytes = (size_t)64 << 20; /* of each packed operand at a time */

/* ---- what is supported --------------------------------------------------------------------------------------------*/
static bool is_host(const ng_tensor *t)
{
    return t->data && t->space == NG_HOST;
}

static bool operand_is_sound(const ng_operand *x, int64_t k)
{
    if (!is_host(&x->codes) || x->codes.columns != k || x->codes.format >= NG_FORMATS) return false;
    if (!x->scales.data) return true;
    return is_host(&x->scales) && x->scales.rows >= ng_block_count(x->blocks.rows, x->codes.rows) &&
           x->scales.columns >= ng_block_count(x->blocks.columns, k);
}

/* K elements of a scale block of an operand; its whole extent counts as no limit. */
static int64_t scale_extent(const ng_operand *x, int64_t k)
{
    if (!x->scales.data || !x->blocks.columns || x->blocks.columns >= k) return k;
    return x->blocks.columns;
}

static bool is_factor_format(ng_format_id f)
{
    return f != NG_FP64 && f != NG_FP32;
}

static ng_status plan_scales(const ng_operand *a, const ng_operand *b, ng_predictor *p)
{
    int64_t ea = scale_extent(a, p->k), eb = scale_extent(b, p->k), small = ea < eb ? ea : eb, large = ea < eb ? eb : ea;
    switch (p->sum->scales) {
    case NG_SCALES_NONE:
        return a->scales.data || b->scales.data ? NG_UNSUPPORTED : NG_OK;
    case NG_SCALES_AFTER:
    case NG_SCALES_AFTER_AT_ONCE:
        return small < p->k ? NG_UNSUPPORTED : NG_OK;
    case NG_SCALES_BLOCK_SEQUENTIAL:
    case NG_SCALES_BLOCK_FMA_PRODUCT:
    case NG_SCALES_BLOCK_FMA_SECOND:
        p->block = small > 0 ? small : 1;
        return small < p->k && large < p->k && large % small ? NG_UNSUPPORTED : NG_OK;
    case NG_SCALES_IN_MMA:
        return p->sum->order == NG_SUM_MMA && p->sum->mma.scales_inside ? NG_OK : NG_UNSUPPORTED;
    case NG_SCALES_DEQUANTIZED: break;
    }
    return NG_OK;
}

static ng_status plan_mma(const ng_operand *a, const ng_operand *b, ng_predictor *p)
{
    const ng_mma *mma = &p->sum->mma;
    bool dequantized = p->sum->scales == NG_SCALES_DEQUANTIZED;
    if (dequantized) p->a_format = p->b_format = NG_BF16;
    if (!ng_mma_is_defined(mma) || !is_factor_format(p->a_format) || !is_factor_format(p->b_format)) return NG_UNSUPPORTED;
    if (mma->scales_inside && p->sum->scales != NG_SCALES_IN_MMA) return NG_UNSUPPORTED;
    if (mma->scales_inside && (a->scales.data || b->scales.data)) {
        if (!a->scales.data || !b->scales.data || a->scales.format != b->scales.format) return NG_UNSUPPORTED;
        if (scale_extent(a, p->k) < p->k && a->blocks.columns % mma->scale_block) return NG_UNSUPPORTED;
        if (scale_extent(b, p->k) < p->k && b->blocks.columns % mma->scale_block) return NG_UNSUPPORTED;
        if (!is_factor_format(a->scales.format)) return NG_UNSUPPORTED;
        p->scale_fraction = 2 * ng_factor_fraction(a->scales.format);
    }
    p->fraction = ng_factor_fraction(p->a_format) + ng_factor_fraction(p->b_format);
    p->promoted = p->sum->promote_every > 0;
    return NG_OK;
}

static void plan_split(ng_predictor *p)
{
    int64_t parts = p->sum->split_k > 1 ? p->sum->split_k : 1;
    p->part = p->k ? p->k : 1;
    if (parts == 1) return;
    int64_t tile = p->sum->split_tile ? p->sum->split_tile : 1, tiles = (p->k + tile - 1) / tile;
    p->part = (tiles + parts - 1) / parts * tile;
    if (p->part < 1) p->part = 1;
}

ng_status ng_predictor_create(const ng_accumulation *sum, const ng_cast *cast, const ng_operand *a, const ng_operand *b,
                              const ng_tensor *initial, const ng_tensor *out, ng_predictor *p)
{
    if (!sum || !cast || !a || !b || !out || !is_host(out)) return NG_BAD_ARGUMENT;
    *p = (ng_predictor){.sum = sum, .cast = cast, .a = a, .b = b, .initial = initial};
    p->m = a->codes.rows, p->n = b->codes.rows, p->k = a->codes.columns;
    if (p->m < 0 || p->n < 0 || p->k < 0 || out->rows != p->m || out->columns != p->n) return NG_BAD_ARGUMENT;
    if (!operand_is_sound(a, p->k) || !operand_is_sound(b, p->k)) return NG_BAD_ARGUMENT;
    if (initial && (!is_host(initial) || initial->rows != p->m || initial->columns != p->n)) return NG_BAD_ARGUMENT;
    if (cast->rounding == NG_R_STOCHASTIC || sum->order == NG_SUM_ANY || sum->split_unknown || sum->rounds_to != NG_FP64) return NG_UNSUPPORTED;
    if (!ng_k_order_fits(sum, p->k)) return NG_UNSUPPORTED;
    if (sum->order == NG_SUM_PAIRWISE && !sum->leaf) return NG_BAD_ARGUMENT;
    p->a_format = a->codes.format, p->b_format = b->codes.format;
    bool fp64 = p->a_format == NG_FP64 || p->b_format == NG_FP64;
    if (fp64 && (sum->order == NG_SUM_CHAIN || sum->order == NG_SUM_PAIRWISE)) return NG_UNSUPPORTED;
    p->tensor_scale = a->tensor_scale * b->tensor_scale;
    p->tensor_scale_error = fabs((double)a->tensor_scale * (double)b->tensor_scale - (double)p->tensor_scale);
    ng_status status = plan_scales(a, b, p);
    if (status == NG_OK && sum->order == NG_SUM_MMA) status = plan_mma(a, b, p);
    plan_split(p);
    return status;
}

/* ---- the result ---------------------------------------------------------------------------------------------------*/
static uint64_t cast_result(const ng_predictor *p, double value, ng_format_id to)
{
    float f = (float)value;
    if (to == NG_FP32 && isfinite(f) && (double)f == value) { /* nothing to round */
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        return bits;
    }
    return ng_round(to, value, p->cast, 0);
}

void ng_store(const ng_predictor *p, ng_running result, int64_t i, int64_t j, ng_tensor *out, double *bound)
{
    ng_set_code(out, i, j, cast_result(p, result.value, out->format));
    if (!bound) return;
    double slack = 1 + (double)(8 * p->k + 64) * 0x1p-52; /* at most 8 roundings an element of K and 64 after */
    bound[i * p->n + j] = isfinite(result.value) ? result.bound * slack : INFINITY;
}

/* ---- the plain path -----------------------------------------------------------------------------------------------*/
static ng_status plain_row(const ng_predictor *p, int64_t i, ng_operand_row *a, ng_operand_row *b, ng_tensor *out,
                           double *bound)
{
    ng_status status = ng_operand_row_load(p, p->a, i, a);
    for (int64_t j = 0; status == NG_OK && j < p->n; j++) {
        status = ng_operand_row_load(p, p->b, j, b);
        if (status == NG_OK) ng_store(p, ng_predict_element(p, a, b, i, j), i, j, out, bound);
    }
    return status;
}

static ng_status predict_plain(const ng_predictor *p, int threads, ng_tensor *out, double *bound)
{
    _Atomic int failed = NG_OK;
#pragma omp parallel num_threads(threads > 0 ? threads : 1)
    {
        ng_operand_row a, b;
        ng_status sa = ng_operand_row_create(p, &a), sb = ng_operand_row_create(p, &b);
        if (sa != NG_OK || sb != NG_OK) failed = NG_NO_MEMORY;
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < p->m; i++) {
            if (failed != NG_OK) continue;
            ng_status status = plain_row(p, i, &a, &b, out, bound);
            if (status != NG_OK) failed = (int)status;
        }
        ng_operand_row_free(&a);
        ng_operand_row_free(&b);
    }
    return (ng_status)failed;
}

ng_status ng_predict_gemm_plain(const ng_accumulation *sum, const ng_cast *cast, const ng_operand *a,
                                const ng_operand *b, const ng_tensor *initial, int threads, ng_tensor *out, double *bound)
{
    ng_predictor p;
    ng_status status = ng_predictor_create(sum, cast, a, b, initial, out, &p);
    return status == NG_OK ? predict_plain(&p, threads, out, bound) : status;
}

/* ---- the fast path's plan -----------------------------------------------------------------------------------------*/
typedef struct ng_piece {
    int64_t from, count, padded; /* elements of K, and how many the engine sees */
    int64_t packed;              /* where they stand in a packed row, in elements */
    bool starts;                 /* the chain begins at +0 */
    bool promotes;               /* the chain goes into the main sum */
    bool ends_leaf;              /* pairwise */
    bool starts_inner, ends_inner; /* first and last piece of an inner sum: a scale block, a part, or all */
    bool starts_part, ends_part;
} ng_piece;

typedef struct ng_plan {
    ng_piece *pieces;
    size_t count, capacity;
    int64_t packed; /* elements of one packed row */
} ng_plan;

static ng_status add_piece(ng_plan *plan, ng_piece piece)
{
    if (plan->count == plan->capacity) {
        size_t capacity = plan->capacity ? 2 * plan->capacity : 64;
        void *grown = realloc(plan->pieces, capacity * sizeof *plan->pieces);
        if (!grown) return NG_NO_MEMORY;
        plan->pieces = grown;
        plan->capacity = capacity;
    }
    piece.packed = plan->packed;
    plan->packed += piece.padded;
    plan->pieces[plan->count++] = piece;
    return NG_OK;
}

/* K elements after which the chain restarts within an inner sum; 0: never. */
static int64_t restart_interval(const ng_predictor *p)
{
    if (p->promoted) return (int64_t)p->sum->promote_every * p->sum->mma.k;
    return p->sum->order == NG_SUM_PAIRWISE ? p->sum->leaf : 0;
}

static ng_status plan_inner(const ng_predictor *p, const ng_engine *engine, int64_t from, int64_t to, ng_plan *plan)
{
    int64_t limit = engine->unit > PIECE ? engine->unit : PIECE / engine->unit * engine->unit;
    int64_t interval = restart_interval(p);
    for (int64_t k = from, next; k < to; k = next) {
        int64_t chain = interval ? from + (k - from) / interval * interval : from;
        int64_t chain_end = interval && chain + interval < to ? chain + interval : to;
        next = k + limit < chain_end ? k + limit : chain_end;
        ng_piece piece = {.from = k, .count = next - k, .starts = k == chain, .starts_inner = k == from, .ends_inner = next == to};
        piece.padded = (piece.count + engine->unit - 1) / engine->unit * engine->unit;
        piece.promotes = p->promoted && next == chain_end;
        piece.ends_leaf = p->sum->order == NG_SUM_PAIRWISE && next == chain_end;
        ng_status status = add_piece(plan, piece);
        if (status != NG_OK) return status;
    }
    return NG_OK;
}

static ng_status plan_create(const ng_predictor *p, const ng_engine *engine, ng_plan *plan)
{
    *plan = (ng_plan){0};
    for (int64_t from = 0; from < p->k; from += p->part) {
        int64_t to = from + p->part < p->k ? from + p->part : p->k;
        size_t first = plan->count;
        for (int64_t k = from, end; k < to; k = end) {
            end = p->block ? (k / p->block + 1) * p->block : to;
            if (end > to) end = to;
            ng_status status = plan_inner(p, engine, k, end, plan);
            if (status != NG_OK) return status;
        }
        plan->pieces[first].starts_part = true;
        plan->pieces[plan->count - 1].ends_part = true;
    }
    return NG_OK;
}

/* ---- composition over lanes ---------------------------------------------------------------------------------------*/
typedef struct lanes {
    double value[NG_LANES], bound[NG_LANES];
} lanes;

typedef struct row_state {
    lanes chain, main, scaled, total;
    lanes *stack; /* [STACK_LEVELS], pairwise */
    int64_t leaves;
} row_state;

/* x = fl(x + y) of binary32 values: rounding to binary64 on the way is innocuous. */
static void add_values(lanes *x, const lanes *y)
{
    for (int l = 0; l < NG_LANES; l++)
        x->value[l] = (double)(float)(x->value[l] + y->value[l]);
}

static void add_with_bounds(lanes *x, const lanes *y)
{
    for (int l = 0; l < NG_LANES; l++) {
        double t = x->value[l] + y->value[l], residual = ng_sum_residual(x->value[l], y->value[l], t), f = (double)(float)t;
        x->value[l] = f;
        x->bound[l] += y->bound[l] + ng_rounding_bound((f == t) & (residual == 0), f);
    }
}

/* The same of binary64 values (an FP64 chain's parts). */
static void add_wide(lanes *x, const lanes *y)
{
    for (int l = 0; l < NG_LANES; l++) {
        ng_running s = ng_fl_sum(x->value[l], y->value[l]);
        x->value[l] = s.value;
        x->bound[l] += y->bound[l] + s.bound;
    }
}

static void add_lanes(lanes *x, const lanes *y, bool narrow, bool bounds)
{
    if (!narrow) add_wide(x, y);
    else if (bounds) add_with_bounds(x, y);
    else add_values(x, y);
}

/* A binary counter: leaf number t closes as many pairs as t + 1 has trailing zeros; at the end the rest meets from the right. */
static void push_leaf(row_state *s, bool last, bool bounds)
{
    int64_t waiting = __builtin_popcountll((uint64_t)s->leaves++);
    s->stack[waiting++] = s->chain;
    int64_t keep = last ? 1 : __builtin_popcountll((uint64_t)s->leaves);
    for (; waiting > keep; waiting--)
        add_lanes(&s->stack[waiting - 2], &s->stack[waiting - 1], true, bounds);
}

static void scale_lanes(const ng_predictor *p, const lanes *sum, int64_t i, int64_t j0, int64_t k, lanes *scaled)
{
    for (int l = 0; l < NG_LANES && j0 + l < p->n; l++) {
        ng_running t = ng_apply_scales(p, (ng_running){sum->value[l], sum->bound[l]}, i, j0 + l, k,
                                       (ng_running){scaled->value[l], scaled->bound[l]});
        scaled->value[l] = t.value;
        scaled->bound[l] = t.bound;
    }
}

static void run_piece(const ng_predictor *p, const ng_engine *engine, const ng_piece *piece, const void *a, const void *b,
                      int64_t i, int64_t j0, bool bounds, row_state *s)
{
    bool narrow = p->sum->order != NG_SUM_FP64;
    if (piece->starts) memset(&s->chain, 0, sizeof s->chain);
    if (piece->starts_inner) memset(&s->main, 0, sizeof s->main), s->leaves = 0;
    if (piece->starts_part) memset(&s->scaled, 0, sizeof s->scaled);
    engine->run(p, a, b, piece->padded, s->chain.value, bounds ? s->chain.bound : NULL);
    if (piece->promotes) add_lanes(&s->main, &s->chain, narrow, bounds);
    if (piece->ends_leaf) push_leaf(s, piece->ends_inner, bounds);
    if (!piece->ends_inner) return;
    const lanes *sum = p->promoted ? &s->main : p->sum->order == NG_SUM_PAIRWISE ? &s->stack[0] : &s->chain;
    if (p->block) scale_lanes(p, sum, i, j0, piece->from, &s->scaled), sum = &s->scaled;
    if (!piece->ends_part) return;
    if (piece->from + piece->count > p->part) add_lanes(&s->total, sum, narrow, bounds);
    else s->total = *sum;
}

/* ---- packed operands and tiles ------------------------------------------------------------------------------------*/
enum { PLAIN_ROW = 0, HAS_NAN = 1, HAS_INFINITY = 2 };

typedef struct ng_packed {
    int64_t first, rows; /* of the operand */
    unsigned char *bytes;
    unsigned char *flags; /* [rows] */
    ng_row_rounding *roundings; /* [rows] */
} ng_packed;

static ng_status pack_row(const ng_predictor *p, const ng_engine *engine, const ng_plan *plan, const ng_operand *operand,
                          int64_t row, bool is_b, ng_operand_row *scratch, ng_packed *out)
{
    ng_status status = ng_operand_row_load(p, operand, out->first + row, scratch);
    if (status != NG_OK) return status;
    out->flags[row] = engine->native_specials ? PLAIN_ROW
                                              : (unsigned char)((scratch->has_nan ? HAS_NAN : 0) |
                                                                (scratch->has_infinity ? HAS_INFINITY : 0));
    out->roundings[row] = scratch->rounding;
    size_t bytes = is_b ? engine->b_bytes : engine->a_bytes;
    unsigned char *base = out->bytes + (size_t)(is_b ? row / NG_LANES : row) * (size_t)plan->packed * bytes;
    for (size_t q = 0; q < plan->count; q++) {
        const ng_piece *piece = &plan->pieces[q];
        void *at = base + (size_t)piece->packed * bytes;
        if (is_b) engine->pack_b(p, scratch, piece->from, piece->count, piece->padded, (int)(row % NG_LANES), at);
        else engine->pack_a(p, scratch, piece->from, piece->count, piece->padded, at);
    }
    return NG_OK;
}

static ng_status pack(const ng_predictor *p, const ng_engine *engine, const ng_plan *plan, const ng_operand *operand,
                      bool is_b, int threads, ng_packed *out)
{
    _Atomic int failed = NG_OK;
    if (is_b) memset(out->bytes, 0, (size_t)((out->rows + NG_LANES - 1) / NG_LANES) * (size_t)plan->packed * engine->b_bytes);
#pragma omp parallel num_threads(threads)
    {
        ng_operand_row scratch;
        if (ng_operand_row_create(p, &scratch) != NG_OK) failed = NG_NO_MEMORY;
#pragma omp for schedule(dynamic, NG_LANES)
        for (int64_t row = 0; row < out->rows; row++) {
            if (failed != NG_OK) continue;
            ng_status status = pack_row(p, engine, plan, operand, row, is_b, &scratch, out);
            if (status != NG_OK) failed = (int)status;
        }
        ng_operand_row_free(&scratch);
    }
    return (ng_status)failed;
}

typedef struct ng_tile {
    row_state *rows;
    lanes *stacks;
    ng_operand_row a, b; /* for elements that go the plain way */
} ng_tile;

static int tile_rows(const ng_predictor *p)
{
    return p->sum->order == NG_SUM_PAIRWISE ? 8 : TILE_ROWS; /* a stack each */
}

static ng_status tile_create(const ng_predictor *p, ng_tile *t)
{
    int rows = tile_rows(p);
    ng_status status = NG_NO_MEMORY;
    *t = (ng_tile){.rows = calloc((size_t)rows, sizeof *t->rows)};
    if (!t->rows) return status;
    if (p->sum->order == NG_SUM_PAIRWISE) {
        t->stacks = malloc((size_t)rows * STACK_LEVELS * sizeof *t->stacks);
        if (!t->stacks) return status;
        for (int r = 0; r < rows; r++)
            t->rows[r].stack = t->stacks + (size_t)r * STACK_LEVELS;
    }
    status = ng_operand_row_create(p, &t->a);
    return status == NG_OK ? ng_operand_row_create(p, &t->b) : status;
}

static void tile_free(ng_tile *t)
{
    free(t->rows);
    free(t->stacks);
    ng_operand_row_free(&t->a);
    ng_operand_row_free(&t->b);
}

/* An element with NaN or infinities among its factors. Any NaN makes it NaN. */
static ng_status special_element(const ng_predictor *p, ng_tile *t, int64_t i, int64_t j, bool nan, ng_running *result)
{
    *result = (ng_running){NAN, INFINITY};
    if (nan) return NG_OK;
    ng_status status = ng_operand_row_load(p, p->a, i, &t->a);
    if (status == NG_OK) status = ng_operand_row_load(p, p->b, j, &t->b);
    if (status == NG_OK) *result = ng_predict_element(p, &t->a, &t->b, i, j);
    return status;
}

static ng_status finish_row(const ng_predictor *p, ng_tile *t, const row_state *s, const ng_packed *a, int64_t row,
                            const ng_packed *b, int64_t column, int64_t columns, ng_tensor *out, double *bound)
{
    int64_t i = a->first + row, j0 = b->first + column;
    for (int64_t l = 0; l < columns; l++) {
        unsigned flags = a->flags[row] | b->flags[column + l];
        ng_running result = {s->total.value[l], s->total.bound[l]};
        if (!flags) result = ng_finish(p, result, a->roundings[row], b->roundings[column + l], i, j0 + l);
        else {
            ng_status status = special_element(p, t, i, j0 + l, flags & HAS_NAN, &result);
            if (status != NG_OK) return status;
        }
        ng_store(p, result, i, j0 + l, out, bound);
    }
    return NG_OK;
}

/* Rows [i0, i0 + rows) of the packed A times one panel of NG_LANES packed rows of B. */
static ng_status run_tile(const ng_predictor *p, const ng_engine *engine, const ng_plan *plan, const ng_packed *a,
                          const ng_packed *b, int64_t i0, int64_t rows, int64_t panel, ng_tile *t, ng_tensor *out, double *bound)
{
    int64_t j0 = b->first + panel * NG_LANES, columns = b->rows - panel * NG_LANES;
    if (columns > NG_LANES) columns = NG_LANES;
    const unsigned char *b_base = b->bytes + (size_t)panel * (size_t)plan->packed * engine->b_bytes;
    for (size_t q = 0; q < plan->count; q++) {
        const ng_piece *piece = &plan->pieces[q];
        const void *pb = b_base + (size_t)piece->packed * engine->b_bytes;
        for (int64_t r = 0; r < rows; r++) {
            const void *pa = a->bytes + ((size_t)(i0 + r) * (size_t)plan->packed + (size_t)piece->packed) * engine->a_bytes;
            run_piece(p, engine, piece, pa, pb, a->first + i0 + r, j0, bound != NULL, &t->rows[r]);
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        ng_status status = finish_row(p, t, &t->rows[r], a, i0 + r, b, panel * NG_LANES, columns, out, bound);
        if (status != NG_OK) return status;
    }
    return NG_OK;
}

static ng_status run_panels(const ng_predictor *p, const ng_engine *engine, const ng_plan *plan, const ng_packed *a,
                            const ng_packed *b, int threads, ng_tensor *out, double *bound)
{
    _Atomic int failed = NG_OK;
    int64_t height = tile_rows(p), tiles = (a->rows + height - 1) / height;
    int64_t panels = (b->rows + NG_LANES - 1) / NG_LANES;
#pragma omp parallel num_threads(threads)
    {
        ng_tile t;
        if (tile_create(p, &t) != NG_OK) failed = NG_NO_MEMORY;
#pragma omp for schedule(dynamic)
        for (int64_t work = 0; work < tiles * panels; work++) {
            if (failed != NG_OK) continue;
            int64_t i0 = work / panels * height, rows = a->rows - i0 < height ? a->rows - i0 : height;
            ng_status status = run_tile(p, engine, plan, a, b, i0, rows, work % panels, &t, out, bound);
            if (status != NG_OK) failed = (int)status;
        }
        tile_free(&t);
    }
    return (ng_status)failed;
}

static ng_status packed_create(const ng_plan *plan, size_t bytes, int64_t lanes_of_row, int64_t rows, ng_packed *out)
{
    size_t row = (size_t)plan->packed * bytes, most = panel_bytes / (row / (size_t)lanes_of_row + 1) + NG_LANES;
    int64_t panel = (int64_t)(most / NG_LANES * NG_LANES);
    *out = (ng_packed){.rows = rows < panel ? rows : panel};
    size_t units = (size_t)((out->rows + lanes_of_row - 1) / lanes_of_row);
    size_t size = (units * row + 63) / 64 * 64;
    out->bytes = aligned_alloc(64, size ? size : 64);
    out->flags = calloc((size_t)out->rows + NG_LANES, 1);
    out->roundings = calloc((size_t)out->rows + NG_LANES, sizeof *out->roundings);
    return out->bytes && out->flags && out->roundings ? NG_OK : NG_NO_MEMORY;
}

static void packed_free(ng_packed *x)
{
    free(x->bytes);
    free(x->flags);
    free(x->roundings);
}

static ng_status predict_fast(const ng_predictor *p, const ng_engine *engine, int threads, ng_tensor *out, double *bound)
{
    ng_plan plan;
    ng_packed a = {0}, b = {0};
    ng_status status = plan_create(p, engine, &plan);
    if (status == NG_OK) status = packed_create(&plan, engine->a_bytes, 1, p->m, &a);
    if (status == NG_OK) status = packed_create(&plan, engine->b_bytes, NG_LANES, p->n, &b);
    if (status != NG_OK) goto done;
    int64_t a_panel = a.rows, b_panel = b.rows;
    for (a.first = 0; a.first < p->m; a.first += a_panel) {
        a.rows = p->m - a.first < a_panel ? p->m - a.first : a_panel;
        status = pack(p, engine, &plan, p->a, false, threads, &a);
        if (status != NG_OK) goto done;
        for (b.first = 0; b.first < p->n; b.first += b_panel) {
            b.rows = p->n - b.first < b_panel ? p->n - b.first : b_panel;
            status = pack(p, engine, &plan, p->b, true, threads, &b);
            if (status == NG_OK) status = run_panels(p, engine, &plan, &a, &b, threads, out, bound);
            if (status != NG_OK) goto done;
        }
    }
done:
    free(plan.pieces);
    packed_free(&a);
    packed_free(&b);
    return status;
}

ng_status ng_predict_gemm(const ng_accumulation *sum, const ng_cast *cast, const ng_operand *a, const ng_operand *b,
                          const ng_tensor *initial, int threads, ng_tensor *out, double *bound)
{
    ng_predictor p;
    ng_status status = ng_predictor_create(sum, cast, a, b, initial, out, &p);
    if (status != NG_OK) return status;
    if (threads < 1) threads = 1;
    const ng_engine *engine = p.k > 0 ? ng_engine_choose(&p) : NULL;
    return engine ? predict_fast(&p, engine, threads, out, bound) : predict_plain(&p, threads, out, bound);
}

const ng_engine *ng_engine_choose(const ng_predictor *p)
{
    return p->sum->order == NG_SUM_MMA ? ng_mma_engine(p) : ng_chain_engine(p);
}
