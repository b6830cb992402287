/* The fast Walsh-Hadamard transform of one group, in the order of contract_hadamard.h, and the rows of kernels that use it. */
#ifndef NG_KERNELS_COMMON_HADAMARD_H
#define NG_KERNELS_COMMON_HADAMARD_H

#include "kernels/common/forms.h"
#include "kernels/common/target.h"

/* The sign bit of s_j, to be xored into x_j. */
NG_HD uint32_t ng_hadamard_sign(const ng_hadamard *h, uint32_t j) { return (h->signs[j / 32] >> j % 32 & 1u) << 31; }

NG_HD void ng_hadamard_butterflies(float *t, uint32_t n) {
    for (uint32_t half = 1; half < n; half *= 2)
        for (uint32_t i = 0; i < n; i += 2 * half)
            for (uint32_t j = i; j < i + half; j++) {
                float a = t[j], b = t[j + half];
                t[j] = ng_add(a, b);
                t[j + half] = ng_sub(a, b);
            }
}

/* 2^-shift. */
NG_HD float ng_hadamard_factor(const ng_hadamard *h) { return ng_float((127u - h->shift) << 23); }

NG_HD float ng_hadamard_finish(float t, float factor) { return ng_add(ng_mul(t, factor), 0.0f); }

/* Signs: of 16, TransformerEngine's vector (+++-+--- ---+-+--); of the others, bits of Philox's answer to counter and key 0. */
#define NG_HADAMARD(n, shift, columns_only) {n, shift, columns_only, NG_HADAMARD_SIGNS_##n}
#define NG_HADAMARD_SIGNS_4   {0x5}
#define NG_HADAMARD_SIGNS_16  {0xD7E8}
#define NG_HADAMARD_SIGNS_32  {0x6627E8D5}
#define NG_HADAMARD_SIGNS_128 {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}

/* X(in name, in, out name, out, size and factor in words, size, shift). Of a pair of operands one takes the first factor, the
 * other the second: 1 / n together. */
#define NG_HADAMARD_FORMATS(X, words, n, shift)               \
    X("bf16", NG_BF16, "bf16", NG_BF16, words, n, shift),     \
        X("bf16", NG_BF16, "fp32", NG_FP32, words, n, shift), \
        X("fp32", NG_FP32, "fp32", NG_FP32, words, n, shift)
#define NG_HADAMARD_ROWS(X)                                                                          \
    NG_HADAMARD_FORMATS(X, "4-over-2", 4, 1), NG_HADAMARD_FORMATS(X, "16-over-1", 16, 0),            \
        NG_HADAMARD_FORMATS(X, "16-over-4", 16, 2), NG_HADAMARD_FORMATS(X, "32-over-4", 32, 2),      \
        NG_HADAMARD_FORMATS(X, "32-over-8", 32, 3), NG_HADAMARD_FORMATS(X, "128-over-8", 128, 3),    \
        NG_HADAMARD_FORMATS(X, "128-over-16", 128, 4)

/* X(form, variant, size, shift, transposed only, element, scale, block rows, block columns, rule, 4over6, rounding, stochastic
 * form, random bits, determinism); bf16 in. -columns: the gradient path's pair, row-wise as it is for dgrad, column-wise
 * transformed for wgrad. */
#define NG_ROTATED_NEAREST(X, form, variant, n, shift, only, ...) \
    X(form, variant, n, shift, only, __VA_ARGS__, NG_4OVER6_OFF, NG_RN_EVEN, NG_SR_CARRY, 0, NG_DETERMINISTIC)
#define NG_ROTATED_RANDOM(X, form, variant, n, shift, only, ...) \
    X(form, variant "-sr8-carry", n, shift, only, __VA_ARGS__, NG_4OVER6_OFF, NG_R_STOCHASTIC, NG_SR_CARRY, 8, NG_GIVEN_SEED)
#define NG_ROTATED_BOTH(X, ...) NG_ROTATED_NEAREST(X, __VA_ARGS__), NG_ROTATED_RANDOM(X, __VA_ARGS__)
#define NG_ROTATED_NVFP4(X, variant, n, shift, only) \
    NG_ROTATED_BOTH(X, "nvfp4", "te-" variant, n, shift, only, NG_E2M1, NG_UE4M3, 1, 16, NG_SCALE_NVFP4_TE)
#define NG_ROTATED_MXFP4(X, variant, n, shift, only) \
    NG_ROTATED_BOTH(X, "mxfp4", "round-up-" variant, n, shift, only, NG_E2M1, NG_E8M0, 1, 32, NG_SCALE_MX_ROUND_UP)
#define NG_ROTATED_ROWS(X)                                                                                       \
    NG_ROTATED_NVFP4(X, "rht4", 4, 1, false), NG_ROTATED_NVFP4(X, "rht16", 16, 2, false),                        \
        NG_ROTATED_NVFP4(X, "rht16-columns", 16, 2, true), NG_ROTATED_NVFP4(X, "rht32", 32, 2, false),           \
        NG_ROTATED_NVFP4(X, "rht32-second", 32, 3, false), NG_ROTATED_NVFP4(X, "rht128", 128, 3, false),         \
        NG_ROTATED_NVFP4(X, "rht128-second", 128, 4, false), NG_ROTATED_MXFP4(X, "rht32", 32, 2, false),         \
        NG_ROTATED_MXFP4(X, "rht32-second", 32, 3, false)

#endif
