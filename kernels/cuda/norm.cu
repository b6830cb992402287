/* LayerNorm and RMSNorm, forward (kernels/cuda/cuda.h), fused with a residual and with quantization, and as an unfused chain.
 * Persistent CTAs: a group of lanes takes row after row, the next one's loads under way. */
#include "kernels/cuda/norm.cuh"

namespace {

struct Forward {
    Rows in, residual, sum, out;
    Parameters parameters;
    ng_matrix mean, rstd, scales;
    ng_quantization q;
    const float *given;
    float *tensor_scale;
    ng_caster caster; /* of the codes */
    long long rows;
    int columns, lanes, groups;
    float epsilon;
    bool centered, adds;
};

/* ---- quantization -------------------------------------------------------------------------------------------------*/
/* e2m1 of a magnitude of at most 6: adding and subtracting 2^23 ulps rounds to whole ones, ties to even; times 2^-126 the
 * upper bits of the result are the code. */
__device__ __forceinline__ uint32_t e2m1_code(float y) {
    const float magnitude = fminf(fabsf(y), 6.0f); /* a NaN becomes 6, positive */
    const float magic = ng_mul(ng_float(ng_bits(fmaxf(magnitude, 1.0f)) & 0x7F800000u), 0x1p22f);
    const uint32_t code = ng_bits(ng_mul(ng_sub(ng_add(magnitude, magic), magic), 0x1p-126f)) >> 22;
    return code | (y != y ? 0u : ng_bits(y) >> 31 << 3);
}

__device__ __forceinline__ uint32_t e4m3_pair(const ng_caster &caster, float low, float high) {
#if __CUDA_ARCH__ >= 890
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return ng_cast_code(&caster, NG_RN_EVEN, ng_bits(low)) | ng_cast_code(&caster, NG_RN_EVEN, ng_bits(high)) << 8;
#endif
}

struct Scales { /* that do not depend on the row */
    ng_tensor_level level;
    ng_block_scale given;
};

__device__ __forceinline__ Scales given_scales(const Forward &f) {
    Scales s = {{1.0f, 1.0f}, {0u, 1.0f, 1.0f}};
    const bool first = blockIdx.x == 0 && threadIdx.x == 0;
    if (f.q.rule == NG_SCALE_GIVEN) {
        s.given = ng_scale_encoding(*f.given);
        if (first) *reinterpret_cast<uint32_t *>(f.scales.data) = s.given.code;
    } else if (f.q.tensor_scale) {
        s.level = ng_tensor_scale(&f.q, ng_bits(*f.given) & NG_ABS_MASK);
        if (first) *f.tensor_scale = s.level.decode;
    }
    return s;
}

/* A block is 4 neighbouring vectors (mxfp8) or 2 (nvfp4): of neighbouring lanes, as L is a multiple of 4. All lanes of the warp come
 * here together; behind the row's end y is 0. */
template <ng_format_id ELEMENT> __device__ __forceinline__ void store_quantized(const Forward &f, const Scales &s, const float (&y)[EACH], long long row, int v) {
    ng_block_scale scale = s.given;
    const int across = f.q.blocks.columns / EACH, valid = min(EACH, f.columns - v * EACH);
    if (f.q.rule != NG_SCALE_GIVEN) {
        uint32_t amax = 0;
#pragma unroll
        for (int e = 0; e < EACH; e++)
            amax = max(amax, ng_bits(y[e]) & NG_ABS_MASK);
        for (int h = 1; h < across; h *= 2)
            amax = max(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, h));
        scale = ng_scale_block(&f.q, amax, s.level);
        if (v % across == 0 && valid > 0) ng_row<uint8_t>(f.scales, row)[v / across] = (uint8_t)scale.code;
    }
    if (valid <= 0) return;
    unsigned char *at = f.out.data + row * f.out.row_bytes;
    if (ELEMENT == NG_E2M1) {
        uint32_t codes = 0;
#pragma unroll
        for (int e = 0; e < EACH; e++)
            codes |= e2m1_code(ng_mul(y[e], scale.encode)) << 4 * e;
        if (valid == EACH && f.out.aligned) {
            reinterpret_cast<uint32_t *>(at)[v] = codes;
            return;
        }
        if (valid < EACH) codes &= (1u << 4 * valid) - 1;
        for (int b = 0; b < (valid + 1) / 2; b++)
            at[4 * v + b] = (unsigned char)(codes >> 8 * b);
    } else {
        uint32_t codes[2] = {0, 0};
#pragma unroll
        for (int e = 0; e < EACH; e += 2)
            codes[e / 4] |= e4m3_pair(f.caster, ng_mul(y[e], scale.encode), ng_mul(y[e + 1], scale.encode)) << 8 * (e % 4);
        if (valid == EACH && f.out.aligned) {
            reinterpret_cast<uint2 *>(at)[v] = make_uint2(codes[0], codes[1]);
            return;
        }
        for (int e = 0; e < valid; e++)
            at[8 * v + e] = (unsigned char)(codes[e / 4] >> 8 * (e % 4));
    }
}

