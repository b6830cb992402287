#include "kernels/cpu/cpu.h"
#include "kernels/common/philox.h"

#include <stdarg.h>
#include <stdio.h>

ng_status ng_cpu_fail(const ng_launch *launch, ng_status status, const char *format, ...) {
    if (!launch->message || !launch->message_bytes) return status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(launch->message, launch->message_bytes, format, arguments);
    va_end(arguments);
    return status;
}

int64_t ng_cpu_row_bytes(ng_format_id format, int64_t columns) {
    switch (format) {
    case NG_FP64: return columns * 8;
    case NG_FP32:
    case NG_TF32: return columns * 4;
    case NG_BF16:
    case NG_FP16: return columns * 2;
    case NG_E2M1: return columns / 2 + columns % 2;
    default: return columns;
    }
}

ng_status ng_cpu_check(const ng_launch *launch, ng_role role, ng_format_id format, int64_t rows, int64_t columns) {
    const ng_tensor *t = &launch->tensors[role];
    if (!t->data) return ng_cpu_fail(launch, NG_BAD_ARGUMENT, "tensor of role %d is missing", (int)role);
    if (t->space != NG_HOST) return ng_cpu_fail(launch, NG_BAD_ARGUMENT, "tensor of role %d is not in host memory", (int)role);
    if (t->format != format)
        return ng_cpu_fail(launch, NG_BAD_ARGUMENT, "tensor of role %d has format %d, expected %d", (int)role,
                           (int)t->format, (int)format);
    if (t->rows != rows || t->columns != columns)
        return ng_cpu_fail(launch, NG_BAD_ARGUMENT, "tensor of role %d is %lld x %lld, expected %lld x %lld", (int)role,
                           (long long)t->rows, (long long)t->columns, (long long)rows, (long long)columns);
    if (t->row_bytes < ng_cpu_row_bytes(format, columns))
        return ng_cpu_fail(launch, NG_BAD_ARGUMENT, "rows of the tensor of role %d overlap", (int)role);
    return NG_OK;
}

const char *ng_cpu_supports(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device) {
    (void)device;
    if (problem->op != kernel->op) return "another operation";
    if (problem->m <= 0 || problem->n <= 0 || (kernel->op == NG_OP_GEMM && problem->k <= 0)) return "an extent is not positive";
    return NULL;
}

void ng_cpu_decoder_init(ng_cpu_decoder *decoder, ng_format_id format) {
    decoder->format = format;
    if (ng_cpu_row_bytes(format, 2) > 2) return;
    for (uint32_t code = 0; code < 256; code++)
        decoder->value[code] = ng_decode_float(format, code);
}

void ng_cpu_decode(const ng_cpu_decoder *decoder, const void *row, int64_t from, int64_t n, float *values) {
    const uint8_t *bytes = row;
    switch (decoder->format) {
    case NG_FP32: memcpy(values, (const ng_f32 *)row + from, (size_t)n * 4); break;
    case NG_TF32:
        for (int64_t i = 0; i < n; i++)
            values[i] = ng_float(((const ng_u32 *)row)[from + i] & 0xFFFFE000u);
        break;
    case NG_BF16:
        for (int64_t i = 0; i < n; i++)
            values[i] = ng_decode_bf16(((const ng_u16 *)row)[from + i]);
        break;
    case NG_FP16:
        for (int64_t i = 0; i < n; i++)
            values[i] = ng_decode_fp16(((const ng_u16 *)row)[from + i]);
        break;
    case NG_E2M1:
        for (int64_t i = from; i < from + n; i++)
            values[i - from] = decoder->value[bytes[i / 2] >> (i % 2 * 4) & 0xF];
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            values[i] = decoder->value[bytes[from + i]];
    }
}

void ng_cpu_words(const ng_launch *launch, int64_t row, int64_t from, int64_t n, uint64_t first, uint32_t *words) {
    const ng_tensor *given = &launch->tensors[NG_RANDOM_WORDS];
    if (given->data) {
        memcpy(words, (const ng_u32 *)ng_cpu_row(given, row) + from, (size_t)n * 4);
        return;
    }
    uint64_t seed = launch->problem->seed, offset = launch->problem->offset;
    for (int64_t i = 0; i < n;) {
        ng_random4 four = ng_philox4(seed, offset, (first + (uint64_t)i) / 4);
        for (uint64_t lane = (first + (uint64_t)i) % 4; lane < 4 && i < n; lane++)
            words[i++] = four.word[lane];
    }
}
