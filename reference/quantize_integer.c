/* The fast tier. A binary32 operation of the machine is fl() of its operands, exactly as the contract means it;
 * exponents are read from bits; x / 2^k is exact in binary64; the element's rounding is round_core.h's. */
#include "reference/quantize_core.h"
#include "reference/round.h"
#include "reference/round_core.h"

#include <omp.h>
#include <stdlib.h>

static uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A minimum with NaN is NaN. */
static float at_most_max(float x) {
    return x > FLT_MAX ? FLT_MAX : x;
}

/* ---- scales -------------------------------------------------------------------------------------------------------*/
typedef enum how { MULTIPLY, DIVIDE, EXACT } how;

/* How a block's elements are encoded, and the scale that says how to decode them. */
typedef struct encoding {
    uint32_t code; /* of the scale, in its format */
    how how;       /* MULTIPLY: fl(x * factor), DIVIDE: fl(x / factor), EXACT: x * factor, a power of two */
    double factor;
    float per_code; /* nvfp4: fl(s * D), what one unit of an element stands for */
} encoding;

/* floor(log2 x) of finite bits of a positive binary32; *whole says that x is a power of two. Bits that were carried up
 * into the infinity's place count as 2^128. */
static int floor_log2(uint32_t bits, bool *whole) {
    int field = (int)(bits >> 23);
    uint32_t fraction = bits & 0x7FFFFF;
    *whole = field ? fraction == 0 : (fraction & (fraction - 1)) == 0;
    return field ? field - 127 : 31 - __builtin_clz(fraction) - 149;
}

static uint32_t e8m0_code(int exponent) {
    return exponent < -127 ? 0 : exponent > 127 ? 0xFE : (uint32_t)(exponent + 127);
}

static uint32_t mx_code(const ng_quantization *q, float amax) {
    const ng_format *f = &ng_formats[q->element];
    uint32_t bits = float_bits(amax);
    bool whole;
    if (isnan(amax)) return 0xFF;
    if (isinf(amax)) return q->rule == NG_SCALE_MX_ROUND_UP ? 0xFE : 0xFF;
    if (q->rule == NG_SCALE_MX_ROUND_UP) bits = float_bits(amax * (1.0f / (float)f->largest));
    if (bits == 0) return 0;
    if (q->rule == NG_SCALE_MX_EVEN) /* of a subnormal amax the wrong bit: emax >= 1, so the code is 0 all the same */
        bits += 1u << (22 - f->mantissa_bits);
    int e = floor_log2(bits, &whole);
    if (q->rule == NG_SCALE_MX_ROUND_UP) return e8m0_code(e + !whole);
    return e8m0_code(e - f->emax + (q->rule == NG_SCALE_MX_CEIL && !whole));
}

static encoding mx_encoding(const ng_quantization *q, float amax) {
    uint32_t code = mx_code(q, amax);
    return (encoding){.code = code, .how = EXACT, .factor = code == 0xFF ? (double)NAN : ldexp(1, 127 - (int)code)};
}

static encoding fp32_encoding(const ng_quantization *q, float amax, float given) {
    float largest = (float)ng_formats[q->element].largest, factor = 1;
    bool plain = amax == 0 || isinf(amax) || isnan(amax);
    if (q->rule == NG_SCALE_AMAX_OVER_MAX) {
        float d = plain ? 1 : amax / largest;
        if (d < FLT_MIN) d = FLT_MIN;
        return (encoding){.code = float_bits(d), .how = DIVIDE, .factor = (double)d};
    }
    if (q->rule == NG_SCALE_GIVEN)
        factor = given;
    else if (!plain)
        factor = at_most_max(largest / amax);
    if (q->rule == NG_SCALE_POW2) factor = bits_float(float_bits(factor) & 0xFF800000u);
    return (encoding){.code = float_bits(1 / factor), .how = MULTIPLY, .factor = (double)factor};
}

/* S, the tensor's encoding scale of nvfp4. */
static float tensor_encoding(const ng_quantization *q, float amax) {
    if (!q->tensor_scale || amax == 0 || isinf(amax) || isnan(amax)) return 1;
    float s = at_most_max((float)ng_nvfp4_span(q) / amax);
    return s == 0 ? 1 : s;
}

/* The value that the rule rounds to ue4m3. */
static float nvfp4_target(const ng_quantization *q, float amax, float S) {
    if (q->rule == NG_SCALE_NVFP4_PAPER) return (amax / 6.0f) * S;
    return at_most_max(amax * (S * (1.0f / 6.0f)));
}

