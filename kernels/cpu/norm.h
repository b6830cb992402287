/* Rows of norms on the CPU: what forward and backward share. */
#ifndef NG_KERNELS_CPU_NORM_H
#define NG_KERNELS_CPU_NORM_H

#include "kernels/common/norm.h"
#include "kernels/cpu/cpu.h"

/* Inner loops, compiled for each instruction set; all give the same bits. n elements of a row, `chains` = 8 L. */
typedef struct ng_norm_loops {
    void (*load)(ng_format_id format, const void *row, int64_t n, float *values);
    void (*add)(const float *a, const float *b, ng_format_id to, int64_t n, float *sum, void *row); /* sum: as the row stores it */
    float (*sum)(const float *x, int64_t n, int32_t lanes, float *s);
    float (*squares)(const float *x, float mean, int64_t n, int32_t lanes, float *s);
    float (*products)(const float *a, const float *b, int64_t n, int32_t lanes, float *s);
    void (*normalize)(const float *x, float mean, float rstd, const float *w, const float *beta, int64_t n, float *y);
    void (*store)(ng_format_id to, const ng_caster *caster, const float *y, int64_t n, void *row);
    void (*hat)(const float *x, float mean, float rstd, int64_t n, float *h);
    void (*hat_of_output)(const float *y, const float *beta, const float *divisor, int64_t n, float *h);
    void (*scale)(const float *dy, const float *w, int64_t n, float *g);
    void (*dx)(const float *h, const float *g, float c1, float c2, float rstd, int64_t n, float *dx);
    void (*accumulate)(const float *dy, const float *h, int64_t n, float *dgamma, float *dbeta);
} ng_norm_loops;

extern const ng_norm_loops ng_norm_loops_of[2]; /* portable, AVX2 */

/* gamma as the weights that multiply, and beta (`absent` where there is none), decoded. */
void ng_cpu_norm_parameters(const ng_kernel *kernel, const ng_launch *launch, float absent, float *w, float *beta);
ng_status ng_cpu_norm_check_parameters(const ng_kernel *kernel, const ng_launch *launch, bool needs_beta);

static inline float ng_cpu_epsilon(const ng_launch *launch) { return (float)launch->problem->scalars[NG_EPSILON]; }

ng_status ng_cpu_launch_norm_backward(const ng_kernel *kernel, const ng_launch *launch);

#endif
