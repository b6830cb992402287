/* What the launch functions share: checks of a launch, and failures in words. */
#include "kernels/cuda/cuda.h"

#include "kernels/common/scale_layout.h"

#include <cuda_runtime.h>
#include <stdarg.h>
#include <stdio.h>

extern "C" ng_status ng_cuda_fail(const ng_launch *launch, ng_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (launch->message && launch->message_bytes) vsnprintf(launch->message, launch->message_bytes, format, arguments);
    va_end(arguments);
    return status;
}

extern "C" int64_t ng_cuda_row_bytes(ng_format_id format, int64_t columns) {
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

extern "C" void ng_cuda_scale_extents(const ng_quantization *q, int64_t rows, int64_t columns, int64_t *scale_rows, int64_t *scale_columns) {
    const int64_t r = ng_cuda_blocks(q->blocks.rows, rows), c = ng_cuda_blocks(q->blocks.columns, columns);
    *scale_rows = ng_scale_rows(q->layout, r, c);
    *scale_columns = ng_scale_columns(q->layout, r, c);
}

extern "C" ng_status ng_cuda_check(const ng_launch *launch, ng_role role, ng_format_id format, int64_t rows, int64_t columns) {
    const ng_tensor *t = &launch->tensors[role];
    if (!t->data) return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "tensor of role %d is absent", (int)role);
    if (t->space != NG_GPU) return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "tensor of role %d is not in device memory", (int)role);
    if (t->format != format) return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "tensor of role %d has format %d, expected %d", (int)role, (int)t->format, (int)format);
    if (t->rows != rows || t->columns != columns)
        return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "tensor of role %d is %lldx%lld, expected %lldx%lld", (int)role,
                            (long long)t->rows, (long long)t->columns, (long long)rows, (long long)columns);
    if (t->row_bytes < ng_cuda_row_bytes(format, columns))
        return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "rows of role %d are only %lld bytes apart", (int)role, (long long)t->row_bytes);
    return NG_OK;
}

extern "C" ng_status ng_cuda_launched(const ng_launch *launch) {
    const cudaError_t error = cudaPeekAtLastError();
    if (error == cudaSuccess) return NG_OK;
    return ng_cuda_fail(launch, error == cudaErrorMemoryAllocation ? NG_NO_MEMORY : NG_DEVICE, "%s (%s)", cudaGetErrorString(error),
                        cudaGetErrorName(error));
}

extern "C" const char *ng_cuda_supports(const ng_kernel *, const ng_problem *problem, const ng_device *device) {
    if (device->sm < 80) return "the GPU is older than sm_80";
    if (problem->m < 1 || problem->n < 1 || problem->k < 0) return "empty problem";
    if (problem->m > 1ll << 40 || problem->n > 1ll << 40) return "extents beyond 2^40";
    return nullptr;
}
