/* Verification of whole products on a GPU (exact_cuda.h).
 *
 * Truth. Products of codes, and of codes with their block scales, are exact in binary64 (at most 4 + 24 significant bits a
 * side). Scales that are one number a row are left out of the sum and multiply it afterwards. The sum of K products in any
 * order errs by at most g = K v / (1 - K v) times H, v = 2^-53 (Higham, Accuracy and Stability, 3.1); not at all where every
 * partial sum fits 53 bits: the products are multiples of 2^grid and K of them are below 2^(53 + grid) (e4m3: K <= 2^17).
 * Scales, tensor scale and the value added afterwards cost one rounding each, v of what they give. Their sum is e.
 *
 * Verdict. B is the contract's bound (bound_core.h). y certainly passes inside [RN(c - (B - e)), RN(c + (B - e))], fails outside
 * [RN(c - (B + e)), RN(c + (B + e))], and is undecided between. H comes from the same instruction on magnitudes, and the sum of the
 * groups' largest powers P is added into it, weighted as the bound weighs them: the bound may only grow by that. Both are
 * raised by the error of their own K additions. */
#include "reference/bound_core.h"
#include "reference/exact_cuda.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

namespace {

enum { M = 128, N = 64, DEPTH = 16, THREADS = 256, M_STRIDE = M + 8, N_STRIDE = N + 8, WARP_M = 32, WARP_N = 32 };

struct Side {
    const unsigned char *codes;
    long long row_bytes, rows;
    ng_format_id format;
    const unsigned char *scales; /* NULL: none */
    long long scale_row_bytes, block_rows, block_columns;
    ng_format_id scale_format;
    int inside;           /* scales change along K: they enter the products */
    const ng_row_sizes *sizes; /* [rows] */
    const double *powers; /* [rows][groups] or NULL */
    int has_factor;
    float factor[256];    /* values of the codes of at most 8 bits */
};

struct Work {
    const Side *a, *b;    /* in device memory */
    long long m, n, k, groups;
    ng_bound_plan plan;
    int bounded, sums_exact, specials;
    double power_weight, up, gamma; /* of H: 1 + error of its sum; of c: g */
    ng_tensor_factor tensor; double tensor_exact;
    const float *initial;
    long long initial_row_bytes;
    const unsigned char *computed;
    long long computed_row_bytes;
    ng_format_id out;
    struct Figures *partial;
    unsigned long long *undecided; /* count, then places */
};

struct Figures {
    double max_abs, max_rel, max_ulp, ratio, sum_e2, sum_c2, sum_signed, sum_abs, key, y, c, bound;
    long long place, nonfinite, beyond, bounded, zero_rejected, exact;
};

/* ---- numbers --------------------------------------------------------------------------------------------------------*/
__device__ __forceinline__ float scale_value(const Side &s, const unsigned char *line, long long column) {
    if (s.scale_format == NG_FP32) return reinterpret_cast<const float *>(line)[column];
    const unsigned code = line[column];
    if (s.scale_format == NG_UE4M3) {
        const unsigned field = code >> 3, mantissa = code & 7u;
        if (code == 0x7F) return __uint_as_float(0x7FC00000u);
        return field ? __uint_as_float((field + 120u) << 23 | mantissa << 20) : (float)mantissa * 0x1p-9f;
    }
    return __uint_as_float(code == 0xFF ? 0x7FC00000u : code ? code << 23 : 0x00400000u);
}

__device__ __forceinline__ float scale_of(const Side &s, long long row, long long k) {
    if (!s.scales) return 1.0f;
    return scale_value(s, s.scales + row / s.block_rows * s.scale_row_bytes, k / s.block_columns);
}

template <int BITS> __device__ __forceinline__ float value_of(const Side &s, const float *table, unsigned code) {
    if (BITS <= 8) return table[code];
    if (BITS == 16) return s.format == NG_BF16 ? __uint_as_float(code << 16) : __half2float(__ushort_as_half((unsigned short)code));
    return __uint_as_float(code);
}

template <int BITS> __device__ __forceinline__ unsigned code_at(const unsigned char *line, long long k) {
    if (BITS == 4) return line[k >> 1] >> (k & 1) * 4 & 0xFu;
    if (BITS == 8) return line[k];
    if (BITS == 16) return reinterpret_cast<const unsigned short *>(line)[k];
    return reinterpret_cast<const unsigned *>(line)[k];
}

/* Sixteen codes of a row in words; beyond the end zeros, which are zeros in every format. */
template <int BITS> struct Codes { unsigned word[BITS / 2]; };

template <int BITS> __device__ __forceinline__ void load_codes(const Side &s, long long row, long long k0, long long k, Codes<BITS> &to) {
    const unsigned char *line = s.codes + row * s.row_bytes, *from = line + k0 * BITS / 8;
    const bool whole = row < s.rows && k0 + DEPTH <= k && (unsigned long long)from % (BITS == 4 ? 8 : 16) == 0;
    if (whole && BITS == 4) {
        const uint2 x = *reinterpret_cast<const uint2 *>(from);
        to.word[0] = x.x, to.word[1] = x.y;
        return;
    }
    if (whole) {
#pragma unroll
        for (int v = 0; v < BITS / 8; v++) {
            const uint4 x = reinterpret_cast<const uint4 *>(from)[v];
            to.word[4 * v] = x.x, to.word[4 * v + 1] = x.y, to.word[4 * v + 2] = x.z, to.word[4 * v + 3] = x.w;
        }
        return;
    }
#pragma unroll
    for (int w = 0; w < BITS / 2; w++) {
        unsigned word = 0;
        for (int i = 0; i < 32 / BITS; i++) {
            const long long at = k0 + w * (32 / BITS) + i;
            if (row < s.rows && at < k) word |= code_at<BITS>(line, at) << i * BITS % 32;
        }
        to.word[w] = word;
    }
}

/* As binary64 into a tile [k][row]. */
template <int BITS> __device__ __forceinline__ void store_values(const Side &s, const float *table, const Codes<BITS> &codes, long long row, long long k0, double *column, int stride) {
    const bool scaled = s.inside && row < s.rows, even = s.block_columns % DEPTH == 0;
    double scale = scaled ? (double)scale_of(s, row, k0) : 1.0;
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
        const unsigned mask = BITS == 32 ? 0xFFFFFFFFu : (1u << BITS % 32) - 1u, code = codes.word[i * BITS / 32] >> i * BITS % 32 & mask;
        double value = (double)value_of<BITS>(s, table, code);
        if (scaled) {
            if (!even) scale = (double)scale_of(s, row, k0 + i);
            value *= scale;
        }
        column[i * stride] = value;
    }
}

