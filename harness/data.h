/* Input data: a value depends on (seed, stream, index) only, never on threads, machine or device. */
#ifndef NG_HARNESS_DATA_H
#define NG_HARNESS_DATA_H

#include "harness/error.h"
#include "kernels/contract.h"

typedef enum ng_distribution {
    NG_NORMAL,            /* standard normal */
    NG_UNIFORM,           /* [-1, 1) */
    NG_POSITIVE,          /* [0, 1) */
    NG_LOGNORMAL,         /* exp(normal), signed at random */
    NG_OUTLIERS,          /* normal, one column in 64 times 64 */
    NG_STUDENT,           /* Student t, 3 degrees of freedom */
    NG_INTEGERS,          /* small integers whose sums are exact in every format and order */
    NG_ILL_CONDITIONED,   /* pairs of rows whose products cancel to a chosen condition number (parameter) */
    NG_TIES,              /* midpoints between neighbours of the target format, and their neighbours */
    NG_SUBNORMAL,         /* magnitudes around the target format's subnormal range */
    NG_ZERO_BLOCKS,       /* normal, whole blocks zero */
    NG_BLOCK_EDGES,       /* block maxima at, one ulp above and one below powers of two and scale ties */
    NG_NEAR_OVERFLOW,     /* magnitudes around the target format's largest value */
    NG_NONFINITE,         /* normal with NaN, +Inf, -Inf and -0 at chosen places */
    NG_LARGE_MEAN,        /* mean 1e4 times the deviation, per row (norms) */
    NG_CONSTANT,          /* every element of a row the same */
    NG_FILE_TENSOR,       /* rows of a .safetensors or .npy tensor */
    NG_DISTRIBUTIONS,
} ng_distribution;

typedef struct ng_data_spec {
    ng_distribution distribution;
    double parameter;          /* condition number, scale...; 0: the distribution's default */
    uint64_t seed;
    uint32_t stream;           /* tells operands of one case apart: 0 IN or A (x), 1 B (w), 2 dy, ... */
    ng_format_id target;       /* the format that ties, subnormals, edges are made for */
    const struct ng_tensor_file *file; /* NG_FILE_TENSOR */
    int file_index;            /* which of its tensors */
    bool transposed;           /* element (i, j) is element (j, i) of the tensor that the spec describes */
    int64_t whole_rows, whole_columns; /* extents of the described tensor before transposition */
} ng_data_spec;

/* Names for ids and --data: "normal", "ill-conditioned", ... */
extern const char *const ng_distribution_names[NG_DISTRIBUTIONS];
ng_status ng_distribution_by_name(const char *name, ng_distribution *distribution, ng_error *error);

/* Whether every element is a binary32, and so can be made on a device (data_cuda.h). */
bool ng_data_is_binary32(const ng_data_spec *spec);

/* Fills the host tensor out (fp32, bf16, fp16, tf32, fp64 or any narrow format: the value is rounded once, to nearest even,
 * saturating) with the elements [row0, row0 + out->rows) x [column0, column0 + out->columns) of the described tensor. */
ng_status ng_data_fill(const ng_data_spec *spec, int64_t row0, int64_t column0, ng_tensor *out, int threads, ng_error *error);

/* The largest magnitude of the whole described tensor once in `format`, without holding it in memory. */
ng_status ng_data_amax(const ng_data_spec *spec, ng_format_id format, int threads, double *amax, ng_error *error);

#endif
