/* Products of emulated tensor cores: any contract of order NG_SUM_MMA, at the speed of the vector units (mma.h says how).
 * A tile of OUT walks along K in chunks: both operands are decoded and packed, the steps run with rounding toward zero,
 * outputs of rows and columns with a NaN or an infinity are computed again one by one, and where the contract promotes, the
 * chains are folded into main sums with rounding to nearest. */
#include "mma_gemm.h"

#include "kernels/cpu/cpu.h"
#include "mma.h"

#include <fenv.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>

enum { TILE = NG_MMA_TILE, DEPTH = NG_MMA_DEPTH, MOST_SCALES = DEPTH / 16, LEAST_TILE = 32 };

typedef enum arithmetic { SINGLE, DOUBLE, DOTS } arithmetic;

typedef struct operand {
    const ng_tensor *codes, *scales;
    const ng_quantization *quantization;
    ng_cpu_decoder decode, decode_scale;
    int floor, scale_floor; /* of raw exponents */
    float tensor_scale;
} operand;

typedef struct product {
    const ng_kernel *kernel;
    const ng_accumulation *sum;
    const ng_mma *mma;
    const ng_mma_steps *steps;
    arithmetic arithmetic;
    int64_t m, n, k, interval; /* K elements between promotions; 0: none */
    operand a, b;
    const ng_tensor *out;
    ng_caster caster;
    float tensor_scale;
    int tile; /* rows and columns of a tile */
} product;

typedef struct worker { /* what one thread needs for one tile */
    _Alignas(64) unsigned char a[TILE * DEPTH * 8], b[TILE * DEPTH * 8];
    _Alignas(64) int16_t a_exponents[TILE * DEPTH], b_exponents[TILE * DEPTH];
    _Alignas(64) int16_t a_scale_exponents[TILE * MOST_SCALES], b_scale_exponents[TILE * MOST_SCALES];
    _Alignas(64) double a_scale_values[TILE * MOST_SCALES], b_scale_values[TILE * MOST_SCALES];
    _Alignas(64) float buffers[2][TILE * TILE], main[TILE * TILE], total[TILE * TILE];
    bool a_special[TILE], b_special[TILE];
    int64_t row, column; /* of OUT */
    int rows, columns;
    float *c, *d;        /* the two buffers */
} worker;

/* ---- what the arithmetic can do -----------------------------------------------------------------------------------*/

static int smallest_exponent(ng_format_id format) {
    switch (format) {
    case NG_E4M3:
    case NG_UE4M3: return -6;
    case NG_E5M2:
    case NG_FP16: return -14;
    case NG_E3M2: return -2;
    case NG_E2M3:
    case NG_E2M1: return 0;
    case NG_E8M0: return -127;
    default: return -126;
    }
}

static bool is_small(ng_format_id format) { return ng_cpu_row_bytes(format, 2) <= 2; }

static arithmetic arithmetic_of(const ng_kernel *kernel) {
    const ng_mma *mma = &kernel->contract.sum.mma;
    if (mma->dot) return DOTS;
    bool fits = mma->fraction_bits < 23 && 4 * mma->group <= 1 << (23 - mma->fraction_bits);
    return fits && !mma->scales_inside && is_small(kernel->in) && is_small(kernel->in_b) ? SINGLE : DOUBLE;
}

static int depth_of(arithmetic how) { return how == DOUBLE ? DEPTH / 2 : DEPTH; }

static bool sound_step(const ng_kernel *kernel) {
    const ng_mma *mma = &kernel->contract.sum.mma;
    if (!mma->group || mma->k % mma->group || depth_of(arithmetic_of(kernel)) % mma->k) return false;
    if (mma->interleave && (mma->interleave != 2 || mma->k != 2 * mma->group || mma->k % 4)) return false;
    if (mma->scales_inside && (!mma->scale_block || mma->k % mma->scale_block || mma->scale_block < 16)) return false;
    if (mma->output_bits > 23 || mma->fraction_bits > 46) return false;
    if (!mma->dot) return 4 * mma->group <= 1ll << (52 - mma->fraction_bits) && (!mma->scales_inside || mma->group <= mma->scale_block);
    /* a scaled dot of n e2m1 products is below 4 * 36 n */
    return mma->scales_inside && mma->group % mma->dot == 0 && mma->group / mma->dot <= NG_MMA_DOTS &&
           mma->scale_block % mma->dot == 0 && 144 * mma->group <= 1ll << (52 - mma->fraction_bits) &&
           kernel->in == NG_E2M1 && kernel->in_b == NG_E2M1;
}

