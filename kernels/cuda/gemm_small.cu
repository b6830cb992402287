/* NVFP4 products with few rows (M <= 16: decoding, small batches), where the time is that of reading B's 4-bit codes once.
 *
 * Operands become fp16 in registers: element * block scale has at most six significant bits and lies in [2^-10, 2688], so that it is
 * exact and normal there (NG_SCALES_DEQUANTIZED). mma.sync.m16n8k16 takes 16 rows of B as its rows and 8 rows of A as its columns.
 * K is cut into 8 parts, a warp each, of whole chunks of 128; the parts' sums are added in ascending order (contract.h, split_k).
 *
 * In a chunk a thread of a quad reads the 16 bytes of its own 32 codes of a row, so that a quad reads 64 bytes in a row; a
 * transposition among the four gives each of them the codes 4t .. 4t + 3 of every step of 16. Which of a step's 16 products is where
 * does not matter: Hopper adds them at once. */
#include "kernels/cuda/device.cuh"

namespace {

enum { PARTS = 8, THREADS = 32 * PARTS, CHUNK = 128, STEPS = CHUNK / 16, COLUMNS = 8 };

struct Side {
    const unsigned char *codes, *scales;
    long long row_bytes, scale_bytes, rows;
};

struct Product {
    Side a, b;
    ng_matrix out;
    long long k;
    const float *scale_a, *scale_b;
    ng_caster caster;
};

struct Piece { /* a row's chunk: 32 codes of the thread's own, the chunk's 8 scales */
    uint4 codes;
    uint2 scales;
};

__device__ __forceinline__ Piece load(const Side &s, long long row, long long k0, int t) {
    if (row >= s.rows) return {};
    return {__ldg(reinterpret_cast<const uint4 *>(s.codes + row * s.row_bytes + k0 / 2) + t),
            __ldg(reinterpret_cast<const uint2 *>(s.scales + row * s.scale_bytes + k0 / 16))};
}

__device__ __forceinline__ uint32_t multiply(uint32_t x, uint32_t y) { /* two fp16 each; all products here are exact */
    uint32_t z;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}

/* Two ue4m3 codes in the low half of x as fp16, times 2^7. */
__device__ __forceinline__ uint32_t scale_pair(uint32_t x) {
    uint32_t pair = 0;
#if __CUDA_ARCH__ >= 890
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)x));
#endif
    return multiply(pair, 0x58005800u);
}

/* Words of codes: word u of the result holds, of steps 2u and 2u + 1, the thread's four codes each: bytes (step 2u: codes 0, 1), (step
 * 2u + 1: codes 0, 1), then codes 2, 3 of both. */
__device__ __forceinline__ void exchange(const uint4 &own, int t, uint32_t (&mine)[4]) {
    const uint32_t for_0 = __byte_perm(own.x, own.z, 0x5140), for_1 = __byte_perm(own.x, own.z, 0x7362);
    const uint32_t for_2 = __byte_perm(own.y, own.w, 0x5140), for_3 = __byte_perm(own.y, own.w, 0x7362);
    const bool odd = t & 1, high = t & 2;
    /* between t and t ^ 1: both then hold what is for t's parity, of t and of t ^ 1 */
    const uint32_t low_other = __shfl_xor_sync(~0u, odd ? for_0 : for_1, 1), low_own = odd ? for_1 : for_0;
    const uint32_t high_other = __shfl_xor_sync(~0u, odd ? for_2 : for_3, 1), high_own = odd ? for_3 : for_2;
    const uint32_t low_even = odd ? low_other : low_own, low_odd = odd ? low_own : low_other; /* of the even, the odd thread of the pair */
    const uint32_t high_even = odd ? high_other : high_own, high_odd = odd ? high_own : high_other;
    const uint32_t even = __shfl_xor_sync(~0u, high ? low_even : high_even, 2), odd_one = __shfl_xor_sync(~0u, high ? low_odd : high_odd, 2);
    mine[0] = high ? even : low_even;
    mine[1] = high ? odd_one : low_odd;
    mine[2] = high ? high_even : even;
    mine[3] = high ? high_odd : odd_one;
}

