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

#endif
