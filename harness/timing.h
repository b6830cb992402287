/* Speed on the host: a monotonic clock, medians and quartiles, and the machine's own ceilings to hold them against.
 * timing_gpu.h does the same for a GPU. */
#ifndef NG_HARNESS_TIMING_H
#define NG_HARNESS_TIMING_H

#include "harness/error.h"

double ng_now_s(void); /* CLOCK_MONOTONIC */

/* One timed run. `iteration` counts from 0 and chooses among rotated buffers; part_s [parts] receives what its parts took. */
typedef ng_status (*ng_timed)(void *context, int iteration, double *part_s);

typedef struct ng_timing {
    double median_s, q1_s, q3_s;
    double part_s[8]; /* medians */
    int samples;
} ng_timing;

enum { NG_TIMING_PARTS = 8, NG_TIMING_SAMPLES = 30 };

/* NG_TIMING_SAMPLES samples, or as many as limit_s allows, but at least 3. One untimed run comes first. */
ng_status ng_time(ng_timed run, void *context, int parts, double limit_s, ng_timing *timing, ng_error *error);

/* The median and the quartiles of count > 0 samples, which it sorts. Leaves parts alone. */
void ng_timing_publish(double *samples, int count, ng_timing *timing);

typedef struct ng_ceilings {
    double copy_bytes_s; /* bytes read plus bytes written a second, memcpy of buffers beyond the caches */
    double fma_flop_s;   /* fp32 fused multiply-adds in registers, two operations each */
} ng_ceilings;

ng_status ng_measure_ceilings(int threads, ng_ceilings *ceilings, ng_error *error);

#endif