/* ---- elements -----------------------------------------------------------------------------------------------------*/
template <ng_format_id OUT> __device__ __forceinline__ void finish(const Forward &f, const Scales &s, const float (&x)[EACH], float mean, float rstd, long long row, int v) {
    float w[EACH], beta[EACH], y[EACH];
    load_weights(f.parameters, v, f.columns, w);
    load_beta(f.parameters, v, f.columns, beta);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        y[e] = v * EACH + e < f.columns ? ng_norm_element(x[e], mean, rstd, w[e], beta[e]) : 0.0f;
    if constexpr (OUT == NG_E4M3 || OUT == NG_E2M1) {
        store_quantized<OUT>(f, s, y, row, v);
    } else {
        Vector<OUT> rounded;
        round_to(y, rounded);
        store(rounded, f.out, row, v, f.columns);
    }
}

/* The sum with the residual, rounded and stored as the contract says; x becomes it. */
template <ng_format_id IN> __device__ __forceinline__ void add_residual(const Forward &f, const Vector<IN> &residual, float (&x)[EACH], long long row, int v) {
    float r[EACH];
    Vector<IN> rounded;
    unpack(residual, r);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        x[e] = ng_add(x[e], r[e]);
    round_to(x, rounded);
    store(rounded, f.sum, row, v, f.columns);
    unpack(rounded, x);
}

__device__ __forceinline__ void add_up(const float (&x)[EACH], float (&p)[EACH]) {
#pragma unroll
    for (int e = 0; e < EACH; e++)
        p[e] = ng_add(p[e], x[e]);
}

/* Elements behind the row's end are no deviations from the mean. */
__device__ __forceinline__ void add_squares(const float (&x)[EACH], float mean, int v, int columns, float (&p)[EACH]) {
    const int valid = columns - v * EACH;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const float d = ng_sub(x[e], mean);
        if (e < valid) p[e] = ng_norm_fma(d, d, p[e]);
    }
}

__device__ __forceinline__ void store_statistics(const Forward &f, const Group &g, long long row, float mean, float rstd) {
    if (g.lane != 0) return;
    if (f.centered && f.mean.data) *ng_row<uint32_t>(f.mean, row) = canonical(mean);
    if (f.rstd.data) *ng_row<uint32_t>(f.rstd, row) = canonical(rstd);
}

__device__ __forceinline__ Group group_of(const Forward &f, float *slots) {
    const Group g = {(int)threadIdx.x % f.lanes, f.lanes, (int)threadIdx.x / f.lanes, slots + threadIdx.x / f.lanes * 64};
    return g;
}

/* ---- a row in registers -------------------------------------------------------------------------------------------*/
template <ng_format_id IN> __device__ __forceinline__ uint4 *slot_of(uint4 *memory, int stage, int tensor, int tensors, int threads) {
    return memory + (size_t)(stage * tensors + tensor) * HELD * (sizeof(Vector<IN>) / 16) * threads + threadIdx.x;
}

