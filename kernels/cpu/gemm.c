/* gemm/<form>/cpu/fp32-chain|fp32-pairwise/<out>-out[-acc]: products in binary32, each term entering with one rounding.
 *
 * A term is fl(s + a*b) with a*b exact, that is, an fma. Where the operands' products always fit binary32 (fp16 and
 * narrower: at most 22 significant bits, exponents -48..31) a multiplication and an addition give the same bits, and the
 * portable path uses them; bf16, tf32 and fp32 products can round, under- or overflow, and take fmaf there.
 *
 * OUT goes in tiles of ROWS x COLUMNS, K in steps of DEPTH; operands are decoded and packed into panels of 6 rows of A and
 * 16 of B, so that a micro-tile's 6 x 16 sums stay in registers. No order of additions depends on the tiling: a micro-tile
 * carries its sums from step to step, and DEPTH holds whole scale blocks and a power of two of pairwise leaves. */
#include "kernels/catalogue.h"
#include "kernels/common/rows.h"
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>
#if NG_HAVE_AVX2
#include <immintrin.h>
#endif

enum {
    MICRO_ROWS = 6,
    MICRO_COLUMNS = 16,
    MICRO = MICRO_ROWS * MICRO_COLUMNS,
    ROWS = 192,    /* of OUT in a tile */
    COLUMNS = 256, /* of OUT in a tile */
    DEPTH = 128,   /* of K in a step */
    STEP_BLOCKS = DEPTH / 16,
    LEVELS = 24,   /* of the tree above the steps: K up to 2^24 * DEPTH */
};

/* ---- micro-tiles --------------------------------------------------------------------------------------------------*/
typedef struct micro_ops {
    /* sum[i][j] continues its chain over k terms: a [k][MICRO_ROWS], b [k][MICRO_COLUMNS] */
    void (*chain)(const float *a, const float *b, int64_t k, float *sum);
    void (*add)(float *into, const float *sum);                                              /* into += sum */
    void (*add_scaled)(float *into, const float *sum, const float *row, const float *column); /* into += (sum * row) * column */
} micro_ops;

NG_ALWAYS_INLINE void add_micro(float *into, const float *sum) {
    for (int i = 0; i < MICRO; i++)
        into[i] += sum[i];
}

NG_ALWAYS_INLINE void add_scaled_micro(float *into, const float *sum, const float *row, const float *column) {
    for (int i = 0; i < MICRO_ROWS; i++)
        for (int j = 0; j < MICRO_COLUMNS; j++)
            into[i * MICRO_COLUMNS + j] += sum[i * MICRO_COLUMNS + j] * row[i] * column[j];
}

static void add_c(float *into, const float *sum) { add_micro(into, sum); }
static void add_scaled_c(float *into, const float *sum, const float *row, const float *column) {
    add_scaled_micro(into, sum, row, column);
}

static void chain_exact_products(const float *a, const float *b, int64_t k, float *sum) {
    for (int64_t p = 0; p < k; p++, a += MICRO_ROWS, b += MICRO_COLUMNS)
        for (int i = 0; i < MICRO_ROWS; i++)
            for (int j = 0; j < MICRO_COLUMNS; j++)
                sum[i * MICRO_COLUMNS + j] += a[i] * b[j];
}

static void chain_fma(const float *a, const float *b, int64_t k, float *sum) {
    for (int64_t p = 0; p < k; p++, a += MICRO_ROWS, b += MICRO_COLUMNS)
        for (int i = 0; i < MICRO_ROWS; i++)
            for (int j = 0; j < MICRO_COLUMNS; j++)
                sum[i * MICRO_COLUMNS + j] = fmaf(a[i], b[j], sum[i * MICRO_COLUMNS + j]);
}

static const micro_ops exact_products_ops = {chain_exact_products, add_c, add_scaled_c};
static const micro_ops fma_ops = {chain_fma, add_c, add_scaled_c};

#if NG_HAVE_AVX2
NG_AVX2 static void add_avx2(float *into, const float *sum) { add_micro(into, sum); }
NG_AVX2 static void add_scaled_avx2(float *into, const float *sum, const float *row, const float *column) {
    add_scaled_micro(into, sum, row, column);
}

