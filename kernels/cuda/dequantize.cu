/* One rounding of element * block scale * tensor scale, exact in binary64 (kernels/cpu/dequantize.c says why). */
#include "kernels/cuda/device.cuh"

namespace {

enum { THREADS = 256 };

struct Dequantize {
    ng_matrix in, scales, out;
    long long rows, columns, block_rows, block_columns;
    const float *tensor_scale;
    ng_caster caster;
};

__global__ void __launch_bounds__(THREADS) dequantize(Dequantize d) {
    const double tensor_scale = d.tensor_scale ? (double)*d.tensor_scale : 1.0;
    const long long count = d.rows * d.columns;
    for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < count; i += (long long)gridDim.x * THREADS) {
        const long long row = i / d.columns, column = i % d.columns;
        const double scale = __dmul_rn((double)ng_decode_float(d.scales.format, ng_load_code(d.scales, row / d.block_rows, column / d.block_columns)), tensor_scale);
        const double product = __dmul_rn((double)ng_decode_float(d.in.format, ng_load_code(d.in, row, column)), scale);
        if (d.out.format == NG_FP32) {
            const float f = __double2float_rn(product);
            ng_row<uint32_t>(d.out, row)[column] = f == f ? ng_bits(f) : (uint32_t)NG_NAN_BITS;
        } else {
            ng_store_code(d.out, row, column, ng_cast_code(&d.caster, NG_RN_EVEN, ng_bits(ng_round_to_odd(product))));
        }
    }
}

} // namespace

extern "C" ng_status ng_cuda_launch_dequantize(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_quantization *q = &kernel->contract.quantization;
    const long long rows = launch->problem->m, columns = launch->problem->n;
    ng_status status = ng_cuda_check(launch, NG_IN, q->element, rows, columns);
    if (!status)
        status = ng_cuda_check(launch, NG_IN_SCALES, q->scale, ng_cuda_blocks(q->blocks.rows, rows), ng_cuda_blocks(q->blocks.columns, columns));
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, rows, columns);
    if (!status && q->tensor_scale) status = ng_cuda_check(launch, NG_IN_TENSOR_SCALE, NG_FP32, 1, 1);
    if (status) return status;
    const Dequantize d = {ng_matrix_of(&launch->tensors[NG_IN]), ng_matrix_of(&launch->tensors[NG_IN_SCALES]), ng_matrix_of(&launch->tensors[NG_OUT]),
                          rows, columns, q->blocks.rows ? q->blocks.rows : rows, q->blocks.columns ? q->blocks.columns : columns,
                          q->tensor_scale ? static_cast<const float *>(launch->tensors[NG_IN_TENSOR_SCALE].data) : nullptr,
                          ng_caster_of(kernel->out, &kernel->contract.cast)};
    const unsigned blocks = (unsigned)min((rows * columns + THREADS - 1) / THREADS, 1ll << 20);
    dequantize<<<blocks, THREADS, 0, static_cast<cudaStream_t>(launch->stream)>>>(d);
    return ng_cuda_launched(launch);
}
