/* A cuBLASLt that spoils its products: every call goes to the real library (NARROWGAUGE_CUBLASLT_BEHIND, else libcublasLt.so.13); after a
 * product, OUT is changed as NARROWGAUGE_SPOIL says. test_cuda_whole.c gives it to the program as NARROWGAUGE_CUBLASLT. */
#include "kernels/cublaslt/library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ng_cublaslt behind;
static __typeof__(&cublasLtMatrixLayoutGetAttribute) layout_attribute;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
    const char *asked = getenv("NARROWGAUGE_CUBLASLT_BEHIND");
    void *library = dlopen(asked && *asked ? asked : "libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL), *found;
    if (!library) library = dlopen(NG_CUBLASLT_DIRECTORY "/libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return;
    }
#define FIND(name)                            \
    found = dlsym(library, "cublasLt" #name); \
    memcpy(&behind.name, &found, sizeof found);
    NG_CUBLASLT_FUNCTIONS(FIND)
#undef FIND
    found = dlsym(library, "cublasLtMatrixLayoutGetAttribute");
    memcpy(&layout_attribute, &found, sizeof found);
}

static const ng_cublaslt *real(void) {
    pthread_once(&once, load);
    return &behind;
}

/* ---- what is only passed on ---------------------------------------------------------------------------------------*/
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) { return real()->Create ? real()->Create(handle) : CUBLAS_STATUS_NOT_INITIALIZED; }
size_t cublasLtGetVersion(void) { return real()->GetVersion ? real()->GetVersion() : 0; }
const char *cublasLtGetStatusName(cublasStatus_t status) { return real()->GetStatusName ? real()->GetStatusName(status) : "no library behind"; }
const char *cublasLtGetStatusString(cublasStatus_t status) { return real()->GetStatusString ? real()->GetStatusString(status) : "no library behind"; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t c, cudaDataType_t t) { return real()->MatmulDescCreate(d, c, t); }
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return real()->MatmulDescDestroy(d); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, const void *v, size_t n) {
    return real()->MatmulDescSetAttribute(d, a, v, n);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType t, uint64_t rows, uint64_t cols, int64_t ld) {
    return real()->MatrixLayoutCreate(l, t, rows, cols, ld);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { return real()->MatrixLayoutDestroy(l); }
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p) { return real()->MatmulPreferenceCreate(p); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return real()->MatmulPreferenceDestroy(p); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t a, const void *v, size_t n) {
    return real()->MatmulPreferenceSetAttribute(p, a, v, n);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t o, cublasLtMatmulPreference_t p, int asked,
                                              cublasLtMatmulHeuristicResult_t results[], int *got) {
    return real()->MatmulAlgoGetHeuristic(h, d, a, b, c, o, p, asked, results, got);
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t a, void *v, size_t n, size_t *written) {
    return real()->MatmulAlgoConfigGetAttribute(algo, a, v, n, written);
}
cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoCapAttributes_t a, void *v, size_t n, size_t *written) {
    return real()->MatmulAlgoCapGetAttribute(algo, a, v, n, written);
}

/* ---- what is spoiled ------------------------------------------------------------------------------------------------*/
enum { WIDEST = 4 };

/* OUT is column-major [rows][columns] without padding here, its elements of 2 or 4 bytes: an element's address is enough. */
typedef struct place {
    unsigned char *middle, *end;
    size_t bytes;
} place;

static cublasStatus_t find(void *out, cublasLtMatrixLayout_t layout, place *p) {
    uint32_t type = 0;
    uint64_t rows = 0, columns = 0;
    size_t written;
    cublasStatus_t status = layout_attribute(layout, CUBLASLT_MATRIX_LAYOUT_TYPE, &type, sizeof type, &written);
    if (!status) status = layout_attribute(layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof rows, &written);
    if (!status) status = layout_attribute(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &columns, sizeof columns, &written);
    p->bytes = type == CUDA_R_32F ? 4 : 2;
    p->end = (unsigned char *)out + rows * columns * p->bytes;
    p->middle = (unsigned char *)out + (rows * columns / 2 + rows / 3) * p->bytes;
    return status;
}

/* flip: lowest bit of the middle element; wrong: its highest mantissa bit but one; large: 2^14; nan; zero; outside: the byte after OUT; unwritten:
 * the middle element is what it was; unstable: flip, in each second product. */
static cudaError_t spoil(const char *how, const place *p, const unsigned char before[WIDEST]) {
    static int count; /* products of one process, which come one at a time */
    unsigned char here[WIDEST];
    uint32_t code = 0;
    cudaError_t error = cudaDeviceSynchronize();
    if (!strcmp(how, "outside")) {
        unsigned char past = 0;
        return error ? error : cudaMemcpy(p->end, &past, 1, cudaMemcpyHostToDevice);
    }
    if (!error) error = cudaMemcpy(here, p->middle, p->bytes, cudaMemcpyDeviceToHost);
    if (error) return error;
    memcpy(&code, here, p->bytes);
    if (!strcmp(how, "flip") || (!strcmp(how, "unstable") && ++count % 2 == 0)) code ^= 1;
    if (!strcmp(how, "wrong")) code ^= p->bytes == 4 ? 1u << 21 : 1u << 5;
    if (!strcmp(how, "large")) code = p->bytes == 4 ? 0x46800000 : 0x4680;
    if (!strcmp(how, "nan")) code = p->bytes == 4 ? 0x7FC00000 : 0x7FFF;
    if (!strcmp(how, "zero")) code = 0;
    if (!strcmp(how, "unwritten")) memcpy(&code, before, p->bytes);
    return cudaMemcpy(p->middle, &code, p->bytes, cudaMemcpyHostToDevice);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t multiply, const void *alpha, const void *a, cublasLtMatrixLayout_t la,
                              const void *b, cublasLtMatrixLayout_t lb, const void *beta, const void *c, cublasLtMatrixLayout_t lc, void *d,
                              cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes, cudaStream_t stream) {
    const char *how = getenv("NARROWGAUGE_SPOIL");
    unsigned char before[WIDEST] = {0};
    place p;
    cublasStatus_t status = find(d, ld, &p);
    if (status) return status;
    if (cudaDeviceSynchronize() || cudaMemcpy(before, p.middle, p.bytes, cudaMemcpyDeviceToHost)) return CUBLAS_STATUS_EXECUTION_FAILED;
    status = real()->Matmul(handle, multiply, alpha, a, la, b, lb, beta, c, lc, d, ld, algo, workspace, bytes, stream);
    if (status || !how || !*how) return status;
    return spoil(how, &p, before) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