/* Codes 0 and 2, and 1 and 3, of one step as fp16 values: e2m1's bits stand for value * 2^-14 there; 2^7 and the scale's 2^7 are back. */
template <int STEP> __device__ __forceinline__ void decode(uint32_t word, uint32_t scale, uint32_t (&pair)[2]) {
    const uint32_t first = STEP ? (word << 1 & 0x0E000E00u) | (word << 4 & 0x80008000u) : (word << 9 & 0x0E000E00u) | (word << 12 & 0x80008000u);
    const uint32_t second = STEP ? (word >> 3 & 0x0E000E00u) | (word & 0x80008000u) : (word << 5 & 0x0E000E00u) | (word << 8 & 0x80008000u);
    pair[0] = multiply(multiply(first, 0x58005800u), scale);
    pair[1] = multiply(multiply(second, 0x58005800u), scale);
}

__device__ __forceinline__ void step(float (&c)[4], const uint32_t (&first)[2], const uint32_t (&second)[2], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(first[0]), "r"(second[0]), "r"(first[1]), "r"(second[1]), "r"(b[0]), "r"(b[1]));
}

/* A CTA: TILES * 16 rows of B, all rows of A (GROUPS * 8). */
template <int TILES, int GROUPS> __global__ void __launch_bounds__(THREADS, TILES == 4 ? 1 : TILES == 2 ? 2 : 3) multiply_small(Product p) {
    enum { ROWS = TILES * 16, EACH = 2 * TILES };
    __shared__ float parts[PARTS][ROWS][GROUPS * COLUMNS + 1];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const long long row0 = blockIdx.x * (long long)ROWS, chunks = p.k / CHUNK, each = (chunks + PARTS - 1) / PARTS;
    const long long end = min(chunks, (warp + 1) * each);
    float sum[TILES][GROUPS][4] = {};
    Piece weights[EACH], rows[GROUPS];
    long long chunk = warp * each;
    for (int i = 0; i < EACH && chunk < end; i++)
        weights[i] = load(p.b, row0 + 8 * i + g, chunk * CHUNK, t);
    for (int i = 0; i < GROUPS && chunk < end; i++)
        rows[i] = load(p.a, 8 * i + g, chunk * CHUNK, t);
    while (chunk < end) {
        uint32_t words[EACH][4], scales[EACH][STEPS / 2], row_words[GROUPS][4], row_scales[GROUPS][STEPS / 2];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            exchange(weights[i].codes, t, words[i]);
            for (int u = 0; u < STEPS / 2; u++)
                scales[i][u] = (u < 2 ? weights[i].scales.x : weights[i].scales.y) >> (u % 2 * 16) & 0xFFFFu;
        }
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            exchange(rows[i].codes, t, row_words[i]);
            for (int u = 0; u < STEPS / 2; u++)
                row_scales[i][u] = (u < 2 ? rows[i].scales.x : rows[i].scales.y) >> (u % 2 * 16) & 0xFFFFu;
        }
        if (++chunk < end) { /* the next chunk is on its way while this one is multiplied */
#pragma unroll
            for (int i = 0; i < EACH; i++)
                weights[i] = load(p.b, row0 + 8 * i + g, chunk * CHUNK, t);
#pragma unroll
            for (int i = 0; i < GROUPS; i++)
                rows[i] = load(p.a, 8 * i + g, chunk * CHUNK, t);
        }
#pragma unroll
        for (int u = 0; u < STEPS / 2; u++) {
            uint32_t right[GROUPS][2][2];
#pragma unroll
            for (int i = 0; i < GROUPS; i++) {
                const uint32_t s = scale_pair(row_scales[i][u]);
                decode<0>(row_words[i][u], __byte_perm(s, s, 0x1010), right[i][0]);
                decode<1>(row_words[i][u], __byte_perm(s, s, 0x3232), right[i][1]);
            }
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                uint32_t left[2][2][2]; /* row g or g + 8, step, pair */
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const uint32_t s = scale_pair(scales[2 * tile + half][u]);
                    decode<0>(words[2 * tile + half][u], __byte_perm(s, s, 0x1010), left[half][0]);
                    decode<1>(words[2 * tile + half][u], __byte_perm(s, s, 0x3232), left[half][1]);
                }
#pragma unroll
                for (int w = 0; w < 2; w++)
