/* The FP64 kernels' functions: exp of our own, with the same bits on every machine (no libm), and the roundings of one element. */
#ifndef NG_KERNELS_COMMON_FP64_H
#define NG_KERNELS_COMMON_FP64_H

#include "kernels/common/elementary.h"

NG_HD uint64_t ng_bits64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
NG_HD double ng_double(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^n for -1022 <= n <= 1023, n in the low bits of t = n + 1.5 * 2^52. */
NG_HD double ng_power_of_shifted(double t) { return ng_double((ng_bits64(t) + 1023u) << 52); }

/* x = n ln 2 + r, |r| < 0.347; ln 2 in two parts, the first of 34 bits: n times it is exact, and so is the subtraction. Taylor to r^13: r^14 / 14! is below
 * 2^-57 of exp(r). What r's rounding and the last additions lose is below one unit in the last place; tested against MPFR. */
NG_HD double ng_exp64(double x) {
    if (x != x) return x;
    if (x > 0x1.62e42fefa39efp+9) return ng_double(0x7FF0000000000000u);
    if (x < -745.2) return 0;
    const double t = x * 0x1.71547652b82fep+0 + 0x1.8p52, n = t - 0x1.8p52;
    const double high = x - n * 0x1.62e42fefap-1, low = n * 0x1.cf79abc9e3b3ap-40, r = high - low;
    double p = 0x1.6124613a86d09p-33; /* 1 / 13! */
    p = p * r + 0x1.1eed8eff8d898p-29;
    p = p * r + 0x1.ae64567f544e4p-26;
    p = p * r + 0x1.27e4fb7789f5cp-22;
    p = p * r + 0x1.71de3a556c734p-19;
    p = p * r + 0x1.a01a01a01a01ap-16;
    p = p * r + 0x1.a01a01a01a01ap-13;
    p = p * r + 0x1.6c16c16c16c17p-10;
    p = p * r + 0x1.1111111111111p-7;
    p = p * r + 0x1.5555555555555p-5;
    p = p * r + 0x1.5555555555555p-3;
    p = p * r + 0.5;
    const double y = 1.0 + (((high - r) - low) + (r + r * r * p));
    if (n > 1022) return y * ng_power_of_shifted(t - 1) * 2.0;
    return n < -1021 ? y * ng_power_of_shifted(t + 200) * 0x1p-200 : y * ng_power_of_shifted(t);
}

NG_HD double ng_logistic64(double a) {
    const double z = ng_exp64(a < 0 ? a : -a);
    return (a < 0 ? z : 1.0) / (1.0 + z);
}

/* x s(w) is the GELU in its tanh form (contract_activation.h). */
#define NG_GELU_C1_64 0x1.9884533d43651p+0 /* 2 sqrt(2 / pi) */
#define NG_GELU_C2_64 (NG_GELU_C1_64 * 0.044715)
NG_HD double ng_gelu_argument64(double x) { return x * (x * x * NG_GELU_C2_64 + NG_GELU_C1_64); }

NG_HD double ng_activate64(ng_activation_kind kind, double x, double u) {
    return kind == NG_SWIGLU ? x * ng_logistic64(x) * u : x * ng_logistic64(ng_gelu_argument64(x));
}
NG_HD double ng_activate_backward64(ng_activation_kind kind, double x, double u, double d, double *du) {
    if (kind == NG_SWIGLU) {
        const double s = ng_logistic64(x);
        *du = d * (x * s);
        return d * u * (s * (x * (1 - s) + 1));
    }
    const double s = ng_logistic64(ng_gelu_argument64(x)), slope = x * x * (3 * NG_GELU_C2_64) + NG_GELU_C1_64;
    return d * (x * s * ((1 - s) * slope) + s);
}

/* ---- norms and sums --------------------------------------------------------------------------------------------------
 * The order of sums, so that both backends have one: over a row, NG_FP64_LANES chains, the k-th over the columns k, k + NG_FP64_LANES ..., halved
 * (s_k + s_(k + n/2) until one is left); over rows, NG_FP64_GROUPS chains likewise, added in order. */
enum { NG_FP64_LANES = 32, NG_FP64_GROUPS = 8, NG_FP64_NORM2_CHAINS = 1024 };

NG_HD double ng_norm_hat64(bool centered, double x, double mean, double rstd) { return (centered ? x - mean : x) * rstd; }
NG_HD double ng_norm_weight64(bool zero_centered, double gamma) { return zero_centered ? 1 + gamma : gamma; }

/* ---- AdamW -----------------------------------------------------------------------------------------------------------*/
typedef struct ng_adam_factors64 {
    double b1, a1, b2, a2, epsilon, d, l1, s2;
} ng_adam_factors64;

NG_HD void ng_adam64(const ng_adam_factors64 *f, double g, double *p, double *m, double *v) {
    *m = f->b1 * *m + f->a1 * g;
    *v = f->b2 * *v + f->a2 * g * g;
    *p = f->d * *p - f->l1 * (*m / (ng_sqrt64(*v) * f->s2 + f->epsilon));
}
NG_HD double ng_clip_factor64(double most, double norm) { return most / (norm + 1e-6); }

static inline ng_adam_factors64 ng_adam_factors64_of(const double *scalars) {
    const double a = scalars[NG_LEARNING_RATE], b1 = scalars[NG_BETA1], b2 = scalars[NG_BETA2];
    const int64_t t = (int64_t)scalars[NG_STEP];
    const ng_adam_factors64 f = {b1, 1 - b1, b2, 1 - b2, scalars[NG_EPSILON], 1 - a * scalars[NG_WEIGHT_DECAY],
                                 a / ng_one_minus_power(b1, t), 1 / ng_sqrt64(ng_one_minus_power(b2, t))};
    return f;
}

#endif