static bool is_block_place(ng_scale_place place) {
    return place == NG_SCALES_BLOCK_SEQUENTIAL || place == NG_SCALES_BLOCK_FMA_PRODUCT || place == NG_SCALES_BLOCK_FMA_SECOND;
}

const char *ng_mma_supports(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device) {
    const ng_accumulation *sum = &kernel->contract.sum;
    if (sum->order != NG_SUM_MMA || !sound_step(kernel)) return "not a tensor-core step that the emulation computes exactly";
    if (sum->scales_swapped || sum->scales == NG_SCALES_AFTER_AT_ONCE) return "scales that enter in this order are not emulated";
    if (is_block_place(sum->scales) &&
        (kernel->contract.a.blocks.columns != (uint32_t)sum->promote_every * sum->mma.k ||
         kernel->contract.b.blocks.columns != kernel->contract.a.blocks.columns || sum->split_k > 1))
        return "scale blocks must be as long as the stretch between promotions";
    return ng_cpu_supports(kernel, problem, device);
}

/* ---- packing ------------------------------------------------------------------------------------------------------*/

static int64_t scale_row(const operand *o, int64_t row, int64_t extent) {
    return row / ng_cpu_block(o->quantization->blocks.rows, extent);
}

static float scale_at(const operand *o, int64_t row, int64_t column) {
    float value;
    ng_cpu_decode(&o->decode_scale, ng_cpu_row(o->scales, row), column, 1, &value);
    return value;
}

/* Where an element of a step goes in the order of the groups. */
static int place_of(const ng_mma *mma, int k) {
    if (!mma->interleave) return k;
    int in_step = k % mma->k;
    return k - in_step + in_step % 4 / 2 * mma->group + in_step / 4 * 2 + in_step % 2;
}

/* The elements [k0, k1) of a row in the order of the groups, zeros up to depth. */
static void load_row(const product *p, const operand *o, int64_t row, int64_t k0, int64_t k1, int depth, float *x) {
    float straight[DEPTH];
    memset(x, 0, (size_t)depth * sizeof *x);
    float *to = p->mma->interleave ? straight : x;
    ng_cpu_decode(&o->decode, ng_cpu_row(o->codes, row), k0, k1 - k0, to);
    if (p->mma->interleave)
        for (int k = 0; k < k1 - k0; k++)
            x[place_of(p->mma, k)] = straight[k];
}

/* Replaces NaN and infinities by 0 and says whether there were any. */
static bool silence(float *x, int depth) {
    uint32_t any = 0;
    for (int k = 0; k < depth; k++) {
        uint32_t special = (ng_bits(x[k]) & NG_INF_BITS) == NG_INF_BITS;
        x[k] = special ? 0 : x[k];
        any |= special;
    }
    return any;
}

static void raw_exponents(const float *x, int depth, int floor, int16_t *exponent, int64_t stride) {
    for (int k = 0; k < depth; k++) {
        int field = (int)(ng_bits(x[k]) >> 23 & 0xFF) - 127;
        exponent[k * stride] = (int16_t)(x[k] == 0 ? NG_MMA_ZERO : field > floor ? field : floor);
    }
}

static void pack_a_row(const product *p, worker *w, int i, int depth, const float *x) {
    const int width = p->steps->width;
    raw_exponents(x, depth, p->a.floor, w->a_exponents + i * depth, 1);
    switch (p->arithmetic) {
    case SINGLE:
        for (int k = 0; k < depth; k++)
            ((ng_mma_single *)w->a)[i * depth + k] = (ng_mma_single){fabsf(x[k]), x[k] < 0 ? width : 0};
        break;
    case DOUBLE:
        for (int k = 0; k < depth; k++)
            ((ng_mma_double *)w->a)[i * depth + k] = (ng_mma_double){fabs((double)x[k]), x[k] < 0 ? width : 0};
        break;
    case DOTS: memcpy((float *)w->a + i * depth, x, (size_t)depth * sizeof *x);
    }
}

