/* Which kernels a backend has, one row each: what the CPU's and CUDA's catalogues are made from, so that a kernel of
 * one name has one contract on both. A catalogue passes a macro that makes a descriptor of a row; each list says what
 * it gets. */
#ifndef NG_KERNELS_COMMON_ROWS_H
#define NG_KERNELS_COMMON_ROWS_H

#include "kernels/common/forms.h"

/* X(in name, in, out name, out, mode name, rounding, stochastic form, random bits, "sat" or "nosat", saturate, NaN
 * rule, determinism) */
#define NG_CAST_MODE(X, i, I, o, O, mode, how, sat, does, nan)                                                         \
    X(i, I, o, O, mode, how, 0, 0, sat, does, nan, NG_DETERMINISTIC)
#define NG_CAST_MODES(X, i, I, o, O, sat, does, nan)                                                                   \
    NG_CAST_MODE(X, i, I, o, O, "rne", NG_RN_EVEN, sat, does, nan),                                                    \
        NG_CAST_MODE(X, i, I, o, O, "rna", NG_RN_AWAY, sat, does, nan),                                                \
        NG_CAST_MODE(X, i, I, o, O, "rz", NG_R_ZERO, sat, does, nan),                                                  \
        NG_CAST_MODE(X, i, I, o, O, "ru", NG_R_UP, sat, does, nan),                                                    \
        NG_CAST_MODE(X, i, I, o, O, "ra", NG_R_AWAY, sat, does, nan)
#define NG_CAST_BOTH(X, i, I, o, O)                                                                                    \
    NG_CAST_MODES(X, i, I, o, O, "sat", true, NG_NAN_CANONICAL),                                                       \
        NG_CAST_MODES(X, i, I, o, O, "nosat", false, NG_NAN_CANONICAL)
#define NG_CAST_SCALE_E8M0(X, i, I)                                                                                    \
    NG_CAST_MODE(X, i, I, "e8m0", NG_E8M0, "rne", NG_RN_EVEN, "sat", true, NG_NAN_CANONICAL),                          \
        NG_CAST_MODE(X, i, I, "e8m0", NG_E8M0, "rne", NG_RN_EVEN, "nosat", false, NG_NAN_CANONICAL),                   \
        NG_CAST_MODE(X, i, I, "e8m0", NG_E8M0, "rz", NG_R_ZERO, "sat", true, NG_NAN_CANONICAL),                        \
        NG_CAST_MODE(X, i, I, "e8m0", NG_E8M0, "rz", NG_R_ZERO, "nosat", false, NG_NAN_CANONICAL),                     \
        NG_CAST_MODE(X, i, I, "e8m0", NG_E8M0, "ru", NG_R_UP, "sat", true, NG_NAN_CANONICAL),                          \
        NG_CAST_MODE(X, i, I, "e8m0", NG_E8M0, "ru", NG_R_UP, "nosat", false, NG_NAN_CANONICAL)
#define NG_CAST_NARROW(X, i, I)                                                                                        \
    NG_CAST_BOTH(X, i, I, "e4m3", NG_E4M3), NG_CAST_BOTH(X, i, I, "e5m2", NG_E5M2),                                    \
        NG_CAST_MODES(X, i, I, "e3m2", NG_E3M2, "sat", true, NG_NAN_MAX),                                              \
        NG_CAST_MODES(X, i, I, "e2m3", NG_E2M3, "sat", true, NG_NAN_MAX),                                              \
        NG_CAST_MODES(X, i, I, "e2m1", NG_E2M1, "sat", true, NG_NAN_MAX),                                              \
        NG_CAST_MODES(X, i, I, "ue4m3", NG_UE4M3, "sat", true, NG_NAN_CANONICAL), NG_CAST_SCALE_E8M0(X, i, I)
#define NG_CAST_HALVES(X, i, I)                                                                                        \
    NG_CAST_BOTH(X, i, I, "tf32", NG_TF32), NG_CAST_BOTH(X, i, I, "bf16", NG_BF16),                                    \
        NG_CAST_BOTH(X, i, I, "fp16", NG_FP16)
