/* quantize/<in>-><form>/cpu/<rule>[-sr...]: block quantization, row-wise and, where OUT_T is given, column-wise from the
 * same call. Work goes by tiles of whole blocks, so that a block's elements are read once from memory: loaded (transposed
 * for OUT_T), maximum, scale, encoded. Scales that span more than a tile (tensor, row) take a pass of their own first. */
#include "kernels/catalogue.h"
#include "kernels/common/scale.h"
#include "kernels/common/rows.h"
#include "kernels/cpu/cpu.h"

#include <stdlib.h>

enum {
    TILE_COLUMNS = 512,              /* a multiple of every block's columns */
    TILE_STRIDE = TILE_COLUMNS + 16, /* so that the rows of a tile do not share cache sets */
    TILE_ROWS = 128,                 /* the most rows in a block */
    BLOCKS = TILE_COLUMNS / 16,      /* the most blocks across a tile */
};

typedef struct tile {
    uint32_t x[TILE_ROWS * TILE_STRIDE]; /* binary32 bits, [rows][TILE_STRIDE] */
    uint32_t codes[TILE_COLUMNS], words[TILE_COLUMNS], column[TILE_ROWS];
    uint32_t amax[BLOCKS];
    ng_block_scale scales[BLOCKS];
} tile;

/* ---- inner loops, compiled for each instruction set ---------------------------------------------------------------*/
typedef struct inner_loops {
    void (*load)(ng_format_id in, const void *row, int64_t from, int64_t n, uint32_t *bits);
    void (*amax)(const uint32_t *bits, int64_t n, int64_t block, uint32_t *amax);
    void (*encode)(const ng_caster *caster, bool divides, const uint32_t *bits, int64_t n, int64_t block,
                   const ng_block_scale *scales, uint32_t *codes);
    void (*store)(ng_format_id to, const uint32_t *codes, int64_t n, void *row, int64_t from);
} inner_loops;

/* Raises amax[b] to the largest magnitude of block b; as integers, so that a NaN is larger than anything. */
NG_ALWAYS_INLINE void raise_amax(const uint32_t *bits, int64_t n, int64_t block, uint32_t *amax) {
    for (int64_t from = 0, b = 0; from < n; from += block, b++) {
        int64_t count = ng_cpu_min(block, n - from);
        uint32_t largest = amax[b];
        for (int64_t i = 0; i < count; i++) {
            uint32_t magnitude = bits[from + i] & NG_ABS_MASK;
            largest = magnitude > largest ? magnitude : largest;
        }
        amax[b] = largest;
    }
}

NG_ALWAYS_INLINE void encode_blocks(const ng_caster *caster, bool divides, const uint32_t *bits, int64_t n, int64_t block,
                                    const ng_block_scale *scales, uint32_t *codes) {
    const ng_caster c = *caster;
    for (int64_t from = 0, b = 0; from < n; from += block, b++) {
        const ng_block_scale scale = scales[b];
        int64_t count = ng_cpu_min(block, n - from);
        for (int64_t i = from; i < from + count; i++)
            codes[i] = ng_cast_code(&c, NG_RN_EVEN, ng_bits(ng_scale_apply(ng_float(bits[i]), scale, divides)));
    }
}

#define INNER_LOOPS(suffix, target)                                                                                    \
    target static void load##suffix(ng_format_id in, const void *row, int64_t from, int64_t n, uint32_t *bits) {       \
        ng_cpu_load_bits(in, row, from, n, bits);                                                                      \
    }                                                                                                                  \
    target static void amax##suffix(const uint32_t *bits, int64_t n, int64_t block, uint32_t *amax) {                  \
        if (block == 16) raise_amax(bits, n, 16, amax);                                                                \
        else if (block == 32) raise_amax(bits, n, 32, amax);                                                           \
        else raise_amax(bits, n, block, amax);                                                                         \
    }                                                                                                                  \
    target static void encode##suffix(const ng_caster *c, bool divides, const uint32_t *bits, int64_t n, int64_t block, \
                                      const ng_block_scale *scales, uint32_t *codes) {                                 \
        if (divides) encode_blocks(c, true, bits, n, block, scales, codes);                                            \
        else encode_blocks(c, false, bits, n, block, scales, codes);                                                   \
    }                                                                                                                  \
    target static void store##suffix(ng_format_id to, const uint32_t *codes, int64_t n, void *row, int64_t from) {     \
        ng_cpu_store(to, codes, n, row, from);                                                                         \
    }
