/* LayerNorm and RMSNorm, backward (kernels/cuda/cuda.h). The grid and the rows of its groups are the contract's, a function of
 * the shape alone. Up to 512 lanes a lane adds dgamma and dbeta of its 32 columns in registers; the groups of a CTA are added
 * in shared memory, the CTAs by a second kernel. */
#include "kernels/cuda/norm.cuh"

namespace {

struct Backward {
    Rows in, gradient, out;
    Parameters parameters;
    ng_matrix mean, rstd;
    float *partial; /* [blocks][2][C]: dgamma, dbeta */
    long long rows, step; /* step: rows of the grid at a time */
    int columns, lanes, groups;
    float epsilon;
    bool centered, from_output;
};

struct Statistics {
    float mean, rstd;
};

__device__ __forceinline__ Statistics statistics_of(const Backward &b, long long row) {
    const Statistics s = {b.centered && !b.from_output ? *ng_row<const float>(b.mean, row) : 0.0f, *ng_row<const float>(b.rstd, row)};
    return s;
}

/* h and g of a vector. */
template <bool FROM_OUTPUT, bool WHOLE> __device__ __forceinline__ void normalized(const Backward &b, const Statistics &s, int v, const float (&x)[EACH], const float (&dy)[EACH], float (&h)[EACH], float (&g)[EACH]) {
    float w[EACH], beta[EACH];
    load_weights<WHOLE>(b.parameters, v, b.columns, w);
    if (FROM_OUTPUT) load_beta<WHOLE>(b.parameters, v, b.columns, beta);
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        h[e] = FROM_OUTPUT ? ng_norm_hat_of_output(x[e], beta[e], ng_norm_divisor(w[e], b.epsilon)) : ng_norm_hat(x[e], s.mean, s.rstd);
        g[e] = ng_mul(dy[e], w[e]);
    }
}

/* Behind the row's end x and dy are 0, but h need not be. Without CENTERED neither dbeta nor c1 is wanted. */
template <bool CENTERED> __device__ __forceinline__ void add_vector(const float (&dy)[EACH], const float (&h)[EACH], const float (&g)[EACH], int valid, float (&p)[EACH], float (&q)[EACH], float (&dgamma)[EACH], float (&dbeta)[EACH]) {
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (e >= valid) continue;
        if (CENTERED) p[e] = ng_add(p[e], g[e]);
        q[e] = ng_norm_fma(g[e], h[e], q[e]);
        dgamma[e] = ng_norm_fma(dy[e], h[e], dgamma[e]);
        if (CENTERED) dbeta[e] = ng_add(dbeta[e], dy[e]);
    }
}

template <ng_format_id F, bool FROM_OUTPUT, bool WHOLE> __device__ __forceinline__ void finish(const Backward &b, const Statistics &s, const Vector<F> &in, const Vector<F> &gradient, float c1, float c2, long long row, int v) {
    float x[EACH], dy[EACH], h[EACH], g[EACH], dx[EACH];
    Vector<F> rounded;
    unpack(in, x);
    unpack(gradient, dy);
    normalized<FROM_OUTPUT, WHOLE>(b, s, v, x, dy, h, g);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        dx[e] = ng_norm_dx(h[e], g[e], c1, c2, s.rstd);
    round_to(dx, rounded);
    store<F, WHOLE>(rounded, b.out, row, v, b.columns);
}

__device__ __forceinline__ void clear(float (&p)[EACH]) {
#pragma unroll
    for (int e = 0; e < EACH; e++)
        p[e] = 0.0f;
}

__device__ __forceinline__ float *partial_of(const Backward &b, int which) { return b.partial + (2 * (size_t)blockIdx.x + which) * b.columns; }

/* ---- a row in shared memory ---------------------------------------------------------------------------------------*/
template <ng_format_id F> __device__ __forceinline__ uint4 *slot_of(uint4 *memory, int stage, int tensor, int threads) {
    return memory + (size_t)(stage * 2 + tensor) * HELD * (sizeof(Vector<F>) / 16) * threads + threadIdx.x;
}

