/* The steps around an optimizer on the GPU: unscaling, the scaler, the gradient norm, clipping (kernels/contract_optimizer.h). */
#include "kernels/cuda/optimizer.cuh"

namespace {

/* ---- unscale and clip ---------------------------------------------------------------------------------------------*/
struct Scaling {
    float factor;
    const float *loss_scale, *norm; /* unscale: the factor is 1 / *loss_scale; clip: that of *norm */
    float *found_inf;
    float most; /* clip */
    Spans spans;
};

template <ng_format_id F> __global__ void __launch_bounds__(THREADS) scale(const __grid_constant__ Scaling s) {
    const float factor = s.norm ? ng_clip_factor(s.most, *s.norm) : s.loss_scale ? ng_div(1.0f, *s.loss_scale) : s.factor;
    if (s.norm && factor == 1.0f) return;
    const int which = span_of(s.spans, blockIdx.x);
    unsigned char *data = s.spans.span[which].g;
    const long long begin = (long long)(blockIdx.x - s.spans.first[which]) * CHUNK, count = s.spans.span[which].count;
    const bool aligned = is_aligned<F>(data);
    bool found = false;
#pragma unroll 4
    for (int from = threadIdx.x * EACH; from < CHUNK; from += ROUND) {
        const long long at = begin + from;
        const int n = (int)max(0ll, min((long long)EACH, count - at));
        const bool vector = aligned && n == EACH;
        float x[EACH];
        uint32_t code[EACH];
        if (!n) break;
        load_values<F>(data, at, n, vector, x);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const bool before = (ng_bits(x[i]) & NG_ABS_MASK) >= NG_INF_BITS;
            code[i] = encode<F>(ng_mul(x[i], factor));
            found = found || (i < n && (before || (ng_bits(decode<F>(code[i])) & NG_ABS_MASK) >= NG_INF_BITS));
        }
        store_codes<F>(data, at, n, vector, code);
    }
    if (found && s.found_inf) *s.found_inf = 1.0f;
}

/* ---- norm ---------------------------------------------------------------------------------------------------------*/
struct Summing {
    double *sums; /* [chunks of the launch] */
    Spans spans;
};

/* s_k + s_(k + n/2) until one is left, of 1024 in shared memory. */
__device__ __forceinline__ double halve(double *s) {
    for (int h = NG_NORM2_CHAINS / 2; h; h /= 2) {
        __syncthreads();
        for (int k = threadIdx.x; k < h; k += THREADS)
            s[k] += s[k + h];
    }
    __syncthreads();
    return s[0];
}

template <ng_format_id F> __global__ void __launch_bounds__(THREADS) sum_chunks(const __grid_constant__ Summing s) {
    __shared__ double chains[NG_NORM2_CHAINS];
    const int which = span_of(s.spans, blockIdx.x);
    const unsigned char *data = s.spans.span[which].g;
    const long long begin = (long long)(blockIdx.x - s.spans.first[which]) * CHUNK, count = s.spans.span[which].count;
    const bool aligned = is_aligned<F>(data);
    double sum[EACH] = {0, 0, 0, 0};
    float x[CHUNK / ROUND][EACH];
#pragma unroll
    for (int round = 0; round < CHUNK / ROUND; round++) {
        const long long at = begin + threadIdx.x * EACH + round * ROUND;
        const int n = (int)max(0ll, min((long long)EACH, count - at));
        load_values<F>(data, at, n, aligned && n == EACH, x[round]);
    }
#pragma unroll
    for (int round = 0; round < CHUNK / ROUND; round++)
#pragma unroll
        for (int i = 0; i < EACH; i++)
            sum[i] = __dadd_rn(sum[i], __dmul_rn((double)x[round][i], (double)x[round][i])); /* what is absent is +0: no change */
#pragma unroll
    for (int i = 0; i < EACH; i++)
        chains[threadIdx.x * EACH + i] = sum[i];
    const double total = halve(chains);
    if (threadIdx.x == 0) s.sums[blockIdx.x] = total;
}

__global__ void __launch_bounds__(THREADS) sum_sums(const double *sums, long long count, float *out) {
    __shared__ double chains[NG_NORM2_CHAINS];
    for (int k = threadIdx.x; k < NG_NORM2_CHAINS; k += THREADS) {
        double sum = 0;
        for (long long i = k; i < count; i += NG_NORM2_CHAINS)
            sum = __dadd_rn(sum, sums[i]);
        chains[k] = sum;
    }
    const double total = halve(chains);
    if (threadIdx.x == 0) *out = ng_float(encode<NG_FP32>(__double2float_rn(ng_sqrt64(total))));
}

/* ---- scaler -------------------------------------------------------------------------------------------------------*/
struct Scalars {
    double scalar[NG_SCALARS];
};

__global__ void update_scaler(const __grid_constant__ Scalars scalars, float *scale, float *count, float *step, float *found) {
    ng_scaler s = {*scale, *count, step ? *step : 0.0f};
    ng_scaler_update(scalars.scalar, *found != 0.0f, &s);
    *scale = ng_float(encode<NG_FP32>(s.scale));
    *count = s.count;
    if (step) *step = s.step;
    *found = 0.0f;
}

/* ---- launch -------------------------------------------------------------------------------------------------------*/
struct Start {
    const ng_kernel *kernel;
    const ng_launch *launch;
    Scaling *scaling;
    Summing *summing;
    double *sums, *end;
};

