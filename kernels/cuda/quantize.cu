/* Block quantization (kernels/cuda/cuda.h): every form and scale rule, row-wise, column-wise, or both from one read.
 *
 * quantize_tile serves everything: a CTA reads a tile of 128 x 128 elements once, finds its blocks' maxima and scales in
 * shared memory, and encodes it in either direction. Scales that span tiles (tensor, row) come from a pass of maxima before.
 * quantize_flat serves what training runs most: bf16, row-wise, ties to even, whole blocks, everything contiguous. A
 * thread holds eight elements at a time in registers; 4 or 16 neighbouring lanes make a block of 32 or 128. */
#include "kernels/cuda/device.cuh"

namespace {

enum { TILE = 128, STRIDE = TILE + 1, THREADS = 256, SMALLEST_BLOCK = 16, EACH = 8, UNROLL = 4, FLAT_GROUPS = 2, NVFP4_BLOCKS = 1, CTAS = 5 };

struct Output {
    ng_matrix codes, scales;
};

struct Quantize {
    ng_quantization q;
    ng_matrix in, words;
    Output out[2];      /* row-wise, column-wise (of the transposed tensor) */
    long long extent[2]; /* rows, columns of the input */
    uint32_t *maxima;   /* [1 + rows + columns]: the tensor's, then rows', then columns' */
    const float *given;
    float *tensor_scale;
    ng_caster caster;
    uint64_t seed, offset;
};

__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

__device__ uint32_t block_reduce_max(uint32_t x) {
    __shared__ uint32_t warps[THREADS / 32];
    x = __reduce_max_sync(0xFFFFFFFFu, x);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x < THREADS / 32 ? warps[threadIdx.x] : 0u;
    return __reduce_max_sync(0xFFFFFFFFu, x);
}

/* ---- maxima ---------------------------------------------------------------------------------------------------------*/
/* As integers, so that a NaN is larger than anything and the order of the atomics does not matter. */
__global__ void __launch_bounds__(THREADS) tensor_maximum(Quantize z) {
    uint32_t largest = 0;
    const long long count = z.extent[0] * z.extent[1];
    for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < count; i += (long long)gridDim.x * THREADS)
        largest = larger(largest, ng_load_bits(z.in, i / z.extent[1], i % z.extent[1]) & NG_ABS_MASK);
    largest = block_reduce_max(largest);
    if (threadIdx.x == 0) atomicMax(&z.maxima[0], largest);
}

/* Both halves of two bf16 at once: magnitudes compare as unsigned 16-bit integers. From the tensor's end to its beginning,
 * so that the pass that quantizes finds in the L2 cache what this one read last. */
__global__ void __launch_bounds__(THREADS) tensor_maximum_bf16(const uint4 *in, long long groups, uint32_t *maximum) {
    uint32_t largest = 0;
    const long long step = (long long)gridDim.x * THREADS;
    long long g = groups - 1 - (blockIdx.x * (long long)THREADS + threadIdx.x);
    for (; g - (UNROLL - 1) * step >= 0; g -= UNROLL * step) {
        uint4 x[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            x[u] = in[g - u * step];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            largest = __vmaxu2(largest, x[u].x & 0x7FFF7FFFu);
            largest = __vmaxu2(largest, x[u].y & 0x7FFF7FFFu);
            largest = __vmaxu2(largest, x[u].z & 0x7FFF7FFFu);
            largest = __vmaxu2(largest, x[u].w & 0x7FFF7FFFu);
        }
    }
    for (; g >= 0; g -= step) {
        const uint4 x = in[g];
        largest = __vmaxu2(largest, __vmaxu2(__vmaxu2(x.x & 0x7FFF7FFFu, x.y & 0x7FFF7FFFu), __vmaxu2(x.z & 0x7FFF7FFFu, x.w & 0x7FFF7FFFu)));
    }
    largest = larger(largest & 0xFFFF0000u, largest << 16);
    largest = block_reduce_max(largest);
    if (threadIdx.x == 0) atomicMax(maximum, largest);
}

