/* Adam and AdamW on the GPU (kernels/contract_optimizer.h): each element is read and written once; two rounds of loads are in
 * flight before the first is computed. A warp's round is one 1 x 128 block of an fp8 moment. */
#include "kernels/cuda/optimizer.cuh"

namespace {

struct Step { /* what is the same for every span */
    ng_adam_factors factors;
    double scalars[NG_SCALARS];
    const float *found_inf, *step; /* step: capturable */
    ng_optimizer_kind kind;
    bool bias_correction;
};

struct Batch {
    Step step;
    Spans spans;
};
static_assert(sizeof(Batch) <= 32764, "kernel parameters");

template <ng_format_id F> struct Scaled { static constexpr bool value = F == NG_E4M3 || F == NG_E5M2; };

/* Four elements of every role. */
struct Four {
    float g[EACH], p[EACH], m[EACH], v[EACH];
};

template <ng_format_id P, ng_master MASTER> __device__ __forceinline__ void load_parameters(const Span &s, long long at, int n, bool vector, float (&p)[EACH]) {
    if (MASTER == NG_MASTER_FP32) load_values<NG_FP32>(s.p2, at, n, vector, p);
    else if (MASTER == NG_MASTER_REMAINDER) {
        uint32_t high[EACH], low[EACH];
        load_codes<NG_BF16>(s.p, at, n, vector, high);
        load_codes<NG_BF16>(s.p2, at, n, vector, low);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            p[i] = ng_master_join(high[i], low[i]);
    } else load_values<P>(s.p, at, n, vector, p);
}

template <ng_format_id P, ng_master MASTER> __device__ __forceinline__ void store_parameters(const Span &s, long long at, int n, bool vector, const float (&p)[EACH]) {
    if (MASTER == NG_MASTER_FP32) store_values<NG_FP32>(s.p2, at, n, vector, p);
    if (MASTER == NG_MASTER_REMAINDER) {
        uint32_t high[EACH], low[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const uint32_t bits = encode<NG_FP32>(p[i]);
            high[i] = ng_master_parameter(bits) & 0xFFFFu;
            low[i] = bits & 0xFFFFu;
        }
        store_codes<NG_BF16>(s.p, at, n, vector, high);
        store_codes<NG_BF16>(s.p2, at, n, vector, low);
    } else store_values<P>(s.p, at, n, vector, p);
}

template <ng_format_id F> __device__ __forceinline__ void load_moment(const unsigned char *codes, const float *scales, long long at, int n, bool vector, float (&x)[EACH]) {
    load_values<F>(codes, at, n, vector, x);
    if (!Scaled<F>::value) return;
    const float scale = n > 0 ? scales[at / NG_MOMENT_BLOCK] : 1.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        x[i] = ng_mul(x[i], scale);
}

/* All lanes of a warp come here together: their 128 elements are one block. */
template <ng_format_id F> __device__ __forceinline__ void store_moment(unsigned char *codes, float *scales, long long at, int n, bool vector, const float (&x)[EACH]) {
    if constexpr (!Scaled<F>::value) {
        if (n > 0) store_values<F>(codes, at, n, vector, x);
    } else {
        const ng_cast cast = {NG_RN_EVEN, NG_SR_CARRY, 0, true, NG_NAN_CANONICAL};
        const ng_caster caster = ng_caster_of(F, &cast);
        uint32_t amax = 0, code[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (i < n) amax = max(amax, ng_bits(x[i]) & (uint32_t)NG_ABS_MASK);
#pragma unroll
        for (int offset = 16; offset; offset /= 2)
            amax = max(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, offset));
        const ng_block_scale scale = ng_moment_scale(F, amax);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            code[i] = ng_cast_code(&caster, NG_RN_EVEN, ng_bits(ng_scale_apply(x[i], scale, true)));
        if (n <= 0) return;
        if (threadIdx.x % 32 == 0) scales[at / NG_MOMENT_BLOCK] = ng_float(scale.code);
        store_codes<F>(codes, at, n, vector, code);
    }
}

template <ng_format_id P, ng_format_id G, ng_format_id M, ng_format_id V, ng_master MASTER>
__global__ void __launch_bounds__(THREADS, 4) adam(const __grid_constant__ Batch batch) {
    __shared__ ng_adam_factors shared;
    const Step &step = batch.step;
    if (step.found_inf && *step.found_inf != 0.0f) return;
    if (step.step) {
        if (threadIdx.x == 0) shared = ng_adam_factors_of(step.scalars, step.bias_correction, (int64_t)*step.step);
        __syncthreads();
    }
    const ng_adam_factors f = step.step ? shared : step.factors;
    const int which = span_of(batch.spans, blockIdx.x);
    const Span &s = batch.spans.span[which];
    const long long begin = (long long)(blockIdx.x - batch.spans.first[which]) * CHUNK;
    const bool aligned = is_aligned<G>(s.g) && is_aligned<P>(s.p) && is_aligned<M>(s.m) && is_aligned<V>(s.v) &&
                         (MASTER == NG_MASTER_NONE || (MASTER == NG_MASTER_FP32 ? is_aligned<NG_FP32>(s.p2) : is_aligned<NG_BF16>(s.p2)));
    const long long rest = s.count - begin;
    enum { PAIR = 2 };
    for (int from = threadIdx.x * EACH; from < CHUNK; from += PAIR * ROUND) {
        Four x[PAIR];
        int n[PAIR];
        bool vector[PAIR];
        if ((long long)(from - (int)threadIdx.x * EACH) >= rest) break; /* the whole block */
#pragma unroll
        for (int k = 0; k < PAIR; k++) {
            const long long at = begin + from + k * ROUND;
            n[k] = (int)max(-1ll, min((long long)EACH, s.count - at));
            vector[k] = aligned && n[k] == EACH;
            load_values<G>(s.g, at, n[k], vector[k], x[k].g);
            load_parameters<P, MASTER>(s, at, n[k], vector[k], x[k].p);
            load_moment<M>(s.m, s.m_scales, at, n[k], vector[k], x[k].m);
            load_moment<V>(s.v, s.v_scales, at, n[k], vector[k], x[k].v);
        }
#pragma unroll
        for (int k = 0; k < PAIR; k++) {
            const long long at = begin + from + k * ROUND;
#pragma unroll
            for (int i = 0; i < EACH; i++)
                ng_adam(step.kind, &f, x[k].g[i], &x[k].p[i], &x[k].m[i], &x[k].v[i]);
            if (n[k] > 0) store_parameters<P, MASTER>(s, at, n[k], vector[k], x[k].p);
            store_moment<M>(s.m, s.m_scales, at, n[k], vector[k], x[k].m);
            store_moment<V>(s.v, s.v_scales, at, n[k], vector[k], x[k].v);
        }
    }
}

typedef void (*AdamKernel)(const Batch);

struct Variant {
    ng_format_id p, g, m, v;
    ng_master master;
    AdamKernel kernel;
};

#define VARIANT(p, g, m, v, master) {p, g, m, v, master, adam<p, g, m, v, master>}
const Variant variants[] = {
    VARIANT(NG_FP32, NG_FP32, NG_FP32, NG_FP32, NG_MASTER_NONE),
    VARIANT(NG_BF16, NG_BF16, NG_FP32, NG_FP32, NG_MASTER_NONE),
    VARIANT(NG_FP16, NG_FP16, NG_FP32, NG_FP32, NG_MASTER_NONE),
    VARIANT(NG_FP32, NG_BF16, NG_FP32, NG_FP32, NG_MASTER_NONE),
    VARIANT(NG_BF16, NG_BF16, NG_FP32, NG_FP32, NG_MASTER_FP32),
    VARIANT(NG_FP16, NG_FP16, NG_FP32, NG_FP32, NG_MASTER_FP32),
    VARIANT(NG_BF16, NG_FP32, NG_FP32, NG_FP32, NG_MASTER_FP32),
    VARIANT(NG_BF16, NG_BF16, NG_FP32, NG_FP32, NG_MASTER_REMAINDER),
    VARIANT(NG_FP32, NG_FP32, NG_BF16, NG_BF16, NG_MASTER_NONE),
    VARIANT(NG_FP32, NG_FP32, NG_E4M3, NG_E5M2, NG_MASTER_NONE),
    VARIANT(NG_FP32, NG_FP32, NG_E4M3, NG_BF16, NG_MASTER_NONE),
    VARIANT(NG_BF16, NG_BF16, NG_BF16, NG_BF16, NG_MASTER_FP32),
    VARIANT(NG_BF16, NG_BF16, NG_E4M3, NG_E5M2, NG_MASTER_FP32),
    VARIANT(NG_BF16, NG_BF16, NG_E4M3, NG_BF16, NG_MASTER_FP32),
};

AdamKernel find(const ng_kernel *kernel) {
    const ng_optimizer *o = &kernel->contract.optimizer;
    for (const Variant &v : variants)
        if (v.p == kernel->out && v.g == kernel->in && v.m == o->moment_1 && v.v == o->moment_2 && v.master == o->master) return v.kernel;
    return nullptr;
}

struct Start {
    AdamKernel kernel;
    Batch *batch;
    const ng_launch *launch;
};

ng_status start(void *context, const Spans &spans) {
    const Start *s = static_cast<const Start *>(context);
    s->kernel<<<spans.first[spans.count], THREADS, 0, static_cast<cudaStream_t>(s->launch->stream)>>>(*s->batch);
    return ng_cuda_launched(s->launch);
}

bool is_scaled(ng_format_id format) { return format == NG_E4M3 || format == NG_E5M2; }

ng_status check_adam(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_optimizer *o = &kernel->contract.optimizer;
    ng_status status = check_listed(launch, NG_PARAMETER, kernel->out, NG_PARAMETER, 1);
    if (!status) status = check_listed(launch, NG_GRADIENT, kernel->in, NG_PARAMETER, 1);
    if (!status) status = check_listed(launch, NG_MOMENT_1, o->moment_1, NG_PARAMETER, 1);
    if (!status) status = check_listed(launch, NG_MOMENT_2, o->moment_2, NG_PARAMETER, 1);
    if (!status && o->master) status = check_listed(launch, NG_PARAMETER_2, o->master == NG_MASTER_FP32 ? NG_FP32 : NG_BF16, NG_PARAMETER, 1);
    if (!status && is_scaled(o->moment_1)) status = check_listed(launch, NG_MOMENT_1_SCALES, NG_FP32, NG_PARAMETER, NG_MOMENT_BLOCK);
    if (!status && is_scaled(o->moment_2)) status = check_listed(launch, NG_MOMENT_2_SCALES, NG_FP32, NG_PARAMETER, NG_MOMENT_BLOCK);
    if (!status) status = check_number(launch, NG_FOUND_INF, false);
    if (!status && o->capturable) status = check_number(launch, NG_STEP_COUNT, true);
    return status;
}

} // namespace

