/* Which kernels in binary64 a backend has, one row each; see rows.h. */
#ifndef NG_KERNELS_COMMON_FP64_ROWS_H
#define NG_KERNELS_COMMON_FP64_ROWS_H

#include "kernels/kernel.h"

#define NG_FP64_CAST {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL}
#define NG_FP64_CONTRACT(...) \
    {.cast = NG_FP64_CAST, .determinism = NG_DETERMINISTIC, .layer = {.compute = NG_FP64, .exp_error = 2}, __VA_ARGS__}

/* NG_FP64(first words of the name, operation, variant, members of the contract...) */
#define NG_FP64_NORM(name, kind_, zero, variant)                                                                        \
    NG_FP64(name "/fp64->fp64", NG_OP_NORM_FORWARD, variant, .norm = {.kind = kind_, .parameters = NG_FP64, .zero_centered = zero}) \
    NG_FP64(name "-backward/fp64", NG_OP_NORM_BACKWARD, variant, .norm = {.kind = kind_, .parameters = NG_FP64, .zero_centered = zero})
#define NG_FP64_ACTIVATION(name, kind_)                                                                                 \
    NG_FP64(name "/fp64->fp64", NG_OP_ACTIVATION, "plain", .activation = {kind_})                                      \
    NG_FP64(name "-backward/fp64", NG_OP_ACTIVATION_BACKWARD, "plain", .activation = {kind_})
#define NG_FP64_ROWS                                                                                                    \
    NG_FP64_NORM("layernorm", NG_LAYER_NORM, false, "fp64-params")                                                     \
    NG_FP64_NORM("layernorm", NG_LAYER_NORM, true, "fp64-params-zero-centered")                                        \
    NG_FP64_NORM("rmsnorm", NG_RMS_NORM, false, "fp64-params")                                                         \
    NG_FP64_NORM("rmsnorm", NG_RMS_NORM, true, "fp64-params-zero-centered")                                            \
    NG_FP64_ACTIVATION("swiglu", NG_SWIGLU)                                                                             \
    NG_FP64_ACTIVATION("gelu-tanh", NG_GELU_TANH)                                                                       \
    NG_FP64("cross-entropy/fp64", NG_OP_LOSS, "plain", .norm = {0})                                                    \
    NG_FP64("cross-entropy-backward/fp64", NG_OP_LOSS_BACKWARD, "plain", .norm = {0})

/* NG_FP64_OPTIMIZER(name, variant, kind, moments' format) */
#define NG_FP64_OPTIMIZER_ROWS                                             \
    NG_FP64_OPTIMIZER("adamw/fp64", "torch", NG_ADAMW_TORCH, NG_FP64)      \
    NG_FP64_OPTIMIZER("norm2/fp64", "chains", NG_NORM2, NG_NO_FORMAT)      \
    NG_FP64_OPTIMIZER("clip/fp64", "norm2", NG_CLIP, NG_NO_FORMAT)
#define NG_FP64_OPTIMIZER_CONTRACT(kind_, moments)                                     \
    {.cast = NG_FP64_CAST, .determinism = NG_DETERMINISTIC,                            \
     .optimizer = {kind_, NG_MASTER_NONE, moments, moments, true, false}, .layer = {.compute = NG_FP64}}

/* NG_FP64_GEMM(layout and out of the name, A transposed, B transposed, accumulates) */
#define NG_FP64_GEMM_ROWS                                   \
    NG_FP64_GEMM("fp64-out", false, false, false)           \
    NG_FP64_GEMM("nn/fp64-out", false, true, false)         \
    NG_FP64_GEMM("nt/fp64-out", true, true, false)          \
    NG_FP64_GEMM("nt/fp64-out-acc", true, true, true)
#define NG_FP64_PLAIN {.element = NG_FP64, .scale = NG_NO_FORMAT, .rule = NG_SCALE_ABSENT}
#define NG_FP64_GEMM_CONTRACT(at, bt, into)                                                                    \
    {.cast = NG_FP64_CAST, .a = NG_FP64_PLAIN, .b = NG_FP64_PLAIN, .sum = {.order = NG_SUM_FP64, .fused = true}, .accumulate_into = into, \
     .determinism = NG_DETERMINISTIC, .a_transposed = at, .b_transposed = bt, .layer = {.compute = NG_FP64}}

#endif