/* Twelve accumulators, two vectors of b and one of a: fifteen of the sixteen registers. */
NG_AVX2 static void chain_avx2(const float *a, const float *b, int64_t k, float *sum) {
    __m256 s[MICRO_ROWS][2];
    for (int i = 0; i < MICRO_ROWS; i++) {
        s[i][0] = _mm256_loadu_ps(sum + i * MICRO_COLUMNS);
        s[i][1] = _mm256_loadu_ps(sum + i * MICRO_COLUMNS + 8);
    }
    for (int64_t p = 0; p < k; p++, a += MICRO_ROWS, b += MICRO_COLUMNS) {
        __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
#pragma GCC unroll 6
        for (int i = 0; i < MICRO_ROWS; i++) {
            __m256 ai = _mm256_broadcast_ss(a + i);
            s[i][0] = _mm256_fmadd_ps(ai, b0, s[i][0]);
            s[i][1] = _mm256_fmadd_ps(ai, b1, s[i][1]);
        }
    }
    for (int i = 0; i < MICRO_ROWS; i++) {
        _mm256_storeu_ps(sum + i * MICRO_COLUMNS, s[i][0]);
        _mm256_storeu_ps(sum + i * MICRO_COLUMNS + 8, s[i][1]);
    }
}
static const micro_ops avx2_ops = {chain_avx2, add_avx2, add_scaled_avx2};
#endif

static bool products_fit(ng_format_id format) { return format >= NG_FP16 && format <= NG_E2M1; }

static const micro_ops *choose_ops(const ng_kernel *kernel, const ng_device *device) {
#if NG_HAVE_AVX2
    if (ng_cpu_avx2(device)) return &avx2_ops;
#else
    (void)device;
#endif
    return products_fit(kernel->in) && products_fit(kernel->in_b) ? &exact_products_ops : &fma_ops;
}

/* ---- operands -----------------------------------------------------------------------------------------------------*/
typedef struct operand {
    const ng_tensor *codes, *scales; /* scales NULL: none */
    ng_cpu_decoder elements, scale_codes;
    int64_t block_rows, block_columns;
} operand;

/* Rows [row, row + rows) and columns [k0, k0 + k) of an operand, decoded and packed into panels [ceil(rows / width)][k][width];
 * rows beyond the last are zeros, whose sums are never stored. */
static void pack(const operand *x, int64_t row, int64_t rows, int64_t k0, int64_t k, int64_t width, float *panels) {
    float values[MICRO_COLUMNS][DEPTH];
    for (int64_t first = 0; first < rows; first += width, panels += k * width) {
        int64_t count = ng_cpu_min(width, rows - first);
        for (int64_t i = 0; i < count; i++)
            ng_cpu_decode(&x->elements, ng_cpu_row(x->codes, row + first + i), k0, k, values[i]);
        for (int64_t i = count; i < width; i++)
            memset(values[i], 0, (size_t)k * sizeof(float));
        for (int64_t p = 0; p < k; p++)
            for (int64_t i = 0; i < width; i++)
                panels[p * width + i] = values[i][p];
    }
}

/* Scales of the blocks of K in [k0, k0 + k) of those rows: [block of K][row], zeros beyond the last row up to `pitch`. */
static void pack_scales(const operand *x, int64_t row, int64_t rows, int64_t k0, int64_t k, int64_t pitch, float *scales) {
    int64_t first = k0 / x->block_columns, blocks = (k + x->block_columns - 1) / x->block_columns;
    float values[STEP_BLOCKS];
    memset(scales, 0, (size_t)(blocks * pitch) * sizeof(float));
    for (int64_t i = 0; i < rows; i++) {
        ng_cpu_decode(&x->scale_codes, ng_cpu_row(x->scales, (row + i) / x->block_rows), first, blocks, values);
        for (int64_t b = 0; b < blocks; b++)
            scales[b * pitch + i] = values[b];
    }
}

static float scale_of_row(const operand *x, int64_t row) {
    float scale;
    ng_cpu_decode(&x->scale_codes, ng_cpu_row(x->scales, row / x->block_rows), 0, 1, &scale);
    return scale;
}

/* ---- one tile of OUT ----------------------------------------------------------------------------------------------*/
typedef struct product {
    const ng_kernel *kernel;
    const micro_ops *ops;
    operand a, b;
    const ng_tensor *out;
    ng_caster caster;
    float tensor_scale; /* fl(Da * Db) */
    bool has_tensor_scale;
    int64_t m, n, k, leaf; /* leaf 0: one chain */
    int64_t tile_columns, levels;
} product;

