/* Whole tensor-core products computed without a tensor core, bit for bit (predict_cuda.h).
 *
 * The fast kernel. One group of products is aligned to E, its largest raw exponent, truncated toward zero to 2^(E-F), and
 * added exactly. Take a float type with P fraction bits and M = 2^(P-F) * 2^E with the product's sign. a b + M lies in the
 * binade of M, whose ulp is 2^(E-F), as long as 4 * 2^E < M; one fused multiply-add toward zero onto M therefore truncates
 * the product's magnitude to that grid, and subtracting M again is exact. Truncated terms are whole multiples of 2^(E-F)
 * below 4 * 2^E, so G of them and the addend add exactly while 4 G + 2 <= 2^(P+1-F): binary32 serves F <= 14 at G = 32,
 * binary64 everything that tensor cores do. Rounding toward zero costs nothing on a GPU: it is part of the instruction. */
#include "reference/predict_cuda.h"

#include "reference/k_order.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdio.h>

namespace {

enum { CHUNK = 32, TILE = 64, PER_THREAD = 4, THREADS = 256 };
const int ZERO_EXPONENT = -8192; /* of a factor that is zero: below every raw exponent, and two of them fit 16 bits */

struct Codes { /* what the kernels need to know of a format */
    int exponent_bits, mantissa_bits, bias, bytes, ieee, all_ones_nan, packed;
};

struct Scales {
    const void *data;
    long long row_bytes;
    long long block_rows, block_columns; /* extents, never 0 */
    ng_format_id format;
};

struct Problem {
    Codes format_a, format_b;
    const unsigned char *a, *b;
    long long a_row_bytes, b_row_bytes, m, n, k;
    Scales scales_a, scales_b;
    float tensor_scale; /* fl(Da * Db) */
    int has_tensor_scale;
    int step, group, interleave, fraction_bits, output_bits, min_exponent;
    int promote_groups; /* groups between promotions; 0: none */
    int scale_place, scales_swapped;
    long long part; /* K of one split-K part */
    const float *initial;
    long long initial_row_bytes;
    void *out;
    long long out_row_bytes;
    int out_format;
    const unsigned char *special_a, *special_b; /* rows with infinities or NaNs */
};

__device__ inline unsigned load_code(const Codes &f, const unsigned char *row, long long k) {
    if (f.packed) return (row[k >> 1] >> ((k & 1) * 4)) & 0xF;
    if (f.bytes == 1) return row[k];
    if (f.bytes == 2) return reinterpret_cast<const unsigned short *>(row)[k];
    return reinterpret_cast<const unsigned *>(row)[k] >> 13; /* tf32: 19 significant bits */
}

struct Number { /* value = (-1)^negative * significand * 2^(exponent - mantissa_bits) */
    int exponent;
    unsigned significand;
    int negative, nan, infinite;
};

__device__ inline Number decode(const Codes &f, unsigned code) {
    Number x;
    const unsigned mantissa = code & ((1u << f.mantissa_bits) - 1u);
    const unsigned top = (1u << f.exponent_bits) - 1u;
    const unsigned field = (code >> f.mantissa_bits) & top;
    x.negative = (code >> (f.mantissa_bits + f.exponent_bits)) & 1;
    x.exponent = field ? (int)field - f.bias : 1 - f.bias;
    x.significand = field ? mantissa | (1u << f.mantissa_bits) : mantissa;
    x.nan = f.ieee ? field == top && mantissa : f.all_ones_nan && field == top && mantissa == (1u << f.mantissa_bits) - 1u;
    x.infinite = f.ieee && field == top && !mantissa;
    return x;
}

/* As it enters the step. An interleaved step converts fp8 operands to fp16 first: exponents are floored at fp16's -14. */
__device__ inline Number factor(const Problem &p, const Codes &f, unsigned code) {
    Number x = decode(f, code);
    if (p.interleave)
        while (x.significand && !(x.significand >> f.mantissa_bits) && x.exponent > -14) {
            x.significand <<= 1;
            x.exponent--;
        }
    return x;
}

__device__ inline float scale_at(const Scales &s, long long row, long long k) {
    if (!s.data) return 1.0f;
    const unsigned char *line = static_cast<const unsigned char *>(s.data) + (row / s.block_rows) * s.row_bytes;
    if (s.format == NG_FP32) return reinterpret_cast<const float *>(line)[k / s.block_columns];
    const unsigned code = line[k / s.block_columns];
    if (s.format == NG_UE4M3) {
        const unsigned field = code >> 3, mantissa = code & 7u;
        if (code == 0x7F) return __uint_as_float(0x7FC00000u);
        return field ? __uint_as_float((field + 120u) << 23 | mantissa << 20) : (float)mantissa * 0x1p-9f;
    }
    return __uint_as_float(code == 0xFF ? 0x7FC00000u : code ? code << 23 : 0x00400000u);
}

/* ---- what happens outside the tensor core, in binary32 --------------------------------------------------------------*/
/* The scales in the order that they enter. */
__device__ inline float2 ordered_scales(const Problem &p, long long i, long long j, long long k) {
    const float a = scale_at(p.scales_a, i, k), b = scale_at(p.scales_b, j, k);
    return p.scales_swapped ? make_float2(b, a) : make_float2(a, b);
}

__device__ inline float promote(const Problem &p, float main, float chain, long long i, long long j, long long k) {
    if (p.scale_place != NG_SCALES_BLOCK_FMA_PRODUCT && p.scale_place != NG_SCALES_BLOCK_FMA_SECOND &&
        p.scale_place != NG_SCALES_BLOCK_SEQUENTIAL)
        return __fadd_rn(main, chain);
    const float2 s = ordered_scales(p, i, j, k);
    if (p.scale_place == NG_SCALES_BLOCK_FMA_PRODUCT) return __fmaf_rn(chain, __fmul_rn(s.x, s.y), main);
    if (p.scale_place == NG_SCALES_BLOCK_FMA_SECOND) return __fmaf_rn(__fmul_rn(chain, s.y), s.x, main);
    return __fadd_rn(main, __fmul_rn(__fmul_rn(chain, s.x), s.y));
}

__device__ inline void store(const Problem &p, float sum, long long i, long long j) {
    if (p.scale_place == NG_SCALES_AFTER || p.scale_place == NG_SCALES_AFTER_AT_ONCE) {
        const float2 s = ordered_scales(p, i, j, 0);
        sum = p.scale_place == NG_SCALES_AFTER ? __fmul_rn(__fmul_rn(sum, s.x), s.y) : __fmul_rn(sum, __fmul_rn(s.x, s.y));
    }
    if (p.has_tensor_scale) sum = __fmul_rn(sum, p.tensor_scale);
    if (p.initial)
        sum = __fadd_rn(sum, reinterpret_cast<const float *>(
                                 reinterpret_cast<const unsigned char *>(p.initial) + i * p.initial_row_bytes)[j]);
    unsigned char *row = static_cast<unsigned char *>(p.out) + i * p.out_row_bytes;
    if (p.out_format == NG_BF16) reinterpret_cast<__nv_bfloat16 *>(row)[j] = __float2bfloat16_rn(sum);
    else if (p.out_format == NG_FP16) reinterpret_cast<__half *>(row)[j] = __float2half_rn(sum);
    else reinterpret_cast<float *>(row)[j] = sum;
}

/* ---- the integer kernel ---------------------------------------------------------------------------------------------*/
/* d = c + sum of one group's products, ks[0..count): the model of ng_mma, in 64-bit integers. */
__device__ float group_in_integers(const Problem &p, const unsigned char *a, const unsigned char *b, long long first,
                                   int phase, long long end, float c) {
    const int shift_base = p.fraction_bits - p.format_a.mantissa_bits - p.format_b.mantissa_bits;
    int largest = p.min_exponent;
    bool nan = c != c, plus = c == INFINITY, minus = c == -INFINITY;
    const unsigned c_bits = __float_as_uint(c);
    const int c_field = (c_bits >> 23) & 0xFF, c_exponent = c_field ? c_field - 127 : -126;
    if (c != 0.0f) largest = max(largest, c_exponent);
    for (int pass = 0, done = 0; !done; pass = 1) {
        long long sum = 0;
        for (int t = 0; t < p.group; t++) {
            const long long k = p.interleave ? first + (t / 2) * 4 + phase * 2 + t % 2 : first + t;
            if (k >= end) continue;
            const Number x = factor(p, p.format_a, load_code(p.format_a, a, k));
            const Number y = factor(p, p.format_b, load_code(p.format_b, b, k));
            if (x.nan || y.nan || (x.infinite && !y.significand) || (y.infinite && !x.significand)) nan = true;
            else if (x.infinite || y.infinite) (x.negative != y.negative ? minus : plus) = true;
            const long long product = (long long)x.significand * y.significand;
            if (!product) continue;
            const int exponent = x.exponent + y.exponent;
            if (pass == 0) {
                largest = max(largest, exponent);
                continue;
            }
            const int shift = shift_base + exponent - largest;
            const long long term = shift >= 0 ? product << shift : shift > -63 ? product >> -shift : 0;
            sum += x.negative != y.negative ? -term : term;
        }
        if (nan || (plus && minus)) return __uint_as_float(0x7FFFFFFFu);
        if (plus || minus) return plus ? INFINITY : -INFINITY;
        if (pass == 0) continue;
        done = 1;
        if (c != 0.0f) {
            const long long significand = (c_bits & 0x7FFFFF) | (c_field ? 0x800000 : 0);
            const int shift = p.fraction_bits - 23 + c_exponent - largest;
            const long long term = shift >= 0 ? significand << shift : shift > -63 ? significand >> -shift : 0;
            sum += c < 0 ? -term : term;
        }
        if (!sum) return 0.0f;
        unsigned long long magnitude = sum < 0 ? -sum : sum;
        const int unit = largest - p.fraction_bits;
        const int exponent = 63 - __clzll(magnitude) + unit;
        if (exponent > 127) return sum < 0 ? -INFINITY : INFINITY;
        const int quantum = max(exponent, -126) - p.output_bits;
        if (quantum > unit) magnitude = quantum - unit > 63 ? 0 : magnitude >> (quantum - unit) << (quantum - unit);
        const double value = ldexp((double)magnitude, unit); /* at most 53 bits: exact, and exact in binary32 */
        return (float)(sum < 0 ? -value : value);
    }
    return 0.0f; /* not reached */
}

__global__ void predict_in_integers(Problem p, int only_special) {
    const long long j = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    const long long i = blockIdx.y * (long long)blockDim.y + threadIdx.y;
    if (i >= p.m || j >= p.n) return;
    if (only_special && !p.special_a[i] && !p.special_b[j]) return;
    const unsigned char *a = p.a + i * p.a_row_bytes, *b = p.b + j * p.b_row_bytes;
    float sum = 0.0f;
    for (long long start = 0; start < p.k || start == 0; start += p.part) {
        const long long end = min(p.k, start + p.part);
        float main = 0.0f, chain = 0.0f;
        int groups = 0;
        for (long long k = start; k < end;) {
            const int phases = p.step / p.group;
            for (int phase = 0; phase < phases; phase++) {
                const long long first = p.interleave ? k : k + (long long)phase * p.group;
                chain = group_in_integers(p, a, b, first, phase, end, chain);
                groups++;
            }
            k += p.step;
            if (p.promote_groups && (groups >= p.promote_groups || k >= end)) {
                main = promote(p, main, chain, i, j, k - p.step);
                chain = 0.0f;
                groups = 0;
            }
        }
        const float part = p.promote_groups ? main : chain;
        sum = start == 0 ? part : __fadd_rn(sum, part);
    }
    store(p, sum, i, j);
}

/* ---- the fast kernel ------------------------------------------------------------------------------------------------*/
template <typename T> struct Width;
template <> struct Width<float> {
    static __device__ float offset(int exponent, int fraction_bits) { return __uint_as_float((unsigned)(exponent + 23 - fraction_bits + 127) << 23); }
    static __device__ float signed_offset(float offset, float x) { return __uint_as_float(__float_as_uint(offset) | (__float_as_uint(x) & 0x80000000u)); }
    static __device__ float truncated_product(float x, float y, float offset) { return __fsub_rn(__fmaf_rz(x, y, offset), offset); }
    static __device__ float multiply_add(float x, float y, float z) { return __fmaf_rn(x, y, z); }
    static __device__ float to_float(float x) { return x; }
};
template <> struct Width<double> {
    static __device__ double offset(int exponent, int fraction_bits) { return __hiloint2double((exponent + 52 - fraction_bits + 1023) << 20, 0); }
    static __device__ double signed_offset(double offset, double x) {
        return __hiloint2double(__double2hiint(offset) | (__double2hiint(x) & (int)0x80000000), 0);
    }
    static __device__ double truncated_product(double x, double y, double offset) { return __dsub_rn(__fma_rz(x, y, offset), offset); }
    static __device__ double multiply_add(double x, double y, double z) { return __fma_rn(x, y, z); }
    static __device__ float to_float(double x) { return fabs(x) >= 0x1p128 ? copysignf(INFINITY, (float)x) : __double2float_rz(x); }
};

template <typename T> struct __align__(16) Tile { /* one chunk of K of 64 rows of each operand */
    T value_a[CHUNK][TILE], magnitude_b[CHUNK][TILE], sign_b[CHUNK][TILE]; /* a, |b| and +-1 */
    unsigned exponent_a[CHUNK / 2][TILE], exponent_b[CHUNK / 2][TILE];     /* two k's raw exponents, 16 bits each */
};

/* 128 rows (64 of A, 64 of B), two threads a row, 16 elements each. Where the model interleaves k, the chunk is permuted
 * here, so that groups are consecutive afterwards. */
template <typename T> __device__ void load_tile(const Problem &p, Tile<T> &tile, long long i0, long long j0, long long k0, long long end) {
    const int row = threadIdx.x & 127, half = threadIdx.x >> 7;
    const bool second = row >= TILE;
    const int r = row & (TILE - 1);
    const Codes &f = second ? p.format_b : p.format_a;
    const long long i = (second ? j0 : i0) + r;
    const bool inside = i < (second ? p.n : p.m);
    const unsigned char *line = second ? p.b + i * p.b_row_bytes : p.a + i * p.a_row_bytes;
    unsigned pair = 0;
#pragma unroll
    for (int t = 0; t < CHUNK / 2; t++) {
        const int slot = half * (CHUNK / 2) + t;
        const long long k = k0 + (p.interleave ? (t / 2) * 4 + half * 2 + t % 2 : slot);
        T magnitude = 0, sign = 1;
        int exponent = ZERO_EXPONENT;
        if (inside && k < end) {
            const Number x = factor(p, f, load_code(f, line, k));
            if (x.significand && !x.nan && !x.infinite) {
                exponent = x.exponent;
                magnitude = (T)((double)x.significand * __longlong_as_double((long long)(exponent - f.mantissa_bits + 1023) << 52));
                sign = x.negative ? -1 : 1;
            }
        }
        if (second) {
            tile.magnitude_b[slot][r] = magnitude;
            tile.sign_b[slot][r] = sign;
        } else {
            tile.value_a[slot][r] = sign * magnitude;
        }
        if (t & 1) (second ? tile.exponent_b : tile.exponent_a)[slot / 2][r] = pair | (unsigned)exponent << 16;
        else pair = (unsigned)exponent & 0xFFFFu;
    }
}

/* Whole 16-byte words: single elements four apart would meet in the same banks. */
__device__ __forceinline__ void load_four(const float *from, float (&to)[PER_THREAD]) {
    const float4 x = *reinterpret_cast<const float4 *>(from);
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}
__device__ __forceinline__ void load_four(const double *from, double (&to)[PER_THREAD]) {
    const double2 x = reinterpret_cast<const double2 *>(from)[0], y = reinterpret_cast<const double2 *>(from)[1];
    to[0] = x.x, to[1] = x.y, to[2] = y.x, to[3] = y.y;
}

/* One group of G products for 4 x 4 outputs: chain becomes the group's result. */
template <typename T, int G>
__device__ inline void group_fast(const Problem &p, const Tile<T> &tile, int first, float (&chain)[PER_THREAD][PER_THREAD]) {
    const int ti = (threadIdx.x / 16) * PER_THREAD, tj = (threadIdx.x % 16) * PER_THREAD;
    const int BATCH = G < 8 ? G : 8; /* unrolled at once: longer straight lines only slow the compiler down */
    unsigned largest[PER_THREAD][PER_THREAD];
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
        for (int j = 0; j < PER_THREAD; j++)
            largest[i][j] = 0xC000C000u; /* 2 * ZERO_EXPONENT, twice */
#pragma unroll
    for (int t = 0; t < G / 2; t++) {
        const uint4 a4 = *reinterpret_cast<const uint4 *>(&tile.exponent_a[first / 2 + t][ti]);
        const uint4 b4 = *reinterpret_cast<const uint4 *>(&tile.exponent_b[first / 2 + t][tj]);
        const unsigned a[] = {a4.x, a4.y, a4.z, a4.w}, b[] = {b4.x, b4.y, b4.z, b4.w};
#pragma unroll
        for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
            for (int j = 0; j < PER_THREAD; j++)
                largest[i][j] = __viaddmax_s16x2(a[i], b[j], largest[i][j]);
    }
    T sum[PER_THREAD][PER_THREAD], offset[PER_THREAD][PER_THREAD];
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
        for (int j = 0; j < PER_THREAD; j++) {
            const int low = (short)(largest[i][j] & 0xFFFFu), high = (short)(largest[i][j] >> 16);
            int exponent = max(max(low, high), p.min_exponent);
            const float c = chain[i][j];
            if (c != 0.0f) exponent = max(exponent, max((int)((__float_as_uint(c) >> 23) & 0xFF) - 127, -126));
            offset[i][j] = Width<T>::offset(exponent, p.fraction_bits);
            sum[i][j] = Width<T>::truncated_product((T)c, (T)1, Width<T>::signed_offset(offset[i][j], (T)c));
        }
#pragma unroll 1
    for (int batch = first; batch < first + G; batch += BATCH) {
#pragma unroll
        for (int t = 0; t < BATCH; t++) {
            T a[PER_THREAD], b[PER_THREAD], sign[PER_THREAD];
            load_four(&tile.value_a[batch + t][ti], a);
            load_four(&tile.magnitude_b[batch + t][tj], b);
            load_four(&tile.sign_b[batch + t][tj], sign);
#pragma unroll
            for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
                for (int j = 0; j < PER_THREAD; j++)
                    sum[i][j] = Width<T>::multiply_add(Width<T>::truncated_product(a[i], b[j], Width<T>::signed_offset(offset[i][j], a[i])), sign[j], sum[i][j]);
        }
    }
    const unsigned mask = ~((1u << (23 - p.output_bits)) - 1u);
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
        for (int j = 0; j < PER_THREAD; j++) {
            const unsigned d = __float_as_uint(Width<T>::to_float(sum[i][j])) & mask;
            chain[i][j] = d == 0x80000000u ? 0.0f : __uint_as_float(d); /* never -0 */
        }
}

template <typename T, int G> __global__ void __launch_bounds__(THREADS) predict_fast(Problem p) {
    extern __shared__ __align__(16) unsigned char memory[];
    Tile<T> &tile = *reinterpret_cast<Tile<T> *>(memory);
    const long long i0 = blockIdx.y * (long long)TILE, j0 = blockIdx.x * (long long)TILE;
    const int ti = (threadIdx.x / 16) * PER_THREAD, tj = (threadIdx.x % 16) * PER_THREAD;
    float sum[PER_THREAD][PER_THREAD] = {}, main[PER_THREAD][PER_THREAD] = {}, chain[PER_THREAD][PER_THREAD] = {};
    for (long long start = 0; start < p.k; start += p.part) {
        const long long end = min(p.k, start + p.part);
        int groups = 0;
        for (long long k0 = start; k0 < end; k0 += CHUNK) {
            __syncthreads();
            load_tile(p, tile, i0, j0, k0, end);
            __syncthreads();
#pragma unroll 1
            for (int first = 0; first < CHUNK; first += G) {
                if (!p.interleave && k0 + first >= end) break;
                group_fast<T, G>(p, tile, first, chain);
                groups++;
                const bool last = p.interleave ? first + G >= CHUNK && k0 + CHUNK >= end : k0 + first + G >= end;
                if (p.promote_groups && (groups == p.promote_groups || last)) {
                    groups = 0;
#pragma unroll
                    for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
                        for (int j = 0; j < PER_THREAD; j++) {
                            if (i0 + ti + i < p.m && j0 + tj + j < p.n)
                                main[i][j] = promote(p, main[i][j], chain[i][j], i0 + ti + i, j0 + tj + j, k0 + first);
                            chain[i][j] = 0.0f;
                        }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
            for (int j = 0; j < PER_THREAD; j++) {
                const float part = p.promote_groups ? main[i][j] : chain[i][j];
                sum[i][j] = start == 0 ? part : __fadd_rn(sum[i][j], part);
                main[i][j] = chain[i][j] = 0.0f;
            }
    }
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
        for (int j = 0; j < PER_THREAD; j++) {
            const long long row = i0 + ti + i, column = j0 + tj + j;
            if (row < p.m && column < p.n && !p.special_a[row] && !p.special_b[column]) store(p, sum[i][j], row, column);
        }
}

__global__ void find_special_rows(Codes f, const unsigned char *data, long long row_bytes, long long k, unsigned char *special) {
    const unsigned char *row = data + blockIdx.x * row_bytes;
    int found = 0;
    for (long long i = threadIdx.x; i < k; i += blockDim.x) {
        const Number x = decode(f, load_code(f, row, i));
        found |= x.nan | x.infinite;
    }
    found = __syncthreads_or(found);
    if (threadIdx.x == 0) special[blockIdx.x] = (unsigned char)(found != 0);
}

__device__ inline bool same_bits(unsigned x, unsigned y, unsigned infinity) {
    if (x == y) return true;
    const unsigned magnitude = infinity == 0x7F800000u ? 0x7FFFFFFFu : 0x7FFFu;
    return (x & magnitude) > infinity && (y & magnitude) > infinity;
}

__global__ void compare_bits(const unsigned char *x, const unsigned char *y, long long x_row_bytes, long long y_row_bytes,
                             long long rows, long long columns, int bytes, unsigned infinity, unsigned long long *counts) {
    unsigned long long differ = 0, first = ~0ull;
    for (long long i = blockIdx.x; i < rows; i += gridDim.x)
        for (long long j = threadIdx.x; j < columns; j += blockDim.x) {
            const unsigned char *px = x + i * x_row_bytes + j * bytes, *py = y + i * y_row_bytes + j * bytes;
            const unsigned u = bytes == 4 ? *reinterpret_cast<const unsigned *>(px) : *reinterpret_cast<const unsigned short *>(px);
            const unsigned v = bytes == 4 ? *reinterpret_cast<const unsigned *>(py) : *reinterpret_cast<const unsigned short *>(py);
            if (same_bits(u, v, infinity)) continue;
            differ++;
            first = min(first, (unsigned long long)(i * columns + j));
        }
    if (!differ) return;
    atomicAdd(&counts[0], differ);
    atomicMin(&counts[1], first);
}

/* ---- host -----------------------------------------------------------------------------------------------------------*/
bool describe(ng_format_id format, Codes *f) {
    switch (format) {
    case NG_TF32: *f = {8, 10, 127, 4, 1, 0, 0}; return true;
    case NG_BF16: *f = {8, 7, 127, 2, 1, 0, 0}; return true;
    case NG_FP16: *f = {5, 10, 15, 2, 1, 0, 0}; return true;
    case NG_E4M3: *f = {4, 3, 7, 1, 0, 1, 0}; return true;
    case NG_E5M2: *f = {5, 2, 15, 1, 1, 0, 0}; return true;
    case NG_E3M2: *f = {3, 2, 3, 1, 0, 0, 0}; return true;
    case NG_E2M3: *f = {2, 3, 1, 1, 0, 0, 0}; return true;
    case NG_E2M1: *f = {2, 1, 1, 1, 0, 0, 1}; return true;
    default: return false;
    }
}

Scales describe_scales(const ng_operand *o) {
    Scales s;
    s.data = o->scales.data;
    s.row_bytes = o->scales.row_bytes;
    s.block_rows = o->blocks.rows ? o->blocks.rows : (o->codes.rows ? o->codes.rows : 1);
    s.block_columns = o->blocks.columns ? o->blocks.columns : (o->codes.columns ? o->codes.columns : 1);
    s.format = o->scales.format;
    return s;
}

ng_status device_failure(cudaError_t error, const char *what, char *message, size_t bytes) {
    if (message && bytes) snprintf(message, bytes, "%s: %s", what, cudaGetErrorString(error));
    return error == cudaErrorMemoryAllocation ? NG_NO_MEMORY : NG_DEVICE;
}

template <typename T, int G> cudaError_t launch_fast(const Problem &p, cudaStream_t stream) {
    const dim3 grid((unsigned)((p.n + TILE - 1) / TILE), (unsigned)((p.m + TILE - 1) / TILE));
    if (sizeof(Tile<T>) > 48 * 1024) {
        cudaError_t error = cudaFuncSetAttribute(predict_fast<T, G>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Tile<T>));
        if (error != cudaSuccess) return error;
    }
    predict_fast<T, G><<<grid, THREADS, sizeof(Tile<T>), stream>>>(p);
    return cudaPeekAtLastError();
}

/* Which fast kernel's proof covers the contract: 0 none, 32 binary32, 64 binary64. Groups of 4 (before Hopper's 16-bit and
 * tf32 formats) are left to the integer kernel. */
int fast_width(const Problem &p) {
    if (p.interleave && (p.step != 32 || p.group != 16)) return 0;
    const int terms = 4 * p.group + 2;
    const bool narrow = p.format_a.mantissa_bits + p.format_b.mantissa_bits <= 6 && p.format_a.exponent_bits <= 5 && p.format_b.exponent_bits <= 5;
    if (narrow && (p.group == 16 || p.group == 32) && p.fraction_bits <= 20 && terms <= 1 << (23 - p.fraction_bits)) return 32;
    if ((p.group == 8 || p.group == 16) && p.fraction_bits <= 40) return 64;
    return 0;
}

cudaError_t dispatch(const Problem &p, cudaStream_t stream) {
    if (fast_width(p) == 32) return p.group == 16 ? launch_fast<float, 16>(p, stream) : launch_fast<float, 32>(p, stream);
    return p.group == 8 ? launch_fast<double, 8>(p, stream) : launch_fast<double, 16>(p, stream);
}

bool plain_scales(const ng_operand *o) {
    return !o->scales.data || o->scales.format == NG_FP32 || o->scales.format == NG_E8M0 || o->scales.format == NG_UE4M3;
}

/* NG_SCALES_DEQUANTIZED: fl(element * scale), which must be a bf16; *lost counts those that are none. */
__global__ void dequantize(Codes f, const unsigned char *codes, long long row_bytes, Scales scales, long long rows, long long k, ng_k_order order, unsigned short *out, unsigned *lost) {
    for (long long e = blockIdx.x * (long long)blockDim.x + threadIdx.x; e < rows * k; e += (long long)gridDim.x * blockDim.x) {
        const long long i = e / k, j = e % k;
        const Number x = decode(f, load_code(f, codes + i * row_bytes, j));
        float value = ldexpf((float)x.significand, x.exponent - f.mantissa_bits);
        value = x.nan ? __uint_as_float(0x7FFFFFFFu) : x.infinite ? INFINITY : value;
        value = __fmul_rn(x.negative ? -value : value, scale_at(scales, i, j));
        const unsigned bits = __float_as_uint(value);
        if (value == value && (bits & 0xFFFFu)) atomicAdd(lost, 1u);
        out[i * k + ng_k_position(order, j)] = value == value ? (unsigned short)(bits >> 16) : (unsigned short)0x7FFF;
    }
}

typedef struct Dequantized {
    unsigned short *data;
    ng_operand operand; /* bf16, without scales */
} Dequantized;

cudaError_t make_dequantized(const ng_operand *from, ng_k_order order, unsigned *lost, cudaStream_t stream, Dequantized *made) {
    Codes f;
    describe(from->codes.format, &f);
    const long long rows = from->codes.rows, k = from->codes.columns;
    cudaError_t error = cudaMallocAsync(&made->data, sizeof(unsigned short) * (size_t)(rows * k + 1), stream);
    if (error != cudaSuccess) return error;
    dequantize<<<4096, 256, 0, stream>>>(f, static_cast<const unsigned char *>(from->codes.data), from->codes.row_bytes, describe_scales(from), rows, k, order, made->data, lost);
    made->operand = {};
    made->operand.codes = {made->data, NG_BF16, NG_GPU, rows, k, 2 * k};
    made->operand.tensor_scale = from->tensor_scale;
    return cudaPeekAtLastError();
}

ng_status predict_dequantized(const ng_accumulation *sum, const ng_operand *a, const ng_operand *b, const ng_tensor *initial,
                              bool exact_integers, cudaStream_t stream, ng_tensor *out, char *message, size_t message_bytes) {
    ng_accumulation plain = *sum;
    Dequantized left = {}, right = {};
    unsigned *lost = nullptr, count = 0;
    ng_status status = NG_OK;
    plain.scales = NG_SCALES_NONE;
    plain.k_order = NG_K_ASCENDING;
    cudaError_t error = cudaMallocAsync(&lost, sizeof *lost, stream);
    if (error == cudaSuccess) error = cudaMemsetAsync(lost, 0, sizeof *lost, stream);
    if (error == cudaSuccess) error = make_dequantized(a, sum->k_order, lost, stream, &left);
    if (error == cudaSuccess) error = make_dequantized(b, sum->k_order, lost, stream, &right);
    if (error == cudaSuccess) error = cudaMemcpyAsync(&count, lost, sizeof count, cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (error == cudaSuccess)
        status = count ? NG_UNSUPPORTED : ng_predict_gemm_cuda(&plain, &left.operand, &right.operand, initial, exact_integers, stream, out, message, message_bytes);
    for (void *made : {(void *)left.data, (void *)right.data, (void *)lost})
        if (made) cudaFreeAsync(made, stream);
    return error == cudaSuccess ? status : device_failure(error, "dequantizing operands", message, message_bytes);
}

} // namespace

extern "C" ng_status ng_predict_gemm_cuda(const ng_accumulation *sum, const ng_operand *a, const ng_operand *b,
                                          const ng_tensor *initial, bool exact_integers, void *stream_pointer, ng_tensor *out,
                                          char *message, size_t message_bytes) {
    Problem p = {};
    cudaStream_t stream = static_cast<cudaStream_t>(stream_pointer);
    if (sum->order != NG_SUM_MMA || sum->split_unknown || sum->rounds_to != NG_FP64 || sum->mma.scales_inside || sum->mma.dot || !plain_scales(a) || !plain_scales(b) ||
        !describe(a->codes.format, &p.format_a) || !describe(b->codes.format, &p.format_b) ||
        (out->format != NG_FP32 && out->format != NG_BF16 && out->format != NG_FP16) ||
        (initial && initial->format != NG_FP32))
        return NG_UNSUPPORTED;
    if (!ng_k_order_fits(sum, a->codes.columns)) return NG_UNSUPPORTED;
    if (sum->scales == NG_SCALES_DEQUANTIZED)
        return predict_dequantized(sum, a, b, initial, exact_integers, stream, out, message, message_bytes);
    if (a->codes.columns != b->codes.columns || out->rows != a->codes.rows || out->columns != b->codes.rows) return NG_BAD_ARGUMENT;
    p.a = static_cast<const unsigned char *>(a->codes.data);
    p.b = static_cast<const unsigned char *>(b->codes.data);
    p.a_row_bytes = a->codes.row_bytes;
    p.b_row_bytes = b->codes.row_bytes;
    p.m = out->rows;
    p.n = out->columns;
    p.k = a->codes.columns;
    p.scales_a = describe_scales(a);
    p.scales_b = describe_scales(b);
    p.has_tensor_scale = a->tensor_scale != 1.0f || b->tensor_scale != 1.0f;
    p.tensor_scale = a->tensor_scale * b->tensor_scale;
    p.step = sum->mma.k;
    p.group = sum->mma.group;
    p.interleave = sum->mma.interleave;
    p.fraction_bits = sum->mma.fraction_bits;
    p.output_bits = sum->mma.output_bits;
    p.min_exponent = sum->mma.min_exponent;
    p.promote_groups = sum->promote_every * (p.step / p.group);
    p.scale_place = sum->scales;
    p.scales_swapped = sum->scales_swapped;
    p.part = p.k > 0 ? p.k : 1;
    if (sum->split_k > 1) {
        const long long tile = sum->split_tile ? sum->split_tile : p.step, tiles = (p.k + tile - 1) / tile;
        p.part = (tiles + sum->split_k - 1) / sum->split_k * tile;
        if (p.part == 0) p.part = tile;
    }
    p.initial = initial ? static_cast<const float *>(initial->data) : nullptr;
    p.initial_row_bytes = initial && initial->rows > 1 ? initial->row_bytes : 0; /* one row: a bias */
    p.out = out->data;
    p.out_row_bytes = out->row_bytes;
    p.out_format = out->format;
    if (!p.m || !p.n) return NG_OK;

    const dim3 block(32, 8), grid((unsigned)((p.n + 31) / 32), (unsigned)((p.m + 7) / 8));
    unsigned char *special = nullptr;
    cudaError_t error = cudaSuccess;
    const bool fast = !exact_integers && fast_width(p) != 0;
    if (fast) {
        error = cudaMallocAsync(&special, (size_t)(p.m + p.n), stream);
        if (error != cudaSuccess) return device_failure(error, "marking rows with NaN", message, message_bytes);
        p.special_a = special;
        p.special_b = special + p.m;
        find_special_rows<<<(unsigned)p.m, 256, 0, stream>>>(p.format_a, p.a, p.a_row_bytes, p.k, special);
        find_special_rows<<<(unsigned)p.n, 256, 0, stream>>>(p.format_b, p.b, p.b_row_bytes, p.k, special + p.m);
        error = dispatch(p, stream);
    }
    if (error == cudaSuccess) {
        predict_in_integers<<<grid, block, 0, stream>>>(p, fast);
        error = cudaPeekAtLastError();
    }
    if (special) {
        const cudaError_t freed = cudaFreeAsync(special, stream);
        if (error == cudaSuccess) error = freed;
    }
    return error == cudaSuccess ? NG_OK : device_failure(error, "predicting a product", message, message_bytes);
}

extern "C" ng_status ng_compare_bits_cuda(const ng_tensor *x, const ng_tensor *y, void *stream_pointer, int64_t *differ,
                                          int64_t *first, char *message, size_t message_bytes) {
    cudaStream_t stream = static_cast<cudaStream_t>(stream_pointer);
    if (x->format != y->format || x->rows != y->rows || x->columns != y->columns) return NG_BAD_ARGUMENT;
    const int bytes = x->format == NG_FP32 ? 4 : 2;
    const unsigned infinity = x->format == NG_FP32 ? 0x7F800000u : x->format == NG_BF16 ? 0x7F80u : 0x7C00u;
    if (x->format != NG_FP32 && x->format != NG_BF16 && x->format != NG_FP16) return NG_UNSUPPORTED;
    unsigned long long *counts = nullptr, host[2] = {0, ~0ull};
    cudaError_t error = cudaMallocAsync(&counts, sizeof host, stream);
    if (error != cudaSuccess) return device_failure(error, "comparing bits", message, message_bytes);
    error = cudaMemcpyAsync(counts, host, sizeof host, cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess && x->rows && x->columns) {
        const unsigned blocks = (unsigned)(x->rows < 4096 ? x->rows : 4096);
        compare_bits<<<blocks, 256, 0, stream>>>(static_cast<const unsigned char *>(x->data), static_cast<const unsigned char *>(y->data),
                                                 x->row_bytes, y->row_bytes, x->rows, x->columns, bytes, infinity, counts);
        error = cudaPeekAtLastError();
    }
    if (error == cudaSuccess) error = cudaMemcpyAsync(host, counts, sizeof host, cudaMemcpyDeviceToHost, stream);
    const cudaError_t freed = cudaFreeAsync(counts, stream);
    if (error == cudaSuccess) error = freed;
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (error != cudaSuccess) return device_failure(error, "comparing bits", message, message_bytes);
    *differ = (int64_t)host[0];
    *first = host[0] ? (int64_t)host[1] : -1;
    return NG_OK;
}