INNER_LOOPS(_c, )
INNER_LOOPS(_avx2, NG_AVX2)

static const inner_loops loops_of[2] = {
    {load_c, amax_c, encode_c, store_c},
    {load_avx2, amax_avx2, encode_avx2, store_avx2},
};

/* ---- one output of a launch ---------------------------------------------------------------------------------------*/
typedef struct quantizer {
    const ng_launch *launch;
    const ng_quantization *q;
    const inner_loops *loops;
    const ng_tensor *in, *codes, *scales;
    ng_caster caster;
    ng_tensor_level level;
    bool transposed;
    int64_t rows, columns;             /* of this output */
    int64_t block_rows, block_columns; /* of a block inside tiles */
    bool whole_rows, whole_tensor;     /* scales that span tiles */
    ng_block_scale tensor_scale;       /* whole_tensor */
} quantizer;

/* Loads [row, row + rows) x [column, column + columns) of the tensor that this output stands for. */
static void load_tile(const quantizer *z, int64_t row, int64_t rows, int64_t column, int64_t columns, tile *t) {
    if (!z->transposed) {
        for (int64_t r = 0; r < rows; r++)
            z->loops->load(z->in->format, ng_cpu_row(z->in, row + r), column, columns, t->x + r * TILE_STRIDE);
        return;
    }
    for (int64_t c = 0; c < columns; c++) {
        z->loops->load(z->in->format, ng_cpu_row(z->in, column + c), row, rows, t->column);
        for (int64_t r = 0; r < rows; r++)
            t->x[r * TILE_STRIDE + c] = t->column[r];
    }
}

/* Random words of a row's elements. The transposed output takes the given word of the same element, or draws its own after
 * those of the row-wise output. */
static void load_words(const quantizer *z, int64_t row, int64_t from, int64_t n, uint32_t *words) {
    const ng_tensor *given = &z->launch->tensors[NG_RANDOM_WORDS];
    uint64_t first = (uint64_t)row * (uint64_t)z->columns + (uint64_t)from;
    if (!z->transposed) ng_cpu_words(z->launch, row, from, n, first, words);
    else if (!given->data) ng_cpu_words(z->launch, row, from, n, first + (uint64_t)z->rows * (uint64_t)z->columns, words);
    else
        for (int64_t i = 0; i < n; i++)
            words[i] = ((const ng_u32 *)ng_cpu_row(given, from + i))[row];
}

static void store_scale(const quantizer *z, int64_t row, int64_t column, uint32_t code) {
    uint8_t *to = ng_cpu_row(z->scales, row);
    if (z->q->scale == NG_FP32) ((ng_u32 *)to)[column] = code;
    else to[column] = (uint8_t)code;
}

static uint32_t encode_element(const quantizer *z, float y, uint32_t word) {
    const ng_cast *cast = &z->q->cast;
    if (cast->rounding == NG_R_STOCHASTIC)
        return ng_cast_code_stochastic(&z->caster, cast->stochastic, cast->random_bits, ng_bits(y), word);
    return ng_cast_code(&z->caster, NG_RN_EVEN, ng_bits(y));
}

