/* A case: one kernel, one problem, one kind of data, one mode. Cases are made from tables and from the command line,
 * run one by one, and known by an id that never changes its meaning. */
#ifndef NG_HARNESS_CASE_H
#define NG_HARNESS_CASE_H

#include "harness/data.h"
#include "harness/error.h"
#include "kernels/kernel.h"

enum { NG_ID_BYTES = 256 };

typedef enum ng_level { NG_SMOKE, NG_CI, NG_NIGHTLY, NG_LEVELS } ng_level;

typedef enum ng_mode {
    NG_PREQUANTIZED, /* operands quantized beforehand by the reference: the kernel alone is judged and timed */
    NG_AUTOCAST,     /* quantization by the kernels under test is part of the case */
    NG_MODES,
} ng_mode;

/* Which part of a product is computed and checked: aligned blocks of rows and columns, chosen from the seed. 0 rows: all. */
typedef struct ng_sample {
    int64_t row, rows;       /* of A, so of OUT */
    int64_t column, columns; /* rows of B, columns of OUT */
} ng_sample;

typedef struct ng_case {
    char id[NG_ID_BYTES];
    const ng_kernel *kernel;
    ng_problem problem;      /* the whole product; launch sees the sampled extents */
    char problem_name[96];   /* "llama3-8b.mlp_down", "4096x4096x4096", "tails" */
    char model[48], layer[48]; /* for the model table; empty otherwise */
    ng_data_spec data, data_b; /* of IN or A, and of B */
    ng_mode mode;
    ng_level level;          /* the quickest level that runs it */
    ng_sample sample;
    uint32_t repeats;        /* launches compared bit for bit (determinism); 0 and 1: one */
    const char *suite;       /* the case table that it comes from */
    bool exhaustive;         /* casts: every code of the input format instead of data */
    bool thresholds;         /* casts, with exhaustive: every number at which the result may change, and its neighbours */
    const struct ng_recipe *recipe;   /* a product under a whole recipe; NULL: of operands as the kernel's contract quantizes them */
    const ng_kernel *quantizers[2];   /* with a recipe: of A and B; NULL: none */
    int64_t count;           /* model: how many like it one training step of the whole model runs; 0: not known */
} ng_case;

#endif