#define NG_CAST_RANDOM(X, i, I, o, O, bits, r, sat, does, nan)                                                         \
    X(i, I, o, O, "sr" bits "-carry", NG_R_STOCHASTIC, NG_SR_CARRY, r, sat, does, nan, NG_GIVEN_SEED),                 \
        X(i, I, o, O, "sr" bits "-half", NG_R_STOCHASTIC, NG_SR_HALF, r, sat, does, nan, NG_GIVEN_SEED),               \
        X(i, I, o, O, "sr" bits "-unbiased", NG_R_STOCHASTIC, NG_SR_UNBIASED, r, sat, does, nan, NG_GIVEN_SEED)
#define NG_CAST_RANDOMS(X, i, I)                                                                                       \
    NG_CAST_RANDOM(X, i, I, "e2m1", NG_E2M1, "4", 4, "sat", true, NG_NAN_MAX),                                         \
        NG_CAST_RANDOM(X, i, I, "e2m1", NG_E2M1, "8", 8, "sat", true, NG_NAN_MAX),                                     \
        NG_CAST_RANDOM(X, i, I, "e2m1", NG_E2M1, "16", 16, "sat", true, NG_NAN_MAX),                                   \
        NG_CAST_RANDOM(X, i, I, "e4m3", NG_E4M3, "8", 8, "sat", true, NG_NAN_CANONICAL),                               \
        NG_CAST_RANDOM(X, i, I, "e4m3", NG_E4M3, "16", 16, "sat", true, NG_NAN_CANONICAL),                             \
        NG_CAST_RANDOM(X, i, I, "e5m2", NG_E5M2, "8", 8, "sat", true, NG_NAN_CANONICAL),                               \
        NG_CAST_RANDOM(X, i, I, "e5m2", NG_E5M2, "16", 16, "sat", true, NG_NAN_CANONICAL)
#define NG_CAST_ROWS(X)                                                                                                \
    NG_CAST_NARROW(X, "fp64", NG_FP64), NG_CAST_HALVES(X, "fp64", NG_FP64), NG_CAST_NARROW(X, "fp32", NG_FP32),        \
        NG_CAST_HALVES(X, "fp32", NG_FP32), NG_CAST_RANDOMS(X, "fp32", NG_FP32),                                       \
        NG_CAST_RANDOM(X, "fp32", NG_FP32, "bf16", NG_BF16, "8", 8, "nosat", false, NG_NAN_CANONICAL),                 \
        NG_CAST_RANDOM(X, "fp32", NG_FP32, "bf16", NG_BF16, "16", 16, "nosat", false, NG_NAN_CANONICAL),               \
        NG_CAST_NARROW(X, "bf16", NG_BF16), NG_CAST_RANDOMS(X, "bf16", NG_BF16), NG_CAST_NARROW(X, "fp16", NG_FP16)

/* The catalogue defines NG_QUANTIZE_ROW(in name, in, form, variant, element, scale, block rows, block columns, rule,
 * 4over6, rounding, stochastic form, random bits, determinism), and uses NG_QUANTIZE_ROWS. */
#define NG_QUANTIZE_NEAREST(i, I, form, variant, e, s, rows, columns, rule, over)                                      \
    NG_QUANTIZE_ROW(i, I, form, variant, e, s, rows, columns, rule, over, NG_RN_EVEN, NG_SR_CARRY, 0, NG_DETERMINISTIC)
#define NG_QUANTIZE_FORM(...)                                                                                          \
    NG_QUANTIZE_NEAREST("fp32", NG_FP32, __VA_ARGS__)                                                                  \
    NG_QUANTIZE_NEAREST("bf16", NG_BF16, __VA_ARGS__) NG_QUANTIZE_NEAREST("fp16", NG_FP16, __VA_ARGS__)
#define NG_QUANTIZE_STOCHASTIC(i, I, sr, how, bits, form, variant, e, s, rows, columns, rule, over)                    \
    NG_QUANTIZE_ROW(i, I, form, variant "-" sr, e, s, rows, columns, rule, over, NG_R_STOCHASTIC, how, bits,           \
                    NG_GIVEN_SEED)
#define NG_QUANTIZE_RANDOM(...)                                                                                        \
    NG_QUANTIZE_STOCHASTIC("fp32", NG_FP32, __VA_ARGS__) NG_QUANTIZE_STOCHASTIC("bf16", NG_BF16, __VA_ARGS__)
