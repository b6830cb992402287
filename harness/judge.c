/* The judge: what its cases share, and the table of drivers. */
#include "harness/judge_internal.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One driver an operation; a NULL row is an operation that cannot be judged yet. */
static const ng_driver drivers[NG_OPS] = {
    [NG_OP_CAST] = ng_judge_cast,
    [NG_OP_QUANTIZE] = ng_judge_quantize,
    [NG_OP_DEQUANTIZE] = ng_judge_dequantize,
    [NG_OP_GEMM] = ng_judge_gemm,
    [NG_OP_HADAMARD] = ng_judge_hadamard,
    [NG_OP_SCALE_UPDATE] = ng_judge_scale_update,
    [NG_OP_NORM_FORWARD] = ng_judge_norm,
    [NG_OP_NORM_BACKWARD] = ng_judge_norm,
    [NG_OP_OPTIMIZER] = ng_judge_optimizer,
    [NG_OP_ACTIVATION] = ng_judge_activation,
    [NG_OP_ACTIVATION_BACKWARD] = ng_judge_activation,
    [NG_OP_LOSS] = ng_judge_loss,
    [NG_OP_LOSS_BACKWARD] = ng_judge_loss,
    [NG_OP_ATTENTION_FORWARD] = ng_judge_attention,
    [NG_OP_ATTENTION_BACKWARD] = ng_judge_attention,
    [NG_OP_ROPE] = ng_judge_layer,
    [NG_OP_ADD] = ng_judge_layer,
    [NG_OP_TRANSPOSE] = ng_judge_layer,
    [NG_OP_EMBEDDING_FORWARD] = ng_judge_layer,
    [NG_OP_EMBEDDING_BACKWARD] = ng_judge_layer,
};

/* Binary64 throughout: an operation of the table whose driver is made for narrower kernels. */
static bool is_wide(const ng_kernel *kernel) {
    return kernel->in == NG_FP64 && (kernel->op == NG_OP_GEMM || (kernel->op >= NG_OP_NORM_FORWARD && kernel->op <= NG_OP_LOSS_BACKWARD));
}

static size_t host_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (size_t)pages * (size_t)size : 0;
}

ng_status ng_judge_create(const ng_settings *settings, const ng_catalogue *catalogue, ng_judge **judge, ng_error *error) {
    ng_judge *made = calloc(1, sizeof *made);
    if (!made) return ng_fail(error, NG_NO_MEMORY, "no memory for the judge");
    made->settings = *settings;
    made->catalogue = *catalogue;
    made->most_threads = settings->threads > 0 ? settings->threads : omp_get_max_threads();
    made->threads = made->most_threads;
    size_t memory = host_memory();
    made->cpu = (ng_device){.backend = NG_BACKEND_CPU, .threads = made->threads, .memory = memory};
    made->cache.limit = memory && memory / 4 < (size_t)1 << 30 ? memory / 4 : (size_t)1 << 30;
    *judge = made;
    return NG_OK;
}

bool ng_judge_has_gpu(ng_judge *judge) {
    const ng_settings *settings = &judge->settings;
    if (!judge->gpu_tried) {
        const ng_runtime *runtime = settings->runtime ? settings->runtime : ng_cuda_runtime();
        judge->gpu_tried = true;
        if (!ng_gpu_open(runtime, settings->device, &judge->gpu, &judge->gpu_absent)) judge->gpu_absent.status = NG_OK;
    }
    return !judge->gpu_absent.status;
}

void ng_judge_free(ng_judge *judge) {
    if (!judge) return;
    ng_nvml_close(&judge->nvml);
    if (judge->gpu.runtime) ng_gpu_close(&judge->gpu);
    ng_cache_clear(&judge->cache);
    free(judge);
}

/* Threads that wait for each other cost more than small problems do, all the more on a machine that is not idle. */
static bool is_small(const ng_case *one) {
    const ng_problem *p = &one->problem;
    double m = (double)(one->sample.rows ? one->sample.rows : p->m), n = (double)(one->sample.columns ? one->sample.columns : p->n);
    return !one->exhaustive && m * n <= 0x1p16 && m * n * (double)p->k <= 0x1p23;
}

static void skip(ng_result *result, const char *why) {
    result->verdict = NG_SKIP;
    snprintf(result->reason, sizeof result->reason, "%.511s", why);
}

/* What does not fit into the GPU's memory was not judged; what was found before it did not fit stays found. */
static ng_status skip_if_too_large(ng_judge *judge, ng_status status, ng_result *result, const ng_error *error) {
    if (status != NG_NO_MEMORY || !judge->gpu.short_of_memory) return status;
    if (result->verdict != NG_FAIL) skip(result, error->text);
    return NG_OK;
}

void ng_observe(const ng_judge *judge, const ng_case *one, ng_role role, const ng_tensor *computed, const ng_tensor *expected,
                const double *exact) {
    const ng_observation observation = {one, role, computed, expected, exact};
    if (judge->settings.observe) judge->settings.observe(judge->settings.observer, &observation);
}

ng_status ng_judge_case(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error) {
    memset(result, 0, sizeof *result);
    result->verdict = NG_PASS;
    result->saturated = result->flushed = NAN;
    snprintf(result->golden, sizeof result->golden, "unset");
    if (!one->kernel || one->kernel->op >= NG_OPS)
        return ng_fail(error, NG_BAD_ARGUMENT, "%s: a case without a kernel, or of an unknown operation", one->id);
    if (!drivers[one->kernel->op]) {
        skip(result, "no judge for this operation yet");
        return NG_OK;
    }
    if (one->kernel->backend == NG_BACKEND_CUDA && !ng_judge_has_gpu(judge)) { /* before any data is made for it */
        skip(result, judge->gpu_absent.text);
        return NG_OK;
    }
    judge->gpu.short_of_memory = false;
    judge->cache.now++;
    int before = omp_get_max_threads();
    judge->threads = is_small(one) ? 1 : judge->most_threads;
    judge->cpu.threads = judge->threads;
    omp_set_num_threads(judge->threads);
    ng_driver driver = one->exhaustive ? ng_judge_every_input : is_wide(one->kernel) ? ng_judge_fp64 : drivers[one->kernel->op];
    ng_status status = driver(judge, one, result, error);
    if (status == NG_UNSUPPORTED && one->data.distribution == NG_FILE_TENSOR) { /* a tensor of integers, say, is no fault of anyone */
        skip(result, error ? error->text : "unsupported data");
        status = NG_OK;
    }
    omp_set_num_threads(before);
    return skip_if_too_large(judge, status, result, error);
}