typedef struct scratch {
    float a[ROWS * DEPTH], b[COLUMNS * DEPTH];
    float a_scales[STEP_BLOCKS * ROWS], b_scales[STEP_BLOCKS * COLUMNS];
    float sums[]; /* [levels][ROWS / MICRO_ROWS][COLUMNS / MICRO_COLUMNS][MICRO_ROWS][MICRO_COLUMNS] */
} scratch;

enum { TILE = ROWS * COLUMNS };

/* sum = the terms of one run of K: a chain, or pairwise over chains of `leaf` terms. The stack holds finished subtrees, the
 * larger ones first; equal ones are joined as they meet, and what is left is joined from the smallest up, which is how an odd
 * node passes up a balanced tree. */
static void sum_run(const product *g, const float *a, const float *b, int64_t k, float *sum) {
    float stack[8][MICRO];
    int depth = 0;
    if (!g->leaf) {
        memset(sum, 0, MICRO * sizeof(float));
        g->ops->chain(a, b, k, sum);
        return;
    }
    for (int64_t at = 0, count = 1; at < k; at += g->leaf, count++) {
        memset(stack[depth], 0, sizeof *stack);
        g->ops->chain(a + at * MICRO_ROWS, b + at * MICRO_COLUMNS, ng_cpu_min(g->leaf, k - at), stack[depth++]);
        for (int64_t even = count; even % 2 == 0; even /= 2, depth--)
            g->ops->add(stack[depth - 2], stack[depth - 1]);
    }
    for (; depth > 1; depth--)
        g->ops->add(stack[depth - 2], stack[depth - 1]);
    memcpy(sum, stack[0], sizeof *stack);
}

/* One step of K for one micro-tile whose sums are at `main` (the levels of its tree TILE apart). */
static void micro_step(const product *g, const scratch *s, const float *a, const float *b, int64_t row, int64_t column, int64_t k,
                       int64_t depth, int64_t count, float *main) {
    float sum[MICRO];
    if (g->kernel->contract.sum.scales == NG_SCALES_BLOCK_SEQUENTIAL) {
        int64_t block = g->a.block_columns;
        for (int64_t at = 0, i = 0; at < k; at += block, i++) {
            sum_run(g, a + at * MICRO_ROWS, b + at * MICRO_COLUMNS, ng_cpu_min(block, k - at), sum);
            g->ops->add_scaled(main, sum, s->a_scales + i * ROWS + row, s->b_scales + i * COLUMNS + column);
        }
    } else if (g->leaf) {
        float *top = main + depth * TILE;
        sum_run(g, a, b, k, top);
        for (; count % 2 == 0; count /= 2, top -= TILE)
            g->ops->add(top - TILE, top);
    } else {
        g->ops->chain(a, b, k, main);
    }
}

static float finish(const product *g, float sum, float sa, float sb, float *into) {
    const ng_contract *contract = &g->kernel->contract;
    if (contract->sum.scales == NG_SCALES_AFTER) sum = sum * sa * sb;
    if (g->has_tensor_scale) sum *= g->tensor_scale;
    return contract->accumulate_into ? sum + *into : sum;
}

static void store_tile(const product *g, int64_t row0, int64_t rows, int64_t column0, int64_t columns, const float *sums) {
    const bool after = g->kernel->contract.sum.scales == NG_SCALES_AFTER;
    float column_scales[COLUMNS];
    uint32_t codes[COLUMNS];
    for (int64_t j = 0; j < columns; j++)
        column_scales[j] = after ? scale_of_row(&g->b, column0 + j) : 1.0f;
    for (int64_t i = 0; i < rows; i++) {
        uint8_t *out = ng_cpu_row(g->out, row0 + i);
        float row_scale = after ? scale_of_row(&g->a, row0 + i) : 1.0f;
        const float *strip = sums + i / MICRO_ROWS * (COLUMNS * MICRO_ROWS) + i % MICRO_ROWS * MICRO_COLUMNS;
        for (int64_t j = 0; j < columns; j++) {
            float before = 0.0f, sum = strip[j / MICRO_COLUMNS * MICRO + j % MICRO_COLUMNS];
            if (g->kernel->contract.accumulate_into) before = ((const ng_f32 *)out)[column0 + j];
            uint32_t bits = ng_bits(finish(g, sum, row_scale, column_scales[j], &before));
            if (g->kernel->out != NG_FP32) codes[j] = ng_cast_code(&g->caster, NG_RN_EVEN, bits);
            else codes[j] = (bits & NG_ABS_MASK) > NG_INF_BITS ? NG_NAN_BITS : bits;
        }
        ng_cpu_store(g->kernel->out, codes, columns, out, column0);
    }
}

