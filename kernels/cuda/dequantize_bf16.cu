/* Block-scaled operands as bf16 (contract.h, NG_SCALES_DEQUANTIZED): element * block scale, exact in bf16 for e2m1 by ue4m3
 * (six significant bits) and for any 8-bit element by e8m0 while the value stays in bf16's range; the tensor scale is left
 * out. A thread makes sixteen consecutive elements of each of four rows; rows whose length or alignment forbids that go one by one. */
#include "kernels/cuda/device.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace {

enum { THREADS = 256, EACH = 16, ROWS = 4 };

struct Source {
    ng_matrix codes, scales;
    uint16_t *out; /* [rows][k] dense */
    long long rows, k, block_rows, block_columns;
};

__device__ __forceinline__ uint32_t to_bf16(float x) {
    const uint32_t u = ng_bits(x);
    return x == x ? (u + 0x7FFFu + (u >> 16 & 1u)) >> 16 : 0x7FFFu;
}

__device__ __forceinline__ float scale_of(const Source &s, long long row, long long column) {
    return ng_decode_float(s.scales.format, ng_load_code(s.scales, row / s.block_rows, column / s.block_columns));
}

__global__ void __launch_bounds__(THREADS) one_by_one(Source s) {
    const long long count = s.rows * s.k;
    for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < count; i += (long long)gridDim.x * THREADS) {
        const long long row = i / s.k, column = i % s.k;
        const float x = ng_decode_float(s.codes.format, ng_load_code(s.codes, row, column));
        s.out[i] = (uint16_t)to_bf16(ng_mul(x, scale_of(s, row, column)));
    }
}

/* ---- sixteen codes a thread ---------------------------------------------------------------------------------------*/
__device__ __forceinline__ float2 wide(uint32_t pair) { return __half22float2(*reinterpret_cast<const __half2 *>(&pair)); }

/* Elements 2 i and 2 i + 1 of a word's worth of codes, times `factor`; the scale is multiplied by it instead. e2m1's three low bits in
 * fp16's exponent and first mantissa bit are the value times 2^-14; e5m2 is fp16's upper byte. */
template <ng_format_id FORMAT> struct Decoder;
template <> struct Decoder<NG_E2M1> {
    enum { BITS = 4 };
    static constexpr float factor = 0x1p14f;
    static __device__ __forceinline__ float2 pair(const uint32_t *words, int i) {
        const uint32_t two = words[i / 4] >> i % 4 * 8, apart = (two & 0xFu) | (two & 0xF0u) << 12;
        return wide((apart & 0x00070007u) << 9 | (apart & 0x00080008u) << 12);
    }
};
template <> struct Decoder<NG_E4M3> {
    enum { BITS = 8 };
    static constexpr float factor = 1.0f;
    static __device__ __forceinline__ float2 pair(const uint32_t *words, int i) {
        const uint32_t two = words[i / 2] >> i % 2 * 16 & 0xFFFFu;
#if __CUDA_ARCH__ >= 890
        uint32_t halves;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)two));
        return wide(halves);
#else
        return make_float2(ng_decode_float(NG_E4M3, two & 0xFFu), ng_decode_float(NG_E4M3, two >> 8));
#endif
    }
};
template <> struct Decoder<NG_E5M2> {
    enum { BITS = 8 };
    static constexpr float factor = 1.0f;
    static __device__ __forceinline__ float2 pair(const uint32_t *words, int i) {
        return wide(__byte_perm(words[i / 2] >> i % 2 * 16, 0, 0x1404));
    }
};

__device__ __forceinline__ uint32_t two_bf16(float low, float high) { /* NaN is 0x7FFF */
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&pair);
}

