/* hadamard/<in>-><out>/cpu/<size>-over-<factor>: the random Hadamard transform alone; quantize/bf16-><form>/cpu/<rule>-rht<size>...:
 * transformed, then quantized (contract_hadamard.h). The transform of a whole output is made in memory first: the CPU's
 * quantizers then see it as any other tensor. */
#include "kernels/common/hadamard.h"
#include "kernels/catalogue.h"
#include "kernels/common/philox.h"
#include "kernels/cpu/cpu.h"

#include <stdlib.h>

enum { CHUNK = 512 }; /* columns at a time, a multiple of every group */

/* y of columns [from, from + n) of a row, n at most CHUNK, from a multiple of the group. */
static void transform_chunk(const ng_hadamard *h, float factor, int64_t n, float *t) {
    const int64_t size = h->size, whole = n / size * size;
    for (int64_t g = 0; g < whole; g += size) {
        for (int64_t j = 0; j < size; j++)
            t[g + j] = ng_float(ng_bits(t[g + j]) ^ ng_hadamard_sign(h, (uint32_t)j));
        ng_hadamard_butterflies(t + g, h->size);
        for (int64_t j = 0; j < size; j++)
            t[g + j] = ng_hadamard_finish(t[g + j], factor);
    }
}

static void load_floats(ng_format_id in, const void *row, int64_t from, int64_t n, float *t) {
    uint32_t bits[CHUNK];
    ng_cpu_load_bits(in, row, from, n, bits);
    memcpy(t, bits, (size_t)n * sizeof *t);
}

/* ---- alone --------------------------------------------------------------------------------------------------------*/
static void store_chunk(const ng_tensor *out, const ng_caster *caster, int64_t row, int64_t from, int64_t n, const float *t) {
    uint32_t codes[CHUNK];
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = ng_bits(t[i]);
        if (out->format == NG_FP32) codes[i] = (bits & NG_ABS_MASK) > NG_INF_BITS ? (uint32_t)NG_NAN_BITS : bits;
        else codes[i] = ng_cast_code(caster, NG_RN_EVEN, bits);
    }
    ng_cpu_store(out->format, codes, n, ng_cpu_row(out, row), from);
}

static ng_status launch_hadamard(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_tensor *in = &launch->tensors[NG_IN], *out = &launch->tensors[NG_OUT];
    const ng_hadamard *h = &kernel->contract.hadamard;
    const int64_t rows = launch->problem->m, columns = launch->problem->n;
    ng_status status = ng_cpu_check(launch, NG_IN, kernel->in, rows, columns);
    if (!status) status = ng_cpu_check(launch, NG_OUT, kernel->out, rows, columns);
    if (status) return status;
    const ng_caster caster = ng_caster_of(kernel->out, &kernel->contract.cast);
    const float factor = ng_hadamard_factor(h);
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, rows * columns)) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t from = 0; from < columns; from += CHUNK) {
            float t[CHUNK];
            const int64_t n = ng_cpu_min(CHUNK, columns - from);
            load_floats(in->format, ng_cpu_row(in, row), from, n, t);
            transform_chunk(h, factor, n, t);
            store_chunk(out, &caster, row, from, n, t);
        }
    return NG_OK;
}

/* ---- in front of a quantization -----------------------------------------------------------------------------------*/
static void transform_rows(const ng_hadamard *h, const ng_tensor *in, int threads, const ng_tensor *out) {
    const float factor = ng_hadamard_factor(h);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < in->rows; row++)
        for (int64_t from = 0; from < in->columns; from += CHUNK) {
            float *t = (float *)out->data + row * in->columns + from;
            const int64_t n = ng_cpu_min(CHUNK, in->columns - from);
            load_floats(in->format, ng_cpu_row(in, row), from, n, t);
            transform_chunk(h, factor, n, t);
        }
}

/* Groups of rows: OUT_T's columns. Neighbouring columns go side by side through the same butterflies. */
static void transform_columns(const ng_hadamard *h, const ng_tensor *in, int threads, const ng_tensor *out) {
    const float factor = ng_hadamard_factor(h);
    const int64_t size = h->size, groups = in->rows / size, columns = in->columns;
    float *y = out->data;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t g = 0; g < groups; g++)
        for (int64_t from = 0; from < columns; from += CHUNK) {
            const int64_t n = ng_cpu_min(CHUNK, columns - from);
            float *block = y + g * size * columns + from; /* [size][n], rows columns apart */
            for (int64_t j = 0; j < size; j++) {
                float *t = block + j * columns;
                load_floats(in->format, ng_cpu_row(in, g * size + j), from, n, t);
                for (int64_t i = 0; i < n; i++)
                    t[i] = ng_float(ng_bits(t[i]) ^ ng_hadamard_sign(h, (uint32_t)j));
            }
            for (int64_t half = 1; half < size; half *= 2)
                for (int64_t j = 0; j < size; j++) {
                    if (j & half) continue;
                    float *a = block + j * columns, *b = a + half * columns;
                    for (int64_t i = 0; i < n; i++) {
                        const float sum = ng_add(a[i], b[i]), difference = ng_sub(a[i], b[i]);
                        a[i] = sum, b[i] = difference;
                    }
                }
            for (int64_t j = 0; j < size; j++)
                for (int64_t i = 0; i < n; i++)
                    block[j * columns + i] = ng_hadamard_finish(block[j * columns + i], factor);
        }
    for (int64_t row = groups * size; row < in->rows; row++)
        for (int64_t from = 0; from < columns; from += CHUNK)
            load_floats(in->format, ng_cpu_row(in, row), from, ng_cpu_min(CHUNK, columns - from), y + row * columns + from);
}

