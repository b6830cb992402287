/* Descriptors of hadamard.cu's and scale_update.cu's kernels, from the rows that the CPU's are made from, and of cast_rs.cu's. */
#include "kernels/catalogue.h"
#include "kernels/common/hadamard.h"
#include "kernels/common/scale_update.h"
#include "kernels/cuda/cuda.h"

#define HADAMARD(in_name, in_format, out_name, out_format, words, n, shift)                                       \
    {.name = "hadamard/" in_name "->" out_name "/cuda/" words, .op = NG_OP_HADAMARD, .backend = NG_BACKEND_CUDA,  \
     .in = in_format, .in_b = NG_NO_FORMAT, .out = out_format,                                                    \
     .contract = {.cast = {NG_RN_EVEN, NG_SR_CARRY, 0, false, NG_NAN_CANONICAL}, .determinism = NG_DETERMINISTIC, \
                  .hadamard = NG_HADAMARD(n, shift, false)},                                                      \
     .supports = ng_cuda_supports, .launch = ng_cuda_launch_hadamard}

#define ROTATED(form, variant, n, shift, only, element, scale, rows, columns, rule, over, how, sr, r, repeatable)      \
    {.name = "quantize/bf16->" form "/cuda/" variant, .op = NG_OP_QUANTIZE, .backend = NG_BACKEND_CUDA, .in = NG_BF16, \
     .in_b = NG_NO_FORMAT, .out = element,                                                                             \
     .contract = {.cast = NG_ELEMENT_CAST(element, how, sr, r),                                                        \
                  .quantization = NG_QUANTIZATION(element, scale, rows, columns, rule, over, how, sr, r),              \
                  .determinism = repeatable, .hadamard = NG_HADAMARD(n, shift, only)},                                 \
     .supports = ng_cuda_supports, .workspace = ng_cuda_rotated_workspace, .launch = ng_cuda_launch_rotated}

#define UPDATE(name_, element_, variant, margin_, recent)                                                                 \
    {.name = "scale-update/" name_ "/cuda/" variant, .op = NG_OP_SCALE_UPDATE, .backend = NG_BACKEND_CUDA, .in = NG_FP32, \
     .in_b = NG_NO_FORMAT, .out = NG_FP32,                                                                                \
     .contract = {.determinism = NG_DETERMINISTIC, .scale_update = {element_, margin_, recent}},                          \
     .supports = ng_cuda_supports, .launch = ng_cuda_launch_scale_update}

static const ng_kernel kernels[] = {
    NG_SCALE_UPDATE_ROWS(UPDATE), NG_HADAMARD_ROWS(HADAMARD), NG_ROTATED_ROWS(ROTATED),
    {.name = "cast/fp32->e2m1/cuda/sr8-carry-sat-cvt-rs", .op = NG_OP_CAST, .backend = NG_BACKEND_CUDA, .in = NG_FP32, .in_b = NG_NO_FORMAT, .out = NG_E2M1,
     .contract = {.cast = NG_ELEMENT_CAST(NG_E2M1, NG_R_STOCHASTIC, NG_SR_CARRY, 8), .determinism = NG_GIVEN_SEED},
     .supports = ng_cuda_supports_cast_rs, .launch = ng_cuda_launch_cast_rs},
};

const ng_kernel_list ng_cuda_hadamards = {kernels, sizeof kernels / sizeof *kernels};
