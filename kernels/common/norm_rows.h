/* Which norms a backend has, one row each; see rows.h. Names: layernorm/<in>-><out>/<backend>/<variant>, and
 * layernorm-backward/<format>/<backend>/<variant>; the variant begins with the parameters' format ("fp32-params"). */
#ifndef NG_KERNELS_COMMON_NORM_ROWS_H
#define NG_KERNELS_COMMON_NORM_ROWS_H

#include "kernels/common/forms.h"
#include "kernels/kernel.h"

/* How the result is stored, by form: the cast, and the quantization. */
#define NG_NORM_CAST {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL}
#define NG_NORM_CAST_PLAIN NG_NORM_CAST
#define NG_NORM_CAST_E4M3 NG_ELEMENT_CAST(NG_E4M3, NG_RN_EVEN, NG_SR_CARRY, 0)
#define NG_NORM_CAST_MXFP8 NG_NORM_CAST_E4M3
#define NG_NORM_CAST_NVFP4 NG_ELEMENT_CAST(NG_E2M1, NG_RN_EVEN, NG_SR_CARRY, 0)
#define NG_NORM_NEAREST(e, s, rows, columns, rule) NG_QUANTIZATION(e, s, rows, columns, rule, NG_4OVER6_OFF, NG_RN_EVEN, NG_SR_CARRY, 0)
#define NG_NORM_QUANTIZATION_PLAIN {.rule = NG_SCALE_ABSENT}
#define NG_NORM_QUANTIZATION_E4M3 NG_NORM_NEAREST(NG_E4M3, NG_FP32, 0, 0, NG_SCALE_GIVEN)
#define NG_NORM_QUANTIZATION_MXFP8 NG_NORM_NEAREST(NG_E4M3, NG_E8M0, 1, 32, NG_SCALE_MX_ROUND_UP)
#define NG_NORM_QUANTIZATION_NVFP4 NG_NORM_NEAREST(NG_E2M1, NG_UE4M3, 1, 16, NG_SCALE_NVFP4_TE)

/* The catalogue defines NG_NORM_FORWARD(operation, kind, in name, in, out name, out, variant, parameters, zero-centred,
 * residual, form) and NG_NORM_BACKWARD(operation, kind, name, format, variant, parameters,
 * zero-centred, from output), and uses NG_NORM_FORWARD_ROWS and NG_NORM_BACKWARD_ROWS. */
#define NG_NORM_PLAIN_ROW(o, k, i, I, variant, P, zero, residual)                                                       \
    NG_NORM_FORWARD(o, k, i, I, i, I, variant, P, zero, residual, PLAIN)
#define NG_NORM_QUANTIZED_ROWS(o, k, i, I, variant, P, residual)                                                        \
    NG_NORM_FORWARD(o, k, i, I, "e4m3", NG_E4M3, variant, P, false, residual, E4M3) \
    NG_NORM_FORWARD(o, k, i, I, "mxfp8", NG_E4M3, variant, P, false, residual, MXFP8) \
    NG_NORM_FORWARD(o, k, i, I, "nvfp4", NG_E2M1, variant, P, false, residual, NVFP4)
#define NG_NORM_FORWARD_OF(o, k)                                                                                        \
    NG_NORM_PLAIN_ROW(o, k, "fp32", NG_FP32, "fp32-params", NG_FP32, false, false)                                      \
    NG_NORM_PLAIN_ROW(o, k, "bf16", NG_BF16, "fp32-params", NG_FP32, false, false)                                      \
    NG_NORM_PLAIN_ROW(o, k, "fp16", NG_FP16, "fp32-params", NG_FP32, false, false)                                      \
    NG_NORM_PLAIN_ROW(o, k, "bf16", NG_BF16, "bf16-params", NG_BF16, false, false)                                      \
    NG_NORM_PLAIN_ROW(o, k, "fp16", NG_FP16, "fp16-params", NG_FP16, false, false)                                      \
    NG_NORM_PLAIN_ROW(o, k, "bf16", NG_BF16, "fp32-params-zero-centered", NG_FP32, true, false)                         \
    NG_NORM_PLAIN_ROW(o, k, "bf16", NG_BF16, "bf16-params-zero-centered", NG_BF16, true, false)                         \
    NG_NORM_PLAIN_ROW(o, k, "fp32", NG_FP32, "fp32-params-residual", NG_FP32, false, true)                              \
    NG_NORM_PLAIN_ROW(o, k, "bf16", NG_BF16, "fp32-params-residual", NG_FP32, false, true)                              \
    NG_NORM_FORWARD(o, k, "fp32", NG_FP32, "bf16", NG_BF16, "fp32-params", NG_FP32, false, false, PLAIN) \
    NG_NORM_QUANTIZED_ROWS(o, k, "bf16", NG_BF16, "fp32-params", NG_FP32, false)                                        \
    NG_NORM_QUANTIZED_ROWS(o, k, "bf16", NG_BF16, "fp32-params-residual", NG_FP32, true)