ng_status start_scale(void *context, const Spans &spans) {
    const Start *s = static_cast<const Start *>(context);
    const unsigned blocks = spans.first[spans.count];
    const cudaStream_t stream = static_cast<cudaStream_t>(s->launch->stream);
    switch (s->kernel->in) {
    case NG_BF16: scale<NG_BF16><<<blocks, THREADS, 0, stream>>>(*s->scaling); break;
    case NG_FP16: scale<NG_FP16><<<blocks, THREADS, 0, stream>>>(*s->scaling); break;
    default: scale<NG_FP32><<<blocks, THREADS, 0, stream>>>(*s->scaling);
    }
    return ng_cuda_launched(s->launch);
}

ng_status start_sum(void *context, const Spans &spans) {
    Start *s = static_cast<Start *>(context);
    const unsigned blocks = spans.first[spans.count];
    const cudaStream_t stream = static_cast<cudaStream_t>(s->launch->stream);
    if (s->end - s->sums < (ptrdiff_t)blocks) return ng_cuda_fail(s->launch, NG_BAD_ARGUMENT, "the workspace is too small for these tensors");
    s->summing->sums = s->sums;
    s->sums += blocks;
    switch (s->kernel->in) {
    case NG_BF16: sum_chunks<NG_BF16><<<blocks, THREADS, 0, stream>>>(*s->summing); break;
    case NG_FP16: sum_chunks<NG_FP16><<<blocks, THREADS, 0, stream>>>(*s->summing); break;
    default: sum_chunks<NG_FP32><<<blocks, THREADS, 0, stream>>>(*s->summing);
    }
    return ng_cuda_launched(s->launch);
}

ng_status unscale_or_clip(const ng_kernel *kernel, const ng_launch *launch) {
    const bool clips = kernel->contract.optimizer.kind == NG_CLIP;
    const double given = launch->problem->scalars[NG_GRADIENT_SCALE];
    ng_status status = clips ? check_number(launch, NG_OUT, true) : check_number(launch, NG_FOUND_INF, true);
    if (!status && !clips) status = check_number(launch, NG_LOSS_SCALE, false);
    if (status) return status;
    if (!clips && !launch->tensors[NG_LOSS_SCALE].data && given == 0) return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "neither a loss scale nor a gradient scale");
    Scaling scaling;
    scaling.factor = clips || given == 0 ? 1.0f : (float)(1 / given);
    scaling.loss_scale = clips ? nullptr : number_at(launch, NG_LOSS_SCALE);
    scaling.norm = clips ? number_at(launch, NG_OUT) : nullptr;
    scaling.found_inf = clips ? nullptr : number_at(launch, NG_FOUND_INF);
    scaling.most = (float)launch->problem->scalars[NG_MAX_NORM];
    Start context = {kernel, launch, &scaling, nullptr, nullptr, nullptr};
    const Cut cut = {launch, NG_GRADIENT, 1, start_scale, &context};
    return for_spans(cut, &scaling.spans);
}

ng_status norm2(const ng_kernel *kernel, const ng_launch *launch) {
    ng_status status = check_number(launch, NG_OUT, true);
    if (status) return status;
    Summing summing;
    double *sums = static_cast<double *>(launch->workspace);
    Start context = {kernel, launch, nullptr, &summing, sums, sums + launch->workspace_bytes / sizeof *sums};
    const Cut cut = {launch, NG_GRADIENT, CHUNK, start_sum, &context};
    status = for_spans(cut, &summing.spans);
    if (status) return status;
    sum_sums<<<1, THREADS, 0, static_cast<cudaStream_t>(launch->stream)>>>(sums, context.sums - sums, number_at(launch, NG_OUT));
    return ng_cuda_launched(launch);
}

ng_status scaler(const ng_launch *launch) {
    Scalars scalars;
    ng_status status = check_number(launch, NG_LOSS_SCALE, true);
    if (!status) status = check_number(launch, NG_GROWTH_COUNT, true);
    if (!status) status = check_number(launch, NG_FOUND_INF, true);
    if (!status) status = check_number(launch, NG_STEP_COUNT, false);
    if (status) return status;
    for (int i = 0; i < NG_SCALARS; i++)
        scalars.scalar[i] = launch->problem->scalars[i];
    update_scaler<<<1, 1, 0, static_cast<cudaStream_t>(launch->stream)>>>(scalars, number_at(launch, NG_LOSS_SCALE), number_at(launch, NG_GROWTH_COUNT),
                                                                       number_at(launch, NG_STEP_COUNT), number_at(launch, NG_FOUND_INF));
    return ng_cuda_launched(launch);
}

} // namespace

/* One sum a chunk: of every row its whole ones and one more. */
extern "C" size_t ng_cuda_steps_workspace(const ng_kernel *kernel, const ng_problem *problem, const ng_device *) {
    if (kernel->contract.optimizer.kind != NG_NORM2) return 0;
    const long long rows = problem->k > problem->m ? problem->k : problem->m;
    return (size_t)(problem->m * problem->n / CHUNK + rows + 1) * sizeof(double);
}

extern "C" ng_status ng_cuda_launch_steps(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_optimizer_kind kind = kernel->contract.optimizer.kind;
    if (kind == NG_SCALER) return scaler(launch);
    ng_status status = check_listed(launch, NG_GRADIENT, kernel->in, NG_GRADIENT, 1);
    if (status) return status;
    return kind == NG_NORM2 ? norm2(kernel, launch) : unscale_or_clip(kernel, launch);
}