/* ---- what is known of rows beforehand ---------------------------------------------------------------------------------*/
__device__ __forceinline__ double reduce_max(double x) {
    __shared__ double all[THREADS / 32];
    for (int lane = 16; lane; lane /= 2)
        x = fmax(x, __shfl_xor_sync(0xFFFFFFFFu, x, lane));
    __syncthreads();
    if (threadIdx.x % 32 == 0) all[threadIdx.x / 32] = x;
    __syncthreads();
    double most = all[0];
    for (int w = 1; w < THREADS / 32; w++)
        most = fmax(most, all[w]);
    return most;
}

/* 2^max(e, emin) of a magnitude, 0 for 0. */
__device__ __forceinline__ double raw_power(double magnitude, double least_normal) {
    const double power = __longlong_as_double(__double_as_longlong(magnitude) & 0x7FF0000000000000ll);
    return magnitude == 0 ? 0.0 : fmax(power, least_normal);
}

struct RowWork {
    long long k, group, groups;
    double least_normal, least_scale, margin, weight;
    int dequantized, inside_mma;
};

template <int BITS> __global__ void __launch_bounds__(THREADS) measure_rows(const Side *side, RowWork w, ng_row_sizes *sizes, double *powers, int *specials) {
    const Side &s = *side;
    const long long row = blockIdx.x;
    const unsigned char *line = s.codes + row * s.row_bytes;
    double largest = 0, least = HUGE_VAL, element_most = 0, scale_most = 0, scale_least = HUGE_VAL;
    int special = 0;
    for (long long g = threadIdx.x; g < w.groups; g += THREADS) {
        double most = 0;
        for (long long k = g * w.group; k < (g + 1) * w.group && k < w.k; k++) {
            double element = fabs((double)value_of<BITS>(s, s.factor, code_at<BITS>(line, k))), scale = fabs((double)scale_of(s, row, k));
            special |= !(element < HUGE_VAL) | !(scale < HUGE_VAL);
            element = element < HUGE_VAL ? element : 0.0;
            scale = scale < HUGE_VAL ? scale : 0.0;
            const double value = element * scale;
            largest = fmax(largest, value);
            element_most = fmax(element_most, element);
            scale_most = fmax(scale_most, scale);
            if (value > 0) least = fmin(least, value);
            if (scale > 0) scale_least = fmin(scale_least, scale);
            const double floored = w.inside_mma && scale > 0 && scale < w.least_scale ? w.least_scale : scale;
            most = fmax(most, w.dequantized ? raw_power(element * floored * (1 + 0x1p-24), w.least_normal) : raw_power(element, w.least_normal) * (s.inside ? floored : 1.0));
        }
        if (powers) powers[row * w.groups + g] = most * w.margin * w.weight;
    }
    const ng_row_sizes all = {reduce_max(largest), -reduce_max(-least), reduce_max(element_most), reduce_max(scale_most), -reduce_max(-scale_least)};
    special = __syncthreads_or(special);
    if (threadIdx.x == 0) sizes[row] = all;
    if (threadIdx.x == 0 && special) *specials = 1;
}

