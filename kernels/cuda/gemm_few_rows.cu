/* NVFP4 products with few rows (M <= 16: decoding, small batches), where the time is that of reading B's 4-bit codes once.
 *
 * Operands become bf16 in registers: element * block scale has at most six significant bits (NG_SCALES_DEQUANTIZED).
 * mma.sync.m16n8k16 takes 16 rows of B as its rows and 8 rows of A as its columns. K is cut into 8 parts, a warp each, of whole chunks of
 * 128; the parts' sums are added in ascending order (contract.h, split_k). A thread of a quad reads the 16 bytes of its own 32 codes of a
 * chunk's row and multiplies them where they are: which k share a step is NG_K_QUADS. */
#include "kernels/cuda/device.cuh"

namespace {

enum { PARTS = 8, THREADS = 32 * PARTS, CHUNK = 128, COLUMNS = 8, TILES = 2, ROWS = 16 * TILES };

struct Side {
    const unsigned char *codes, *scales;
    size_t row_bytes, scale_bytes;
    int rows;
};

struct Product {
    Side a, b;
    ng_matrix out;
    int k;
    const float *scale_a, *scale_b;
    ng_caster caster;
};

struct Piece { /* a row's chunk: the thread's 32 codes and their two scales */
    uint4 codes;
    uint32_t scales;
};

/* Rows past the last are the last once more; what they give is not stored. */
__device__ __forceinline__ Piece load(const Side &s, int row, int chunk, int t) {
    const unsigned at = (unsigned)min(row, s.rows - 1);
    return {__ldg(reinterpret_cast<const uint4 *>(s.codes + at * s.row_bytes + chunk * (CHUNK / 2)) + t),
            __ldg(reinterpret_cast<const unsigned short *>(s.scales + at * s.scale_bytes + chunk * (CHUNK / 16)) + t)};
}

__device__ __forceinline__ uint32_t multiply(uint32_t x, uint32_t y) { /* two bf16 each; all products here are exact */
    uint32_t z = 0;
#if __CUDA_ARCH__ >= 900
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
#endif
    return z;
}

/* Two ue4m3 codes as bf16, times 2^118: their bits are the values times 2^-120 there. */
__device__ __forceinline__ uint32_t scale_pair(uint32_t codes) {
    return multiply(multiply(__byte_perm(codes, 0, 0x4140) << 4, 0x7F007F00u), 0x77007700u);
}

__device__ __forceinline__ bool has_nan(uint32_t codes) { return (codes + 0x0101u) & 0x8080u; } /* 0x7F */

/* Eight codes as two steps' pairs: codes 0 and 4, 1 and 5 of the first, 2 and 6, 3 and 7 of the second. e2m1's three low bits in
 * bf16's exponent and first mantissa bit are the value times 2^-126; with the scale's 2^118, what is made is 2^-8 of what is meant. */
__device__ __forceinline__ void decode(uint32_t word, uint32_t scale, uint32_t (&pairs)[4]) {
    pairs[0] = multiply((word << 6 & 0x01C001C0u) | (word << 12 & 0x80008000u), scale);
    pairs[1] = multiply((word << 2 & 0x01C001C0u) | (word << 8 & 0x80008000u), scale);
    pairs[2] = multiply((word >> 2 & 0x01C001C0u) | (word << 4 & 0x80008000u), scale);
    pairs[3] = multiply((word >> 6 & 0x01C001C0u) | (word & 0x80008000u), scale);
}

/* Rows g and g + 8 of B, row g of A. */
__device__ __forceinline__ void step(float (&c)[4], const uint32_t *low, const uint32_t *high, const uint32_t *b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(low[0]), "r"(high[0]), "r"(low[1]), "r"(high[1]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint32_t word_of(const uint4 &four, int i) { return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w; }

/* A quad's threads see different scales of the same row. */
__device__ __forceinline__ bool any_of_quad(bool x) {
    const unsigned all = __ballot_sync(~0u, x);
    return all >> (threadIdx.x & 28u) & 0xFu;
}

/* A CTA: ROWS rows of B, all rows of A (GROUPS * 8). 32 rows and two CTAs a multiprocessor: measured on an H200, 16 rows are within 10 % for M <= 8 and
 * up to 1.25 times as slow beyond, 64 rows slower everywhere. */
template <int GROUPS> __global__ void __launch_bounds__(THREADS, 2) multiply_few_rows(Product p) {
    enum { EACH = 2 * TILES, AHEAD = 2 };
    __shared__ float parts[PARTS][GROUPS * COLUMNS][ROWS + 1];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, row0 = (int)blockIdx.x * ROWS;
    const int chunks = p.k / CHUNK, each = (chunks + PARTS - 1) / PARTS, start = warp * each, end = min(chunks, start + each);
    float sum[TILES][GROUPS][4] = {};
    Piece weights[AHEAD][EACH], rows[AHEAD][GROUPS];
    bool bad_weights[EACH] = {}, bad_rows[GROUPS] = {};
#pragma unroll
    for (int a = 0; a < AHEAD; a++)
        if (start + a < end) {
#pragma unroll
            for (int i = 0; i < EACH; i++)
                weights[a][i] = load(p.b, row0 + 8 * i + g, start + a, t);
#pragma unroll
            for (int i = 0; i < GROUPS; i++)
                rows[a][i] = load(p.a, 8 * i + g, start + a, t);
        }
    for (int chunk = start; chunk < end; chunk += AHEAD) {
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            if (chunk + a >= end) break;
            uint32_t scales[EACH], row_scales[GROUPS];
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                scales[i] = scale_pair(weights[a][i].scales);
                bad_weights[i] |= has_nan(weights[a][i].scales);
            }
#pragma unroll
            for (int i = 0; i < GROUPS; i++) {
                row_scales[i] = scale_pair(rows[a][i].scales);
                bad_rows[i] |= has_nan(rows[a][i].scales);
            }
#pragma unroll
            for (int w = 0; w < 4; w++) {
                const unsigned which = w < 2 ? 0x1010 : 0x3232;
                uint32_t right[GROUPS][4];
#pragma unroll
                for (int i = 0; i < GROUPS; i++)
                    decode(word_of(rows[a][i].codes, w), __byte_perm(row_scales[i], 0, which), right[i]);
#pragma unroll
                for (int tile = 0; tile < TILES; tile++) {
                    uint32_t low[4], high[4];
                    decode(word_of(weights[a][2 * tile].codes, w), __byte_perm(scales[2 * tile], 0, which), low);
                    decode(word_of(weights[a][2 * tile + 1].codes, w), __byte_perm(scales[2 * tile + 1], 0, which), high);
#pragma unroll
                    for (int i = 0; i < GROUPS; i++) {
                        step(sum[tile][i], low, high, right[i]);
                        step(sum[tile][i], low + 2, high + 2, right[i] + 2);
                    }
                }
            }
            if (chunk + AHEAD + a < end) {
#pragma unroll
                for (int i = 0; i < EACH; i++)
                    weights[a][i] = load(p.b, row0 + 8 * i + g, chunk + AHEAD + a, t);
#pragma unroll
                for (int i = 0; i < GROUPS; i++)
                    rows[a][i] = load(p.a, 8 * i + g, chunk + AHEAD + a, t);
            }
        }
    }
    const float nan = __uint_as_float(NG_NAN_BITS);
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        const unsigned bad = __ballot_sync(~0u, any_of_quad(bad_rows[i])); /* bit 4 g: row g of A */
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int m = 2 * t + e % 2;
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
                if (bad >> 4 * m & 1u) sum[tile][i][e] = nan;
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (any_of_quad(bad_weights[i]))
            for (int j = 0; j < GROUPS; j++)
                sum[i / 2][j][i % 2 * 2] = sum[i / 2][j][i % 2 * 2 + 1] = nan;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int i = 0; i < GROUPS; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                parts[warp][COLUMNS * i + 2 * t + e % 2][16 * tile + g + e / 2 * 8] = sum[tile][i][e];
    __syncthreads();
    for (int e = threadIdx.x; e < ROWS * GROUPS * COLUMNS; e += THREADS) {
        const int n = e % ROWS, m = e / ROWS;
        if (row0 + n >= p.b.rows || m >= p.a.rows) continue;
        float total = parts[0][m][n];
        for (int part = 1; part < PARTS; part++)
            total = ng_add(total, parts[part][m][n]);
        total = ng_mul(ng_mul(total, 0x1p16f), ng_mul(*p.scale_a, *p.scale_b));
        if (p.out.format == NG_FP32) ng_row<uint32_t>(p.out, m)[row0 + n] = total == total ? ng_bits(total) : (uint32_t)NG_NAN_BITS;
        else ng_store_code(p.out, m, row0 + n, ng_cast_code(&p.caster, NG_RN_EVEN, ng_bits(total)));
    }
}

ng_status side(const ng_launch *launch, ng_role codes, int64_t rows, int64_t k, Side *s) {
    const ng_tensor *c = &launch->tensors[codes], *scales = &launch->tensors[codes + 1];
    ng_status status = ng_cuda_check(launch, codes, NG_E2M1, rows, k);
    if (!status) status = ng_cuda_check(launch, (ng_role)(codes + 1), NG_UE4M3, rows, k / 16);
    if (!status) status = ng_cuda_check(launch, (ng_role)(codes + 2), NG_FP32, 1, 1);
    if (status) return status;
    if ((uintptr_t)c->data % 16 || c->row_bytes % 16 || (uintptr_t)scales->data % 2 || scales->row_bytes % 2)
        return ng_cuda_fail(launch, NG_UNSUPPORTED, "codes lie on no multiple of 16 bytes, or scales on none of 2");
    *s = {static_cast<const unsigned char *>(c->data), static_cast<const unsigned char *>(scales->data), (size_t)c->row_bytes, (size_t)scales->row_bytes, (int)rows};
    return NG_OK;
}

} // namespace

