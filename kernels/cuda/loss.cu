/* Softmax cross-entropy on the GPU (kernels/contract_activation.h): a block of 256 threads has a row; thread t has the columns
 * 8 t .. 8 t + 7 of every 2048, so that its eight sums are eight chains of the contract. */
#include "kernels/common/activation.h"
#include "kernels/cuda/device.cuh"

namespace {

enum { THREADS = 256, EACH = 8, STRIDE = THREADS * EACH };
static_assert((int)STRIDE == (int)NG_LOSS_CHAINS, "a thread has eight chains");

struct Operands {
    ng_matrix x, labels, max, sum, gradient, out;
    long long rows, columns;
    ng_caster caster;
    bool aligned;
};

template <ng_format_id F> __device__ __forceinline__ void load(const Operands &o, long long row, long long column, int n, float (&x)[EACH]) {
    if (o.aligned && n == EACH) {
        const uint4 *from = reinterpret_cast<const uint4 *>(o.x.data + row * o.x.row_bytes + column * (F == NG_FP32 ? 4 : 2));
#pragma unroll
        for (int k = 0; k < (F == NG_FP32 ? 2 : 1); k++) {
            const uint4 w = from[k];
            const uint32_t word[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
            for (int i = 0; i < (F == NG_FP32 ? 4 : 8); i++) {
                const uint32_t code = word[i / 2] >> 16 * (i % 2) & 0xFFFFu;
                x[k * 4 + i] = F == NG_FP32 ? ng_float(word[i % 4]) : F == NG_BF16 ? ng_decode_bf16(code) : ng_decode_fp16(code);
            }
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        x[i] = i < n ? ng_float(ng_load_bits(o.x, row, column + i)) : -INFINITY;
}

__device__ __forceinline__ int present(const Operands &o, long long column) { return (int)max(0ll, min((long long)EACH, o.columns - column)); }
__device__ __forceinline__ int label_of(const Operands &o, long long row) { return *ng_row<const int>(o.labels, row); }
__device__ __forceinline__ float number_of(const ng_matrix &m, long long row) { return *ng_row<const float>(m, row); }
__device__ __forceinline__ void store_number(const ng_matrix &m, long long row, float x) {
    if (m.data) *ng_row<uint32_t>(m, row) = ng_norm_code(nullptr, NG_FP32, x);
}

/* The order does not matter: NaN stays, and a zero's sign is taken away. */
template <ng_format_id F> __device__ __forceinline__ float row_max(const Operands &o, long long row, float *shared) {
    float most = -INFINITY;
#pragma unroll 2
    for (long long column = threadIdx.x * EACH; column < o.columns; column += STRIDE) {
        float x[EACH];
        load<F>(o, row, column, present(o, column), x);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            most = ng_max_nan(most, x[i]);
    }
    for (int offset = 16; offset; offset /= 2)
        most = ng_max_nan(most, __shfl_xor_sync(0xFFFFFFFFu, most, offset));
    __syncthreads(); /* the row before is done with shared memory */
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = most;
    __syncthreads();
    for (int warp = 0; warp < THREADS / 32; warp++)
        most = ng_max_nan(most, shared[warp]);
    __syncthreads();
    return ng_add(most, 0.0f);
}

template <ng_format_id F> __global__ void __launch_bounds__(THREADS) forward(const __grid_constant__ Operands o) {
    __shared__ float shared[NG_LOSS_CHAINS];
    for (long long row = blockIdx.x; row < o.rows; row += gridDim.x) {
        const float most = row_max<F>(o, row, shared);
        float sum[EACH] = {0, 0, 0, 0, 0, 0, 0, 0};
        for (long long column = threadIdx.x * EACH; column < o.columns; column += STRIDE) {
            float x[EACH];
            const int n = present(o, column);
            load<F>(o, row, column, n, x);
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (i < n) sum[i] = ng_add(sum[i], ng_exp(ng_sub(x[i], most)));
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
            shared[threadIdx.x * EACH + i] = sum[i];
        for (int h = NG_LOSS_CHAINS / 2; h; h /= 2) {
            __syncthreads();
            for (int k = threadIdx.x; k < h; k += THREADS)
                shared[k] = ng_add(shared[k], shared[k + h]);
        }
        if (threadIdx.x) continue; /* that sum is this thread's own */
        const int label = label_of(o, row);
        store_number(o.max, row, most);
        store_number(o.sum, row, shared[0]);
        const float x = label >= 0 && label < o.columns ? ng_float(ng_load_bits(o.x, row, label)) : ng_float(NG_NAN_BITS);
        store_number(o.out, row, label < 0 ? 0.0f : ng_loss_value(most, x, shared[0]));
    }
}

template <ng_format_id F> __global__ void __launch_bounds__(THREADS) backward(const __grid_constant__ Operands o) {
    const long long across = (o.columns + STRIDE - 1) / STRIDE, tasks = o.rows * across;
    for (long long task = blockIdx.x; task < tasks; task += gridDim.x) {
        const long long row = task / across, column = task % across * STRIDE + threadIdx.x * EACH;
        const int label = label_of(o, row), n = present(o, column);
        const float most = number_of(o.max, row), r = ng_div(1.0f, number_of(o.sum, row)), d = number_of(o.gradient, row);
        float x[EACH];
        uint32_t code[EACH];
        if (!n) continue;
        load<F>(o, row, column, n, x);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const float y = label < 0 ? 0.0f : ng_loss_gradient(x[i], most, r, column + i == label, d);
            code[i] = ng_norm_code(&o.caster, F, y);
        }
        if (o.aligned && n == EACH && F == NG_FP32) {
            uint4 *to = reinterpret_cast<uint4 *>(o.out.data + row * o.out.row_bytes + column * 4);
            __stcs(to, make_uint4(code[0], code[1], code[2], code[3]));
            __stcs(to + 1, make_uint4(code[4], code[5], code[6], code[7]));
        } else if (o.aligned && n == EACH) {
            __stcs(reinterpret_cast<uint4 *>(o.out.data + row * o.out.row_bytes + column * 2),
                   make_uint4(code[0] | code[1] << 16, code[2] | code[3] << 16, code[4] | code[5] << 16, code[6] | code[7] << 16));
        } else {
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (i < n) ng_store_code(o.out, row, column + i, code[i]);
        }
    }
}

ng_status check_loss(const ng_kernel *kernel, const ng_launch *launch, bool back) {
    const long long rows = launch->problem->m, columns = launch->problem->n;
    ng_status status = ng_cuda_check(launch, NG_IN, kernel->in, rows, columns);
    if (!status) status = ng_cuda_check(launch, NG_LABELS, NG_FP32, rows, 1);
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, rows, back ? columns : 1);
    if (!status && (back || launch->tensors[NG_ROW_MAX].data)) status = ng_cuda_check(launch, NG_ROW_MAX, NG_FP32, rows, 1);
    if (!status && (back || launch->tensors[NG_ROW_SUM].data)) status = ng_cuda_check(launch, NG_ROW_SUM, NG_FP32, rows, 1);
    if (!status && back) status = ng_cuda_check(launch, NG_GRADIENT, NG_FP32, rows, 1);
    return status;
}

bool rows_aligned(const ng_tensor *t) { return (uintptr_t)t->data % 16 == 0 && (t->rows == 1 || t->row_bytes % 16 == 0); }

} // namespace

extern "C" ng_status ng_cuda_launch_loss(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_tensor *t = launch->tensors;
    const bool back = kernel->op == NG_OP_LOSS_BACKWARD;
    ng_status status = check_loss(kernel, launch, back);
    if (status) return status;
    const Operands o = {ng_matrix_of(&t[NG_IN]), ng_matrix_of(&t[NG_LABELS]), ng_matrix_of(&t[NG_ROW_MAX]), ng_matrix_of(&t[NG_ROW_SUM]), ng_matrix_of(&t[NG_GRADIENT]),
                        ng_matrix_of(&t[NG_OUT]), launch->problem->m, launch->problem->n, ng_caster_of(kernel->out, &kernel->contract.cast),
                        rows_aligned(&t[NG_IN]) && (!back || rows_aligned(&t[NG_OUT]))};
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    const unsigned blocks = (unsigned)min(back ? o.rows * ((o.columns + STRIDE - 1) / STRIDE) : o.rows, 1ll << 20);
    switch (kernel->in) {
    case NG_BF16: back ? backward<NG_BF16><<<blocks, THREADS, 0, stream>>>(o) : forward<NG_BF16><<<blocks, THREADS, 0, stream>>>(o); break;
    case NG_FP16: back ? backward<NG_FP16><<<blocks, THREADS, 0, stream>>>(o) : forward<NG_FP16><<<blocks, THREADS, 0, stream>>>(o); break;
    default: back ? backward<NG_FP32><<<blocks, THREADS, 0, stream>>>(o) : forward<NG_FP32><<<blocks, THREADS, 0, stream>>>(o);
    }
    return ng_cuda_launched(launch);
}
