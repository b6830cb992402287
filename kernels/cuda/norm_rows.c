/* The CUDA norms' descriptors, from the rows that the CPU's are made from. */
#include "kernels/catalogue.h"
#include "kernels/common/norm_rows.h"
#include "kernels/cuda/cuda.h"

#define DESCRIBE(o, k, i, I, o_, O, variant, P, zero, residual, form, launcher, bytes)                                    \
    {.name = o "/" i "->" o_ "/cuda/" variant, .op = NG_OP_NORM_FORWARD, .backend = NG_BACKEND_CUDA, .in = I,             \
     .in_b = NG_NO_FORMAT, .out = O, .contract = NG_NORM_CONTRACT_FORWARD(k, P, zero, residual, form),                    \
     .supports = ng_cuda_supports, .workspace = bytes, .launch = launcher},
#define NG_NORM_BACKWARD(o, k, i, I, variant, P, zero, output)                                                            \
    {.name = o "/" i "/cuda/" variant, .op = NG_OP_NORM_BACKWARD, .backend = NG_BACKEND_CUDA, .in = I,                    \
     .in_b = NG_NO_FORMAT, .out = I, .contract = NG_NORM_CONTRACT_BACKWARD(k, P, zero, output),                           \
     .supports = ng_cuda_supports, .workspace = ng_cuda_norm_backward_workspace, .launch = ng_cuda_launch_norm_backward},

static const ng_kernel kernels[] = {
#define NG_NORM_FORWARD(...) DESCRIBE(__VA_ARGS__, ng_cuda_launch_norm, NULL)
    NG_NORM_FORWARD_ROWS
#undef NG_NORM_FORWARD
#define NG_NORM_FORWARD(...) DESCRIBE(__VA_ARGS__, ng_cuda_launch_norm_unfused, ng_cuda_norm_unfused_workspace)
    NG_NORM_UNFUSED_ROWS
#undef NG_NORM_FORWARD
    NG_NORM_BACKWARD_ROWS
};

const ng_kernel_list ng_cuda_norms = {kernels, sizeof kernels / sizeof *kernels};