static encoding nvfp4_encoding(float target, float S) {
    const ng_cast cast = {.rounding = NG_RN_EVEN, .saturate = true};
    const ng_layout layout = ng_layout_of(NG_UE4M3);
    encoding e = {.how = MULTIPLY};
    e.code = (uint32_t)ng_round_double_even(&layout, (double)target, &cast);
    float s = (float)ng_decode(NG_UE4M3, e.code), D = 1 / S;
    e.per_code = s * D;
    e.factor = s == 0 ? 0 : (double)at_most_max(1 / e.per_code);
    return e;
}

static encoding block_encoding(const ng_quantization *q, float amax, float given, float S) {
    if (q->rule == NG_SCALE_ABSENT) return (encoding){.how = EXACT, .factor = 1};
    if (ng_rule_is_mx(q->rule)) return mx_encoding(q, amax);
    return ng_rule_is_nvfp4(q->rule) ? nvfp4_encoding(nvfp4_target(q, amax, S), S) : fp32_encoding(q, amax, given);
}

uint64_t ng_scale_integer(const ng_quantization *q, double amax, double tensor_amax, double *decode,
                          double *tensor_scale) {
    float S = tensor_encoding(q, (float)tensor_amax);
    encoding e = block_encoding(q, (float)amax, 1, S);
    *tensor_scale = (double)(1 / S);
    *decode = q->rule == NG_SCALE_ABSENT ? 1 : ng_decode(q->scale, e.code);
    return e.code;
}

/* ---- elements -----------------------------------------------------------------------------------------------------*/
/* What the element cast sees. NaN made here (0 * Inf, a NaN scale) is positive on every machine; an input's keeps its
 * sign. */
static void scaled_values(const encoding *e, const float *x, int64_t count, double *scaled) {
    const float factor = (float)e->factor;
    switch (e->how) {
    case MULTIPLY:
        for (int64_t j = 0; j < count; j++)
            scaled[j] = (double)(x[j] * factor);
        break;
    case DIVIDE:
        for (int64_t j = 0; j < count; j++)
            scaled[j] = (double)(x[j] / factor);
        break;
    case EXACT:
        for (int64_t j = 0; j < count; j++)
            scaled[j] = (double)x[j] * e->factor;
        break;
    }
    for (int64_t j = 0; j < count; j++)
        if (scaled[j] != scaled[j]) scaled[j] = x[j] == x[j] ? (double)NAN : (double)x[j];
}

static void round_values(const ng_layout *l, ng_format_id to, const ng_cast *cast, const double *x,
                         const uint32_t *random, int64_t count, uint64_t *codes) {
    const ng_layout layout = *l;
    if (cast->rounding == NG_RN_EVEN && to != NG_FP64) {
        for (int64_t j = 0; j < count; j++)
            codes[j] = ng_round_double_even(&layout, x[j], cast);
        return;
    }
    for (int64_t j = 0; j < count; j++)
        codes[j] = ng_round_double(&layout, x[j], cast, random ? random[j] : 0);
}

static void store_row(const ng_tensor *t, int64_t row, const uint64_t *codes, int64_t columns) {
    unsigned char *p = (unsigned char *)t->data + row * t->row_bytes;
    if (ng_formats[t->format].storage_bits == 8) {
        for (int64_t j = 0; j < columns; j++)
            p[j] = (unsigned char)codes[j];
    } else if (ng_formats[t->format].storage_bits == 4) {
        for (int64_t j = 0; j + 1 < columns; j += 2)
            p[j / 2] = (unsigned char)(codes[j] | codes[j + 1] << 4);
        if (columns % 2) ng_set_code(t, row, columns - 1, codes[columns - 1]);
    } else {
        for (int64_t j = 0; j < columns; j++)
            ng_set_code(t, row, j, codes[j]);
    }
}

/* ---- one thread's scratch -----------------------------------------------------------------------------------------*/
typedef struct scratch {
    float *values;    /* [columns] */
    double *scaled;   /* [columns] */
    uint64_t *codes;  /* [columns] */
    uint32_t *random; /* [columns] */
} scratch;

