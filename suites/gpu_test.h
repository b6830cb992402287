/* What the test programs that need a GPU share: whether there is one, tensors on it, the CPU kernel of a CUDA kernel's name. */
#ifndef NG_SUITES_GPU_TEST_H
#define NG_SUITES_GPU_TEST_H

#include "kernels/kernel.h"
#include "suites/test.h"

#include <cuda_runtime.h>

/* Skips the test, with the reason, where there is no GPU. Either may be NULL: device 0, and a CPU with all its cores. */
void ng_test_need_gpu(ng_device *gpu, ng_device *cpu);
void ng_test_cuda(cudaError_t error); /* asserts success */

size_t ng_test_bytes(const ng_tensor *tensor);
ng_tensor ng_test_to_gpu(const ng_tensor *host); /* a copy; for cudaFree. Absent tensors stay absent */
void ng_test_from_gpu(const ng_tensor *gpu, void *to);

/* The built-in kernels; the CPU's of the same name, NULL: there is none. */
const ng_kernel *const *ng_test_kernels(size_t *count);
const ng_kernel *ng_test_twin(const ng_kernel *cuda);

#endif