/* ---- one element ------------------------------------------------------------------------------------------------------*/
struct Format { int mantissa_bits, emin; double least; };
__device__ __forceinline__ Format format_of(ng_format_id id) {
    if (id == NG_BF16) return {7, -126, 0x1p-133};
    if (id == NG_FP16) return {10, -14, 0x1p-24};
    return {23, -126, 0x1p-149};
}

__device__ __forceinline__ double power_of_two(int e) {
    return e >= -1022 ? __longlong_as_double((long long)(e + 1023) << 52) : ldexp(1.0, e);
}
__device__ __forceinline__ int binade(const Format &f, double v) { return max((int)(__double_as_longlong(v) >> 52 & 0x7FF) - 1023, f.emin); }
__device__ __forceinline__ double ulp_at(const Format &f, double v) { return power_of_two(binade(f, v) - f.mantissa_bits); }
__device__ __forceinline__ double gap(const Format &f, double v, double direction) {
    int e = binade(f, v);
    if (v * direction < 0 && e > f.emin && (__double_as_longlong(v) & 0xFFFFFFFFFFFFFll) == 0) e--;
    return power_of_two(e - f.mantissa_bits);
}

/* One rounding to nearest even, overflow to infinity. Adding and subtracting 1.5 2^52 ulps rounds to whole ulps. */
__device__ __forceinline__ double round_to(const Format &f, ng_format_id id, double x) {
    if (id == NG_FP32) return (double)__double2float_rn(x);
    if (!(fabs(x) < HUGE_VAL)) return x;
    const double ulp = ulp_at(f, x), magic = 0x1.8p52 * ulp, y = __dsub_rn(__dadd_rn(x, magic), magic);
    const double largest = id == NG_BF16 ? 0x1.FEp127 : 65504.0;
    return fabs(y) > largest ? copysign(HUGE_VAL, x) : copysign(y, x);
}

__device__ __forceinline__ double computed_at(const Work &w, long long row, long long column) {
    const unsigned char *line = w.computed + row * w.computed_row_bytes;
    if (w.out == NG_FP32) return (double)reinterpret_cast<const float *>(line)[column];
    const unsigned short code = reinterpret_cast<const unsigned short *>(line)[column];
    return w.out == NG_BF16 ? (double)__uint_as_float((unsigned)code << 16) : (double)__half2float(__ushort_as_half(code));
}

__device__ __forceinline__ void note_worst(Figures &t, double key, long long place, double y, double c, double bound) {
    if (key <= t.key) return;
    t.key = key, t.place = place, t.y = y, t.c = c, t.bound = bound;
}

__device__ double ratio_of(const Work &w, const Format &f, double y, double c, double e, double bound, bool accepted) {
    if (e == 0) return accepted ? 0.0 : HUGE_VAL;
    const double side = e > 0 ? 1.0 : -1.0, end = round_to(f, w.out, c + side * bound);
    const double width = isinf(end) ? HUGE_VAL : side * (end - c) + gap(f, end, side) * 0.5;
    const double ratio = width > 0 ? fabs(e) / width : HUGE_VAL;
    if (accepted) return ratio < 1 ? ratio : 1 - 0x1p-53;
    return ratio >= 1 ? ratio : 1.0;
}

__device__ void undecided(const Work &w, long long place) {
    const unsigned long long n = atomicAdd(w.undecided, 1ull);
    if (n < NG_UNDECIDED) w.undecided[1 + n] = (unsigned long long)place;
}

/* c and its certified error; h of the unscaled sum. */
struct Truth { double c, error, before; };

__device__ Truth truth_of(const Work &w, const Side &a, const Side &b, long long row, long long column, double sum, double h) {
    double error = w.sums_exact ? 0.0 : w.gamma * h;
    const double sa = a.inside ? 1.0 : (double)scale_of(a, row, 0), sb = b.inside ? 1.0 : (double)scale_of(b, column, 0);
    const double both = sa * sb; /* 48 bits */
    Truth t = {sum, error, 0};
    if (both != 1.0) {
        t.c = sum * both;
        t.error = error * fabs(both) + 0x1p-53 * fabs(t.c) + 0x1p-1074;
    }
    if (w.tensor_exact != 1.0) {
        t.c *= w.tensor_exact;
        t.error = t.error * fabs(w.tensor_exact) + 0x1p-53 * fabs(t.c) + 0x1p-1074;
    }
    t.before = t.c;
    if (w.initial) {
        const double x = (double)reinterpret_cast<const float *>(reinterpret_cast<const unsigned char *>(w.initial) + row * w.initial_row_bytes)[column];
        const double s = t.c + x, z = s - t.c, lost = (t.c - (s - z)) + (x - z);
        t.c = s;
        t.error += fabs(lost);
    }
    return t;
}

