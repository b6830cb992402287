/* Norms, the arithmetic that the CPU and CUDA kernels share: how a row is dealt to lanes and rows to blocks, and the roundings
 * of one element (kernels/contract_norm.h). RMSNorm is LayerNorm with mean 0 and, forward, beta -0: x - 0 is x and t + -0 is
 * t whatever their signs. Backward its beta is +0, for y - +0 is y. */
#ifndef NG_KERNELS_COMMON_NORM_H
#define NG_KERNELS_COMMON_NORM_H

#include "kernels/common/cast.h"
#include "kernels/common/target.h"
#include "kernels/kernel.h"

#include <math.h>

enum {
    NG_NORM_VECTOR = 8,      /* neighbouring elements of a lane: 16 bytes of bf16 */
    NG_NORM_HELD = 4,        /* vectors that a lane holds in registers */
    NG_NORM_MOST_LANES = 1024,
    NG_NORM_MOST_CHAINS = NG_NORM_VECTOR * NG_NORM_MOST_LANES,
    NG_NORM_LAST_CHAINS = 16, /* over the blocks of rows */
};

typedef struct ng_norm_shape {
    int32_t lanes;  /* L */
    int32_t groups; /* T: rows that a block takes at a time */
    int32_t blocks; /* B */
} ng_norm_shape;

NG_HD ng_norm_shape ng_norm_shape_of(int64_t columns) {
    ng_norm_shape s = {32, 1, 264};
    while (s.lanes < NG_NORM_MOST_LANES && columns > (int64_t)s.lanes * NG_NORM_VECTOR * NG_NORM_HELD)
        s.lanes *= 2;
    if (s.lanes < 256) s.groups = 256 / s.lanes;
    if (s.lanes == 512) s.blocks = 132;
    if (s.lanes == 1024) s.blocks = 64;
    return s;
}

/* Blocks that have a row: the others' partial sums would be +0, which changes no sum that began at +0. */
NG_HD int32_t ng_norm_blocks(ng_norm_shape s, int64_t rows) {
    const int64_t wanted = (rows + s.groups - 1) / s.groups;
    return wanted < s.blocks ? (int32_t)wanted : s.blocks;
}

#ifdef __CUDA_ARCH__
NG_HD float ng_norm_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
NG_HD float ng_norm_sqrt(float x) { return __fsqrt_rn(x); }
#else
NG_HD float ng_norm_fma(float a, float b, float c) { return fmaf(a, b, c); }
NG_HD float ng_norm_sqrt(float x) { return sqrtf(x); }
#endif

NG_HD float ng_norm_rstd(float squares, float count, float epsilon) {
    return ng_div(1.0f, ng_norm_sqrt(ng_add(ng_div(squares, count), epsilon)));
}

NG_HD float ng_norm_weight(float gamma, bool zero_centered) { return zero_centered ? ng_add(1.0f, gamma) : gamma; }

/* The forward result before its cast. */
NG_HD float ng_norm_element(float x, float mean, float rstd, float w, float beta) {
    return ng_norm_fma(ng_mul(ng_sub(x, mean), rstd), w, beta);
}

/* |w| raised to e, for a division by it. */
NG_HD float ng_norm_divisor(float w, float epsilon) {
    const float magnitude = ng_float(ng_bits(w) & NG_ABS_MASK);
    return magnitude < epsilon ? ng_float(ng_bits(epsilon) | (ng_bits(w) & 0x80000000u)) : w;
}

/* The normalised element that the backward pass starts from. */
NG_HD float ng_norm_hat(float x, float mean, float rstd) { return ng_mul(ng_sub(x, mean), rstd); }
NG_HD float ng_norm_hat_of_output(float y, float beta, float divisor) { return ng_div(ng_sub(y, beta), divisor); }

NG_HD float ng_norm_dx(float h, float g, float c1, float c2, float rstd) {
    return ng_mul(rstd, ng_norm_fma(ng_float(ng_bits(h) ^ 0x80000000u), c2, ng_sub(g, c1)));
}

/* A result's code: to nearest even, every NaN the canonical one, since processors make different ones. */
NG_HD uint32_t ng_norm_code(const ng_caster *caster, ng_format_id to, float y) {
    if (to != NG_FP32) return ng_cast_code(caster, NG_RN_EVEN, ng_bits(y));
    return y != y ? (uint32_t)NG_NAN_BITS : ng_bits(y);
}

#endif
