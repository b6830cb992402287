/* fp32 into e2m1 by cvt.rs, which only sm_100a and sm_103a have (PTX ISA 8.7): four elements and 32 random bits an instruction, eight
 * bits each. Which of a half's two bytes goes to which of its two operands is not specified; here the first operand takes the
 * upper one, and given words show whether that is so. Not run yet on a machine that has it. */
#include "kernels/cuda/device.cuh"

namespace {

enum { THREADS = 256 };

struct Cast {
    ng_matrix in, out, words;
    long long rows, columns, across;
    uint64_t seed, offset;
};

/* d = {a, b, e, f} from the top; the low byte of each half is e's and f's, the high byte a's and b's. */
__device__ __forceinline__ uint32_t convert_four(const float (&x)[4], const uint32_t (&random)[4]) {
#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL)
    const uint32_t bits = (random[3] & 0xFFu) << 24 | (random[1] & 0xFFu) << 16 | (random[2] & 0xFFu) << 8 | (random[0] & 0xFFu);
    uint16_t codes;
    asm("cvt.rs.satfinite.e2m1x4.f32 %0, {%1, %2, %3, %4}, %5;" : "=h"(codes) : "f"(x[3]), "f"(x[2]), "f"(x[1]), "f"(x[0]), "r"(bits));
    return codes;
#else
    (void)x, (void)random;
    __trap(); /* ng_cuda_supports_cast_rs keeps other machines away */
    return 0;
#endif
}

__global__ void __launch_bounds__(THREADS) cast_rs(Cast c) {
    const long long count = c.rows * c.across;
    for (long long unit = blockIdx.x * (long long)THREADS + threadIdx.x; unit < count; unit += (long long)gridDim.x * THREADS) {
        const long long row = unit / c.across, from = unit % c.across * 4;
        float x[4];
        uint32_t random[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const bool inside = from + i < c.columns;
            x[i] = inside ? ng_float(ng_load_bits(c.in, row, from + i)) : 0.0f;
            random[i] = inside ? ng_random_word(c.words, c.seed, c.offset, row, from + i, (uint64_t)row * c.columns + from + i) : 0u;
        }
        const uint32_t codes = convert_four(x, random);
#pragma unroll
        for (int i = 0; i < 4; i += 2)
            if (from + i < c.columns) ng_store_pair(c.out, row, from + i, codes >> 4 * i & 0xFu, codes >> (4 * i + 4) & 0xFu);
    }
}

} // namespace

extern "C" const char *ng_cuda_supports_cast_rs(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device) {
    if (device->sm != 100 && device->sm != 103) return "cvt.rs is an instruction of sm_100a and sm_103a alone";
    return ng_cuda_supports(kernel, problem, device);
}

extern "C" ng_status ng_cuda_launch_cast_rs(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *problem = launch->problem;
    ng_status status = ng_cuda_check(launch, NG_IN, kernel->in, problem->m, problem->n);
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, problem->m, problem->n);
    if (!status && launch->tensors[NG_RANDOM_WORDS].data) status = ng_cuda_check(launch, NG_RANDOM_WORDS, NG_FP32, problem->m, problem->n);
    if (status) return status;
    const long long across = (problem->n + 3) / 4, blocks = (problem->m * across + THREADS - 1) / THREADS;
    const Cast c = {ng_matrix_of(&launch->tensors[NG_IN]), ng_matrix_of(&launch->tensors[NG_OUT]), ng_matrix_of(&launch->tensors[NG_RANDOM_WORDS]),
                    problem->m, problem->n, across, problem->seed, problem->offset};
    cast_rs<<<(unsigned)min(blocks, 1ll << 20), THREADS, 0, static_cast<cudaStream_t>(launch->stream)>>>(c);
    return ng_cuda_launched(launch);
}
