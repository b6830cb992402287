/* Products whose contract is a chain of tensor-core steps (order NG_SUM_MMA), computed on the CPU bit for bit. A kernel is a
 * descriptor with a contract and these two functions: none of it is known by name. Operands and scales as in NG_OP_GEMM;
 * contract.a and .b say which scales there are. Block extents along K must match the contract's steps. */
#ifndef NG_KERNELS_CPU_MMA_GEMM_H
#define NG_KERNELS_CPU_MMA_GEMM_H

#include "kernels/kernel.h"

const char *ng_mma_supports(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);
ng_status ng_mma_launch(const ng_kernel *kernel, const ng_launch *launch);

#endif
