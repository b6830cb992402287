/* The step kernels, for one vector length: the including file defines NG_MMA_BYTES (16, 32, 64) and NG_MMA_STEPS (the name of
 * its table) and is compiled for its instruction set, with -frounding-math: the rounding mode in force is meant. */
#include "mma.h"

#include <math.h>
#include <string.h>

#if defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

enum { LANES = NG_MMA_BYTES / 4, WIDTH = 2 * LANES }; /* a panel: two vectors of float, four of double, one of int16 */

typedef float vf __attribute__((vector_size(NG_MMA_BYTES), may_alias));
typedef int32_t vi __attribute__((vector_size(NG_MMA_BYTES), may_alias));
typedef double vd __attribute__((vector_size(NG_MMA_BYTES), may_alias));
typedef int64_t vl __attribute__((vector_size(NG_MMA_BYTES), may_alias));
typedef int16_t vs __attribute__((vector_size(NG_MMA_BYTES), may_alias));
typedef float half_vf __attribute__((vector_size(NG_MMA_BYTES / 2), may_alias));
typedef int32_t half_vi __attribute__((vector_size(NG_MMA_BYTES / 2), may_alias));
typedef int16_t half_vs __attribute__((vector_size(NG_MMA_BYTES / 2), may_alias));

#define INLINE static inline __attribute__((always_inline))