template <ng_format_id IN> __device__ __forceinline__ void stage_row(const Forward &f, const Group &g, uint4 *memory, int at, int threads, long long row) {
    const int tensors = f.adds ? 2 : 1;
    if (row < f.rows) {
        stage<IN>(slot_of<IN>(memory, at, 0, tensors, threads), threads, f.in, row, g.lane, g.lanes, f.columns);
        if (f.adds) stage<IN>(slot_of<IN>(memory, at, 1, tensors, threads), threads, f.residual, row, g.lane, g.lanes, f.columns);
    }
    stage_end();
}

template <ng_format_id IN, ng_format_id OUT, int THREADS> __global__ void __launch_bounds__(THREADS, THREADS == 256 ? 2 : 1) forward_held(Forward f) {
    extern __shared__ uint4 memory[];
    __shared__ float slots[64 * 8];
    const Group g = group_of(f, slots);
    const long long step = (long long)gridDim.x * f.groups;
    const float count = (float)f.columns;
    const Scales scales = given_scales(f);
    long long row = (long long)blockIdx.x * f.groups + g.number;
    for (int ahead = 0; ahead < STAGES - 1; ahead++)
        stage_row<IN>(f, g, memory, ahead, THREADS, row + ahead * step);
    for (int at = 0, parity = 0; row < f.rows; row += step, parity ^= 1, at = at + 1 == STAGES ? 0 : at + 1) {
        stage_row<IN>(f, g, memory, at ? at - 1 : STAGES - 1, THREADS, row + (STAGES - 1) * step);
        stage_wait<STAGES - 1>();
        float x[HELD][EACH], p[EACH] = {0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll
        for (int u = 0; u < HELD; u++) {
            const int v = g.lane + u * g.lanes;
            Vector<IN> raw = {};
            if (v * EACH < f.columns) staged(raw, slot_of<IN>(memory, at, 0, f.adds ? 2 : 1, THREADS), THREADS, u);
            unpack(raw, x[u]);
            if (f.adds && v * EACH < f.columns) {
                staged(raw, slot_of<IN>(memory, at, 1, 2, THREADS), THREADS, u);
                add_residual(f, raw, x[u], row, v);
            }
            add_up(x[u], p);
        }
        const float mean = f.centered ? ng_div(reduce(g, p, 0), count) : 0.0f;
#pragma unroll
        for (int e = 0; e < EACH; e++)
            p[e] = 0.0f;
#pragma unroll
        for (int u = 0; u < HELD; u++)
            add_squares(x[u], mean, g.lane + u * g.lanes, f.columns, p);
        /* RMSNorm has one sum a row: its slots alternate by row instead */
        const float rstd = ng_norm_rstd(reduce(g, p, f.centered ? 1 : parity), count, f.epsilon);
        store_statistics(f, g, row, mean, rstd);
#pragma unroll
        for (int u = 0; u < HELD; u++)
            if ((g.lane & ~31) + u * g.lanes < (f.columns + EACH - 1) / EACH) finish<OUT>(f, scales, x[u], mean, rstd, row, g.lane + u * g.lanes);
    }
    stage_wait<0>();
}

/* ---- a row too wide for registers: read three times, from the L2 but for the first -------------------------------------*/
template <ng_format_id IN> __device__ __forceinline__ void fetch(const Forward &f, long long row, int v, float (&x)[EACH]) {
    Vector<IN> raw = {};
    if (v * EACH < f.columns) load(raw, f.adds ? f.sum : f.in, row, v, f.columns);
    unpack(raw, x);
}

template <ng_format_id IN> __device__ __forceinline__ void add_row(const Forward &f, const Group &g, long long row) {
    for (int v = g.lane; v * EACH < f.columns; v += g.lanes) {
        float x[EACH];
        Vector<IN> raw;
        load(raw, f.in, row, v, f.columns);
        unpack(raw, x);
        load(raw, f.residual, row, v, f.columns);
        add_residual(f, raw, x, row, v);
    }
}

template <ng_format_id IN> __device__ __forceinline__ float mean_of_row(const Forward &f, const Group &g, long long row) {
    float x[EACH], p[EACH] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int v = g.lane; v * EACH < f.columns; v += g.lanes) {
        fetch<IN>(f, row, v, x);
        add_up(x, p);
    }
    return ng_div(reduce(g, p, 0), (float)f.columns);
}

