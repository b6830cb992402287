/* Attention of one head of one sequence: exact values and the bounds that kernels/contract_layer.h leaves. Two tiers: binary64 with bounds in
 * closed form, for kernels that compute in binary32; and MPFR with a running error analysis (wide.h), for kernels in binary64, for what the first
 * leaves open, and to hold the first against. */
#ifndef NG_REFERENCE_ATTENTION_H
#define NG_REFERENCE_ATTENTION_H

#include "kernels/contract.h"

typedef struct ng_attention_head {
    const ng_layer *layer;
    int64_t s, d;                 /* tokens, elements of a head */
    const double *q, *k, *v, *g;  /* [s][d]; g: backward only */
} ng_attention_head;

/* What the first tier's values may be off by, as a part of its bounds: each of its roundings is at most this much of the kernel's (2^-53 for
 * 2^-24; exp: 2^-44 for 2^-23), and the bounds are convex in the units of roundoff and 0 where these are. */
#define NG_ATTENTION_REMAINDER 0x1p-18

/* value, bound: forward [s][d]; backward [3][s][d] = dq, dk, dv. A bound of INFINITY: nothing is promised (overflow is possible, or an
 * infinity meets a weight that may be 0). Not for compute NG_FP64 (NG_UNSUPPORTED); NG_NO_MEMORY. */
ng_status ng_attention_fast(const ng_attention_head *head, bool backward, double *value, double *bound);

/* The same as high + low; NG_ATTENTION_CHAIN only: the bound of others is the first tier's, and bound is left alone. */
ng_status ng_attention_mpfr(const ng_attention_head *head, bool backward, double *high, double *low, double *bound);

#endif
