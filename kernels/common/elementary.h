/* Functions whose bits are ours: exp, the normal distribution's density and tail, log, and powers of a beta, in binary32 and
 * binary64 arithmetic that is the same on the host and on a device (no libm). Errors as kernels/contract_activation.h states them:
 * derived here, and tested for every binary32 argument. */
#ifndef NG_KERNELS_COMMON_ELEMENTARY_H
#define NG_KERNELS_COMMON_ELEMENTARY_H

#include "kernels/common/norm.h"

/* ---- exp ----------------------------------------------------------------------------------------------------------
 * x = n ln 2 + r, |r| < 0.347, ln 2 in two parts of which the first has 15 bits, so that x - n hi is exact; r is then off by
 * at most 2^-26. Taylor to r^7: r^8 / 8! is below 2^-27 of exp(r). Horner's last two steps err by 2^-24 (1 + 0.35), those before
 * by less than 0.1 * 2^-24. Together below 1.9 * 2^-24 of the result. Twice a power of two: the second factor alone may round
 * (2^-150) or overflow. */
NG_HD float ng_exp(float x) {
    const float magic = 0x1.8p23f; /* adding it rounds to an integer, which its low bits then hold */
    x = x < -105.0f ? -105.0f : x > 89.0f ? 89.0f : x;
    const float shifted = ng_norm_fma(x, 0x1.715476p0f, magic), n = ng_sub(shifted, magic);
    const int32_t i = (int32_t)(ng_bits(shifted) - 0x4B400000u), half = i >> 1;
    float r = ng_norm_fma(n, -0x1.62e4p-1f, x);
    r = ng_norm_fma(n, -0x1.7f7d1cp-20f, r);
    float p = 0x1.a01a02p-13f; /* 1 / 7! */
    p = ng_norm_fma(p, r, 0x1.6c16c2p-10f);
    p = ng_norm_fma(p, r, 0x1.111112p-7f);
    p = ng_norm_fma(p, r, 0x1.555556p-5f);
    p = ng_norm_fma(p, r, 0x1.555556p-3f);
    p = ng_norm_fma(p, r, 0.5f);
    p = ng_norm_fma(p, r, 1.0f);
    p = ng_norm_fma(p, r, 1.0f);
    return ng_mul(ng_mul(p, ng_float((uint32_t)(half + 127) << 23)), ng_float((uint32_t)(i - half + 127) << 23));
}

/* The logistic function; both sides keep their relative error. */
NG_HD float ng_logistic(float a) {
    const float z = ng_exp(ng_float(ng_bits(a) | 0x80000000u));
    return ng_div(a < 0 ? z : 1.0f, ng_add(1.0f, z));
}

/* ---- the normal distribution --------------------------------------------------------------------------------------
 * Arguments are magnitudes of at most 15: beyond, nothing is representable. Integers, which compilers vectorise. */
NG_HD float ng_normal_argument(float x) {
    const uint32_t a = ng_bits(x) & NG_ABS_MASK;
    return ng_float(a > 0x41700000u && a <= (uint32_t)NG_INF_BITS ? 0x41700000u : a);
}

/* exp(-a^2 / 2), with a^2's rounding error put back: what is left of it is its square, below 2^-34. */
NG_HD float ng_density(float a) {
    const float square = ng_mul(a, a), rest = ng_norm_fma(a, a, ng_float(ng_bits(square) ^ 0x80000000u));
    const float e = ng_exp(ng_mul(-0.5f, square));
    return ng_norm_fma(ng_mul(-0.5f, rest), e, e);
}

/* erfc(a / sqrt 2) / 2 = exp(-a^2 / 2) t C(2.5 t - 1.5), t = 4 / (4 + a): C interpolates at the Chebyshev points of t in
 * [0.2, 1] (a to 16) to NG_TAIL_RELATIVE / 64. */
NG_HD float ng_tail_of(float a, float density) {
    const float t = ng_div(4.0f, ng_add(4.0f, a)), x = ng_norm_fma(2.5f, t, -1.5f);
    float c = -1.327933250e-06f;
    c = ng_norm_fma(c, x, 4.282132776e-06f);
    c = ng_norm_fma(c, x, 2.066190475e-05f);
    c = ng_norm_fma(c, x, -5.693252125e-05f);
    c = ng_norm_fma(c, x, -3.579076884e-04f);
    c = ng_norm_fma(c, x, 1.716028414e-04f);
    c = ng_norm_fma(c, x, 6.698609080e-03f);
    c = ng_norm_fma(c, x, 3.036304717e-02f);
    c = ng_norm_fma(c, x, 8.224876649e-02f);
    c = ng_norm_fma(c, x, 1.574239652e-01f);
    c = ng_norm_fma(c, x, 2.234852335e-01f);
    return ng_mul(density, ng_mul(t, c));
}

/* ---- log ----------------------------------------------------------------------------------------------------------
 * x = f 2^k, sqrt(1/2) <= f < sqrt 2, log f = 2 (s + s^3 / 3 + ...), s = (f - 1) / (f + 1), to s^21: the rest is below 2^-58 of it.
 * x positive and normal, infinite or NaN. */
NG_HD double ng_log(double x) {
    uint64_t bits;
    if (!(x < DBL_MAX)) return x;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t shifted = bits - 0x3FE6A09E667F3BCDu;
    const int64_t k = (int64_t)shifted >> 52;
    bits -= (uint64_t)k << 52;
    double f;
    memcpy(&f, &bits, sizeof f);
    const double s = (f - 1) / (f + 1), z = s * s;
    double sum = 0;
    for (int term = 21; term > 1; term -= 2)
        sum = (sum + 1.0 / term) * z;
    return (double)k * 0x1.62e42fefa39efp-1 + 2 * (s + s * sum);
}

/* ---- beta^t -------------------------------------------------------------------------------------------------------
 * As the sum of two binary64: each product errs by less than 2^-102 of itself, and squaring doubles what came before, so the
 * power is right to t 2^-100. */
typedef struct ng_pair {
    double high, low;
} ng_pair;

#ifdef __CUDA_ARCH__
NG_HD double ng_fma64(double a, double b, double c) { return __fma_rn(a, b, c); }
NG_HD double ng_sqrt64(double x) { return __dsqrt_rn(x); }
#else
NG_HD double ng_fma64(double a, double b, double c) { return fma(a, b, c); }
NG_HD double ng_sqrt64(double x) { return sqrt(x); }
#endif

NG_HD ng_pair ng_pair_mul(ng_pair a, ng_pair b) {
    const double p = a.high * b.high;
    const double e = ng_fma64(a.high, b.high, -p) + (a.high * b.low + a.low * b.high);
    ng_pair r;
    r.high = p + e;
    r.low = e - (r.high - p);
    return r;
}

NG_HD ng_pair ng_power(double beta, int64_t t) {
    ng_pair power = {1, 0}, square = {beta, 0};
    for (; t > 0; t >>= 1) {
        if (t & 1) power = ng_pair_mul(power, square);
        square = ng_pair_mul(square, square);
    }
    return power;
}

/* 1 - beta^t, rounded once but for the power's own error. */
NG_HD double ng_one_minus_power(double beta, int64_t t) {
    const ng_pair power = ng_power(beta, t);
    const double d = 1 - power.high, rest = (1 - d) - power.high;
    return d + (rest - power.low);
}

#endif