template <ng_format_id IN> __device__ __forceinline__ float rstd_of_row(const Forward &f, const Group &g, long long row, float mean, int which) {
    float x[EACH], p[EACH] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int v = g.lane; v * EACH < f.columns; v += g.lanes) {
        fetch<IN>(f, row, v, x);
        add_squares(x, mean, v, f.columns, p);
    }
    return ng_norm_rstd(reduce(g, p, which), (float)f.columns, f.epsilon);
}

template <ng_format_id IN, ng_format_id OUT> __device__ __forceinline__ void finish_row(const Forward &f, const Group &g, const Scales &s, long long row, float mean, float rstd) {
    const int vectors = (f.columns + EACH - 1) / EACH;
    for (int v = g.lane; (v & ~31) < vectors; v += g.lanes) {
        float x[EACH];
        fetch<IN>(f, row, v, x);
        finish<OUT>(f, s, x, mean, rstd, row, v);
    }
}

template <ng_format_id IN, ng_format_id OUT> __global__ void __launch_bounds__(1024) forward_wide(Forward f) {
    __shared__ float slots[64 * 8];
    const Group g = group_of(f, slots);
    const Scales scales = given_scales(f);
    int at = 0;
    for (long long row = (long long)blockIdx.x * f.groups + g.number; row < f.rows; row += (long long)gridDim.x * f.groups, at ^= 1) {
        if (f.adds) add_row<IN>(f, g, row);
        const float mean = f.centered ? mean_of_row<IN>(f, g, row) : 0.0f;
        const float rstd = rstd_of_row<IN>(f, g, row, mean, f.centered ? 1 : at);
        store_statistics(f, g, row, mean, rstd);
        finish_row<IN, OUT>(f, g, scales, row, mean, rstd);
    }
}

/* ---- the unfused chain --------------------------------------------------------------------------------------------*/
enum Step { ADD, MEAN, RSTD, RESULT };

template <ng_format_id IN> __global__ void __launch_bounds__(1024) unfused(Forward f, Step what, float *statistics) {
    __shared__ float slots[64 * 8];
    const Group g = group_of(f, slots);
    const Scales none = {{1.0f, 1.0f}, {0u, 1.0f, 1.0f}};
    int at = 0;
    for (long long row = (long long)blockIdx.x * f.groups + g.number; row < f.rows; row += (long long)gridDim.x * f.groups, at ^= 1) {
        float mean = what > MEAN ? statistics[2 * row] : 0.0f, rstd = what > RSTD ? statistics[2 * row + 1] : 0.0f;
        if (what == ADD) add_row<IN>(f, g, row);
        if (what == MEAN) {
            float x[EACH], p[EACH] = {0, 0, 0, 0, 0, 0, 0, 0};
            for (int v = g.lane; v * EACH < f.columns; v += g.lanes) {
                fetch<IN>(f, row, v, x);
                add_up(x, p);
            }
            mean = f.centered ? ng_div(reduce(g, p, at), (float)f.columns) : 0.0f;
            if (g.lane == 0) statistics[2 * row] = mean;
        }
        if (what == RSTD) {
            rstd = rstd_of_row<IN>(f, g, row, mean, at);
            if (g.lane == 0) statistics[2 * row + 1] = rstd;
        }
        if (what != RESULT) continue;
        store_statistics(f, g, row, mean, rstd);
        finish_row<IN, IN>(f, g, none, row, mean, rstd);
    }
}

/* ---- launch -------------------------------------------------------------------------------------------------------*/
template <ng_format_id IN, ng_format_id OUT, int THREADS> bool start_held(const Forward &f, cudaStream_t stream) {
    const size_t shared = (size_t)THREADS * STAGES * (f.adds ? 2 : 1) * HELD * sizeof(Vector<IN>);
    if (shared > most_shared()) return false;
    const long long wanted = (f.rows + f.groups - 1) / f.groups, most = resident(forward_held<IN, OUT, THREADS>, THREADS, shared);
    forward_held<IN, OUT, THREADS><<<(unsigned)min(wanted, most), THREADS, shared, stream>>>(f);
    return true;
}