/* Rows' and columns' maxima: a CTA a tile. */
__global__ void __launch_bounds__(THREADS) line_maxima(Quantize z) {
    const long long row0 = blockIdx.y * (long long)TILE, column0 = blockIdx.x * (long long)TILE;
    for (int t = threadIdx.x; t < TILE * TILE; t += THREADS) {
        const long long row = row0 + t / TILE, column = column0 + t % TILE;
        const bool inside = row < z.extent[0] && column < z.extent[1];
        const uint32_t magnitude = inside ? ng_load_bits(z.in, row, column) & NG_ABS_MASK : 0u;
        const uint32_t of_row = __reduce_max_sync(0xFFFFFFFFu, magnitude); /* a warp's 32 elements lie in one row */
        if (threadIdx.x % 32 == 0 && row < z.extent[0]) atomicMax(&z.maxima[1 + row], of_row);
        if (inside) atomicMax(&z.maxima[1 + z.extent[0] + column], magnitude);
    }
}

/* ---- one tile, any form ---------------------------------------------------------------------------------------------*/
__device__ __forceinline__ uint32_t encode(const Quantize &z, float y, uint32_t word) {
    if (z.q.cast.rounding == NG_R_STOCHASTIC)
        return ng_cast_code_stochastic(&z.caster, z.q.cast.stochastic, z.q.cast.random_bits, ng_bits(y), word);
    return ng_cast_code(&z.caster, NG_RN_EVEN, ng_bits(y));
}

/* Word of element (line, place) of an output; the column-wise output draws after the row-wise one's last element. */
__device__ __forceinline__ uint32_t word_of(const Quantize &z, int direction, long long line, long long place) {
    if (z.q.cast.rounding != NG_R_STOCHASTIC) return 0u;
    if (z.words.data) return ng_row<const uint32_t>(z.words, direction ? place : line)[direction ? line : place];
    const uint64_t length = (uint64_t)z.extent[1 - direction], before = direction ? (uint64_t)z.extent[0] * (uint64_t)z.extent[1] : 0u;
    return ng_philox(z.seed, z.offset, before + (uint64_t)line * length + (uint64_t)place);
}

struct View { /* the tile in one direction: element (line, place) */
    const uint32_t *x;
    int line_stride, place_stride;
    __device__ __forceinline__ uint32_t operator()(int line, int place) const { return x[line * line_stride + place * place_stride]; }
};

__device__ float candidate_error(const Quantize &z, const View &view, ng_tensor_level level, int direction, long long line0, long long place0,
                                 int line, int from, int n, ng_block_scale scale) {
    float error = 0.0f;
    const float g = ng_mul(ng_decode_ue4m3(scale.code), level.decode);
    for (int i = 0; i < n; i++) {
        const float x = ng_float(view(line, from + i));
        const float q = ng_decode_e2m1(encode(z, ng_mul(x, scale.encode), word_of(z, direction, line0 + line, place0 + from + i)));
        const float e = ng_sub(ng_mul(q, g), x);
        error = ng_add(error, z.q.four_over_six == NG_4OVER6_MSE ? ng_mul(e, e) : ng_float(ng_bits(e) & NG_ABS_MASK));
    }
    return error;
}

__device__ void store_scale(const Quantize &z, const ng_matrix &scales, long long row, long long column, uint32_t code) {
    if (z.q.scale == NG_FP32) ng_row<uint32_t>(scales, row)[column] = code;
    else ng_row<uint8_t>(scales, row)[column] = (uint8_t)code;
}

__device__ ng_block_scale spanning_scale(const Quantize &z, ng_tensor_level level, int direction, long long line) {
    if (z.q.rule == NG_SCALE_GIVEN) return ng_scale_encoding(*z.given);
    const uint32_t amax = z.q.blocks.rows == 0 ? z.maxima[0] : z.maxima[1 + (direction ? z.extent[0] : 0) + line];
    return ng_scale_block(&z.q, amax, level);
}

