/* Speed on a GPU: events around replays of a captured graph, or around plain launches where nothing can be captured. */
#ifndef NG_HARNESS_TIMING_GPU_H
#define NG_HARNESS_TIMING_GPU_H

#include "harness/device.h"
#include "harness/timing.h"

/* Starts one run on gpu->stream, on the set of buffers that `set` names; anything but NG_OK: it can't be started. */
typedef ng_status (*ng_gpu_enqueue)(void *context, int set);

/* How cold a run finds its buffers. */
typedef struct ng_gpu_rotation {
    int sets;           /* of buffers, used in turn; together beyond the L2 if `enough` */
    bool enough;
    size_t flush_bytes; /* of the arena, written before each sample otherwise; 0: warm caches are wanted, or sets are huge */
    size_t flush_from;
    bool plain;           /* launches as such, no graph: a copy in a graph takes a copy engine, slower than the multiprocessors */
} ng_gpu_rotation;

/* Medians and quartiles of one run, as ng_time. method [bytes]: "graph of 24 launches, 6 sets in turn". */
ng_status ng_gpu_time(ng_gpu *gpu, ng_gpu_enqueue run, void *context, const ng_gpu_rotation *rotation, double limit_s,
                      ng_timing *timing, char *method, size_t bytes, ng_error *error);

/* Bytes read plus bytes written a second by copies of 1 GiB in device memory. */
ng_status ng_gpu_copy_rate(ng_gpu *gpu, double *bytes_s, ng_error *error);

#endif
