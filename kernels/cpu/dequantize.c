/* dequantize/<form>-><out>/cpu/rne: one rounding of element * block scale * tensor scale. The product has at most 4 + 24
 * significant bits (nvfp4: 2 + 4 + 24) and its exponent is far inside binary64's range: in binary64 it is exact. */
#include "kernels/catalogue.h"
#include "kernels/common/rows.h"
#include "kernels/cpu/cpu.h"

enum { CHUNK = 512 }; /* elements at a time; a multiple of the columns of every block that is not a whole row */

NG_ALWAYS_INLINE void exact_products(const float *values, const float *scales, int64_t n, int64_t block, double tensor_scale,
                           double *products) {
    for (int64_t i = 0; i < n;) {
        int64_t b = i / block, end = ng_cpu_min(n, (b + 1) * block);
        double scale = (double)scales[b] * tensor_scale;
        for (; i < end; i++)
            products[i] = (double)values[i] * scale;
    }
}

NG_ALWAYS_INLINE uint32_t to_binary32(double x) {
    float f = (float)x;
    return f == f ? ng_bits(f) : NG_NAN_BITS;
}

NG_ALWAYS_INLINE void store_products(ng_format_id to, const ng_caster *caster, const double *products, int64_t n, void *row, int64_t from) {
    uint32_t codes[CHUNK];
    const ng_caster c = *caster;
    if (to == NG_FP32)
        for (int64_t i = 0; i < n; i++)
            codes[i] = to_binary32(products[i]);
    else
        for (int64_t i = 0; i < n; i++)
            codes[i] = ng_cast_code(&c, NG_RN_EVEN, ng_bits(ng_round_to_odd(products[i])));
    ng_cpu_store(to, codes, n, row, from);
}

/* One chunk of a row, compiled for each instruction set. */
typedef struct chunk_in {
    const float *values, *scales;
    int64_t n, block; /* the first value begins a block, or lies in the only one */
    double tensor_scale;
} chunk_in;
typedef void multiply_chunk(const chunk_in *in, ng_format_id to, const ng_caster *caster, void *row, int64_t from);

#define MULTIPLY_CHUNK(name, target)                                                                                \
    target static void name(const chunk_in *in, ng_format_id to, const ng_caster *caster, void *row, int64_t from) { \
        double products[CHUNK];                                                                                     \
        exact_products(in->values, in->scales, in->n, in->block, in->tensor_scale, products);           \
        store_products(to, caster, products, in->n, row, from);                                                     \
    }
MULTIPLY_CHUNK(multiply_c, )
MULTIPLY_CHUNK(multiply_avx2, NG_AVX2)
static multiply_chunk *const multiply[2] = {multiply_c, multiply_avx2};

static ng_status launch_dequantize(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_quantization *q = &kernel->contract.quantization;
    const ng_tensor *in = &launch->tensors[NG_IN], *scales = &launch->tensors[NG_IN_SCALES], *out = &launch->tensors[NG_OUT];
    const int64_t rows = launch->problem->m, columns = launch->problem->n;
    const int64_t block_rows = ng_cpu_block(q->blocks.rows, rows), block_columns = ng_cpu_block(q->blocks.columns, columns);
    const int64_t across = ng_cpu_blocks(q->blocks.columns, columns);
    ng_status status = ng_cpu_check(launch, NG_IN, q->element, rows, columns);
    if (!status) status = ng_cpu_check(launch, NG_IN_SCALES, q->scale, ng_cpu_blocks(q->blocks.rows, rows), across);
    if (!status) status = ng_cpu_check(launch, NG_OUT, kernel->out, rows, columns);
    if (!status && q->tensor_scale) status = ng_cpu_check(launch, NG_IN_TENSOR_SCALE, NG_FP32, 1, 1);
    if (status) return status;

    const ng_caster caster = ng_caster_of(kernel->out, &kernel->contract.cast);
    const double tensor_scale = q->tensor_scale ? (double)*(const ng_f32 *)launch->tensors[NG_IN_TENSOR_SCALE].data : 1.0;
    multiply_chunk *const multiply_one = multiply[ng_cpu_avx2(launch->device)];
    ng_cpu_decoder elements, scale_codes;
    ng_cpu_decoder_init(&elements, q->element);
    ng_cpu_decoder_init(&scale_codes, q->scale);
#pragma omp parallel for num_threads(ng_cpu_team(launch->device, rows * columns)) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        float values[CHUNK], block_scales[CHUNK];
        for (int64_t from = 0; from < columns; from += CHUNK) {
            int64_t n = ng_cpu_min(CHUNK, columns - from), first = from / block_columns;
            int64_t last = (from + n - 1) / block_columns;
            ng_cpu_decode(&elements, ng_cpu_row(in, row), from, n, values);
            ng_cpu_decode(&scale_codes, ng_cpu_row(scales, row / block_rows), first, last - first + 1, block_scales);
            const chunk_in chunk = {values, block_scales, n, block_columns, tensor_scale};
            multiply_one(&chunk, kernel->out, &caster, ng_cpu_row(out, row), from);
        }
    }
    return NG_OK;
}

/* ---- catalogue ----------------------------------------------------------------------------------------------------*/
#define DEQUANTIZE(form, element, scale, rows, columns, rule, out_name, out_format)                               \
    {.name = "dequantize/" form "->" out_name "/cpu/rne", .op = NG_OP_DEQUANTIZE, .backend = NG_BACKEND_CPU,      \
     .in = element, .in_b = NG_NO_FORMAT, .out = out_format,                                                      \
     .contract = {.cast = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL},                                  \
                  .quantization = NG_QUANTIZATION(element, scale, rows, columns, rule, NG_4OVER6_OFF, NG_RN_EVEN, \
                                                  NG_SR_CARRY, 0),                                                \
                  .determinism = NG_DETERMINISTIC},                                                               \
     .supports = ng_cpu_supports, .launch = launch_dequantize}

static const ng_kernel kernels[] = {NG_DEQUANTIZE_ROWS(DEQUANTIZE)};

const ng_kernel_list ng_cpu_dequantizers = {kernels, sizeof kernels / sizeof *kernels};