/* Scratch of every thread in one piece; free(*memory) ends it. */
static ng_status scratch_new(int64_t columns, int threads, scratch **all, void **memory) {
    size_t n = (size_t)(columns ? columns : 1),
           one = n * (sizeof(double) + sizeof(uint64_t) + sizeof(float) + sizeof(uint32_t));
    one = (one + 63) / 64 * 64; /* neighbours' lines stay apart */
    char *p = malloc((size_t)threads * (sizeof(scratch) + one));
    *memory = p;
    if (!p) return NG_NO_MEMORY;
    *all = (scratch *)(void *)(p + (size_t)threads * one);
    for (int t = 0; t < threads; t++) {
        scratch *s = &(*all)[t];
        s->scaled = (double *)(void *)(p + (size_t)t * one);
        s->codes = (uint64_t *)(void *)(s->scaled + n);
        s->values = (float *)(void *)(s->codes + n);
        s->random = (uint32_t *)(void *)(s->values + n);
    }
    return NG_OK;
}

static const uint32_t *random_words(const ng_quantize_job *job, int64_t row, int64_t from, int64_t count,
                                    uint32_t *words) {
    if (!job->random) return NULL;
    memcpy(words, (const char *)job->random->data + row * job->random->row_bytes + from * 4, (size_t)count * 4);
    return words;
}

/* ---- amax ---------------------------------------------------------------------------------------------------------
 * Magnitudes of binary32 order as their bits do, NaN above infinity. */
static uint32_t amax_bits(const float *x, int64_t count) {
    uint32_t most = 0;
    for (int64_t j = 0; j < count; j++) {
        uint32_t bits = float_bits(x[j]) & 0x7FFFFFFF;
        most = bits > most ? bits : most;
    }
    return most;
}

static int64_t block_width(const ng_quantize_job *job, int64_t block) {
    int64_t left = job->in->columns - block * job->width;
    return left < job->width ? left : job->width;
}

/* row_amax [rows][block columns]: of each row's part of each block. Returns the tensor's. */
static uint32_t row_maxima(const ng_quantize_job *job, scratch *all, int threads, uint32_t *row_amax) {
    uint32_t tensor = 0;
#pragma omp parallel for num_threads(threads) reduction(max : tensor)
    for (int64_t i = 0; i < job->in->rows; i++) {
        float *x = all[omp_get_thread_num()].values;
        ng_decode_row_float(job->in, i, 0, job->in->columns, x);
        for (int64_t b = 0; b < job->block_columns; b++) {
            uint32_t most = amax_bits(x + b * job->width, block_width(job, b));
            row_amax[i * job->block_columns + b] = most;
            tensor = most > tensor ? most : tensor;
        }
    }
    return tensor;
}

/* ---- four over six ------------------------------------------------------------------------------------------------
 * The sum of errors of one candidate over one block, in the contract's binary32 chain. */
static float candidate_error(const ng_quantize_job *job, const encoding *e, int64_t block_row, int64_t block,
                             scratch *s) {
    const ng_quantization *q = job->quantization;
    const ng_layout layout = ng_layout_of(q->element);
    int64_t from = block * job->width, count = block_width(job, block), first = block_row * job->height;
    float sum = 0;
    for (int64_t i = first; i < first + job->height && i < job->in->rows; i++) {
        ng_decode_row_float(job->in, i, from, count, s->values);
        const uint32_t *random = random_words(job, i, from, count, s->random);
        scaled_values(e, s->values, count, s->scaled);
        round_values(&layout, q->element, &q->cast, s->scaled, random, count, s->codes);
        for (int64_t j = 0; j < count; j++) {
            float error = (float)ng_decode(q->element, s->codes[j]) * e->per_code - s->values[j];
            sum += q->four_over_six == NG_4OVER6_MAE ? fabsf(error) : error * error;
        }
    }
    return sum;
}

static encoding four_or_six(const ng_quantize_job *job, float amax, float S, int64_t block_row, int64_t block,
                            scratch *s) {
    float target = nvfp4_target(job->quantization, amax, S);
    encoding six = nvfp4_encoding(target, S), four = nvfp4_encoding(at_most_max(1.5f * target), S);
    float error_six = candidate_error(job, &six, block_row, block, s);
    return candidate_error(job, &four, block_row, block, s) < error_six ? four : six;
}