static void compute_tile(const product *g, int64_t row0, int64_t column0, scratch *s) {
    const int64_t rows = ng_cpu_min(ROWS, g->m - row0), columns = ng_cpu_min(g->tile_columns, g->n - column0);
    const bool blocks = g->kernel->contract.sum.scales == NG_SCALES_BLOCK_SEQUENTIAL;
    int64_t depth = 0, count = 1;
    memset(s->sums, 0, TILE * sizeof(float));
    for (int64_t k0 = 0; k0 < g->k; k0 += DEPTH, count++) {
        int64_t k = ng_cpu_min(DEPTH, g->k - k0);
        pack(&g->a, row0, rows, k0, k, MICRO_ROWS, s->a);
        pack(&g->b, column0, columns, k0, k, MICRO_COLUMNS, s->b);
        if (blocks) {
            pack_scales(&g->a, row0, rows, k0, k, ROWS, s->a_scales);
            pack_scales(&g->b, column0, columns, k0, k, COLUMNS, s->b_scales);
        }
        for (int64_t j = 0; j < columns; j += MICRO_COLUMNS)
            for (int64_t i = 0; i < rows; i += MICRO_ROWS)
                micro_step(g, s, s->a + i * k, s->b + j * k, i, j, k, depth, count,
                           s->sums + i * COLUMNS + j * MICRO_ROWS);
        if (!g->leaf || blocks) continue;
        depth++;
        for (int64_t even = count; even % 2 == 0; even /= 2)
            depth--;
    }
    for (; depth > 1; depth--) /* a pairwise tree's unequal subtrees, smallest first */
        for (int64_t i = 0; i < TILE; i += MICRO)
            g->ops->add(s->sums + (depth - 2) * TILE + i, s->sums + (depth - 1) * TILE + i);
    store_tile(g, row0, rows, column0, columns, s->sums);
}

/* ---- launch -------------------------------------------------------------------------------------------------------*/
static ng_status prepare_operand(const ng_launch *launch, const ng_quantization *q, ng_role codes, ng_role scales,
                                 ng_role tensor_scale, int64_t rows, int64_t k, operand *x) {
    ng_status status = ng_cpu_check(launch, codes, q->element, rows, k);
    const bool scaled = q->rule != NG_SCALE_ABSENT;
    if (!status && scaled)
        status = ng_cpu_check(launch, scales, q->scale, ng_cpu_blocks(q->blocks.rows, rows), ng_cpu_blocks(q->blocks.columns, k));
    if (!status && q->tensor_scale) status = ng_cpu_check(launch, tensor_scale, NG_FP32, 1, 1);
    if (status) return status;
    x->codes = &launch->tensors[codes];
    x->scales = scaled ? &launch->tensors[scales] : NULL;
    x->block_rows = ng_cpu_block(q->blocks.rows, rows);
    x->block_columns = ng_cpu_block(q->blocks.columns, k);
    ng_cpu_decoder_init(&x->elements, q->element);
    if (scaled) ng_cpu_decoder_init(&x->scale_codes, q->scale);
    return NG_OK;
}

static void prepare_tensor_scale(const ng_launch *launch, product *g) {
    const ng_contract *contract = &g->kernel->contract;
    g->has_tensor_scale = contract->a.tensor_scale || contract->b.tensor_scale;
    float da = contract->a.tensor_scale ? *(const ng_f32 *)launch->tensors[NG_A_TENSOR_SCALE].data : 1.0f;
    float db = contract->b.tensor_scale ? *(const ng_f32 *)launch->tensors[NG_B_TENSOR_SCALE].data : 1.0f;
    g->tensor_scale = da * db;
}

/* Enough tiles for the threads; levels for the steps of a pairwise tree. */
static void plan_tiles(const ng_contract *contract, int threads, product *g) {
    int64_t steps = (g->k + DEPTH - 1) / DEPTH;
    g->tile_columns = COLUMNS;
    while (g->tile_columns > MICRO_COLUMNS &&
           ((g->m + ROWS - 1) / ROWS) * ((g->n + g->tile_columns - 1) / g->tile_columns) < 2 * threads)
        g->tile_columns /= 2;
    g->levels = 1;
    if (contract->sum.order == NG_SUM_PAIRWISE && contract->sum.scales != NG_SCALES_BLOCK_SEQUENTIAL)
        for (; steps; steps /= 2)
            g->levels++;
}