template <ng_format_id IN, ng_format_id OUT> void start(const Forward &f, cudaStream_t stream) {
    if (f.lanes <= 256 && start_held<IN, OUT, 256>(f, stream)) return;
    if (f.lanes == 512 && start_held<IN, OUT, 512>(f, stream)) return;
    const long long wanted = (f.rows + f.groups - 1) / f.groups, most = resident(forward_wide<IN, OUT>, f.lanes * f.groups, 0);
    forward_wide<IN, OUT><<<(unsigned)min(wanted, most), f.lanes * f.groups, 0, stream>>>(f);
}

template <ng_format_id IN> void start_unfused(const Forward &f, float *statistics, cudaStream_t stream) {
    const int threads = f.lanes * f.groups;
    const unsigned ctas = (unsigned)min((f.rows + f.groups - 1) / f.groups, (long long)resident(unfused<IN>, threads, 0));
    Forward after = f;
    if (f.adds) unfused<IN><<<ctas, threads, 0, stream>>>(f, ADD, statistics);
    if (f.adds) after.in = f.sum, after.adds = false;
    unfused<IN><<<ctas, threads, 0, stream>>>(after, MEAN, statistics);
    unfused<IN><<<ctas, threads, 0, stream>>>(after, RSTD, statistics);
    unfused<IN><<<ctas, threads, 0, stream>>>(after, RESULT, statistics);
}

bool is_quantized(const ng_kernel *kernel) { return kernel->contract.quantization.rule != NG_SCALE_ABSENT; }

ng_status check_quantized(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_quantization *q = &kernel->contract.quantization;
    ng_status status = ng_cuda_check(launch, NG_OUT_SCALES, q->scale, ng_cuda_blocks(q->blocks.rows, launch->problem->m), ng_cuda_blocks(q->blocks.columns, launch->problem->n));
    if (!status && (q->rule == NG_SCALE_GIVEN || q->tensor_scale)) status = ng_cuda_check(launch, NG_SCALE_GIVEN_IN, NG_FP32, 1, 1);
    if (!status && q->tensor_scale) status = ng_cuda_check(launch, NG_OUT_TENSOR_SCALE, NG_FP32, 1, 1);
    return status;
}

ng_status check_launch(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_norm *norm = &kernel->contract.norm;
    const int64_t rows = launch->problem->m, columns = launch->problem->n;
    const double epsilon = launch->problem->scalars[NG_EPSILON];
    ng_status status = ng_cuda_check(launch, NG_IN, kernel->in, rows, columns);
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, rows, columns);
    if (!status) status = ng_cuda_check(launch, NG_PARAMETER, norm->parameters, 1, columns);
    if (!status && norm->kind == NG_LAYER_NORM) status = ng_cuda_check(launch, NG_PARAMETER_2, norm->parameters, 1, columns);
    if (!status && norm->residual) status = ng_cuda_check(launch, NG_IN_2, kernel->in, rows, columns);
    if (!status && norm->residual) status = ng_cuda_check(launch, NG_OUT_2, kernel->in, rows, columns);
    if (!status && norm->kind == NG_LAYER_NORM && launch->tensors[NG_MEAN].data) status = ng_cuda_check(launch, NG_MEAN, NG_FP32, rows, 1);
    if (!status && launch->tensors[NG_RSTD].data) status = ng_cuda_check(launch, NG_RSTD, NG_FP32, rows, 1);
    if (!status && columns > 1 << 30) status = ng_cuda_fail(launch, NG_UNSUPPORTED, "rows longer than 2^30");
    if (!status && !(epsilon >= 0 && epsilon <= 1)) status = ng_cuda_fail(launch, NG_BAD_ARGUMENT, "epsilon is %g, expected 0 to 1", epsilon);
    return !status && is_quantized(kernel) ? check_quantized(kernel, launch) : status;
}