extern "C" const char *ng_cuda_few_rows_supports(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device) {
    (void)kernel;
    if (device->sm / 10 != 9) return "the order of sums is known of Hopper's mma.sync only";
    if (problem->m > 16) return "more than 16 rows";
    return problem->k % CHUNK ? "K is no multiple of 128" : nullptr;
}

extern "C" ng_status ng_cuda_launch_few_rows(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_problem *problem = launch->problem;
    Product p = {};
    ng_status status = side(launch, NG_A, problem->m, problem->k, &p.a);
    if (!status) status = side(launch, NG_B, problem->n, problem->k, &p.b);
    if (!status) status = ng_cuda_check(launch, NG_OUT, kernel->out, problem->m, problem->n);
    if (status || !problem->m || !problem->n) return status;
    if (problem->m > 16 || problem->k % CHUNK) return ng_cuda_fail(launch, NG_UNSUPPORTED, "at most 16 rows, and K a multiple of 128");
    if (problem->n > INT32_MAX - 64 || problem->k > INT32_MAX) return ng_cuda_fail(launch, NG_UNSUPPORTED, "more than 2^31 rows or columns");
    p.out = ng_matrix_of(&launch->tensors[NG_OUT]);
    p.k = (int)problem->k;
    p.scale_a = static_cast<const float *>(launch->tensors[NG_A_TENSOR_SCALE].data);
    p.scale_b = static_cast<const float *>(launch->tensors[NG_B_TENSOR_SCALE].data);
    p.caster = ng_caster_of(kernel->out, &kernel->contract.cast);
    const unsigned blocks = (unsigned)((problem->n + ROWS - 1) / ROWS);
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    if (problem->m <= COLUMNS) multiply_few_rows<1><<<blocks, THREADS, 0, stream>>>(p);
    else multiply_few_rows<2><<<blocks, THREADS, 0, stream>>>(p);
    return ng_cuda_launched(launch);
}