/* Products are exact in either precision, so that fused and separate give the same bits. */
#if defined(__AVX512F__)
INLINE vf splat_f(float x) { return (vf)_mm512_set1_ps(x); }
INLINE vd splat_d(double x) { return (vd)_mm512_set1_pd(x); }
INLINE vf fma_f(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE vd fma_d(vd a, vd b, vd c) { return (vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
INLINE vs max_s(vs a, vs b) { return (vs)_mm512_max_epi16((__m512i)a, (__m512i)b); }
INLINE vi max_i(vi a, vi b) { return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b); }
#elif defined(__AVX2__)
INLINE vf splat_f(float x) { return (vf)_mm256_set1_ps(x); }
INLINE vd splat_d(double x) { return (vd)_mm256_set1_pd(x); }
INLINE vf fma_f(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE vd fma_d(vd a, vd b, vd c) { return (vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
INLINE vs max_s(vs a, vs b) { return (vs)_mm256_max_epi16((__m256i)a, (__m256i)b); }
INLINE vi max_i(vi a, vi b) { return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b); }
#else
INLINE vf splat_f(float x) { return (vf){x, x, x, x}; }
INLINE vd splat_d(double x) { return (vd){x, x}; }
INLINE vi max_i(vi a, vi b) {
    vi greater = a > b;
    return (a & greater) | (b & ~greater);
}
#if defined(__ARM_NEON)
INLINE vf fma_f(vf a, vf b, vf c) { return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
INLINE vd fma_d(vd a, vd b, vd c) { return (vd)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b); }
INLINE vs max_s(vs a, vs b) { return (vs)vmaxq_s16((int16x8_t)a, (int16x8_t)b); }
#else
INLINE vf fma_f(vf a, vf b, vf c) { return a * b + c; }
INLINE vd fma_d(vd a, vd b, vd c) { return a * b + c; }
#if defined(__SSE2__)
INLINE vs max_s(vs a, vs b) { return (vs)_mm_max_epi16((__m128i)a, (__m128i)b); }
#else
INLINE vs max_s(vs a, vs b) {
    vs greater = a > b;
    return (a & greater) | (b & ~greater);
}
#endif
#endif
#endif

INLINE vi splat_i(int32_t x) { return x + (vi){0}; }
INLINE vl splat_l(int64_t x) { return x + (vl){0}; }
INLINE vs splat_s(int16_t x) { return x + (vs){0}; }

/* The halves of a vector, widened. */
INLINE vi widen_s(vs x, int part) {
    half_vs h;
    memcpy(&h, (const char *)&x + part * (int)sizeof h, sizeof h);
    return __builtin_convertvector(h, vi);
}
INLINE vl widen_i(vi x, int part) {
    half_vi h;
    memcpy(&h, (const char *)&x + part * (int)sizeof h, sizeof h);
    return __builtin_convertvector(h, vl);
}
INLINE vd widen_f(vf x, int part) {
    half_vf h;
    memcpy(&h, (const char *)&x + part * (int)sizeof h, sizeof h);
    return __builtin_convertvector(h, vd);
}
INLINE vf narrow(vd low, vd high) {
    half_vf h[2] = {__builtin_convertvector(low, half_vf), __builtin_convertvector(high, half_vf)};
    vf x;
    memcpy(&x, h, sizeof x);
    return x;
}

INLINE vf with_sign_of(vf x, vf sign) { return (vf)((vi)x | ((vi)sign & splat_i(INT32_MIN))); }
INLINE vd with_sign_of_d(vd x, vd sign) { return (vd)((vl)x | ((vl)sign & splat_l(INT64_MIN))); }

/* E, given the largest exponent of the products: c's joins unless c is zero. */
INLINE vi alignment(vi products, vf c, vi min) {
    vi magnitude = (vi)c & splat_i(INT32_MAX), exponent = max_i(magnitude >> 23, splat_i(1)) - 127;
    vi zero = magnitude == splat_i(0);
    return max_i(max_i(products, min), (exponent & ~zero) | (splat_i(NG_MMA_ZERO) & zero));
}

/* ---- binary32: F + 2 + log2(group) <= 23 --------------------------------------------------------------------------*/

/* M as a binary32. A chain that has become infinite or NaN stays so: any M does, as long as it is finite. */
INLINE vf magic(vi e, int fraction_bits) {
    vi too_large = e > splat_i(100);
    e = (e & ~too_large) | (splat_i(100) & too_large);
    return (vf)((e + splat_i(127 + 23 - fraction_bits)) << 23);
}

INLINE vf finish(const ng_mma_job *job, vf plus, vf minus, vf c, vf m) {
    vf signed_m = with_sign_of(m, c);
    vf sum = (plus - minus) + ((c + signed_m) - signed_m);
    return (vf)((vi)sum & splat_i((int32_t)job->mask));
}

INLINE void largest2(const ng_mma_job *job, const int16_t *a0, const int16_t *a1, const int16_t *b, vs *e0, vs *e1) {
    vs x = splat_s(2 * NG_MMA_ZERO), y = x;
    for (int k = 0; k < job->group; k++) {
        vs eb = *(const vs *)(b + k * WIDTH);
        x = max_s(x, eb + splat_s(a0[k]));
        y = max_s(y, eb + splat_s(a1[k]));
    }
    *e0 = x;
    *e1 = y;
}

/* Two rows by one panel. */
INLINE void rows2(const ng_mma_job *job, const ng_mma_single *a, const int16_t *ea, const float *b, const int16_t *eb,
                  const float *c, float *d) {
    const vi min = splat_i(job->min_exponent);
    vf c00 = ((const vf *)c)[0], c01 = ((const vf *)c)[1];
    vf c10 = ((const vf *)(c + NG_MMA_TILE))[0], c11 = ((const vf *)(c + NG_MMA_TILE))[1];
    for (int g = 0; g < job->groups; g++) {
        vs e0, e1;
        largest2(job, ea + g * job->group, ea + job->depth + g * job->group, eb + g * job->group * WIDTH, &e0, &e1);
        vf m00 = magic(alignment(widen_s(e0, 0), c00, min), job->fraction_bits);
        vf m01 = magic(alignment(widen_s(e0, 1), c01, min), job->fraction_bits);
        vf m10 = magic(alignment(widen_s(e1, 0), c10, min), job->fraction_bits);
        vf m11 = magic(alignment(widen_s(e1, 1), c11, min), job->fraction_bits);
        vf p00 = m00, p01 = m01, p10 = m10, p11 = m11, n00 = m00, n01 = m01, n10 = m10, n11 = m11;
        const ng_mma_single *a0 = a + g * job->group, *a1 = a0 + job->depth;
        const float *row = b + g * job->group * 2 * WIDTH;
        for (int k = 0; k < job->group; k++, row += 2 * WIDTH) {
            vf x = splat_f(a0[k].magnitude), y = splat_f(a1[k].magnitude);
            const vf *xp = (const vf *)(row + a0[k].plus), *xn = (const vf *)(row + WIDTH - a0[k].plus);
            const vf *yp = (const vf *)(row + a1[k].plus), *yn = (const vf *)(row + WIDTH - a1[k].plus);
            p00 = fma_f(x, xp[0], p00);
            p01 = fma_f(x, xp[1], p01);
            n00 = fma_f(x, xn[0], n00);
            n01 = fma_f(x, xn[1], n01);
            p10 = fma_f(y, yp[0], p10);
            p11 = fma_f(y, yp[1], p11);
            n10 = fma_f(y, yn[0], n10);
            n11 = fma_f(y, yn[1], n11);
        }
        c00 = finish(job, p00, n00, c00, m00);
        c01 = finish(job, p01, n01, c01, m01);
        c10 = finish(job, p10, n10, c10, m10);
        c11 = finish(job, p11, n11, c11, m11);
    }
    ((vf *)d)[0] = c00;
    ((vf *)d)[1] = c01;
    ((vf *)(d + NG_MMA_TILE))[0] = c10;
    ((vf *)(d + NG_MMA_TILE))[1] = c11;
}

static void single(const ng_mma_job *job) {
    for (int p = 0; p < job->panels; p++)
        for (int i = 0; i < job->rows; i += 2)
            rows2(job, (const ng_mma_single *)job->a + i * job->depth, job->a_exponents + i * job->depth,
                  (const float *)job->b + p * job->depth * 2 * WIDTH, job->b_exponents + p * job->depth * WIDTH,
                  job->c + i * NG_MMA_TILE + p * WIDTH, job->d + i * NG_MMA_TILE + p * WIDTH);
}

/* ---- binary64 -----------------------------------------------------------------------------------------------------*/

INLINE vd power_of_two(vl e) { return (vd)((e + splat_l(1023)) << 52); }

/* sum + the truncated c. Beyond binary32's range rounding toward zero would stop at its largest number, but the unit gives an
 * infinity; the mask commutes with that, since a sum that truncates to 2^128 is at least 2^128. */
INLINE vd join(const ng_mma_job *job, vd sum, vd c, vd m) {
    vd signed_m = with_sign_of_d(m, c);
    sum += (c + signed_m) - signed_m;
    if (!job->wide) return sum;
    vl beyond = (vd)((vl)sum & splat_l(INT64_MAX)) >= splat_d(0x1p128);
    vd infinity = with_sign_of_d((vd)splat_l(0x7FF0000000000000), sum);
    return sum + (vd)((vl)infinity & beyond);
}

/* Two vectors of sums as binary32 results; adding +0 makes a negative sum that truncates to zero +0. */
INLINE vf results(const ng_mma_job *job, vd low, vd high) {
    vf x = (vf)((vi)narrow(low, high) & splat_i((int32_t)job->mask));
    if (job->wide) x += splat_f(0);
    return x;
}

INLINE vs largest(const ng_mma_job *job, const int16_t *a, const int16_t *b) {
    vs e = splat_s(2 * NG_MMA_ZERO);
    for (int k = 0; k < job->group; k++)
        e = max_s(e, *(const vs *)(b + k * WIDTH) + splat_s(a[k]));
    return e;
}

/* One row by one panel. Scales are powers of two, s: the products are summed unscaled, aligned at E - s, then scaled. */
INLINE void row1(const ng_mma_job *job, const ng_mma_double *a, const int16_t *ea, const int16_t *sa, const double *b,
                 const int16_t *eb, const int16_t *sb, const float *c, float *d) {
    const vi min = splat_i(job->min_exponent);
    const vl bias = splat_l(52 - job->fraction_bits);
    vf c0 = ((const vf *)c)[0], c1 = ((const vf *)c)[1];
    for (int g = 0; g < job->groups; g++) {
        vs products = largest(job, ea + g * job->group, eb + g * job->group * WIDTH), s = {0};
        if (sa) {
            int block = g * job->group / job->scale_block;
            s = *(const vs *)(sb + block * WIDTH) + splat_s(sa[block]);
            products += s;
        }
        vi e0 = alignment(widen_s(products, 0), c0, min), e1 = alignment(widen_s(products, 1), c1, min);
        vi s0 = widen_s(s, 0), s1 = widen_s(s, 1);
        vd m0 = power_of_two(widen_i(e0 - s0, 0) + bias), m1 = power_of_two(widen_i(e0 - s0, 1) + bias);
        vd m2 = power_of_two(widen_i(e1 - s1, 0) + bias), m3 = power_of_two(widen_i(e1 - s1, 1) + bias);
        vd p0 = m0, p1 = m1, p2 = m2, p3 = m3, n0 = m0, n1 = m1, n2 = m2, n3 = m3;
        const ng_mma_double *entry = a + g * job->group;
        const double *row = b + g * job->group * 2 * WIDTH;
        for (int k = 0; k < job->group; k++, row += 2 * WIDTH) {
            vd x = splat_d(entry[k].magnitude);
            const vd *xp = (const vd *)(row + entry[k].plus), *xn = (const vd *)(row + WIDTH - entry[k].plus);
            p0 = fma_d(x, xp[0], p0);
            p1 = fma_d(x, xp[1], p1);
            p2 = fma_d(x, xp[2], p2);
            p3 = fma_d(x, xp[3], p3);
            n0 = fma_d(x, xn[0], n0);
            n1 = fma_d(x, xn[1], n1);
            n2 = fma_d(x, xn[2], n2);
            n3 = fma_d(x, xn[3], n3);
        }
        p0 -= n0, p1 -= n1, p2 -= n2, p3 -= n3;
        if (sa) {
            vd f0 = power_of_two(widen_i(s0, 0)), f1 = power_of_two(widen_i(s0, 1));
            vd f2 = power_of_two(widen_i(s1, 0)), f3 = power_of_two(widen_i(s1, 1));
            p0 *= f0, p1 *= f1, p2 *= f2, p3 *= f3;
            m0 *= f0, m1 *= f1, m2 *= f2, m3 *= f3;
        }
        p0 = join(job, p0, widen_f(c0, 0), m0), p1 = join(job, p1, widen_f(c0, 1), m1);
        p2 = join(job, p2, widen_f(c1, 0), m2), p3 = join(job, p3, widen_f(c1, 1), m3);
        c0 = results(job, p0, p1), c1 = results(job, p2, p3);
    }
    ((vf *)d)[0] = c0;
    ((vf *)d)[1] = c1;
}

static void fp64(const ng_mma_job *job) {
    const int16_t *sa = job->a_scale_exponents, *sb = job->b_scale_exponents;
    for (int p = 0; p < job->panels; p++)
        for (int i = 0; i < job->rows; i++)
            row1(job, (const ng_mma_double *)job->a + i * job->depth, job->a_exponents + i * job->depth,
                 sa ? sa + i * job->scales : NULL, (const double *)job->b + p * job->depth * 2 * WIDTH,
                 job->b_exponents + p * job->depth * WIDTH, sb ? sb + p * job->scales * WIDTH : NULL,
                 job->c + i * NG_MMA_TILE + p * WIDTH, job->d + i * NG_MMA_TILE + p * WIDTH);
}

/* ---- exact dots under a scale each --------------------------------------------------------------------------------*/



/* One dot of a row with a panel, scaled: values and exponents of the terms. e2m1 dots are exact in binary32. */
INLINE void dot_terms(const ng_mma_job *job, int i, int p, int k0, double *term, int16_t *exponent) {
    const float *a = (const float *)job->a + i * job->depth + k0;
    const float *b = (const float *)job->b + (p * job->depth + k0) * WIDTH;
    const int sa = i * job->scales + k0 / job->scale_block, sb = (p * job->scales + k0 / job->scale_block) * WIDTH;
    vf sum[2] = {{0}, {0}};
    for (int k = 0; k < job->dot; k++) {
        vf x = splat_f(a[k]);
        sum[0] = fma_f(x, ((const vf *)(b + k * WIDTH))[0], sum[0]);
        sum[1] = fma_f(x, ((const vf *)(b + k * WIDTH))[1], sum[1]);
    }
    const vd scale = splat_d(job->a_scale_values[sa]);
    for (int q = 0; q < 4; q++)
        ((vd *)term)[q] = widen_f(sum[q / 2], q % 2) * scale * ((const vd *)(job->b_scale_values + sb))[q];
    for (int l = 0; l < WIDTH; l++)
        exponent[l] = term[l] != 0 ? (int16_t)(job->a_scale_exponents[sa] + job->b_scale_exponents[sb + l]) : NG_MMA_ZERO;
}

INLINE void dot_row(const ng_mma_job *job, int i, int p) {
    double term[NG_MMA_DOTS][WIDTH] __attribute__((aligned(64)));
    int16_t exponent[NG_MMA_DOTS][WIDTH] __attribute__((aligned(64)));
    const vi min = splat_i(job->min_exponent);
    const vl bias = splat_l(52 - job->fraction_bits);
    const int dots = job->group / job->dot;
    const float *c = job->c + i * NG_MMA_TILE + p * WIDTH;
    float *d = job->d + i * NG_MMA_TILE + p * WIDTH;
    vf s[2] = {((const vf *)c)[0], ((const vf *)c)[1]};
    for (int g = 0; g < job->groups; g++) {
        vs products = splat_s(NG_MMA_ZERO);
        for (int t = 0; t < dots; t++) {
            dot_terms(job, i, p, g * job->group + t * job->dot, term[t], exponent[t]);
            products = max_s(products, *(const vs *)exponent[t]);
        }
        for (int h = 0; h < 2; h++) {
            vi e = alignment(widen_s(products, h), s[h], min);
            vd sum[2];
            for (int q = 0; q < 2; q++) {
                vd m = power_of_two(widen_i(e, q) + bias);
                sum[q] = splat_d(0);
                for (int t = 0; t < dots; t++) {
                    vd x = ((const vd *)term[t])[2 * h + q], signed_m = with_sign_of_d(m, x);
                    sum[q] += (x + signed_m) - signed_m;
                }
                sum[q] = join(job, sum[q], widen_f(s[h], q), m);
            }
            s[h] = results(job, sum[0], sum[1]);
        }
    }
    ((vf *)d)[0] = s[0];
    ((vf *)d)[1] = s[1];
}

static void dots(const ng_mma_job *job) {
    for (int p = 0; p < job->panels; p++)
        for (int i = 0; i < job->rows; i++)
            dot_row(job, i, p);
}

/* ---- promotion ----------------------------------------------------------------------------------------------------*/

static void fold(ng_scale_place place, int n, const float *chain, float a_scale, const float *b_scale, float *sum) {
    switch (place) {
    case NG_SCALES_BLOCK_SEQUENTIAL:
        for (int j = 0; j < n; j++)
            sum[j] += chain[j] * a_scale * b_scale[j];
        break;
    case NG_SCALES_BLOCK_FMA_PRODUCT:
        for (int j = 0; j < n; j++)
            sum[j] = fmaf(chain[j], a_scale * b_scale[j], sum[j]);
        break;
    case NG_SCALES_BLOCK_FMA_SECOND:
        for (int j = 0; j < n; j++)
            sum[j] = fmaf(chain[j] * b_scale[j], a_scale, sum[j]);
        break;
    default:
        for (int j = 0; j < n; j++)
            sum[j] += chain[j];
    }
}

const ng_mma_steps NG_MMA_STEPS = {WIDTH, single, fp64, dots, fold};