template <ng_format_id F, bool WHOLE> __device__ __forceinline__ void stage_row(const Backward &b, const Group &g, uint4 *memory, int at, int threads, long long row) {
    if (row < b.rows) {
        stage<F, WHOLE>(slot_of<F>(memory, at, 0, threads), threads, b.in, row, g.lane, g.lanes, b.columns);
        stage<F, WHOLE>(slot_of<F>(memory, at, 1, threads), threads, b.gradient, row, g.lane, g.lanes, b.columns);
    }
    stage_end();
}

/* Whole vectors where they are aligned: single numbers 32 bytes apart would take a sector each. */
__device__ __forceinline__ void store_sums(float *to, int v, int columns, const float (&sum)[EACH]) {
    if (columns % 4 == 0 && (v + 1) * EACH <= columns) {
        reinterpret_cast<float4 *>(to)[2 * v] = make_float4(sum[0], sum[1], sum[2], sum[3]);
        reinterpret_cast<float4 *>(to)[2 * v + 1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
        return;
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (v * EACH + e < columns) to[v * EACH + e] = sum[e];
}

/* The groups of a CTA, one after the other: ((0 + 1) + 2) + ... The last one's sums are the CTA's. */
__device__ __forceinline__ void add_groups(const Backward &b, const Group &g, float *memory, const float (&sums)[HELD][EACH], int which) {
    float *to = partial_of(b, which);
    for (int number = 0; number < b.groups; number++) {
        if (g.number == number) {
#pragma unroll
            for (int u = 0; u < HELD; u++) {
                float sum[EACH];
#pragma unroll
                for (int e = 0; e < EACH; e++) {
                    float *place = memory + (u * EACH + e) * g.lanes + g.lane;
                    sum[e] = number ? ng_add(*place, sums[u][e]) : sums[u][e];
                    if (number + 1 < b.groups) *place = sum[e];
                }
                if (number + 1 == b.groups) store_sums(to, g.lane + u * g.lanes, b.columns, sum);
            }
        }
        __syncthreads();
    }
}

template <ng_format_id F, bool FROM_OUTPUT, int THREADS, int DEPTH, bool WHOLE, bool CENTERED> __global__ void __launch_bounds__(THREADS, THREADS == 256 && F != NG_FP32 ? 2 : 1) backward_held(Backward b) {
    extern __shared__ uint4 memory[];
    __shared__ float slots[128 * 8];
    const Group g = {(int)threadIdx.x % b.lanes, b.lanes, (int)threadIdx.x / b.lanes, slots + threadIdx.x / b.lanes * 128};
    const float count = (float)b.columns;
    float dgamma[HELD][EACH], dbeta[HELD][EACH];
#pragma unroll
    for (int u = 0; u < HELD; u++) {
        clear(dgamma[u]);
        clear(dbeta[u]);
    }
    long long row = (long long)blockIdx.x * b.groups + g.number;
    for (int ahead = 0; ahead < DEPTH - 1; ahead++)
        stage_row<F, WHOLE>(b, g, memory, ahead, THREADS, row + ahead * b.step);
    for (int at = 0, parity = 0; row < b.rows; row += b.step, parity ^= 1, at = at + 1 == DEPTH ? 0 : at + 1) {
        stage_row<F, WHOLE>(b, g, memory, at ? at - 1 : DEPTH - 1, THREADS, row + (DEPTH - 1) * b.step);
        const Statistics s = statistics_of(b, row);
        stage_wait<DEPTH - 1>();
        const uint4 *in = slot_of<F>(memory, at, 0, THREADS), *gradient = slot_of<F>(memory, at, 1, THREADS);
        float p[EACH], q[EACH];
        clear(p);
        clear(q);
#pragma unroll
        for (int u = 0; u < HELD; u++) {
            const int v = g.lane + u * g.lanes;
            if (v * EACH >= b.columns) continue;
            Vector<F> raw;
            float x[EACH], dy[EACH], h[EACH], scaled[EACH];
            staged(raw, in, THREADS, u);
            unpack(raw, x);
            staged(raw, gradient, THREADS, u);
            unpack(raw, dy);
            normalized<FROM_OUTPUT, WHOLE>(b, s, v, x, dy, h, scaled);
            add_vector<CENTERED>(dy, h, scaled, WHOLE ? EACH : b.columns - v * EACH, p, q, dgamma[u], dbeta[u]);
        }
        float c1 = 0.0f, c2;
        if (CENTERED) reduce_two(g, p, q, parity, c1, c2);
        else c2 = reduce(g, q, parity);
        c1 = b.centered ? ng_div(c1, count) : 0.0f;
        c2 = ng_div(c2, count);
#pragma unroll
        for (int u = 0; u < HELD; u++) {
            const int v = g.lane + u * g.lanes;
            if (v * EACH >= b.columns) continue;
            Vector<F> raw, raw_gradient;
            staged(raw, in, THREADS, u);
            staged(raw_gradient, gradient, THREADS, u);
            finish<F, FROM_OUTPUT, WHOLE>(b, s, raw, raw_gradient, c1, c2, row, v);
        }
    }
    stage_wait<0>();
    __syncthreads();
    add_groups(b, g, reinterpret_cast<float *>(memory), dgamma, 0);
    if (CENTERED) add_groups(b, g, reinterpret_cast<float *>(memory), dbeta, 1);
}

/* ---- a row too wide for that: read twice, sums kept in the partial sums themselves --------------------------------------*/
template <ng_format_id F, bool FROM_OUTPUT> __global__ void __launch_bounds__(1024) backward_wide(Backward b) {
    __shared__ float slots[128];
    const Group g = {(int)threadIdx.x, b.lanes, 0, slots};
    const float count = (float)b.columns;
    bool first = true;
    for (long long row = blockIdx.x; row < b.rows; row += b.step, first = false) {
        const Statistics s = statistics_of(b, row);
        float p[EACH], q[EACH], x[EACH], dy[EACH], h[EACH], scaled[EACH], dgamma[EACH], dbeta[EACH];
        Vector<F> in, gradient;
        clear(p);
        clear(q);
        for (int v = g.lane; v * EACH < b.columns; v += g.lanes) {
            const int valid = b.columns - v * EACH;
            load(in, b.in, row, v, b.columns);
            load(gradient, b.gradient, row, v, b.columns);
            unpack(in, x);
            unpack(gradient, dy);
            normalized<FROM_OUTPUT, false>(b, s, v, x, dy, h, scaled);
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                dgamma[e] = !first && e < valid ? partial_of(b, 0)[v * EACH + e] : 0.0f;
                dbeta[e] = !first && e < valid ? partial_of(b, 1)[v * EACH + e] : 0.0f;
            }
            add_vector<true>(dy, h, scaled, valid, p, q, dgamma, dbeta);
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                if (e >= valid) continue;
                partial_of(b, 0)[v * EACH + e] = dgamma[e];
                partial_of(b, 1)[v * EACH + e] = dbeta[e];
            }
        }
        float c1, c2;
        reduce_two(g, p, q, first ? 0 : (int)(row / b.step & 1), c1, c2);
        c1 = b.centered ? ng_div(c1, count) : 0.0f;
        c2 = ng_div(c2, count);
        for (int v = g.lane; v * EACH < b.columns; v += g.lanes) {
            load(in, b.in, row, v, b.columns);
            load(gradient, b.gradient, row, v, b.columns);
            finish<F, FROM_OUTPUT, false>(b, s, in, gradient, c1, c2, row, v);
        }
    }
}

