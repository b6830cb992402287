#include "suites/training/engine.h"

#include "harness/recipe.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the device ---------------------------------------------------------------------------------------------------*/
ng_status ng_engine_open(ng_backend backend, int device, int threads, const ng_catalogue *catalogue, ng_engine *engine, ng_error *error) {
    *engine = (ng_engine){.catalogue = *catalogue, .device = {.backend = backend, .threads = threads}};
    if (backend == NG_BACKEND_CPU) return NG_OK;
    ng_status status = ng_gpu_open(ng_cuda_runtime(), device, &engine->gpu, error);
    if (!status) engine->device = engine->gpu.device;
    return status;
}

static bool on_gpu(const ng_engine *engine) { return engine->device.backend == NG_BACKEND_CUDA; }

static void release(ng_engine *engine, void *block) {
    if (on_gpu(engine)) ng_gpu_free(&engine->gpu, block);
    else free(block);
}

void ng_engine_close(ng_engine *engine) {
    if (engine->workspace) release(engine, engine->workspace);
    free(engine->rooms);
    if (on_gpu(engine)) ng_gpu_close(&engine->gpu);
    *engine = (ng_engine){0};
}

ng_status ng_engine_wait(ng_engine *engine, ng_error *error) { return on_gpu(engine) ? ng_gpu_wait(&engine->gpu, error) : NG_OK; }

/* ---- memory -------------------------------------------------------------------------------------------------------*/
int64_t ng_storage_bytes(ng_format_id format, int64_t columns) {
    switch (format) {
    case NG_FP64: return 8 * columns;
    case NG_FP32:
    case NG_TF32: return 4 * columns;
    case NG_BF16:
    case NG_FP16: return 2 * columns;
    case NG_E2M1: return columns / 2 + columns % 2;
    default: return columns;
    }
}

static ng_status allocate(ng_engine *engine, size_t bytes, void **block, ng_error *error) {
    const size_t rounded = (bytes / 256 + 1) * 256;
    if (on_gpu(engine)) return ng_gpu_malloc(&engine->gpu, rounded, block, error);
    *block = aligned_alloc(256, rounded);
    return *block ? NG_OK : ng_fail(error, NG_NO_MEMORY, "no memory for %zu bytes", rounded);
}

static ng_status clear(ng_engine *engine, void *block, size_t bytes, ng_error *error) {
    if (on_gpu(engine)) return ng_gpu_check(&engine->gpu, engine->gpu.runtime->set(block, 0, bytes, engine->gpu.stream), "clearing device memory", error);
    memset(block, 0, bytes);
    return NG_OK;
}

ng_status ng_pool_tensor(ng_pool *pool, ng_format_id format, int64_t rows, int64_t columns, ng_tensor *tensor, ng_error *error) {
    const int64_t row_bytes = ng_storage_bytes(format, columns);
    const size_t bytes = (size_t)(rows * row_bytes);
    if (pool->count == pool->capacity) {
        const size_t capacity = 2 * pool->capacity + 16;
        void **more = realloc(pool->blocks, capacity * sizeof *more);
        if (!more) return ng_fail(error, NG_NO_MEMORY, "out of memory");
        pool->blocks = more;
        pool->capacity = capacity;
    }
    void *block;
    ng_status status = allocate(pool->engine, bytes, &block, error);
    if (status) return status;
    pool->blocks[pool->count++] = block;
    pool->bytes += bytes;
    *tensor = (ng_tensor){block, format, on_gpu(pool->engine) ? NG_GPU : NG_HOST, rows, columns, row_bytes};
    return clear(pool->engine, block, bytes, error);
}

void ng_pool_free(ng_pool *pool) {
    for (size_t i = 0; i < pool->count; i++)
        release(pool->engine, pool->blocks[i]);
    free(pool->blocks);
    *pool = (ng_pool){.engine = pool->engine};
}

ng_tensor ng_tensor_view(const ng_tensor *whole, int64_t at, int64_t rows, int64_t columns) {
    return (ng_tensor){(char *)whole->data + ng_storage_bytes(whole->format, at), whole->format, whole->space, rows, columns,
                       ng_storage_bytes(whole->format, columns)};
}

static size_t bytes_of(const ng_tensor *tensor) { return (size_t)(tensor->rows * tensor->row_bytes); }

ng_status ng_engine_write(ng_engine *engine, const ng_tensor *to, const void *from, ng_error *error) {
    if (on_gpu(engine)) return ng_gpu_copy(&engine->gpu, to->data, from, bytes_of(to), NG_TO_DEVICE, error);
    memcpy(to->data, from, bytes_of(to));
    return NG_OK;
}

ng_status ng_engine_read(ng_engine *engine, const ng_tensor *from, void *to, ng_error *error) {
    if (on_gpu(engine)) return ng_gpu_copy(&engine->gpu, to, from->data, bytes_of(from), NG_FROM_DEVICE, error);
    memcpy(to, from->data, bytes_of(from));
    return NG_OK;
}

ng_status ng_engine_clear(ng_engine *engine, const ng_tensor *tensor, ng_error *error) {
    return clear(engine, tensor->data, bytes_of(tensor), error);
}