/* 4over6's error of one candidate scale over the block, in the contract's chain of binary32 operations. */
static float candidate_error(const quantizer *z, const uint32_t *bits, const uint32_t *words, int64_t n, ng_block_scale scale) {
    float error = 0.0f, g = ng_mul(ng_decode_ue4m3(scale.code), z->level.decode);
    for (int64_t i = 0; i < n; i++) {
        float x = ng_float(bits[i]);
        float q = ng_decode_e2m1(encode_element(z, ng_mul(x, scale.encode), words[i]));
        float e = ng_sub(ng_mul(q, g), x);
        float term = z->q->four_over_six == NG_4OVER6_MSE ? ng_mul(e, e) : ng_float(ng_bits(e) & NG_ABS_MASK);
        error = ng_add(error, term);
    }
    return error;
}

static ng_block_scale four_over_six(const quantizer *z, const uint32_t *bits, const uint32_t *words, int64_t n, uint32_t amax) {
    float wanted = ng_scale_nvfp4_wanted(z->q, amax, z->level);
    ng_block_scale six = ng_scale_nvfp4_of(wanted, z->level);
    ng_block_scale four = ng_scale_nvfp4_of(ng_at_most_max(ng_mul(1.5f, wanted)), z->level);
    return candidate_error(z, bits, words, n, four) < candidate_error(z, bits, words, n, six) ? four : six;
}

/* Encodes one row of a tile under t->scales, blocks of `block` columns, and stores it. */
static void encode_row(const quantizer *z, int64_t row, int64_t from, int64_t n, int64_t block, const uint32_t *bits, tile *t) {
    const bool divides = z->q->rule == NG_SCALE_AMAX_OVER_MAX;
    if (z->q->cast.rounding == NG_R_STOCHASTIC) {
        load_words(z, row, from, n, t->words);
        for (int64_t i = 0; i < n; i++)
            t->codes[i] = encode_element(z, ng_scale_apply(ng_float(bits[i]), t->scales[i / block], divides), t->words[i]);
    } else {
        z->loops->encode(&z->caster, divides, bits, n, block, t->scales, t->codes);
    }
    z->loops->store(z->q->element, t->codes, n, ng_cpu_row(z->codes, row), from);
}

/* Scales of one band of blocks, rows [row, row + rows) of which the tile holds row0 on. */
static void scale_band(const quantizer *z, int64_t row, int64_t rows, int64_t row0, int64_t from, int64_t n, tile *t) {
    int64_t blocks = (n + z->block_columns - 1) / z->block_columns;
    memset(t->amax, 0, sizeof t->amax);
    for (int64_t r = 0; r < rows; r++)
        z->loops->amax(t->x + (row + r - row0) * TILE_STRIDE, n, z->block_columns, t->amax);
    const uint32_t *bits = t->x + (row - row0) * TILE_STRIDE;
    if (z->q->four_over_six && z->q->cast.rounding == NG_R_STOCHASTIC) load_words(z, row, from, n, t->words);
    for (int64_t b = 0; b < blocks; b++) {
        int64_t at = b * z->block_columns, count = ng_cpu_min(z->block_columns, n - at);
        t->scales[b] = z->q->four_over_six ? four_over_six(z, bits + at, t->words + at, count, t->amax[b])
                                           : ng_scale_block(z->q, t->amax[b], z->level);
        store_scale(z, row / z->block_rows, from / z->block_columns + b, t->scales[b].code);
    }
}

static void quantize_tile(const quantizer *z, int64_t row0, int64_t rows, int64_t from, int64_t n, tile *t) {
    load_tile(z, row0, rows, from, n, t);
    for (int64_t row = row0; row < row0 + rows; row += z->block_rows) {
        int64_t band = ng_cpu_min(z->block_rows, row0 + rows - row), block = z->block_columns;
        if (z->whole_tensor) t->scales[0] = z->tensor_scale, block = TILE_COLUMNS;
        else scale_band(z, row, band, row0, from, n, t);
        for (int64_t r = row; r < row + band; r++)
            encode_row(z, r, from, n, block, t->x + (r - row0) * TILE_STRIDE, t);
    }
}