__device__ void judge(const Work &w, const Side &a, const Side &b, long long row, long long column, double sum, double h_raw, Figures &t) {
    const Format f = format_of(w.out);
    const long long place = row * w.n + column;
    const double y = computed_at(w, row, column), h = h_raw * w.up;
    const Truth truth = truth_of(w, a, b, row, column, sum, h);
    const double c = truth.c + 0.0;
    double bound = NAN;
    if (!isfinite(c) || !isfinite(y)) {
        const double rounded = isfinite(c) ? round_to(f, w.out, c) : c;
        const bool agrees = isnan(c) ? isnan(y) : y == rounded;
        t.bounded += w.bounded;
        t.zero_rejected += w.bounded && !isfinite(c);
        if (agrees) return;
        t.nonfinite++;
        note_worst(t, HUGE_VAL, place, y, c, bound);
        return;
    }
    const double e = y - c, size = fabs(e);
    t.sum_c2 += c * c;
    t.sum_abs += fabs(c);
    t.exact += w.sums_exact && truth.error == 0;
    if (e != 0) {
        t.max_abs = fmax(t.max_abs, size);
        t.max_ulp = fmax(t.max_ulp, size / ulp_at(f, c));
        if (c != 0 && size > t.max_rel * fabs(c)) t.max_rel = size / fabs(c);
        t.sum_e2 += e * e;
        t.sum_signed += c < 0 ? -e : c > 0 ? e : 0.0;
    }
    if (!w.bounded) {
        note_worst(t, size, place, y, c, bound);
        return;
    }
    /* scales of a row are part of h as the bound sees it, where they are not outside of the sum */
    const double sa = a.inside ? 1.0 : fabs((double)scale_of(a, row, 0)), sb = b.inside ? 1.0 : fabs((double)scale_of(b, column, 0));
    const double added = w.initial ? fabs(truth.c - truth.before) : 0.0;
    const ng_bound_element x = {h * sa * sb, 0.0, fabs(truth.before) + truth.error, added, fabs(c) + truth.error};
    bound = ng_bound_of(&w.plan, &a.sizes[row], &b.sizes[column], &w.tensor, w.initial != nullptr, &x);
    if (!(bound < HUGE_VAL)) return;
    t.bounded++;
    if (fabs(c) > bound + f.least) t.zero_rejected++;
    const bool sign_certain = fabs(c) > bound + truth.error || (c == 0 && bound == 0 && truth.error == 0);
    if (y == 0 && sign_certain && signbit(y) != signbit(c)) {
        t.nonfinite++;
        note_worst(t, HUGE_VAL, place, y, c, bound);
        return;
    }
    const double slack = truth.error > 0 || bound > 0 ? truth.error + 0x1p-51 * (fabs(c) + bound) : 0.0, inner = fmax(bound - slack, 0.0), outer = bound + slack;
    const bool accepted = y >= round_to(f, w.out, c - inner) && y <= round_to(f, w.out, c + inner);
    if (!accepted && y >= round_to(f, w.out, c - outer) && y <= round_to(f, w.out, c + outer)) {
        undecided(w, place);
        return;
    }
    const double ratio = ratio_of(w, f, y, c, e, bound, accepted);
    t.beyond += ratio >= 1;
    t.ratio = fmax(t.ratio, ratio);
    note_worst(t, ratio, place, y, c, bound);
}

/* ---- a tile of the product ----------------------------------------------------------------------------------------------*/
__device__ __forceinline__ void merge(Figures &t, const Figures &o) {
    t.max_abs = fmax(t.max_abs, o.max_abs), t.max_rel = fmax(t.max_rel, o.max_rel), t.max_ulp = fmax(t.max_ulp, o.max_ulp);
    t.ratio = fmax(t.ratio, o.ratio);
    t.sum_e2 += o.sum_e2, t.sum_c2 += o.sum_c2, t.sum_signed += o.sum_signed, t.sum_abs += o.sum_abs;
    t.nonfinite += o.nonfinite, t.beyond += o.beyond, t.bounded += o.bounded, t.zero_rejected += o.zero_rejected, t.exact += o.exact;
    if (o.key > t.key || (o.key == t.key && o.place >= 0 && o.place < t.place)) t.key = o.key, t.place = o.place, t.y = o.y, t.c = o.c, t.bound = o.bound;
}