ng_status ng_engine_copy(ng_engine *engine, const ng_tensor *from, const ng_tensor *to, ng_error *error) {
    if (on_gpu(engine)) return ng_gpu_copy(&engine->gpu, to->data, from->data, bytes_of(to), NG_ON_DEVICE, error);
    memcpy(to->data, from->data, bytes_of(to));
    return NG_OK;
}

/* ---- replay -------------------------------------------------------------------------------------------------------*/
ng_status ng_engine_record(ng_engine *engine, ng_error *error) {
    return ng_gpu_check(&engine->gpu, engine->gpu.runtime->capture_begin(engine->gpu.stream), "recording a step", error);
}

ng_status ng_engine_recorded(ng_engine *engine, void **replay, ng_error *error) {
    const ng_runtime *r = engine->gpu.runtime;
    void *graph = NULL;
    *replay = NULL;
    ng_status status = ng_gpu_check(&engine->gpu, r->capture_end(engine->gpu.stream, &graph), "recording a step", error);
    if (!status) status = ng_gpu_check(&engine->gpu, r->graph_instantiate(replay, graph), "recording a step", error);
    if (graph && r->graph_free(graph)) r->last_error();
    return status;
}

ng_status ng_engine_replay(ng_engine *engine, void *replay, ng_error *error) {
    return ng_gpu_check(&engine->gpu, engine->gpu.runtime->graph_launch(replay, engine->gpu.stream), "replaying a step", error);
}

void ng_engine_forget(ng_engine *engine, void *replay) {
    if (replay && engine->gpu.runtime->executable_free(replay)) engine->gpu.runtime->last_error();
}

/* ---- kernels ------------------------------------------------------------------------------------------------------*/
ng_status ng_engine_find(const ng_engine *engine, ng_op op, const ng_kernel **kernel, ng_error *error, const char *glob, ...) {
    char text[192];
    va_list arguments;
    va_start(arguments, glob);
    vsnprintf(text, sizeof text, glob, arguments);
    va_end(arguments);
    *kernel = ng_find_kernel(&engine->catalogue, op, engine->device.backend, text);
    if (!*kernel)
        return ng_fail(error, NG_UNSUPPORTED, "no kernel %s on this backend (%s)", text, engine->device.backend == NG_BACKEND_CPU ? "cpu" : "cuda");
    for (size_t i = 0; i < engine->substitution_count; i++) {
        const ng_substitution *s = &engine->substitutions[i];
        if (s->kernel->op == op && !fnmatch(s->glob, (*kernel)->name, 0)) {
            *kernel = s->kernel;
            break;
        }
    }
    return NG_OK;
}

/* cuBLASLt answers from a heuristic that costs more than many a launch. */
static ng_status room_for(ng_engine *engine, const ng_kernel *kernel, const ng_problem *p, size_t *bytes, ng_error *error) {
    *bytes = 0;
    if (!kernel->workspace) return NG_OK;
    for (size_t i = 0; i < engine->room_count; i++) {
        const ng_room *r = &engine->rooms[i];
        if (r->kernel == kernel && r->m == p->m && r->n == p->n && r->k == p->k) {
            *bytes = r->bytes;
            return NG_OK;
        }
    }
    if (engine->room_count == engine->room_capacity) {
        const size_t capacity = 2 * engine->room_capacity + 32;
        ng_room *more = realloc(engine->rooms, capacity * sizeof *more);
        if (!more) return ng_fail(error, NG_NO_MEMORY, "out of memory");
        engine->rooms = more;
        engine->room_capacity = capacity;
    }
    *bytes = kernel->workspace(kernel, p, &engine->device);
    engine->rooms[engine->room_count++] = (ng_room){kernel, p->m, p->n, p->k, *bytes};
    return NG_OK;
}

static ng_status reserve(ng_engine *engine, size_t bytes, ng_error *error) {
    if (engine->workspace_bytes >= bytes) return NG_OK;
    ng_status status = ng_engine_wait(engine, error); /* a launch may still use it */
    if (engine->workspace) release(engine, engine->workspace);
    engine->workspace = NULL;
    engine->workspace_bytes = 0;
    if (!status) status = allocate(engine, bytes, &engine->workspace, error);
    if (!status) engine->workspace_bytes = bytes;
    return status;
}

ng_status ng_engine_launch(ng_engine *engine, const ng_kernel *kernel, const ng_problem *problem, const ng_bound *bound, size_t count, ng_error *error) {
    char message[256] = "";
    size_t bytes;
    ng_status status = room_for(engine, kernel, problem, &bytes, error);
    if (!status) status = reserve(engine, bytes, error);
    if (status) return status;
    ng_launch launch = {.problem = problem, .device = &engine->device, .workspace = bytes ? engine->workspace : NULL, .workspace_bytes = bytes,
                        .stream = engine->gpu.stream, .message = message, .message_bytes = sizeof message};
    for (size_t i = 0; i < count; i++)
        if (bound[i].tensor) launch.tensors[bound[i].role] = *bound[i].tensor;
    engine->launches++;
    status = kernel->launch(kernel, &launch);
    return status ? ng_fail(error, status, "%s, %lld x %lld x %lld: %s", kernel->name, (long long)problem->m, (long long)problem->n,
                            (long long)problem->k, *message ? message : "the launch failed") : NG_OK;
}