static void pack_b_column(const product *p, worker *w, int j, int depth, const float *x) {
    const int width = p->steps->width, panel = j / width * depth * width, lane = j % width;
    raw_exponents(x, depth, p->b.floor, w->b_exponents + panel + lane, width);
    float *single = (float *)w->b + 2 * panel + lane, *dots = (float *)w->b + panel + lane;
    double *fp64 = (double *)w->b + 2 * panel + lane;
    switch (p->arithmetic) {
    case SINGLE:
        for (int k = 0; k < depth; k++) {
            single[2 * k * width] = x[k] > 0 ? x[k] : 0;
            single[(2 * k + 1) * width] = x[k] < 0 ? -x[k] : 0;
        }
        break;
    case DOUBLE:
        for (int k = 0; k < depth; k++) {
            fp64[2 * k * width] = x[k] > 0 ? (double)x[k] : 0;
            fp64[(2 * k + 1) * width] = x[k] < 0 ? -(double)x[k] : 0;
        }
        break;
    case DOTS:
        for (int k = 0; k < depth; k++)
            dots[k * width] = x[k];
    }
}

/* The scales over [k0, k0 + depth) of one row, values and exponents; those past the end are 0. Returns whether one is NaN. */
static bool pack_scales(const product *p, const operand *o, int64_t row, int64_t extent, int64_t k0, int depth,
                        int64_t stride, double *value, int16_t *exponent) {
    bool special = false;
    for (int s = 0; s < depth / p->mma->scale_block; s++, value += stride, exponent += stride) {
        int64_t column = k0 / p->mma->scale_block + s;
        float scale = column < o->scales->columns ? scale_at(o, scale_row(o, row, extent), column) : 0;
        special |= isnan(scale);
        *value = isnan(scale) ? 0 : (double)scale;
        int field = *value > 0 ? ilogb(*value) : 0;
        *exponent = (int16_t)(field > o->scale_floor ? field : o->scale_floor);
    }
    return special;
}

static void pack(const product *p, worker *w, int64_t k0, int64_t k1, const ng_mma_job *job) {
    const int width = p->steps->width, depth = job->depth;
    float x[DEPTH];
    for (int i = 0; i < job->rows; i++) {
        if (i < w->rows) load_row(p, &p->a, w->row + i, k0, k1, depth, x);
        else memset(x, 0, sizeof x);
        w->a_special[i] = silence(x, depth);
        pack_a_row(p, w, i, depth, x);
        if (job->scales)
            w->a_special[i] |= pack_scales(p, &p->a, w->row + ng_cpu_min(i, w->rows - 1), p->m, k0, depth, 1,
                                           w->a_scale_values + i * job->scales, w->a_scale_exponents + i * job->scales);
    }
    for (int j = 0; j < job->panels * width; j++) {
        if (j < w->columns) load_row(p, &p->b, w->column + j, k0, k1, depth, x);
        else memset(x, 0, sizeof x);
        w->b_special[j] = silence(x, depth);
        pack_b_column(p, w, j, depth, x);
        if (!job->scales) continue;
        int place = j / width * job->scales * width + j % width;
        w->b_special[j] |= pack_scales(p, &p->b, w->column + ng_cpu_min(j, w->columns - 1), p->n, k0, depth, width,
                                       w->b_scale_values + place, w->b_scale_exponents + place);
    }
}

/* ---- a tile -------------------------------------------------------------------------------------------------------*/

static void scales_of(const product *p, const operand *o, int64_t row, int64_t extent, int64_t k0, int depth, double *value) {
    int16_t exponent[MOST_SCALES];
    if (pack_scales(p, o, row, extent, k0, depth, 1, value, exponent))
        for (int s = 0; s < depth / p->mma->scale_block; s++) { /* NaN was silenced */
            int64_t column = k0 / p->mma->scale_block + s;
            if (column < o->scales->columns) value[s] = (double)scale_at(o, scale_row(o, row, extent), column);
        }
}

