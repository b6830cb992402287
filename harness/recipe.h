/* A recipe as data: in each phase of training who quantizes each operand and who multiplies. Everything else (Hadamard
 * transform, stochastic rounding, scales in two dimensions) is in those kernels' contracts. */
#ifndef NG_HARNESS_RECIPE_H
#define NG_HARNESS_RECIPE_H

#include "harness/judge.h"

/* Globs on kernels' names; the first kernel of the backend that matches is meant. */
typedef struct ng_recipe_product {
    const char *a, *b;                   /* quantizers; NULL: the operand stays as it is */
    const char *gemm[NG_BACKENDS];       /* NULL: none on that backend */
} ng_recipe_product;

typedef struct ng_recipe {
    const char *name;                    /* "nvfp4-no-rht" */
    const char *says;                    /* one line */
    ng_recipe_product phases[NG_PHASES]; /* NG_FPROP: x, w; NG_DGRAD: dy, w; NG_WGRAD: dy, x */
} ng_recipe;

typedef struct ng_recipes {
    const ng_recipe *recipes;
    size_t count;
} ng_recipes;

/* The first kernel of that operation and backend whose name matches; NULL: none. */
const ng_kernel *ng_find_kernel(const ng_catalogue *catalogue, ng_op op, ng_backend backend, const char *glob);

/* NULL, or why a product cannot take what a quantizer makes: another element or scale format, other blocks, no tensor scale.
 * Square blocks fit where the product wants them one row high: the scales are repeated. */
const char *ng_operand_misfit(const ng_quantization *made, const ng_quantization *wanted);

#endif
