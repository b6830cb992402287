#include "harness/device.h"

#include <stdio.h>
#include <string.h>

#ifndef NG_HAVE_CUDA
const ng_runtime *ng_cuda_runtime(void) { return NULL; }
#endif

ng_status ng_gpu_check(ng_gpu *gpu, int code, const char *what, ng_error *error) {
    const ng_runtime *r = gpu->runtime;
    if (code == NG_CUDA_OK) return NG_OK;
    r->last_error();
    /* A kernel that faulted takes the context with it: every call returns its error. Any other is gone now. */
    if (code != NG_CUDA_NO_MEMORY && r->synchronize() != NG_CUDA_OK) {
        r->last_error();
        gpu->lost = true;
    }
    if (code == NG_CUDA_NO_MEMORY) {
        gpu->short_of_memory = true;
        return ng_fail(error, NG_NO_MEMORY, "%s: the GPU has not enough memory", what);
    }
    return ng_fail(error, NG_DEVICE, "%s: %s (%s)", what, r->error_text(code), r->error_name(code));
}

ng_status ng_gpu_wait(ng_gpu *gpu, ng_error *error) {
    return ng_gpu_check(gpu, gpu->runtime->synchronize(), "waiting for the GPU", error);
}

void ng_gpu_free(ng_gpu *gpu, void *data) {
    if (data && gpu->runtime->free(data)) gpu->runtime->last_error();
}

static void release_arena(ng_gpu *gpu) {
    ng_gpu_free(gpu, gpu->arena);
    gpu->arena = NULL;
    gpu->arena_bytes = 0;
}

/* ---- opening ------------------------------------------------------------------------------------------------------*/
static ng_status find_device(const ng_runtime *r, int index, ng_error *error) {
    int driver = 0, built = 0, count = 0, code = r->device_count(&count);
    r->last_error();
    if (code == NG_CUDA_OLD_DRIVER) {
        bool known = !r->driver_version(&driver) && !r->runtime_version(&built);
        r->last_error();
        if (known && driver)
            return ng_fail(error, NG_UNSUPPORTED, "the NVIDIA driver is too old: it knows CUDA %d.%d, this program needs %d.%d",
                           driver / 1000, driver % 1000 / 10, built / 1000, built % 1000 / 10);
        return ng_fail(error, NG_UNSUPPORTED, "no NVIDIA driver");
    }
    if (code == NG_CUDA_NO_DEVICE || (!code && !count)) return ng_fail(error, NG_UNSUPPORTED, "no CUDA device");
    if (code) return ng_fail(error, NG_UNSUPPORTED, "no CUDA device: %s (%s)", r->error_text(code), r->error_name(code));
    if (index < 0 || index >= count)
        return ng_fail(error, NG_UNSUPPORTED, "there is no CUDA device %d: this machine has %d, counted from 0", index, count);
    return NG_OK;
}

/* set_device makes the context: here a device that others hold refuses. */
static ng_status make_context(ng_gpu *gpu, int index, ng_error *error) {
    enum { PROHIBITED = 2 };
    const ng_runtime *r = gpu->runtime;
    const char *name = gpu->properties.name;
    size_t available;
    int code = r->properties(index, &gpu->properties);
    if (!code && gpu->properties.compute_mode == PROHIBITED)
        return ng_fail(error, NG_UNSUPPORTED, "CUDA device %d (%s) is in prohibited compute mode", index, name);
    if (!code) code = r->set_device(index);
    if (!code) code = r->memory(&available, &gpu->device.memory);
    if (!code) code = r->stream_create(&gpu->stream);
    if (!code) return NG_OK;
    gpu->stream = NULL;
    r->last_error();
    if (code == NG_CUDA_UNAVAILABLE)
        return ng_fail(error, NG_UNSUPPORTED, "CUDA device %d (%s) is busy or in exclusive mode: another process has it", index, name);
    if (code == NG_CUDA_NO_MEMORY)
        return ng_fail(error, NG_UNSUPPORTED, "CUDA device %d (%s) has no memory left for a context", index, name);
    return ng_fail(error, NG_UNSUPPORTED, "CUDA device %d (%s) cannot be used: %s (%s)", index, *name ? name : "unknown",
                   r->error_text(code), r->error_name(code));
}

ng_status ng_gpu_open(const ng_runtime *runtime, int index, ng_gpu *gpu, ng_error *error) {
    memset(gpu, 0, sizeof *gpu);
    if (!runtime) return ng_fail(error, NG_UNSUPPORTED, "this program was built without CUDA");
    gpu->runtime = runtime;
    ng_status status = find_device(runtime, index, error);
    if (!status) status = make_context(gpu, index, error);
    if (status) {
        ng_gpu_close(gpu);
        return status;
    }
    gpu->device.backend = NG_BACKEND_CUDA;
    gpu->device.index = index;
    gpu->device.sm = gpu->properties.sm;
    return NG_OK;
}

void ng_gpu_close(ng_gpu *gpu) {
    release_arena(gpu);
    if (gpu->stream) gpu->runtime->stream_destroy(gpu->stream);
    memset(gpu, 0, sizeof *gpu);
}

/* ---- memory -------------------------------------------------------------------------------------------------------*/
ng_status ng_gpu_malloc(ng_gpu *gpu, size_t bytes, void **data, ng_error *error) {
    size_t available = 0, total = 0;
    *data = NULL;
    int code = gpu->runtime->malloc(data, bytes ? bytes : 1);
    if (code == NG_CUDA_NO_MEMORY && gpu->arena) { /* nothing is kept that a case needs */
        release_arena(gpu);
        code = gpu->runtime->malloc(data, bytes ? bytes : 1);
    }
    if (code) *data = NULL;
    ng_status status = ng_gpu_check(gpu, code, "allocating device memory", error);
    if (status != NG_NO_MEMORY) return status;
    if (gpu->runtime->memory(&available, &total)) return status;
    return ng_fail(error, status, "not enough memory on the GPU: %.1f MiB needed at once, %.1f of %.1f MiB free",
                   (double)bytes / 0x1p20, (double)available / 0x1p20, (double)total / 0x1p20);
}

ng_status ng_gpu_reserve(ng_gpu *gpu, size_t bytes, ng_error *error) {
    if (gpu->arena_bytes >= bytes) return NG_OK;
    release_arena(gpu);
    ng_status status = ng_gpu_malloc(gpu, bytes, &gpu->arena, error);
    if (!status) gpu->arena_bytes = bytes;
    return status;
}

ng_status ng_gpu_copy(ng_gpu *gpu, void *to, const void *from, size_t bytes, ng_copy_kind kind, ng_error *error) {
    static const char *const what[NG_COPY_KINDS] = {"copying to the GPU", "copying from the GPU", "copying on the GPU"};
    if (!bytes) return NG_OK;
    ng_status status = ng_gpu_check(gpu, gpu->runtime->copy(to, from, bytes, kind, gpu->stream), what[kind], error);
    return status || kind == NG_ON_DEVICE ? status : ng_gpu_wait(gpu, error);
}
