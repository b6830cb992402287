/* The same for a GPU: a cast of fp32 to bf16 as a CUDA kernel, enqueued on the stream that a launch brings. */
#include <narrowgauge/kernel.h>

#include <cuda_runtime.h>

__global__ static void cast_rows(const char *in, int64_t in_bytes, char *out, int64_t out_bytes, int64_t columns) {
    const uint32_t *from = (const uint32_t *)(in + blockIdx.x * in_bytes);
    uint16_t *to = (uint16_t *)(out + blockIdx.x * out_bytes);
    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) {
        uint32_t bits = from[j];
        to[j] = (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
}

static ng_status launch(const ng_kernel *kernel, const ng_launch *request) {
    const ng_tensor *in = &request->tensors[NG_IN], *out = &request->tensors[NG_OUT];
    (void)kernel;
    if (!in->data || !out->data) return NG_BAD_ARGUMENT;
    cast_rows<<<(unsigned)in->rows, 256, 0, (cudaStream_t)request->stream>>>((const char *)in->data, in->row_bytes, (char *)out->data,
                                                                             out->row_bytes, in->columns);
    return cudaGetLastError() == cudaSuccess ? NG_OK : NG_DEVICE;
}

/* C++ has no designated initialisers before C++20: filled where it is asked for. */
extern "C" const ng_plugin *ng_plugin_entry(void) {
    static ng_kernel cast;
    static const ng_kernel *const kernels[] = {&cast};
    static const ng_plugin plugin = {NG_ABI_VERSION, sizeof(ng_kernel), 1, kernels, "example for CUDA 1.0"};
    cast.name = "cast/fp32->bf16/example-cuda/rne-nosat";
    cast.op = NG_OP_CAST;
    cast.backend = NG_BACKEND_CUDA;
    cast.in = NG_FP32;
    cast.in_b = NG_NO_FORMAT;
    cast.out = NG_BF16;
    cast.contract.cast.rounding = NG_RN_EVEN;
    cast.contract.cast.nan = NG_NAN_CANONICAL;
    cast.contract.determinism = NG_DETERMINISTIC;
    cast.launch = launch;
    return &plugin;
}
