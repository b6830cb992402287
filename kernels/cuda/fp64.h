/* Launch functions of fp64.cu. */
#ifndef NG_KERNELS_CUDA_FP64_H
#define NG_KERNELS_CUDA_FP64_H

#include "kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

ng_status ng_cuda_launch_gemm64(const ng_kernel *kernel, const ng_launch *launch);
ng_status ng_cuda_launch_norm64(const ng_kernel *kernel, const ng_launch *launch);       /* forward and backward, as the next two */
ng_status ng_cuda_launch_activation64(const ng_kernel *kernel, const ng_launch *launch);
ng_status ng_cuda_launch_loss64(const ng_kernel *kernel, const ng_launch *launch);
ng_status ng_cuda_launch_optimizer64(const ng_kernel *kernel, const ng_launch *launch);
size_t ng_cuda_optimizer64_workspace(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);

#ifdef __cplusplus
}
#endif
#endif
