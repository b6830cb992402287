/* One rounding of every element (kernels/cuda/cuda.h). A thread takes eight elements: one 16-byte load of bf16, two of fp32. */
#include "kernels/cuda/device.cuh"

namespace {

enum { THREADS = 256, EACH = 8 };

struct Cast {
    ng_matrix in, out, words;
    long long rows, columns;
    ng_caster caster;
    ng_cast how;
    uint64_t seed, offset;
};

template <ng_rounding ROUNDING> __device__ uint32_t cast_one(const Cast &c, uint32_t bits, long long row, long long column) {
    if (ROUNDING == NG_R_STOCHASTIC)
        return ng_cast_code_stochastic(&c.caster, c.how.stochastic, c.how.random_bits, bits,
                                       ng_random_word(c.words, c.seed, c.offset, row, column, (uint64_t)row * c.columns + column));
    if (c.out.format == NG_E8M0) return ng_cast_e8m0(c.how.rounding, c.how.saturate, bits);
    return ng_cast_code(&c.caster, ROUNDING, bits);
}

template <ng_rounding ROUNDING> __global__ void __launch_bounds__(THREADS) cast_elements(Cast c) {
    const long long across = (c.columns + EACH - 1) / EACH, count = c.rows * across;
    for (long long unit = blockIdx.x * (long long)THREADS + threadIdx.x; unit < count; unit += (long long)gridDim.x * THREADS) {
        const long long row = unit / across, from = unit % across * EACH;
        const int n = (int)min((long long)EACH, c.columns - from);
        uint32_t code[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++)
            code[i] = i < n ? cast_one<ROUNDING>(c, ng_load_bits(c.in, row, from + i), row, from + i) : 0u;
        if (c.out.format == NG_E2M1) {
#pragma unroll
            for (int i = 0; i < EACH; i += 2)
                if (i < n) ng_store_pair(c.out, row, from + i, code[i], code[i + 1]);
        } else {
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (i < n) ng_store_code(c.out, row, from + i, code[i]);
        }
    }
}

/* fp32 in, one byte out, everything contiguous and aligned: what the sweep over all 2^32 inputs runs. */
template <ng_rounding ROUNDING> __global__ void __launch_bounds__(THREADS) cast_bytes(Cast c, long long groups) {
    const uint4 *in = reinterpret_cast<const uint4 *>(c.in.data);
    for (long long g = blockIdx.x * (long long)THREADS + threadIdx.x; g < groups; g += (long long)gridDim.x * THREADS) {
        const uint4 x = in[g];
        const uint32_t codes = cast_one<ROUNDING>(c, x.x, 0, 0) | cast_one<ROUNDING>(c, x.y, 0, 0) << 8 |
                               cast_one<ROUNDING>(c, x.z, 0, 0) << 16 | cast_one<ROUNDING>(c, x.w, 0, 0) << 24;
        reinterpret_cast<uint32_t *>(c.out.data)[g] = codes;
    }
}

template <ng_rounding ROUNDING> void start(const Cast &c, cudaStream_t stream) {
    const long long out_bytes = c.out.format == NG_E2M1 ? 0 : c.columns;
    const bool bytes = ROUNDING != NG_R_STOCHASTIC && c.in.format == NG_FP32 && c.out.format >= NG_E4M3 && c.out.format != NG_E2M1 &&
                       c.out.row_bytes == out_bytes && c.in.row_bytes == 4 * c.columns && c.rows * c.columns % 4 == 0 &&
                       (uintptr_t)c.in.data % 16 == 0 && (uintptr_t)c.out.data % 4 == 0;
    const long long units = bytes ? c.rows * c.columns / 4 : c.rows * ((c.columns + EACH - 1) / EACH);
    const unsigned blocks = (unsigned)min((units + THREADS - 1) / THREADS, 1ll << 20);
    if (bytes) cast_bytes<ROUNDING><<<blocks, THREADS, 0, stream>>>(c, units);
    else cast_elements<ROUNDING><<<blocks, THREADS, 0, stream>>>(c);
}

} // namespace

extern "C" ng_status ng_cuda_launch_cast(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *problem = launch->problem;
    const ng_cast *cast = &kernel->contract.cast;
    ng_status status = ng_cuda_check(launch, NG_IN, kernel->in, problem->m, problem->n);
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, problem->m, problem->n);
    if (!status && cast->rounding == NG_R_STOCHASTIC && launch->tensors[NG_RANDOM_WORDS].data)
        status = ng_cuda_check(launch, NG_RANDOM_WORDS, NG_FP32, problem->m, problem->n);
    if (status) return status;
    const Cast c = {ng_matrix_of(&launch->tensors[NG_IN]), ng_matrix_of(&launch->tensors[NG_OUT]),
                    ng_matrix_of(&launch->tensors[NG_RANDOM_WORDS]), problem->m, problem->n,
                    ng_caster_of(kernel->out, cast), *cast, problem->seed, problem->offset};
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    switch (cast->rounding) {
    case NG_RN_EVEN: start<NG_RN_EVEN>(c, stream); break;
    case NG_RN_AWAY: start<NG_RN_AWAY>(c, stream); break;
    case NG_R_ZERO: start<NG_R_ZERO>(c, stream); break;
    case NG_R_UP: start<NG_R_UP>(c, stream); break;
    case NG_R_AWAY: start<NG_R_AWAY>(c, stream); break;
    default: start<NG_R_STOCHASTIC>(c, stream);
    }
    return ng_cuda_launched(launch);
}