/* The outputs of rows and columns with a NaN or an infinity, from c into d. */
static void careful_outputs(const product *p, worker *w, int64_t k0, int64_t k1, const ng_mma_job *job) {
    float a[DEPTH], b[DEPTH];
    double a_scales[MOST_SCALES], b_scales[MOST_SCALES];
    for (int i = 0; i < w->rows; i++) {
        bool loaded = false;
        for (int j = 0; j < w->columns; j++) {
            if (!w->a_special[i] && !w->b_special[j]) continue;
            if (!loaded) {
                load_row(p, &p->a, w->row + i, k0, k1, job->depth, a);
                if (job->scales) scales_of(p, &p->a, w->row + i, p->m, k0, job->depth, a_scales);
                loaded = true;
            }
            load_row(p, &p->b, w->column + j, k0, k1, job->depth, b);
            if (job->scales) scales_of(p, &p->b, w->column + j, p->n, k0, job->depth, b_scales);
            w->d[i * TILE + j] = ng_mma_careful(job, a, p->a.floor, b, p->b.floor, job->scales ? a_scales : NULL,
                                                job->scales ? b_scales : NULL, p->a.scale_floor, w->c[i * TILE + j]);
        }
    }
}

static void run_chunk(const product *p, worker *w, int64_t k0, int64_t k1) {
    const ng_mma *mma = p->mma;
    const int depth = (int)((k1 - k0 + mma->k - 1) / mma->k * mma->k), width = p->steps->width;
    ng_mma_job job = {
        .rows = (w->rows + 1) / 2 * 2,
        .panels = (w->columns + width - 1) / width,
        .groups = depth / mma->group,
        .group = mma->group,
        .depth = depth,
        .fraction_bits = mma->fraction_bits,
        .min_exponent = mma->min_exponent,
        .mask = ~0u << (23 - mma->output_bits),
        .wide = mma->scales_inside || p->a.floor < -14 || p->b.floor < -14,
        .a = w->a, .a_exponents = w->a_exponents, .b = w->b, .b_exponents = w->b_exponents,
        .dot = mma->dot, .scale_block = mma->scale_block,
        .scales = mma->scales_inside ? depth / mma->scale_block : 0,
        .a_scale_exponents = mma->scales_inside ? w->a_scale_exponents : NULL,
        .b_scale_exponents = mma->scales_inside ? w->b_scale_exponents : NULL,
        .a_scale_values = w->a_scale_values, .b_scale_values = w->b_scale_values,
        .c = w->c, .d = w->d,
    };
    pack(p, w, k0, k1, &job);
    fesetround(FE_TOWARDZERO);
    switch (p->arithmetic) {
    case SINGLE: p->steps->single(&job); break;
    case DOUBLE: p->steps->fp64(&job); break;
    case DOTS: p->steps->dots(&job);
    }
    careful_outputs(p, w, k0, k1, &job);
    fesetround(FE_TONEAREST);
    float *c = w->c;
    w->c = w->d;
    w->d = c;
}

/* Adds the chains over the stretch of K that ends at k1 to the main sums and restarts them. */
static void promote(const product *p, worker *w, int64_t k1) {
    const bool scaled = is_block_place(p->sum->scales);
    const int64_t block = scaled ? (k1 - 1) / p->interval : 0;
    float b_scales[TILE];
    for (int j = 0; scaled && j < w->columns; j++)
        b_scales[j] = scale_at(&p->b, scale_row(&p->b, w->column + j, p->n), block);
    for (int i = 0; i < w->rows; i++) {
        float a_scale = scaled ? scale_at(&p->a, scale_row(&p->a, w->row + i, p->m), block) : 1;
        p->steps->fold(p->sum->scales, w->columns, w->c + i * TILE, a_scale, b_scales, w->main + i * TILE);
    }
    memset(w->c, 0, sizeof w->buffers[0]);
}