__device__ __forceinline__ Figures shuffled(const Figures &t, int lane) {
    Figures o;
    const long long *from = reinterpret_cast<const long long *>(&t);
    long long *to = reinterpret_cast<long long *>(&o);
#pragma unroll
    for (int i = 0; i < (int)(sizeof(Figures) / sizeof(long long)); i++)
        to[i] = __shfl_xor_sync(0xFFFFFFFFu, from[i], lane);
    return o;
}

__device__ __forceinline__ void multiply_add(double (&c)[4], const double (&a)[2], double b) {
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3]) : "d"(a[0]), "d"(a[1]), "d"(b));
#else
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+d"(c[0]), "+d"(c[1]) : "d"(a[0]), "d"(b));
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+d"(c[2]), "+d"(c[3]) : "d"(a[1]), "d"(b));
#endif
}

/* DEPTH columns of both tiles: into c (if wanted) and, by magnitude, into h (if wanted). */
template <bool VALUES, bool SIZES> __device__ __forceinline__ void multiply_tiles(const double *left, const double *right, double (&c)[2][4][4], double (&h)[2][4][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, m0 = warp / 2 * WARP_M, n0 = warp % 2 * WARP_N;
#pragma unroll
    for (int k = 0; k < DEPTH; k += 4) {
        double a[2][2], b[4];
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                a[i][e] = left[(k + t) * M_STRIDE + m0 + 16 * i + 8 * e + g];
#pragma unroll
        for (int j = 0; j < 4; j++)
            b[j] = right[(k + t) * N_STRIDE + n0 + 8 * j + g];
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (VALUES) multiply_add(c[i][j], a[i], b[j]);
                const double size[2] = {fabs(a[i][0]), fabs(a[i][1])};
                if (SIZES) multiply_add(h[i][j], size, fabs(b[j]));
            }
    }
}

template <int BITS, bool SIZES> __global__ void __launch_bounds__(THREADS, 1) verify(Work w) {
    __shared__ double left[DEPTH * M_STRIDE], right[DEPTH * N_STRIDE];
    __shared__ float table[2][256];
    __shared__ Figures warps[THREADS / 32];
    const Side &a = *w.a, &b = *w.b;
    const long long row0 = blockIdx.y * (long long)M, column0 = blockIdx.x * (long long)N;
    const int mine = threadIdx.x; /* a row of A's tile, then one of B's */
    const bool of_a = mine < M, loads = mine < M + N;
    const Side &side = of_a ? a : b;
    const long long my_row = of_a ? row0 + mine : column0 + mine - M;
    double *column = of_a ? left + mine : right + (mine - M);
    const int stride = of_a ? M_STRIDE : N_STRIDE;
    double c[2][4][4] = {}, h[2][4][4] = {};
    table[0][threadIdx.x] = a.factor[threadIdx.x];
    table[1][threadIdx.x] = b.factor[threadIdx.x];
    Codes<BITS> codes = {};
    if (loads) load_codes<BITS>(side, my_row, 0, w.k, codes);
    for (long long k0 = 0; k0 < w.k; k0 += DEPTH) {
        __syncthreads();
        if (loads) store_values<BITS>(side, table[!of_a], codes, my_row, k0, column, stride);
        __syncthreads();
        if (loads && k0 + DEPTH < w.k) load_codes<BITS>(side, my_row, k0 + DEPTH, w.k, codes);
        multiply_tiles<true, SIZES>(left, right, c, h);
    }
    if (SIZES && w.groups)
        for (long long g0 = 0; g0 < w.groups; g0 += DEPTH) {
            __syncthreads();
            for (int i = 0; i < DEPTH && loads; i++)
                column[i * stride] = my_row < side.rows && g0 + i < w.groups ? side.powers[my_row * w.groups + g0 + i] : 0.0;
            __syncthreads();
            multiply_tiles<false, true>(left, right, c, h);
        }
    Figures t = {};
    t.key = -1, t.place = -1, t.y = t.c = t.bound = NAN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const long long row = row0 + warp / 2 * WARP_M + 16 * i + 8 * (e / 2) + g, at = column0 + warp % 2 * WARP_N + 8 * j + 2 * q + e % 2;
                if (row < w.m && at < w.n) judge(w, a, b, row, at, c[i][j][e], h[i][j][e], t);
            }
    for (int other = 16; other; other /= 2)
        merge(t, shuffled(t, other));
    if (lane == 0) warps[warp] = t;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < THREADS / 32; i++)
        merge(t, warps[i]);
    w.partial[blockIdx.y * (long long)gridDim.x + blockIdx.x] = t;
}