__global__ void __launch_bounds__(THREADS) quantize_tile(Quantize z) {
    extern __shared__ uint32_t memory[];
    uint32_t *x = memory, *maxima = memory + TILE * STRIDE; /* [TILE][STRIDE]; [TILE][blocks across] */
    ng_block_scale *scales = reinterpret_cast<ng_block_scale *>(maxima + TILE * (TILE / SMALLEST_BLOCK));
    const long long row0 = blockIdx.y * (long long)TILE, column0 = blockIdx.x * (long long)TILE;
    const int rows = (int)min((long long)TILE, z.extent[0] - row0), columns = (int)min((long long)TILE, z.extent[1] - column0);
    for (int t = threadIdx.x; t < rows * TILE; t += THREADS)
        if (t % TILE < columns) x[t / TILE * STRIDE + t % TILE] = ng_load_bits(z.in, row0 + t / TILE, column0 + t % TILE);
    const ng_tensor_level level = ng_tensor_scale(&z.q, z.q.tensor_scale ? z.maxima[0] : 0u);
    if (z.q.tensor_scale && blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *z.tensor_scale = level.decode;
    const bool spanning = z.q.blocks.rows == 0 || z.q.blocks.columns == 0, divides = z.q.rule == NG_SCALE_AMAX_OVER_MAX;
    const int down = spanning ? 1 : (int)z.q.blocks.rows, along = spanning ? TILE : (int)z.q.blocks.columns;

    for (int direction = 0; direction < 2; direction++) {
        const Output &out = z.out[direction];
        if (!out.codes.data) continue;
        const View view = {x, direction ? 1 : STRIDE, direction ? STRIDE : 1};
        const long long line0 = direction ? column0 : row0, place0 = direction ? row0 : column0;
        const int lines = direction ? columns : rows, length = direction ? rows : columns, across = (length + along - 1) / along;
        __syncthreads();
        if (!spanning)
            for (int t = threadIdx.x; t < lines * across; t += THREADS) {
                const int line = t / across, from = t % across * along, end = min(length, from + along);
                uint32_t largest = 0;
                for (int i = from; i < end; i++)
                    largest = larger(largest, view(line, i) & NG_ABS_MASK);
                maxima[t] = largest;
            }
        __syncthreads();
        for (int t = threadIdx.x; t < (lines + down - 1) / down * across; t += THREADS) {
            const int first = t / across * down, block = t % across, last = min(lines, first + down);
            if (spanning) {
                scales[t] = spanning_scale(z, level, direction, line0 + first);
                if (place0 == 0 && (z.q.blocks.rows != 0 || line0 + first == 0)) store_scale(z, out.scales, z.q.blocks.rows ? line0 + first : 0, 0, scales[t].code);
                continue;
            }
            uint32_t largest = 0;
            for (int line = first; line < last; line++)
                largest = larger(largest, maxima[line * across + block]);
            ng_block_scale scale;
            if (z.q.four_over_six) {
                const float wanted = ng_scale_nvfp4_wanted(&z.q, largest, level);
                const int n = min(along, length - block * along);
                const ng_block_scale four = ng_scale_nvfp4_of(ng_at_most_max(ng_mul(1.5f, wanted)), level);
                scale = ng_scale_nvfp4_of(wanted, level);
                const float six_error = candidate_error(z, view, level, direction, line0, place0, first, block * along, n, scale);
                if (candidate_error(z, view, level, direction, line0, place0, first, block * along, n, four) < six_error) scale = four;
            } else {
                scale = ng_scale_block(&z.q, largest, level);
            }
            scales[t] = scale;
            store_scale(z, out.scales, (line0 + first) / down, (place0 / along) + block, scale.code);
        }
        __syncthreads();
        const int pairs = (length + 1) / 2;
        for (int t = threadIdx.x; t < lines * pairs; t += THREADS) {
            const int line = t / pairs, place = t % pairs * 2;
            uint32_t code[2] = {0, 0};
            for (int i = 0; i < 2; i++) {
                if (place + i >= length) continue;
                const ng_block_scale scale = scales[line / down * across + (place + i) / along];
                code[i] = encode(z, ng_scale_apply(ng_float(view(line, place + i)), scale, divides),
                                 word_of(z, direction, line0 + line, place0 + place + i));
            }
            if (z.q.element == NG_E2M1) ng_store_pair(out.codes, line0 + line, place0 + place, code[0], code[1]);
            else {
                ng_store_code(out.codes, line0 + line, place0 + place, code[0]);
                if (place + 1 < length) ng_store_code(out.codes, line0 + line, place0 + place + 1, code[1]);
            }
        }
    }
}

/* ---- contiguous bf16, row-wise, to nearest even ---------------------------------------------------------------------*/
/* Two codes of an 8-bit float by the conversion instruction of sm_89: to nearest even, saturating, NaN 0x7F, as the
 * contract has it (PTX ISA, cvt); older machines round in integers. */
template <ng_format_id ELEMENT> __device__ __forceinline__ uint32_t encode_two(const ng_caster &caster, float low, float high) {
#if __CUDA_ARCH__ >= 890
    uint16_t pair;
    if (ELEMENT == NG_E4M3) asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    else asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return ng_cast_code(&caster, NG_RN_EVEN, ng_bits(low)) | ng_cast_code(&caster, NG_RN_EVEN, ng_bits(high)) << 8;
#endif
}

/* Magnitude code of e2m1 of a number below 7 in magnitude. The ulp at |y| is 2^(e-1), e the exponent, at least 0: adding and
 * subtracting 2^23 ulps rounds to a whole number of them, ties to even. Times 2^-126 the result is a binary32 with e2m1's own
 * exponent field, subnormals included, so that its upper bits are the code. */
__device__ __forceinline__ uint32_t e2m1_magnitude(float y) {
    const float binade = ng_float(ng_bits(fmaxf(fabsf(y), 1.0f)) & 0x7F800000u);
    const float magic = ng_mul(binade, 0x1p22f);
    return ng_bits(ng_mul(ng_sub(ng_add(fabsf(y), magic), magic), 0x1p-126f)) >> 22;
}

/* Eight e2m1 codes: magnitudes by nibbles, signs from the bf16 inputs (the factor is not negative). CLAMP: larger values
 * become 6; without it none may reach 7. No NaN. */
template <bool CLAMP> __device__ __forceinline__ uint32_t encode_e2m1(const uint32_t (&pair)[4], float factor) {
    uint32_t magnitudes = 0, signs = 0;
#pragma unroll
    for (int i = 3; i >= 0; i--) {
        float high = ng_mul(ng_float(pair[i] & 0xFFFF0000u), factor), low = ng_mul(ng_float(pair[i] << 16), factor);
        if (CLAMP) high = fminf(fabsf(high), 6.0f), low = fminf(fabsf(low), 6.0f);
        magnitudes = magnitudes * 16 + e2m1_magnitude(high);
        magnitudes = magnitudes * 16 + e2m1_magnitude(low);
        const uint32_t both = (pair[i] & 0x80008000u) >> 12; /* bits 3 and 19 */
        signs = signs * 256 + ((both | both >> 12) & 0x88u);
    }
    return magnitudes | signs;
}

__device__ __noinline__ uint32_t encode_e2m1_any(const ng_caster &caster, const uint32_t (&pair)[4], float factor) {
    uint32_t code = 0;
    for (int i = 0; i < EACH; i++) {
        const float value = ng_float(i % 2 ? pair[i / 2] & 0xFFFF0000u : pair[i / 2] << 16);
        code |= ng_cast_code(&caster, NG_RN_EVEN, ng_bits(ng_mul(value, factor))) << 4 * i;
    }
    return code;
}

/* fl() is monotone: where the block's maximum stays below 7, every element does. */
__device__ __forceinline__ uint32_t encode_e2m1_block(const ng_caster &caster, const uint32_t (&pair)[4], float factor, uint32_t amax) {
    const float largest = ng_mul(ng_float(amax), factor);
    if (largest < 7.0f) return encode_e2m1<false>(pair, factor);
    return amax < NG_INF_BITS ? encode_e2m1<true>(pair, factor) : encode_e2m1_any(caster, pair, factor);
}

__device__ __forceinline__ uint32_t amax_of_eight(const uint4 &x) {
    return __vmaxu2(__vmaxu2(x.x & 0x7FFF7FFFu, x.y & 0x7FFF7FFFu), __vmaxu2(x.z & 0x7FFF7FFFu, x.w & 0x7FFF7FFFu));
}

/* ng_scale_block for nvfp4 and a finite amax, by the conversion instructions where there are any. `sixth` is fl(S fl(1/6)). */
__device__ __forceinline__ ng_block_scale nvfp4_scale(const ng_quantization &q, uint32_t amax, ng_tensor_level level, float sixth) {
#if __CUDA_ARCH__ >= 890
    const float wanted = q.rule == NG_SCALE_NVFP4_PAPER ? ng_scale_nvfp4_wanted(&q, amax, level) : ng_at_most_max(ng_mul(ng_float(amax), sixth));
    uint16_t code;
    uint32_t halves;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(code) : "f"(0.0f), "f"(wanted));
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(code));
    const float decode = ng_mul(ng_decode_fp16(halves & 0xFFFFu), level.decode);
    const ng_block_scale scale = {code, code ? ng_at_most_max(__frcp_rn(decode)) : 0.0f, 1.0f};
    return scale;
