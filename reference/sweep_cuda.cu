/* A thread compares 16 bytes of codes: one bisection for the first, then the runs in order (reference/sweep_cuda.h). */
#include "reference/sweep_cuda.h"

#include <cuda_runtime.h>

namespace {

enum { THREADS = 256 };

struct Found {
    unsigned long long different;
    unsigned first;
};

ng_status status_of(cudaError_t error) {
    if (error == cudaSuccess) return NG_OK;
    cudaGetLastError(); /* reported here, not by whoever asks next */
    return error == cudaErrorMemoryAllocation ? NG_NO_MEMORY : NG_DEVICE;
}

unsigned blocks_for(uint64_t units) { return (unsigned)((units + THREADS - 1) / THREADS); }

__global__ void __launch_bounds__(THREADS) make_inputs(uint32_t start, uint64_t groups, uint4 *words) {
    const uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x;
    const uint32_t x = start + 4 * (uint32_t)i;
    if (i < groups) words[i] = make_uint4(x, x + 1, x + 2, x + 3);
}

__device__ unsigned run_of(const ng_run *runs, unsigned count, uint32_t bits) {
    unsigned low = 0, high = count;
    while (high - low > 1) {
        const unsigned middle = low + (high - low) / 2;
        if (__ldg(&runs[middle].first) <= bits) low = middle;
        else high = middle;
    }
    return low;
}

template <int BITS> __global__ void __launch_bounds__(THREADS)
compare(const ng_run *runs, unsigned count, uint32_t start, uint64_t groups, const uint4 *codes, Found *found) {
    const uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x;
    if (i >= groups) return;
    const uint4 group = codes[i];
    const uint32_t words[4] = {group.x, group.y, group.z, group.w}, mask = BITS == 32 ? 0xFFFFFFFFu : (1u << BITS % 32) - 1;
    uint32_t x = start + (128 / BITS) * (uint32_t)i;
    unsigned r = run_of(runs, count, x);
    uint32_t next = r + 1 < count ? __ldg(&runs[r + 1].first) : 0, code = __ldg(&runs[r].code);
    for (int w = 0; w < 4; w++)
        for (int shift = 0; shift < 32; shift += BITS, x++) {
            if (x == next && r + 1 < count) { /* runs are not empty: one step at most */
                code = __ldg(&runs[++r].code);
                next = r + 1 < count ? __ldg(&runs[r + 1].first) : 0;
            }
            if ((words[w] >> shift & mask) == code) continue;
            atomicAdd(&found->different, 1ull);
            atomicMin(&found->first, x);
        }
}

} // namespace

extern "C" ng_status ng_sweep_cuda_new(const ng_sweep *sweep, void *stream, ng_sweep_cuda *made) {
    const cudaStream_t s = static_cast<cudaStream_t>(stream);
    const Found nothing = {0, UINT32_MAX};
    const size_t bytes = sweep->count * sizeof *sweep->runs;
    *made = ng_sweep_cuda{ng_formats[sweep->to].storage_bits, (unsigned)sweep->count, nullptr, nullptr};
    cudaError_t error = cudaMalloc(reinterpret_cast<void **>(&made->runs), bytes);
    if (!error) error = cudaMalloc(&made->found, sizeof nothing);
    if (!error) error = cudaMemcpyAsync(made->runs, sweep->runs, bytes, cudaMemcpyHostToDevice, s);
    if (!error) error = cudaMemcpyAsync(made->found, &nothing, sizeof nothing, cudaMemcpyHostToDevice, s);
    if (!error) error = cudaStreamSynchronize(s);
    if (error) ng_sweep_cuda_free(made);
    return status_of(error);
}

extern "C" void ng_sweep_cuda_free(ng_sweep_cuda *sweep) {
    cudaFree(sweep->runs);
    cudaFree(sweep->found);
    *sweep = ng_sweep_cuda{};
}

extern "C" ng_status ng_sweep_cuda_inputs(uint32_t start, uint64_t count, uint32_t *words, void *stream) {
    if (count % 4) return NG_BAD_ARGUMENT;
    make_inputs<<<blocks_for(count / 4), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(start, count / 4, reinterpret_cast<uint4 *>(words));
    return status_of(cudaPeekAtLastError());
}

extern "C" ng_status ng_sweep_cuda_check(const ng_sweep_cuda *sweep, uint32_t start, uint64_t count, const void *codes, void *stream) {
    const uint64_t groups = count * sweep->storage_bits / 128;
    const cudaStream_t s = static_cast<cudaStream_t>(stream);
    const uint4 *from = static_cast<const uint4 *>(codes);
    Found *found = static_cast<Found *>(sweep->found);
    const unsigned blocks = blocks_for(groups);
    if (count % 32) return NG_BAD_ARGUMENT;
    switch (sweep->storage_bits) {
    case 4: compare<4><<<blocks, THREADS, 0, s>>>(sweep->runs, sweep->count, start, groups, from, found); break;
    case 8: compare<8><<<blocks, THREADS, 0, s>>>(sweep->runs, sweep->count, start, groups, from, found); break;
    case 16: compare<16><<<blocks, THREADS, 0, s>>>(sweep->runs, sweep->count, start, groups, from, found); break;
    default: compare<32><<<blocks, THREADS, 0, s>>>(sweep->runs, sweep->count, start, groups, from, found);
    }
    return status_of(cudaPeekAtLastError());
}

extern "C" ng_status ng_sweep_cuda_result(const ng_sweep_cuda *sweep, void *stream, uint64_t *different, uint32_t *first) {
    const cudaStream_t s = static_cast<cudaStream_t>(stream);
    Found found;
    cudaError_t error = cudaMemcpyAsync(&found, sweep->found, sizeof found, cudaMemcpyDeviceToHost, s);
    if (!error) error = cudaStreamSynchronize(s);
    if (error) return status_of(error);
    *different = found.different;
    *first = found.first;
    return NG_OK;
}
