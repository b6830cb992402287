/* Which optimizers a backend has, one row each; see rows.h. Names: adamw/<parameters>/<backend>/<variant>, the variant being the
 * decay order, then what is not plain: the master, the moments. */
#ifndef NG_KERNELS_COMMON_OPTIMIZER_ROWS_H
#define NG_KERNELS_COMMON_OPTIMIZER_ROWS_H

#include "kernels/common/forms.h"
#include "kernels/kernel.h"

/* The catalogue defines NG_ADAM(operation, name, parameters, gradients, variant, kind, master, moment 1, moment 2, correction,
 * capturable) and NG_STEP(name, format, variant, kind), and uses NG_ADAM_ROWS and NG_STEP_ROWS. */
#define NG_ADAM_PLAIN(o, i, I, variant, kind) \
    NG_ADAM(o, i, I, I, variant, kind, NG_MASTER_NONE, NG_FP32, NG_FP32, true, false)
#define NG_ADAM_KINDS(i, I)                               \
    NG_ADAM_PLAIN("adam", i, I, "l2", NG_ADAM_L2)         \
    NG_ADAM_PLAIN("adamw", i, I, "torch", NG_ADAMW_TORCH) \
    NG_ADAM_PLAIN("adamw", i, I, "apex", NG_ADAMW_APEX)
#define NG_ADAM_MOMENTS(i, I, G, variant, master, kind)                                                          \
    NG_ADAM("adamw", i, I, G, variant "-bf16-moments", kind, master, NG_BF16, NG_BF16, true, false)              \
    NG_ADAM("adamw", i, I, G, variant "-fp8-moments", kind, master, NG_E4M3, NG_E5M2, true, false)               \
    NG_ADAM("adamw", i, I, G, variant "-fp8-bf16-moments", kind, master, NG_E4M3, NG_BF16, true, false)
#define NG_ADAM_ROWS                                                                                                              \
    NG_ADAM_KINDS("fp32", NG_FP32) NG_ADAM_KINDS("bf16", NG_BF16) NG_ADAM_KINDS("fp16", NG_FP16)                                  \
    NG_ADAM("adamw", "fp32", NG_FP32, NG_FP32, "torch-uncorrected", NG_ADAMW_TORCH, NG_MASTER_NONE, NG_FP32, NG_FP32, false, false) \
    NG_ADAM("adam", "fp32", NG_FP32, NG_FP32, "l2-uncorrected", NG_ADAM_L2, NG_MASTER_NONE, NG_FP32, NG_FP32, false, false)       \
    NG_ADAM("adamw", "fp32", NG_FP32, NG_FP32, "torch-capturable", NG_ADAMW_TORCH, NG_MASTER_NONE, NG_FP32, NG_FP32, true, true)  \
    NG_ADAM("adamw", "fp32", NG_FP32, NG_FP32, "apex-capturable", NG_ADAMW_APEX, NG_MASTER_NONE, NG_FP32, NG_FP32, true, true)    \
    NG_ADAM("adamw", "fp32", NG_FP32, NG_BF16, "torch-bf16-gradients", NG_ADAMW_TORCH, NG_MASTER_NONE, NG_FP32, NG_FP32, true, false) \
    NG_ADAM("adamw", "bf16", NG_BF16, NG_BF16, "torch-master", NG_ADAMW_TORCH, NG_MASTER_FP32, NG_FP32, NG_FP32, true, false)     \
    NG_ADAM("adamw", "bf16", NG_BF16, NG_BF16, "apex-master", NG_ADAMW_APEX, NG_MASTER_FP32, NG_FP32, NG_FP32, true, false)       \
    NG_ADAM("adamw", "fp16", NG_FP16, NG_FP16, "torch-master", NG_ADAMW_TORCH, NG_MASTER_FP32, NG_FP32, NG_FP32, true, false)     \
    NG_ADAM("adamw", "bf16", NG_BF16, NG_FP32, "torch-master-fp32-gradients", NG_ADAMW_TORCH, NG_MASTER_FP32, NG_FP32, NG_FP32, true, false) \
    NG_ADAM("adamw", "bf16", NG_BF16, NG_BF16, "torch-remainder", NG_ADAMW_TORCH, NG_MASTER_REMAINDER, NG_FP32, NG_FP32, true, false) \
    NG_ADAM("adamw", "bf16", NG_BF16, NG_BF16, "apex-remainder", NG_ADAMW_APEX, NG_MASTER_REMAINDER, NG_FP32, NG_FP32, true, false) \
    NG_ADAM_MOMENTS("fp32", NG_FP32, NG_FP32, "torch", NG_MASTER_NONE, NG_ADAMW_TORCH)                                            \
    NG_ADAM_MOMENTS("bf16", NG_BF16, NG_BF16, "apex-master", NG_MASTER_FP32, NG_ADAMW_APEX)

#define NG_STEP_ROWS                                                                            \
    NG_STEP("unscale", "fp32", NG_FP32, "checked", NG_UNSCALE)                                   \
    NG_STEP("unscale", "bf16", NG_BF16, "checked", NG_UNSCALE)                                   \
    NG_STEP("unscale", "fp16", NG_FP16, "checked", NG_UNSCALE)                                   \
    NG_STEP("scaler", "fp32", NG_FP32, "dynamic", NG_SCALER)                                     \
    NG_STEP("norm2", "fp32", NG_FP32, "fp64-sum", NG_NORM2)                                      \
    NG_STEP("norm2", "bf16", NG_BF16, "fp64-sum", NG_NORM2)                                      \
    NG_STEP("norm2", "fp16", NG_FP16, "fp64-sum", NG_NORM2)                                      \
    NG_STEP("clip", "fp32", NG_FP32, "norm2", NG_CLIP)                                           \
    NG_STEP("clip", "bf16", NG_BF16, "norm2", NG_CLIP)                                           \
    NG_STEP("clip", "fp16", NG_FP16, "norm2", NG_CLIP)

#define NG_OPTIMIZER_CAST {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL}
/* in: the gradients' format; out: the parameters'. */
#define NG_ADAM_CONTRACT(kind_, master_, m1, m2, correction, capturable_)             \
    {.cast = NG_OPTIMIZER_CAST, .determinism = NG_DETERMINISTIC,                      \
     .optimizer = {kind_, master_, m1, m2, correction, capturable_}}
#define NG_STEP_CONTRACT(kind_)                                                       \
    {.cast = NG_OPTIMIZER_CAST, .determinism = NG_DETERMINISTIC,                      \
     .optimizer = {kind_, NG_MASTER_NONE, NG_NO_FORMAT, NG_NO_FORMAT, false, false}}

#endif