#else
    (void)sixth;
    return ng_scale_block(&q, amax, level);
#endif
}

struct Flat {
    ng_quantization q;
    const uint4 *in;
    unsigned char *codes, *scales;
    long long groups; /* of eight elements */
    const uint32_t *maximum;
    float *tensor_scale;
    const float *given;
    ng_caster caster;
};

/* A CTA takes one stretch of groups after another, the next one's loads under way while this one's are encoded. */
template <int COUNT> __device__ __forceinline__ void load_groups(const Flat &z, long long first, int step, uint4 (&x)[COUNT]) {
#pragma unroll
    for (int u = 0; u < COUNT; u++)
        x[u] = first + u * step < z.groups ? z.in[first + u * step] : make_uint4(0, 0, 0, 0);
}

/* LANES neighbouring threads hold one block; 0: one scale for all. */
template <ng_format_id ELEMENT, int LANES> __device__ __forceinline__ void quantize_group(const Flat &z, const uint4 &x, long long group, ng_block_scale scale, ng_tensor_level level, bool divides) {
    const uint32_t pair[4] = {x.x, x.y, x.z, x.w};
    uint32_t amax = 0, code[2] = {0, 0};
    if (LANES != 0) {
        uint32_t both = amax_of_eight(x);
#pragma unroll
        for (int lane = 1; lane < LANES; lane *= 2)
            both = __vmaxu2(both, __shfl_xor_sync(0xFFFFFFFFu, both, lane));
        amax = larger(both & 0xFFFF0000u, both << 16);
        scale = ng_scale_block(&z.q, amax, level);
    }
    if (ELEMENT == NG_E2M1) {
        code[0] = encode_e2m1_block(z.caster, pair, scale.encode, amax);
    } else {
#pragma unroll
        for (int i = 0; i < EACH / 2; i++)
            code[i / 2] |= encode_two<ELEMENT>(z.caster, ng_scale_apply(ng_float(pair[i] << 16), scale, divides),
                                               ng_scale_apply(ng_float(pair[i] & 0xFFFF0000u), scale, divides))
                           << 16 * (i % 2);
    }
    if (group >= z.groups) return;
    if (ELEMENT == NG_E2M1) reinterpret_cast<uint32_t *>(z.codes)[group] = code[0];
    else reinterpret_cast<uint2 *>(z.codes)[group] = make_uint2(code[0], code[1]);
    if (LANES == 0 || group % (LANES ? LANES : 1) != 0) return;
    if (z.q.scale == NG_FP32) reinterpret_cast<uint32_t *>(z.scales)[group / (LANES ? LANES : 1)] = scale.code;
    else z.scales[group / (LANES ? LANES : 1)] = (unsigned char)scale.code;
}

