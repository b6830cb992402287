#include "suites/gpu_test.h"

#include "kernels/catalogue.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

void ng_test_cuda(cudaError_t error) { cr_assert(error == cudaSuccess, "%s", cudaGetErrorString(error)); }

void ng_test_need_gpu(ng_device *gpu, ng_device *cpu) {
    int count = 0, major = 0, minor = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) cr_skip_test("no CUDA device: %s", cudaGetErrorString(error));
    ng_test_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    ng_test_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    if (cpu) *cpu = (ng_device){.backend = NG_BACKEND_CPU, .threads = omp_get_num_procs()};
    if (gpu) *gpu = (ng_device){.backend = NG_BACKEND_CUDA, .sm = 10 * major + minor};
}

size_t ng_test_bytes(const ng_tensor *t) { return (size_t)(t->rows * t->row_bytes); }

ng_tensor ng_test_to_gpu(const ng_tensor *host) {
    ng_tensor gpu = *host;
    if (!host->data) return gpu;
    gpu.space = NG_GPU;
    ng_test_cuda(cudaMalloc(&gpu.data, ng_test_bytes(host) + 1));
    ng_test_cuda(cudaMemcpy(gpu.data, host->data, ng_test_bytes(host), cudaMemcpyHostToDevice));
    return gpu;
}

void ng_test_from_gpu(const ng_tensor *gpu, void *to) { ng_test_cuda(cudaMemcpy(to, gpu->data, ng_test_bytes(gpu), cudaMemcpyDeviceToHost)); }

const ng_kernel *const *ng_test_kernels(size_t *count) {
    static const ng_kernel *kernels[4096];
    *count = ng_builtin_kernels(kernels, sizeof kernels / sizeof *kernels);
    cr_assert(*count <= sizeof kernels / sizeof *kernels);
    return kernels;
}

const ng_kernel *ng_test_twin(const ng_kernel *cuda) {
    char name[256];
    size_t count;
    const ng_kernel *const *kernels = ng_test_kernels(&count);
    const char *at = strstr(cuda->name, "/cuda/");
    cr_assert(at);
    snprintf(name, sizeof name, "%.*s/cpu/%s", (int)(at - cuda->name), cuda->name, at + 6);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(kernels[i]->name, name)) return kernels[i];
    return NULL;
}