/* ---- host -------------------------------------------------------------------------------------------------------------*/
struct Known { int bits, mantissa_bits, emin, emax; };
bool known(ng_format_id format, Known *f) {
    switch (format) {
    case NG_FP32: *f = {32, 23, -126, 127}; return true;
    case NG_TF32: *f = {32, 10, -126, 127}; return true;
    case NG_BF16: *f = {16, 7, -126, 127}; return true;
    case NG_FP16: *f = {16, 10, -14, 15}; return true;
    case NG_E4M3: *f = {8, 3, -6, 8}; return true;
    case NG_E5M2: *f = {8, 2, -14, 15}; return true;
    case NG_E3M2: *f = {8, 2, -2, 4}; return true;
    case NG_E2M3: *f = {8, 3, 0, 2}; return true;
    case NG_E2M1: *f = {4, 1, 0, 2}; return true;
    default: return false;
    }
}

void fill_factors(ng_format_id format, const Known &f, float *factor) {
    const int exponent_bits = format == NG_E4M3 ? 4 : format == NG_E5M2 ? 5 : format == NG_E3M2 ? 3 : 2, bias = format == NG_E2M3 || format == NG_E2M1 ? 1 : (1 << (exponent_bits - 1)) - 1;
    for (int code = 0; code < 256; code++) {
        const int mantissa = code & ((1 << f.mantissa_bits) - 1), field = code >> f.mantissa_bits & ((1 << exponent_bits) - 1), negative = code >> (f.mantissa_bits + exponent_bits) & 1;
        double x = field ? ldexp(mantissa + (1 << f.mantissa_bits), field - bias - f.mantissa_bits) : ldexp(mantissa, 1 - bias - f.mantissa_bits);
        if (format == NG_E4M3 && (code & 0x7F) == 0x7F) x = NAN;
        if (format == NG_E5M2 && field == 31) x = mantissa ? NAN : HUGE_VAL;
        factor[code] = (float)(negative ? -x : x);
    }
}

Side side_of(const ng_operand *o, const Known &f) {
    Side s = {};
    s.codes = static_cast<const unsigned char *>(o->codes.data);
    s.row_bytes = o->codes.row_bytes;
    s.rows = o->codes.rows;
    s.format = o->codes.format;
    s.scales = static_cast<const unsigned char *>(o->scales.data);
    s.scale_row_bytes = o->scales.row_bytes;
    s.scale_format = o->scales.format;
    s.block_rows = o->blocks.rows ? o->blocks.rows : (s.rows ? s.rows : 1);
    s.block_columns = o->blocks.columns ? o->blocks.columns : (o->codes.columns ? o->codes.columns : 1);
    s.inside = s.scales && s.block_columns < o->codes.columns;
    if (f.bits <= 8) fill_factors(s.format, f, s.factor);
    return s;
}

/* Device memory of one call, released together. */
struct Memory {
    cudaStream_t stream;
    std::vector<void *> all;
    cudaError_t error = cudaSuccess;
    template <typename T> T *make(size_t count) {
        void *made = nullptr;
        if (error == cudaSuccess) error = cudaMallocAsync(&made, sizeof(T) * (count + 1), stream);
        if (made) all.push_back(made);
        return static_cast<T *>(made);
    }
    ~Memory() {
        for (void *made : all)
            cudaFreeAsync(made, stream);
    }
};

template <int BITS> cudaError_t measure(const Work &w, Side host[2], Side *device[2], const RowWork rows[2], Memory &memory, int *specials) {
    for (int s = 0; s < 2 && memory.error == cudaSuccess; s++) {
        ng_row_sizes *sizes = memory.make<ng_row_sizes>((size_t)host[s].rows);
        double *powers = w.groups ? memory.make<double>((size_t)(host[s].rows * w.groups)) : nullptr;
        if (memory.error != cudaSuccess) break;
        memory.error = cudaMemcpyAsync(device[s], &host[s], sizeof host[s], cudaMemcpyHostToDevice, memory.stream);
        if (memory.error == cudaSuccess) measure_rows<BITS><<<(unsigned)host[s].rows, THREADS, 0, memory.stream>>>(device[s], rows[s], sizes, powers, specials);
        host[s].sizes = sizes;
        host[s].powers = powers;
        if (memory.error == cudaSuccess) memory.error = cudaStreamSynchronize(memory.stream); /* host[s] is read by the copy */
        if (memory.error == cudaSuccess) memory.error = cudaMemcpyAsync(device[s], &host[s], sizeof host[s], cudaMemcpyHostToDevice, memory.stream);
        if (memory.error == cudaSuccess) memory.error = cudaStreamSynchronize(memory.stream);
    }
    return memory.error;
}

