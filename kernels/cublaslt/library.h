/* cuBLASLt, found when the program runs: the library under test is whichever one the process is given, so that two of
 * them can be compared by one program (NARROWGAUGE_CUBLASLT names a file). */
#ifndef NG_KERNELS_CUBLASLT_LIBRARY_H
#define NG_KERNELS_CUBLASLT_LIBRARY_H

#include <cublasLt.h>

/* X(name without its prefix): the functions that are used, with the types of cublasLt.h. */
#define NG_CUBLASLT_FUNCTIONS(X)                                                                                       \
    X(Create) X(GetVersion) X(GetStatusName) X(GetStatusString) X(MatmulDescCreate) X(MatmulDescDestroy)               \
    X(MatmulDescSetAttribute) X(MatrixLayoutCreate) X(MatrixLayoutDestroy) X(MatmulPreferenceCreate)                   \
    X(MatmulPreferenceDestroy) X(MatmulPreferenceSetAttribute) X(MatmulAlgoGetHeuristic) X(MatmulAlgoConfigGetAttribute) \
    X(MatmulAlgoCapGetAttribute) X(Matmul)

#define NG_CUBLASLT_POINTER(name) __typeof__(&cublasLt##name) name;
typedef struct ng_cublaslt {
    NG_CUBLASLT_FUNCTIONS(NG_CUBLASLT_POINTER)
    cublasLtHandle_t handle; /* of the device that was current at the first use */
} ng_cublaslt;
#undef NG_CUBLASLT_POINTER

/* NULL: there is none, and *why says so (a string that stays). The first call loads it; the same answer ever after. */
const ng_cublaslt *ng_cublaslt_library(const char **why);

#endif
