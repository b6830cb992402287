/* One element a thread, by the generator itself (data_core.h). */
#include "harness/data_core.h"
#include "harness/data_cuda.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdio.h>

namespace {

enum { THREADS = 256 };

/* Nearest even, saturating, infinities kept, NaN canonical: what data.c's store does. */
__device__ __forceinline__ void store(const ng_tensor &out, long long i, long long j, float x) {
    char *line = static_cast<char *>(out.data) + i * out.row_bytes;
    const uint32_t u = ng_core_bits(x), magnitude = u & 0x7FFFFFFFu;
    const bool nan = magnitude > 0x7F800000u;
    if (out.format == NG_BF16) {
        uint32_t r = (u + 0x7FFFu + (u >> 16 & 1u)) >> 16;
        r -= magnitude >= 0x7F7F8000u && magnitude < 0x7F800000u;
        reinterpret_cast<uint16_t *>(line)[j] = (uint16_t)(nan ? 0x7FFFu : r);
    } else if (out.format == NG_FP16) {
        const bool over = magnitude >= 0x477FF000u && magnitude < 0x7F800000u;
        const uint16_t half = __half_as_ushort(__float2half_rn(x));
        reinterpret_cast<uint16_t *>(line)[j] = nan ? (uint16_t)0x7FFF : over ? (uint16_t)((u >> 16 & 0x8000u) | 0x7BFFu) : half;
    } else if (out.format == NG_TF32) {
        uint32_t r = (u + 0xFFFu + (u >> 13 & 1u)) & ~0x1FFFu;
        if (magnitude >= 0x7F7FF000u && magnitude < 0x7F800000u) r = (u & 0x80000000u) | 0x7F7FE000u;
        reinterpret_cast<uint32_t *>(line)[j] = nan ? 0x7FFFE000u : r;
    } else {
        reinterpret_cast<uint32_t *>(line)[j] = nan ? 0x7FFFFFFFu : u;
    }
}

__global__ void __launch_bounds__(THREADS) fill(ng_data_core core, ng_tensor out, long long row0, long long column0, bool transposed) {
    const long long j = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (j >= out.columns) return;
    for (long long i = blockIdx.y; i < out.rows; i += gridDim.y) {
        const long long row = row0 + i, column = column0 + j;
        store(out, i, j, (float)ng_core_element(&core, transposed ? column : row, transposed ? row : column));
    }
}

ng_status failed(cudaError_t code, ng_error *error) {
    error->status = code == cudaErrorMemoryAllocation ? NG_NO_MEMORY : NG_DEVICE;
    snprintf(error->text, sizeof error->text, "making data on the GPU: %s", cudaGetErrorString(code));
    cudaGetLastError();
    return error->status;
}

bool is_binary32(ng_distribution d) {
    return d != NG_ILL_CONDITIONED && d != NG_TIES && d != NG_SUBNORMAL && d != NG_BLOCK_EDGES && d != NG_NEAR_OVERFLOW && d != NG_FILE_TENSOR;
}

} // namespace

extern "C" ng_status ng_data_fill_cuda(const ng_data_spec *spec, int64_t row0, int64_t column0, const ng_tensor *out, void *stream_pointer, ng_error *error) {
    const cudaStream_t stream = static_cast<cudaStream_t>(stream_pointer);
    ng_data_core core;
    float *table = nullptr;
    if (!is_binary32(spec->distribution) || (out->format != NG_FP32 && out->format != NG_TF32 && out->format != NG_BF16 && out->format != NG_FP16))
        return NG_UNSUPPORTED;
    const ng_status status = ng_data_core_of(spec, &core, error);
    if (status) return status;
    if (!out->rows || !out->columns) return NG_OK;
    const size_t bytes = sizeof(float) * 4 * NG_NORMAL_ROWS;
    cudaError_t code = cudaMallocAsync(&table, bytes, stream);
    if (code == cudaSuccess) code = cudaMemcpyAsync(table, core.normal, bytes, cudaMemcpyHostToDevice, stream);
    core.normal = table;
    if (code == cudaSuccess) {
        const dim3 grid((unsigned)((out->columns + THREADS - 1) / THREADS), (unsigned)(out->rows < 65535 ? out->rows : 65535));
        fill<<<grid, THREADS, 0, stream>>>(core, *out, row0, column0, spec->transposed);
        code = cudaPeekAtLastError();
    }
    if (table) cudaFreeAsync(table, stream);
    return code == cudaSuccess ? NG_OK : failed(code, error);
}
