/* Delayed scaling's history of maxima (kernels/cuda/cuda.h): a warp takes a tensor, its lanes the steps. IN and OUT may not be the same. */
#include "kernels/common/scale_update.h"
#include "kernels/cuda/device.cuh"

namespace {

enum { THREADS = 128 };

struct Update {
    ng_matrix in, in_use, out, scale, inverse;
    long long steps, tensors;
    ng_scale_update how;
};

__global__ void __launch_bounds__(THREADS) scale_update(Update u) {
    const long long j = (blockIdx.x * (long long)THREADS + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32;
    if (j >= u.tensors) return; /* a whole warp */
    const float recent = ng_row<const float>(u.in, 0)[j];
    float amax = recent;
    for (long long i = lane; i < u.steps; i += 32) {
        const float next = i + 1 < u.steps ? ng_row<const float>(u.in, i + 1)[j] : recent;
        ng_row<float>(u.out, i)[j] = i == 0 ? 0.0f : next;
        if (!u.how.most_recent) amax = ng_larger_number(amax, next);
    }
    for (int apart = 16; apart; apart /= 2)
        amax = ng_larger_number(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, apart));
    if (lane != 0) return;
    const float scale = ng_next_scale(&u.how, amax, ng_row<const float>(u.in_use, 0)[j]);
    ng_row<float>(u.scale, 0)[j] = scale;
    ng_row<float>(u.inverse, 0)[j] = ng_div(1.0f, scale);
}

} // namespace

extern "C" ng_status ng_cuda_launch_scale_update(const ng_kernel *kernel, const ng_launch *launch) {
    const long long steps = launch->problem->m, tensors = launch->problem->n;
    const ng_tensor *t = launch->tensors;
    ng_status status = ng_cuda_check(launch, NG_IN, NG_FP32, steps, tensors);
    if (!status) status = ng_cuda_check(launch, NG_IN_2, NG_FP32, 1, tensors);
    if (!status) status = ng_cuda_check(launch, NG_OUT, NG_FP32, steps, tensors);
    if (!status) status = ng_cuda_check(launch, NG_OUT_2, NG_FP32, 1, tensors);
    if (!status) status = ng_cuda_check(launch, NG_OUT_3, NG_FP32, 1, tensors);
    if (status) return status;
    const Update u = {ng_matrix_of(&t[NG_IN]), ng_matrix_of(&t[NG_IN_2]), ng_matrix_of(&t[NG_OUT]), ng_matrix_of(&t[NG_OUT_2]),
                      ng_matrix_of(&t[NG_OUT_3]), steps, tensors, kernel->contract.scale_update};
    scale_update<<<(unsigned)((tensors * 32 + THREADS - 1) / THREADS), THREADS, 0, static_cast<cudaStream_t>(launch->stream)>>>(u);
    return ng_cuda_launched(launch);
}
