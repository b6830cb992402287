/* The CUDA kernels in binary64, from the rows that the CPU's are made from. */
#include "kernels/common/fp64_rows.h"

#include "kernels/catalogue.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/fp64.h"

#define NG_FP64(name_, OPERATION, variant, ...)                                                                      \
    {.name = name_ "/cuda/" variant, .op = OPERATION, .backend = NG_BACKEND_CUDA, .in = NG_FP64, .in_b = NG_NO_FORMAT, .out = NG_FP64, \
     .contract = NG_FP64_CONTRACT(__VA_ARGS__), .supports = ng_cuda_supports, .launch = NG_FP64_LAUNCH_##OPERATION},
#define NG_FP64_LAUNCH_NG_OP_NORM_FORWARD ng_cuda_launch_norm64
#define NG_FP64_LAUNCH_NG_OP_NORM_BACKWARD ng_cuda_launch_norm64
#define NG_FP64_LAUNCH_NG_OP_ACTIVATION ng_cuda_launch_activation64
#define NG_FP64_LAUNCH_NG_OP_ACTIVATION_BACKWARD ng_cuda_launch_activation64
#define NG_FP64_LAUNCH_NG_OP_LOSS ng_cuda_launch_loss64
#define NG_FP64_LAUNCH_NG_OP_LOSS_BACKWARD ng_cuda_launch_loss64

#define NG_FP64_GEMM(suffix, at, bt, into)                                                                           \
    {.name = "gemm/fp64/cuda/fp64-chain/" suffix, .op = NG_OP_GEMM, .backend = NG_BACKEND_CUDA, .in = NG_FP64, .in_b = NG_FP64, \
     .out = NG_FP64, .contract = NG_FP64_GEMM_CONTRACT(at, bt, into), .supports = ng_cuda_supports, .launch = ng_cuda_launch_gemm64},

#define NG_FP64_OPTIMIZER(name_, variant, kind_, moments)                                                             \
    {.name = name_ "/cuda/" variant, .op = NG_OP_OPTIMIZER, .backend = NG_BACKEND_CUDA, .in = NG_FP64, .in_b = NG_NO_FORMAT, .out = NG_FP64, \
     .contract = NG_FP64_OPTIMIZER_CONTRACT(kind_, moments), .supports = ng_cuda_supports,                              \
     .workspace = ng_cuda_optimizer64_workspace, .launch = ng_cuda_launch_optimizer64},

static const ng_kernel kernels[] = {NG_FP64_ROWS NG_FP64_GEMM_ROWS NG_FP64_OPTIMIZER_ROWS};

const ng_kernel_list ng_cuda_fp64 = {kernels, sizeof kernels / sizeof *kernels};
