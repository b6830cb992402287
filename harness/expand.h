/* Case lists: from the suites' tables, from a model's layers, from --shape, from tensor files. A list is deterministic:
 * the same tables, catalogue and options give the same cases in the same order, so that a worker process or --resume can
 * find a case by its place and check it by its id. */
#ifndef NG_HARNESS_EXPAND_H
#define NG_HARNESS_EXPAND_H

#include "harness/judge.h"
#include "harness/model.h"
#include "harness/recipe.h"

typedef enum ng_row_use {
    NG_ROW_TABLE,            /* cases of the row's own extents */
    NG_ROW_MODEL,            /* kernels for --model and for operands from files */
    NG_ROW_MODEL_ON_REQUEST, /* the same, but only where a --filter asks for them */
    NG_ROW_TENSORS,          /* quantizers for --tensors; those whose input format is the tensor's (else fp32) run */
} ng_row_use;

/* A row of a case table: kernels x problems x data x modes. */
typedef struct ng_case_row {
    const char *suite;              /* "formats", "gemm", "sweep" ... */
    ng_op op;
    const char *kernels;            /* glob on kernel names; kernels in binary64 (casts apart) only where it has "fp64" in it */
    const char *problem;            /* name of the problem set's entry, NULL: its extents */
    int64_t m, n, k;                /* a cast of extents 0: every code of the input format; id <suite>/<kernel> */
    const ng_distribution *data;    /* ends with NG_DISTRIBUTIONS */
    ng_mode mode;
    ng_level level;
    uint32_t repeats;
    ng_row_use use;
    bool thresholds;                /* a cast of extents 0: every threshold between codes and its neighbours */
    bool for_input;                 /* quantization: data made for the input's format, not the element's. Products: A's are, B's are normal */
    const double *scalars;          /* [NG_SCALARS]; NULL: zeros, or the operation's usual ones */
    unsigned phases;                /* products: bit per ng_phase; then m, n, k are tokens, out and in of a weight's fprop */
    bool recipes;                   /* products under whole recipes: kernels is a glob on recipes' names */
} ng_case_row;

typedef struct ng_case_list {
    ng_case *cases;
    size_t count;
} ng_case_list;

/* What the command line asks for. Zero values: not asked. */
typedef struct ng_selection {
    const ng_case_row *rows;        /* the suites' tables */
    size_t row_count;
    ng_level level;
    uint64_t seed;
    unsigned backends;              /* bit per ng_backend */
    const char *const *filters;     /* globs on case ids; any may match */
    size_t filter_count;
    /* an explicit problem instead of the tables */
    int64_t shape[3];               /* --shape MxNxK */
    const ng_model *model;          /* --model */
    int64_t batch, sequence, tensor_parallel;
    const struct ng_tensor_file *x, *w, *dy; /* --x --w --dy: operands from files */
    const char *x_name, *w_name, *dy_name;   /* one of their tensors by name; NULL: the first */
    const struct ng_tensor_file *tensors;    /* --tensors: quantization cases, one a tensor */
    const char *tensor_name;        /* one of them by name */
    const ng_distribution *data;    /* --data, ends with NG_DISTRIBUTIONS; NULL: the rows' own */
    unsigned modes;                 /* bit per ng_mode; 0: the rows' own */
    ng_recipes recipes;             /* what there is */
    const char *recipe;             /* --recipe: products under those recipes, a comma between globs, instead of single kernels */
    bool full;                      /* no sampling */
    bool verify_on_cpu;             /* products of GPU kernels are sampled too */
} ng_selection;

/* Nothing matched is an error that names the nearest ids. */
ng_status ng_expand(const ng_selection *selection, const ng_catalogue *catalogue, ng_case_list *list, ng_error *error);
void ng_case_list_free(ng_case_list *list);

#endif
