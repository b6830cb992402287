/* A CUDA device as the harness sees it. Every call of the CUDA runtime goes through a table of functions, so that tests
 * replace the runtime by one whose n-th call fails; a program built without CUDA has no table. Kernels launch themselves
 * (kernels/kernel.h); what they leave behind is seen by the calls here. */
#ifndef NG_HARNESS_DEVICE_H
#define NG_HARNESS_DEVICE_H

#include "harness/error.h"
#include "kernels/kernel.h"

/* Codes of cudaError_t that mean something here; any other is a failure with a name. */
enum {
    NG_CUDA_OK = 0,
    NG_CUDA_NO_MEMORY = 2,
    NG_CUDA_OLD_DRIVER = 35,
    NG_CUDA_UNAVAILABLE = 46, /* busy, or in a compute mode that keeps others out */
    NG_CUDA_NO_DEVICE = 100,
    NG_CUDA_NO_IMAGE = 209,   /* no machine code or PTX for this device */
    NG_CUDA_NEW_PTX = 222,    /* the driver is too old to compile the PTX */
};

typedef enum ng_copy_kind { NG_TO_DEVICE, NG_FROM_DEVICE, NG_ON_DEVICE, NG_COPY_KINDS } ng_copy_kind;

typedef struct ng_gpu_properties {
    char name[96], uuid[48], pci[24]; /* "GPU-xxxxxxxx-...", "0000:1b:00.0" */
    int sm;                           /* 90 for Hopper */
    int processors;                   /* multiprocessors */
    int compute_mode;                 /* 0 shared, 2 prohibited, 3 one process */
    size_t memory, l2;                /* bytes */
} ng_gpu_properties;

/* Each returns a cudaError_t as an int. Streams, events, graphs are the runtime's own handles. */
typedef struct ng_runtime {
    int (*driver_version)(int *version);
    int (*runtime_version)(int *version);
    int (*device_count)(int *count);
    int (*properties)(int device, ng_gpu_properties *properties);
    int (*set_device)(int device);
    int (*memory)(size_t *available, size_t *total);
    int (*malloc)(void **data, size_t bytes);
    int (*free)(void *data);
    int (*copy)(void *to, const void *from, size_t bytes, ng_copy_kind kind, void *stream);
    int (*set)(void *data, int byte, size_t bytes, void *stream);
    int (*stream_create)(void **stream);
    int (*stream_destroy)(void *stream);
    int (*synchronize)(void); /* the whole device: a kernel may use streams of its own */
    int (*event_create)(void **event);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_synchronize)(void *event);
    int (*event_elapsed)(float *ms, void *from, void *to);
    int (*capture_begin)(void *stream);
    int (*capture_end)(void *stream, void **graph);
    int (*graph_instantiate)(void **executable, void *graph);
    int (*graph_launch)(void *executable, void *stream);
    int (*graph_free)(void *graph);
    int (*executable_free)(void *executable);
    int (*last_error)(void); /* and forgets it, unless the context is lost */
    const char *(*error_name)(int error);
    const char *(*error_text)(int error);
} ng_runtime;

/* The runtime that this program was built with; NULL: none. */
const ng_runtime *ng_cuda_runtime(void);

/* One open device of this process. */
typedef struct ng_gpu {
    const ng_runtime *runtime;
    ng_device device;
    ng_gpu_properties properties;
    void *stream;
    void *arena; /* kept from one use to the next */
    size_t arena_bytes;
    bool short_of_memory; /* an allocation was refused since this was last cleared */
    bool lost;            /* an error that no call recovers from: only a new process does */
} ng_gpu;

/* Opens a device. What goes wrong is one line that tells no driver, no device, an old driver, a busy or barred device
 * apart: NG_UNSUPPORTED. runtime NULL: built without CUDA. */
ng_status ng_gpu_open(const ng_runtime *runtime, int index, ng_gpu *gpu, ng_error *error);
void ng_gpu_close(ng_gpu *gpu);

/* Turns a runtime's error into a status: NG_OK, NG_NO_MEMORY, or NG_DEVICE with `what` and the error's name. Forgets the
 * error, so that it is not taken for a later call's; one that can't be forgotten sets gpu->lost. */
ng_status ng_gpu_check(ng_gpu *gpu, int code, const char *what, ng_error *error);

/* Waits for everything that was started. */
ng_status ng_gpu_wait(ng_gpu *gpu, ng_error *error);

/* NG_NO_MEMORY: with the bytes asked for, those free and those that there are. */
ng_status ng_gpu_malloc(ng_gpu *gpu, size_t bytes, void **data, ng_error *error);
void ng_gpu_free(ng_gpu *gpu, void *data);
/* At least that many bytes in gpu->arena; what it held is lost if it grows. */
ng_status ng_gpu_reserve(ng_gpu *gpu, size_t bytes, ng_error *error);

/* Done when it returns, except on the device, where it is in the stream's order. */
ng_status ng_gpu_copy(ng_gpu *gpu, void *to, const void *from, size_t bytes, ng_copy_kind kind, ng_error *error);

#endif
