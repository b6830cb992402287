/* Rotary position, addition, gradients of an embedding: exact values, the bounds that kernels/contract_layer.h leaves, and the bits that it fixes.
 * Exact values are sums of two binary64 numbers (products and sums without error: Dekker, Knuth). */
#ifndef NG_REFERENCE_LAYER_H
#define NG_REFERENCE_LAYER_H

#include "kernels/contract.h"

/* An exact result, what a kernel's may be off by before its cast, and the code that it must have. */
typedef struct ng_layer_value {
    double high, low, bound;
    uint64_t code;
} ng_layer_value;

/* cos and sin of position * 10000^(-i / half), i < half, correctly rounded into the tensors' format: [sequence][half], fp32 or fp64. */
void ng_rope_tables(const ng_tensor *cosines, const ng_tensor *sines);

/* x' = x c - y s, y' = y c + x s; s negated for an inverse. */
void ng_reference_rotate(const ng_layer *layer, ng_format_id out, const ng_cast *cast, double x, double y, double c, double s, ng_layer_value value[2]);

ng_layer_value ng_reference_add(const ng_layer *layer, ng_format_id out, const ng_cast *cast, double a, double b);

/* before + the terms in their order. */
ng_layer_value ng_reference_chain(const ng_layer *layer, const ng_cast *cast, double before, const double *terms, int64_t count);

#endif