template <ng_format_id ELEMENT, int LANES> __global__ void __launch_bounds__(THREADS) quantize_flat(Flat z) {
    const bool divides = z.q.rule == NG_SCALE_AMAX_OVER_MAX, first = blockIdx.x == 0 && threadIdx.x == 0;
    const long long stretch = THREADS * FLAT_GROUPS, step = gridDim.x * stretch;
    uint4 x[FLAT_GROUPS], next[FLAT_GROUPS];
    long long start = blockIdx.x * stretch;
    load_groups(z, start + threadIdx.x, THREADS, x);
    const ng_tensor_level level = {1.0f, 1.0f};
    ng_block_scale scale = {0u, 1.0f, 1.0f};
    if (LANES == 0) {
        scale = z.q.rule == NG_SCALE_GIVEN ? ng_scale_encoding(*z.given) : ng_scale_block(&z.q, *z.maximum, level);
        if (first) *reinterpret_cast<uint32_t *>(z.scales) = scale.code;
    }
    for (; start < z.groups; start += step) {
        load_groups(z, start + step + threadIdx.x, THREADS, next);
#pragma unroll
        for (int u = 0; u < FLAT_GROUPS; u++) {
            quantize_group<ELEMENT, LANES>(z, x[u], start + u * THREADS + threadIdx.x, scale, level, divides);
            x[u] = next[u];
        }
    }
}

