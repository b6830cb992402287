/* Block-scaled operands as bf16 (contract.h, NG_SCALES_DEQUANTIZED): element * block scale, exact in bf16 for e2m1 by ue4m3
 * (six significant bits) and for any 8-bit element by e8m0 while the value stays in bf16's range; the tensor scale is left
 * out. A thread makes sixteen consecutive elements of a row; rows whose length or alignment forbids that go one by one. */
#include "kernels/cuda/device.cuh"

namespace {

enum { THREADS = 256, EACH = 16 };

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

/* Sixteen codes of `bits` bits in whole words. */
template <int BITS> __global__ void __launch_bounds__(THREADS) sixteen(Source s) {
    const long long per_row = s.k / EACH, count = s.rows * per_row;
    for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < count; i += (long long)gridDim.x * THREADS) {
        const long long row = i / per_row, column = i % per_row * EACH;
        const unsigned char *from = s.codes.data + row * s.codes.row_bytes + column * BITS / 8;
        uint32_t word[4] = {};
        if (BITS == 8) *reinterpret_cast<uint4 *>(word) = *reinterpret_cast<const uint4 *>(from);
        else *reinterpret_cast<uint2 *>(word) = *reinterpret_cast<const uint2 *>(from);
        const float scale = scale_of(s, row, column);
        uint32_t out[EACH / 2];
#pragma unroll
        for (int t = 0; t < EACH; t += 2) {
            const uint32_t mask = (1u << BITS) - 1u;
            const uint32_t low = word[t * BITS / 32] >> t * BITS % 32 & mask, high = word[(t + 1) * BITS / 32] >> (t + 1) * BITS % 32 & mask;
            out[t / 2] = to_bf16(ng_mul(ng_decode_float(s.codes.format, low), scale)) | to_bf16(ng_mul(ng_decode_float(s.codes.format, high), scale)) << 16;
        }
        uint4 *to = reinterpret_cast<uint4 *>(s.out + row * s.k + column);
        to[0] = make_uint4(out[0], out[1], out[2], out[3]);
        to[1] = make_uint4(out[4], out[5], out[6], out[7]);
    }
}

} // namespace

extern "C" ng_status ng_cuda_dequantize_bf16(const ng_launch *launch, const ng_quantization *q, ng_role codes, ng_role scales, int64_t rows,
                                             int64_t k, void *out) {
    const ng_tensor *c = &launch->tensors[codes];
    const Source s = {ng_matrix_of(c), ng_matrix_of(&launch->tensors[scales]), static_cast<uint16_t *>(out), rows, k,
                      q->blocks.rows ? (long long)q->blocks.rows : rows, q->blocks.columns ? (long long)q->blocks.columns : k};
    const int bits = c->format == NG_E2M1 ? 4 : 8, bytes = 2 * bits;
    const bool whole = k % EACH == 0 && s.block_columns % EACH == 0 && (uintptr_t)c->data % bytes == 0 && c->row_bytes % bytes == 0 && (uintptr_t)out % 16 == 0;
    const unsigned blocks = (unsigned)min((long long)((rows * k / (whole ? EACH : 1) + THREADS - 1) / THREADS), 132ll * 32);
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    if (!whole) one_by_one<<<blocks, THREADS, 0, stream>>>(s);
    else if (bits == 4) sixteen<4><<<blocks, THREADS, 0, stream>>>(s);
    else sixteen<8><<<blocks, THREADS, 0, stream>>>(s);
    return ng_cuda_launched(launch);
}
