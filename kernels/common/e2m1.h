/* A finite binary32 as e2m1, sign included, in a handful of operations. With b = max(|y|, 1)'s power of two the step is b / 2, and
 * m steps have code m + 2 log2 b. |y| is taken as at most 8: everything from 6 on ends at 7. */
#ifndef NG_KERNELS_COMMON_E2M1_H
#define NG_KERNELS_COMMON_E2M1_H

#include "kernels/common/target.h"

typedef struct ng_e2m1_parts {
    float magnitude;
    uint32_t binade; /* b's bits */
} ng_e2m1_parts;

NG_HD ng_e2m1_parts ng_e2m1_split(float y) {
    const float magnitude = ng_float(ng_bits(y) & NG_ABS_MASK), capped = magnitude < 8.0f ? magnitude : 8.0f;
    ng_e2m1_parts parts = {capped, ng_bits(capped > 1.0f ? capped : 1.0f) & 0x7F800000u};
    return parts;
}

NG_HD uint32_t ng_e2m1_join(float y, ng_e2m1_parts parts, uint32_t steps) {
    const uint32_t code = steps + (parts.binade >> 22) - 254u;
    return (code < 7u ? code : 7u) | (ng_bits(y) >> 28 & 8u);
}

/* NG_SR_CARRY with 8 bits: floor(floor(256 * 2 |y| / b) + R) / 256). The product is exact and at most 1024; adding 2^23 toward zero
 * leaves its whole part. */
NG_HD uint32_t ng_e2m1_stochastic(float y, uint32_t random) {
    const ng_e2m1_parts parts = ng_e2m1_split(y);
    const float steps = ng_mul(parts.magnitude, ng_float((263u << 23) - parts.binade));
#ifdef __CUDA_ARCH__
    const uint32_t whole = __float_as_uint(__fadd_rz(steps, 0x1p23f)) & 0xFFFu;
#else
    const uint32_t whole = (uint32_t)steps;
#endif
    return ng_e2m1_join(y, parts, (whole + (random & 0xFFu)) >> 8);
}

/* To nearest, ties to even: adding 2^23 rounds the number of steps, whose parity is the code's. */
NG_HD uint32_t ng_e2m1_nearest(float y) {
    const ng_e2m1_parts parts = ng_e2m1_split(y);
    return ng_e2m1_join(y, parts, ng_bits(ng_add(ng_mul(parts.magnitude, ng_float((255u << 23) - parts.binade)), 0x1p23f)) & 0xFu);
}

#endif
