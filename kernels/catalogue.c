#include "kernels/catalogue.h"

static const ng_kernel_list *const lists[] = {
    &ng_cpu_casts,
    &ng_cpu_quantizers,
    &ng_cpu_dequantizers,
    &ng_cpu_gemms,
    &ng_cpu_mma_gemms,
    &ng_cpu_hadamards,
    &ng_cpu_scale_updates,
    &ng_cpu_norms,
    &ng_cpu_optimizers,
    &ng_cpu_activations,
    &ng_cpu_losses,
    &ng_cpu_attentions,
    &ng_cpu_layers,
    &ng_cpu_fp64,
    &ng_cpu_fp64_gemms,
    &ng_cpu_fp64_optimizers,
#ifdef NG_HAVE_CUDA
    &ng_cuda_casts,
    &ng_cuda_quantizers,
    &ng_cuda_dequantizers,
    &ng_cuda_gemms,
    &ng_cuda_norms,
    &ng_cuda_hadamards,
    &ng_cuda_optimizers,
    &ng_cuda_activations,
    &ng_cuda_losses,
    &ng_cuda_attentions,
    &ng_cuda_layers,
    &ng_cuda_fp64,
    &ng_cublaslt_gemms,
#endif
};

size_t ng_builtin_kernels(const ng_kernel **kernels, size_t capacity) {
    size_t count = 0;
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (size_t i = 0; i < lists[l]->count; i++, count++)
            if (count < capacity) kernels[count] = &lists[l]->kernels[i];
    return count;
}