/* ---- the sums over blocks -----------------------------------------------------------------------------------------*/
enum { ACROSS = 32 };

__global__ void __launch_bounds__(ACROSS *NG_NORM_LAST_CHAINS) add_blocks(const float *partial, int blocks, int columns, ng_matrix dgamma, ng_matrix dbeta, ng_caster caster) {
    __shared__ float chains[NG_NORM_LAST_CHAINS][ACROSS];
    const int column = blockIdx.x * ACROSS + threadIdx.x, q = threadIdx.y, which = blockIdx.y;
    float sum = 0.0f;
#pragma unroll 8
    for (int block = q; block < blocks; block += NG_NORM_LAST_CHAINS)
        if (column < columns) sum = ng_add(sum, partial[(2 * (size_t)block + which) * columns + column]);
    chains[q][threadIdx.x] = sum;
    for (int h = NG_NORM_LAST_CHAINS / 2; h; h /= 2) {
        __syncthreads();
        if (q < h) chains[q][threadIdx.x] = ng_add(chains[q][threadIdx.x], chains[q + h][threadIdx.x]);
    }
    const ng_matrix &to = which ? dbeta : dgamma;
    if (q == 0 && column < columns) ng_store_code(to, 0, column, ng_norm_code(&caster, to.format, chains[0][threadIdx.x]));
}

