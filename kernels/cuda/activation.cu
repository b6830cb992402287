/* Activations on the GPU, forward (alone and fused with quantization) and backward (kernels/contract_activation.h). A thread takes
 * eight neighbouring elements, or one block of the quantized form. */
#include "kernels/common/activation.h"
#include "kernels/cuda/device.cuh"

namespace {

enum { THREADS = 256, EACH = 8, MOST_EACH = 32 };

struct Operands {
    ng_matrix x, u, d, out, out_2, scales;
    long long rows, columns;
    ng_caster caster;
    ng_quantization q;
    const float *given; /* NG_SCALE_GIVEN_IN */
    float *tensor_scale;
    bool aligned; /* every row of every plain tensor begins on 16 bytes */
};

template <ng_format_id F> __device__ __forceinline__ float value_of(uint32_t code) {
    return F == NG_FP32 ? ng_float(code) : F == NG_BF16 ? ng_decode_bf16(code) : ng_decode_fp16(code);
}

/* W elements from `column` on, of which n are there. */
template <ng_format_id F, int W> __device__ __forceinline__ void load(const ng_matrix &m, long long row, long long column, int n, bool vector, float (&x)[W]) {
    if (vector) {
        enum { PER = F == NG_FP32 ? 4 : 8 };
#pragma unroll
        for (int k = 0; k < W / PER; k++) {
            const uint4 w = __ldcs(reinterpret_cast<const uint4 *>(m.data + row * m.row_bytes + column * (16 / PER)) + k);
            const uint32_t word[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
            for (int i = 0; i < PER; i++)
                x[k * PER + i] = value_of<F>(F == NG_FP32 ? word[i] : word[i / 2] >> 16 * (i % 2) & 0xFFFFu);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < W; i++)
        x[i] = i < n ? ng_float(ng_load_bits(m, row, column + i)) : 0.0f;
}

template <ng_format_id F> __device__ __forceinline__ uint32_t code_of(const ng_caster &caster, float y) { return ng_norm_code(&caster, F, y); }

template <ng_format_id F> __device__ __forceinline__ void store(const ng_matrix &m, const ng_caster &caster, long long row, long long column, int n, bool vector, const float (&y)[EACH]) {
    uint32_t code[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++)
        code[i] = code_of<F>(caster, y[i]);
    if (vector && F == NG_FP32) {
        uint4 *to = reinterpret_cast<uint4 *>(m.data + row * m.row_bytes + column * 4);
        __stcs(to, make_uint4(code[0], code[1], code[2], code[3]));
        __stcs(to + 1, make_uint4(code[4], code[5], code[6], code[7]));
    } else if (vector) {
        __stcs(reinterpret_cast<uint4 *>(m.data + row * m.row_bytes + column * 2),
               make_uint4(code[0] | code[1] << 16, code[2] | code[3] << 16, code[4] | code[5] << 16, code[6] | code[7] << 16));
    } else {
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (i < n) ng_store_code(m, row, column + i, code[i]);
    }
}

template <ng_activation_kind KIND, ng_format_id F> __global__ void __launch_bounds__(THREADS) forward(const __grid_constant__ Operands o) {
    const long long across = (o.columns + EACH - 1) / EACH, count = o.rows * across;
    for (long long unit = blockIdx.x * (long long)THREADS + threadIdx.x; unit < count; unit += (long long)gridDim.x * THREADS) {
        const long long row = unit / across, column = unit % across * EACH;
        const int n = (int)min((long long)EACH, o.columns - column);
        const bool vector = o.aligned && n == EACH;
        float x[EACH], u[EACH], y[EACH];
        load<F>(o.x, row, column, n, vector, x);
        if (KIND == NG_SWIGLU) load<F>(o.u, row, column, n, vector, u);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            y[i] = ng_activate(KIND, x[i], KIND == NG_SWIGLU ? u[i] : 1.0f);
        store<F>(o.out, o.caster, row, column, n, vector, y);
    }
}

template <ng_activation_kind KIND, ng_format_id F> __global__ void __launch_bounds__(THREADS) backward(const __grid_constant__ Operands o) {
    const long long across = (o.columns + EACH - 1) / EACH, count = o.rows * across;
    for (long long unit = blockIdx.x * (long long)THREADS + threadIdx.x; unit < count; unit += (long long)gridDim.x * THREADS) {
        const long long row = unit / across, column = unit % across * EACH;
        const int n = (int)min((long long)EACH, o.columns - column);
        const bool vector = o.aligned && n == EACH;
        float x[EACH], u[EACH], d[EACH], dx[EACH], du[EACH];
        load<F>(o.x, row, column, n, vector, x);
        load<F>(o.d, row, column, n, vector, d);
        if (KIND == NG_SWIGLU) load<F>(o.u, row, column, n, vector, u);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            dx[i] = ng_activate_backward(KIND, x[i], KIND == NG_SWIGLU ? u[i] : 1.0f, d[i], &du[i]);
        store<F>(o.out, o.caster, row, column, n, vector, dx);
        if (KIND == NG_SWIGLU) store<F>(o.out_2, o.caster, row, column, n, vector, du);
    }
}

/* A block of W columns in one thread; with a given scale, any 16. */
template <ng_activation_kind KIND, int W> __global__ void __launch_bounds__(THREADS) quantized(const __grid_constant__ Operands o) {
    const long long across = (o.columns + W - 1) / W, count = o.rows * across;
    const bool given = o.q.rule == NG_SCALE_GIVEN;
    const ng_tensor_level level = ng_tensor_scale(&o.q, o.q.tensor_scale ? ng_bits(*o.given) & NG_ABS_MASK : 0u);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (given) *reinterpret_cast<uint32_t *>(o.scales.data) = ng_scale_encoding(*o.given).code;
        if (o.q.tensor_scale) *o.tensor_scale = level.decode;
    }
    for (long long unit = blockIdx.x * (long long)THREADS + threadIdx.x; unit < count; unit += (long long)gridDim.x * THREADS) {
        const long long row = unit / across, column = unit % across * W;
        const int n = (int)min((long long)W, o.columns - column);
        const bool vector = o.aligned && n == W;
        float x[W], u[W];
        uint32_t amax = 0;
        load<NG_BF16>(o.x, row, column, n, vector, x);
        if (KIND == NG_SWIGLU) load<NG_BF16>(o.u, row, column, n, vector, u);
#pragma unroll
        for (int i = 0; i < W; i++) {
            x[i] = ng_activate(KIND, x[i], KIND == NG_SWIGLU ? u[i] : 1.0f);
            if (i < n) amax = max(amax, ng_bits(x[i]) & (uint32_t)NG_ABS_MASK);
        }
        const ng_block_scale scale = given ? ng_scale_encoding(*o.given) : ng_scale_block(&o.q, amax, level);
        if (!given) ng_store_code(o.scales, row, column / W, scale.code);
#pragma unroll
        for (int i = 0; i < W; i += 2) {
            const uint32_t low = ng_cast_code(&o.caster, NG_RN_EVEN, ng_bits(ng_scale_apply(x[i], scale, false)));
            const uint32_t high = i + 1 < n ? ng_cast_code(&o.caster, NG_RN_EVEN, ng_bits(ng_scale_apply(x[i + 1], scale, false))) : 0u;
            if (i >= n) continue;
            if (o.q.element == NG_E2M1) {
                ng_store_pair(o.out, row, column + i, low, high);
            } else {
                ng_store_code(o.out, row, column + i, low);
                if (i + 1 < n) ng_store_code(o.out, row, column + i + 1, high);
            }
        }
    }
}

unsigned blocks_for(const Operands &o, int each) {
    const long long units = o.rows * ((o.columns + each - 1) / each);
    return (unsigned)min((units + THREADS - 1) / THREADS, 1ll << 20);
}

template <ng_activation_kind KIND> void start(const Operands &o, ng_format_id in, bool back, cudaStream_t stream) {
    const unsigned blocks = blocks_for(o, EACH);
    if (!back && o.q.rule != NG_SCALE_ABSENT) {
        if (o.q.scale == NG_E8M0) quantized<KIND, 32><<<blocks_for(o, 32), THREADS, 0, stream>>>(o);
        else quantized<KIND, 16><<<blocks_for(o, 16), THREADS, 0, stream>>>(o);
    } else if (back) {
        if (in == NG_BF16) backward<KIND, NG_BF16><<<blocks, THREADS, 0, stream>>>(o);
        else if (in == NG_FP16) backward<KIND, NG_FP16><<<blocks, THREADS, 0, stream>>>(o);
        else backward<KIND, NG_FP32><<<blocks, THREADS, 0, stream>>>(o);
    } else {
        if (in == NG_BF16) forward<KIND, NG_BF16><<<blocks, THREADS, 0, stream>>>(o);
        else if (in == NG_FP16) forward<KIND, NG_FP16><<<blocks, THREADS, 0, stream>>>(o);
        else forward<KIND, NG_FP32><<<blocks, THREADS, 0, stream>>>(o);
    }
}

/* ---- unfused ------------------------------------------------------------------------------------------------------
 * What PyTorch's eager operators do: each function one kernel over whole fp32 tensors, through the workspace. */
enum Function { GATE, TIMES_X, TIMES_U };

template <Function WHAT> __global__ void __launch_bounds__(THREADS) unfused(const __grid_constant__ Operands o, ng_activation_kind kind, float *work, bool last) {
    const long long count = o.rows * o.columns;
    for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < count; i += (long long)gridDim.x * THREADS) {
        const long long row = i / o.columns, column = i % o.columns;
        const float x = ng_float(ng_load_bits(WHAT == TIMES_U ? o.u : o.x, row, column));
        float y;
        if (WHAT != GATE) {
            y = WHAT == TIMES_X ? ng_mul(x, work[i]) : ng_mul(work[i], x);
        } else if (kind == NG_GELU_ERF) {
            const float a = ng_normal_argument(x);
            y = ng_normal(x, ng_tail_of(a, ng_density(a)));
        } else {
            y = ng_logistic(kind == NG_SWIGLU ? x : ng_gelu_argument(x));
        }
        if (last) ng_store_code(o.out, row, column, ng_norm_code(&o.caster, o.out.format, y));
        else work[i] = y;
    }
}

bool is_gated(const ng_kernel *kernel) { return kernel->contract.activation.kind == NG_SWIGLU; }

ng_status check_activation(const ng_kernel *kernel, const ng_launch *launch) {
    const long long rows = launch->problem->m, columns = launch->problem->n;
    const ng_quantization *q = &kernel->contract.quantization;
    const bool back = kernel->op == NG_OP_ACTIVATION_BACKWARD;
    ng_status status = ng_cuda_check(launch, NG_IN, kernel->in, rows, columns);
    if (!status && is_gated(kernel)) status = ng_cuda_check(launch, NG_IN_2, kernel->in, rows, columns);
    if (!status && back) status = ng_cuda_check(launch, NG_GRADIENT, kernel->in, rows, columns);
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, rows, columns);
    if (!status && back && is_gated(kernel)) status = ng_cuda_check(launch, NG_OUT_2, kernel->out, rows, columns);
    if (status || back || q->rule == NG_SCALE_ABSENT) return status;
    status = ng_cuda_check(launch, NG_OUT_SCALES, q->scale, ng_cuda_blocks(q->blocks.rows, rows), ng_cuda_blocks(q->blocks.columns, columns));
    if (!status && (q->rule == NG_SCALE_GIVEN || q->tensor_scale)) status = ng_cuda_check(launch, NG_SCALE_GIVEN_IN, NG_FP32, 1, 1);
    if (!status && q->tensor_scale) status = ng_cuda_check(launch, NG_OUT_TENSOR_SCALE, NG_FP32, 1, 1);
    return status;
}

