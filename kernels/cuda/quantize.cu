/* Block quantization (kernels/cuda/cuda.h): every form and scale rule, row-wise, column-wise, or both from one read.
 *
 * quantize_tile serves everything: a CTA reads a tile of 128 x 128 elements once, finds its blocks' maxima and scales in
 * shared memory, and encodes it in either direction. Scales that span tiles (tensor, row) come from a pass of maxima before.
 * quantize_flat serves what training runs most: bf16, row-wise, ties to even, whole blocks, everything contiguous. A
 * thread holds two groups of eight elements in registers; 4 or 16 neighbouring lanes make a block of 32 or 128. (Measured on an
 * H200: CTAs that stay and prefetch, through registers or shared memory, are slower than as many CTAs as there is work.) */
#include "kernels/common/scale_layout.h"
#include "kernels/cuda/device.cuh"

namespace {

enum { TILE = 128, STRIDE = TILE + 1, THREADS = 256, SMALLEST_BLOCK = 16, EACH = 8, UNROLL = 4, GROUPS = 2, MAXIMA = 1056 };

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

/* A kernel that was launched to overlap its predecessor (sm_90 and later) may start now, and waits before it reads what that wrote. */
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void await_predecessor() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The maximum of [count] maxima, in thread 0. */
__device__ uint32_t maximum_of(const uint32_t *maxima, int count) {
    uint32_t largest = 0;
    for (int i = threadIdx.x; i < count; i += THREADS)
        largest = larger(largest, maxima[i]);
    return block_reduce_max(largest);
}
__global__ void __launch_bounds__(THREADS) one_maximum(const uint32_t *maxima, int count, uint32_t *maximum) {
    const uint32_t largest = maximum_of(maxima, count);
    if (threadIdx.x == 0) *maximum = largest;
}

/* Both halves of two bf16 at once: magnitudes compare as unsigned 16-bit integers. From the tensor's end to its beginning,
 * so that the pass that quantizes finds in the L2 cache what this one read last. */
__global__ void __launch_bounds__(THREADS) tensor_maximum_bf16(const uint4 *in, long long groups, uint32_t *maxima) {
    let_next_start();
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
    if (threadIdx.x == 0) maxima[blockIdx.x] = largest;
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

/* The scale of block (row, column), where the layout has it; across: blocks in a row. */
__device__ void store_scale(const Quantize &z, const ng_matrix &scales, long long block_row, long long block_column, long long across, uint32_t code) {
    const long long row = ng_scale_row(z.q.layout, block_row, block_column), column = ng_scale_column(z.q.layout, block_row, block_column, across);
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
                if (place0 == 0 && (z.q.blocks.rows != 0 || line0 + first == 0)) store_scale(z, out.scales, z.q.blocks.rows ? line0 + first : 0, 0, 1, scales[t].code);
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
            const long long all_across = (z.extent[1 - direction] + along - 1) / along;
            store_scale(z, out.scales, (line0 + first) / down, (place0 / along) + block, all_across, scale.code);
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

/* Magnitude code of e2m1 of a number below 7 in magnitude. With 2^e the power of two of max(|y|, 1), the ulp of e2m1 at |y| is
 * 2^(e-1): added to 2^23 of them, |y| is rounded to a whole number n of ulps, ties to even, in the low bits of the sum, and the
 * code is n + 2 e. The product with 2^22 is exact, so that the fma is one rounding of a sum. */
__device__ __forceinline__ uint32_t e2m1_magnitude(float y) {
    const uint32_t binade = ng_bits(fmaxf(fabsf(y), 1.0f)) & 0x7F800000u;
    const uint32_t sum = ng_bits(__fmaf_rn(ng_float(binade), 0x1p22f, fabsf(y)));
    return sum - binade + (binade >> 22) - ((22u << 23) + 254u);
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

/* What follows from a tensor's maximum, computed once. */
struct Level {
    ng_block_scale scale; /* of the one block that the tensor is */
    ng_tensor_level tensor; /* nvfp4 */
    float sixth;
};

struct Flat {
    ng_quantization q;
    const uint4 *in;
    unsigned char *codes, *scales;
    long long groups; /* of eight elements */
    unsigned down, across; /* blocks, where scales are not one after the other */
    Level *level;
    float *tensor_scale;
    const float *given;
    ng_caster caster;
};

__global__ void __launch_bounds__(THREADS) find_level(Flat z, const uint32_t *maxima, int count) {
    let_next_start();
    await_predecessor();
    const uint32_t amax = maximum_of(maxima, count);
    if (threadIdx.x != 0) return;
    Level level = {};
    if (z.q.tensor_scale) {
        level.tensor = ng_tensor_scale(&z.q, amax);
        level.sixth = ng_mul(level.tensor.encode, 1.0f / 6.0f);
        *z.tensor_scale = level.tensor.decode;
    } else {
        level.tensor = {1.0f, 1.0f};
        level.scale = ng_scale_block(&z.q, amax, level.tensor);
        *reinterpret_cast<uint32_t *>(z.scales) = level.scale.code;
    }
    *z.level = level;
}

/* Where the scale of the n-th block goes, counted in scales: these layouts are dense. */
__device__ __forceinline__ long long scale_place(const Flat &z, long long n) {
    if (z.q.layout == NG_LAYOUT_PLAIN) return n;
    const unsigned row = (unsigned)n / z.across, column = (unsigned)n % z.across;
    return ng_scale_row(z.q.layout, row, column) * (long long)z.down + ng_scale_column(z.q.layout, row, column, z.across);
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
    const long long place = scale_place(z, group / (LANES ? LANES : 1));
    if (z.q.scale == NG_FP32) reinterpret_cast<uint32_t *>(z.scales)[place] = scale.code;
    else z.scales[place] = (unsigned char)scale.code;
}

template <ng_format_id ELEMENT, int LANES> __global__ void __launch_bounds__(THREADS) quantize_flat(Flat z) {
    const bool divides = z.q.rule == NG_SCALE_AMAX_OVER_MAX;
    const long long start = blockIdx.x * (long long)(THREADS * GROUPS) + threadIdx.x;
    uint4 x[GROUPS];
#pragma unroll
    for (int u = 0; u < GROUPS; u++)
        x[u] = start + u * THREADS < z.groups ? z.in[start + u * THREADS] : make_uint4(0, 0, 0, 0);
    const ng_tensor_level level = {1.0f, 1.0f};
    ng_block_scale scale = {0u, 1.0f, 1.0f};
    if (LANES == 0 && z.q.rule == NG_SCALE_GIVEN) {
        scale = ng_scale_encoding(*z.given);
        if (start == 0) *reinterpret_cast<uint32_t *>(z.scales) = scale.code;
    } else if (LANES == 0) {
        await_predecessor();
        scale = z.level->scale;
    }
#pragma unroll
    for (int u = 0; u < GROUPS; u++)
        quantize_group<ELEMENT, LANES>(z, x[u], start + u * THREADS, scale, level, divides);
}

/* nvfp4. A warp reads 64 groups of eight elements, whole lines at a time; neighbouring lanes then swap halves, so that each
 * thread holds one block of 16 and computes one scale. */
__device__ __forceinline__ void swap_halves(uint4 (&x)[2]) {
    const bool odd = threadIdx.x & 1;
    uint32_t *a = reinterpret_cast<uint32_t *>(&x[0]), *b = reinterpret_cast<uint32_t *>(&x[1]);
#pragma unroll
    for (int w = 0; w < 4; w++) {
        const uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, odd ? a[w] : b[w], 1);
        if (odd) a[w] = got;
        else b[w] = got;
    }
}

/* One block: its codes, and the code of its scale. A NaN makes all of it NaN, which e2m1 has as the largest value. */
__device__ __forceinline__ uint32_t quantize_block(const Flat &z, const uint4 (&x)[2], ng_tensor_level level, float sixth, uint2 *codes) {
    const uint32_t both = __vmaxu2(amax_of_eight(x[0]), amax_of_eight(x[1])), amax = larger(both & 0xFFFF0000u, both << 16);
    const ng_block_scale scale = nvfp4_scale(z.q, amax, level, sixth);
    const uint32_t low[4] = {x[0].x, x[0].y, x[0].z, x[0].w}, high[4] = {x[1].x, x[1].y, x[1].z, x[1].w};
    if (ng_mul(ng_float(amax), scale.encode) < 7.0f) *codes = make_uint2(encode_e2m1<false>(low, scale.encode), encode_e2m1<false>(high, scale.encode));
    else if (amax <= NG_INF_BITS) *codes = make_uint2(encode_e2m1<true>(low, scale.encode), encode_e2m1<true>(high, scale.encode));
    else *codes = make_uint2(0x77777777u, 0x77777777u);
    return amax <= NG_INF_BITS ? scale.code : 0x7Fu;
}

__global__ void __launch_bounds__(THREADS) quantize_nvfp4(Flat z) {
    const int lane = threadIdx.x % 32;
    const long long start = blockIdx.x * (long long)(2 * THREADS) + threadIdx.x / 32 * 64, first = start + lane;
    uint4 x[2] = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
    if (first < z.groups) x[0] = z.in[first];
    if (first + 32 < z.groups) x[1] = z.in[first + 32];
    swap_halves(x);
    await_predecessor();
    uint2 codes;
    const uint32_t scale = quantize_block(z, x, z.level->tensor, z.level->sixth, &codes);
    const long long block = start / 2 + 16 * (lane % 2) + lane / 2;
    if (block >= z.groups / 2) return;
    reinterpret_cast<uint2 *>(z.codes)[block] = codes;
    z.scales[scale_place(z, block)] = (unsigned char)scale;
}

/* ---- launch ---------------------------------------------------------------------------------------------------------*/
typedef void flat_kernel(Flat);
struct FlatRow {
    ng_format_id element;
    uint32_t rows, columns;
    flat_kernel *kernel;
};
const FlatRow flat_rows[] = {
    {NG_E4M3, 0, 0, quantize_flat<NG_E4M3, 0>},    {NG_E5M2, 0, 0, quantize_flat<NG_E5M2, 0>},
    {NG_E4M3, 1, 32, quantize_flat<NG_E4M3, 4>},   {NG_E5M2, 1, 32, quantize_flat<NG_E5M2, 4>},
    {NG_E2M1, 1, 32, quantize_flat<NG_E2M1, 4>},   {NG_E2M1, 1, 16, quantize_nvfp4},
    {NG_E4M3, 1, 128, quantize_flat<NG_E4M3, 16>}, {NG_E5M2, 1, 128, quantize_flat<NG_E5M2, 16>},
};

/* The fast kernel for this launch, or NULL. */
const FlatRow *choose_flat(const ng_quantization *q, const ng_launch *launch) {
    const ng_tensor *in = &launch->tensors[NG_IN], *codes = &launch->tensors[NG_OUT], *scales = &launch->tensors[NG_OUT_SCALES];
    if (in->format != NG_BF16 || launch->tensors[NG_OUT_T].data || !codes->data || q->cast.rounding != NG_RN_EVEN || q->four_over_six) return nullptr;
    const long long block = q->blocks.columns ? q->blocks.columns : EACH;
    if (in->columns % block || in->row_bytes != 2 * in->columns || codes->row_bytes != ng_cuda_row_bytes(q->element, in->columns) ||
        (uintptr_t)in->data % 32 || (uintptr_t)codes->data % 8 || (uintptr_t)scales->data % 4 ||
        scales->row_bytes != ng_cuda_row_bytes(q->scale, scales->columns) || in->rows * in->columns / EACH > 0xFFFFFFFFll)
        return nullptr;
    for (const FlatRow &row : flat_rows)
        if (row.element == q->element && row.rows == q->blocks.rows && row.columns == q->blocks.columns) return &row;
    return nullptr;
}

ng_status check_output(const ng_quantization *q, const ng_launch *launch, ng_role codes, ng_role scales, int64_t rows, int64_t columns) {
    ng_status status = ng_cuda_check(launch, codes, q->element, rows, columns);
    if (status) return status;
    int64_t scale_rows, scale_columns;
    ng_cuda_scale_extents(q, rows, columns, &scale_rows, &scale_columns);
    return ng_cuda_check(launch, scales, q->scale, scale_rows, scale_columns);
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

/* Maxima of parts of a contiguous bf16 tensor; returns how many. */
int find_packed_maxima(const Quantize &z, uint32_t *maxima, cudaStream_t stream) {
    const long long groups = z.extent[0] * z.extent[1] / EACH;
    const int blocks = (int)min((groups + THREADS * UNROLL - 1) / (THREADS * UNROLL), (long long)MAXIMA);
    tensor_maximum_bf16<<<blocks, THREADS, 0, stream>>>(reinterpret_cast<const uint4 *>(z.in.data), groups, maxima);
    return blocks;
}

void find_maxima(const Quantize &z, bool of_lines, cudaStream_t stream) {
    const long long count = z.extent[0] * z.extent[1];
    const dim3 tiles((unsigned)((z.extent[1] + TILE - 1) / TILE), (unsigned)((z.extent[0] + TILE - 1) / TILE));
    const bool packed = z.in.format == NG_BF16 && z.in.row_bytes == 2 * z.extent[1] && count % EACH == 0 && (uintptr_t)z.in.data % 16 == 0;
    if (packed && !of_lines) {
        const int parts = find_packed_maxima(z, z.maxima + 1, stream);
        one_maximum<<<1, THREADS, 0, stream>>>(z.maxima + 1, parts, z.maxima);
        return;
    }
    cudaMemsetAsync(z.maxima, 0, sizeof(uint32_t) * (size_t)(of_lines ? 1 + z.extent[0] + z.extent[1] : 1), stream);
    if (of_lines) line_maxima<<<tiles, THREADS, 0, stream>>>(z);
    else tensor_maximum<<<(unsigned)min((count + THREADS - 1) / THREADS, 132ll * 16), THREADS, 0, stream>>>(z);
}

/* A kernel that may start while its predecessor ends: what it does first does not depend on that. */
template <typename... Arguments>
void launch_overlapped(void (*kernel)(Arguments...), long long blocks, bool overlaps, cudaStream_t stream, Arguments... arguments) {
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    config.attrs = &overlap;
    config.numAttrs = overlaps;
    cudaLaunchKernelEx(&config, kernel, arguments...);
}

ng_status launch_flat(const FlatRow *row, const Quantize &z, bool of_tensor, const ng_launch *launch) {
    const cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
    const bool overlaps = of_tensor && launch->device && launch->device->sm >= 90;
    uint32_t *maxima = z.maxima + sizeof(Level) / sizeof(uint32_t);
    const Flat f = {z.q, reinterpret_cast<const uint4 *>(z.in.data), z.out[0].codes.data, z.out[0].scales.data, z.extent[0] * z.extent[1] / EACH,
                    (unsigned)z.extent[0], (unsigned)ng_cuda_blocks(z.q.blocks.columns, z.extent[1]), reinterpret_cast<Level *>(z.maxima), z.tensor_scale, z.given, z.caster};
    if (of_tensor) {
        const int count = find_packed_maxima(z, maxima, stream);
        launch_overlapped(find_level, 1, overlaps, stream, f, static_cast<const uint32_t *>(maxima), count);
    }
    launch_overlapped(row->kernel, (f.groups + THREADS * GROUPS - 1) / (THREADS * GROUPS), overlaps, stream, f);
    return ng_cuda_launched(launch);
}

} // namespace

extern "C" size_t ng_cuda_quantize_workspace(const ng_kernel *, const ng_problem *problem, const ng_device *) {
    return sizeof(uint32_t) * (size_t)(sizeof(Level) / sizeof(uint32_t) + max((long long)MAXIMA, (long long)(problem->m + problem->n)));
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
    const size_t needed = ng_cuda_quantize_workspace(kernel, launch->problem, launch->device);
    if ((of_lines || of_tensor) && (!z.maxima || launch->workspace_bytes < needed))
        return ng_cuda_fail(launch, NG_BAD_ARGUMENT, "workspace of %zu bytes is missing", needed);
    for (const ng_role role : {NG_OUT_SCALES, NG_OUT_T_SCALES}) { /* padding */
        const ng_tensor *t = &launch->tensors[role];
        if (t->data && (q->layout == NG_LAYOUT_PADDED || q->layout == NG_LAYOUT_SWIZZLED)) cudaMemsetAsync(t->data, 0, (size_t)(t->rows * t->row_bytes), stream);
    }
    if (const FlatRow *flat = choose_flat(q, launch)) return launch_flat(flat, z, of_tensor, launch);
    if (of_lines || of_tensor) find_maxima(z, of_lines, stream);
    const size_t shared = sizeof(uint32_t) * (TILE * STRIDE + TILE * (TILE / SMALLEST_BLOCK)) + sizeof(ng_block_scale) * TILE * (TILE / SMALLEST_BLOCK);
    const dim3 tiles((unsigned)((z.extent[1] + TILE - 1) / TILE), (unsigned)((z.extent[0] + TILE - 1) / TILE));
    cudaFuncSetAttribute(quantize_tile, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    quantize_tile<<<tiles, THREADS, shared, stream>>>(z);
    return ng_cuda_launched(launch);
}