/* nvfp4: a thread holds whole blocks of 16, so that a scale is computed once. */
__device__ __forceinline__ void load_blocks(const Flat &z, long long first, uint4 (&x)[NVFP4_BLOCKS][2]) {
#pragma unroll
    for (int u = 0; u < NVFP4_BLOCKS; u++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            x[u][h] = 2 * (first + u * THREADS) < z.groups ? z.in[2 * (first + u * THREADS) + h] : make_uint4(0, 0, 0, 0);
}

__global__ void __launch_bounds__(THREADS) quantize_nvfp4(Flat z) {
    const long long stretch = THREADS * NVFP4_BLOCKS, step = gridDim.x * stretch, blocks = z.groups / 2;
    uint4 x[NVFP4_BLOCKS][2], next[NVFP4_BLOCKS][2];
    long long start = blockIdx.x * stretch;
    load_blocks(z, start + threadIdx.x, x);
    const ng_tensor_level level = ng_tensor_scale(&z.q, *z.maximum);
    const float sixth = ng_mul(level.encode, 1.0f / 6.0f);
    if (blockIdx.x == 0 && threadIdx.x == 0) *z.tensor_scale = level.decode;
    for (; start < blocks; start += step) {
        load_blocks(z, start + step + threadIdx.x, next);
#pragma unroll
        for (int u = 0; u < NVFP4_BLOCKS; u++) {
            const long long block = start + u * THREADS + threadIdx.x;
            const uint32_t both = __vmaxu2(amax_of_eight(x[u][0]), amax_of_eight(x[u][1])), amax = larger(both & 0xFFFF0000u, both << 16);
            const ng_block_scale scale = amax < NG_INF_BITS ? nvfp4_scale(z.q, amax, level, sixth) : ng_scale_block(&z.q, amax, level);
            const uint32_t low[4] = {x[u][0].x, x[u][0].y, x[u][0].z, x[u][0].w}, high[4] = {x[u][1].x, x[u][1].y, x[u][1].z, x[u][1].w};
            const uint32_t first = encode_e2m1_block(z.caster, low, scale.encode, amax), second = encode_e2m1_block(z.caster, high, scale.encode, amax);
            if (block < blocks) {
                reinterpret_cast<uint2 *>(z.codes)[block] = make_uint2(first, second);
                z.scales[block] = (unsigned char)scale.code;
            }
            x[u][0] = next[u][0];
            x[u][1] = next[u][1];
        }
    }
}

/* ---- launch ---------------------------------------------------------------------------------------------------------*/
typedef void flat_kernel(Flat);
struct FlatRow {
    ng_format_id element;
    uint32_t rows, columns;
    flat_kernel *kernel;
    int groups; /* of eight elements, a thread */
};
const FlatRow flat_rows[] = {
    {NG_E4M3, 0, 0, quantize_flat<NG_E4M3, 0>, FLAT_GROUPS},    {NG_E5M2, 0, 0, quantize_flat<NG_E5M2, 0>, FLAT_GROUPS},
    {NG_E4M3, 1, 32, quantize_flat<NG_E4M3, 4>, FLAT_GROUPS},   {NG_E5M2, 1, 32, quantize_flat<NG_E5M2, 4>, FLAT_GROUPS},
    {NG_E2M1, 1, 32, quantize_flat<NG_E2M1, 4>, FLAT_GROUPS},   {NG_E2M1, 1, 16, quantize_nvfp4, 2 * NVFP4_BLOCKS},
    {NG_E4M3, 1, 128, quantize_flat<NG_E4M3, 16>, FLAT_GROUPS}, {NG_E5M2, 1, 128, quantize_flat<NG_E5M2, 16>, FLAT_GROUPS},
};

/* The fast kernel for this launch, or NULL. */
const FlatRow *choose_flat(const ng_quantization *q, const ng_launch *launch) {
    const ng_tensor *in = &launch->tensors[NG_IN], *codes = &launch->tensors[NG_OUT], *scales = &launch->tensors[NG_OUT_SCALES];
    if (in->format != NG_BF16 || launch->tensors[NG_OUT_T].data || !codes->data || q->cast.rounding != NG_RN_EVEN || q->four_over_six) return nullptr;
    const long long block = q->blocks.columns ? q->blocks.columns : EACH;
    if (in->columns % block || in->row_bytes != 2 * in->columns || codes->row_bytes != ng_cuda_row_bytes(q->element, in->columns) ||
        (uintptr_t)in->data % 32 || (uintptr_t)codes->data % 8 || (uintptr_t)scales->data % 4 ||
        scales->row_bytes != ng_cuda_row_bytes(q->scale, scales->columns))
        return nullptr;
    for (const FlatRow &row : flat_rows)
        if (row.element == q->element && row.rows == q->blocks.rows && row.columns == q->blocks.columns) return &row;
    return nullptr;
}

ng_status check_output(const ng_quantization *q, const ng_launch *launch, ng_role codes, ng_role scales, int64_t rows, int64_t columns) {
    ng_status status = ng_cuda_check(launch, codes, q->element, rows, columns);
    if (status) return status;
    return ng_cuda_check(launch, scales, q->scale, ng_cuda_blocks(q->blocks.rows, rows), ng_cuda_blocks(q->blocks.columns, columns));
}

ng_status check_launch(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_quantization *q = &kernel->contract.quantization;
    const int64_t rows = launch->problem->m, columns = launch->problem->n;
    ng_status status = ng_cuda_check(launch, NG_IN, kernel->in, rows, columns);
    if (!status && !launch->tensors[NG_OUT].data && !launch->tensors[NG_OUT_T].data)
        status = ng_cuda_fail(launch, NG_BAD_ARGUMENT, "neither OUT nor OUT_T is given");
    if (!status && launch->tensors[NG_OUT].data) status = check_output(q, launch, NG_OUT, NG_OUT_SCALES, rows, columns);
    if (!status && launch->tensors[NG_OUT_T].data) status = check_output(q, launch, NG_OUT_T, NG_OUT_T_SCALES, columns, rows);
    if (!status && q->tensor_scale) status = ng_cuda_check(launch, NG_OUT_TENSOR_SCALE, NG_FP32, 1, 1);
    if (!status && q->rule == NG_SCALE_GIVEN) status = ng_cuda_check(launch, NG_SCALE_GIVEN_IN, NG_FP32, 1, 1);
    if (!status && q->cast.rounding == NG_R_STOCHASTIC && launch->tensors[NG_RANDOM_WORDS].data)
        status = ng_cuda_check(launch, NG_RANDOM_WORDS, NG_FP32, rows, columns);
    return status;
}

int multiprocessors() {
    int device = 0, count = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count > 0 ? count : 1;
}

void find_maxima(const Quantize &z, bool of_lines, cudaStream_t stream) {
    const long long count = z.extent[0] * z.extent[1];
    const dim3 tiles((unsigned)((z.extent[1] + TILE - 1) / TILE), (unsigned)((z.extent[0] + TILE - 1) / TILE));
    const bool packed = z.in.format == NG_BF16 && z.in.row_bytes == 2 * z.extent[1] && count % EACH == 0 && (uintptr_t)z.in.data % 16 == 0;
    if (of_lines) line_maxima<<<tiles, THREADS, 0, stream>>>(z);
    else if (packed) {
        const unsigned blocks = (unsigned)min((count / EACH + THREADS * UNROLL - 1) / (THREADS * UNROLL), 132ll * 8);
        tensor_maximum_bf16<<<blocks, THREADS, 0, stream>>>(reinterpret_cast<const uint4 *>(z.in.data), count / EACH, z.maxima);
    } else {
        tensor_maximum<<<(unsigned)min((count + THREADS - 1) / THREADS, 132ll * 16), THREADS, 0, stream>>>(z);
    }
}

} // namespace

