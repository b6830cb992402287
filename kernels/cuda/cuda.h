/* The CUDA kernels' launch functions, and what they share on the host. The descriptors stand in rows.c: C, like every
 * other table; the .cu files hold kernels and their launch. Bits equal the CPU kernels' of the same name by construction:
 * both sides round through kernels/common/. Contraction: none (-fmad=false, and every operation through _rn intrinsics). */
#ifndef NG_KERNELS_CUDA_H
#define NG_KERNELS_CUDA_H

#include "kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

ng_status ng_cuda_launch_cast(const ng_kernel *kernel, const ng_launch *launch);
ng_status ng_cuda_launch_quantize(const ng_kernel *kernel, const ng_launch *launch);
ng_status ng_cuda_launch_dequantize(const ng_kernel *kernel, const ng_launch *launch);
ng_status ng_cuda_launch_gemm(const ng_kernel *kernel, const ng_launch *launch);

ng_status ng_cuda_launch_norm(const ng_kernel *kernel, const ng_launch *launch);
ng_status ng_cuda_launch_norm_unfused(const ng_kernel *kernel, const ng_launch *launch);
size_t ng_cuda_norm_unfused_workspace(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);
ng_status ng_cuda_launch_norm_backward(const ng_kernel *kernel, const ng_launch *launch);
size_t ng_cuda_norm_backward_workspace(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);

ng_status ng_cuda_launch_adam(const ng_kernel *kernel, const ng_launch *launch);
ng_status ng_cuda_launch_steps(const ng_kernel *kernel, const ng_launch *launch);
size_t ng_cuda_steps_workspace(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);
ng_status ng_cuda_launch_activation(const ng_kernel *kernel, const ng_launch *launch); /* forward and backward */
ng_status ng_cuda_launch_activation_unfused(const ng_kernel *kernel, const ng_launch *launch);
size_t ng_cuda_activation_unfused_workspace(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);
ng_status ng_cuda_launch_loss(const ng_kernel *kernel, const ng_launch *launch); /* forward and backward */

/* attention.cu */
ng_status ng_cuda_launch_attention(const ng_kernel *kernel, const ng_launch *launch); /* forward and backward */
ng_status ng_cuda_launch_attention_mma(const ng_kernel *kernel, const ng_launch *launch); /* attention_mma.cu; the rest is the same */
size_t ng_cuda_attention_workspace(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);
const char *ng_cuda_attention_supports(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);

/* layer.cu */
ng_status ng_cuda_launch_rope(const ng_kernel *kernel, const ng_launch *launch);
ng_status ng_cuda_launch_add(const ng_kernel *kernel, const ng_launch *launch);
ng_status ng_cuda_launch_transpose(const ng_kernel *kernel, const ng_launch *launch);
ng_status ng_cuda_launch_embedding(const ng_kernel *kernel, const ng_launch *launch); /* forward and backward */

/* Maxima of the tensor, of its rows and of its columns. */
size_t ng_cuda_quantize_workspace(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);

/* hadamard.cu: the transform alone, and before a quantization. */
ng_status ng_cuda_launch_hadamard(const ng_kernel *kernel, const ng_launch *launch);
ng_status ng_cuda_launch_rotated(const ng_kernel *kernel, const ng_launch *launch);
size_t ng_cuda_rotated_workspace(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);

/* scale_update.cu: delayed scaling's history of maxima. */
ng_status ng_cuda_launch_scale_update(const ng_kernel *kernel, const ng_launch *launch);

/* cast_rs.cu: fp32 into e2m1 by the stochastic conversion instruction. */
ng_status ng_cuda_launch_cast_rs(const ng_kernel *kernel, const ng_launch *launch);
const char *ng_cuda_supports_cast_rs(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);

/* A and B of a block-scaled product, their elements times their block scales as bf16, dense [m][k] and [n][k], in device memory. */
ng_status ng_cuda_dequantize_bf16(const ng_launch *launch, const ng_quantization *qa, const ng_quantization *qb, void *a, void *b);

/* gemm_few_rows.cu: NVFP4 products of at most 16 rows. */
ng_status ng_cuda_launch_few_rows(const ng_kernel *kernel, const ng_launch *launch);
const char *ng_cuda_few_rows_supports(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);

/* NULL on a CUDA device for which this build has machine code or PTX. */
const char *ng_cuda_supports(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device);

/* Writes launch->message and returns status. */
ng_status ng_cuda_fail(const ng_launch *launch, ng_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* NG_OK if the role is there, in device memory, of that format and extents, with rows far enough apart. */
ng_status ng_cuda_check(const ng_launch *launch, ng_role role, ng_format_id format, int64_t rows, int64_t columns);

/* NG_OK, or the failure of the launches so far, in words. */
ng_status ng_cuda_launched(const ng_launch *launch);

int64_t ng_cuda_row_bytes(ng_format_id format, int64_t columns);

/* Extents of the tensor of scales of a [rows][columns] tensor, in its layout. */
void ng_cuda_scale_extents(const ng_quantization *q, int64_t rows, int64_t columns, int64_t *scale_rows, int64_t *scale_columns);

static inline int64_t ng_cuda_blocks(uint32_t block, int64_t extent) {
    int64_t size = block ? (int64_t)block : extent > 0 ? extent : 1;
    return extent / size + (extent % size != 0);
}

#ifdef __cplusplus
}
#endif
#endif