/* The sum over [k0, end) into w->c or, where chains are promoted, into w->main. */
static void run_part(const product *p, worker *w, int64_t k0, int64_t end) {
    const int depth = depth_of(p->arithmetic);
    memset(w->c, 0, sizeof w->buffers[0]);
    if (p->interval) memset(w->main, 0, sizeof w->main);
    for (int64_t start = k0; k0 < end;) {
        int64_t stop = p->interval ? ng_cpu_min(end, start + p->interval) : end;
        int64_t k1 = ng_cpu_min(stop, k0 + depth);
        run_chunk(p, w, k0, k1);
        if (p->interval && k1 == stop) promote(p, w, k1), start = stop;
        k0 = k1;
    }
}

/* Scales, tensor scale, what OUT holds; then the cast. Each operation rounds once. */
static void store_row(const product *p, const worker *w, int i, const float *sums) {
    float y[TILE];
    uint32_t codes[TILE];
    const int n = w->columns;
    memcpy(y, sums, (size_t)n * sizeof *y);
    if (p->sum->scales == NG_SCALES_AFTER && p->a.scales) {
        float a_scale = scale_at(&p->a, scale_row(&p->a, w->row + i, p->m), 0);
        for (int j = 0; j < n; j++)
            y[j] = y[j] * a_scale;
    }
    if (p->sum->scales == NG_SCALES_AFTER && p->b.scales)
        for (int j = 0; j < n; j++)
            y[j] = y[j] * scale_at(&p->b, scale_row(&p->b, w->column + j, p->n), 0);
    if (p->kernel->contract.a.tensor_scale || p->kernel->contract.b.tensor_scale)
        for (int j = 0; j < n; j++)
            y[j] = y[j] * p->tensor_scale;
    uint8_t *row = ng_cpu_row(p->out, w->row + i);
    if (p->kernel->contract.accumulate_into)
        for (int j = 0; j < n; j++)
            y[j] = y[j] + ((const ng_f32 *)row)[w->column + j];
    const ng_cast *cast = &p->kernel->contract.cast;
    for (int j = 0; j < n; j++)
        if (p->kernel->out != NG_FP32) codes[j] = ng_cast_code(&p->caster, cast->rounding, ng_bits(y[j]));
        else codes[j] = isnan(y[j]) ? NG_NAN_BITS : ng_bits(y[j]);
    ng_cpu_store(p->kernel->out, codes, n, row, w->column);
}

static void run_tile(const product *p, worker *w) {
    const int parts = p->sum->split_k > 1 ? p->sum->split_k : 1;
    const int64_t tile = p->sum->split_tile ? p->sum->split_tile : p->mma->k;
    const int64_t tiles = p->k / tile + (p->k % tile != 0), share = (tiles + parts - 1) / parts * tile;
    const int saved = fegetround();
    fesetround(FE_TONEAREST);
    w->c = w->buffers[0];
    w->d = w->buffers[1];
    const float *sums = NULL;
    for (int part = 0; part < parts; part++) {
        int64_t k0 = ng_cpu_min(part * share, p->k);
        run_part(p, w, k0, ng_cpu_min(k0 + share, p->k));
        sums = p->interval ? w->main : w->c;
        if (parts == 1) break;
        if (part == 0) memcpy(w->total, sums, sizeof w->total);
        for (int i = 0; part > 0 && i < w->rows; i++)
            p->steps->fold(NG_SCALES_NONE, w->columns, sums + i * TILE, 1, NULL, w->total + i * TILE);
        sums = w->total;
    }
    for (int i = 0; i < w->rows; i++)
        store_row(p, w, i, sums + i * TILE);
    fesetround(saved);
}

/* ---- launch -------------------------------------------------------------------------------------------------------*/

static const ng_mma_steps *choose_steps(const ng_device *device) {
#if defined(__x86_64__)
    if (ng_cpu_avx2(device))
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                   ? &ng_mma_avx512
                   : &ng_mma_avx2;
#endif
    (void)device;
    return &ng_mma_portable;
}