/* The words that a launch draws (common/philox.h), [rows][columns] of the input; OUT_T's elements are numbered column by column,
 * after OUT's last. */
static void draw_words(const ng_launch *launch, bool transposed, int threads, const ng_tensor *words) {
    const uint64_t seed = launch->problem->seed, offset = launch->problem->offset;
    const int64_t rows = words->rows, columns = words->columns, lines = transposed ? columns : rows, length = transposed ? rows : columns;
    const uint64_t before = transposed ? (uint64_t)rows * (uint64_t)columns : 0;
    uint32_t *to = words->data;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t line = 0; line < lines; line++) {
        ng_random4 sixteen = {{0}};
        for (int64_t place = 0; place < length; place++) {
            const uint64_t element = before + (uint64_t)line * (uint64_t)length + (uint64_t)place;
            if (place == 0 || element % 16 == 0) sixteen = ng_philox4(seed, offset, element / 16);
            to[transposed ? place * columns + line : line * columns + place] = ng_philox_byte_of(sixteen, element);
        }
    }
}

/* One output by the plain quantizer, from `in`. */
static ng_status quantize_one(const ng_kernel *kernel, const ng_launch *launch, const ng_tensor *in, bool transposed, int threads,
                              const ng_tensor *words) {
    const ng_kernel plain = {.name = kernel->name, .op = kernel->op, .in = in->format, .out = kernel->out, .contract = kernel->contract};
    ng_launch mine = *launch;
    mine.tensors[NG_IN] = *in;
    if (transposed) mine.tensors[NG_OUT_TENSOR_SCALE] = launch->tensors[NG_OUT_T_TENSOR_SCALE];
    mine.tensors[transposed ? NG_OUT : NG_OUT_T].data = NULL;
    if (words->data) {
        draw_words(launch, transposed, threads, words);
        mine.tensors[NG_RANDOM_WORDS] = *words;
    }
    return ng_cpu_quantize(&plain, &mine);
}

static ng_status launch_rotated(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_tensor *in = &launch->tensors[NG_IN];
    const ng_hadamard *h = &kernel->contract.hadamard;
    const int64_t rows = launch->problem->m, columns = launch->problem->n;
    const int threads = ng_cpu_team(launch->device, rows * columns);
    ng_status status = ng_cpu_check(launch, NG_IN, kernel->in, rows, columns);
    if (status) return status;
    if (!launch->tensors[NG_OUT].data && !launch->tensors[NG_OUT_T].data)
        return ng_cpu_fail(launch, NG_BAD_ARGUMENT, "neither OUT nor OUT_T is given");
    ng_tensor y = {malloc((size_t)(rows * columns) * sizeof(float) + 1), NG_FP32, NG_HOST, rows, columns, columns * 4};
    ng_tensor words = {NULL, NG_FP32, NG_HOST, rows, columns, columns * 4};
    const bool draws = kernel->contract.cast.rounding == NG_R_STOCHASTIC && !launch->tensors[NG_RANDOM_WORDS].data;
    if (draws) words.data = malloc((size_t)(rows * columns) * sizeof(uint32_t) + 1);
    if (!y.data || (draws && !words.data)) {
        status = ng_cpu_fail(launch, NG_NO_MEMORY, "no memory for a %lld x %lld transform", (long long)rows, (long long)columns);
        goto done;
    }
    if (launch->tensors[NG_OUT].data) {
        if (!h->transposed_only) transform_rows(h, in, threads, &y);
        status = quantize_one(kernel, launch, h->transposed_only ? in : &y, false, threads, &words);
    }
    if (!status && launch->tensors[NG_OUT_T].data) {
        transform_columns(h, in, threads, &y);
        status = quantize_one(kernel, launch, &y, true, threads, &words);
    }
done:
    free(y.data);
    free(words.data);
    return status;
}

/* ---- catalogue ----------------------------------------------------------------------------------------------------*/
#define HADAMARD(in_name, in_format, out_name, out_format, words, n, shift)                                     \
    {.name = "hadamard/" in_name "->" out_name "/cpu/" words, .op = NG_OP_HADAMARD, .backend = NG_BACKEND_CPU, \
     .in = in_format, .in_b = NG_NO_FORMAT, .out = out_format,                                                  \
     .contract = {.cast = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL}, .determinism = NG_DETERMINISTIC, \
                  .hadamard = NG_HADAMARD(n, shift, false)},                                                    \
     .supports = ng_cpu_supports, .launch = launch_hadamard}

#define ROTATED(form, variant, n, shift, only, element, scale, rows, columns, rule, over, how, sr, r, repeatable)    \
    {.name = "quantize/bf16->" form "/cpu/" variant, .op = NG_OP_QUANTIZE, .backend = NG_BACKEND_CPU, .in = NG_BF16, \
     .in_b = NG_NO_FORMAT, .out = element,                                                                           \
     .contract = {.cast = NG_ELEMENT_CAST(element, how, sr, r),                                                      \
                  .quantization = NG_QUANTIZATION(element, scale, rows, columns, rule, over, how, sr, r),            \
                  .determinism = repeatable, .hadamard = NG_HADAMARD(n, shift, only)},                               \
     .supports = ng_cpu_supports, .launch = launch_rotated}

static const ng_kernel kernels[] = {NG_HADAMARD_ROWS(HADAMARD), NG_ROTATED_ROWS(ROTATED)};

const ng_kernel_list ng_cpu_hadamards = {kernels, sizeof kernels / sizeof *kernels};