/* Scales over whole rows: one pass for the maxima of a group of rows, one to encode them. */
static void quantize_whole_rows(const quantizer *z, int64_t row0, int64_t rows, tile *t) {
    uint32_t amax[16] = {0};
    for (int64_t from = 0; from < z->columns; from += TILE_COLUMNS) {
        int64_t n = ng_cpu_min(TILE_COLUMNS, z->columns - from);
        load_tile(z, row0, rows, from, n, t);
        for (int64_t r = 0; r < rows; r++)
            z->loops->amax(t->x + r * TILE_STRIDE, n, TILE_COLUMNS, amax + r);
    }
    for (int64_t from = 0; from < z->columns; from += TILE_COLUMNS) {
        int64_t n = ng_cpu_min(TILE_COLUMNS, z->columns - from);
        load_tile(z, row0, rows, from, n, t);
        for (int64_t r = 0; r < rows; r++) {
            t->scales[0] = ng_scale_block(z->q, amax[r], z->level);
            if (from == 0) store_scale(z, row0 + r, 0, t->scales[0].code);
            encode_row(z, row0 + r, from, n, TILE_COLUMNS, t->x + r * TILE_STRIDE, t);
        }
    }
}

static void quantize_output(const quantizer *z, int threads, tile *tiles) {
    const int64_t tile_rows = z->block_rows > 16 ? z->block_rows : 16; /* 16: a transposed load uses whole cache lines */
    const int64_t groups = (z->rows + tile_rows - 1) / tile_rows;
    const int64_t across = z->whole_rows ? 1 : (z->columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
    if (z->whole_tensor) store_scale(z, 0, 0, z->tensor_scale.code);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t task = 0; task < groups * across; task++) {
        int64_t row = task / across * tile_rows, from = task % across * TILE_COLUMNS;
        int64_t rows = ng_cpu_min(tile_rows, z->rows - row);
        tile *t = &tiles[ng_cpu_thread()];
        if (z->whole_rows) quantize_whole_rows(z, row, rows, t);
        else quantize_tile(z, row, rows, from, ng_cpu_min(TILE_COLUMNS, z->columns - from), t);
    }
}

/* ---- launch -------------------------------------------------------------------------------------------------------*/
static uint32_t tensor_amax(const ng_tensor *in, const inner_loops *loops, int threads) {
    uint32_t largest = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(max : largest)
    for (int64_t row = 0; row < in->rows; row++) {
        uint32_t bits[TILE_COLUMNS];
        for (int64_t from = 0; from < in->columns; from += TILE_COLUMNS) {
            int64_t n = ng_cpu_min(TILE_COLUMNS, in->columns - from);
            loops->load(in->format, ng_cpu_row(in, row), from, n, bits);
            loops->amax(bits, n, TILE_COLUMNS, &largest);
        }
    }
    return largest;
}

static ng_status check_output(const ng_kernel *kernel, const ng_launch *launch, ng_role codes, ng_role scales, int64_t rows,
                              int64_t columns) {
    const ng_quantization *q = &kernel->contract.quantization;
    ng_status status = ng_cpu_check(launch, codes, q->element, rows, columns);
    if (!status)
        status = ng_cpu_check(launch, scales, q->scale, ng_cpu_blocks(q->blocks.rows, rows), ng_cpu_blocks(q->blocks.columns, columns));
    return status;
}

static ng_status check_launch(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_quantization *q = &kernel->contract.quantization;
    const ng_tensor *tensors = launch->tensors;
    const int64_t rows = launch->problem->m, columns = launch->problem->n;
    ng_status status = ng_cpu_check(launch, NG_IN, kernel->in, rows, columns);
    if (!status && !tensors[NG_OUT].data && !tensors[NG_OUT_T].data)
        status = ng_cpu_fail(launch, NG_BAD_ARGUMENT, "neither OUT nor OUT_T is given");
    if (!status && tensors[NG_OUT].data) status = check_output(kernel, launch, NG_OUT, NG_OUT_SCALES, rows, columns);
    if (!status && tensors[NG_OUT_T].data) status = check_output(kernel, launch, NG_OUT_T, NG_OUT_T_SCALES, columns, rows);
    if (!status && q->tensor_scale) status = ng_cpu_check(launch, NG_OUT_TENSOR_SCALE, NG_FP32, 1, 1);
    if (!status && q->rule == NG_SCALE_GIVEN) status = ng_cpu_check(launch, NG_SCALE_GIVEN_IN, NG_FP32, 1, 1);
    if (!status && q->cast.rounding == NG_R_STOCHASTIC && tensors[NG_RANDOM_WORDS].data)
        status = ng_cpu_check(launch, NG_RANDOM_WORDS, NG_FP32, rows, columns);
    return status;
}

