/* Products on CUDA cores as FP32 chains: the same contract and the same bits as the CPU's fp32-chain kernels. Every product
 * of two operands is exact in binary32 or the contract says fma, so that one fma a term is right for all. A plain tiled
 * kernel: 64 x 64 outputs a CTA, 4 x 4 a thread; speed is not what it is for. */
#include "kernels/cuda/device.cuh"

namespace {

enum { TILE = 64, DEPTH = 16, EACH = 4, THREADS = 256 };

struct Factor {
    ng_matrix codes, scales;
    long long rows, block_rows, block_columns;
};

struct Product {
    Factor a, b;
    ng_matrix out;
    long long m, n, k;
    const float *scale_a, *scale_b; /* of the tensors; NULL: none */
    int place;                      /* ng_scale_place */
    long long block;                /* K under one pair of scales, NG_SCALES_BLOCK_SEQUENTIAL; else k */
    int accumulate_into;
    ng_caster caster;
};

__device__ __forceinline__ float element(const Factor &f, long long row, long long column) {
    return ng_decode_float(f.codes.format, ng_load_code(f.codes, row, column));
}

__device__ __forceinline__ float scale(const Factor &f, long long row, long long column) {
    return ng_decode_float(f.scales.format, ng_load_code(f.scales, row / f.block_rows, column / f.block_columns));
}

__device__ void load(const Factor &f, float (&tile)[DEPTH][TILE + 1], long long row0, long long k0, long long end) {
    for (int t = threadIdx.x; t < TILE * DEPTH; t += THREADS) {
        const long long row = row0 + t / DEPTH, column = k0 + t % DEPTH;
        tile[t % DEPTH][t / DEPTH] = row < f.rows && column < end ? element(f, row, column) : 0.0f;
    }
}

__device__ void store(const Product &g, float sum, long long row, long long column) {
    if (g.place == NG_SCALES_AFTER) sum = ng_mul(ng_mul(sum, scale(g.a, row, 0)), scale(g.b, column, 0));
    if (g.scale_a) sum = ng_mul(sum, ng_mul(*g.scale_a, *g.scale_b));
    if (g.accumulate_into) sum = ng_add(sum, ng_row<const float>(g.out, row)[column]);
    if (g.out.format != NG_FP32) ng_store_code(g.out, row, column, ng_cast_code(&g.caster, NG_RN_EVEN, ng_bits(sum)));
    else ng_row<uint32_t>(g.out, row)[column] = sum == sum ? ng_bits(sum) : (uint32_t)NG_NAN_BITS;
}

__global__ void __launch_bounds__(THREADS) multiply(Product g) {
    __shared__ float a[DEPTH][TILE + 1], b[DEPTH][TILE + 1];
    const long long row0 = blockIdx.y * (long long)TILE, column0 = blockIdx.x * (long long)TILE;
    const int ti = threadIdx.x / 16 * EACH, tj = threadIdx.x % 16 * EACH;
    float main[EACH][EACH] = {}, chain[EACH][EACH] = {};
    for (long long start = 0; start < g.k; start += g.block) {
        const long long end = min(g.k, start + g.block);
        for (long long k0 = start; k0 < end; k0 += DEPTH) {
            __syncthreads();
            load(g.a, a, row0, k0, end);
            load(g.b, b, column0, k0, end);
            __syncthreads();
            const int depth = (int)min((long long)DEPTH, end - k0);
            for (int t = 0; t < depth; t++)
#pragma unroll
                for (int i = 0; i < EACH; i++)
#pragma unroll
                    for (int j = 0; j < EACH; j++)
                        chain[i][j] = __fmaf_rn(a[t][ti + i], b[t][tj + j], chain[i][j]);
        }
        if (g.place != NG_SCALES_BLOCK_SEQUENTIAL) continue;
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const long long row = row0 + ti + i, column = column0 + tj + j;
                if (row < g.m && column < g.n)
                    main[i][j] = ng_add(main[i][j], ng_mul(ng_mul(chain[i][j], scale(g.a, row, start)), scale(g.b, column, start)));
                chain[i][j] = 0.0f;
            }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (row0 + ti + i < g.m && column0 + tj + j < g.n)
                store(g, g.place == NG_SCALES_BLOCK_SEQUENTIAL ? main[i][j] : chain[i][j], row0 + ti + i, column0 + tj + j);
}

ng_status factor(const ng_launch *launch, const ng_quantization *q, ng_role codes, ng_role scales, int64_t rows, int64_t k, Factor *f) {
    ng_status status = ng_cuda_check(launch, codes, q->element, rows, k);
    if (!status && q->rule != NG_SCALE_ABSENT)
        status = ng_cuda_check(launch, scales, q->scale, ng_cuda_blocks(q->blocks.rows, rows), ng_cuda_blocks(q->blocks.columns, k));
    *f = {ng_matrix_of(&launch->tensors[codes]), ng_matrix_of(&launch->tensors[scales]), rows,
          q->blocks.rows ? (long long)q->blocks.rows : (rows ? rows : 1), q->blocks.columns ? (long long)q->blocks.columns : (k ? k : 1)};
    return status;
}

} // namespace

extern "C" ng_status ng_cuda_launch_gemm(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_contract *contract = &kernel->contract;
    const ng_problem *problem = launch->problem;
    Product g = {};
    ng_status status = factor(launch, &contract->a, NG_A, NG_A_SCALES, problem->m, problem->k, &g.a);
    if (!status) status = factor(launch, &contract->b, NG_B, NG_B_SCALES, problem->n, problem->k, &g.b);
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, problem->m, problem->n);
    if (!status && contract->a.tensor_scale) status = ng_cuda_check(launch, NG_A_TENSOR_SCALE, NG_FP32, 1, 1);
    if (!status && contract->b.tensor_scale) status = ng_cuda_check(launch, NG_B_TENSOR_SCALE, NG_FP32, 1, 1);
    if (status) return status;
    g.out = ng_matrix_of(&launch->tensors[NG_OUT]);
    g.m = problem->m;
    g.n = problem->n;
    g.k = problem->k;
    g.place = contract->sum.scales;
    g.scale_a = contract->a.tensor_scale ? static_cast<const float *>(launch->tensors[NG_A_TENSOR_SCALE].data) : nullptr;
    g.scale_b = contract->b.tensor_scale ? static_cast<const float *>(launch->tensors[NG_B_TENSOR_SCALE].data) : nullptr;
    if ((g.scale_a != nullptr) != (g.scale_b != nullptr)) return ng_cuda_fail(launch, NG_UNSUPPORTED, "only one operand has a tensor scale");
    g.block = g.place == NG_SCALES_BLOCK_SEQUENTIAL ? min(g.a.block_columns, g.b.block_columns) : (g.k ? g.k : 1);
    g.accumulate_into = contract->accumulate_into;
    g.caster = ng_caster_of(kernel->out, &contract->cast);
    const dim3 grid((unsigned)((g.n + TILE - 1) / TILE), (unsigned)((g.m + TILE - 1) / TILE));
    if (grid.y > 65535) return ng_cuda_fail(launch, NG_UNSUPPORTED, "more than %d rows", 65535 * TILE);
    multiply<<<grid, THREADS, 0, static_cast<cudaStream_t>(launch->stream)>>>(g);
    return ng_cuda_launched(launch);
}