extern "C" ng_status ng_cuda_launch_adam(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_optimizer *o = &kernel->contract.optimizer;
    const double t = launch->problem->scalars[NG_STEP];
    ng_status status = check_adam(kernel, launch);
    if (status) return status;
    if (!o->capturable && !(t >= 1 && t <= 0x1p53)) return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "step %g, expected 1 or more", t);
    Batch batch;
    Start context = {find(kernel), &batch, launch};
    if (!context.kernel) return ng_cuda_fail(launch, NG_UNSUPPORTED, "no code for these formats");
    batch.step.kind = o->kind;
    batch.step.bias_correction = o->bias_correction;
    batch.step.found_inf = number_at(launch, NG_FOUND_INF);
    batch.step.step = o->capturable ? number_at(launch, NG_STEP_COUNT) : nullptr;
    for (int i = 0; i < NG_SCALARS; i++)
        batch.step.scalars[i] = launch->problem->scalars[i];
    batch.step.factors = ng_adam_factors_of(launch->problem->scalars, o->bias_correction, o->capturable ? 1 : (int64_t)t);
    const bool blocks = is_scaled(o->moment_1) || is_scaled(o->moment_2);
    const Cut cut = {launch, NG_PARAMETER, blocks ? NG_MOMENT_BLOCK : 1, start, &context};
    return for_spans(cut, &batch.spans);
}