ng_status ng_cpu_quantize(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_quantization *q = &kernel->contract.quantization;
    const ng_tensor *in = &launch->tensors[NG_IN];
    const int threads = ng_cpu_team(launch->device, in->rows * in->columns);
    ng_status status = check_launch(kernel, launch);
    if (status) return status;
    tile *tiles = malloc((size_t)threads * sizeof *tiles);
    if (!tiles) return ng_cpu_fail(launch, NG_NO_MEMORY, "no memory for %d tiles", threads);

    quantizer z = {.launch = launch, .q = q, .loops = &loops_of[ng_cpu_avx2(launch->device)], .in = in};
    z.caster = ng_caster_of(q->element, &q->cast);
    z.whole_tensor = q->blocks.rows == 0;
    z.whole_rows = !z.whole_tensor && q->blocks.columns == 0;
    z.block_rows = q->blocks.rows ? q->blocks.rows : 1;
    z.block_columns = q->blocks.columns ? q->blocks.columns : TILE_COLUMNS;
    const bool needs_amax = q->tensor_scale || (z.whole_tensor && q->rule != NG_SCALE_GIVEN);
    const uint32_t amax = needs_amax ? tensor_amax(in, z.loops, threads) : 0;
    z.level = ng_tensor_scale(q, amax);
    if (z.whole_tensor)
        z.tensor_scale = q->rule == NG_SCALE_GIVEN ? ng_scale_encoding(*(const ng_f32 *)launch->tensors[NG_SCALE_GIVEN_IN].data)
                                                   : ng_scale_block(q, amax, z.level);
    for (int transposed = 0; transposed < 2; transposed++) {
        z.transposed = transposed;
        z.codes = &launch->tensors[transposed ? NG_OUT_T : NG_OUT];
        z.scales = &launch->tensors[transposed ? NG_OUT_T_SCALES : NG_OUT_SCALES];
        z.rows = transposed ? in->columns : in->rows;
        z.columns = transposed ? in->rows : in->columns;
        if (z.codes->data) quantize_output(&z, threads, tiles);
    }
    if (q->tensor_scale) *(ng_f32 *)launch->tensors[NG_OUT_TENSOR_SCALE].data = z.level.decode;
    free(tiles);
    return NG_OK;
}

/* ---- catalogue ----------------------------------------------------------------------------------------------------*/
#define NG_QUANTIZE_ROW(in_name, in_format, form, variant, element, scale, rows, columns, rule, over, how, sr, r, repeatable) \
    {.name = "quantize/" in_name "->" form "/cpu/" variant, .op = NG_OP_QUANTIZE, .backend = NG_BACKEND_CPU,          \
     .in = in_format, .in_b = NG_NO_FORMAT, .out = element,                                                           \
     .contract = {.cast = NG_ELEMENT_CAST(element, how, sr, r),                                                       \
                  .quantization = NG_QUANTIZATION(element, scale, rows, columns, rule, over, how, sr, r),             \
                  .determinism = repeatable},                                                                         \
     .supports = ng_cpu_supports, .launch = ng_cpu_quantize},

static const ng_kernel kernels[] = {NG_QUANTIZE_ROWS};

const ng_kernel_list ng_cpu_quantizers = {kernels, sizeof kernels / sizeof *kernels};