bool rows_aligned(const ng_tensor *t) { return !t->data || ((uintptr_t)t->data % 16 == 0 && (t->rows == 1 || t->row_bytes % 16 == 0)); }

Operands operands_of(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_tensor *t = launch->tensors;
    Operands o = {ng_matrix_of(&t[NG_IN]), ng_matrix_of(&t[NG_IN_2]), ng_matrix_of(&t[NG_GRADIENT]), ng_matrix_of(&t[NG_OUT]), ng_matrix_of(&t[NG_OUT_2]),
                  ng_matrix_of(&t[NG_OUT_SCALES]), launch->problem->m, launch->problem->n, ng_caster_of(kernel->out, &kernel->contract.cast),
                  kernel->contract.quantization, static_cast<const float *>(t[NG_SCALE_GIVEN_IN].data), static_cast<float *>(t[NG_OUT_TENSOR_SCALE].data), true};
    const bool plain = kernel->contract.quantization.rule == NG_SCALE_ABSENT;
    o.aligned = rows_aligned(&t[NG_IN]) && rows_aligned(&t[NG_IN_2]) && rows_aligned(&t[NG_GRADIENT]) && (!plain || (rows_aligned(&t[NG_OUT]) && rows_aligned(&t[NG_OUT_2])));
    return o;
}

} // namespace

