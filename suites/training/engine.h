/* Where a model's tensors live and how its kernels run: a CPU or one GPU behind one set of calls. Kernels are found in a catalogue by
 * operation, backend and a glob on their names, and a kernel of the user's may stand in for any of them. */
#ifndef NG_SUITES_TRAINING_ENGINE_H
#define NG_SUITES_TRAINING_ENGINE_H

#include "harness/device.h"
#include "harness/judge.h"

/* --kernel GLOB=NAME: whatever kernel would be taken and matches the glob, NAME is taken instead. */
typedef struct ng_substitution {
    char glob[128];
    const ng_kernel *kernel;
} ng_substitution;

typedef struct ng_room { /* workspace that a kernel asks for, asked once */
    const ng_kernel *kernel;
    int64_t m, n, k;
    size_t bytes;
} ng_room;

typedef struct ng_engine {
    ng_catalogue catalogue;
    const ng_substitution *substitutions; /* [substitution_count] */
    size_t substitution_count;
    ng_device device;
    ng_gpu gpu;                /* a CUDA engine's; otherwise closed */
    ng_room *rooms;
    size_t room_count, room_capacity;
    void *workspace;
    size_t workspace_bytes;
    uint64_t launches;         /* so far */
} ng_engine;

/* threads: of a CPU engine. NG_UNSUPPORTED: no such device, with the reason. */
ng_status ng_engine_open(ng_backend backend, int device, int threads, const ng_catalogue *catalogue, ng_engine *engine, ng_error *error);
void ng_engine_close(ng_engine *engine);
ng_status ng_engine_wait(ng_engine *engine, ng_error *error);

/* The first kernel of that operation whose name matches; NG_UNSUPPORTED with the glob where there is none. */
ng_status ng_engine_find(const ng_engine *engine, ng_op op, const ng_kernel **kernel, ng_error *error, const char *glob, ...)
    __attribute__((format(printf, 5, 6)));

typedef struct ng_bound {
    ng_role role;
    const ng_tensor *tensor; /* NULL: absent */
} ng_bound;

/* Enqueues a kernel; its failure is an error with the kernel's name. */
ng_status ng_engine_launch(ng_engine *engine, const ng_kernel *kernel, const ng_problem *problem, const ng_bound *bound, size_t count, ng_error *error);
#define NG_LAUNCH(engine, kernel, problem, error, ...)                                       \
    ng_engine_launch(engine, kernel, problem, (const ng_bound[]){__VA_ARGS__},               \
                     sizeof((const ng_bound[]){__VA_ARGS__}) / sizeof(ng_bound), error)

/* ---- memory -------------------------------------------------------------------------------------------------------*/
typedef struct ng_pool { /* freed together */
    ng_engine *engine;
    void **blocks;
    size_t count, capacity, bytes;
} ng_pool;

/* A dense tensor in the engine's memory, zeros. */
ng_status ng_pool_tensor(ng_pool *pool, ng_format_id format, int64_t rows, int64_t columns, ng_tensor *tensor, ng_error *error);
void ng_pool_free(ng_pool *pool);

/* rows x columns of a dense tensor's memory from element `at` on, as a tensor of its own. */
ng_tensor ng_tensor_view(const ng_tensor *whole, int64_t at, int64_t rows, int64_t columns);
int64_t ng_storage_bytes(ng_format_id format, int64_t columns); /* of a row */

/* Between a dense tensor and host memory of the same bytes; waits. */
ng_status ng_engine_write(ng_engine *engine, const ng_tensor *to, const void *from, ng_error *error);
ng_status ng_engine_read(ng_engine *engine, const ng_tensor *from, void *to, ng_error *error);
/* Every byte to zero, in the order of launches. */
ng_status ng_engine_clear(ng_engine *engine, const ng_tensor *tensor, ng_error *error);
/* Between two tensors of the same bytes in the engine's memory, in the order of launches. */
ng_status ng_engine_copy(ng_engine *engine, const ng_tensor *from, const ng_tensor *to, ng_error *error);

/* ---- replay: what is launched between begin and end is recorded, not run; a CUDA engine's alone ------------------------*/
ng_status ng_engine_record(ng_engine *engine, ng_error *error);
/* *replay NULL on failure; whatever was recorded is gone. */
ng_status ng_engine_recorded(ng_engine *engine, void **replay, ng_error *error);
ng_status ng_engine_replay(ng_engine *engine, void *replay, ng_error *error);
void ng_engine_forget(ng_engine *engine, void *replay);

#endif