#define NG_QUANTIZE_RANDOMS(...)                                                                                       \
    NG_QUANTIZE_RANDOM("sr8-carry", NG_SR_CARRY, 8, __VA_ARGS__)                                                       \
    NG_QUANTIZE_RANDOM("sr8-half", NG_SR_HALF, 8, __VA_ARGS__)                                                         \
    NG_QUANTIZE_RANDOM("sr8-unbiased", NG_SR_UNBIASED, 8, __VA_ARGS__)
#define NG_QUANTIZE_ROWS                                                                                               \
    NG_FORMS(NG_QUANTIZE_FORM)                                                                                         \
    NG_QUANTIZE_RANDOMS("e5m2", "max-over-amax", NG_E5M2, NG_FP32, 0, 0, NG_SCALE_MAX_OVER_AMAX, NG_4OVER6_OFF)        \
    NG_QUANTIZE_RANDOMS("mxfp8", "round-up", NG_E4M3, NG_E8M0, 1, 32, NG_SCALE_MX_ROUND_UP, NG_4OVER6_OFF)             \
    NG_QUANTIZE_RANDOMS("mxfp4", "round-up", NG_E2M1, NG_E8M0, 1, 32, NG_SCALE_MX_ROUND_UP, NG_4OVER6_OFF)             \
    NG_QUANTIZE_RANDOMS("nvfp4", "paper", NG_E2M1, NG_UE4M3, 1, 16, NG_SCALE_NVFP4_PAPER, NG_4OVER6_OFF)               \
    NG_QUANTIZE_RANDOMS("nvfp4", "te", NG_E2M1, NG_UE4M3, 1, 16, NG_SCALE_NVFP4_TE, NG_4OVER6_OFF)                     \
    NG_QUANTIZE_RANDOM("sr8-carry", NG_SR_CARRY, 8, "nvfp4-4over6-mae", "te", NG_E2M1, NG_UE4M3, 1, 16,                \
                       NG_SCALE_NVFP4_TE, NG_4OVER6_MAE)

/* X(form, element, scale, block rows, block columns, rule, out name, out). One kernel a form: a tensor does not show by
 * which rule its scales were chosen. */
#define NG_DEQUANTIZE_FORM(X, ...) X(__VA_ARGS__, "fp32", NG_FP32), X(__VA_ARGS__, "bf16", NG_BF16)
#define NG_DEQUANTIZE_ROWS(X)                                                                                          \
    NG_DEQUANTIZE_FORM(X, "e4m3", NG_E4M3, NG_FP32, 0, 0, NG_SCALE_MAX_OVER_AMAX),                                     \
        NG_DEQUANTIZE_FORM(X, "e5m2", NG_E5M2, NG_FP32, 0, 0, NG_SCALE_MAX_OVER_AMAX),                                 \
        NG_DEQUANTIZE_FORM(X, "e4m3-row", NG_E4M3, NG_FP32, 1, 0, NG_SCALE_MAX_OVER_AMAX),                             \
        NG_DEQUANTIZE_FORM(X, "e5m2-row", NG_E5M2, NG_FP32, 1, 0, NG_SCALE_MAX_OVER_AMAX),                             \
        NG_DEQUANTIZE_FORM(X, "e4m3-1x128", NG_E4M3, NG_FP32, 1, 128, NG_SCALE_AMAX_OVER_MAX),                         \
        NG_DEQUANTIZE_FORM(X, "e5m2-1x128", NG_E5M2, NG_FP32, 1, 128, NG_SCALE_AMAX_OVER_MAX),                         \
        NG_DEQUANTIZE_FORM(X, "e4m3-128x128", NG_E4M3, NG_FP32, 128, 128, NG_SCALE_AMAX_OVER_MAX),                     \
        NG_DEQUANTIZE_FORM(X, "e5m2-128x128", NG_E5M2, NG_FP32, 128, 128, NG_SCALE_AMAX_OVER_MAX),                     \
        NG_DEQUANTIZE_FORM(X, "mxfp8", NG_E4M3, NG_E8M0, 1, 32, NG_SCALE_MX_ROUND_UP),                                 \
        NG_DEQUANTIZE_FORM(X, "mxfp8-e5m2", NG_E5M2, NG_E8M0, 1, 32, NG_SCALE_MX_ROUND_UP),                            \
        NG_DEQUANTIZE_FORM(X, "mxfp6-e3m2", NG_E3M2, NG_E8M0, 1, 32, NG_SCALE_MX_ROUND_UP),                            \
        NG_DEQUANTIZE_FORM(X, "mxfp6-e2m3", NG_E2M3, NG_E8M0, 1, 32, NG_SCALE_MX_ROUND_UP),                            \
        NG_DEQUANTIZE_FORM(X, "mxfp4", NG_E2M1, NG_E8M0, 1, 32, NG_SCALE_MX_ROUND_UP),                                 \
        NG_DEQUANTIZE_FORM(X, "nvfp4", NG_E2M1, NG_UE4M3, 1, 16, NG_SCALE_NVFP4_PAPER),                                \
        NG_DEQUANTIZE_FORM(X, "nvfp4-16x16", NG_E2M1, NG_UE4M3, 16, 16, NG_SCALE_NVFP4_PAPER)