/* ---- launch -------------------------------------------------------------------------------------------------------*/
template <ng_format_id F, bool FROM_OUTPUT, int THREADS, int DEPTH, bool WHOLE, bool CENTERED> bool start_held(const Backward &b, int blocks, cudaStream_t stream) {
    const size_t shared = (size_t)THREADS * DEPTH * 2 * HELD * sizeof(Vector<F>);
    const bool whole = b.columns % EACH == 0 && b.in.aligned && b.gradient.aligned && b.out.aligned && b.parameters.aligned;
    if (shared > most_shared() || (WHOLE && !whole) || (b.centered && !CENTERED)) return false;
    if (shared) cudaFuncSetAttribute(backward_held<F, FROM_OUTPUT, THREADS, DEPTH, WHOLE, CENTERED>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    backward_held<F, FROM_OUTPUT, THREADS, DEPTH, WHOLE, CENTERED><<<blocks, THREADS, shared, stream>>>(b);
    return true;
}

template <ng_format_id F, bool FROM_OUTPUT> bool start(const Backward &b, int blocks, cudaStream_t stream) {
    enum { DEPTH = F == NG_FP32 ? 1 : 2 }; /* of 512 lanes: 128 KiB of shared memory */
    if (b.lanes <= 256)
        return start_held<F, FROM_OUTPUT, 256, 2, true, false>(b, blocks, stream) || start_held<F, FROM_OUTPUT, 256, 2, true, true>(b, blocks, stream) ||
               start_held<F, FROM_OUTPUT, 256, 1, false, true>(b, blocks, stream);
    if (b.lanes == 512)
        return start_held<F, FROM_OUTPUT, 512, DEPTH, true, true>(b, blocks, stream) || start_held<F, FROM_OUTPUT, 512, 1, false, true>(b, blocks, stream);
    backward_wide<F, FROM_OUTPUT><<<blocks, b.lanes, 0, stream>>>(b);
    return true;
}

template <ng_format_id F> bool start_either(const Backward &b, int blocks, cudaStream_t stream) {
    return b.from_output ? start<F, true>(b, blocks, stream) : start<F, false>(b, blocks, stream);
}

ng_status check_launch(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_norm *norm = &kernel->contract.norm;
    const int64_t rows = launch->problem->m, columns = launch->problem->n;
    const double epsilon = launch->problem->scalars[NG_EPSILON];
    const bool centered = norm->kind == NG_LAYER_NORM;
    ng_status status = ng_cuda_check(launch, NG_IN, kernel->in, rows, columns);
    if (!status) status = ng_cuda_check(launch, NG_GRADIENT, kernel->in, rows, columns);
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, rows, columns);
    if (!status) status = ng_cuda_check(launch, NG_PARAMETER, norm->parameters, 1, columns);
    if (!status && centered && norm->from_output) status = ng_cuda_check(launch, NG_PARAMETER_2, norm->parameters, 1, columns);
    if (!status && centered && !norm->from_output) status = ng_cuda_check(launch, NG_MEAN, NG_FP32, rows, 1);
    if (!status) status = ng_cuda_check(launch, NG_RSTD, NG_FP32, rows, 1);
    if (!status) status = ng_cuda_check(launch, NG_OUT_2, norm->parameters, 1, columns);
    if (!status && centered) status = ng_cuda_check(launch, NG_OUT_3, norm->parameters, 1, columns);
    if (!status && columns > 1 << 30) status = ng_cuda_fail(launch, NG_UNSUPPORTED, "rows longer than 2^30");
    if (!status && !(epsilon >= 0 && epsilon <= 1)) status = ng_cuda_fail(launch, NG_BAD_ARGUMENT, "epsilon is %g, expected 0 to 1", epsilon);
    return status;
}

} // namespace

