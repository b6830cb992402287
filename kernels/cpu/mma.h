/* Emulated tensor cores: what the driver (mma.c) and the step kernels (mma_steps.h, built once an instruction set) share.
 *
 * One step truncates every product to a multiple of u = 2^(E - F). With rounding toward zero and M = 2^(E - F + P - 1), P the
 * precision of the arithmetic, any t in [0, M) gives fl(M + t) = M + trunc(t): adding to an accumulator in [M, 2M) truncates
 * the addend and is otherwise exact. Positive and negative products go to two such accumulators, whose difference is exact.
 * A product is below 4 * 2^E, so a group of g of them needs 4 g <= 2^(P - 1 - F): binary32 serves F = 13 (g <= 256), binary64
 * F = 25 and 35. Nothing here depends on the order of the additions. */
#ifndef NG_KERNELS_CPU_MMA_H
#define NG_KERNELS_CPU_MMA_H

#include "kernels/contract.h"

enum {
    NG_MMA_TILE = 128,   /* rows and columns of OUT computed together, at most */
    NG_MMA_DEPTH = 128,  /* K packed at once; half of it where values are binary64 */
    NG_MMA_DOTS = 8,     /* dots in a group, at most */
    NG_MMA_ZERO = -8192, /* the exponent of zero: below all others, also when added to three of them */
};

/* An element of A: its magnitude, and where in B's pair of rows (positive parts, then negated negative parts, `width` of
 * each) the factors that make its products positive begin. */
typedef struct ng_mma_single {
    float magnitude;
    int32_t plus;
} ng_mma_single;

typedef struct ng_mma_double {
    double magnitude;
    int64_t plus;
} ng_mma_double;

/* depth = groups * group elements of K for a tile of OUT: d = chain of steps from c. Panels hold `width` columns each.
 * Exponents are raw: floor(log2) floored at the format's smallest normal one. */
typedef struct ng_mma_job {
    int rows, panels;            /* rows even */
    int groups, group, depth;
    int fraction_bits, min_exponent;
    uint32_t mask;               /* of the bits of a binary32 result that the unit keeps */
    bool wide;                   /* results may underflow or overflow binary32 */
    const void *a;               /* [rows][depth] ng_mma_single or _double; dots: float */
    const int16_t *a_exponents;  /* [rows][depth] */
    const void *b;               /* [panels][depth][2][width] float or double; dots: [panels][depth][width] float */
    const int16_t *b_exponents;  /* [panels][depth][width] */
    int dot, scale_block, scales; /* products in a dot, K under a scale, scales in depth; 0: none */
    const int16_t *a_scale_exponents, *b_scale_exponents; /* [rows][scales], [panels][scales][width] */
    const double *a_scale_values, *b_scale_values;        /* the same places */
    const float *c;              /* [rows][NG_MMA_TILE] */
    float *d;
} ng_mma_job;

/* Step kernels of one instruction set. `single`, `fp64` and `dots` are called with rounding toward zero in force, `fold`
 * with rounding to nearest. */
typedef struct ng_mma_steps {
    int width; /* columns in a panel */
    void (*single)(const ng_mma_job *job);
    void (*fp64)(const ng_mma_job *job);
    void (*dots)(const ng_mma_job *job);
    /* Adds chains to main sums, n columns of one row, in the way of `place` (ng_accumulation.scales). */
    void (*fold)(ng_scale_place place, int n, const float *chain, float a_scale, const float *b_scale, float *sum);
} ng_mma_steps;

extern const ng_mma_steps ng_mma_portable;
extern const ng_mma_steps ng_mma_avx2, ng_mma_avx512; /* x86-64 only */

/* One output by a plain loop, NaN and infinities included: a, b [depth] in the order of the groups, raw exponents floored at
 * a_floor and b_floor, scales [scales] of this row and column (NULL: none). Rounding toward zero in force. */
float ng_mma_careful(const ng_mma_job *job, const float *a, int a_floor, const float *b, int b_floor,
                     const double *a_scales, const double *b_scales, int scale_floor, float c);

#endif
