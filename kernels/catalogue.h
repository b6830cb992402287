/* The built-in kernels: one list a file, gathered in catalogue.c. The program's only door to them. */
#ifndef NG_KERNELS_CATALOGUE_H
#define NG_KERNELS_CATALOGUE_H

#include "kernel.h"

typedef struct ng_kernel_list {
    const ng_kernel *kernels;
    size_t count;
} ng_kernel_list;

extern const ng_kernel_list ng_cpu_casts;        /* cpu/cast.c */
extern const ng_kernel_list ng_cpu_quantizers;   /* cpu/quantize.c */
extern const ng_kernel_list ng_cpu_dequantizers; /* cpu/dequantize.c */
extern const ng_kernel_list ng_cpu_gemms;        /* cpu/gemm.c */
extern const ng_kernel_list ng_cpu_mma_gemms;    /* cpu/mma_kernels.c */
extern const ng_kernel_list ng_cpu_hadamards;    /* cpu/hadamard.c: alone, and fused with quantization */
extern const ng_kernel_list ng_cpu_scale_updates; /* cpu/scale_update.c */
extern const ng_kernel_list ng_cuda_hadamards;   /* cuda/hadamard_rows.c */
extern const ng_kernel_list ng_cpu_norms;        /* cpu/norm.c: forward and backward */
extern const ng_kernel_list ng_cpu_optimizers;   /* cpu/optimizer.c: with cpu/optimizer_steps.c */
extern const ng_kernel_list ng_cpu_activations;  /* cpu/activation.c: forward and backward */
extern const ng_kernel_list ng_cpu_losses;       /* cpu/loss.c */
extern const ng_kernel_list ng_cuda_optimizers, ng_cuda_activations, ng_cuda_losses; /* cuda/neighbour_rows.c */
extern const ng_kernel_list ng_cpu_attentions;   /* cpu/attention.c */
extern const ng_kernel_list ng_cpu_layers;       /* cpu/layer.c */
extern const ng_kernel_list ng_cuda_attentions, ng_cuda_layers; /* cuda/layer_rows.c */
extern const ng_kernel_list ng_cuda_fp64;         /* cuda/fp64_rows.c */
extern const ng_kernel_list ng_cpu_fp64, ng_cpu_fp64_gemms, ng_cpu_fp64_optimizers; /* cpu/fp64.c, fp64_gemm.c, fp64_optimizer.c */
extern const ng_kernel_list ng_cuda_casts, ng_cuda_quantizers, ng_cuda_dequantizers, ng_cuda_gemms; /* cuda/rows.c */
extern const ng_kernel_list ng_cuda_norms;       /* cuda/norm_rows.c */

extern const ng_kernel_list ng_cublaslt_gemms;   /* cublaslt/rows.c */

/* Writes up to capacity descriptors' addresses and returns how many there are. */
size_t ng_builtin_kernels(const ng_kernel **kernels, size_t capacity);

#endif
