/* Which activations and losses a backend has, one row each; see rows.h. Names: swiglu/<in>-><out>/<backend>/<variant>,
 * swiglu-backward/<format>/<backend>/fused, cross-entropy/<format>/<backend>/fused ... */
#ifndef NG_KERNELS_COMMON_ACTIVATION_ROWS_H
#define NG_KERNELS_COMMON_ACTIVATION_ROWS_H

#include "kernels/common/norm_rows.h"

/* The catalogue defines NG_FORWARD(operation, kind, in name, in, out name, out, form), NG_UNFUSED (the same),
 * NG_BACKWARD(operation, kind, name, format), NG_LOSS(name, format), and uses NG_ACTIVATION_ROWS. Forms are norm_rows.h's. */
#define NG_ACTIVATION_OF(o, k)                                   \
    NG_FORWARD(o, k, "fp32", NG_FP32, "fp32", NG_FP32, PLAIN)    \
    NG_FORWARD(o, k, "bf16", NG_BF16, "bf16", NG_BF16, PLAIN)    \
    NG_FORWARD(o, k, "fp16", NG_FP16, "fp16", NG_FP16, PLAIN)    \
    NG_FORWARD(o, k, "bf16", NG_BF16, "e4m3", NG_E4M3, E4M3)     \
    NG_FORWARD(o, k, "bf16", NG_BF16, "mxfp8", NG_E4M3, MXFP8)   \
    NG_FORWARD(o, k, "bf16", NG_BF16, "nvfp4", NG_E2M1, NVFP4)   \
    NG_UNFUSED(o, k, "bf16", NG_BF16, "bf16", NG_BF16, PLAIN)    \
    NG_BACKWARD(o "-backward", k, "fp32", NG_FP32)               \
    NG_BACKWARD(o "-backward", k, "bf16", NG_BF16)               \
    NG_BACKWARD(o "-backward", k, "fp16", NG_FP16)
#define NG_ACTIVATION_ROWS                    \
    NG_ACTIVATION_OF("swiglu", NG_SWIGLU)     \
    NG_ACTIVATION_OF("gelu-tanh", NG_GELU_TANH) \
    NG_ACTIVATION_OF("gelu-erf", NG_GELU_ERF)
#define NG_LOSS_ROWS NG_LOSS("fp32", NG_FP32) NG_LOSS("bf16", NG_BF16) NG_LOSS("fp16", NG_FP16)

#define NG_ACTIVATION_CONTRACT(k, form) \
    {.cast = NG_NORM_CAST_##form, .quantization = NG_NORM_QUANTIZATION_##form, .determinism = NG_DETERMINISTIC, .activation = {k}}

#endif