static ng_status launch_gemm(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_contract *contract = &kernel->contract;
    const ng_problem *problem = launch->problem;
    const int threads = ng_cpu_team(launch->device, problem->m * problem->n / 64 * problem->k);
    ng_status status;
    product *g = calloc(1, sizeof *g);
    scratch *all = NULL;
    size_t bytes = 0;
    if (!g) return ng_cpu_fail(launch, NG_NO_MEMORY, "no memory for a product");
    *g = (product){.kernel = kernel, .ops = choose_ops(kernel, launch->device), .m = problem->m, .n = problem->n, .k = problem->k};
    g->out = &launch->tensors[NG_OUT];
    g->leaf = contract->sum.order == NG_SUM_PAIRWISE ? contract->sum.leaf : 0;
    g->caster = ng_caster_of(kernel->out, &contract->cast);
    status = prepare_operand(launch, &contract->a, NG_A, NG_A_SCALES, NG_A_TENSOR_SCALE, g->m, g->k, &g->a);
    if (!status) status = prepare_operand(launch, &contract->b, NG_B, NG_B_SCALES, NG_B_TENSOR_SCALE, g->n, g->k, &g->b);
    if (!status) status = ng_cpu_check(launch, NG_OUT, kernel->out, g->m, g->n);
    if (status) goto done;
    prepare_tensor_scale(launch, g);
    plan_tiles(contract, threads, g);
    bytes = sizeof(scratch) + (size_t)g->levels * TILE * sizeof(float);
    all = malloc((size_t)threads * bytes);
    if (!all) {
        status = ng_cpu_fail(launch, NG_NO_MEMORY, "no memory for the tiles of %d threads", threads);
        goto done;
    }
    const int64_t down = (g->m + ROWS - 1) / ROWS, across = (g->n + g->tile_columns - 1) / g->tile_columns;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t tile = 0; tile < down * across; tile++)
        compute_tile(g, tile % down * ROWS, tile / down * g->tile_columns, (scratch *)((char *)all + (size_t)ng_cpu_thread() * bytes));
done:
    free(all);
    free(g);
    return status;
}

/* The block forms of DeepSeek-V3: weights in 128 x 128 blocks enter fprop and dgrad; wgrad has 1 x 128 on both sides. */
static const char *supports_gemm(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device) {
    const ng_blocks a = kernel->contract.a.blocks, b = kernel->contract.b.blocks;
    if (a.columns == 128 && b.rows == 128 && problem->phase == NG_WGRAD) return "a weight gradient has no operand in 128x128 blocks";
    if (a.columns == 128 && a.rows == 1 && b.rows == 1 && (problem->phase == NG_FPROP || problem->phase == NG_DGRAD))
        return "the weight is quantized in 128x128 blocks";
    return ng_cpu_supports(kernel, problem, device);
}

/* ---- catalogue ----------------------------------------------------------------------------------------------------*/
#define GEMM(form, order_name, out_name, suffix, in_a, in_b_, out_, qa, qb, order_, leaf_, place, fused_, into)     \
    {.name = "gemm/" form "/cpu/" order_name "/" out_name "-out" suffix, .op = NG_OP_GEMM, .backend = NG_BACKEND_CPU, \
     .in = in_a, .in_b = in_b_, .out = out_,                                                                        \
     .contract = {.cast = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL}, .a = qa(in_a), .b = qb(in_b_),     \
                  .sum = {.order = order_, .leaf = leaf_, .scales = place, .fused = fused_},                        \
                  .accumulate_into = into, .determinism = NG_DETERMINISTIC},                                        \
     .supports = supports_gemm, .launch = launch_gemm},
#define NG_GEMM_CHAIN(form, out_name, suffix, a, b, out, qa, qb, place, fused, into) \
    GEMM(form, "fp32-chain", out_name, suffix, a, b, out, qa, qb, NG_SUM_CHAIN, 0, place, fused, into)
#define NG_GEMM_PAIRWISE(form, out_name, suffix, a, b, out, qa, qb, leaf, place, fused, into) \
    GEMM(form, "fp32-pairwise", out_name, suffix, a, b, out, qa, qb, NG_SUM_PAIRWISE, leaf, place, fused, into)

static const ng_kernel kernels[] = {NG_GEMM_ROWS};

const ng_kernel_list ng_cpu_gemms = {kernels, sizeof kernels / sizeof *kernels};