/* The catalogue defines NG_GEMM_CHAIN(form, out name, suffix, a, b, out, quantization of a, of b, scale place, fused,
 *   accumulate into) and NG_GEMM_PAIRWISE(the same with the leaf before the scale place), either of which may be empty,
 * and uses NG_GEMM_ROWS. */
/* Leaves: 32 terms of K, or 8 inside a scale block. */
#define NG_GEMM_ORDERS(form, a, b, out_name, out, qa, qb, leaf, place, fused)                                          \
    NG_GEMM_CHAIN(form, out_name, "", a, b, out, qa, qb, place, fused, false)                                          \
    NG_GEMM_PAIRWISE(form, out_name, "", a, b, out, qa, qb, leaf, place, fused, false)
#define NG_GEMM_ACCUMULATED(form, a, b, qa, qb, leaf, place, fused)                                                    \
    NG_GEMM_CHAIN(form, "fp32", "-acc", a, b, NG_FP32, qa, qb, place, fused, true)                                     \
    NG_GEMM_PAIRWISE(form, "fp32", "-acc", a, b, NG_FP32, qa, qb, leaf, place, fused, true)

#define NG_GEMM_PLAIN_Q(format)                                                                                        \
    { .element = format, .scale = NG_NO_FORMAT }
#define NG_GEMM_PLAIN(form, format, out_name, out, fused)                                                              \
    NG_GEMM_ORDERS(form, format, format, out_name, out, NG_GEMM_PLAIN_Q, NG_GEMM_PLAIN_Q, 32, NG_SCALES_NONE, fused)

#define NG_GEMM_SCALED(form, a, b, qa, qb, leaf, place)                                                                \
    NG_GEMM_ORDERS(form, a, b, "bf16", NG_BF16, qa, qb, leaf, place, false)                                            \
    NG_GEMM_ORDERS(form, a, b, "fp32", NG_FP32, qa, qb, leaf, place, false)
#define NG_GEMM_MX(form, e) NG_GEMM_SCALED(form, e, e, NG_GEMM_MX_Q, NG_GEMM_MX_Q, 8, NG_SCALES_BLOCK_SEQUENTIAL)

/* How an operand with elements e is quantized; GEMM applies them to its formats. */
#define NG_GEMM_NEAREST_Q(e, scale, rows, columns, rule)                                                               \
    NG_QUANTIZATION(e, scale, rows, columns, rule, NG_4OVER6_OFF, NG_RN_EVEN, NG_SR_CARRY, 0)
#define NG_GEMM_TENSOR_Q(e)       NG_GEMM_NEAREST_Q(e, NG_FP32, 0, 0, NG_SCALE_MAX_OVER_AMAX)
#define NG_GEMM_ROW_Q(e)          NG_GEMM_NEAREST_Q(e, NG_FP32, 1, 0, NG_SCALE_MAX_OVER_AMAX)
#define NG_GEMM_LINE_Q(e)         NG_GEMM_NEAREST_Q(e, NG_FP32, 1, 128, NG_SCALE_AMAX_OVER_MAX)
#define NG_GEMM_SQUARE_Q(e)       NG_GEMM_NEAREST_Q(e, NG_FP32, 128, 128, NG_SCALE_AMAX_OVER_MAX)
#define NG_GEMM_MX_Q(e)           NG_GEMM_NEAREST_Q(e, NG_E8M0, 1, 32, NG_SCALE_MX_ROUND_UP)
#define NG_GEMM_NVFP4_Q(e)        NG_GEMM_NEAREST_Q(e, NG_UE4M3, 1, 16, NG_SCALE_NVFP4_PAPER)
#define NG_GEMM_NVFP4_SQUARE_Q(e) NG_GEMM_NEAREST_Q(e, NG_UE4M3, 16, 16, NG_SCALE_NVFP4_PAPER)

