/* The a-priori bound of one element of a product (bound.c has its derivation), for the host and for devices: a plan that is
 * counted once from the contract, magnitudes of a row of either operand, and what is known of the element. Private. */
#ifndef NG_REFERENCE_BOUND_CORE_H
#define NG_REFERENCE_BOUND_CORE_H

#include "kernels/contract.h"

#include <math.h>

#ifdef __CUDACC__
#define NG_BOUND static __host__ __device__ inline
#else
#define NG_BOUND static inline __attribute__((unused))
#endif

#define NG_U 0x1p-24
#define NG_HALF_LEAST 0x1p-150
#define NG_BINARY32_LARGEST 0x1.fffffep127
#define NG_OUTWARD (1 + 0x1p-40)

typedef struct ng_bound_plan {
    ng_sum_order order;
    ng_scale_place place;
    int64_t k;
    double term;         /* relative: roundings that a term passes inside the sum, as g() */
    double after_steps;  /* how many of them come behind the chains of steps */
    int scale_roundings; /* of the whole sum by scales a row */
    double scale_term;   /* g() of them */
    double step_terms;   /* (group + 1) 2^-F; 0 without steps */
    double step_output;  /* 2^-p */
    double step_least;   /* 2^-126 + 2^min_exponent */
    double chain_steps;  /* L: groups in one chain */
    double all_steps;    /* in all chains */
    int64_t group;       /* products under one maximum of powers */
    double misaligned;   /* 2 where groups may straddle two windows of `group`, else 1 */
    double power_margin; /* a factor of each side's powers */
    double rounds_unit, rounds_least; /* of the format that the sum is rounded to before a value is added; 0: none */
    bool products_underflow, blocks, fused;
    double block_count, parts;
} ng_bound_plan;

typedef struct ng_row_sizes { /* of an operand's row; infinities and NaNs count as 0, elements with them have no bound */
    double largest;         /* of the scaled values */
    double least;           /* of those that are not 0; infinite if there is none */
    double largest_element; /* without scales */
    double largest_scale, least_scale; /* 1 without scales */
} ng_row_sizes;

typedef struct ng_tensor_factor { /* fl(Da * Db) */
    double value;      /* |Da Db| */
    double error;      /* relative; infinite where fl() leaves the normal range */
    int roundings;     /* of the sum by it */
} ng_tensor_factor;

typedef struct ng_bound_element { /* magnitudes of one */
    double h;       /* sum |t_k| without the tensor scale */
    double powers;  /* sum P, scaled likewise */
    double exact;   /* |c| without the accumulated value */
    double initial;
    double result;  /* |c| */
} ng_bound_element;

NG_BOUND bool ng_bound_is_after(ng_scale_place place) { return place == NG_SCALES_AFTER || place == NG_SCALES_AFTER_AT_ONCE; }

/* Absolute terms: what results below the normal range may lose, each times what multiplies it afterwards. */
NG_BOUND double ng_bound_underflow(const ng_bound_plan *p, const ng_row_sizes *a, const ng_row_sizes *b) {
    double sa = a->largest_scale, sb = b->largest_scale, k = (double)p->k, sum = 0;
    bool outside = p->blocks || ng_bound_is_after(p->place);
    double scale = outside ? sa * sb : 1;
    if (p->products_underflow) sum += k * NG_HALF_LEAST * scale;
    if (p->order == NG_SUM_MMA) {
        double least_step = p->step_terms * p->step_least + p->step_output * 0x1p-126;
        sum += p->all_steps * least_step * scale;
    }
    if (outside) sum += p->block_count * NG_HALF_LEAST * (2 + sa + sb);
    if (p->order == NG_SUM_FP64) sum += (p->block_count + p->parts) * NG_HALF_LEAST; /* conversions */
    if (p->place == NG_SCALES_DEQUANTIZED) {
        if (a->least < 0x1p-126) sum += 2 * k * NG_HALF_LEAST * (b->largest + NG_HALF_LEAST);
        if (b->least < 0x1p-126) sum += 2 * k * NG_HALF_LEAST * (a->largest + NG_HALF_LEAST);
    }
    return sum;
}

/* May an intermediate result of a finite element leave binary32's range? */
NG_BOUND bool ng_bound_may_overflow(const ng_bound_plan *p, const ng_row_sizes *a, const ng_row_sizes *b, const ng_bound_element *x,
                                    const ng_tensor_factor *t, double error) {
    double sa = a->largest_scale, sb = b->largest_scale, margin = 1 + 2 * p->term;
    bool outside = p->blocks || ng_bound_is_after(p->place);
    double elements = (double)p->k * a->largest_element * b->largest_element;
    double chain = outside ? elements : x->h, largest = chain > x->h ? chain : x->h;
    if (p->place == NG_SCALES_DEQUANTIZED && (a->largest > NG_BINARY32_LARGEST || b->largest > NG_BINARY32_LARGEST)) return true;
    if (p->order == NG_SUM_FP64 && p->parts <= 1 && !outside && t->value == 1 && x->initial == 0) return false;
    if (outside) {
        double halfway = chain * (sa > sb ? sa : sb), product = sa * sb;
        largest = halfway > largest ? halfway : largest;
        if (p->place != NG_SCALES_AFTER && product > largest) largest = product;
    }
    largest = largest * margin + error;
    return !(largest <= NG_BINARY32_LARGEST &&
             largest * t->value * (1 + 4 * NG_U) + x->initial <= NG_BINARY32_LARGEST * (1 - 2 * NG_U));
}

/* fl(sa * sb) below the normal range has no relative error bound. */
NG_BOUND bool ng_bound_scales_underflow(const ng_bound_plan *p, const ng_row_sizes *a, const ng_row_sizes *b) {
    bool multiplied = p->place == NG_SCALES_BLOCK_FMA_PRODUCT || p->place == NG_SCALES_AFTER_AT_ONCE;
    return multiplied && a->least_scale * b->least_scale < 0x1p-126;
}

/* Infinite where an intermediate overflow is possible. */
NG_BOUND double ng_bound_of(const ng_bound_plan *p, const ng_row_sizes *a, const ng_row_sizes *b, const ng_tensor_factor *t,
                            bool accumulate, const ng_bound_element *x) {
    double steps = 0;
    if (p->order == NG_SUM_MMA)
        steps = p->step_terms * (p->misaligned * x->powers + (p->chain_steps - 1) * x->h) +
                p->step_output * p->chain_steps * x->h;
    double inside = p->term * x->h + (steps + ng_bound_underflow(p, a, b)) * (1 + p->term);
    if (ng_bound_may_overflow(p, a, b, x, t, inside) || ng_bound_scales_underflow(p, a, b)) return HUGE_VAL;
    double error = inside * t->value;
    if (p->scale_roundings) error += p->scale_term * (x->exact + error);
    if (t->value != 1) {
        double relative = t->error + t->roundings * NG_U;
        error += (relative + relative * relative) * (x->exact + error) + NG_HALF_LEAST;
    }
    if (accumulate && p->rounds_unit > 0) error += p->rounds_unit * (x->exact + error) + p->rounds_least;
    if (accumulate) error += NG_U * (x->result + error) + NG_HALF_LEAST;
    return error * NG_OUTWARD;
}

/* From the contract and the operands' formats, extents and scales (bound.c). No tensor's data is read. */
#ifdef __cplusplus
extern "C" {
#endif
ng_status ng_bound_plan_of(const ng_accumulation *sum, const ng_operand *a, const ng_operand *b, ng_bound_plan *plan);
ng_tensor_factor ng_tensor_factor_of(float da, float db);
#ifdef __cplusplus
}
#endif

#endif
