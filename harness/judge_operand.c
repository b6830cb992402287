/* Source data, and operands quantized by the reference. */
#include "harness/judge_internal.h"
#include "reference/hadamard.h"
#include "reference/round.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014): not the generator of any kernel. */
uint32_t ng_word(uint64_t seed, uint64_t index) {
    uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

static void add_spec(ng_key *key, const ng_data_spec *s) {
    ng_key_add(key, "%d %a %llu %u %d %p %d %d %lldx%lld", (int)s->distribution, s->parameter, (unsigned long long)s->seed,
               s->stream, (int)s->target, (const void *)s->file, s->file_index, s->transposed, (long long)s->whole_rows,
               (long long)s->whole_columns);
}

static void release_tensor(void *value) {
    ng_tensor_free(value);
    free(value);
}

ng_status ng_source(ng_judge *judge, const ng_data_spec *spec, ng_format_id format, int64_t row0, int64_t column0,
                    int64_t rows, int64_t columns, const ng_tensor **source, ng_key *key, ng_error *error) {
    ng_key_set(key, "source %d @%lld,%lld %lldx%lld ", (int)format, (long long)row0, (long long)column0, (long long)rows,
               (long long)columns);
    add_spec(key, spec);
    if ((*source = ng_cache_find(&judge->cache, key))) return NG_OK;
    ng_tensor *made = calloc(1, sizeof *made);
    if (!made) return ng_fail(error, NG_NO_MEMORY, "no memory for source data");
    ng_status status = ng_tensor_create(format, rows, columns, made, error);
    if (!status) status = ng_data_fill(spec, row0, column0, made, judge->threads, error);
    if (status) {
        release_tensor(made);
        return status;
    }
    *source = made;
    return ng_cache_put(&judge->cache, key, made, release_tensor, (size_t)(made->rows * made->row_bytes), error);
}

ng_status ng_source_amax(ng_judge *judge, const ng_data_spec *spec, ng_format_id format, double *amax, ng_error *error) {
    ng_key key;
    ng_data_spec straight = *spec;
    straight.transposed = false; /* the same elements */
    ng_key_set(&key, "amax %d ", (int)format);
    add_spec(&key, &straight);
    double *known = ng_cache_find(&judge->cache, &key);
    if (known) {
        *amax = *known;
        return NG_OK;
    }
    known = malloc(sizeof *known);
    if (!known) return ng_fail(error, NG_NO_MEMORY, "no memory for a maximum");
    ng_status status = ng_data_amax(&straight, format, judge->threads, known, error);
    if (status) {
        free(known);
        return status;
    }
    *amax = *known;
    return ng_cache_put(&judge->cache, &key, known, free, sizeof *known, error);
}

/* ---- operands -----------------------------------------------------------------------------------------------------*/
bool ng_is_plain(const ng_quantization *quantization) { return quantization->rule == NG_SCALE_ABSENT; }

static double scale_value(const ng_operand *o, int64_t i, int64_t j) {
    double scale = o->tensor_scale;
    if (!o->scales.data) return scale;
    int64_t row = i / ng_block_extent(o->blocks.rows, o->codes.rows), column = j / ng_block_extent(o->blocks.columns, o->codes.columns);
    return scale * ng_get_value(&o->scales, row, column);
}

/* A 24-bit tensor scale times an at most 24-bit block scale times an at most 4-bit element: 52 bits. */
double ng_operand_value(const ng_operand *o, int64_t i, int64_t j) {
    return ng_get_value(&o->codes, i, j) * scale_value(o, i, j);
}

void ng_operand_row(const ng_operand *o, int64_t i, double *values) {
    int64_t columns = o->codes.columns, extent = ng_block_extent(o->blocks.columns, columns);
    ng_decode_row(&o->codes, i, 0, columns, values);
    if (!o->scales.data && o->tensor_scale == 1) return;
    for (int64_t j = 0; j < columns; j += extent) {
        double scale = scale_value(o, i, j);
        for (int64_t k = j; k < columns && k < j + extent; k++)
            values[k] *= scale;
    }
}

static bool same_cast(const ng_cast *a, const ng_cast *b) {
    return a->rounding == b->rounding && a->saturate == b->saturate && a->nan == b->nan &&
           (a->rounding != NG_R_STOCHASTIC || (a->stochastic == b->stochastic && a->random_bits == b->random_bits));
}

static bool same_quantization(const ng_quantization *a, const ng_quantization *b) {
    return a->element == b->element && a->scale == b->scale && a->blocks.rows == b->blocks.rows &&
           a->blocks.columns == b->blocks.columns && a->rule == b->rule && a->tensor_scale == b->tensor_scale &&
           a->four_over_six == b->four_over_six && a->layout == b->layout && same_cast(&a->cast, &b->cast);
}

const ng_kernel *ng_find_quantizer(const ng_catalogue *catalogue, ng_backend backend, ng_format_id in, const ng_quantization *quantization) {
    for (size_t i = 0; i < catalogue->count; i++) {
        const ng_kernel *k = catalogue->kernels[i];
        if (k->op == NG_OP_QUANTIZE && k->backend == backend && k->in == in && !k->contract.hadamard.size &&
            same_quantization(&k->contract.quantization, quantization))
            return k;
    }
    return NULL;
}

static ng_status round_plain(const ng_quantization *quantization, const ng_tensor *source, int threads, ng_tensor *codes) {
    ng_cast cast = quantization->cast;
    int64_t columns = source->columns;
    ng_status status = NG_OK;
    if (source->format == codes->format) {
        ng_tensor_copy(source, codes);
        return NG_OK;
    }
#pragma omp parallel num_threads(threads)
    {
        double *values = malloc(sizeof *values * (size_t)(columns + 1));
        if (!values) {
#pragma omp atomic write
            status = NG_NO_MEMORY;
        }
#pragma omp for
        for (int64_t i = 0; i < source->rows; i++) {
            if (!values) continue;
            ng_decode_row(source, i, 0, columns, values);
            for (int64_t j = 0; j < columns; j++)
                ng_set_code(codes, i, j, ng_round(codes->format, values[j], &cast, 0));
        }
        free(values);
    }
    return status;
}

void ng_count_losses(const ng_tensor *source, const ng_operand *o, int threads, double *saturated, double *flushed) {
    int64_t lost = 0, gone = 0, columns = source->columns;
    double largest = ng_formats[o->codes.format].largest;
#pragma omp parallel for num_threads(threads) reduction(+ : lost, gone)
    for (int64_t i = 0; i < source->rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double x = fabs(ng_get_value(source, i, j)), q = fabs(ng_get_value(&o->codes, i, j));
            if (!(x > 0) || isinf(x)) continue;
            if (q == 0) gone++;
            else if (q == largest && x > largest * fabs(scale_value(o, i, j))) lost++;
        }
    *saturated = (double)lost;
    *flushed = (double)gone;
}

ng_status ng_quantize(const ng_quantization *q, const ng_tensor *source, const ng_quantize_inputs *inputs, int threads,
                      ng_quantized *quantized, ng_error *error) {
    ng_operand *o = &quantized->operand;
    memset(quantized, 0, sizeof *quantized);
    o->tensor_scale = 1;
    o->blocks = q->blocks;
    ng_status status = ng_tensor_create(q->element, source->rows, source->columns, &o->codes, error);
    if (status) goto done;
    if (ng_is_plain(q)) {
        status = round_plain(q, source, threads, &o->codes);
    } else {
        status = ng_tensor_create(q->scale, ng_block_count(q->blocks.rows, source->rows),
                                  ng_block_count(q->blocks.columns, source->columns), &o->scales, error);
        if (!status) {
            status = ng_reference_quantize(q, source, inputs, NG_TIER_INTEGER, &o->codes, &o->scales, &o->tensor_scale);
            if (status) ng_fail(error, status, "the reference could not quantize a %lld x %lld tensor", (long long)source->rows, (long long)source->columns);
        }
    }
    if (!status) ng_count_losses(source, o, threads, &quantized->saturated, &quantized->flushed);
done:
    if (status) ng_quantized_free(quantized);
    return status;
}

void ng_quantized_free(ng_quantized *quantized) {
    ng_tensor_free(&quantized->operand.codes);
    ng_tensor_free(&quantized->operand.scales);
}

ng_status ng_quantizer_input(const ng_contract *contract, bool transposed, const ng_tensor *source, int threads, ng_tensor *made,
                             const ng_tensor **input, ng_error *error) {
    static const ng_cast exact = {.rounding = NG_RN_EVEN};
    const ng_hadamard *h = &contract->hadamard;
    *input = source;
    if (!h->size || (h->transposed_only && !transposed)) return NG_OK;
    ng_status status = ng_tensor_create(NG_FP32, source->rows, source->columns, made, error);
    if (status) return status;
    *input = made;
    status = ng_reference_hadamard(h, &exact, source, threads, made);
    return status ? ng_fail(error, status, "the reference could not transform a %lld x %lld tensor", (long long)source->rows, (long long)source->columns) : NG_OK;
}