#define NG_NORM_FORWARD_ROWS NG_NORM_FORWARD_OF("layernorm", NG_LAYER_NORM) NG_NORM_FORWARD_OF("rmsnorm", NG_RMS_NORM)

/* Baselines: what the fused forward does, as a chain of kernels that each read and write whole tensors. */
#define NG_NORM_UNFUSED_OF(o, k)                                                                                        \
    NG_NORM_PLAIN_ROW(o, k, "bf16", NG_BF16, "fp32-params-unfused", NG_FP32, false, false)                              \
    NG_NORM_PLAIN_ROW(o, k, "bf16", NG_BF16, "fp32-params-residual-unfused", NG_FP32, false, true)
#define NG_NORM_UNFUSED_ROWS NG_NORM_UNFUSED_OF("layernorm", NG_LAYER_NORM) NG_NORM_UNFUSED_OF("rmsnorm", NG_RMS_NORM)

#define NG_NORM_BACKWARD_OF(o, k)                                                                                       \
    NG_NORM_BACKWARD(o, k, "fp32", NG_FP32, "fp32-params", NG_FP32, false, false)                                       \
    NG_NORM_BACKWARD(o, k, "bf16", NG_BF16, "fp32-params", NG_FP32, false, false)                                       \
    NG_NORM_BACKWARD(o, k, "fp16", NG_FP16, "fp32-params", NG_FP32, false, false)                                       \
    NG_NORM_BACKWARD(o, k, "bf16", NG_BF16, "bf16-params", NG_BF16, false, false)                                       \
    NG_NORM_BACKWARD(o, k, "fp16", NG_FP16, "fp16-params", NG_FP16, false, false)                                       \
    NG_NORM_BACKWARD(o, k, "bf16", NG_BF16, "fp32-params-zero-centered", NG_FP32, true, false)                          \
    NG_NORM_BACKWARD(o, k, "fp32", NG_FP32, "fp32-params-from-output", NG_FP32, false, true)                            \
    NG_NORM_BACKWARD(o, k, "bf16", NG_BF16, "fp32-params-from-output", NG_FP32, false, true)                            \
    NG_NORM_BACKWARD(o, k, "bf16", NG_BF16, "fp32-params-zero-centered-from-output", NG_FP32, true, true)
#define NG_NORM_BACKWARD_ROWS NG_NORM_BACKWARD_OF("layernorm-backward", NG_LAYER_NORM) NG_NORM_BACKWARD_OF("rmsnorm-backward", NG_RMS_NORM)

#define NG_NORM_CONTRACT_FORWARD(k, P, zero, residual_, form)                                                           \
    {.cast = NG_NORM_CAST_##form, .quantization = NG_NORM_QUANTIZATION_##form, .determinism = NG_DETERMINISTIC,          \
     .norm = {.kind = k, .order = NG_NORM_LANES, .parameters = P, .zero_centered = zero, .residual = residual_}}
#define NG_NORM_CONTRACT_BACKWARD(k, P, zero, output)                                                                   \
    {.cast = NG_NORM_CAST, .determinism = NG_DETERMINISTIC,                                                             \
     .norm = {.kind = k, .order = NG_NORM_LANES, .parameters = P, .zero_centered = zero, .from_output = output}}

#endif