/* ROWS rows of 16 codes: the loads of all of them are on their way before the first is used. */
template <ng_format_id FORMAT> __device__ __forceinline__ void sixteen(const Source &s, long long row0, int column) {
    typedef Decoder<FORMAT> D;
    uint32_t words[ROWS][4];
    float scale[ROWS];
    const unsigned scale_column = (unsigned)column / (unsigned)s.block_columns; /* is_whole: below 2^31 */
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (row0 + r >= s.rows) break;
        const unsigned char *from = s.codes.data + (row0 + r) * s.codes.row_bytes + column * (long long)D::BITS / 8;
        if (D::BITS == 8) *reinterpret_cast<uint4 *>(words[r]) = *reinterpret_cast<const uint4 *>(from);
        else *reinterpret_cast<uint2 *>(words[r]) = *reinterpret_cast<const uint2 *>(from);
        const unsigned row = (unsigned)(row0 + r), scale_row = s.block_rows == 1 ? row : row / (unsigned)s.block_rows;
        scale[r] = ng_mul(ng_decode_float(s.scales.format, ng_load_code(s.scales, scale_row, scale_column)), D::factor);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (row0 + r >= s.rows) break;
        uint32_t out[EACH / 2];
#pragma unroll
        for (int i = 0; i < EACH / 2; i++) {
            const float2 x = D::pair(words[r], i);
            out[i] = two_bf16(ng_mul(x.x, scale[r]), ng_mul(x.y, scale[r]));
        }
        uint4 *to = reinterpret_cast<uint4 *>(s.out + (row0 + r) * s.k + column);
        to[0] = make_uint4(out[0], out[1], out[2], out[3]);
        to[1] = make_uint4(out[4], out[5], out[6], out[7]);
    }
}

/* Both operands at once: what is launched last has no operand to wait for alone. */
__global__ void __launch_bounds__(THREADS) both(Source a, Source b) {
    const Source &s = blockIdx.z ? b : a;
    const int column = (int)(blockIdx.x * THREADS + threadIdx.x) * EACH;
    const long long row0 = blockIdx.y * (long long)ROWS;
    if (column >= s.k || row0 >= s.rows) return;
    if (s.codes.format == NG_E2M1) sixteen<NG_E2M1>(s, row0, column);
    else if (s.codes.format == NG_E4M3) sixteen<NG_E4M3>(s, row0, column);
    else sixteen<NG_E5M2>(s, row0, column);
}

Source source_of(const ng_launch *launch, const ng_quantization *q, ng_role codes, int64_t rows, int64_t k, void *out) {
    return {ng_matrix_of(&launch->tensors[codes]), ng_matrix_of(&launch->tensors[codes + 1]), static_cast<uint16_t *>(out), rows, k,
            q->blocks.rows ? (long long)q->blocks.rows : rows, q->blocks.columns ? (long long)q->blocks.columns : k};
}

bool is_whole(const Source &s) {
    const uintptr_t bytes = s.codes.format == NG_E2M1 ? 8 : 16;
    const bool known = s.codes.format == NG_E2M1 || s.codes.format == NG_E4M3 || s.codes.format == NG_E5M2;
    return known && s.k % EACH == 0 && s.block_columns % EACH == 0 && (uintptr_t)s.codes.data % bytes == 0 &&
           (uintptr_t)s.codes.row_bytes % bytes == 0 && (uintptr_t)s.out % 16 == 0 && s.k < INT32_MAX && s.block_columns < INT32_MAX && s.block_rows < INT32_MAX && (s.rows + ROWS - 1) / ROWS < 65536;
}

} // namespace

extern "C" ng_status ng_cuda_dequantize_bf16(const ng_launch *launch, const ng_quantization *qa, const ng_quantization *qb, void *a, void *b) {
    const ng_problem *p = launch->problem;
    const Source sources[] = {source_of(launch, qa, NG_A, p->m, p->k, a), source_of(launch, qb, NG_B, p->n, p->k, b)};
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    if (is_whole(sources[0]) && is_whole(sources[1])) {
        const dim3 grid((unsigned)((p->k / EACH + THREADS - 1) / THREADS), (unsigned)((max(p->m, p->n) + ROWS - 1) / ROWS), 2);
        both<<<grid, THREADS, 0, stream>>>(sources[0], sources[1]);
    } else {
        for (const Source &s : sources)
            one_by_one<<<(unsigned)min((s.rows * s.k + THREADS - 1) / THREADS, 132ll * 32), THREADS, 0, stream>>>(s);
    }
    return ng_cuda_launched(launch);
}