static ng_status bind_operand(const ng_launch *launch, ng_role role, ng_format_id format, int64_t rows, int64_t k,
                              const ng_quantization *quantization, const ng_mma *mma, operand *o) {
    const ng_role scales = role == NG_A ? NG_A_SCALES : NG_B_SCALES;
    const ng_role tensor = role == NG_A ? NG_A_TENSOR_SCALE : NG_B_TENSOR_SCALE;
    *o = (operand){.codes = &launch->tensors[role], .quantization = quantization, .tensor_scale = 1};
    ng_status status = ng_cpu_check(launch, role, format, rows, k);
    if (status) return status;
    ng_cpu_decoder_init(&o->decode, format);
    o->floor = mma->interleave ? smallest_exponent(NG_FP16) : smallest_exponent(format);
    if (quantization->rule != NG_SCALE_ABSENT) {
        status = ng_cpu_check(launch, scales, quantization->scale, ng_cpu_blocks(quantization->blocks.rows, rows),
                              ng_cpu_blocks(quantization->blocks.columns, k));
        if (status) return status;
        o->scales = &launch->tensors[scales];
        o->scale_floor = smallest_exponent(quantization->scale);
        ng_cpu_decoder_init(&o->decode_scale, quantization->scale);
    }
    if (quantization->tensor_scale) {
        status = ng_cpu_check(launch, tensor, NG_FP32, 1, 1);
        if (status) return status;
        o->tensor_scale = *(const ng_f32 *)launch->tensors[tensor].data;
    }
    return NG_OK;
}

/* The largest tiles that still give every thread two. */
static int tile_of(int64_t m, int64_t n, int threads) {
    int tile = TILE;
    while (tile > LEAST_TILE && ((m + tile - 1) / tile) * ((n + tile - 1) / tile) < 2 * threads)
        tile /= 2;
    return tile;
}

ng_status ng_mma_launch(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *problem = launch->problem;
    const ng_contract *contract = &kernel->contract;
    const char *reason = ng_mma_supports(kernel, problem, launch->device);
    if (reason) return ng_cpu_fail(launch, NG_UNSUPPORTED, "%s", reason);
    const int threads = ng_cpu_threads(launch->device);
    product p = {.kernel = kernel, .sum = &contract->sum, .mma = &contract->sum.mma,
                 .steps = choose_steps(launch->device), .arithmetic = arithmetic_of(kernel),
                 .m = problem->m, .n = problem->n, .k = problem->k,
                 .interval = (int64_t)contract->sum.promote_every * contract->sum.mma.k,
                 .out = &launch->tensors[NG_OUT], .caster = ng_caster_of(kernel->out, &contract->cast),
                 .tile = tile_of(problem->m, problem->n, threads)};
    ng_status status = bind_operand(launch, NG_A, kernel->in, p.m, p.k, &contract->a, p.mma, &p.a);
    if (!status) status = bind_operand(launch, NG_B, kernel->in_b, p.n, p.k, &contract->b, p.mma, &p.b);
    if (!status) status = ng_cpu_check(launch, NG_OUT, kernel->out, p.m, p.n);
    if (status) return status;
    if (contract->accumulate_into && kernel->out != NG_FP32)
        return ng_cpu_fail(launch, NG_UNSUPPORTED, "accumulation into an output that is not fp32");
    if ((p.mma->scales_inside || is_block_place(p.sum->scales)) && (!p.a.scales || !p.b.scales))
        return ng_cpu_fail(launch, NG_BAD_ARGUMENT, "both operands need block scales");
    p.tensor_scale = p.a.tensor_scale * p.b.tensor_scale;

    worker *workers = aligned_alloc(64, (size_t)threads * sizeof *workers);
    if (!workers) return ng_cpu_fail(launch, NG_NO_MEMORY, "no memory for the packed operands of %d threads", threads);
    const int64_t down = (p.m + p.tile - 1) / p.tile, across = (p.n + p.tile - 1) / p.tile;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t t = 0; t < down * across; t++) {
        worker *w = &workers[omp_get_thread_num()];
        w->row = t / across * p.tile;
        w->column = t % across * p.tile;
        w->rows = (int)ng_cpu_min(p.tile, p.m - w->row);
        w->columns = (int)ng_cpu_min(p.tile, p.n - w->column);
        run_tile(&p, w);
    }
    free(workers);
    return NG_OK;
}