#define NG_GEMM_ROWS                                                                                                   \
    NG_GEMM_PLAIN("bf16", NG_BF16, "bf16", NG_BF16, true)                                                              \
    NG_GEMM_PLAIN("bf16", NG_BF16, "fp32", NG_FP32, true)                                                              \
    NG_GEMM_ACCUMULATED("bf16", NG_BF16, NG_BF16, NG_GEMM_PLAIN_Q, NG_GEMM_PLAIN_Q, 32, NG_SCALES_NONE, true)          \
    NG_GEMM_PLAIN("fp16", NG_FP16, "fp16", NG_FP16, false)                                                             \
    NG_GEMM_PLAIN("fp16", NG_FP16, "fp32", NG_FP32, false)                                                             \
    NG_GEMM_PLAIN("tf32", NG_TF32, "fp32", NG_FP32, true)                                                              \
    NG_GEMM_PLAIN("fp32", NG_FP32, "fp32", NG_FP32, true)                                                              \
    NG_GEMM_SCALED("e4m3", NG_E4M3, NG_E4M3, NG_GEMM_TENSOR_Q, NG_GEMM_TENSOR_Q, 32, NG_SCALES_AFTER)                  \
    NG_GEMM_ACCUMULATED("e4m3", NG_E4M3, NG_E4M3, NG_GEMM_TENSOR_Q, NG_GEMM_TENSOR_Q, 32, NG_SCALES_AFTER, false)      \
    NG_GEMM_SCALED("e5m2", NG_E5M2, NG_E5M2, NG_GEMM_TENSOR_Q, NG_GEMM_TENSOR_Q, 32, NG_SCALES_AFTER)                  \
    NG_GEMM_SCALED("e5m2-e4m3", NG_E5M2, NG_E4M3, NG_GEMM_TENSOR_Q, NG_GEMM_TENSOR_Q, 32, NG_SCALES_AFTER)             \
    NG_GEMM_SCALED("e4m3-e5m2", NG_E4M3, NG_E5M2, NG_GEMM_TENSOR_Q, NG_GEMM_TENSOR_Q, 32, NG_SCALES_AFTER)             \
    NG_GEMM_SCALED("e4m3-row", NG_E4M3, NG_E4M3, NG_GEMM_ROW_Q, NG_GEMM_ROW_Q, 32, NG_SCALES_AFTER)                    \
    NG_GEMM_SCALED("e4m3-128", NG_E4M3, NG_E4M3, NG_GEMM_LINE_Q, NG_GEMM_SQUARE_Q, 8, NG_SCALES_BLOCK_SEQUENTIAL)      \
    NG_GEMM_SCALED("e4m3-1x128", NG_E4M3, NG_E4M3, NG_GEMM_LINE_Q, NG_GEMM_LINE_Q, 8, NG_SCALES_BLOCK_SEQUENTIAL)      \
    NG_GEMM_MX("mxfp8", NG_E4M3)                                                                                       \
    NG_GEMM_MX("mxfp8-e5m2", NG_E5M2) NG_GEMM_MX("mxfp6-e3m2", NG_E3M2) NG_GEMM_MX("mxfp6-e2m3", NG_E2M3)              \
        NG_GEMM_MX("mxfp4", NG_E2M1)                                                                                   \
            NG_GEMM_SCALED("nvfp4", NG_E2M1, NG_E2M1, NG_GEMM_NVFP4_Q, NG_GEMM_NVFP4_Q, 8, NG_SCALES_BLOCK_SEQUENTIAL) \
                NG_GEMM_SCALED("nvfp4-16x16", NG_E2M1, NG_E2M1, NG_GEMM_NVFP4_Q, NG_GEMM_NVFP4_SQUARE_Q, 8,            \
                               NG_SCALES_BLOCK_SEQUENTIAL)

#endif