Forward forward_of(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_norm *norm = &kernel->contract.norm;
    const ng_tensor *t = launch->tensors;
    const ng_norm_shape shape = ng_norm_shape_of(launch->problem->n);
    const bool centered = norm->kind == NG_LAYER_NORM;
    Forward f = {};
    f.in = rows_of(&t[NG_IN]);
    f.residual = rows_of(&t[NG_IN_2]);
    f.sum = rows_of(&t[NG_OUT_2]);
    f.out = rows_of(&t[NG_OUT]);
    f.parameters = {t[NG_PARAMETER].data, centered ? t[NG_PARAMETER_2].data : nullptr, norm->parameters,
                    (uintptr_t)t[NG_PARAMETER].data % 16 == 0 && (!centered || (uintptr_t)t[NG_PARAMETER_2].data % 16 == 0), norm->zero_centered, -0.0f};
    f.mean = ng_matrix_of(&t[NG_MEAN]);
    f.rstd = ng_matrix_of(&t[NG_RSTD]);
    f.scales = ng_matrix_of(&t[NG_OUT_SCALES]);
    f.q = kernel->contract.quantization;
    f.given = static_cast<const float *>(t[NG_SCALE_GIVEN_IN].data);
    f.tensor_scale = static_cast<float *>(t[NG_OUT_TENSOR_SCALE].data);
    f.caster = ng_caster_of(kernel->out, &kernel->contract.cast);
    f.rows = launch->problem->m;
    f.columns = (int)launch->problem->n;
    f.lanes = shape.lanes;
    f.groups = shape.groups;
    f.epsilon = (float)launch->problem->scalars[NG_EPSILON];
    f.centered = centered;
    f.adds = norm->residual;
    return f;
}

} // namespace

extern "C" ng_status ng_cuda_launch_norm(const ng_kernel *kernel, const ng_launch *launch) {
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    ng_status status = check_launch(kernel, launch);
    if (status) return status;
    const Forward f = forward_of(kernel, launch);
    if (kernel->in == NG_FP32 && kernel->out == NG_FP32) start<NG_FP32, NG_FP32>(f, stream);
    else if (kernel->in == NG_FP32 && kernel->out == NG_BF16) start<NG_FP32, NG_BF16>(f, stream);
    else if (kernel->in == NG_BF16 && kernel->out == NG_BF16) start<NG_BF16, NG_BF16>(f, stream);
    else if (kernel->in == NG_BF16 && kernel->out == NG_E4M3) start<NG_BF16, NG_E4M3>(f, stream);
    else if (kernel->in == NG_BF16 && kernel->out == NG_E2M1) start<NG_BF16, NG_E2M1>(f, stream);
    else if (kernel->in == NG_FP16 && kernel->out == NG_FP16) start<NG_FP16, NG_FP16>(f, stream);
    else return ng_cuda_fail(launch, NG_UNSUPPORTED, "formats without a kernel");
    return ng_cuda_launched(launch);
}

extern "C" size_t ng_cuda_norm_unfused_workspace(const ng_kernel *, const ng_problem *problem, const ng_device *) {
    return 2 * sizeof(float) * (size_t)problem->m;
}

extern "C" ng_status ng_cuda_launch_norm_unfused(const ng_kernel *kernel, const ng_launch *launch) {
    ng_status status = check_launch(kernel, launch);
    if (status) return status;
    if (kernel->in != NG_BF16 || kernel->out != NG_BF16) return ng_cuda_fail(launch, NG_UNSUPPORTED, "formats without an unfused chain");
    const size_t bytes = ng_cuda_norm_unfused_workspace(kernel, launch->problem, launch->device);
    if (!launch->workspace || launch->workspace_bytes < bytes) return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "workspace of %zu bytes is missing", bytes);
    start_unfused<NG_BF16>(forward_of(kernel, launch), static_cast<float *>(launch->workspace), static_cast<cudaStream_t>(launch->stream));
    return ng_cuda_launched(launch);
}
