/* The value of a code as a binary32: exact for every format here (fp64 apart). */
#ifndef NG_KERNELS_COMMON_DECODE_H
#define NG_KERNELS_COMMON_DECODE_H

#include "kernels/common/target.h"

/* Magnitude of a small float: exponent field and mantissa moved into a binary32's place, then scaled by the difference of
 * the biases (a multiplication by a power of two, exact, which also normalises subnormals). */
NG_HD float ng_decode_small(uint32_t magnitude, uint32_t mantissa_bits, uint32_t bias) {
    return ng_mul(ng_float(magnitude << (23 - mantissa_bits)), ng_float((254u - bias) << 23));
}

NG_HD float ng_with_sign(float magnitude, uint32_t negative) { return ng_float(ng_bits(magnitude) | (negative ? 0x80000000u : 0u)); }

NG_HD float ng_decode_bf16(uint32_t code) { return ng_float(code << 16); }

NG_HD float ng_decode_fp16(uint32_t code) {
    uint32_t magnitude = code & 0x7FFFu;
    float value = magnitude < 0x7C00u ? ng_decode_small(magnitude, 10, 15) : ng_float(magnitude << 13 | NG_INF_BITS);
    return ng_with_sign(value, code & 0x8000u);
}

NG_HD float ng_decode_e4m3(uint32_t code) {
    uint32_t magnitude = code & 0x7Fu;
    return ng_with_sign(magnitude == 0x7Fu ? ng_float(NG_NAN_BITS) : ng_decode_small(magnitude, 3, 7), code & 0x80u);
}

NG_HD float ng_decode_e5m2(uint32_t code) {
    uint32_t magnitude = code & 0x7Fu;
    float value = magnitude < 0x7Cu ? ng_decode_small(magnitude, 2, 15)
                                    : ng_float(magnitude == 0x7Cu ? NG_INF_BITS : NG_NAN_BITS);
    return ng_with_sign(value, code & 0x80u);
}

NG_HD float ng_decode_e3m2(uint32_t code) { return ng_with_sign(ng_decode_small(code & 0x1Fu, 2, 3), code & 0x20u); }
NG_HD float ng_decode_e2m3(uint32_t code) { return ng_with_sign(ng_decode_small(code & 0x1Fu, 3, 1), code & 0x20u); }
NG_HD float ng_decode_e2m1(uint32_t code) { return ng_with_sign(ng_decode_small(code & 0x7u, 1, 1), code & 0x8u); }

/* Code 0 is 2^-127, a binary32 subnormal; decoders that only shift give 0 there. */
NG_HD float ng_decode_e8m0(uint32_t code) {
    return code == 0xFFu ? ng_float(NG_NAN_BITS) : ng_float(code ? code << 23 : 0x400000u);
}

NG_HD float ng_decode_ue4m3(uint32_t code) { return ng_decode_e4m3(code & 0x7Fu); }

/* Any format of at most 32 bits, code in storage form. */
NG_HD float ng_decode_float(ng_format_id format, uint32_t code) {
    switch (format) {
    case NG_FP32: return ng_float(code);
    case NG_TF32: return ng_float(code & 0xFFFFE000u);
    case NG_BF16: return ng_decode_bf16(code);
    case NG_FP16: return ng_decode_fp16(code);
    case NG_E4M3: return ng_decode_e4m3(code);
    case NG_E5M2: return ng_decode_e5m2(code);
    case NG_E3M2: return ng_decode_e3m2(code);
    case NG_E2M3: return ng_decode_e2m3(code);
    case NG_E2M1: return ng_decode_e2m1(code);
    case NG_E8M0: return ng_decode_e8m0(code);
    case NG_UE4M3: return ng_decode_ue4m3(code);
    default: return ng_float(NG_NAN_BITS);
    }
}

#endif
