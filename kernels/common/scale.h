/* Scales of block quantization, rule by rule, with the binary32 roundings that kernels/contract.h states and no others. */
#ifndef NG_KERNELS_COMMON_SCALE_H
#define NG_KERNELS_COMMON_SCALE_H

#include "kernels/common/cast.h"
#include "kernels/common/decode.h"

/* Largest finite value of an element format, its exponent, and its mantissa bits. */
NG_HD float ng_element_max(ng_format_id element) {
    switch (element) {
    case NG_E4M3: return 448.0f;
    case NG_E5M2: return 57344.0f;
    case NG_E3M2: return 28.0f;
    case NG_E2M3: return 7.5f;
    default: return 6.0f; /* e2m1 */
    }
}
NG_HD int32_t ng_element_emax(ng_format_id element) {
    switch (element) {
    case NG_E4M3: return 8;
    case NG_E5M2: return 15;
    case NG_E3M2: return 4;
    default: return 2; /* e2m3, e2m1 */
    }
}
NG_HD uint32_t ng_element_mantissa(ng_format_id element) {
    switch (element) {
    case NG_E4M3:
    case NG_E2M3: return 3;
    case NG_E2M1: return 1;
    default: return 2; /* e5m2, e3m2 */
    }
}

/* What a block is quantized with. */
typedef struct ng_block_scale {
    uint32_t code;  /* of the decoding scale, as stored: fp32 bits, e8m0 or ue4m3 */
    float encode;   /* q = cast(fl(x * encode)), or fl(x / divisor) where the rule divides */
    float divisor;  /* NG_SCALE_AMAX_OVER_MAX; else 1 */
} ng_block_scale;

/* nvfp4's tensor level: encoding S and decoding D from the tensor's amax, given as its binary32 bits. */
typedef struct ng_tensor_level {
    float encode, decode;
} ng_tensor_level;

NG_HD ng_tensor_level ng_tensor_scale(const ng_quantization *q, uint32_t amax_bits) {
    ng_tensor_level level = {1.0f, 1.0f};
    if (!q->tensor_scale || amax_bits == 0 || amax_bits >= NG_INF_BITS) return level;
    float largest = q->four_over_six ? 1536.0f : 2688.0f; /* 6 * 256, 6 * 448 */
    float s = ng_at_most_max(ng_div(largest, ng_float(amax_bits)));
    level.encode = s == 0.0f ? 1.0f : s;
    level.decode = ng_div(1.0f, level.encode);
    return level;
}

/* ---- fp32 scales --------------------------------------------------------------------------------------------------*/
NG_HD ng_block_scale ng_scale_encoding(float encode) {
    ng_block_scale scale = {ng_bits(ng_div(1.0f, encode)), encode, 1.0f};
    return scale;
}

NG_HD ng_block_scale ng_scale_fp32(const ng_quantization *q, uint32_t amax_bits) {
    ng_block_scale one = {0x3F800000u, 1.0f, 1.0f};
    if (amax_bits == 0 || amax_bits >= NG_INF_BITS) return one;
    float amax = ng_float(amax_bits), max = ng_element_max(q->element);
    if (q->rule == NG_SCALE_AMAX_OVER_MAX) {
        float d = ng_div(amax, max);
        d = d < FLT_MIN ? FLT_MIN : d;
        ng_block_scale scale = {ng_bits(d), 1.0f, d};
        return scale;
    }
    float e = ng_at_most_max(ng_div(max, amax));
    if (q->rule == NG_SCALE_POW2) e = ng_float(ng_bits(e) & 0x7F800000u);
    return ng_scale_encoding(e);
}

/* ---- e8m0 scales --------------------------------------------------------------------------------------------------*/
NG_HD uint32_t ng_scale_e8m0_code(const ng_quantization *q, uint32_t amax_bits) {
    if (amax_bits > NG_INF_BITS) return 0xFF;
    if (amax_bits == 0) return 0;
    if (q->rule == NG_SCALE_MX_ROUND_UP) {
        float wanted = ng_mul(ng_float(amax_bits), ng_div(1.0f, ng_element_max(q->element)));
        return ng_cast_e8m0(NG_R_UP, true, ng_bits(wanted));
    }
    if (amax_bits == NG_INF_BITS) return 0xFF;
    uint32_t rounded = amax_bits;
    if (q->rule == NG_SCALE_MX_EVEN) rounded += 1u << (22 - ng_element_mantissa(q->element)); /* carries into the exponent */
    if (q->rule == NG_SCALE_MX_CEIL) rounded += 0x7FFFFFu;
    /* subnormal maxima land at or below code 0 whatever their true exponent */
    int32_t code = (int32_t)(rounded >> 23) - ng_element_emax(q->element);
    return code > 0 ? (uint32_t)code : 0u;
}

/* Dividing by 2^(code - 127) is multiplying by 2^(127 - code): exact but for results below 2^-126, which the element
 * formats (smallest ulp 2^-16) take for zero under every rounding that quantization uses. */
NG_HD float ng_scale_e8m0_inverse(uint32_t code) {
    return ng_float(code == 0xFFu ? NG_NAN_BITS : code == 0xFEu ? 0x400000u : (254u - code) << 23);
}

NG_HD ng_block_scale ng_scale_e8m0(const ng_quantization *q, uint32_t amax_bits) {
    uint32_t code = ng_scale_e8m0_code(q, amax_bits);
    ng_block_scale scale = {code, ng_scale_e8m0_inverse(code), 1.0f};
    return scale;
}

/* ---- nvfp4 --------------------------------------------------------------------------------------------------------*/
/* The value that becomes the block scale, before its cast. */
NG_HD float ng_scale_nvfp4_wanted(const ng_quantization *q, uint32_t amax_bits, ng_tensor_level level) {
    float amax = ng_float(amax_bits);
    if (q->rule == NG_SCALE_NVFP4_PAPER) return ng_mul(ng_div(amax, 6.0f), level.encode);
    return ng_at_most_max(ng_mul(amax, ng_mul(level.encode, ng_div(1.0f, 6.0f))));
}

NG_HD ng_block_scale ng_scale_nvfp4_of(float wanted, ng_tensor_level level) {
    const ng_cast to_scale = {NG_RN_EVEN, NG_SR_CARRY, 0, true, NG_NAN_CANONICAL};
    const ng_caster caster = ng_caster_of(NG_UE4M3, &to_scale);
    uint32_t code = ng_cast_code(&caster, NG_RN_EVEN, ng_bits(wanted));
    float decode = ng_mul(ng_decode_ue4m3(code), level.decode);
    ng_block_scale scale = {code, code ? ng_at_most_max(ng_div(1.0f, decode)) : 0.0f, 1.0f};
    return scale;
}

/* The block's scale by any rule but NG_SCALE_GIVEN (see ng_scale_encoding) and without 4over6. */
NG_HD ng_block_scale ng_scale_block(const ng_quantization *q, uint32_t amax_bits, ng_tensor_level level) {
    switch (q->scale) {
    case NG_E8M0: return ng_scale_e8m0(q, amax_bits);
    case NG_UE4M3: return ng_scale_nvfp4_of(ng_scale_nvfp4_wanted(q, amax_bits, level), level);
    default: return ng_scale_fp32(q, amax_bits);
    }
}

/* x as the element cast sees it. */
NG_HD float ng_scale_apply(float x, ng_block_scale scale, bool divides) {
    return divides ? ng_div(x, scale.divisor) : ng_mul(x, scale.encode);
}

#endif