#pragma unroll
                    for (int i = 0; i < GROUPS; i++)
                        step(sum[tile][i], left[0][w], left[1][w], right[i][w]);
            }
        }
    }
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int i = 0; i < GROUPS; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                parts[warp][16 * tile + g + e / 2 * 8][COLUMNS * i + 2 * t + e % 2] = sum[tile][i][e];
    __syncthreads();
    for (int e = threadIdx.x; e < ROWS * GROUPS * COLUMNS; e += THREADS) {
        const int n = e % ROWS, m = e / ROWS;
        if (row0 + n >= p.b.rows || m >= p.a.rows) continue;
        float total = parts[0][n][m];
        for (int part = 1; part < PARTS; part++)
            total = ng_add(total, parts[part][n][m]);
        total = ng_mul(total, ng_mul(*p.scale_a, *p.scale_b));
        if (p.out.format == NG_FP32) ng_row<uint32_t>(p.out, m)[row0 + n] = total == total ? ng_bits(total) : (uint32_t)NG_NAN_BITS;
        else ng_store_code(p.out, m, row0 + n, ng_cast_code(&p.caster, NG_RN_EVEN, ng_bits(total)));
    }
}

template <int TILES> void launch_small(const Product &p, cudaStream_t stream) {
    const unsigned blocks = (unsigned)((p.b.rows + 16 * TILES - 1) / (16 * TILES));
    if (p.a.rows <= COLUMNS) multiply_small<TILES, 1><<<blocks, THREADS, 0, stream>>>(p);
    else multiply_small<TILES, 2><<<blocks, THREADS, 0, stream>>>(p);
}

ng_status side(const ng_launch *launch, ng_role codes, int64_t rows, int64_t k, Side *s) {
    const ng_tensor *c = &launch->tensors[codes], *scales = &launch->tensors[codes + 1];
    ng_status status = ng_cuda_check(launch, codes, NG_E2M1, rows, k);
    if (!status) status = ng_cuda_check(launch, (ng_role)(codes + 1), NG_UE4M3, rows, k / 16);
    if (!status) status = ng_cuda_check(launch, (ng_role)(codes + 2), NG_FP32, 1, 1);
    if (status) return status;
    if ((uintptr_t)c->data % 16 || c->row_bytes % 16 || (uintptr_t)scales->data % 8 || scales->row_bytes % 8)
        return ng_cuda_fail(launch, NG_UNSUPPORTED, "codes lie on no multiple of 16 bytes, or scales on none of 8");
    *s = {static_cast<const unsigned char *>(c->data), static_cast<const unsigned char *>(scales->data), (long long)c->row_bytes, (long long)scales->row_bytes, rows};
    return NG_OK;
}

} // namespace

extern "C" const char *ng_cuda_small_supports(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device) {
    (void)kernel;
    if (device->sm / 10 != 9) return "the order of sums is known of Hopper's mma.sync only"; /* also: cvt of e4m3 needs 8.9 */
    if (problem->m > 16) return "more than 16 rows";
    return problem->k % CHUNK ? "K is no multiple of 128" : nullptr;
}

extern "C" ng_status ng_cuda_launch_small(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *problem = launch->problem;
    Product p = {};
    ng_status status = side(launch, NG_A, problem->m, problem->k, &p.a);
    if (!status) status = side(launch, NG_B, problem->n, problem->k, &p.b);
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, problem->m, problem->n);
    if (status || !problem->m || !problem->n) return status;
    if (problem->m > 16 || problem->k % CHUNK) return ng_cuda_fail(launch, NG_UNSUPPORTED, "at most 16 rows, and K a multiple of 128");
    p.out = ng_matrix_of(&launch->tensors[NG_OUT]);
    p.k = problem->k;
    p.scale_a = static_cast<const float *>(launch->tensors[NG_A_TENSOR_SCALE].data);
    p.scale_b = static_cast<const float *>(launch->tensors[NG_B_TENSOR_SCALE].data);
    p.caster = ng_caster_of(kernel->out, &kernel->contract.cast);
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    if (problem->n >= 64 * 132) launch_small<4>(p, stream);
    else launch_small<2>(p, stream);
    return ng_cuda_launched(launch);
}