extern "C" size_t ng_cuda_quantize_workspace(const ng_kernel *, const ng_problem *problem, const ng_device *) {
    return sizeof(uint32_t) * (size_t)(1 + problem->m + problem->n);
}

extern "C" ng_status ng_cuda_launch_quantize(const ng_kernel *kernel, const ng_launch *launch) {
    const ng_quantization *q = &kernel->contract.quantization;
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    ng_status status = check_launch(kernel, launch);
    if (status) return status;
    Quantize z = {};
    z.q = *q;
    z.in = ng_matrix_of(&launch->tensors[NG_IN]);
    z.words = ng_matrix_of(&launch->tensors[NG_RANDOM_WORDS]);
    z.out[0] = {ng_matrix_of(&launch->tensors[NG_OUT]), ng_matrix_of(&launch->tensors[NG_OUT_SCALES])};
    z.out[1] = {ng_matrix_of(&launch->tensors[NG_OUT_T]), ng_matrix_of(&launch->tensors[NG_OUT_T_SCALES])};
    z.extent[0] = launch->problem->m;
    z.extent[1] = launch->problem->n;
    z.maxima = static_cast<uint32_t *>(launch->workspace);
    z.given = static_cast<const float *>(launch->tensors[NG_SCALE_GIVEN_IN].data);
    z.tensor_scale = static_cast<float *>(launch->tensors[NG_OUT_TENSOR_SCALE].data);
    z.caster = ng_caster_of(q->element, &q->cast);
    z.seed = launch->problem->seed;
    z.offset = launch->problem->offset;

    const bool of_lines = q->blocks.rows != 0 && q->blocks.columns == 0;
    const bool of_tensor = q->tensor_scale || (q->blocks.rows == 0 && q->rule != NG_SCALE_GIVEN);
    if (of_lines || of_tensor) {
        const size_t bytes = of_lines ? ng_cuda_quantize_workspace(kernel, launch->problem, launch->device) : sizeof(uint32_t);
        if (!z.maxima || launch->workspace_bytes < bytes) return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "workspace of %zu bytes is missing", bytes);
        cudaMemsetAsync(z.maxima, 0, bytes, stream);
        find_maxima(z, of_lines, stream);
    }
    if (const FlatRow *flat = choose_flat(q, launch)) {
        const Flat f = {*q, reinterpret_cast<const uint4 *>(z.in.data), z.out[0].codes.data, z.out[0].scales.data, z.extent[0] * z.extent[1] / EACH,
                        z.maxima, z.tensor_scale, z.given, z.caster};
        const long long stretches = (f.groups + THREADS * flat->groups - 1) / (THREADS * flat->groups);
        flat->kernel<<<(unsigned)min(stretches, (long long)CTAS * multiprocessors()), THREADS, 0, stream>>>(f);
        return ng_cuda_launched(launch);
    }
    const size_t shared = sizeof(uint32_t) * (TILE * STRIDE + TILE * (TILE / SMALLEST_BLOCK)) + sizeof(ng_block_scale) * TILE * (TILE / SMALLEST_BLOCK);
    const dim3 tiles((unsigned)((z.extent[1] + TILE - 1) / TILE), (unsigned)((z.extent[0] + TILE - 1) / TILE));
    cudaFuncSetAttribute(quantize_tile, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    quantize_tile<<<tiles, THREADS, shared, stream>>>(z);
    return ng_cuda_launched(launch);
}