extern "C" ng_status ng_cuda_launch_activation(const ng_kernel *kernel, const ng_launch *launch) {
    ng_status status = check_activation(kernel, launch);
    if (status) return status;
    const Operands o = operands_of(kernel, launch);
    const bool back = kernel->op == NG_OP_ACTIVATION_BACKWARD;
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    switch (kernel->contract.activation.kind) {
    case NG_SWIGLU: start<NG_SWIGLU>(o, kernel->in, back, stream); break;
    case NG_GELU_TANH: start<NG_GELU_TANH>(o, kernel->in, back, stream); break;
    default: start<NG_GELU_ERF>(o, kernel->in, back, stream);
    }
    return ng_cuda_launched(launch);
}

extern "C" size_t ng_cuda_activation_unfused_workspace(const ng_kernel *, const ng_problem *problem, const ng_device *) {
    return (size_t)(problem->m * problem->n) * sizeof(float);
}

extern "C" ng_status ng_cuda_launch_activation_unfused(const ng_kernel *kernel, const ng_launch *launch) {
    ng_status status = check_activation(kernel, launch);
    if (status) return status;
    const Operands o = operands_of(kernel, launch);
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    const ng_activation_kind kind = kernel->contract.activation.kind;
    float *work = static_cast<float *>(launch->workspace);
    const unsigned blocks = (unsigned)min((o.rows * o.columns + THREADS - 1) / THREADS, 1ll << 20);
    unfused<GATE><<<blocks, THREADS, 0, stream>>>(o, kind, work, false);
    unfused<TIMES_X><<<blocks, THREADS, 0, stream>>>(o, kind, work, kind != NG_SWIGLU);
    if (kind == NG_SWIGLU) unfused<TIMES_U><<<blocks, THREADS, 0, stream>>>(o, kind, work, true);
    return ng_cuda_launched(launch);
}