template <int BITS> void start(const Work &w, dim3 grid, bool sizes, cudaStream_t stream) {
    if (sizes) verify<BITS, true><<<grid, THREADS, 0, stream>>>(w);
    else verify<BITS, false><<<grid, THREADS, 0, stream>>>(w);
}

/* Every product a multiple of 2^grid and K of them below 2^53 of these, by the formats alone. */
bool sums_are_exact(const Known &a, const Known &b, const Side &sa, const Side &sb, long long k) {
    if (sa.inside || sb.inside) return false;
    const int span = a.emax + 1 + b.emax + 1 - (a.emin - a.mantissa_bits + b.emin - b.mantissa_bits);
    return span < 53 && k <= 1ll << (53 - span);
}

void publish(const std::vector<Figures> &all, const Work &w, ng_witness *figures) {
    Figures sum = {};
    sum.key = -1, sum.place = -1, sum.y = sum.c = sum.bound = NAN;
    for (const Figures &o : all) {
        sum.max_abs = fmax(sum.max_abs, o.max_abs), sum.max_rel = fmax(sum.max_rel, o.max_rel), sum.max_ulp = fmax(sum.max_ulp, o.max_ulp);
        sum.ratio = fmax(sum.ratio, o.ratio);
        sum.sum_e2 += o.sum_e2, sum.sum_c2 += o.sum_c2, sum.sum_signed += o.sum_signed, sum.sum_abs += o.sum_abs;
        sum.nonfinite += o.nonfinite, sum.beyond += o.beyond, sum.bounded += o.bounded, sum.zero_rejected += o.zero_rejected, sum.exact += o.exact;
        if (o.key > sum.key || (o.key == sum.key && o.place >= 0 && o.place < sum.place)) sum.key = o.key, sum.place = o.place, sum.y = o.y, sum.c = o.c, sum.bound = o.bound;
    }
    *figures = {};
    figures->max_abs = sum.max_abs, figures->max_rel = sum.max_rel, figures->max_ulp = sum.max_ulp, figures->ratio = sum.ratio;
    figures->sum_e2 = sum.sum_e2, figures->sum_c2 = sum.sum_c2, figures->sum_signed = sum.sum_signed, figures->sum_abs = sum.sum_abs;
    figures->worst_key = sum.key, figures->worst_computed = sum.y, figures->worst_exact = sum.c, figures->worst_bound = sum.bound;
    figures->worst_row = sum.place < 0 ? 0 : sum.place / w.n, figures->worst_column = sum.place < 0 ? 0 : sum.place % w.n;
    figures->nonfinite = sum.nonfinite, figures->beyond = sum.beyond, figures->bounded = sum.bounded, figures->zero_rejected = sum.zero_rejected;
    figures->exact = sum.exact;
    figures->checked = w.m * w.n;
}

ng_status failure(cudaError_t error, char *message, size_t bytes) {
    if (message && bytes) snprintf(message, bytes, "verifying a product: %s", cudaGetErrorString(error));
    cudaGetLastError();
    return error == cudaErrorMemoryAllocation ? NG_NO_MEMORY : NG_DEVICE;
}

RowWork row_work(const ng_accumulation *sum, const ng_bound_plan &plan, const ng_operand *o, const Known &f, long long k, long long groups, double weight) {
    RowWork r = {};
    r.k = k;
    r.group = plan.group > 0 ? plan.group : 1;
    r.groups = groups ? groups : (k + r.group - 1) / r.group;
    r.dequantized = sum && sum->scales == NG_SCALES_DEQUANTIZED;
    r.inside_mma = sum && sum->scales == NG_SCALES_IN_MMA && o->scales.data;
    r.least_normal = r.dequantized ? 0x1p-126 : ldexp(1, f.emin);
    r.least_scale = o->scales.format == NG_UE4M3 ? 0x1p-6 : 0;
    r.margin = plan.power_margin > 0 ? plan.power_margin : 1;
    r.weight = weight;
    return r;
}

} // namespace