/* ---- the passes ---------------------------------------------------------------------------------------------------*/
static void scale_block_row(const ng_quantize_job *job, const uint32_t *row_amax, float S, int64_t block_row,
                            scratch *s, encoding *encodings) {
    const ng_quantization *q = job->quantization;
    int64_t first = block_row * job->height, n = job->block_columns;
    for (int64_t b = 0; b < n; b++) {
        uint32_t most = 0;
        for (int64_t i = first; i < first + job->height && i < job->in->rows; i++)
            most = row_amax[i * n + b] > most ? row_amax[i * n + b] : most;
        float amax = bits_float(most);
        if (ng_block_is_tensor(q) && job->tensor_amax) amax = (float)*job->tensor_amax;
        encodings[b] =
            q->four_over_six ? four_or_six(job, amax, S, block_row, b, s) : block_encoding(q, amax, job->given, S);
        if (job->scales) ng_set_code(job->scales, block_row, b, encodings[b].code);
    }
}

static void encode_row(const ng_quantize_job *job, const encoding *encodings, int64_t row, scratch *s) {
    const ng_quantization *q = job->quantization;
    const ng_layout layout = ng_layout_of(q->element);
    int64_t columns = job->in->columns;
    ng_decode_row_float(job->in, row, 0, columns, s->values);
    for (int64_t b = 0; b < job->block_columns; b++)
        scaled_values(&encodings[b], s->values + b * job->width, block_width(job, b), s->scaled + b * job->width);
    const uint32_t *random = random_words(job, row, 0, columns, s->random);
    round_values(&layout, q->element, &q->cast, s->scaled, random, columns, s->codes);
    store_row(job->codes, row, s->codes, columns);
}

ng_status ng_quantize_integer(const ng_quantize_job *job, float *tensor_scale) {
    const ng_quantization *q = job->quantization;
    int64_t rows = job->in->rows, n = job->block_columns;
    int threads = omp_get_max_threads();
    scratch *all = NULL;
    void *memory = NULL;
    uint32_t *row_amax = malloc((size_t)(rows * n + 1) * sizeof *row_amax);
    encoding *encodings = malloc((size_t)(job->block_rows * n + 1) * sizeof *encodings);
    ng_status status = scratch_new(job->in->columns, threads, &all, &memory);
    if (!row_amax || !encodings) status = NG_NO_MEMORY;
    if (status) goto done;

    float amax = bits_float(row_maxima(job, all, threads, row_amax));
    float S = tensor_encoding(q, job->tensor_amax ? (float)*job->tensor_amax : amax);
    *tensor_scale = 1 / S;
#pragma omp parallel for num_threads(threads)
    for (int64_t r = 0; r < job->block_rows; r++)
        scale_block_row(job, row_amax, S, r, &all[omp_get_thread_num()], encodings + r * n);
#pragma omp parallel for num_threads(threads)
    for (int64_t i = 0; i < rows; i++)
        encode_row(job, encodings + i / job->height * n, i, &all[omp_get_thread_num()]);
done:
    free(row_amax);
    free(encodings);
    free(memory);
    return status;
}

/* ---- back ---------------------------------------------------------------------------------------------------------
 * element * scale: at most 24 + 24 bits, exact in binary64, of exponents far from its ends. Times the tensor scale it
 * is exact as high + low, low = fma(product, D, -high). */
static uint64_t dequantize_one(const ng_tensor *out, const ng_layout *layout, double element, double scale, double D,
                               const ng_cast *cast) {
    double product = element * scale, high = product * D;
    if (isnan(high)) /* one made here is positive, an element's keeps its sign */
        return ng_nan_code(layout, cast->nan, isnan(element) && signbit(element));
    double low = isinf(high) ? 0 : fma(product, D, -high);
    return low != 0 ? ng_round_pair(out->format, high, low, cast) : ng_round_double(layout, high, cast, 0);
}

ng_status ng_dequantize_integer(const ng_operand *in, const ng_cast *cast, ng_tensor *out) {
    const ng_layout layout = ng_layout_of(out->format);
    int64_t rows = in->codes.rows, columns = in->codes.columns;
    int64_t height = ng_block_extent(in->blocks.rows, rows), width = ng_block_extent(in->blocks.columns, columns);
    double D = (double)in->tensor_scale;
#pragma omp parallel for
    for (int64_t i = 0; i < rows; i++)
        for (int64_t from = 0; from < columns; from += width) {
            double scale = in->scales.data ? ng_get_value(&in->scales, i / height, from / width) : 1;
            int64_t end = from + width < columns ? from + width : columns;
            for (int64_t j = from; j < end; j++)
                ng_set_code(out, i, j, dequantize_one(out, &layout, ng_get_value(&in->codes, i, j), scale, D, cast));
        }
    return NG_OK;
}
