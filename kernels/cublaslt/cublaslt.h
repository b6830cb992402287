/* cuBLASLt's products as kernels: descriptors in rows.c, launches in gemm.c. Results are row-major, so that what the
 * library multiplies is B^T A^T: its first operand is our B, and B's scales enter before A's. */
#ifndef NG_KERNELS_CUBLASLT_H
#define NG_KERNELS_CUBLASLT_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ng_cublaslt_mode { /* ng_kernel.state: values of cublasLt.h */
    int compute;              /* cublasComputeType_t */
    int scale_a, scale_b;     /* cublasLtMatmulMatrixScale_t of our A and B; -1: none */
    bool fast_accumulation;
    bool dequantize;          /* operands go through bf16 in the workspace */
} ng_cublaslt_mode;

const char *ng_cublaslt_supports(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);
size_t ng_cublaslt_workspace(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);
int ng_cublaslt_variants(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);
ng_status ng_cublaslt_describe(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device, int variant,
                               ng_contract *contract, char *text, size_t bytes);
/* factors [3]: fl(Da * Db), 1, 0, in device memory. */
ng_status ng_cublaslt_factors(const ng_launch *launch, float *factors);
ng_status ng_cublaslt_launch(const ng_kernel *kernel, const ng_launch *launch);

#ifdef __cplusplus
}
#endif
#endif