extern "C" ng_status ng_witness_gemm_cuda(const ng_accumulation *sum, const ng_operand *a, const ng_operand *b, const ng_tensor *initial,
                                          const ng_tensor *computed, void *stream_pointer, ng_witness *figures, char *message, size_t message_bytes) {
    Known fa, fb;
    Work w = {};
    Memory memory;
    memory.stream = static_cast<cudaStream_t>(stream_pointer);
    if (!known(a->codes.format, &fa) || !known(b->codes.format, &fb) || fa.bits != fb.bits) return NG_UNSUPPORTED;
    if (computed->format != NG_FP32 && computed->format != NG_BF16 && computed->format != NG_FP16) return NG_UNSUPPORTED;
    w.m = a->codes.rows, w.n = b->codes.rows, w.k = a->codes.columns;
    if (computed->rows != w.m || computed->columns != w.n || b->codes.columns != w.k) return NG_BAD_ARGUMENT;
    if (!w.m || !w.n || !w.k) return NG_UNSUPPORTED;
    Side host[2] = {side_of(a, fa), side_of(b, fb)};
    w.bounded = sum != nullptr;
    if (sum) {
        const ng_status status = ng_bound_plan_of(sum, a, b, &w.plan);
        if (status) return status;
    }
    /* bound = coefficient (H + weight P): the weight goes into the powers of A */
    const double coefficient = w.plan.step_terms * (w.plan.chain_steps - 1) + w.plan.step_output * w.plan.chain_steps;
    const bool steps = sum && sum->order == NG_SUM_MMA;
    const double weight = steps ? w.plan.step_terms * w.plan.misaligned / coefficient : 1;
    w.groups = steps ? (w.k + w.plan.group - 1) / w.plan.group : 0;
    w.sums_exact = sums_are_exact(fa, fb, host[0], host[1], w.k);
    w.gamma = (double)(w.k + 2) * 0x1p-53 * (1 + 0x1p-20);
    w.up = 1 + (double)(w.k + w.groups + 8) * 0x1p-52;
    w.tensor = ng_tensor_factor_of(a->tensor_scale, b->tensor_scale);
    w.tensor_exact = (double)a->tensor_scale * (double)b->tensor_scale;
    w.initial = initial ? static_cast<const float *>(initial->data) : nullptr;
    w.initial_row_bytes = initial && initial->rows > 1 ? initial->row_bytes : 0;
    w.computed = static_cast<const unsigned char *>(computed->data);
    w.computed_row_bytes = computed->row_bytes;
    w.out = computed->format;
    const dim3 grid((unsigned)((w.n + N - 1) / N), (unsigned)((w.m + M - 1) / M));
    const size_t tiles = (size_t)grid.x * grid.y;
    if (grid.y > 65535) return NG_UNSUPPORTED;
    Side *device[2] = {memory.make<Side>(1), memory.make<Side>(1)};
    int *specials = memory.make<int>(1);
    w.partial = memory.make<Figures>(tiles);
    w.undecided = memory.make<unsigned long long>(NG_UNDECIDED);
    if (memory.error == cudaSuccess) memory.error = cudaMemsetAsync(w.undecided, 0, sizeof(unsigned long long) * (NG_UNDECIDED + 1), memory.stream);
    if (memory.error != cudaSuccess) return failure(memory.error, message, message_bytes);
    w.a = device[0];
    w.b = device[1];
    const RowWork rows[2] = {row_work(sum, w.plan, a, fa, w.k, w.groups, weight), row_work(sum, w.plan, b, fb, w.k, w.groups, 1)};
    switch (fa.bits) {
    case 4: measure<4>(w, host, device, rows, memory, specials); break;
    case 8: measure<8>(w, host, device, rows, memory, specials); break;
    case 16: measure<16>(w, host, device, rows, memory, specials); break;
    default: measure<32>(w, host, device, rows, memory, specials); break;
    }
    if (memory.error != cudaSuccess) return failure(memory.error, message, message_bytes);
    switch (fa.bits) {
    case 4: start<4>(w, grid, sum != nullptr, memory.stream); break;
    case 8: start<8>(w, grid, sum != nullptr, memory.stream); break;
    case 16: start<16>(w, grid, sum != nullptr, memory.stream); break;
    default: start<32>(w, grid, sum != nullptr, memory.stream); break;
    }
    std::vector<Figures> all(tiles);
    unsigned long long undecided[1 + NG_UNDECIDED];
    memory.error = cudaPeekAtLastError();
    if (memory.error == cudaSuccess) memory.error = cudaMemcpyAsync(all.data(), w.partial, sizeof(Figures) * tiles, cudaMemcpyDeviceToHost, memory.stream);
    if (memory.error == cudaSuccess) memory.error = cudaMemcpyAsync(undecided, w.undecided, sizeof undecided, cudaMemcpyDeviceToHost, memory.stream);
    if (memory.error == cudaSuccess) memory.error = cudaStreamSynchronize(memory.stream);
    if (memory.error != cudaSuccess) return failure(memory.error, message, message_bytes);
    publish(all, w, figures);
    figures->undecided = (int64_t)undecided[0];
    for (int i = 0; i < NG_UNDECIDED && i < figures->undecided; i++)
        figures->places[i] = (int64_t)undecided[1 + i];
    return NG_OK;
}
