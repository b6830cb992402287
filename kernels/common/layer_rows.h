/* Which kernels of a Transformer's other operations a backend has, one row each; see rows.h. Names: <operation>/<format>/<backend>/<variant>. */
#ifndef NG_KERNELS_COMMON_LAYER_ROWS_H
#define NG_KERNELS_COMMON_LAYER_ROWS_H

#include "kernels/kernel.h"

#define NG_LAYER_CAST {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL}
#define NG_LAYER_CONTRACT(...) {.cast = NG_LAYER_CAST, .determinism = NG_DETERMINISTIC, .layer = {__VA_ARGS__}}

/* NG_ATTENTION(name, operation, format, format's name, variant, layer's members...) */
#define NG_ATTENTION_BOTH(name, format, variant, ...)                                                                  \
    NG_ATTENTION("attention-forward", NG_OP_ATTENTION_FORWARD, name, format, variant, __VA_ARGS__)                     \
    NG_ATTENTION("attention-backward", NG_OP_ATTENTION_BACKWARD, name, format, variant, __VA_ARGS__)
#define NG_ATTENTION_ROWS                                                                                              \
    NG_ATTENTION_BOTH("fp64", NG_FP64, "causal", .compute = NG_FP64, .causal = true, .exp_error = 2)                   \
    NG_ATTENTION_BOTH("fp32", NG_FP32, "causal", .compute = NG_FP32, .causal = true, .exp_error = 2)                   \
    NG_ATTENTION_BOTH("bf16", NG_BF16, "causal", .compute = NG_FP32, .causal = true, .exp_error = 2)                   \
    NG_ATTENTION_BOTH("fp16", NG_FP16, "causal", .compute = NG_FP32, .causal = true, .exp_error = 2)

/* NG_ROPE, NG_ADD, NG_TRANSPOSE, NG_EMBEDDING (forward), NG_EMBEDDING_BACKWARD: (name, format, what it computes in, variant[, inverse]) */
#define NG_LAYER_FORMAT(name, format, real)                  \
    NG_ROPE(name, format, real, "forward", false)            \
    NG_ROPE(name, format, real, "inverse", true)             \
    NG_ADD(name, format, real, "rne")                        \
    NG_TRANSPOSE(name, format, format, "copy")               \
    NG_EMBEDDING(name, format, real, "gather")               \
    NG_EMBEDDING_BACKWARD(name, format, real, "chain")
#define NG_LAYER_ROWS                                        \
    NG_LAYER_FORMAT("fp64", NG_FP64, NG_FP64)                \
    NG_LAYER_FORMAT("fp32", NG_FP32, NG_FP32)                \
    NG_LAYER_FORMAT("bf16", NG_BF16, NG_FP32)                \
    NG_LAYER_FORMAT("fp16", NG_FP16, NG_FP32)                \
    NG_TRANSPOSE("tf32", NG_TF32, NG_TF32, "copy")

#endif