extern "C" size_t ng_cuda_norm_backward_workspace(const ng_kernel *, const ng_problem *problem, const ng_device *) {
    return 2 * sizeof(float) * (size_t)problem->n * (size_t)ng_norm_blocks(ng_norm_shape_of(problem->n), problem->m);
}

extern "C" ng_status ng_cuda_launch_norm_backward(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_norm *norm = &kernel->contract.norm;
    const ng_tensor *t = launch->tensors;
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    const ng_norm_shape shape = ng_norm_shape_of(launch->problem->n);
    const int blocks = ng_norm_blocks(shape, launch->problem->m);
    const size_t bytes = ng_cuda_norm_backward_workspace(kernel, launch->problem, launch->device);
    ng_status status = check_launch(kernel, launch);
    if (status) return status;
    if (!launch->workspace || launch->workspace_bytes < bytes) return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "workspace of %zu bytes is missing", bytes);
    Backward b = {};
    b.in = rows_of(&t[NG_IN]);
    b.gradient = rows_of(&t[NG_GRADIENT]);
    b.out = rows_of(&t[NG_OUT]);
    b.centered = norm->kind == NG_LAYER_NORM;
    b.from_output = norm->from_output;
    const void *beta = b.centered && b.from_output ? t[NG_PARAMETER_2].data : nullptr;
    b.parameters = {t[NG_PARAMETER].data, beta, norm->parameters, (uintptr_t)t[NG_PARAMETER].data % 16 == 0 && (uintptr_t)beta % 16 == 0, norm->zero_centered, 0.0f};
    b.mean = ng_matrix_of(&t[NG_MEAN]);
    b.rstd = ng_matrix_of(&t[NG_RSTD]);
    b.partial = static_cast<float *>(launch->workspace);
    b.rows = launch->problem->m;
    b.step = (long long)shape.blocks * shape.groups;
    b.columns = (int)launch->problem->n;
    b.lanes = shape.lanes;
    b.groups = shape.groups;
    b.epsilon = (float)launch->problem->scalars[NG_EPSILON];
    const bool started = kernel->in == NG_FP32 ? start_either<NG_FP32>(b, blocks, stream)
                         : kernel->in == NG_BF16 ? start_either<NG_BF16>(b, blocks, stream) : start_either<NG_FP16>(b, blocks, stream);
    if (!started) return ng_cuda_fail(launch, NG_UNSUPPORTED, "rows of %d do not fit this device's shared memory", b.columns);
    const dim3 grid((unsigned)((b.columns + ACROSS - 1) / ACROSS), b.centered ? 2 : 1), threads(ACROSS, NG_NORM_LAST_CHAINS);
    add_blocks<<<grid, threads, 0, stream>>>(b.partial, blocks, b.columns, ng_matrix_of(&t[NG_OUT_2]), ng_matrix_of(&t[NG_OUT_3]),
                                             ng_caster_of(norm->parameters, &kernel->contract.cast));
    return ng_cuda_launched(launch);
}
